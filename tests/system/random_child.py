"""Carries out scripts of socket calls: one JSON line each on standard input, one with what came of it on standard output.

A script is a list of operations, [name, argument…], over *slots*: numbers that stand for descriptors, so that scripts
know no descriptor of their own. What an operation came to is a result, or the name of an errno; addresses and ports are
told by labels in order of appearance. After each operation the world is let come to rest, and its *state* recorded:
what poll(2) says of every socket, and how much there is to read.

With the outcome of another run given (`expected`), rest is when the state is the one expected there, however long that
takes (`settle_s` at most): so a slow machine makes no difference. The first difference ends the script. Without, rest
is when the state has not changed over `pause_s`.

A call that would wait for ever is not made: it gets MSG_DONTWAIT, or is skipped. Both depend on the state alone.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import select
import signal
import socket
import struct
import sys
import termios
import time
import zlib
from pathlib import Path
from typing import Any

LIBC = ctypes.CDLL(None, use_errno=True)
for _name in ("send", "recv", "sendto", "recvfrom", "sendmsg", "recvmsg", "read", "write", "readv", "writev", "sendfile",
              "splice"):  # fmt: skip
    getattr(LIBC, _name).restype = ctypes.c_ssize_t

Result = Any
ALL_EVENTS = 0x1 | 0x2 | 0x4 | 0x40 | 0x80 | 0x100 | 0x200 | 0x2000
POLLIN, POLLERR, POLLHUP, POLLNVAL, POLLRDHUP = 0x1, 0x8, 0x10, 0x20, 0x2000
NO_DESCRIPTOR = 3000
BUDGET_BYTES = 48_000  # sent and possibly not read: less than what any socket takes without waiting
PENDING_MAX = 3  # connections of a listener that have not been accepted: fewer than any backlog
HANG_S = 8
EXPLICIT_PORT = 1  # a port in an operation: 0, the port of a slot (negative: -1 - slot)
SPLICE_F_NONBLOCK = 2
OPTIONS = {
    name: (getattr(socket, level), getattr(socket, name, number))
    for name, level, number in (
        ("SO_KEEPALIVE", "SOL_SOCKET", 9),
        ("SO_REUSEADDR", "SOL_SOCKET", 2),
        ("SO_REUSEPORT", "SOL_SOCKET", 15),
        ("SO_RCVLOWAT", "SOL_SOCKET", 18),
        ("SO_SNDLOWAT", "SOL_SOCKET", 19),
        ("SO_LINGER", "SOL_SOCKET", 13),
        ("SO_ERROR", "SOL_SOCKET", 4),
        ("SO_TYPE", "SOL_SOCKET", 3),
        ("SO_DOMAIN", "SOL_SOCKET", 39),
        ("SO_PROTOCOL", "SOL_SOCKET", 38),
        ("SO_ACCEPTCONN", "SOL_SOCKET", 30),
        ("SO_RCVTIMEO", "SOL_SOCKET", 20),
        ("SO_SNDTIMEO", "SOL_SOCKET", 21),
        ("SO_OOBINLINE", "SOL_SOCKET", 10),
        ("SO_PRIORITY", "SOL_SOCKET", 12),
        ("SO_BROADCAST", "SOL_SOCKET", 6),
        ("SO_DONTROUTE", "SOL_SOCKET", 5),
        ("TCP_NODELAY", "IPPROTO_TCP", 1),
        ("TCP_CORK", "IPPROTO_TCP", 3),
        ("TCP_KEEPIDLE", "IPPROTO_TCP", 4),
        ("TCP_KEEPINTVL", "IPPROTO_TCP", 5),
        ("TCP_KEEPCNT", "IPPROTO_TCP", 6),
        ("TCP_SYNCNT", "IPPROTO_TCP", 7),
        ("TCP_LINGER2", "IPPROTO_TCP", 8),
        ("TCP_DEFER_ACCEPT", "IPPROTO_TCP", 9),
        ("TCP_QUICKACK", "IPPROTO_TCP", 12),
        ("TCP_USER_TIMEOUT", "IPPROTO_TCP", 18),
        ("TCP_NOTSENT_LOWAT", "IPPROTO_TCP", 25),
        ("TCP_NONE", "IPPROTO_TCP", 9999),
        ("IP_TOS", "IPPROTO_IP", 1),
        ("IP_TTL", "IPPROTO_IP", 2),
        ("IPV6_V6ONLY", "IPPROTO_IPV6", 26),
        ("IPV6_TCLASS", "IPPROTO_IPV6", 67),
        ("IPV6_UNICAST_HOPS", "IPPROTO_IPV6", 16),
    )
}


class Vector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("bytes", ctypes.c_size_t))


class Header(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_void_p), ("name_bytes", ctypes.c_uint32), ("vectors", ctypes.POINTER(Vector)),
        ("count", ctypes.c_size_t), ("control", ctypes.c_void_p), ("control_bytes", ctypes.c_size_t),
        ("flags", ctypes.c_int),
    )  # fmt: skip


class Message(ctypes.Structure):
    _fields_ = (("header", Header), ("bytes", ctypes.c_uint32))


class PollFd(ctypes.Structure):
    _fields_ = (("fd", ctypes.c_int), ("events", ctypes.c_short), ("revents", ctypes.c_short))


class EpollEvent(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("events", ctypes.c_uint32), ("data", ctypes.c_uint64))


def socket_address(host: str, port: int) -> bytes:
    if ":" in host:
        packed = socket.inet_pton(socket.AF_INET6, host)
        return struct.pack("=H", socket.AF_INET6) + struct.pack(">HI", port, 0) + packed + struct.pack("=I", 0)
    return struct.pack("=H", socket.AF_INET) + struct.pack(">H", port) + socket.inet_aton(host) + bytes(8)


def vectors(buffer: ctypes.Array[ctypes.c_char], sizes: list[int]) -> ctypes.Array[Vector]:
    """Pieces of a buffer, one after the other."""
    out, at = (Vector * max(len(sizes), 1))(), ctypes.addressof(buffer)
    for vector, size in zip(out, sizes, strict=False):
        vector.base, vector.bytes = at, size
        at += size
    return out


class World:
    """The descriptors of one script, by slot."""

    def __init__(self) -> None:
        self.slots: dict[int, int] = {}
        self.kinds: dict[int, str] = {}
        self.hosts: dict[int, str] = {}  # where a slot is bound
        self.pending: dict[int, int] = {}
        self.labels: dict[int, int] = {}
        self.shut: dict[tuple[str, int], int] = {}  # ways of shutdown, by address and port
        self.sent = 0
        self.pattern = 0
        self.broken_pipes = 0
        self.buffer = ctypes.create_string_buffer(1 << 17)
        signal.signal(signal.SIGPIPE, self.broken_pipe)
        signal.signal(signal.SIGALRM, lambda _number, _frame: None)

    def broken_pipe(self, _number: int, _frame: object) -> None:
        self.broken_pipes += 1

    # --- calls and what is known of them ----------------------------------------------------------------------

    def fd(self, slot: int) -> int:
        return self.slots.get(slot, NO_DESCRIPTOR + slot)

    def call(self, name: str, *arguments: Any) -> int | str:
        """The result, or the errno's name."""
        result = int(getattr(LIBC, name)(*arguments))
        return result if result >= 0 else errno.errorcode[ctypes.get_errno()]

    def made(self, slot: int, kind: str, result: int | str) -> Result:
        if isinstance(result, str):
            return result
        self.slots[slot], self.kinds[slot] = result, kind
        self.hosts.pop(slot, None)
        self.pending.pop(slot, None)
        return "made"

    def events(self, slot: int, wanted: int = ALL_EVENTS) -> int:
        fds = (PollFd * 1)(PollFd(self.fd(slot), wanted, 0))
        self.call("poll", fds, ctypes.c_ulong(1), 0)
        return int(fds[0].revents)

    def unread(self, slot: int) -> int | str:
        number = ctypes.c_int(0)
        r = self.call("ioctl", self.fd(slot), ctypes.c_ulong(termios.FIONREAD), ctypes.byref(number))
        return r if isinstance(r, str) else number.value

    def blocking(self, slot: int) -> bool:
        r = self.call("fcntl", self.fd(slot), fcntl.F_GETFL, ctypes.c_long(0))
        return isinstance(r, int) and not r & os.O_NONBLOCK

    def option(self, slot: int, name: str, value: int) -> None:
        self.call("setsockopt", self.fd(slot), *OPTIONS[name], struct.pack("=i", value), 4)

    def option_of(self, slot: int, name: str) -> int | None:
        value, length = ctypes.c_int(0), ctypes.c_uint(4)
        r = self.call("getsockopt", self.fd(slot), *OPTIONS[name], ctypes.byref(value), ctypes.byref(length))
        return value.value if r == 0 else None

    def would_wait(self, slot: int) -> bool:
        """A blocking call that takes something would have nothing to take."""
        return self.blocking(slot) and not self.events(slot) & (POLLIN | POLLERR | POLLHUP | POLLRDHUP | POLLNVAL)

    def address(self, call: str, slot: int) -> tuple[str, int] | str:
        buffer, length = ctypes.create_string_buffer(28), ctypes.c_uint(28)
        r = self.call(call, self.fd(slot), buffer, ctypes.byref(length))
        return r if isinstance(r, str) else self.read_address(buffer.raw)

    @staticmethod
    def read_address(raw: bytes) -> tuple[str, int]:
        family, port = struct.unpack("=H", raw[:2])[0], struct.unpack(">H", raw[2:4])[0]
        if family == socket.AF_INET:
            return socket.inet_ntop(family, raw[4:8]), port
        if family == socket.AF_INET6:
            return socket.inet_ntop(family, raw[8:24]), port
        return f"family {family}", 0

    def label(self, address: tuple[str, int] | str) -> Result:
        """An address as both runs have it."""
        if isinstance(address, str):
            return address
        host, port = address
        return [host, self.labels.setdefault(port, len(self.labels) + 1) if port else 0]

    def port(self, word: int) -> int:
        """A port an operation names: 0, or that of slot -1 - word."""
        if word >= 0:
            return word
        name = self.address("getsockname", -1 - word)
        return 0 if isinstance(name, str) else name[1]

    def data(self, size: int) -> bytes:
        """What to send: no two stretches of a script are alike."""
        self.pattern += 1
        return (b"%07d;" % self.pattern * (size // 8 + 1))[:size]

    def got(self, r: int | str, size: int, flags: int = 0) -> Result:
        if isinstance(r, str) or flags & socket.MSG_TRUNC:
            return r
        return [r, zlib.crc32(self.buffer.raw[: min(r, size)])]

    def sending(self, slot: int, size: int) -> bool:
        """May so much be sent? Not to who has been shut down both ways (see EXCLUSIONS)."""
        peer = self.address("getpeername", slot)
        if not isinstance(peer, str) and self.shut.get(peer) == 3:
            return False
        self.sent += size
        return self.sent <= BUDGET_BYTES

    def gave(self, r: int | str) -> Result:
        signals, self.broken_pipes = self.broken_pipes, 0
        return [r, "SIGPIPE"] if signals else r

    # --- state -----------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Of all sockets: the events of poll(2), and what can be read."""
        slots = sorted(slot for slot in self.slots if self.kinds[slot] == "socket")
        if not slots:
            return {}
        fds = (PollFd * len(slots))(*(PollFd(self.slots[slot], ALL_EVENTS, 0) for slot in slots))
        self.call("poll", fds, ctypes.c_ulong(len(slots)), 0)
        return {str(slot): [fds[i].revents, self.unread(slot)] for i, slot in enumerate(slots)}

    def rest(self, pause_s: float) -> dict[str, Any]:
        state = self.state()
        while True:
            time.sleep(pause_s)
            again = self.state()
            if again == state:
                return state
            state = again

    def rest_as(self, expected: dict[str, Any], settle_s: float) -> dict[str, Any]:
        end = time.monotonic() + settle_s
        pause_s = 0.0
        while (state := self.state()) != expected and time.monotonic() < end:
            time.sleep(pause_s)
            pause_s = min(pause_s + 0.0001, 0.005)
        return state

    # --- making, connecting ----------------------------------------------------------------------------------------

    def op_socket(self, slot: int, family: int, flags: int) -> Result:
        if slot in self.slots:
            return "busy"
        kind = socket.SOCK_STREAM | flags
        return self.made(slot, "socket", self.call("socket", socket.AF_INET if family == 4 else socket.AF_INET6, kind, 0))

    def op_bind(self, slot: int, host: str, port: int) -> Result:
        where = socket_address(host, self.port(port))
        r = self.call("bind", self.fd(slot), where, len(where))
        if r == 0:
            self.hosts[slot] = host
        return r

    def op_listen(self, slot: int, backlog: int) -> Result:
        r = self.call("listen", self.fd(slot), backlog)
        if r == 0:
            self.pending.setdefault(slot, 0)
        return r

    def op_connect(self, slot: int, target: int) -> Result:
        """To the port of another slot, on the address that is bound to."""
        name = self.address("getsockname", target)
        if isinstance(name, str) or not name[1]:
            return "no target"
        host, port = name
        if self.pending.get(target, 0) >= PENDING_MAX:
            return "would wait"
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
        own = self.address("getsockname", slot)
        if own == name:
            return "itself"
        where = socket_address(host, port)
        r = self.call("connect", self.fd(slot), where, len(where))
        if r in (0, "EINPROGRESS"):
            for listener in self.pending:
                if self.address("getsockname", listener) in (name, (host, port)):
                    self.pending[listener] += 1
        return r

    def op_disconnect(self, slot: int) -> Result:
        """connect() to AF_UNSPEC. What it can be used for then is another matter (see EXCLUSIONS): it is closed."""
        r = self.call("connect", self.fd(slot), struct.pack("=H14x", socket.AF_UNSPEC), 16)
        return [r, self.last_looks(slot)]

    def last_looks(self, slot: int) -> Result:
        looks = [self.events(slot), self.op_recv(slot, 10, socket.MSG_DONTWAIT), self.op_send(slot, 1, 0x4000)]
        looks += [self.op_name("getpeername", slot), self.op_get(slot, "SO_ERROR", 4), self.op_shutdown(slot, 1)]
        return [looks, self.op_close(slot)]

    def op_accept(self, slot: int, into: int, flags: int) -> Result:
        if into in self.slots:
            return "busy"
        if self.would_wait(slot):
            return "would wait"
        buffer, length = ctypes.create_string_buffer(28), ctypes.c_uint(28)
        r = self.call("accept4", self.fd(slot), buffer, ctypes.byref(length), flags)
        if isinstance(r, str):
            return r
        self.pending[slot] = max(self.pending.get(slot, 0) - 1, 0)
        self.made(into, "socket", r)
        return [length.value, self.label(self.read_address(buffer.raw))]

    def op_pair(self, a: int, b: int, host: str) -> Result:
        """A connected pair: what most scripts begin with."""
        if a in self.slots or b in self.slots:
            return "busy"
        family = 6 if ":" in host else 4
        made = [self.op_socket(90, family, 0), self.op_bind(90, host, 0), self.op_listen(90, 5)]
        made += [self.op_socket(a, family, 0), self.op_connect(a, 90)]
        deadline = time.monotonic() + HANG_S
        while not self.events(90) & POLLIN and time.monotonic() < deadline:
            pass
        r = self.op_accept(90, b, 0)
        self.option(a, "TCP_NODELAY", 1)
        self.option(b, "TCP_NODELAY", 1)
        return [*made, r, self.op_close(90)]

    def op_name(self, call: str, slot: int) -> Result:
        return self.label(self.address(call, slot))

    # --- data ------------------------------------------------------------------------------------------------------

    def op_send(self, slot: int, size: int, flags: int) -> Result:
        if not self.sending(slot, size):
            return "budget"
        return self.gave(self.call("send", self.fd(slot), self.data(size), ctypes.c_size_t(size), flags))

    def op_sendto(self, slot: int, size: int, flags: int) -> Result:
        if not self.sending(slot, size):
            return "budget"
        where = socket_address("127.0.0.1", 9)
        return self.gave(
            self.call("sendto", self.fd(slot), self.data(size), ctypes.c_size_t(size), flags, where, len(where))
        )

    def op_write(self, slot: int, size: int) -> Result:
        if not self.sending(slot, size):
            return "budget"
        return self.gave(self.call("write", self.fd(slot), self.data(size), ctypes.c_size_t(size)))

    def op_writev(self, slot: int, sizes: list[int]) -> Result:
        if not self.sending(slot, sum(sizes)):
            return "budget"
        data = ctypes.create_string_buffer(self.data(sum(sizes)), sum(sizes) + 1)
        return self.gave(self.call("writev", self.fd(slot), vectors(data, sizes), len(sizes)))

    def op_sendmsg(self, slot: int, sizes: list[int], flags: int) -> Result:
        if not self.sending(slot, sum(sizes)):
            return "budget"
        data = ctypes.create_string_buffer(self.data(sum(sizes)), sum(sizes) + 1)
        header = Header(vectors=vectors(data, sizes), count=len(sizes))
        return self.gave(self.call("sendmsg", self.fd(slot), ctypes.byref(header), flags))

    def op_sendmmsg(self, slot: int, sizes: list[int], flags: int) -> Result:
        if not self.sending(slot, sum(sizes)):
            return "budget"
        data = ctypes.create_string_buffer(self.data(sum(sizes)), sum(sizes) + 1)
        pieces = vectors(data, sizes)
        messages = (Message * len(sizes))()
        for i, message in enumerate(messages):
            message.header.vectors, message.header.count = ctypes.pointer(pieces[i]), 1
        r = self.gave(self.call("sendmmsg", self.fd(slot), messages, len(sizes), flags))
        return [r, [message.bytes for message in messages]]

    def op_more(self, slot: int, size: int, how: str) -> Result:
        """Data held back, then let go: when exactly it leaves in between is nobody's business."""
        if not self.sending(slot, size + 1):
            return "budget"
        if how == "cork":
            self.option(slot, "TCP_CORK", 1)
        first = self.gave(self.call("send", self.fd(slot), self.data(size), ctypes.c_size_t(size), 0x8000))
        second = self.gave(self.call("send", self.fd(slot), self.data(1), ctypes.c_size_t(1), 0))
        if how == "cork":
            self.option(slot, "TCP_CORK", 0)
        return [first, second]

    def receive_flags(self, slot: int, size: int, flags: int) -> int:
        if self.would_wait(slot):
            flags |= socket.MSG_DONTWAIT
        unread = self.unread(slot)
        if flags & socket.MSG_WAITALL and (unread if isinstance(unread, int) else 0) < size:
            flags &= ~socket.MSG_WAITALL
        return flags

    def op_recv(self, slot: int, size: int, flags: int) -> Result:
        flags = self.receive_flags(slot, size, flags)
        return self.got(self.call("recv", self.fd(slot), self.buffer, ctypes.c_size_t(size), flags), size, flags)

    def op_recvfrom(self, slot: int, size: int, flags: int) -> Result:
        flags = self.receive_flags(slot, size, flags)
        name, length = ctypes.create_string_buffer(28), ctypes.c_uint(28)
        r = self.call(
            "recvfrom", self.fd(slot), self.buffer, ctypes.c_size_t(size), flags, name, ctypes.byref(length)
        )
        return [self.got(r, size, flags), length.value]

    def op_read(self, slot: int, size: int) -> Result:
        if self.would_wait(slot):
            return "would wait"
        return self.got(self.call("read", self.fd(slot), self.buffer, ctypes.c_size_t(size)), size)

    def op_readv(self, slot: int, sizes: list[int]) -> Result:
        if self.would_wait(slot):
            return "would wait"
        r = self.call("readv", self.fd(slot), vectors(self.buffer, sizes), len(sizes))
        return self.got(r, sum(sizes))

    def op_recvmsg(self, slot: int, sizes: list[int], flags: int) -> Result:
        flags = self.receive_flags(slot, sum(sizes), flags)
        control = ctypes.create_string_buffer(64)
        header = Header(vectors=vectors(self.buffer, sizes), count=len(sizes), name_bytes=7, flags=0x4444)
        header.control, header.control_bytes = ctypes.addressof(control), 64
        r = self.call("recvmsg", self.fd(slot), ctypes.byref(header), flags)
        out = [self.got(r, sum(sizes), flags)]
        return out if isinstance(r, str) else [*out, header.name_bytes, header.control_bytes, header.flags]

    def op_recvmmsg(self, slot: int, sizes: list[int], flags: int) -> Result:
        flags = self.receive_flags(slot, sum(sizes), flags) | socket.MSG_DONTWAIT
        pieces, messages = vectors(self.buffer, sizes), (Message * len(sizes))()
        for i, message in enumerate(messages):
            message.header.vectors, message.header.count = ctypes.pointer(pieces[i]), 1
        r = self.call("recvmmsg", self.fd(slot), messages, len(sizes), flags, None)
        return r if isinstance(r, str) else [r, [message.bytes for message in messages[:r]]]

    def op_sendfile(self, slot: int, offset: int, size: int) -> Result:
        if not self.sending(slot, size):
            return "budget"
        fd = os.memfd_create("source")
        try:
            os.write(fd, self.data(10_000))
            at = ctypes.c_long(offset)
            r = self.call("sendfile", self.fd(slot), fd, ctypes.byref(at), ctypes.c_size_t(size))
            return [self.gave(r), at.value]
        finally:
            os.close(fd)

    def op_splice(self, source: int, into: int, size: int) -> Result:
        if not self.sending(into, size):
            return "budget"
        if self.would_wait(source):
            return "would wait"
        r = self.call("splice", self.fd(source), None, self.fd(into), None, ctypes.c_size_t(size), SPLICE_F_NONBLOCK)
        return self.gave(r)

    def peer_of(self, slot: int) -> int | None:
        mine, peer = self.address("getsockname", slot), self.address("getpeername", slot)
        if isinstance(mine, str) or isinstance(peer, str):
            return None
        for other in sorted(self.slots):
            if self.address("getsockname", other) == peer and self.address("getpeername", other) == mine:
                return other
        return None

    def op_transfer(self, slot: int, size: int) -> Result:
        """More than the buffers hold, read while it is sent."""
        peer = self.peer_of(slot)
        if peer is None or not self.sending(slot, 0) or self.events(peer) & (POLLHUP | POLLRDHUP | POLLERR):
            return "no peer"
        self.option(slot, "TCP_NODELAY", 1)
        unread = self.unread(peer)
        assert isinstance(unread, int)
        data, sent, crc, left = self.data(size), 0, 0, unread + size
        end = time.monotonic() + HANG_S
        while left and time.monotonic() < end:
            if sent < size:
                part = data[sent : sent + 100_000]
                r = self.call("send", self.fd(slot), part, ctypes.c_size_t(len(part)), socket.MSG_DONTWAIT | 0x4000)
                if r != "EAGAIN" and isinstance(r, str):
                    return ["send", r]
                sent += r if isinstance(r, int) else 0
            r = self.call("recv", self.fd(peer), self.buffer, ctypes.c_size_t(1 << 17), socket.MSG_DONTWAIT)
            if r == 0 or (isinstance(r, str) and r != "EAGAIN"):
                return ["recv", r]
            if isinstance(r, int):
                left -= r
                crc = zlib.crc32(self.buffer.raw[:r], crc)
        return [left, crc]

    # --- ending, descriptors ---------------------------------------------------------------------------------------

    def op_shutdown(self, slot: int, how: int) -> Result:
        name = self.address("getsockname", slot)
        ends_listening = self.option_of(slot, "SO_ACCEPTCONN") == 1 and how in (0, 2)
        r = self.call("shutdown", self.fd(slot), how)
        if r == 0 and not isinstance(name, str):
            self.shut[name] = self.shut.get(name, 0) | (how + 1)
        return [r, self.last_looks(slot)] if ends_listening else r

    def op_close(self, slot: int) -> Result:
        r = self.call("close", self.fd(slot))
        self.slots.pop(slot, None)
        self.pending.pop(slot, None)
        return r

    def op_reset(self, slot: int) -> Result:
        return [self.op_set(slot, "SO_LINGER", [1, 0]), self.op_close(slot)]

    def op_dup(self, slot: int, into: int) -> Result:
        if into in self.slots:
            return "busy"
        r = self.call("dup", self.fd(slot))
        return self.copied(slot, into, r)

    def op_dup2(self, slot: int, into: int) -> Result:
        if into not in self.slots:
            return "no target"
        r = self.call("dup2", self.fd(slot), self.fd(into))
        return self.copied(slot, into, r)

    def copied(self, slot: int, into: int, r: int | str) -> Result:
        if isinstance(r, str) or slot == into:
            return r if isinstance(r, str) else "made"
        pending = self.pending.get(slot)
        self.made(into, self.kinds[slot], r)
        if pending is not None:
            self.pending[into] = pending
        return "made"

    def op_fcntl(self, slot: int, command: str, argument: int) -> Result:
        r = self.call("fcntl", self.fd(slot), getattr(fcntl, command), ctypes.c_long(argument))
        return r

    def op_ioctl(self, slot: int, request: str, value: int) -> Result:
        number = ctypes.c_int(value)
        code = {"FIONREAD": termios.FIONREAD, "FIONBIO": termios.FIONBIO, "SIOCATMARK": 0x8905, "NONE": 0x12345678}[request]
        r = self.call("ioctl", self.fd(slot), ctypes.c_ulong(code), ctypes.byref(number))
        return [r, number.value]

    def op_set(self, slot: int, name: str, value: list[int]) -> Result:
        kind = "=ll" if name in ("SO_RCVTIMEO", "SO_SNDTIMEO") else f"={len(value)}i"
        raw = struct.pack(kind, *(value if kind != "=ll" else (*value, 0)[:2]))
        return self.call("setsockopt", self.fd(slot), *OPTIONS[name], raw, len(raw))

    def op_get(self, slot: int, name: str, size: int) -> Result:
        buffer, length = ctypes.create_string_buffer(64), ctypes.c_uint(size)
        r = self.call("getsockopt", self.fd(slot), *OPTIONS[name], buffer, ctypes.byref(length))
        return r if isinstance(r, str) else [length.value, buffer.raw[: length.value].hex()]

    # --- readiness -------------------------------------------------------------------------------------------------

    def op_poll(self, slots: list[int], wanted: int, timeout_ms: int) -> Result:
        fds = (PollFd * len(slots))(*(PollFd(self.fd(slot), wanted, 0) for slot in slots))
        r = self.call("poll", fds, ctypes.c_ulong(len(slots)), timeout_ms)
        return [r, [f.revents for f in fds]]

    def op_select(self, readers: list[int], writers: list[int], others: list[int], timeout_ms: int) -> Result:
        if any(slot not in self.slots for slot in (*readers, *writers, *others)):
            return "no target"
        found = select.select(
            *([self.slots[slot] for slot in slots] for slots in (readers, writers, others)), timeout_ms / 1000
        )
        back = {fd: slot for slot, fd in self.slots.items()}
        return [sorted(back[fd] for fd in fds) for fds in found]

    def op_epoll(self, slot: int) -> Result:
        if slot in self.slots:
            return "busy"
        return self.made(slot, "epoll", self.call("epoll_create1", 0))

    def op_epoll_ctl(self, slot: int, operation: int, member: int, events: int) -> Result:
        event = EpollEvent(events, member)
        return self.call("epoll_ctl", self.fd(slot), operation, self.fd(member), ctypes.byref(event))

    def op_epoll_wait(self, slot: int, timeout_ms: int, size: int) -> Result:
        events = (EpollEvent * max(size, 1))()
        r = self.call("epoll_wait", self.fd(slot), events, size, timeout_ms)
        return r if isinstance(r, str) else sorted([e.data, e.events] for e in events[:r])

    def op_pipe(self, reader: int, writer: int) -> Result:
        if reader in self.slots or writer in self.slots:
            return "busy"
        r, w = os.pipe2(os.O_NONBLOCK)
        self.made(reader, "pipe", r)
        return self.made(writer, "pipe", w)

    # --- scripts ---------------------------------------------------------------------------------------------------

    def run(self, script: list[list[Any]], expected: list[Any] | None, settle_s: float, pause_s: float) -> list[Any]:
        trace: list[Any] = []
        for i, (name, *arguments) in enumerate(script):
            signal.alarm(HANG_S)
            result = json.loads(json.dumps(getattr(self, f"op_{name}")(*arguments)))
            signal.alarm(0)
            if expected is None:
                state = self.rest(pause_s)
            else:
                state = self.rest_as(expected[i][1], settle_s if result == expected[i][0] else 0)
            trace.append([result, state])
            if expected is not None and expected[i] != trace[-1]:
                break
        return trace

    def clear(self) -> None:
        """Closes all, connections by a reset: thousands of scripts shall leave no ports behind that are waiting."""
        for slot, kind in self.kinds.items():
            if slot in self.slots and kind == "socket":
                self.op_set(slot, "SO_LINGER", [1, 0])
        for slot in list(self.slots):
            self.op_close(slot)


def main() -> None:
    for line in sys.stdin:
        order = json.loads(line)
        world = World()
        try:
            trace = world.run(order["script"], order.get("expected"), order["settle_s"], order["pause_s"])
        except Exception as error:
            trace = [f"{type(error).__name__}: {error}"]
        world.clear()
        answer = {"trace": trace, "descriptors": len(list(Path("/proc/self/fd").iterdir()))}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
