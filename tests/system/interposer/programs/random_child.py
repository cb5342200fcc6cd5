"""Carries out scripts of socket calls: one JSON line each on standard input, one with what came of it on the output.

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
import fcntl
import json
import os
import select
import signal
import socket
import struct
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from beds.libc_structs import EpollEvent, Header, Message, PollFd
from beds.stack_modes import decoy
from system.interposer.programs.random_world import (
    HANG_S,
    OPTIONS,
    PENDING_MAX,
    POLLERR,
    POLLHUP,
    POLLIN,
    POLLOUT,
    POLLRDHUP,
    REQUESTS,
    SPLICE_F_NONBLOCK,
    Result,
    World,
    end_of,
    socket_address,
    vectors,
)

EPOLL_CTL_ADD, EPOLL_CTL_MOD = 1, 3


class Operations(World):
    """What scripts are made of: op_NAME carries out [NAME, argument…]."""

    # --- making, connecting ----------------------------------------------------------------------------------------

    def op_socket(self, slot: int, family: int, flags: int) -> Result:
        if slot in self.slots:
            return "busy"
        kind = socket.SOCK_STREAM | flags
        r = self.call("socket", socket.AF_INET if family == 4 else socket.AF_INET6, kind, 0)
        made = self.made(slot, "socket", r)
        if slot in self.slots:
            self.undecided.add(self.files[slot])
        return made

    def op_bind(self, slot: int, host: str, port: int) -> Result:
        where = socket_address(host, self.port(port))
        r = self.call("bind", self.fd(slot), where, len(where))
        if r == 0:
            self.hosts[slot] = host
            self.undecided.discard(self.files[slot])
        return r

    def op_listen(self, slot: int, backlog: int) -> Result:
        r = self.call("listen", self.fd(slot), backlog)
        if r == 0:
            self.pending.setdefault(slot, 0)
            self.undecided.discard(self.files[slot])
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
        if name[0] == "::" and self.option_of(slot, "SO_DOMAIN") == socket.AF_INET:
            host = "127.0.0.1"
        where = socket_address(host, port)
        r = self.call("connect", self.fd(slot), where, len(where))
        if r in (0, "EINPROGRESS", "ECONNREFUSED"):
            self.undecided.discard(self.files[slot])
        if r in (0, "EINPROGRESS"):
            for listener in self.pending:
                if self.address("getsockname", listener) in (name, (host, port)):
                    self.pending[listener] += 1
                    if self.pending[listener] > 1:
                        self.late.add(self.files[listener])
        return r

    def op_disconnect(self, slot: int) -> Result:
        """connect() to AF_UNSPEC. What it can be used for then is another matter (see EXCLUSIONS): it is closed."""
        r = self.call("connect", self.fd(slot), struct.pack("=H14x", socket.AF_UNSPEC), 16)
        return [r, self.last_looks(slot)]

    def last_looks(self, slot: int) -> Result:
        looks = [self.events(slot), self.op_recv(slot, 10, socket.MSG_DONTWAIT), self.op_send(slot, 1, 0x4000)]
        looks += [self.op_name("getpeername", slot), self.op_get(slot, "SO_ERROR", 4), self.op_shutdown(slot, 1)]
        same = [other for other in self.slots if self.files[other] is self.files.get(slot)]
        return [looks, [self.op_close(other) for other in same] or self.op_close(slot)]

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

    def op_name(self, call: str, slot: int, room: int = 28) -> Result:
        buffer, length = ctypes.create_string_buffer(28), ctypes.c_int(room)
        r = self.call(call, self.fd(slot), buffer, ctypes.byref(length))
        if isinstance(r, str):
            return r
        return [length.value, self.label(self.read_address(buffer.raw)) if room >= 16 else buffer.raw[:2].hex()]

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
        if not self.sending(slot, sum(sizes)) or (len(sizes) > 1 and self.events(slot) & POLLRDHUP):
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
        if not self.sending(slot, size + 1) or self.events(slot) & POLLRDHUP:
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
        r = self.call("recvfrom", self.fd(slot), self.buffer, ctypes.c_size_t(size), flags, name, ctypes.byref(length))
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
            ends = self.address("getsockname", other), self.address("getpeername", other)
            if [end if isinstance(end, str) else end_of(end) for end in ends] == [end_of(peer), end_of(mine)]:
                return other
        return None

    def op_transfer(self, slot: int, size: int) -> Result:
        """More than the buffers hold, read while it is sent: whether they are full for a moment is no matter of the
        script's, but an edge-triggered set would tell."""
        if "epoll" in (self.kinds[other] for other in self.slots):
            return "watched"
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

    def whole(self, slot: int) -> int | None:
        """The peer of an open connection with nothing on its way, ready for data; neither has been shut down."""
        peer = self.peer_of(slot)
        if peer is None or (self.events(slot) | self.events(peer)) & (POLLHUP | POLLRDHUP | POLLERR):
            return None
        if not self.events(slot) & POLLOUT or self.unread(peer) != 0:
            return None
        for end in (slot, peer):
            name = self.address("getsockname", end)
            if not isinstance(name, str) and self.shut.get(end_of(name)):
                return None
            self.option(end, "SO_RCVLOWAT", 1)
            self.option(end, "TCP_NODELAY", 1)
        self.op_set(peer, "SO_RCVTIMEO", [0, 0])
        return peer

    def wait_readable(self, slot: int, how: str) -> Result:
        timeout_ms = HANG_S * 1000
        if how == "poll":
            return self.op_poll([slot], POLLIN, timeout_ms)
        if how == "select":
            return self.op_select([slot], [], [], timeout_ms)
        self.op_epoll(91)
        r = [self.op_epoll_ctl(91, 1, slot, POLLIN | (1 << 31 if how == "edge" else 0))]
        r += [self.op_epoll_wait(91, timeout_ms, 4), self.op_close(91)]
        return r

    def op_ping(self, slot: int, size: int, how: str) -> Result:
        """Sends and waits for it at the other end, which has not come to rest meanwhile."""
        peer = self.whole(slot)
        if peer is None:
            return "no peer"
        r = [self.op_send(slot, size, 0)]
        if r == ["budget"]:
            return "budget"
        if how != "recv":
            r.append(self.wait_readable(peer, how))
        if how == "recv" and not self.blocking(peer):
            return [*r, "not waiting"]
        if self.blocking(peer):
            r.append(self.got(self.call("recv", self.fd(peer), self.buffer, ctypes.c_size_t(size), 0x100), size))
        return r

    def op_fill(self, slot: int, how: str) -> Result:
        """Sends until nothing more goes in, reads all of it, and waits until there is room again."""
        peer = self.whole(slot)
        if peer is None:
            return "no peer"
        part, end = self.data(50_000), time.monotonic() + HANG_S
        made = [self.op_epoll(91), self.op_epoll_ctl(91, 1, slot, POLLOUT | (1 << 31 if how == "edge" else 0))]
        sent, got, at_rest = self.push(slot, part), 0, 0
        while at_rest < 3 and time.monotonic() < end:
            at_rest = 0 if self.events(slot) & POLLOUT else at_rest + 1
            time.sleep(0.01 if at_rest else 0)
            sent += self.push(slot, part)
        if how == "edge":
            self.op_epoll_wait(91, 0, 4)  # what came meanwhile
            sent += self.push(slot, part)
        while got < sent and time.monotonic() < end:
            r = self.call("recv", self.fd(peer), self.buffer, ctypes.c_size_t(1 << 17), socket.MSG_DONTWAIT)
            got += r if isinstance(r, int) else 0
        return [made, sent > 0, got == sent, self.op_epoll_wait(91, HANG_S * 1000, 4), self.op_close(91)]

    def push(self, slot: int, part: bytes) -> int:
        """Sends until EAGAIN. The bytes that went in."""
        sent = 0
        while isinstance(r := self.call("send", self.fd(slot), part, ctypes.c_size_t(len(part)), 0x40), int):
            sent += r
        return sent

    # --- ending, descriptors ---------------------------------------------------------------------------------------

    def op_shutdown(self, slot: int, how: int) -> Result:
        name = self.address("getsockname", slot)
        if how != 0:
            self.will_end(slot)
        ends_listening = self.option_of(slot, "SO_ACCEPTCONN") == 1 and how in (0, 2)
        r = self.call("shutdown", self.fd(slot), how)
        if r == 0 and not isinstance(name, str):
            self.shut[end_of(name)] = self.shut.get(end_of(name), 0) | (how + 1)
            if how != 1:
                self.read_shut.add(self.files[slot])
        return [r, self.last_looks(slot)] if ends_listening else r

    def op_close(self, slot: int) -> Result:
        ends = self.last_listening(slot)
        self.will_end(slot)
        r = self.call("close", self.fd(slot))
        self.slots.pop(slot, None)
        self.pending.pop(slot, None)
        self.until_refused(ends)
        return r

    def will_end(self, slot: int) -> None:
        """A FIN that comes to who has been shut down for reading is not to be seen."""
        peer = self.peer_of(slot) if self.read_shut else None
        if peer is not None and self.files[peer] in self.read_shut:
            self.late.add(self.files[peer])

    def last_listening(self, slot: int) -> tuple[str, int] | None:
        """Where nobody listens any more when this slot is closed."""
        if self.option_of(slot, "SO_ACCEPTCONN") != 1:
            return None
        name = self.address("getsockname", slot)
        for other in self.slots:
            if other != slot and self.option_of(other, "SO_ACCEPTCONN") == 1:
                also = self.address("getsockname", other)
                if isinstance(also, str) or also[1] == name[1]:
                    return None
        return None if isinstance(name, str) else name

    def until_refused(self, listener: tuple[str, int] | None) -> None:
        """That it is closed reaches an offloaded listener later than a client that is the kernel's (see EXCLUSIONS)."""
        if listener is None:
            return
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(listener[0], listener[0])
        where, end = socket_address(host, listener[1]), time.monotonic() + HANG_S
        while time.monotonic() < end:
            fd = self.call("socket", socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM, 0)
            r = self.call("connect", fd, where, len(where))
            self.call("setsockopt", fd, *OPTIONS["SO_LINGER"], struct.pack("=2i", 1, 0), 8)
            self.call("close", fd)
            if r == "ECONNREFUSED":
                return
            time.sleep(0.0005)  # not to fill its backlog: then connecting takes a second

    def op_reset(self, slot: int) -> Result:
        return [self.op_set(slot, "SO_LINGER", [1, 0]), self.op_close(slot)]

    def op_dup(self, slot: int, into: int, how: str) -> Result:
        if into in self.slots:
            return "busy"
        if how == "dup":
            r = self.call("dup", self.fd(slot))
        else:
            r = self.call("fcntl", self.fd(slot), getattr(fcntl, how), ctypes.c_long(0))
        return self.copied(slot, into, r)

    def op_dup2(self, slot: int, into: int) -> Result:
        if into not in self.slots:
            return "no target"
        ends = self.last_listening(into) if slot in self.slots and self.files[slot] is not self.files[into] else None
        self.will_end(into)
        r = self.call("dup2", self.fd(slot), self.fd(into))
        self.until_refused(ends)
        return self.copied(slot, into, r)

    def copied(self, slot: int, into: int, r: int | str) -> Result:
        if isinstance(r, str) or slot == into:
            return r if isinstance(r, str) else "made"
        pending = self.pending.get(slot)
        self.made(into, self.kinds[slot], r)
        self.files[into] = self.files[slot]
        if pending is not None:
            self.pending[into] = pending
        return "made"

    def op_fcntl(self, slot: int, command: str, argument: int) -> Result:
        r = self.call("fcntl", self.fd(slot), getattr(fcntl, command), ctypes.c_long(argument))
        return r

    def op_ioctl(self, slot: int, request: str, value: int) -> Result:
        number = ctypes.c_int(value)
        r = self.call("ioctl", self.fd(slot), ctypes.c_ulong(REQUESTS[request]), ctypes.byref(number))
        return [r, number.value]

    def op_set(self, slot: int, name: str, value: list[int]) -> Result:
        kind = "ll" if name in ("SO_RCVTIMEO", "SO_SNDTIMEO") else f"={len(value)}i"
        raw = struct.pack(kind, *(value if kind != "ll" else (*value, 0)[:2]))
        return self.call("setsockopt", self.fd(slot), *OPTIONS[name], raw, len(raw))

    def op_get(self, slot: int, name: str, size: int) -> Result:
        buffer, length = ctypes.create_string_buffer(64), ctypes.c_uint(size)
        r = self.call("getsockopt", self.fd(slot), *OPTIONS[name], buffer, ctypes.byref(length))
        return r if isinstance(r, str) else [length.value, buffer.raw[: length.value].hex()]

    # --- readiness -------------------------------------------------------------------------------------------------

    def op_poll(self, slots: list[int], wanted: int, timeout_ms: int) -> Result:
        if self.late and "epoll" in (self.kinds.get(slot) for slot in slots):
            return "may be late"
        fds = (PollFd * len(slots))(*(PollFd(self.fd(slot), wanted, 0) for slot in slots))
        r = self.call("poll", fds, ctypes.c_ulong(len(slots)), timeout_ms)
        return [r, [f.revents for f in fds]]

    def op_select(self, readers: list[int], writers: list[int], others: list[int], timeout_ms: int) -> Result:
        if any(slot not in self.slots for slot in (*readers, *writers, *others)):
            return "no target"
        if self.late and "epoll" in (self.kinds[slot] for slot in (*readers, *writers, *others)):
            return "may be late"
        sets = [[self.slots[slot] for slot in slots] for slots in (readers, writers, others)]
        found = select.select(sets[0], sets[1], sets[2], timeout_ms / 1000)
        back = {fd: slot for slot, fd in self.slots.items()}
        return [sorted(back[fd] for fd in fds) for fds in found]

    def op_epoll(self, slot: int) -> Result:
        if slot in self.slots:
            return "busy"
        fd = self.call("epoll_create1", 0)
        if isinstance(fd, int) and (other := decoy()) is not None:
            self.call("epoll_ctl", fd, EPOLL_CTL_ADD, other, ctypes.byref(EpollEvent(0, 0)))
        return self.made(slot, "epoll", fd)

    def op_epoll_ctl(self, slot: int, operation: int, member: int, events: int) -> Result:
        if events & select.EPOLLET and self.files.get(member) in self.undecided:
            return "undecided"
        event = EpollEvent(events, member)
        r = self.call("epoll_ctl", self.fd(slot), operation, self.fd(member), ctypes.byref(event))
        if r == 0 and operation in (EPOLL_CTL_ADD, EPOLL_CTL_MOD):
            self.edges.pop((self.files[slot], member), None)
            if events & select.EPOLLET or self.kinds[member] == "epoll":
                self.edges[self.files[slot], member] = self.kinds[member], self.files[member]
        return r

    def op_epoll_wait(self, slot: int, timeout_ms: int, size: int) -> Result:
        events = (EpollEvent * max(size, 1))()
        r = self.call("epoll_wait", self.fd(slot), events, size, timeout_ms)
        if isinstance(r, str):
            return r
        return sorted([e.data, e.events] for e in events[:r] if not self.may_be_late(slot, e.data))

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


class Runs(Protocol):
    """Carries one script out."""

    def run(
        self, script: list[list[Any]], expected: list[Any] | None, settle_s: float, pause_s: float
    ) -> list[Any]: ...

    def clear(self) -> None: ...


def main(make: Callable[[], Runs] = Operations) -> None:
    for line in sys.stdin:
        order = json.loads(line)
        world = make()
        try:
            trace = world.run(order["script"], order.get("expected"), order["settle_s"], order["pause_s"])
        except Exception as error:
            trace = [f"{type(error).__name__}: {error}"]
        world.clear()
        answer = {"trace": trace, "descriptors": len(list(Path("/proc/self/fd").iterdir()))}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
