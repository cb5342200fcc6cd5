"""The descriptors of a random script, and what is known of them without changing anything: see random_child.py."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import signal
import socket
import struct
import termios
import time
import zlib
from typing import Any

from beds.libc_structs import PollFd, Vector

LIBC = ctypes.CDLL(None, use_errno=True)
SIZED = "send recv sendto recvfrom sendmsg recvmsg read write readv writev sendfile splice"
for _name in SIZED.split():
    getattr(LIBC, _name).restype = ctypes.c_ssize_t

Result = Any
ALL_EVENTS = 0x1 | 0x2 | 0x4 | 0x40 | 0x80 | 0x100 | 0x200 | 0x2000
POLLIN, POLLOUT, POLLERR, POLLHUP, POLLNVAL, POLLRDHUP = 0x1, 0x4, 0x8, 0x10, 0x20, 0x2000
NO_DESCRIPTOR = 3000
BUDGET_BYTES = 48_000  # sent and possibly not read: less than what any socket takes without waiting
PENDING_MAX = 3  # connections of a listener that have not been accepted: fewer than any backlog
HANG_S = 15
SPLICE_F_NONBLOCK = 2
REQUESTS = {"FIONREAD": termios.FIONREAD, "FIONBIO": termios.FIONBIO, "SIOCATMARK": 0x8905, "NONE": 0x12345678}
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


def end_of(address: tuple[str, int]) -> tuple[str, int]:
    """One name for an end of a connection, whichever family its own socket or its peer's is of."""
    return address[0].removeprefix("::ffff:"), address[1]


class World:
    """The descriptors of one script, by slot."""

    def __init__(self) -> None:
        self.slots: dict[int, int] = {}
        self.kinds: dict[int, str] = {}
        self.files: dict[int, object] = {}  # the same one for duplicates
        self.hosts: dict[int, str] = {}  # where a slot is bound
        self.pending: dict[int, int] = {}
        self.labels: dict[int, int] = {}
        self.shut: dict[tuple[str, int], int] = {}  # ways of shutdown, by address and port
        self.undecided: set[object] = set()  # files that the interposer may yet take from the kernel
        self.read_shut: set[object] = set()
        self.late: set[object] = set()  # files at which something can arrive that state() does not show
        self.edges: dict[
            tuple[object, int], tuple[str, object]
        ] = {}  # by set and slot: edge-triggered members, and sets
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
        self.slots[slot], self.kinds[slot], self.files[slot] = result, kind, object()
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
        """A blocking call that takes something would have nothing to take, for ever or for long."""
        timeout, length = (ctypes.c_long * 2)(0, 0), ctypes.c_uint(16)
        self.call("getsockopt", self.fd(slot), *OPTIONS["SO_RCVTIMEO"], timeout, ctypes.byref(length))
        if timeout[0] == 0 and timeout[1] != 0:
            return False
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
        if not isinstance(peer, str) and self.shut.get(end_of(peer)) == 3:
            return False
        self.sent += size
        return self.sent <= BUDGET_BYTES

    def gave(self, r: int | str) -> Result:
        signals, self.broken_pipes = self.broken_pipes, 0
        return [r, "SIGPIPE"] if signals else r

    def may_be_late(self, slot: int, member: int) -> bool:
        """Whether this event of a set has come yet depends on who looks when (see EXCLUSIONS)."""
        kind, file = self.edges.get((self.files.get(slot), member), ("", None))
        return bool(self.late) if kind == "epoll" else file in self.late

    # --- state -----------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Of all sockets: the events of poll(2), how much can be read, and whether there is a peer."""
        slots = sorted(slot for slot in self.slots if self.kinds[slot] == "socket")
        if not slots:
            return {}
        fds = (PollFd * len(slots))(*(PollFd(self.slots[slot], ALL_EVENTS, 0) for slot in slots))
        self.call("poll", fds, ctypes.c_ulong(len(slots)), 0)
        out: dict[str, Any] = {}
        for i, slot in enumerate(slots):
            peer = self.address("getpeername", slot)
            out[str(slot)] = [fds[i].revents, self.unread(slot), peer if isinstance(peer, str) else "peer"]
        return out

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
