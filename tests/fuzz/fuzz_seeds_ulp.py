"""Where the corpus of fuzz_stack begins: each protocol pushed as it is meant, bytes of its peer, and PDUs to send; good
ones, and such with each of the mistakes that it looks for. The operations are those of fuzz_stack.c."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from xts_messages.wire import ulp_attributes
from xts_messages.wire.ulps import BY_NAME

RECEIVE, BOTH = 0x10, 0x30
START_CLIENT, START_SERVER = b"\1\1", b"\1\0"
READ, FLUSH, TAKE_ALL, PEER_ENDS, FINISH, TIME = b"\2\x0f\xff", b"\x0e\0", b"\x09", b"\x0a\0", b"\x0e\1", b"\x0f\xff"
SMALL_READ = b"\2\0\2"
MOVE = b"\xf0\0"

#: HTTP/2 (RFC 9113 6).
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
END_STREAM, END_HEADERS, PADDED, ACK = 1, 4, 8, 1
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def push(name: str, direction: int = BOTH, **parameters: ulp_attributes.Value) -> bytes:
    """A push with these parameters, as they are."""
    attributes = ulp_attributes.encode_attributes(name, parameters)
    return bytes([0, 0x80 | direction | BY_NAME[name].number, len(attributes)]) + attributes


def peer_sends(data: bytes) -> bytes:
    """In as many operations as it takes."""
    parts = [data[at : at + 255] for at in range(0, len(data), 255)]
    return b"".join(b"\5" + bytes([len(part)]) + part for part in parts)


def write(data: bytes, *, stream: int | None = None) -> bytes:
    """A PDU; `stream`: a message of gRPC on it, instead of a frame."""
    how = 0x80 | 0x20 | (0x08 if stream is not None else 0)
    return bytes([7, how]) + len(data).to_bytes(2) + data + (bytes([stream]) if stream is not None else b"")


def frame(kind: int, payload: bytes = b"", flags: int = 0, stream: int = 0) -> bytes:
    """Of HTTP/2."""
    return len(payload).to_bytes(3) + bytes([kind, flags]) + stream.to_bytes(4) + payload


def message(data: bytes, first: int = 0) -> bytes:
    """Of gRPC, as it lies in DATA."""
    return bytes([first]) + len(data).to_bytes(4) + data


def setting(number: int, value: int) -> bytes:
    """A SETTINGS frame with one of them."""
    return frame(SETTINGS, number.to_bytes(2) + value.to_bytes(4))


def _of_grpc() -> list[bytes]:
    """A peer that is a client or a server, right or wrong in each way that the layer tells apart."""
    heads = b"".join(frame(HEADERS, b"\x82", END_HEADERS, stream) for stream in (1, 3, 5))
    cut = message(b"in parts" * 40)
    pieces = b"".join(frame(DATA, cut[at : at + 60], stream=1) + frame(DATA, message(b"x"), stream=3) for at in (0, 60))
    peers = [
        heads
        + frame(DATA, message(b"whole") + message(b"", 1), stream=1)
        + frame(DATA, message(b"end"), END_STREAM, 3),
        heads + pieces + frame(DATA, cut[120:], END_STREAM, 1),
        heads
        + frame(DATA, b"\3" + message(b"padded") + bytes(3), PADDED, 1)
        + frame(DATA, b"\0", PADDED | END_STREAM, 1),
        heads
        + frame(DATA, b"", END_STREAM, 1)
        + frame(RST_STREAM, bytes(4), stream=3)
        + frame(DATA, b"late", stream=3),
        heads + frame(WINDOW_UPDATE, b"\0\0\1\0", stream=1) + frame(WINDOW_UPDATE, b"\x7f\xff\xff\xff") * 2,
        heads + frame(DATA, message(bytes(200)), stream=1) * 5,
        *(
            heads + bad
            for bad in (
                frame(DATA, b"\x09", stream=7),
                frame(DATA, b"", PADDED, 1),
                frame(DATA, b"\x09ab", PADDED, 1),
                frame(DATA, message(b"a", 2), stream=1),
                frame(DATA, b"\0\x7f\xff\xff\xffa", stream=1),
                frame(DATA, message(b"ab")[:6], END_STREAM, 1),
                frame(DATA, message(b"ab")[:6], stream=1) + frame(HEADERS, b"", END_HEADERS | END_STREAM, 1),
                frame(WINDOW_UPDATE, b"\0\0\0\0", stream=1),
                frame(WINDOW_UPDATE, b"\0\0\1", stream=1),
                frame(WINDOW_UPDATE, b"\0\0\0\1", stream=9),
                frame(WINDOW_UPDATE, b"\x7f\xff\xff\xff", stream=1) * 2,
                setting(5, 1),
                setting(4, 0x80000000),
                setting(4, 0x7FFFFFFF) + frame(WINDOW_UPDATE, b"\0\0\0\1", stream=1),
                setting(4, 0) + setting(4, 70000) + setting(5, 20000),
                frame(SETTINGS, b"\0\4"),
                frame(CONTINUATION, b"\x82", END_HEADERS, 1),
                frame(GOAWAY, bytes(8)) + frame(PING, bytes(8)) + frame(PING, bytes(8), ACK),
            )
        ),
        heads + heads + b"".join(frame(HEADERS, b"", END_HEADERS, stream) for stream in range(7, 60, 2)),
    ]
    ours = [
        write(setting(4, 100)) + write(frame(SETTINGS, b"", ACK)),
        *(
            write(message_, stream=stream)
            for message_, stream in ((b"hello", 1), (b"a" * 2000, 3), (b"", 0x81), (b"x", 9))
        ),
        write(frame(DATA, b"", END_STREAM, 1)) + write(frame(RST_STREAM, bytes(4), stream=3)),
        write(frame(HEADERS, b"\x82", stream=1)) + write(frame(CONTINUATION, b"\x82", END_HEADERS, 1)),
        *(
            write(bad)
            for bad in (frame(WINDOW_UPDATE, bytes(4)), frame(DATA, b"abc", stream=1), b"\0\0", frame(PING)[:7])
        ),
    ]
    layers = [push("HTTP2") + push("GRPC"), push("HTTP2") + push("GRPC", max_bytes=1000, streams_max=4)]
    programs = []
    for layer in layers:
        served = b"\0" + layer + START_SERVER + peer_sends(PREFACE + frame(SETTINGS))
        asking = b"\0" + layer + START_CLIENT + write(setting(4, 65535)) + peer_sends(frame(SETTINGS))
        asking += b"".join(write(frame(HEADERS, b"\x82", END_HEADERS, stream)) for stream in (1, 3, 5))
        for peer in peers:
            programs.append(served + peer_sends(peer) + READ * 8 + FLUSH + TAKE_ALL + READ * 4)
        for peer in peers[:6]:
            programs.append(asking + peer_sends(peer) + SMALL_READ * 20 + READ * 4 + PEER_ENDS + READ)
        opened = served + peer_sends(peers[0]) + READ * 6
        programs.append(served + write(setting(4, 100)) + peer_sends(peers[5]) + READ * 9 + FLUSH + TAKE_ALL)
        programs += [opened + own + TAKE_ALL + FLUSH + READ for own in ours]
        programs += [asking + own + TAKE_ALL + FLUSH + READ + FINISH for own in ours]
        blocked = peer_sends(setting(4, 10)) + READ + ours[2] + FLUSH + TAKE_ALL
        programs.append(
            opened + blocked + peer_sends(frame(WINDOW_UPDATE, b"\0\1\0\0", stream=3)) + READ + FLUSH + ours[2]
        )
    return programs


#: Protocol, parameters, what its peer sends.
_PARAMETERS: Sequence[tuple[str, Mapping[str, ulp_attributes.Value], bytes]] = (
    ("STREAM_PARSER", {"offset": 2, "width": 2}, b"\0\0\0\7abc" * 3),
    (
        "STREAM_PARSER",
        {"offset": 0, "width": 1, "unit": 4, "adjustment": 4, "mask": 0xF0, "shift": 4},
        b"\x10abcdefg\0abc",
    ),
    (
        "STREAM_PARSER",
        {"offset": 4, "width": 4, "little_endian": True, "adjustment": 8, "timeout_ms": 5},
        b"nvmx\3\0\0\0abc",
    ),
    (
        "STREAM_PARSER",
        {"offset": 2, "width": 1, "magic_offset": 0, "magic": b"XT", "magic_mask": b"\xff\xf0"},
        b"XT\4aXU\3no",
    ),
    ("STREAM_PARSER", {"offset": 2, "width": 1, "magic_offset": 0, "magic": b"XT"}, b"XT\0aXU\3no"),
    (
        "STREAM_PARSER",
        {"offset": 0, "width": 8, "adjustment": -1, "max_bytes": 64},
        b"\0" * 7 + b"\x10" + b"a" * 15 + b"\xff" * 9,
    ),
    ("STREAM_PARSER", {"offset": 0, "width": 9}, b""),
    ("STREAM_PARSER", {"offset": 60000, "width": 2}, b""),
    ("STREAM_PARSER", {"offset": 0, "width": 2, "magic": b"x" * 17}, b""),
    ("STREAM_PARSER", {"offset": 0, "width": 2, "magic": b"xx", "magic_mask": b"x", "magic_offset": 9}, b""),
    ("STREAM_PARSER", {"offset": 0, "width": 2, "shift": 64}, b""),
    ("LINES", {}, b"line\nline\r\n\nlast"),
    ("LENGTH_PREFIXED", {"width": 2}, b"\0\3abc\0\0"),
    ("LENGTH_PREFIXED", {"width": 4, "little_endian": True, "counts_itself": True}, b"\7\0\0\0abc\1\0\0\0"),
    ("LENGTH_PREFIXED", {"width": 3, "max_bytes": 9}, b"\0\0\3abc\0\0\x20"),
    ("LENGTH_PREFIXED", {"width": 8}, b"\xff" * 8),
    ("LENGTH_PREFIXED", {"width": 5}, b""),
    ("TLS_RECORDS", {}, bytes.fromhex("1703030005010203040516030100310100002d0303") + bytes(60)),
    ("HTTP2", {"role": 2, "max_frame_bytes": 20000}, PREFACE + frame(SETTINGS) + frame(DATA, bytes(300), stream=1)),
    ("HTTP2", {"role": 1}, frame(SETTINGS) + frame(GOAWAY, bytes(8)) + frame(DATA, bytes(16385), stream=1)),
    ("HTTP2", {"role": 2}, b"GET / HTTP/1.1\r\n\r\n"),
    ("DNS", {"padding": 128}, b"\0\x0c\0\1\1\0\0\0\0\0\0\0\0\0"),
    ("DNS", {"padding": 0}, b"\0\3abc"),
    (
        "NVME_TCP",
        {"header_digest": True, "data_digest": True},
        bytes.fromhex("00008000800000000000000000000000") + bytes(112),
    ),
    ("MPA", {}, b"\0\4abcd\0\0" + bytes(4)),
)

_QUESTION = bytes.fromhex("000101000001000000000001") + b"\3abc\2de\0\0\1\0\1"
_OPT = bytes.fromhex("0000291000000000000000")
#: What DNS pads, and what it leaves as it is.
_MESSAGES = (
    _QUESTION + _OPT,
    _QUESTION + _OPT[:-2] + b"\0\4\0\x0c\0\0",
    _QUESTION + _OPT[:-2] + b"\0\5\0\3\0\1x",
    _QUESTION[:10] + b"\0\2" + _QUESTION[12:] + _OPT + b"\0" + _OPT[1:3] + bytes(8),
    _QUESTION[:12] + b"\xc0\x0c\0\1\0\1" + _OPT,
    _QUESTION[:12] + b"\x7fabc" + _OPT,
    _QUESTION[:-6],
    _QUESTION + _OPT[:-4],
    _QUESTION[:4] + b"\xff\xff" + _QUESTION[6:],
    _QUESTION + _OPT[:-2] + b"\xff\xff",
    b"short",
)


def _moving(pushed: bytes, data: bytes) -> Iterator[bytes]:
    """To another process, with a PDU that has come in part, and one that is sent in part; as it is, and changed."""
    sent = write(data[:200])
    for moves in (MOVE, *(b"\xf0\1" + bytes([layer, 0, at, 130]) for layer in (0, 1) for at in (25, 60, 90, 160))):
        halves = peer_sends(data[: len(data) // 2]) + SMALL_READ + moves + peer_sends(data[len(data) // 2 :])
        yield pushed + START_CLIENT + halves + READ * 3 + sent + moves + sent + TAKE_ALL + FLUSH + PEER_ENDS + READ


def stack_programs() -> list[bytes]:
    """Each protocol, with what it takes and what it refuses, both ways; gRPC above HTTP/2."""
    programs = _of_grpc()
    for name, parameters, data in _PARAMETERS:
        for direction in (RECEIVE, BOTH) if BY_NAME[name].send else (RECEIVE,):
            layer = push(name, direction, **parameters)
            tell = b"".join(bytes([12, which, item, 0, 0]) for which in range(4) for item in range(1, 4))
            programs.append(b"\0" + layer + START_CLIENT + peer_sends(data) + READ * 4 + tell + PEER_ENDS + READ)
            programs.append(
                b"\2" + layer + b"\x0d" + START_SERVER + peer_sends(data[:3]) + TIME + SMALL_READ * 9 + TIME
            )
            late = b"\x0b" + bytes([len(data[:99])]) + data[:99]
            programs.append(b"\2" + START_SERVER + layer + late + TIME + READ * 2 + write(data[:200]) + FINISH)
            programs += _moving(b"\0" + layer, data)
    padded = push("DNS", padding=128) + START_CLIENT
    programs += [b"\0" + padded + write(text) + TAKE_ALL + FLUSH for text in _MESSAGES]
    programs += [
        b"\0" + push("LINES") + START_CLIENT + write(text) + FINISH for text in (b"a\n", b"no end", b"two\nof\n")
    ]
    return programs
