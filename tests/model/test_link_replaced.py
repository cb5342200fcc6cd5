"""What the links do when the proxy's process has died and another one goes on (PROTOCOL.md, "Crash")."""

from __future__ import annotations

import errno

import pytest
from beds.link_pair import (
    CLOSED,
    CONSUMED,
    DROPPED,
    EPOCH,
    HOST,
    OPENED,
    OPENING,
    PROXY,
    Pair,
    config,
    core,
    ffi,
    from_host,
    from_proxy,
    hello,
    kind,
)
from xts_messages.wire import wire_table as table

RESUME = table.FEATURES["RESUME"][0]
TICKET, NEXT_TICKET = 0x8000000000000001, 0x8000000000000002
REPLAYED = core.XTS_LINK_REPLAYED


def opened(features: int = RESUME) -> Pair:
    return Pair(config(HOST, features=features), config(PROXY, features=features)).open()


def replaced(pair: Pair, ticket: int = TICKET, *, empty: bool = True) -> None:
    """The next process has the proxy's end. `empty`: and has received all that was on its way."""
    link = ffi.new("struct xts_link *")
    assert core.xts_link_init(link, config(PROXY, features=RESUME), pair.now_ns) == 0
    core.xts_link_replace(link, EPOCH, ticket)
    if empty:
        core.xts_link_replay_ends(link)
    pair.proxy.link = link


def told(**fields: int) -> bytes:
    return from_proxy("XTS_LINK_REPLACED", {"epoch": EPOCH, "ticket": TICKET} | fields)


def test_the_host_ends_its_epoch_and_opens_the_link_again() -> None:
    pair = opened()
    replaced(pair)
    assert [kind(frame) for frame in pair.proxy.pump(pair.now_ns)] == ["XTS_LINK_REPLACED"]
    assert pair.host.receive(pair.now_ns) == CLOSED
    assert pair.host.error == errno.ERESTART and pair.host.link.replaced_ticket == TICKET
    pair.reattach(config(HOST, features=RESUME))
    pair.settle()
    assert pair.host.up and pair.proxy.up and not pair.proxy.link.replaced_ticket
    assert pair.host.send(1)
    pair.settle()
    assert pair.proxy.delivered == [1]


def test_what_the_host_has_sent_is_received_again_and_it_is_told_once_more() -> None:
    """Of frames it is known whether one is missing between two. Those without a number are no gap."""
    pair = opened()
    for number in range(1, 5):
        assert pair.host.send(number)
    frames = list(pair.host.outbox)
    replaced(pair)
    pair.proxy.pump(pair.now_ns)
    follows = []
    for frame in (frames[0], frames[1], from_host("XTS_LINK_PING", {"token": 1}, seqno=2), frames[2], frames[0]):
        assert pair.proxy.take(frame, pair.now_ns) == REPLAYED
        follows.append(bool(pair.proxy.link.replay_follows))
    assert follows == [False, True, True, True, False]
    assert "XTS_LINK_REPLACED" in [kind(frame) for frame in pair.proxy.pump(pair.now_ns)]
    assert pair.proxy.take(from_host("XTS_REPLY_RECV", {"length": 0}), pair.now_ns) == DROPPED, "the wrong way"


def test_a_hello_that_the_dead_process_had_answered_opens_nothing() -> None:
    """The host had repeated it before the answer came, and has been up since. It would be up with the next process in
    the middle of its messages, which broke the order."""
    pair = Pair(config(HOST, features=RESUME), config(PROXY, features=RESUME))
    pair.open()
    assert pair.host.send(1)
    sent = list(pair.host.outbox)
    replaced(pair, empty=False)
    assert pair.proxy.take(hello(features=RESUME), pair.now_ns) == DROPPED
    assert [pair.proxy.take(frame, pair.now_ns) for frame in sent] == [REPLAYED]
    assert pair.proxy.pump(pair.now_ns) == [], "it is told when all has been received that was on its way"
    core.xts_link_replay_ends(pair.proxy.link)
    assert [kind(frame) for frame in pair.proxy.pump(pair.now_ns)] == ["XTS_LINK_REPLACED"]
    assert pair.proxy.take(hello(features=RESUME), pair.now_ns) == OPENED


def test_a_hello_of_another_epoch_is_a_new_host() -> None:
    """It attached while the proxy's process was dead."""
    pair = opened()
    replaced(pair, empty=False)
    assert pair.proxy.take(hello(features=RESUME, epoch=EPOCH + 1), pair.now_ns) == OPENED


def test_the_end_of_the_replay_is_told_once() -> None:
    pair = opened()
    core.xts_link_replay_ends(pair.proxy.link)
    assert pair.proxy.pump(pair.now_ns) == [], "nobody has died"
    replaced(pair)
    told_once = [kind(frame) for frame in pair.proxy.pump(pair.now_ns)]
    core.xts_link_replay_ends(pair.proxy.link)
    assert told_once == ["XTS_LINK_REPLACED"] and pair.proxy.pump(pair.now_ns) == []


def test_another_one_dies_before_the_link_is_open_again() -> None:
    pair = opened()
    pair.host.take(told(), pair.now_ns)
    pair.reattach(config(HOST, features=RESUME))
    assert pair.host.link.state == OPENING
    assert pair.host.take(told(ticket=NEXT_TICKET), pair.now_ns) == CONSUMED
    assert pair.host.link.replaced_ticket == NEXT_TICKET and pair.host.link.state == OPENING


@pytest.mark.parametrize("fields", [{"epoch": EPOCH + 1}, {"epoch": 0}])
def test_another_epoch_is_none_of_the_hosts(fields: dict[str, int]) -> None:
    pair = opened()
    assert pair.host.take(told(**fields), pair.now_ns) == DROPPED
    assert pair.host.up


def test_nothing_is_replaced_of_a_link_that_is_down() -> None:
    pair = opened()
    core.xts_link_goodbye(pair.host.link, 0)
    assert pair.host.take(told(), pair.now_ns) == DROPPED


@pytest.mark.parametrize(("features", "fields"), [(0, {}), (RESUME, {"ticket": 0})])
def test_what_cannot_be_is_a_violation(features: int, fields: dict[str, int]) -> None:
    pair = opened(features)
    assert pair.host.take(told(**fields), pair.now_ns) == CLOSED
    assert pair.host.error == errno.EPROTO


def test_a_short_one_is_a_violation() -> None:
    pair = opened()
    assert pair.host.take(told()[:-4], pair.now_ns) in (CLOSED, DROPPED)
    pair = opened()
    assert pair.host.take(told() + bytes(8), pair.now_ns) in (CLOSED, DROPPED, CONSUMED)
