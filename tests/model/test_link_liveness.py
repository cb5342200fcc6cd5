"""The link between two ends that are silent, ask and answer: liveness, and the device's clock."""

from __future__ import annotations

import errno
from typing import Any

import pytest
from beds.link_pair import (
    CONSUMED,
    DOWN,
    HOST,
    MS,
    NEVER,
    PROXY,
    End,
    Pair,
    config,
    core,
    ffi,
    from_host,
    from_proxy,
    kind,
)
from xts_messages.wire import codec
from xts_messages.wire import wire_table as table

# --- liveness -------------------------------------------------------------------------------------


def watched() -> Pair:
    pair = Pair().open()
    core.xts_link_watch(pair.host.link, True, pair.now_ns)
    return pair


def test_an_idle_process_is_silent() -> None:
    pair = Pair().open()
    assert core.xts_link_deadline_ns(pair.host.link) == core.xts_link_deadline_ns(pair.proxy.link) == NEVER
    for _ in range(100):
        pair.advance(1000)
        pair.settle()
    assert pair.host.up
    assert pair.host.verdicts.count(CONSUMED) == len(pair.host.verdicts) - 1
    assert not pair.proxy.inbox


def test_a_watched_peer_is_pinged_and_answers() -> None:
    pair = watched()
    assert core.xts_link_deadline_ns(pair.host.link) == pair.now_ns + 100 * MS
    pair.advance(99)
    assert pair.host.pump(pair.now_ns) == []
    pair.advance(1)
    assert [kind(f) for f in pair.host.pump(pair.now_ns)] == ["XTS_LINK_PING"]
    assert core.xts_link_deadline_ns(pair.host.link) == pair.now_ns + 100 * MS
    pair.proxy.receive(pair.now_ns)
    (pong,) = pair.proxy.pump(pair.now_ns)
    assert not pair.host.outbox
    assert codec.decode(pong).name == "XTS_LINK_PONG"
    assert pair.host.receive(pair.now_ns) == CONSUMED
    for _ in range(50):
        pair.advance(100)
        pair.settle()
    assert pair.host.up


def test_pong_repeats_the_token() -> None:
    pair = Pair().open()
    pair.proxy.take(from_host("XTS_LINK_PING", {"token": 0xFEEDFACECAFEBEEF}), pair.now_ns)
    (pong,) = pair.proxy.pump(pair.now_ns)
    assert codec.decode(pong).fields == {"token": 0xFEEDFACECAFEBEEF}


def test_a_dead_peer_ends_the_link_in_time() -> None:
    pair = watched()
    start = pair.now_ns
    while pair.host.up:
        pair.now_ns = max(pair.now_ns + 1, core.xts_link_deadline_ns(pair.host.link))
        pair.host.tick(pair.now_ns)
        pair.host.pump(pair.now_ns)
    assert pair.host.error == errno.ETIMEDOUT
    assert (pair.now_ns - start) // MS == 1100
    assert [kind(f) for f in pair.host.outbox] == ["XTS_LINK_PING"] * 4 + ["XTS_LINK_GOODBYE"], "no storm"


def test_pings_are_repeated_at_growing_intervals() -> None:
    pair = watched()
    start, times = pair.now_ns, []
    while pair.host.up:
        pair.advance(1)
        times += [(pair.now_ns - start) // MS for frame in pair.host.pump(pair.now_ns) if "PING" in kind(frame)]
    assert times == [100, 200, 400, 800]  # and so on, to the eighth


def test_any_frame_shows_that_the_peer_lives() -> None:
    pair = watched()
    pair.advance(100)
    pair.host.pump(pair.now_ns)
    pair.host.outbox.clear()  # the ping is lost
    pair.proxy.send(1)
    pair.settle()
    pair.advance(999)
    assert pair.host.up
    assert [kind(f) for f in pair.host.pump(pair.now_ns)] == ["XTS_LINK_PING"]


def test_silence_before_the_watch_says_nothing() -> None:
    pair = Pair().open()
    pair.advance(10_000)
    core.xts_link_watch(pair.host.link, True, pair.now_ns)
    pair.advance(99)
    assert pair.host.pump(pair.now_ns) == []
    core.xts_link_watch(pair.host.link, False, pair.now_ns)
    pair.advance(10_000)
    assert pair.host.pump(pair.now_ns) == []
    assert pair.host.up


@pytest.mark.parametrize("pause_ms", [0, 50])
def test_a_peer_that_is_watched_for_short_times_is_found_dead(pause_ms: int) -> None:
    """As by a program that waits for less than ping_ms at a time."""
    pair = Pair().open()
    start = pair.now_ns
    while pair.host.up and pair.now_ns - start < 5000 * MS:
        core.xts_link_watch(pair.host.link, True, pair.now_ns)
        pair.now_ns += 40 * MS
        pair.host.tick(pair.now_ns)
        pair.host.pump(pair.now_ns)
        core.xts_link_watch(pair.host.link, False, pair.now_ns)
        pair.now_ns += pause_ms * MS
    assert pair.host.error == errno.ETIMEDOUT
    assert 1100 <= (pair.now_ns - start) // MS <= 1300


def test_a_long_pause_between_two_watches_does_not_count() -> None:
    pair = Pair().open()
    for _ in range(20):
        core.xts_link_watch(pair.host.link, True, pair.now_ns)
        pair.advance(40)
        pair.settle()
        core.xts_link_watch(pair.host.link, False, pair.now_ns)
        pair.now_ns += 10_000 * MS
    assert pair.host.up


def test_silence_after_a_ping_counts_only_while_it_is_watched() -> None:
    pair = watched()
    pair.advance(100)  # a ping is due, and nobody answers
    core.xts_link_watch(pair.host.link, False, pair.now_ns)
    pair.now_ns += 10_000 * MS
    core.xts_link_watch(pair.host.link, True, pair.now_ns)
    pair.host.tick(pair.now_ns + 999 * MS)
    assert pair.host.up
    pair.host.tick(pair.now_ns + 1000 * MS)
    assert not pair.host.up


def test_a_flood_of_pings_is_answered_once_a_round() -> None:
    pair = Pair().open()
    for token in range(1000):
        pair.proxy.take(from_host("XTS_LINK_PING", {"token": token}), pair.now_ns)
    assert [kind(f) for f in pair.proxy.pump(pair.now_ns)] == ["XTS_LINK_PONG"]


# --- the device's clock ---------------------------------------------------------------------------

STAMPS = table.FEATURES["STAMPS"][0]
TIME_NS = 1_700_000_000 * 10**9


def with_clocks(features: int = STAMPS) -> tuple[Pair, list[tuple[int, int]]]:
    """Two ends that compare clocks, and what the host is told: the question's token and the time."""
    told: list[tuple[int, int]] = []

    @ffi.callback("void(void *, struct xts_clock_ack *)")  # type: ignore[untyped-decorator]
    def tells(_: Any, ack: Any) -> None:
        ack.time_ns, ack.error_ns = TIME_NS + len(told), 7

    @ffi.callback("void(void *, struct xts_clock_ack *)")  # type: ignore[untyped-decorator]
    def hears(_: Any, ack: Any) -> None:
        assert ack.error_ns == 7
        told.append((int(ack.token), int(ack.time_ns)))

    pair = Pair(config(HOST, features=STAMPS, clock=hears), config(PROXY, features=features, clock=tells)).open()
    pair.keep = (tells, hears)  # type: ignore[attr-defined]
    return pair, told


def test_the_time_is_told_when_it_is_asked_for() -> None:
    pair, told = with_clocks()
    assert not pair.host.pump(pair.now_ns)
    core.xts_link_ask_clock(pair.host.link)
    asked = pair.now_ns
    assert [kind(f) for f in pair.host.pump(asked)] == ["XTS_LINK_CLOCK"]
    pair.advance(3)
    assert pair.proxy.receive(pair.now_ns) == CONSUMED
    (answer,) = pair.proxy.pump(pair.now_ns)
    assert codec.decode(answer).fields == {"token": asked, "time_ns": TIME_NS, "error_ns": 7}
    assert pair.host.receive(pair.now_ns) == CONSUMED
    pair.host.take(answer, pair.now_ns)  # no question is out any more
    assert told == [(asked, TIME_NS)]


def test_the_time_is_not_asked_of_a_proxy_that_does_not_tell_it() -> None:
    pair, told = with_clocks(features=0)
    core.xts_link_ask_clock(pair.host.link)
    assert not pair.host.pump(pair.now_ns)
    pair.host.take(from_proxy("XTS_LINK_CLOCK_ACK", {"token": 1, "time_ns": 1}), pair.now_ns)
    assert pair.host.up and not told


def test_a_ping_asks_for_the_time_too() -> None:
    pair, told = with_clocks()
    core.xts_link_watch(pair.host.link, True, pair.now_ns)
    pair.advance(100)
    assert [kind(f) for f in pair.host.pump(pair.now_ns)] == ["XTS_LINK_PING", "XTS_LINK_CLOCK"]
    pair.settle()
    assert len(told) == 1


def test_a_flood_of_questions_is_answered_once_a_round() -> None:
    pair, _ = with_clocks()
    for token in range(1000):
        pair.proxy.take(from_host("XTS_LINK_CLOCK", {"token": token}), pair.now_ns)
    (answer,) = pair.proxy.pump(pair.now_ns)
    assert codec.decode(answer).fields["token"] == 999


@pytest.mark.parametrize("window", range(4, 129))
def test_acknowledgements_of_a_window_fit_the_control_reserve(window: int) -> None:
    """The peer reads nothing: what it can provoke, one way, is a window of acknowledgements, a ping, the
    answer to a question for the time, and a goodbye."""
    pair = Pair(config(HOST, frame_window=window), config(PROXY, frame_window=window)).open()
    core.xts_link_watch(pair.proxy.link, True, pair.now_ns)
    proxy: End = pair.proxy
    for number in range(window):
        pair.host.send(number)
        proxy.receive(pair.now_ns)
        proxy.recycle()
        proxy.pump(pair.now_ns)
    for _ in range(20):
        pair.advance(50)
        proxy.pump(pair.now_ns)
    pair.advance(1000)
    proxy.pump(pair.now_ns)
    assert proxy.link.state == DOWN
    assert len(pair.host.inbox) <= table.CONTROL_RESERVE
