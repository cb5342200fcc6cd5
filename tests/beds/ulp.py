"""A stack of pushed protocols without a proxy: dpu_proxy/native/ulp on one end of a socket pair, its peer a test.

    with UlpBed() as bed:
        bed.push("LENGTH_PREFIXED", width=2)
        bed.start()
        bed.peer_send(b"\\0\\5hello")
        assert bed.read_all() == [Pdu(b"hello")]

Time stands still unless `bed.now_ns` is set on; what the stack asked its owner for is in `bed.wakeups`.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from xts_messages.wire import record_table
from xts_messages.wire.ulp_attributes import Offer, UlpError, Value, decode_error, decode_list, encode_attributes
from xts_messages.wire.ulps import BY_NAME, FAULTS, ULPS
from xts_proxy._native import ffi, lib

from beds.patience import SLOWER

RECEIVE, SEND, BOTH = 1, 2, 3
#: Off unless the operator names them; here they are named.
OPTIONAL = tuple(ulp.name for ulp in ULPS if ulp.optional)
_ROOM = 1 << 16


@dataclass(frozen=True, slots=True)
class Mark:
    """struct ulp_mark."""

    pdu: bool = False
    more: bool = False
    record_bytes: int = 0
    control_type: int = 0
    control: bytes = b""


@dataclass(frozen=True, slots=True)
class Pdu:
    """A whole PDU as it was read, or what came of a byte stream. `mark` is that of its first part, without `more`."""

    data: bytes
    mark: Mark = field(default=Mark(), compare=False)


def _mark_from(c: Any) -> Mark:
    return Mark(c.pdu, c.more, c.record_bytes, c.control_type, bytes(c.control[0 : c.control_bytes]))


def _mark_to(mark: Mark) -> Any:
    c = ffi.new("struct ulp_mark *")
    c.pdu, c.more, c.record_bytes, c.control_type = mark.pdu, mark.more, mark.record_bytes, mark.control_type
    c.control_bytes = len(mark.control)
    c.control[0 : len(mark.control)] = mark.control
    return c


def _check(result: int) -> int:
    if result < 0:
        raise OSError(-result, os.strerror(-result))
    return result


class UlpBed:
    """Both ends. Every call that the stack answers with -errno raises OSError; EAGAIN is told as described."""

    def __init__(
        self,
        *,
        message_socket: bool = True,
        handshake_timeout_ms: int = 10_000,
        first_byte_timeout_ms: int = 0,
        pdu_bytes_max: int = 64 << 20,
        buffered_bytes_max: int = 4 << 20,
        queue_id: int = 1,
        reports_end: bool = False,
        optional: Sequence[str] = OPTIONAL,
    ) -> None:
        self.now_ns = 1_000_000_000
        self.wakeups: list[int] = []
        self.ended = False
        self.message_socket = message_socket
        limits = ffi.new(
            "struct xts_ulp_limits *",
            {
                "handshake_timeout_ms": handshake_timeout_ms,
                "first_byte_timeout_ms": first_byte_timeout_ms,
                "pdu_bytes_max": pdu_bytes_max,
                "buffered_bytes_max": buffered_bytes_max,
            },
        )
        #: struct xts_ulp_config: add identities and parsers to it before pushing.
        self.config = lib.xts_ulp_config_new(limits)
        for name in optional:
            lib.xts_ulp_config_offer(self.config, BY_NAME[name].number)
        self._faults = ffi.new("uint64_t[]", 64)
        self._now = ffi.callback("uint64_t(void *)", lambda _: self.now_ns)
        self._wake = ffi.callback("void(void *, uint32_t)", lambda _, ms: self.wakeups.append(ms))
        self.owner = ffi.new(
            "struct ulp_owner *",
            {
                "fd": -1,
                "message_socket": message_socket,
                "queue_id": queue_id,
                "reports_end": reports_end,
                "config": self.config,
                "faults": self._faults,
                "now_ns": self._now,
                "wake_after": self._wake,
            },
        )
        out = ffi.new("struct ulp_stack **")
        _check(lib.ulp_stack_new(out, self.owner))
        self.stack = out[0]
        self.local, self.peer = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self.local.setblocking(False)
        self.peer.settimeout(5 * SLOWER)

    def __enter__(self) -> UlpBed:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Frees the stack and closes both ends."""
        lib.ulp_stack_free(self.stack)
        self.stack = ffi.NULL
        lib.xts_ulp_config_release(self.config)
        self.config = ffi.NULL
        self.local.close()
        self.peer.close()

    # --- what the host asks for

    def push_bytes(self, number: int, attributes: bytes = b"", direction: int = BOTH) -> None:
        """Pushes with attributes as they are; OSError with the reason as its text."""
        result = lib.ulp_stack_push(self.stack, direction, number, attributes, len(attributes))
        if result:
            raise OSError(-result, self.error().text)

    def push(self, name: str, direction: int | None = None, **parameters: Value | Sequence[Value] | None) -> None:
        """Pushes a protocol by its name in the table, in the directions it has; parameters in small letters."""
        ulp = BY_NAME[name]
        if direction is None:
            direction = RECEIVE * ulp.receive | SEND * ulp.send
        self.push_bytes(ulp.number, encode_attributes(ulp, parameters), direction)

    def start(self, *, client: bool = True) -> None:
        """The connection is established."""
        _check(lib.ulp_stack_start(self.stack, self.local.fileno(), client))

    def handshake(self) -> bool:
        """True when all layers are ready, False while a handshake is under way."""
        self._events()
        result = lib.ulp_stack_handshake(self.stack)
        if result == -errno.EAGAIN:
            return False
        _check(result)
        return True

    def give_back(self, *parts: bytes) -> None:
        """Bytes the host has not read, for the uppermost receive layer."""
        _check(lib.ulp_stack_expect(self.stack, sum(map(len, parts))))
        for data in parts:
            _check(lib.ulp_stack_give_back(self.stack, data, len(data)))

    def move(self) -> None:
        """To another process of the proxy, as far as that concerns the stack: what was saved is all that is left."""
        if stays := self.stays():
            raise AssertionError(f"it stays: {stays}")
        saved, out = ffi.new("struct ulp_moved **"), ffi.new("struct ulp_stack **")
        _check(lib.ulp_stack_save(self.stack, saved))
        lib.ulp_stack_wipe(self.stack)
        self.owner.fd = self.local.fileno()
        try:
            _check(lib.ulp_stack_new(out, self.owner))
            made = lib.ulp_stack_restore(out[0], saved[0])
        finally:
            lib.ulp_moved_free(saved[0])
        lib.ulp_stack_free(self.stack)
        self.stack = out[0]
        _check(made)

    def stays(self, version: int = record_table.VERSION) -> str:
        """Why it cannot go to a process that reads records of this version; "": it can."""
        why = lib.ulp_stack_stays(self.stack, version)
        text = ffi.string(why) if why else b""
        assert isinstance(text, bytes)
        return text.decode()

    def becomes_readable(self) -> None:
        """What epoll says when bytes have come; `read_all` and its like say it themselves."""
        lib.ulp_stack_event(self.stack, True, False)

    def _events(self) -> None:
        lib.ulp_stack_event(self.stack, True, True)

    def read(self, room: int = _ROOM, *, same_turn: bool = False) -> tuple[bytes, Mark] | None:
        """One read, of at most room bytes; None: nothing now. EOFError: the clean end of the stream. Each has a turn of
        its own, unless it goes on with the one before."""
        if not same_turn:
            lib.ulp_stack_turn(self.stack)
        out, mark = ffi.new("uint8_t[]", room), ffi.new("struct ulp_mark *")
        n = lib.ulp_stack_read(self.stack, out, room, mark)
        if n == -errno.EAGAIN:
            return None
        if n == -errno.ENODATA:
            self.ended = True
            raise EOFError
        _check(n)
        assert n or mark.pdu, "a read of 0 bytes that is no PDU"
        assert n <= room
        return bytes(ffi.buffer(out, n)), _mark_from(mark)

    def read_parts(self, rooms: Iterable[int] = ()) -> list[tuple[bytes, Mark]]:
        """All that can be read now, by read; the first reads have the rooms given. Sets `ended` at the clean end."""
        self._events()
        parts, sizes = [], iter(rooms)
        while True:
            wakeups = len(self.wakeups)
            try:
                part = self.read(next(sizes, _ROOM))
            except EOFError:
                return parts
            if part is not None:
                parts.append(part)
            elif 0 not in self.wakeups[wakeups:]:  # else it goes on in the next turn
                return parts

    def turn(self, reads: int = 4) -> list[tuple[bytes, Mark]]:
        """What a worker does with a connection when it is its turn."""
        parts: list[tuple[bytes, Mark]] = []
        while len(parts) < reads:
            part = self.read(same_turn=bool(parts))
            if part is None:
                break
            parts.append(part)
        return parts

    @property
    def asks_for_a_turn(self) -> bool:
        """The last turn was used up, and the owner has been asked for another; asked once."""
        asked = 0 in self.wakeups
        self.wakeups.clear()
        return asked

    def read_all(self, rooms: Iterable[int] = ()) -> list[Pdu]:
        """All that can be read now, whole PDUs (a byte stream: one Pdu for each read). A PDU that has begun and not
        ended stays for the next call."""
        return self.join(self.read_parts(rooms))

    _begun: tuple[bytearray, Mark] | None = None

    def join(self, parts: Iterable[tuple[bytes, Mark]]) -> list[Pdu]:
        """PDUs of parts; checks that the marks of the parts of one PDU agree."""
        pdus = []
        for data, mark in parts:
            if self._begun is None:
                self._begun = (bytearray(), Mark(mark.pdu, False, mark.record_bytes, mark.control_type, mark.control))
            whole, first = self._begun
            whole += data
            assert mark.pdu == first.pdu, "a PDU goes on as a byte stream, or the other way round"
            if first.record_bytes:
                assert mark.record_bytes == first.record_bytes, "record_bytes differs between parts"
            if mark.pdu and mark.more:
                continue
            if first.pdu and first.record_bytes:
                assert len(whole) == first.record_bytes, "the PDU has not the length it was said to have"
            pdus.append(Pdu(bytes(whole), first))
            self._begun = None
        return pdus

    def write(self, data: bytes, mark: Mark | None = None, *, pieces: int = 1) -> int:
        """Offers data once, in some pieces of memory; returns how many bytes were taken (an empty PDU: 1 or 0).
        Default mark: a whole PDU on a message socket, else a stream."""
        if mark is None:
            mark = Mark(pdu=self.message_socket, record_bytes=len(data))
        size = max(1, -(-len(data) // pieces))
        chunks = [ffi.from_buffer("uint8_t[]", data[i : i + size]) for i in range(0, len(data), size)]
        iov = ffi.new("struct iovec[]", max(1, len(chunks)))
        for i, chunk in enumerate(chunks):
            iov[i].iov_base, iov[i].iov_len = chunk, len(chunk)
        self._events()
        return _check(lib.ulp_stack_write(self.stack, iov, len(chunks), _mark_to(mark)))

    def flush(self) -> bool:
        """True when no layer holds anything back."""
        self._events()
        result = lib.ulp_stack_flush(self.stack)
        return result != -errno.EAGAIN and _check(result) == 0

    def finish(self) -> bool:
        """The host sends no more. True when all is said; TCP's half-close is then done."""
        self._events()
        result = lib.ulp_stack_finish(self.stack)
        if result == -errno.EAGAIN:
            return False
        _check(result)
        self.local.shutdown(socket.SHUT_WR)
        return True

    # --- what it tells

    def tell(self, item: int, *, layer: int = 0, receive: bool = True) -> bytes:
        """An item of ULP_INFO."""
        out = ffi.new("uint8_t[]", 1 << 16)
        n = _check(lib.ulp_stack_info(self.stack, receive, layer, item, 0, out, len(out)))
        answer = bytes(ffi.buffer(out, n))
        assert int.from_bytes(answer[:4], "big") == n - 4
        return answer[4:]

    def error(self) -> UlpError:
        """The answer to ULP_ERROR."""
        out = ffi.new("uint8_t[]", 512)
        return decode_error(bytes(ffi.buffer(out, _check(lib.ulp_stack_error(self.stack, True, out, 512)))))

    def describe(self, *, receive: bool = True) -> str:
        """Names of the layers, "tls/http2"."""
        out = ffi.new("char[]", 256)
        lib.ulp_stack_describe(self.stack, receive, out, 256)
        text = ffi.string(out)
        assert isinstance(text, bytes)
        return text.decode()

    def faults(self, name: str) -> int:
        """The counter of a fault, by its name in the table."""
        return int(self._faults[FAULTS[name][0]])

    @property
    def ready(self) -> bool:
        """Are all layers?"""
        return bool(lib.ulp_stack_ready(self.stack))

    @property
    def pending(self) -> bool:
        """Is there something to read although the socket has nothing?"""
        return bool(lib.ulp_stack_pending(self.stack))

    @property
    def readable(self) -> bool:
        """Is a read worth while?"""
        return bool(lib.ulp_stack_readable(self.stack))

    # --- the peer

    def peer_send(self, data: bytes) -> None:
        """Sends all of it; data larger than a socket buffer needs a reader at the same time."""
        self.peer.sendall(data)

    def feed(self, data: bytes, sizes: Iterable[int] = (), rooms: Iterable[int] = ()) -> list[Pdu]:
        """Sends data in pieces of these sizes, the rest in one, and reads after each what there is; whole PDUs."""
        pdus, at, room_sizes = [], 0, iter(rooms)
        for size in [*sizes, len(data)]:
            if at < len(data):
                self.peer_send(data[at : at + size])
                at += size
            pdus += self.read_all(room_sizes)
        return pdus

    def peer_recv(self, limit: int = 1 << 20) -> bytes:
        """What the peer has received so far, without waiting."""
        received = bytearray()
        self.peer.setblocking(False)
        while len(received) < limit:
            try:
                data = self.peer.recv(limit - len(received))
            except BlockingIOError:
                break
            if not data:
                break
            received += data
        self.peer.settimeout(5 * SLOWER)
        return bytes(received)

    def peer_close(self) -> None:
        """The peer's FIN."""
        self.peer.shutdown(socket.SHUT_WR)


def offers(optional: Sequence[str] = OPTIONAL) -> list[Offer]:
    """What this proxy has."""
    out = ffi.new("uint8_t[]", 512)
    with UlpBed(optional=optional) as bed:
        return decode_list(bytes(ffi.buffer(out, _check(lib.ulp_list(bed.config, out, 512)))))
