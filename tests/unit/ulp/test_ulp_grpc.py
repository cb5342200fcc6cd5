"""gRPC messages over HTTP/2 frames: cut, interleaved and padded in any way, windows kept both ways; what breaks the
protocol; and grpcio as the peer, server and client."""

from __future__ import annotations

import errno
import socket
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

import pytest
from beds.grpc import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    INITIAL_WINDOW_SIZE,
    LAST,
    MAX_FRAME_SIZE,
    PADDED,
    PING,
    PREFACE,
    RST_STREAM,
    WINDOW_UPDATE,
    GrpcApplication,
    Received,
    control,
    frame,
    grpc_client,
    grpc_server,
    parse,
    prefixed,
    setting,
    window_update,
)
from beds.ready import readable
from beds.ulp import BOTH, RECEIVE, Mark, Pdu, UlpBed
from beds.ulp_traffic import few, sizes, whole
from hypothesis import given
from hypothesis import strategies as st
from xts_messages.wire.ulps import BY_NAME

GRPC = BY_NAME["GRPC"].number


def bed_of(*, client: bool = True, **parameters: int) -> UlpBed:
    """A client with streams 1, 3, 5 and 7 open, or a server whose client has them; prefaces are out of the way."""
    bed = UlpBed()
    bed.push("HTTP2")
    bed.push("GRPC", **parameters)
    bed.start(client=client)
    heads = [frame(HEADERS, b"\x82", END_HEADERS, stream) for stream in (1, 3, 5, 7)]
    if client:
        for head in heads:
            assert bed.write(head) == len(head)
        assert bed.peer_recv() == PREFACE + whole(heads)
    else:
        assert bed.feed(PREFACE + whole(heads)) == [Pdu(head) for head in heads]
    return bed


# --- received --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Piece:
    """A DATA frame: so much of what its stream has to say, and padding."""

    stream: int
    size: int
    padding: int | None
    ping: bool


messages = st.one_of(st.binary(max_size=30), st.integers(0, 40000).map(lambda n: (b"0123456789abc" * 4000)[:n]))
talks = st.dictionaries(
    st.sampled_from([1, 3, 5, 7]), st.lists(st.tuples(messages, st.booleans()), min_size=1, max_size=4), min_size=1
)
pieces = st.lists(
    st.builds(
        Piece,
        st.sampled_from([1, 3, 5, 7]),
        st.one_of(st.integers(0, 12), st.integers(0, 16000)),
        st.one_of(st.none(), st.none(), st.integers(0, 255)),
        st.booleans(),
    ),
    max_size=20,
)


@dataclass
class Talk:
    """What a peer sends: frames in order, and what comes of them."""

    frames: list[bytes] = field(default_factory=list)
    expected: list[tuple[bytes, bytes]] = field(default_factory=list)
    received: dict[int, int] = field(default_factory=lambda: defaultdict(int))

    def data(self, stream: int, payload: bytes, padding: int | None, *, last: bool = False) -> None:
        """A DATA frame."""
        flags = END_STREAM * last
        if padding is not None:
            payload = bytes([padding]) + payload + bytes(padding)
            flags |= PADDED
        self.frames.append(frame(DATA, payload, flags, stream))
        if not last:
            self.received[stream] += len(payload)
        self.received[0] += len(payload)


def conversation(talks: dict[int, list[tuple[bytes, bool]]], pieces: list[Piece]) -> Talk:
    """The messages of each stream, cut at the pieces' sizes and interleaved; the rest in frames of 16000."""
    talk = Talk()
    text = {stream: whole([prefixed(m, compressed=c) for m, c in said]) for stream, said in talks.items()}
    ends: dict[int, list[tuple[int, bytes, bool]]] = {}
    for stream, said in talks.items():
        at = 0
        ends[stream] = [(at := at + 5 + len(m), m, c) for m, c in said]
    given: dict[int, int] = defaultdict(int)
    rest = [Piece(stream, 16000, None, False) for stream in talks for _ in range(len(text[stream]) // 16000 + 2)]
    for piece in [*pieces, *rest]:
        stream, at = piece.stream, given[piece.stream]
        if stream not in talks or at > len(text[stream]):
            continue
        if piece.ping:
            ping = frame(PING, bytes(8))
            talk.frames.append(ping)
            talk.expected.append((ping, control(1, 0, 0)))
        data = text[stream][at : at + piece.size]
        last = piece in rest and at + len(data) == len(text[stream])
        talk.data(stream, data, piece.padding, last=last)
        for end, message, compressed in ends[stream]:
            if at < end <= at + len(data):
                flags = compressed | (LAST if last and end == len(text[stream]) else 0)
                talk.expected.append((message, control(0, flags, stream)))
        if last and not data:
            talk.expected.append((frame(DATA, b"", END_STREAM, stream), control(1, LAST, stream)))
        given[stream] = at + len(data) + last
    return talk


@few
@given(talks=talks, pieces=pieces, chunks=sizes, rooms=sizes)
def test_messages_are_put_together(
    talks: dict[int, list[tuple[bytes, bool]]], pieces: list[Piece], chunks: list[int], rooms: list[int]
) -> None:
    talk = conversation(talks, pieces)
    with bed_of() as bed:
        pdus = []
        for data in talk.frames:  # one by one: together they may be more than a socket holds
            pdus += bed.feed(data, chunks, rooms)
        assert [(p.data, p.mark.control) for p in pdus] == talk.expected
        assert all(p.mark.control_type == GRPC for p in pdus)
        returned: dict[int, int] = defaultdict(int)
        for kind, _, stream, payload in parse(bed.peer_recv()):
            assert kind == WINDOW_UPDATE
            returned[stream] += int.from_bytes(payload, "big")
        for stream, received in talk.received.items():
            assert returned[stream] <= received
            assert received - returned[stream] < 32767, f"half a window of stream {stream} is not returned"


def test_reset_stream_drops_what_has_begun() -> None:
    with bed_of() as bed:
        begun = frame(DATA, prefixed(bytes(100))[:50], stream=1)
        reset = frame(RST_STREAM, bytes(4), stream=1)
        other = frame(DATA, prefixed(b"other"), stream=3)
        assert bed.feed(begun + reset + frame(DATA, b"late", stream=1) + other) == [Pdu(reset), Pdu(b"other")]


def test_stream_that_the_application_resets_meanwhile() -> None:
    with bed_of() as bed:
        data = frame(DATA, prefixed(bytes(100)) + prefixed(bytes(200)), stream=1)
        assert bed.feed(data[:60]) == []
        reset = frame(RST_STREAM, bytes(4), stream=1)
        assert bed.write(reset) == len(reset)
        # The PDU that has begun is whole; what comes behind it in the stream is dropped.
        assert bed.feed(data[60:] + frame(PING, bytes(8))) == [Pdu(bytes(100)), Pdu(frame(PING, bytes(8)))]


def hostile(data: bytes, *, client: bool = True, bed: UlpBed | None = None) -> tuple[int, str, bytes]:
    """What comes of it: errno, the fault, and what the peer is told."""
    with bed or bed_of(client=client) as victim:
        with pytest.raises(OSError) as failure:
            victim.feed(data)
        told = victim.peer_recv()
        fault = next(
            name for name in ("RECORD", "LENGTH", "TOO_LONG", "HANDSHAKE", "MEMORY", "TRUNCATED") if victim.faults(name)
        )
        assert failure.value.errno
        return failure.value.errno, fault, told


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        pytest.param(frame(DATA, b"\2\0\0\0\1x", stream=1), "RECORD", id="compressed is neither 0 nor 1"),
        pytest.param(frame(DATA, b"\0\xff\xff\xff\xff", stream=1), "TOO_LONG", id="a message of 4 GiB"),
        pytest.param(frame(DATA, b"\0\0\x10\0\1", stream=1), "TOO_LONG", id="one byte more than MAX_BYTES"),
        pytest.param(frame(DATA, b"\0\0\0\0\2x", END_STREAM, 1), "RECORD", id="the stream ends inside a message"),
        pytest.param(
            frame(DATA, b"\0\0", stream=1) + frame(HEADERS, b"", END_HEADERS | END_STREAM, 1),
            "RECORD",
            id="trailers too",
        ),
        pytest.param(frame(DATA, b"", stream=9), "HANDSHAKE", id="DATA on an idle stream"),
        pytest.param(frame(DATA, b"", stream=0), "HANDSHAKE", id="DATA on stream 0"),
        pytest.param(frame(DATA, b"", END_STREAM, 1) + frame(DATA, b"", 0, 1), "HANDSHAKE", id="DATA behind the end"),
        pytest.param(frame(DATA, b"", PADDED, 1), "LENGTH", id="padded, of no length"),
        pytest.param(frame(DATA, b"\2\0", PADDED, 1), "LENGTH", id="more padding than frame"),
        pytest.param(frame(WINDOW_UPDATE, bytes(3)), "LENGTH", id="WINDOW_UPDATE of 3 bytes"),
        pytest.param(window_update(0, 0), "HANDSHAKE", id="WINDOW_UPDATE by nothing"),
        pytest.param(window_update(0, 0x7FFFFFFF), "HANDSHAKE", id="the connection's window overflows"),
        pytest.param(window_update(1, 0x7FFFFFFF), "HANDSHAKE", id="a stream's window overflows"),
        pytest.param(window_update(9, 1), "HANDSHAKE", id="WINDOW_UPDATE of an idle stream"),
        pytest.param(setting(INITIAL_WINDOW_SIZE, 0x80000000), "HANDSHAKE", id="a window of 2 GiB"),
        pytest.param(
            b"".join(setting(INITIAL_WINDOW_SIZE, i) for i in range(1025)),
            "HANDSHAKE",
            id="a window that changes always",
        ),
        pytest.param(setting(MAX_FRAME_SIZE, 16383), "HANDSHAKE", id="frames too short"),
        pytest.param(
            window_update(1, 0x7FFF0000) + setting(INITIAL_WINDOW_SIZE, 0x10000),
            "HANDSHAKE",
            id="a window that grows too far",
        ),
    ],
)
def test_what_breaks_the_protocol(data: bytes, fault: str) -> None:
    number, found, told = hostile(data)
    assert found == fault
    assert number in (errno.EBADMSG, errno.EMSGSIZE, errno.EPROTO)
    assert [kind for kind, *_ in parse(told)] == [GOAWAY]


def test_too_many_streams() -> None:
    heads = [frame(HEADERS, b"", END_HEADERS, stream) for stream in range(9, 41, 2)]
    bed = bed_of(client=False, streams_max=16)
    number, fault, told = hostile(whole(heads), bed=bed)
    assert (number, fault) == (errno.ENOBUFS, "MEMORY")
    assert list(parse(told)) == [(GOAWAY, 0, 0, (31).to_bytes(4, "big") + (11).to_bytes(4, "big"))]


def test_streams_that_end_make_room_for_others() -> None:
    with bed_of(client=False, streams_max=5) as bed:
        for stream in range(9, 2009, 2):
            head = frame(HEADERS, b"", END_HEADERS | END_STREAM, stream)
            assert bed.feed(head) == [Pdu(head)]
            trailers = frame(HEADERS, b"", END_HEADERS | END_STREAM, stream)
            assert bed.write(trailers) == len(trailers)
            assert bed.peer_recv() == trailers


def test_messages_that_have_begun_take_bounded_memory() -> None:
    bed = UlpBed(buffered_bytes_max=100_000)
    bed.push("HTTP2")
    bed.push("GRPC")
    bed.start(client=False)
    streams = range(1, 41, 2)
    bed.feed(PREFACE + whole([frame(HEADERS, b"", END_HEADERS, stream) for stream in streams]))
    begun = [frame(DATA, b"\0\0\x0f\0\0" + bytes(8000), stream=stream) for stream in streams]
    number, fault, told = hostile(whole(begun), bed=bed)
    assert (number, fault) == (errno.ENOBUFS, "MEMORY")
    assert GOAWAY in [kind for kind, *_ in parse(told)]


def test_end_inside_a_message() -> None:
    with bed_of() as bed:
        bed.peer_send(frame(DATA, prefixed(b"abc")[:6], stream=1))
        bed.peer_close()
        with pytest.raises(OSError) as failure:
            bed.read_all()
        assert failure.value.errno == errno.EBADMSG
        assert bed.faults("TRUNCATED") == 1


@few
@given(
    data=st.lists(st.builds(frame, st.integers(0, 9), st.binary(max_size=20), st.integers(0, 255), st.integers(0, 9)))
)
def test_any_frames_may_come(data: list[bytes]) -> None:
    with bed_of() as bed:
        try:
            bed.feed(whole(data))
        except OSError as error:
            assert error.errno in (errno.EBADMSG, errno.EMSGSIZE, errno.EPROTO)


# --- sent ------------------------------------------------------------------------------------------------------------


@dataclass
class Peer:
    """Takes frames, keeps the windows' account, and opens windows by `grant` when the sender is stopped by them."""

    initial: int = 65535
    largest: int = 16384
    window: dict[int, int] = field(default_factory=dict)
    said: dict[int, bytearray] = field(default_factory=lambda: defaultdict(bytearray))
    ended: set[int] = field(default_factory=set)
    others: list[tuple[int, int, int, bytes]] = field(default_factory=list)
    unparsed: bytes = b""

    def take(self, data: bytes) -> None:
        """What has arrived."""
        self.unparsed += data
        while len(self.unparsed) >= 9 and len(self.unparsed) >= (size := 9 + int.from_bytes(self.unparsed[:3], "big")):
            ((kind, flags, stream, payload),) = parse(self.unparsed[:size])
            self.unparsed = self.unparsed[size:]
            if kind != DATA:
                self.others.append((kind, flags, stream, payload))
                continue
            assert len(payload) <= self.largest
            for which, first in ((0, 65535), (stream, self.initial)):
                self.window[which] = self.window.get(which, first) - len(payload)
                assert self.window[which] >= 0, f"window {which} overrun"
            assert stream not in self.ended
            self.said[stream] += payload
            if flags & END_STREAM:
                self.ended.add(stream)

    def grant(self, stream: int, size: int) -> bytes:
        """WINDOW_UPDATEs that let the sender go on."""
        for which, first in ((0, 65535), (stream, self.initial)):
            self.window[which] = self.window.get(which, first) + size
        return window_update(0, size) + window_update(stream, size)


def send(
    bed: UlpBed, peer: Peer, data: bytes, mark_control: bytes, *, cuts: Iterable[int] = (), grant: int = 0
) -> None:
    """Offers a PDU in parts; when nothing is taken, the peer reads, or else opens its windows, which has to wake us."""
    stream = int.from_bytes(mark_control[4:], "big")
    at = 0
    for size in [*cuts, len(data)]:
        end = min(len(data), at + size) if at + size < len(data) else len(data)
        part = data[at:end]
        while True:
            taken = bed.write(part, Mark(True, end < len(data), len(data), GRPC, mark_control))
            news = bed.peer_recv()
            peer.take(news)
            if taken >= max(1, len(part)):
                break
            part = part[taken:]
            if not taken and not news:
                bed.wakeups.clear()
                assert bed.feed(peer.grant(stream, grant)) == []
                assert bed.wakeups == [0], "the window is open and nobody says so"
        at = end
        if end == len(data):
            break


@few
@given(
    sent=st.lists(st.tuples(st.sampled_from([1, 3, 5]), messages, st.booleans()), max_size=6),
    cuts=sizes,
    grant=st.sampled_from([1000, 5000, 70000]),
    initial=st.sampled_from([0, 6, 100, 65535, 1 << 20]),
    largest=st.sampled_from([16384, 30000]),
)
def test_messages_are_cut_as_windows_allow(
    sent: list[tuple[int, bytes, bool]], cuts: list[int], grant: int, initial: int, largest: int
) -> None:
    with bed_of() as bed:
        peer = Peer(initial, largest)
        bed.feed(setting(INITIAL_WINDOW_SIZE, initial) + setting(MAX_FRAME_SIZE, largest))
        for stream, message, compressed in sent:
            send(bed, peer, message, control(0, compressed, stream), cuts=cuts, grant=grant)
        for stream in (1, 3, 5):
            send(bed, peer, b"bye", control(0, LAST, stream), grant=8)
        bed.flush()
        peer.take(bed.peer_recv())
        assert peer.ended == {1, 3, 5}
        for stream in (1, 3, 5):
            said = whole([prefixed(m, compressed=c) for s, m, c in sent if s == stream])
            assert peer.said[stream] == said + prefixed(b"bye")


def test_initial_window_that_shrinks_below_what_was_sent() -> None:
    with bed_of() as bed:
        peer = Peer()
        send(bed, peer, bytes(60000), control(0, 0, 1))
        bed.feed(setting(INITIAL_WINDOW_SIZE, 10000))
        peer.window[1] -= 55535
        assert bed.write(bytes(100), Mark(True, False, 100, GRPC, control(0, 0, 1))) == 0
        assert bed.feed(window_update(1, 50000)) == []  # 10000 - 60005 + 50000 is still closed
        assert bed.write(bytes(100), Mark(True, False, 100, GRPC, control(0, 0, 1))) == 0
        assert bed.feed(window_update(1, 1000)) == []
        assert bed.write(bytes(100), Mark(True, False, 100, GRPC, control(0, 0, 1))) == 100


def test_window_updates_wait_for_the_end_of_a_frame_and_of_headers() -> None:
    with bed_of() as bed:
        fill = whole([frame(DATA, prefixed(bytes(16000)), stream=1), frame(DATA, prefixed(bytes(16000)), stream=1)] * 2)
        head = frame(HEADERS, b"abc", 0, 9)
        assert bed.write(head[:5], Mark(True, True, len(head), GRPC, control(1, 0, 9))) == 5
        assert len(bed.feed(fill)) == 4
        assert bed.peer_recv() == head[:5]
        assert bed.write(head[5:], Mark(True, False, len(head), GRPC, control(1, 0, 9))) == len(head) - 5
        assert bed.peer_recv() == head[5:], "nothing may come between HEADERS and CONTINUATION"
        rest = frame(CONTINUATION, b"def", END_HEADERS, 9)
        assert bed.write(rest) == len(rest)
        told = bed.peer_recv()
        assert told.startswith(rest)
        kinds = [(kind, stream) for kind, _, stream, _ in parse(told[len(rest) :])]
        assert set(kinds) == {(WINDOW_UPDATE, 0), (WINDOW_UPDATE, 1)}


def test_small_windows_of_our_own_are_given_back_in_time() -> None:
    with bed_of() as bed:
        announce = setting(INITIAL_WINDOW_SIZE, 100)
        assert bed.write(announce) == len(announce)
        bed.peer_recv()
        bed.feed(frame(DATA, prefixed(bytes(60)), stream=1))
        assert (WINDOW_UPDATE, 0, 1, (65).to_bytes(4, "big")) in list(parse(bed.peer_recv()))


def test_message_for_a_stream_that_was_reset_is_dropped() -> None:
    with bed_of() as bed:
        peer = Peer()
        mark = Mark(True, True, 1000, GRPC, control(0, 0, 1))
        assert bed.write(bytes(400), mark) == 400
        peer.take(bed.peer_recv())
        bed.feed(frame(RST_STREAM, bytes(4), stream=1))
        assert bed.write(bytes(600), Mark(True, False, 1000, GRPC, control(0, 0, 1))) == 600
        send(bed, peer, b"other", control(0, 0, 3))
        peer.take(bed.peer_recv())
        assert peer.said == {1: prefixed(bytes(1000))[:405], 3: prefixed(b"other")}


@pytest.mark.parametrize(
    ("data", "mark"),
    [
        pytest.param(b"x", Mark(True, False, 1, GRPC, control(0, 0, 9)), id="a stream that is not open"),
        pytest.param(b"x", Mark(True, False, 1, GRPC, control(0, 0, 0)), id="stream 0"),
        pytest.param(b"x", Mark(True, False, 1, GRPC, control(0, 2, 1)), id="a flag there is not"),
        pytest.param(b"x", Mark(True, False, 1, GRPC, control(2, 0, 1)), id="a kind there is not"),
        pytest.param(b"x", Mark(True, False, 1, GRPC, control(0, 0, 1)[:7]), id="control data cut short"),
        pytest.param(b"x", Mark(True, False, 1, GRPC + 1, control(0, 0, 1)), id="control data of another protocol"),
        pytest.param(b"x", Mark(True, True, 0, GRPC, control(0, 0, 1)), id="a length not known"),
        pytest.param(b"xx", Mark(True, False, 1, GRPC, control(0, 0, 1)), id="longer than announced"),
        pytest.param(b"x", Mark(True, False, 2, GRPC, control(0, 0, 1)), id="shorter than announced"),
        pytest.param(frame(DATA, b"x", stream=1), Mark(True, False, 10), id="DATA as a frame"),
        pytest.param(frame(PING, bytes(8))[:-1], Mark(True, False, 16), id="no whole frame"),
        pytest.param(b"x", Mark(False), id="a byte stream"),
    ],
)
def test_what_cannot_be_sent(data: bytes, mark: Mark) -> None:
    with bed_of() as bed:
        with pytest.raises(OSError) as failure:
            bed.write(data, mark)
        assert failure.value.errno == errno.EINVAL
        assert bed.faults("USE") == 1


def test_message_behind_the_end_of_its_stream() -> None:
    with bed_of() as bed:
        end = frame(DATA, b"", END_STREAM, 1)
        assert bed.write(end) == len(end)
        assert bed.peer_recv() == end
        with pytest.raises(OSError):
            bed.write(b"x", Mark(True, False, 1, GRPC, control(0, 0, 1)))


def test_peer_that_does_not_take_window_updates() -> None:
    """It fills windows that it has not been told to be open again: what waits for it is bounded."""
    with bed_of() as bed:
        bed.local.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
        data = frame(DATA, prefixed(bytes(16379)), stream=1)
        bed.write(setting(INITIAL_WINDOW_SIZE, 0))
        with pytest.raises(OSError) as failure:
            for _ in range(200_000):
                bed.feed(data)
        assert failure.value.errno == errno.ENOBUFS


# --- what it goes on -------------------------------------------------------------------------------------------------


def test_place_in_the_stack() -> None:
    with UlpBed() as bed, pytest.raises(OSError, match="http2"):
        bed.push("GRPC")
    with UlpBed() as bed:
        bed.push("HTTP2", RECEIVE)
        with pytest.raises(OSError, match="http2"):
            bed.push("GRPC", BOTH)


@pytest.mark.parametrize(
    ("parameters", "reason"),
    [
        ({"streams_max": 0}, "STREAMS_MAX"),
        ({"streams_max": 65537}, "STREAMS_MAX"),
        ({"max_bytes": 0}, "MAX_BYTES"),
        ({"max_bytes": (64 << 20) + 1}, "MAX_BYTES"),
    ],
)
def test_parameters(parameters: dict[str, int], reason: str) -> None:
    with UlpBed() as bed:
        bed.push("HTTP2")
        with pytest.raises(OSError, match=reason) as failure:
            bed.push("GRPC", **parameters)
        assert failure.value.errno == errno.EINVAL


# --- grpcio ----------------------------------------------------------------------------------------------------------

PAYLOADS = [b"", b"hello", bytes(range(256)) * 2000]


def over_tcp(bed: UlpBed, tcp: socket.socket) -> None:
    """The bed's TCP socket is a real one."""
    bed.local.close()
    bed.local = tcp
    tcp.setblocking(False)


class OverBed:
    """The layers' end, for a GrpcApplication."""

    def __init__(self, bed: UlpBed) -> None:
        self.bed = bed
        self.waiting: list[Received] = []

    def send(self, data: bytes, mark_control: bytes | None) -> None:
        """All of a PDU; reads while windows are closed."""
        control_type = (GRPC, mark_control) if mark_control else (0, b"")
        mark = Mark(True, False, len(data), *control_type)
        while (n := self.bed.write(data, mark)) < max(1, len(data)):
            data = data[n:]
            self.read()

    def read(self) -> None:
        """What has come, or the next that comes."""
        parts = self.bed.read_parts()
        self.waiting += [(pdu.data, pdu.mark.control) for pdu in self.bed.join(parts)]
        if not parts and not self.bed.ended:
            assert readable(self.bed.local, 10), "the peer is silent"

    def receive(self) -> Received | None:
        """The next PDU; None at the end."""
        while not self.waiting:
            if self.bed.ended:
                return None
            self.read()
        return self.waiting.pop(0)


def test_grpcio_serves_us() -> None:
    with grpc_server() as port, UlpBed() as bed:
        over_tcp(bed, socket.create_connection(("127.0.0.1", port)))
        bed.push("HTTP2")
        bed.push("GRPC")
        bed.start(client=True)
        transport = OverBed(bed)
        application = GrpcApplication(transport.send, transport.receive)
        for payload in PAYLOADS:
            assert application.call("/t.T/Backwards", [payload]) == [payload[::-1]]
        assert application.call("/t.T/Twice", PAYLOADS) == [p for payload in PAYLOADS for p in (payload, payload)]


def test_we_serve_grpcio() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, UlpBed() as bed:
        with grpc_client(listener.getsockname()[1], PAYLOADS) as answers:
            over_tcp(bed, listener.accept()[0])
            bed.push("HTTP2")
            bed.push("GRPC")
            bed.start(client=False)
            transport = OverBed(bed)
            GrpcApplication(transport.send, transport.receive).serve()
        assert answers == [p[::-1] for p in PAYLOADS] + [p for payload in PAYLOADS for p in (payload, payload)]
