"""Every layer that receives, with a stream that it can read: for tests of what all of them do (test_ulp_every.py)."""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count

import pytest
from oracles.tls_records import ALERT, BY_NAME, TLS12, TLS13, Sealer
from test_tls_keys import USER, KeysBed, keys_of
from test_ulp_mpa import encode
from test_ulp_nvme_tcp import C2H_DATA, RESPONSE, Sample
from xts_bpf.parser import EXAMPLE, load_parser
from xts_proxy._native import lib

from beds.grpc import DATA, END_HEADERS, HEADERS, frame, prefixed
from beds.ulp import RECEIVE, UlpBed
from beds.ulp_tls import AUTHORITY, SERVER, TlsBed, server_context

MAX_BYTES = 4000  # of a PDU, where a layer can be told
SERVING = server_context(SERVER)
Result = tuple[list[tuple[bool, bytes, int, bytes]], str]


def body(size: int, seed: int) -> bytes:
    """Data that differs from place to place, and by seed."""
    return bytes((i * 7 + seed * 13 + i // 251) % 251 for i in range(size))


@dataclass(frozen=True)
class Case:
    """A layer, how it is set up, and what its peer says."""

    name: str
    bed: Callable[[], UlpBed]
    #: The stream of PDUs of about these sizes, to the bed: keys may be the connection's own.
    stream: Callable[[UlpBed, Sequence[int]], bytes]
    #: What is changed on the way is not delivered.
    guarded: bool = False
    #: The beginning of a PDU that would not end, and the fault that names it. None: a length of two bytes has no such.
    endless: tuple[bytes, str] | None = None


def pushed(*layers: tuple[str, dict[str, object]], client: bool = True) -> Callable[[], UlpBed]:
    def make() -> UlpBed:
        bed = UlpBed()
        for name, parameters in layers:
            bed.push(name, **parameters)  # type: ignore[arg-type]
        bed.start(client=client)
        return bed

    return make


def each(one: Callable[[bytes, int], bytes]) -> Callable[[UlpBed, Sequence[int]], bytes]:
    """A stream of PDUs, each by its data and number."""
    return lambda _, sizes: b"".join(one(body(size, i), i) for i, size in enumerate(sizes))


def lines(delimiter: bytes, *, keep: bool) -> Case:
    parameters = {"delimiter": delimiter, "keep": keep, "max_bytes": MAX_BYTES, "direction": RECEIVE}
    # The beginning of a delimiter is before some of them.
    stream = each(lambda data, i: data[: MAX_BYTES - 20] + delimiter[: i % 2] + delimiter)
    name = f"LINES-{delimiter.hex()}{'-keep' * keep}"
    return Case(name, pushed(("LINES", parameters)), stream, endless=(b"", "too_long"))


def bpf_bed() -> UlpBed:
    if os.geteuid() != 0:
        pytest.skip("loading a BPF program needs CAP_BPF")
    bed = UlpBed()
    assert lib.xts_ulp_config_add_parser(bed.config, b"it", load_parser(EXAMPLE, "http2_frames")) == 0
    bed.push("BPF_PARSER", RECEIVE, program="it", max_bytes=MAX_BYTES)
    bed.start()
    return bed


def keys_bed(version: int) -> Callable[[], UlpBed]:
    def make() -> UlpBed:
        bed = KeysBed(USER)
        bed.push_keys(keys_of(version, BY_NAME["aes-128-gcm"]), RECEIVE)
        return bed

    return make


def keys_stream(version: int) -> Callable[[UlpBed, Sequence[int]], bytes]:
    def make(_: UlpBed, sizes: Sequence[int]) -> bytes:
        seal = Sealer(keys_of(version, BY_NAME["aes-128-gcm"]))
        return b"".join(seal(b"\1\0", ALERT) if not size else seal(body(size, i)) for i, size in enumerate(sizes))

    return make


def tls_bed(*, messages: bool) -> Callable[[], UlpBed]:
    def make() -> UlpBed:
        bed = TlsBed(message_socket=messages)
        bed.add_trust("default", AUTHORITY.certificate)
        bed.push("TLS", server_name="localhost")
        bed.peer_tls = bed.connect_to(SERVING)
        return bed

    return make


def tls_stream(bed: UlpBed, sizes: Sequence[int]) -> bytes:
    assert isinstance(bed, TlsBed)
    for i, size in enumerate(sizes):
        bed.peer_tls.tls.write(body(size + 1, i))
    return bed.peer_tls.outgoing.read()


def grpc_bed() -> UlpBed:
    bed = pushed(("HTTP2", {}), ("GRPC", {"max_bytes": MAX_BYTES}))()
    head = frame(HEADERS, b"\x82", END_HEADERS, 1)
    assert bed.write(head) == len(head)
    bed.peer_recv()
    return bed


def nvme(data: bytes, number: int) -> bytes:
    sample = Sample(C2H_DATA, b"", data) if data else Sample(RESPONSE, bytes([number]))
    return sample.wire(header=True, data=True, alignment=8)


def records(data: bytes, number: int) -> bytes:
    return bytes([20 + number % 4, 3, 3]) + len(data).to_bytes(2, "big") + data


NVME = {"header_digest": True, "data_digest": True, "max_bytes": MAX_BYTES}
FIELDS = {"offset": 1, "width": 2, "adjustment": 3, "max_bytes": MAX_BYTES}
LONG = (MAX_BYTES + 1).to_bytes(4, "big")
CASES = [
    lines(b"\n", keep=False),
    lines(b"\n", keep=True),
    lines(b"aab", keep=False),
    lines(b"\r\n\r\n", keep=True),
    Case(
        "LENGTH_PREFIXED",
        pushed(("LENGTH_PREFIXED", {"max_bytes": MAX_BYTES})),
        each(lambda data, _: len(data).to_bytes(4, "big") + data),
        endless=(LONG, "too_long"),
    ),
    Case(
        "STREAM_PARSER",
        pushed(("STREAM_PARSER", FIELDS)),
        each(lambda data, i: bytes([i]) + len(data).to_bytes(2, "big") + data),
        endless=(b"\0" + LONG[2:], "too_long"),
    ),
    Case(
        "BPF_PARSER",
        bpf_bed,
        each(lambda data, i: frame(i, data)),
        endless=(LONG[1:] + bytes(6), "too_long"),
    ),
    Case("TLS", tls_bed(messages=False), tls_stream, True, (b"\x17\3\3\xff\xff", "record")),
    Case("TLS-records", tls_bed(messages=True), tls_stream, True, (b"\x17\3\3\xff\xff", "record")),
    Case("TLS_KEYS-1.2", keys_bed(TLS12), keys_stream(TLS12), True, (b"\x17\3\3\xff\xff", "too_long")),
    Case("TLS_KEYS-1.3", keys_bed(TLS13), keys_stream(TLS13), True, (b"\x17\3\3\xff\xff", "too_long")),
    Case(
        "TLS_RECORDS",
        pushed(("TLS_RECORDS", {"max_bytes": MAX_BYTES})),
        each(records),
        endless=(b"\x17\3\3" + LONG[2:], "too_long"),
    ),
    Case(
        "HTTP2",
        pushed(("HTTP2", {})),
        each(lambda data, i: frame(DATA, data, 0, 1 + 2 * i)),
        endless=(b"\0\x40\1" + bytes(6), "too_long"),
    ),
    Case(
        "GRPC",
        grpc_bed,
        each(lambda data, i: frame(DATA, prefixed(data)[: i % 7], 0, 1) + frame(DATA, prefixed(data)[i % 7 :], 0, 1)),
        endless=(frame(DATA, b"\0" + LONG, 0, 1), "too_long"),
    ),
    Case("DNS", pushed(("DNS", {})), each(lambda data, _: (len(data) + 12).to_bytes(2, "big") + bytes(12) + data)),
    Case(
        "NVME_TCP",
        pushed(("NVME_TCP", NVME)),
        each(nvme),
        True,
        (nvme(bytes(MAX_BYTES), 0)[:28], "too_long"),
    ),
    Case(
        "MPA",
        pushed(("MPA", {"markers_rx": True})),
        lambda _, sizes: encode([body(size, i) for i, size in enumerate(sizes)], markers=True),
        True,
    ),
]


def play(
    bed: UlpBed,
    stream: bytes,
    pieces: Iterable[int] = (),
    rooms: Iterable[int] = (),
    *,
    end: bool = True,
    moves: Container[int] = (),
) -> Result:
    """What a host gets of a stream that comes in these pieces, read into these rooms: whole PDUs (a byte stream is one,
    between two of them), and how it ended: "end", a fault, or "" while it goes on. `moves`: before which reads the
    stack goes to another process."""
    reads = count()
    whole: list[tuple[bool, bytes, int, bytes]] = []
    begun = bytearray()
    at, sizes, ending = 0, iter(rooms), ""
    for piece in [*pieces, len(stream), 0]:
        if at < len(stream) and piece:
            bed.peer_send(stream[at : at + piece])
            at += piece
        elif not piece and end:
            bed.peer_close()
        bed._events()
        with suppress(EOFError):
            try:
                while True:
                    if next(reads) in moves:
                        bed.move()
                        bed._events()
                    if (part := bed.read(next(sizes, 1 << 16))) is None:
                        break
                    data, mark = part
                    begun += data
                    if mark.pdu and mark.more:
                        continue
                    if not mark.pdu and whole and not whole[-1][0]:
                        whole[-1] = (False, whole[-1][1] + bytes(begun), 0, b"")
                    else:
                        whole.append((mark.pdu, bytes(begun), mark.control_type, mark.control))
                    begun.clear()
            except OSError as error:
                ending = bed.error().fault or str(error)
                break
        if bed.ended:
            return whole, "end"
    return whole, ending
