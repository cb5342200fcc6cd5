"""The link, case by case: opening, refusing, sequence, frame credits, epochs, ending."""

from __future__ import annotations

import errno

import pytest
from beds.link_pair import (
    CLOSED,
    CONSUMED,
    DELIVER,
    DOWN,
    DROPPED,
    EPOCH,
    HOST,
    MAC,
    MS,
    NEVER,
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
    hello_ack,
    kind,
)
from xts_messages.wire import codec
from xts_messages.wire import wire_table as table
from xts_messages.wire.codec import Frame

MULTI_BUFFER = 1
PARTS = table.FEATURES["PARTS"][0]
ETH = table.ETH_BYTES


# --- opening --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "ok"),
    [
        ({}, True),
        ({"frame_window": 4}, True),
        ({"frame_window": 128}, True),
        ({"frame_window": 3}, False),
        ({"frame_window": 129}, False),
        ({"largest_message": 3840}, True),
        ({"largest_message": 3839}, False),
        ({"largest_message": 61441}, False),
        ({"largest_message": 1294, "features": PARTS}, True),
        ({"largest_message": 1293, "features": PARTS}, False),
    ],
)
def test_init_checks_its_configuration(changes: dict[str, int], ok: bool) -> None:
    for role in (HOST, PROXY):
        link = ffi.new("struct xts_link *")
        assert core.xts_link_init(link, config(role, **changes), 0) == (0 if ok else -errno.EINVAL)


@pytest.mark.parametrize("packet, head", [(1514, 0), (1294, 0), (1514, 32), (3839, 96)])
def test_frames_in_parts_have_eight_times_as_much(packet: int, head: int) -> None:
    """An end with longer packets sends as short ones as the other can receive."""
    long, short = ({"largest_message": size, "features": PARTS, "head_bytes": head} for size in (61440, packet))
    for host, proxy in ((long, short), (short, long), (short, short)):
        pair = Pair(config(HOST, **host), config(PROXY, **proxy)).open()
        for end in pair.ends:
            assert end.link.packet_bytes == packet
            assert end.link.largest_message == ETH + 8 * (packet - head - int(core.XTS_PART_BYTES))


def test_packets_that_hold_a_message_need_no_parts() -> None:
    pair = Pair(config(HOST, largest_message=9014, features=PARTS), config(PROXY, features=PARTS)).open()
    assert [end.link.largest_message for end in pair.ends] == [9014, 9014]


def test_short_packets_need_an_end_that_knows_parts() -> None:
    pair = Pair(config(HOST, largest_message=1514, features=PARTS), config(PROXY))
    pair.settle()
    assert pair.host.link.state == core.XTS_LINK_DOWN
    assert pair.host.link.error == errno.EMSGSIZE


def test_opening_agrees_on_the_smaller_values() -> None:
    pair = Pair(
        config(HOST, frame_window=64, largest_message=61440, features=0b110),
        config(PROXY, frame_window=32, largest_message=3840, features=0b011),
    ).open()
    for end in pair.ends:
        link = end.link
        assert (link.frame_window, link.largest_message, link.features, link.epoch) == (32, 3840, 0b010, EPOCH)
        assert end.credits == 32
    assert pair.host.link.sockets_max == 100
    assert pair.proxy.link.config.pid == 1
    assert OPENED in pair.host.verdicts
    assert OPENED in pair.proxy.verdicts


def test_nothing_passes_before_the_link_is_up() -> None:
    pair = Pair()
    assert pair.host.credits == pair.proxy.credits == 0
    assert pair.proxy.take(from_host("XTS_CMD_CONNECT"), pair.now_ns) == DROPPED
    assert pair.host.take(from_proxy("XTS_REPLY_RECV"), pair.now_ns) == DROPPED
    assert pair.host.link.stats.dropped_early == pair.proxy.link.stats.dropped_early == 1
    pair.open()


def test_a_lost_hello_is_repeated_until_answered() -> None:
    pair = Pair()
    for _ in range(3):
        assert [kind(f) for f in pair.host.pump(pair.now_ns)] == ["XTS_LINK_HELLO"]
        pair.host.outbox.clear()
        pair.advance(49)
        assert pair.host.pump(pair.now_ns) == []
        pair.advance(1)
    pair.open()
    assert pair.proxy.link.stats.hellos == 1


def test_a_lost_hello_ack_is_repeated() -> None:
    pair = Pair()
    pair.host.pump(pair.now_ns)
    assert pair.proxy.receive(pair.now_ns) == OPENED
    pair.proxy.pump(pair.now_ns)
    pair.proxy.outbox.clear()
    pair.advance(50)
    pair.open()
    assert pair.proxy.link.stats.hellos == 2
    assert pair.proxy.verdicts.count(OPENED) == 1, "the epoch is opened once"


def test_a_hello_repeated_while_the_proxy_already_sends() -> None:
    """The proxy's messages do not make a repeated HELLO a violation; only one that has arrived does."""
    pair = Pair()
    pair.host.pump(pair.now_ns)
    pair.advance(50)
    pair.host.pump(pair.now_ns)
    assert pair.proxy.receive(pair.now_ns) == OPENED
    pair.proxy.pump(pair.now_ns)
    assert pair.proxy.send(1)
    assert pair.proxy.receive(pair.now_ns) == CONSUMED
    pair.open()
    assert pair.host.delivered == [1]


def test_nothing_overtakes_the_hello_ack() -> None:
    pair = Pair()
    pair.host.pump(pair.now_ns)
    assert pair.proxy.receive(pair.now_ns) == OPENED
    assert pair.proxy.credits == 0
    pair.proxy.pump(pair.now_ns)
    assert pair.proxy.credits == 16


def test_hello_twice_after_traffic_is_a_violation() -> None:
    pair = Pair().open()
    pair.host.send(1)
    pair.settle()
    assert pair.proxy.take(hello(), pair.now_ns) == CLOSED
    assert pair.proxy.error == errno.EPROTO
    pair.settle()
    assert pair.host.error == errno.EPROTO


def test_a_hello_that_nobody_answers_times_out() -> None:
    pair = Pair(config(HOST, dead_ms=200))
    while pair.host.link.state == OPENING:
        assert [kind(f) for f in pair.host.pump(pair.now_ns)] == ["XTS_LINK_HELLO"]
        pair.advance(50)
    assert pair.host.error == errno.ETIMEDOUT
    assert pair.now_ns == 205 * MS
    assert pair.host.pump(pair.now_ns) == []


def test_the_deadline_is_never_after_what_it_announces() -> None:
    """Ticking only when the deadline says so ends a HELLO in time, also when that is no multiple of the repetition."""
    pair = Pair(config(HOST, dead_ms=120))
    for _ in range(10):
        pair.host.pump(pair.now_ns)
        deadline = core.xts_link_deadline_ns(pair.host.link)
        if deadline == NEVER:
            break
        assert deadline >= pair.now_ns
        pair.now_ns = deadline
        pair.host.tick(pair.now_ns)
    assert pair.host.error == errno.ETIMEDOUT
    assert pair.now_ns == 125 * MS


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"version": table.VERSION + 1}, errno.EPROTONOSUPPORT),
        ({"version": table.VERSION + 1, "frame_window": 999, "largest_message": 1 << 20}, errno.EPROTONOSUPPORT),
        ({"required": 1 << 63}, errno.EOPNOTSUPP),
        ({"frame_window": 3}, errno.EINVAL),
        ({"frame_window": 129}, errno.EINVAL),
        ({"largest_message": 100}, errno.EINVAL),
        ({"largest_message": 61441}, errno.EINVAL),
        ({"epoch": 0}, errno.EINVAL),
    ],
)
def test_a_hello_is_refused_clearly(changes: dict[str, int], error: int) -> None:
    pair = Pair()
    pair.proxy.take(hello(**changes), pair.now_ns)
    assert not pair.proxy.up
    (answer,) = pair.proxy.pump(pair.now_ns)
    decoded = codec.decode(answer)
    assert (decoded.name, decoded.error) == ("XTS_LINK_HELLO_ACK", error)
    assert decoded.fields["epoch"] == changes.get("epoch", EPOCH)
    assert decoded.fields["version"] == table.VERSION


def test_a_refused_host_knows_why_and_may_try_again() -> None:
    pair = Pair(config(HOST, features=3, required=2), config(PROXY, features=1))
    pair.settle()
    assert pair.host.link.state == DOWN
    assert pair.host.error == errno.EOPNOTSUPP
    pair.reattach(config(HOST, features=3, required=1, epoch=EPOCH + 1))
    pair.open()
    assert pair.proxy.link.features == 1


@pytest.mark.parametrize(
    "changes",
    [{"version": 2}, {"frame_window": 17}, {"frame_window": 3}, {"largest_message": 100}, {"features": 1 << 40}],
)
def test_a_hello_ack_beyond_what_was_offered_is_a_violation(changes: dict[str, int]) -> None:
    pair = Pair()
    pair.host.pump(pair.now_ns)
    assert pair.host.take(hello_ack(**changes), pair.now_ns) == CLOSED
    assert pair.host.error == errno.EPROTO
    assert [kind(f) for f in pair.host.pump(pair.now_ns)] == ["XTS_LINK_GOODBYE"]


def test_a_hello_ack_without_a_required_feature_is_a_violation() -> None:
    pair = Pair(config(HOST, features=MULTI_BUFFER, required=MULTI_BUFFER))
    assert pair.host.take(hello_ack(), pair.now_ns) == CLOSED
    assert pair.host.error == errno.EPROTO


def test_a_hello_ack_of_another_epoch_is_stale() -> None:
    pair = Pair()
    assert pair.host.take(hello_ack(epoch=EPOCH - 1), pair.now_ns) == DROPPED
    assert pair.host.take(hello_ack(error=errno.EINVAL, epoch=EPOCH - 1), pair.now_ns) == DROPPED
    assert pair.host.link.stats.dropped_stale == 2
    pair.open()


# --- sequence and frame credits -------------------------------------------------------------------


@pytest.mark.parametrize("window", [4, 5, 7, 16, 127, 128])
def test_exactly_the_window_may_be_out(window: int) -> None:
    pair = Pair(config(HOST, frame_window=window), config(PROXY, frame_window=window)).open()
    numbers = list(range(1, window + 1))
    assert all(pair.host.send(n) for n in numbers)
    assert not pair.host.send(0)
    pair.settle()
    assert pair.proxy.delivered == numbers
    assert pair.host.credits == 0, "nothing recycled, nothing returned"
    pair.proxy.recycle(window)
    pair.settle()
    assert pair.host.credits > window - window // 4
    assert pair.proxy.link.stats.sent_acks == pair.host.link.stats.received_acks > 0


def test_one_frame_more_than_the_window_is_a_violation() -> None:
    pair = Pair(config(HOST, frame_window=4), config(PROXY, frame_window=4)).open()
    for number in range(4):
        assert pair.proxy.take(from_host("XTS_CMD_SEND", seqno=number), pair.now_ns) == DELIVER
    assert pair.proxy.take(from_host("XTS_CMD_SEND", seqno=4), pair.now_ns) == CLOSED
    assert pair.proxy.error == errno.EPROTO
    assert pair.proxy.link.stats.credit_errors == 1


@pytest.mark.parametrize("seqno", [1, 2, 127, 128, 255])
@pytest.mark.parametrize("name", ["XTS_CMD_SEND", "XTS_LINK_FRAME_ACK", "XTS_LINK_PING"])
def test_a_gap_is_a_violation_whichever_frame_shows_it(name: str, seqno: int) -> None:
    pair = Pair().open()
    assert pair.proxy.take(from_host(name, seqno=seqno), pair.now_ns) == CLOSED
    assert (pair.proxy.error, pair.proxy.link.stats.sequence_errors) == (errno.EPROTO, 1)
    assert pair.proxy.credits == 0
    pair.settle()
    assert pair.host.error == errno.EPROTO


@pytest.mark.parametrize("frame_ack", [4, 5, 128, 255])
def test_an_acknowledgement_of_frames_never_sent_is_a_violation(frame_ack: int) -> None:
    pair = Pair().open()
    for number in range(3):
        pair.proxy.send(number)
    assert pair.proxy.take(from_host("XTS_LINK_FRAME_ACK", frame_ack=3), pair.now_ns) == CONSUMED
    assert pair.proxy.credits == 16
    pair = Pair().open()
    for number in range(3):
        pair.proxy.send(number)
    assert pair.proxy.take(from_host("XTS_LINK_FRAME_ACK", frame_ack=frame_ack), pair.now_ns) == CLOSED
    assert (pair.proxy.error, pair.proxy.link.stats.credit_errors) == (errno.EPROTO, 1)


@pytest.mark.parametrize("window", [4, 7, 16, 128])
def test_an_acknowledgement_is_due_for_every_quarter_of_the_window(window: int) -> None:
    pair = Pair(config(HOST, frame_window=window), config(PROXY, frame_window=window)).open()
    for number in range(window):
        pair.host.send(number)
    pair.settle()
    for recycled in range(1, window + 1):
        pair.proxy.recycle()
        written = pair.proxy.pump(pair.now_ns)
        assert [kind(f) for f in written] == (["XTS_LINK_FRAME_ACK"] if recycled % (window // 4) == 0 else [])


def test_acknowledgements_ride_on_messages() -> None:
    pair = Pair().open()
    for number in range(200):
        for end, other in (pair.ends, pair.ends[::-1]):
            assert end.send(number)
            assert other.receive(pair.now_ns) == DELIVER
            other.recycle()
            assert other.pump(pair.now_ns) == []
    assert pair.host.link.stats.sent_acks == pair.proxy.link.stats.sent_acks == 0


def test_counters_wrap_around_for_100_000_frames() -> None:
    pair = Pair(config(HOST, frame_window=128), config(PROXY, frame_window=128)).open()
    number = 0
    while number < 100_000:
        batch = min(1 + number * 7 % 128, pair.host.credits)
        for _ in range(batch):
            assert pair.host.send(number)
            number += 1
        while pair.proxy.inbox:
            assert pair.proxy.receive(pair.now_ns) == DELIVER
        pair.proxy.recycle(batch)
        pair.proxy.pump(pair.now_ns)
        while pair.host.inbox:
            assert pair.host.receive(pair.now_ns) == CONSUMED
        assert pair.host.credits > 128 - 128 // 4
    assert pair.proxy.delivered == pair.host.sent == list(range(number))
    assert pair.host.link.stats.sent_frames == pair.proxy.link.stats.received_frames == number


# --- bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [0, 1, 13, 14, 23])
def test_shorter_than_a_head_is_dropped_and_counted(length: int) -> None:
    pair = Pair().open()
    assert pair.proxy.take(from_host("XTS_CMD_SEND")[:length], pair.now_ns) == DROPPED
    assert pair.proxy.up
    assert pair.proxy.link.stats.malformed == 1


def test_foreign_frames_are_dropped_and_counted() -> None:
    pair = Pair().open()
    other_source = codec.encode(Frame("XTS_CMD_SEND", source=b"\x02\0\0\0\0\x09", seqno=77))
    other_ethertype = codec.encode(Frame("XTS_CMD_SEND", source=MAC[HOST], ethertype=0x0800, seqno=77))
    for frame in (other_source, other_ethertype):
        assert pair.proxy.take(frame, pair.now_ns) == DROPPED
    assert pair.proxy.link.stats.dropped_foreign == 2
    assert pair.proxy.up


@pytest.mark.parametrize(
    "frame",
    [
        from_host("XTS_CMD_SEND")[:-1],  # cut in its fixed part
        from_host("XTS_LINK_PING")[:-1],
        from_proxy("XTS_REPLY_RECV"),  # the wrong way
        from_host("XTS_LINK_PING").replace(b"\x13", b"\x7f", 1),  # unknown, in the range of sequenced types
    ],
    ids=["short SEND", "short PING", "RECV to the proxy", "unknown type 127"],
)
def test_a_malformed_message_is_a_violation(frame: bytes) -> None:
    pair = Pair().open()
    frame = MAC[PROXY] + MAC[HOST] + frame[12:]
    assert pair.proxy.take(frame, pair.now_ns) == CLOSED
    assert (pair.proxy.error, pair.proxy.link.stats.malformed) == (errno.EPROTO, 1)


def test_a_control_type_of_a_later_version_does_no_harm() -> None:
    pair = Pair().open()
    later = bytearray(from_host("XTS_LINK_PING", seqno=9, frame_ack=9))
    later[table.ETH_BYTES] = table.LINK_CODES[-1]
    assert pair.proxy.take(bytes(later), pair.now_ns) == DROPPED
    assert pair.proxy.up


# --- epochs and ending ----------------------------------------------------------------------------


def test_a_new_epoch_voids_the_old_one_at_once() -> None:
    pair = Pair().open()
    for number in range(5):
        pair.host.send(number)
        pair.proxy.send(number)
    pair.proxy.receive(pair.now_ns)
    pair.proxy.recycle()
    pair.reattach(config(HOST, epoch=EPOCH + 1))
    pair.settle()  # the old epoch's frames are still in both queues
    assert pair.host.up
    assert pair.proxy.up
    assert pair.proxy.link.epoch == EPOCH + 1
    assert pair.host.delivered == [], "nothing of the old epoch reaches the new process"
    assert pair.host.link.stats.dropped_early == 5
    assert pair.host.credits == pair.proxy.credits == 16
    assert pair.host.send(100)
    assert pair.proxy.send(200)
    pair.settle()
    assert pair.proxy.delivered[-1] == 100
    assert pair.host.delivered == [200]
    pair.advance(100)
    core.xts_link_watch(pair.proxy.link, True, pair.now_ns)
    pair.advance(100)
    pair.settle()
    assert pair.host.credits == 15, "only what this epoch recycled counts"


def test_goodbye_of_another_epoch_is_not_heeded() -> None:
    pair = Pair().open()
    for epoch in (EPOCH - 1, 0, EPOCH + 1):
        for end, make in ((pair.proxy, from_host), (pair.host, from_proxy)):
            assert end.take(make("XTS_LINK_GOODBYE", {"epoch": epoch}, error=5), pair.now_ns) == DROPPED
    assert pair.host.up
    assert pair.proxy.up
    assert pair.proxy.link.stats.dropped_stale == 3


def test_only_an_open_host_heeds_that_the_proxy_is_another_one() -> None:
    pair = Pair()
    assert pair.host.take(from_proxy("XTS_LINK_GOODBYE", {"epoch": 0}, error=errno.ENOTCONN), pair.now_ns) == DROPPED
    pair.open()
    assert pair.proxy.take(from_host("XTS_LINK_GOODBYE", {"epoch": 0}, error=errno.ENOTCONN), pair.now_ns) == DROPPED
    assert pair.host.up and pair.proxy.up
    assert pair.host.take(from_proxy("XTS_LINK_GOODBYE", {"epoch": 0}, error=errno.ENOTCONN), pair.now_ns) == CLOSED
    assert pair.host.error == errno.ESHUTDOWN


def restarted(pair: Pair) -> None:
    """The proxy is another one, which knows of no epoch; what was on its way is lost."""
    pair.proxy.link = ffi.new("struct xts_link *")
    assert core.xts_link_init(pair.proxy.link, config(PROXY), pair.now_ns) == 0
    pair.host.outbox.clear()
    pair.proxy.outbox.clear()


@pytest.mark.parametrize("what", ["a message", "a ping"])
def test_a_host_hears_of_a_restart(what: str) -> None:
    pair = Pair().open()
    restarted(pair)
    if what == "a message":
        assert pair.host.send(1)
    else:
        core.xts_link_watch(pair.host.link, True, pair.now_ns)
        pair.advance(100)
    pair.settle()
    assert pair.host.link.state == DOWN
    assert pair.host.error == errno.ESHUTDOWN
    assert pair.proxy.link.state == OPENING
    pair.reattach(config(HOST, epoch=EPOCH + 1))
    pair.open()
    assert pair.host.send(1)
    pair.settle()
    assert pair.proxy.delivered == [1]


def test_what_an_old_epoch_has_caused_does_not_end_the_new_one() -> None:
    """Frames of the old epoch are before the HELLO in the queue, so the answer to them is before the HELLO_ACK."""
    pair = Pair().open()
    restarted(pair)
    assert pair.host.send(1)
    pair.reattach(config(HOST, epoch=EPOCH + 1))
    pair.host.pump(pair.now_ns)
    pair.settle()
    assert pair.host.up
    assert pair.proxy.up


def test_a_proxy_that_had_an_epoch_does_not_speak_of_a_restart() -> None:
    pair = Pair().open()
    core.xts_link_goodbye(pair.proxy.link, 0)
    pair.proxy.pump(pair.now_ns)
    pair.proxy.outbox.clear()
    assert pair.host.send(1)
    pair.settle()
    assert pair.host.up
    assert pair.proxy.link.stats.dropped_early == 1


@pytest.mark.parametrize("who", [HOST, PROXY])
@pytest.mark.parametrize(("error", "seen"), [(0, errno.ESHUTDOWN), (errno.ENOMEM, errno.ENOMEM)])
def test_goodbye_tells_the_peer_why(who: int, error: int, seen: int) -> None:
    pair = Pair().open()
    ending, other = pair.ends[who], pair.ends[1 - who]
    core.xts_link_goodbye(ending.link, error)
    assert core.xts_link_control_due(ending.link)
    pair.settle()
    assert ending.link.state == other.link.state == DOWN
    assert ending.error == other.error == seen
    assert other.verdicts[-1] == CLOSED
    assert other.pump(pair.now_ns) == [], "a GOODBYE is not answered"


def test_a_violation_found_in_a_body_ends_the_link() -> None:
    pair = Pair().open()
    core.xts_link_fail(pair.proxy.link, errno.EPROTO)
    core.xts_link_fail(pair.proxy.link, errno.EIO)
    pair.settle()
    assert pair.proxy.error == pair.host.error == errno.EPROTO


def test_goodbye_before_the_link_is_up() -> None:
    pair = Pair()
    core.xts_link_goodbye(pair.host.link, 0)
    pair.settle()
    assert pair.host.link.state == DOWN
    assert pair.proxy.link.state == OPENING
    assert pair.proxy.link.stats.dropped_stale == 1


def test_a_host_that_missed_the_goodbye_is_told_again() -> None:
    pair = Pair()
    pair.host.pump(pair.now_ns)
    pair.proxy.receive(pair.now_ns)
    core.xts_link_goodbye(pair.proxy.link, errno.ENOBUFS)
    pair.proxy.pump(pair.now_ns)
    pair.proxy.outbox.clear()
    pair.advance(50)
    pair.settle()
    assert pair.host.link.state == DOWN
    assert pair.host.error == errno.ENOBUFS


def test_the_proxy_opens_again_after_the_end() -> None:
    pair = Pair().open()
    for attachment in range(1, 20):
        if attachment % 2:
            core.xts_link_goodbye(pair.ends[attachment // 2 % 2].link, 0)
            pair.settle()
        pair.reattach(config(HOST, epoch=EPOCH + attachment))
        pair.open()
        assert pair.host.send(1)
        pair.settle()
        assert pair.proxy.verdicts[-1] == DELIVER


def test_recycling_after_the_end_does_nothing() -> None:
    pair = Pair().open()
    pair.host.send(1)
    pair.settle()
    core.xts_link_fail(pair.proxy.link, errno.EPROTO)
    core.xts_link_recycled(pair.proxy.link)
    assert (pair.proxy.link.recycled, pair.proxy.credits) == (0, 0)
