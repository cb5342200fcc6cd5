"""The link in what is rarely met: roles and tokens that cannot be, refusals, ends that come twice, no clocks, no pings.
With test_link and test_link_machine each branch of messages/native/link is taken, except what tests/coverage names."""

from __future__ import annotations

import errno
from typing import Any

import pytest
from beds.link_pair import (
    CLOSED,
    CONSUMED,
    DROPPED,
    EPOCH,
    HOST,
    NEVER,
    OPENING,
    PROXY,
    Pair,
    config,
    core,
    ffi,
    from_host,
    from_proxy,
    hello,
    hello_ack,
    kind,
)
from xts_messages.wire import codec
from xts_messages.wire import wire_table as table
from xts_messages.wire.codec import Frame

TOKEN, REFUSAL = (table.FEATURES[name][0] for name in ("TOKEN", "REFUSAL"))
BY_NAME = {message.name: message for message in table.MESSAGES}


def test_init_takes_no_other_role_and_no_broken_token() -> None:
    token = ffi.new("uint8_t[400]")
    least, most = 64 - table.HEAD_BYTES, 400 - table.HEAD_BYTES
    good = config(HOST, token=token, token_bytes=BY_NAME["XTS_LINK_TOKEN"].fixed_bytes - table.HEAD_BYTES)
    neither = config(HOST)
    neither.role = 2
    broken = [
        neither,
        config(HOST, token_bytes=least),  # there is none
        config(PROXY, token=token, token_bytes=good.token_bytes),
        config(HOST, token=token, token_bytes=good.token_bytes - 1),
        config(HOST, token=token, token_bytes=most),
    ]
    link = ffi.new("struct xts_link *")
    assert core.xts_link_init(link, good, 0) == 0
    assert [core.xts_link_init(link, made, 0) for made in broken] == [-errno.EINVAL] * len(broken)


def test_another_ethertype() -> None:
    pair = Pair(config(HOST, ethertype=0x88B5), config(PROXY, ethertype=0x88B5)).open()
    assert pair.host.send(1) and pair.host.outbox[-1][12:14] == b"\x88\xb5"


def admitting(answers: list[int], epoch: int = EPOCH) -> tuple[Pair, list[tuple[int, bytes] | None]]:
    """A host with a token, and a proxy that admits by `answers`, in turn; what it was shown each time."""
    shown: list[tuple[int, bytes] | None] = []
    cgroup = b"/a.slice"
    fields = {"queue": 3, "uid": 1000, "epoch": epoch, "expires_ms": 1, "length": len(cgroup)}
    frame = codec.encode(Frame("XTS_LINK_TOKEN", fields, cgroup))
    token = ffi.new("uint8_t[]", frame[table.HEAD_BYTES :])

    @ffi.callback("int(void *, struct xts_hello *, struct xts_token *, uint8_t *)")  # type: ignore[untyped-decorator]
    def admit(_: Any, hello: Any, token: Any, cgroup: Any) -> int:
        assert hello.epoch == EPOCH
        shown.append((int(token.uid), bytes(ffi.buffer(cgroup, token.length))) if token else None)
        return answers.pop(0)

    host = config(HOST, token=token, token_bytes=len(token) - 1)
    pair = Pair(host, config(PROXY, features=TOKEN, admit=ffi.cast("void *", admit)))
    pair.keep = (token, admit)  # type: ignore[attr-defined]
    return pair, shown


def test_a_token_comes_before_each_hello() -> None:
    pair, shown = admitting([0])
    assert [kind(f) for f in pair.host.pump(pair.now_ns)] == ["XTS_LINK_TOKEN", "XTS_LINK_HELLO"]
    pair.open()
    assert shown == [(1000, b"/a.slice")]


def test_a_token_is_for_the_hello_after_it_only() -> None:
    pair, shown = admitting([errno.EACCES, errno.EACCES])
    token, first = pair.host.pump(pair.now_ns)
    for frame in (token, first, first):
        pair.proxy.take(frame, pair.now_ns)
    assert shown == [(1000, b"/a.slice"), None]
    assert pair.proxy.error == errno.EACCES


def test_who_admits_everybody_looks_at_no_token() -> None:
    pair, _ = admitting([])
    open_to_all = Pair(ffi.addressof(pair.host.link, "config"), config(PROXY, features=TOKEN))
    open_to_all.keep = pair  # type: ignore[attr-defined]
    open_to_all.open()
    assert open_to_all.host.link.features == 0


@pytest.mark.parametrize(
    "frame",
    [
        from_host("XTS_LINK_TOKEN")[:-1] + b"\x05",  # a length, and nothing after it
        hello(largest_message=(1 << 32) - 1),
        hello(epoch=0),
    ],
)
def test_what_opens_no_epoch_and_is_broken(frame: bytes) -> None:
    pair = Pair()
    assert pair.proxy.take(frame, pair.now_ns) in (DROPPED, CONSUMED)
    assert pair.proxy.link.state == OPENING


def test_a_refused_hello_while_the_link_is_up_ends_the_old_epoch() -> None:
    pair = Pair().open()
    assert pair.proxy.take(hello(epoch=EPOCH + 1, version=table.VERSION + 1), pair.now_ns) == CLOSED


def test_a_second_hello_ack_is_passed_over() -> None:
    pair = Pair().open()
    assert pair.host.take(hello_ack(), pair.now_ns) == CONSUMED
    assert pair.host.up


def test_a_host_has_the_number_of_a_refusal_if_it_knows_such() -> None:
    for features, number in ((0, 0), (REFUSAL, 7)):
        pair = Pair(config(HOST, features=features))
        pair.host.pump(pair.now_ns)
        answer = bytearray(hello_ack(error=errno.ENOBUFS))
        answer[table.ETH_BYTES + 3] = 7
        assert codec.decode(bytes(answer)).flags == 7
        assert pair.host.take(bytes(answer), pair.now_ns) == CLOSED
        assert pair.host.link.refusal == number


def test_goodbye_before_any_hello_is_stale() -> None:
    pair = Pair()
    assert pair.proxy.take(from_host("XTS_LINK_GOODBYE"), pair.now_ns) == DROPPED
    assert pair.proxy.link.stats.dropped_stale == 1


def test_ending_again_changes_nothing() -> None:
    pair = Pair().open()
    core.xts_link_goodbye(pair.host.link, errno.ENOMEM)
    core.xts_link_goodbye(pair.host.link, errno.EIO)
    core.xts_link_fail(pair.host.link, errno.EIO)
    assert pair.host.error == errno.ENOMEM


def test_the_rule_that_the_first_violation_broke_is_kept() -> None:
    pair = Pair().open()
    rules = [ffi.new("char[]", rule) for rule in (b"a seqno skipped", b"another rule")]
    for rule in rules:
        core.xts_link_violated(pair.host.link, rule)
    assert pair.host.error == errno.EPROTO
    assert ffi.string(pair.host.link.violation) == b"a seqno skipped"


def test_a_host_that_waits_for_ever_has_a_deadline_for_its_hello_only() -> None:
    pair = Pair(config(HOST, dead_ms=0))
    pair.host.pump(pair.now_ns)
    for _ in range(100):
        pair.advance(50)
    assert pair.host.link.state == OPENING
    assert core.xts_link_deadline_ns(pair.host.link) <= pair.now_ns


def test_a_watched_peer_that_may_be_silent_for_ever() -> None:
    pair = Pair(config(HOST, dead_ms=0)).open()
    core.xts_link_watch(pair.host.link, True, pair.now_ns)
    pair.advance(100)
    assert [kind(f) for f in pair.host.pump(pair.now_ns)] == ["XTS_LINK_PING"]
    for _ in range(7):  # it is asked a few times
        pair.now_ns = core.xts_link_deadline_ns(pair.host.link)
        pair.host.tick(pair.now_ns)
        assert [kind(f) for f in pair.host.pump(pair.now_ns)] == ["XTS_LINK_PING"]
    pair.advance(100_000)
    assert pair.host.up and core.xts_link_deadline_ns(pair.host.link) == NEVER


def test_without_pings_a_watch_costs_nothing() -> None:
    pair = Pair(config(HOST, ping_ms=0)).open()
    core.xts_link_watch(pair.host.link, True, pair.now_ns)
    core.xts_link_watch(pair.host.link, True, pair.now_ns)
    pair.advance(100_000)
    assert pair.host.up and pair.host.pump(pair.now_ns) == []
    assert core.xts_link_deadline_ns(pair.host.link) == NEVER


def test_nothing_is_recycled_that_was_not_received() -> None:
    pair = Pair().open()
    core.xts_link_recycled(pair.host.link)
    assert pair.host.link.recycled == 0


def test_a_question_for_the_time_where_there_is_no_clock() -> None:
    pair = Pair().open()
    core.xts_link_ask_clock(pair.proxy.link)
    core.xts_link_ask_clock(pair.host.link)
    assert pair.proxy.take(from_host("XTS_LINK_CLOCK", {"token": 1}), pair.now_ns) == CONSUMED
    assert pair.host.take(from_proxy("XTS_LINK_CLOCK_ACK", {"token": 1, "time_ns": 1}), pair.now_ns) == CONSUMED
    assert pair.host.pump(pair.now_ns) == pair.proxy.pump(pair.now_ns) == []


@pytest.mark.parametrize("name", ["XTS_LINK_PING", "XTS_LINK_PONG", "XTS_LINK_CLOCK", "XTS_LINK_FRAME_ACK"])
def test_a_control_frame_in_the_wrong_direction_or_cut_off(name: str) -> None:
    pair = Pair().open()
    whole = from_host(name)
    for frame in (whole[: table.HEAD_BYTES], from_host("XTS_LINK_HELLO_ACK")):
        Pair().open().proxy.take(frame, pair.now_ns)
    verdict = pair.proxy.take(whole[: table.HEAD_BYTES], pair.now_ns)
    assert verdict == (CONSUMED if len(whole) == table.HEAD_BYTES else CLOSED)


@pytest.mark.parametrize("side", ["host", "proxy"])
def test_a_probe_that_no_program_took_is_nothing_to_a_link(side: str) -> None:
    """An agent sends them for queue 0, too, while a process or its relay has that queue, and asks a device again and
    again that has no addresses: there they come to its socket."""
    for pair in (Pair(), Pair().open()):
        end = pair.host if side == "host" else pair.proxy
        assert pair.host.send(1) is pair.host.up
        pair.settle()
        heard_ns = int(end.link.heard_ns)
        probe = (from_proxy if side == "host" else from_host)("XTS_LINK_PROBE", {"round": 1})
        assert end.take(probe, pair.now_ns + 1) == DROPPED
        assert end.pump(pair.now_ns) == [] and end.link.stats.dropped_foreign == 1
        assert int(end.link.heard_ns) == heard_ns, "it does not show that the other end lives"
        assert pair.host.send(2) is pair.host.up is end.up


@pytest.mark.parametrize("side", ["host", "proxy"])
def test_a_frame_for_a_group_is_nothing_to_a_link(side: str) -> None:
    """By such frames an end tells bridges where its addresses are: without a bridge the other end gets them."""
    pair = Pair().open()
    end = pair.host if side == "host" else pair.proxy
    frame = (from_proxy if side == "host" else from_host)("XTS_LINK_PONG")
    assert end.take(bytes([0x01, *frame[1:]]), pair.now_ns) == DROPPED
    assert end.link.stats.dropped_foreign == 1 and end.up


@pytest.mark.parametrize(
    ("name", "lost"),
    [("XTS_CMD_SEND", True), ("XTS_LINK_PART", True), ("XTS_CMD_MOVE_ACK", False), ("XTS_LINK_PING", False)],
)
def test_what_comes_before_the_link_is_up_is_lost(name: str, lost: bool) -> None:
    """Its sender counts on it, or does not."""
    proxy = Pair().proxy
    assert proxy.take(from_host(name), 1) == DROPPED
    assert bool(proxy.link.lost_early) is lost and proxy.link.stats.dropped_early == 1


def test_a_proxy_that_has_met_nobody_takes_leave_of_nobody() -> None:
    pair = Pair()
    core.xts_link_goodbye(pair.proxy.link, 0)
    assert pair.proxy.pump(pair.now_ns) == []


def test_a_hello_ack_after_the_end_is_stale() -> None:
    pair = Pair().open()
    core.xts_link_goodbye(pair.host.link, 0)
    assert pair.host.take(hello_ack(), pair.now_ns) == DROPPED


@pytest.mark.parametrize("changes", [{"largest_message": 3839}, {"frame_window": 3}])
def test_a_hello_ack_out_of_range_is_a_violation(changes: dict[str, int]) -> None:
    pair = Pair()
    pair.host.pump(pair.now_ns)
    assert pair.host.take(hello_ack(**changes), pair.now_ns) == CLOSED
    assert pair.host.error == errno.EPROTO


def test_a_hello_ack_with_larger_messages_than_were_offered_is_a_violation() -> None:
    pair = Pair(config(HOST, largest_message=3840))
    pair.host.pump(pair.now_ns)
    assert pair.host.take(hello_ack(largest_message=3841), pair.now_ns) == CLOSED


def test_a_hello_ack_that_no_end_can_have_sent_is_dropped() -> None:
    pair = Pair()
    pair.host.pump(pair.now_ns)
    assert pair.host.take(hello_ack(largest_message=61441), pair.now_ns) == DROPPED
    assert pair.host.link.stats.malformed == 1
    pair.open()


def test_more_of_a_head_than_there_is_of_the_frame() -> None:
    pair = Pair().open()
    head = ffi.new("struct xts_head *")
    frame = from_host("XTS_LINK_FRAME_ACK").ljust(128, b"\0")
    memory = ffi.new("uint8_t[]", frame)
    assert core.xts_link_receive(pair.proxy.link, memory, 128, table.HEAD_BYTES - 1, pair.now_ns, head) == DROPPED


def test_a_proxy_that_has_a_clock_asks_for_none() -> None:
    @ffi.callback("void(void *, struct xts_clock_ack *)")  # type: ignore[untyped-decorator]
    def clock(_: Any, ack: Any) -> None:
        raise AssertionError("nobody has asked")

    stamps = table.FEATURES["STAMPS"][0]
    pair = Pair(config(HOST, features=stamps, clock=clock), config(PROXY, features=stamps, clock=clock))
    core.xts_link_ask_clock(pair.host.link)  # it is not up yet
    pair.open()
    core.xts_link_ask_clock(pair.proxy.link)
    assert pair.proxy.pump(pair.now_ns) == []
    core.xts_link_ask_clock(pair.host.link)
    pair.host.pump(pair.now_ns)
    wrong = from_proxy("XTS_LINK_CLOCK_ACK", {"token": 1, "time_ns": 1})
    assert pair.host.take(wrong, pair.now_ns) == CONSUMED


def test_a_proxy_that_waits_for_a_host_has_no_deadline() -> None:
    assert core.xts_link_deadline_ns(Pair().proxy.link) == NEVER


def test_what_is_due_without_regard_to_time() -> None:
    pair = Pair().open()
    assert not core.xts_link_control_due(pair.proxy.link)
    for number in range(4):
        assert pair.host.send(number)
        pair.proxy.receive(pair.now_ns)
    pair.proxy.recycle(4)
    assert core.xts_link_control_due(pair.proxy.link)


@pytest.mark.parametrize("side", ["host", "proxy"])
def test_a_second_goodbye_says_nothing_new(side: str) -> None:
    pair = Pair().open()
    link, made = (pair.host, from_proxy) if side == "host" else (pair.proxy, from_host)
    goodbye = made("XTS_LINK_GOODBYE", {"epoch": int(link.link.epoch)}, error=errno.EIO)
    assert link.take(goodbye, pair.now_ns) == CLOSED
    assert link.take(goodbye, pair.now_ns) == DROPPED
