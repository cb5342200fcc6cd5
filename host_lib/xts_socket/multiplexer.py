"""`Multiplexer`: one message socket over several connections (the paper's "connection multiplexing"; the kernel's KCM).

Theory of operation

The connections are sockets of type SOCK_SEQPACKET whose protocols make PDUs. A sender does not choose a connection. A
PDU with an affinity key goes to the connection to which the key belongs (rendezvous hashing: when a connection is added
or removed, only its own keys move). A PDU without a key goes to the connection with the fewest outstanding PDUs, that
is those sent and not yet answered by a PDU from there, in turn among equals; a connection without room is not used
while another has room. A receiver gets the PDUs of all connections: in order for each connection, and in turn among
those that have some.

A connection that ends or fails leaves the multiplexer. recv() reports it after everything that was received from it,
and the other connections lose nothing. A PDU that it has not taken goes to another connection; one that it had taken
may or may not have arrived.

Two polling contexts watch the connections, one for reading, one for writing, so that threads may send while another
receives.
"""

from __future__ import annotations

import errno
import os
from _thread import allocate_lock
from collections import deque
from dataclasses import dataclass
from hashlib import blake2b
from select import EPOLLIN, EPOLLOUT, POLLOUT
from socket import SOCK_SEQPACKET
from time import monotonic
from typing import Any, Self

from ._epoll import epoll
from ._errors import UlpError, again
from ._misuse import wanted
from ._native import lib
from ._socket import socket
from .control import Control, Pdu

#: With these errno a connection takes nothing more; others are about the PDU, which cannot be sent.
_GONE = frozenset(
    getattr(errno, name)
    for name in ("EPIPE", "ECONNRESET", "ECONNABORTED", "ENOTCONN", "ETIMEDOUT", "EBADF", "ENETDOWN", "EHOSTUNREACH")
)

#: Determines to which connection a PDU goes.
Key = bytes | str | int


@dataclass(frozen=True, slots=True)
class Received:
    """The result of recv(): a PDU and the connection from which it came; or `pdu` None: the connection has ended
    (`error` None: normally), and has left the multiplexer. The caller closes it."""

    sock: socket
    pdu: Pdu | None
    error: OSError | None = None


class _Member:
    """A connection."""

    __slots__ = ("failure", "name", "outstanding", "rest", "sock", "turn")

    def __init__(self, sock: socket, name: bytes) -> None:
        self.sock = sock
        self.name = name
        self.outstanding = 0
        self.turn = 0  # when it was last chosen
        self.rest = b""  # rest of a PDU that has begun: nothing else may be sent before it
        self.failure: OSError | None = None  # why it takes no PDUs any more

    def weight(self, key: bytes) -> bytes:
        return blake2b(self.name, digest_size=8, key=key).digest()


class Multiplexer:
    """One message socket over several connections. Context manager: close() closes the connections too.

    One thread may receive while others send. A timeout is in seconds; None: forever; 0: BlockingIOError instead of a
    wait.
    """

    def __init__(self, *socks: socket, timeout: float | None = None) -> None:
        self._lock = allocate_lock()  # protects the members and their counts
        self._members: dict[int, _Member] = {}  # by socket number
        self._ready: deque[int] = deque()  # numbers of those that may have PDUs to read
        self._turns = 0
        self._readable, self._writable = epoll(), epoll()
        self.settimeout(timeout)
        try:
            for sock in socks:
                self.attach(sock)
        except BaseException:
            self._readable.close()
            self._writable.close()
            raise

    def settimeout(self, timeout: float | None) -> None:
        """How long send() and recv() may wait: seconds; None: forever; 0: not at all."""
        if timeout is not None and timeout < 0:
            raise ValueError("Timeout value out of range")
        self._timeout = timeout

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the multiplexer and its connections."""
        with self._lock:
            members, self._members = self._members, {}
            self._ready.clear()
            self._readable.close()
            self._writable.close()
        for member in members.values():
            member.sock.close()

    def fileno(self) -> int:
        """A kernel descriptor that is readable when recv() has a result; then receive until BlockingIOError."""
        return self._readable.fileno()

    @property
    def connections(self) -> list[socket]:
        """The connections that are attached, oldest first."""
        with self._lock:
            return [member.sock for member in self._members.values()]

    # --- connections ----------------------------------------------------------------------------------------

    def attach(self, sock: socket, name: str | None = None) -> None:
        """Adds a connected socket of type SOCK_SEQPACKET, which is non-blocking from then on, and must not be used by
        other code.

        name: its name for affinity keys, so that a replacement with the same name gets the same keys; default: the
        peer's address and a count of connections to it. ValueError: of another type, attached already, or the name is
        taken. OSError (ENOTCONN): not connected.
        """
        if not isinstance(sock, socket):
            raise wanted("Multiplexer", "a socket of xts_socket", sock)
        if sock.type != SOCK_SEQPACKET:
            raise ValueError(
                f"{sock!r}: a multiplexer takes sockets of type SOCK_SEQPACKET, with protocols that make PDUs"
            )
        peer = str(sock.getpeername())
        with self._lock:
            if sock.number in self._members:
                raise ValueError(f"{sock!r} is attached already")
            names = {member.name for member in self._members.values()}
            if name is None:
                name = next(free for n in range(len(names) + 1) if (free := f"{peer}#{n}").encode() not in names)
            if name.encode() in names:
                raise ValueError(f"there is a connection {name!r} already")
            sock.setblocking(False)
            self._readable.register(sock, EPOLLIN)
            self._writable.register(sock, EPOLLOUT)
            self._members[sock.number] = _Member(sock, name.encode())

    def detach(self, sock: socket) -> None:
        """Removes a connection without changing it: received data that has not been read stays with it. KeyError: it is
        not attached."""
        with self._lock:
            self._remove(self._members[sock.number])

    def _remove(self, member: _Member) -> None:
        del self._members[member.sock.number]
        self._readable.unregister(member.sock)
        if member.failure is None:
            self._writable.unregister(member.sock)

    # --- sending --------------------------------------------------------------------------------------------

    def send(self, data: Any, key: Key | None = None, control: Control | None = None) -> socket:
        """Sends one PDU; returns the connection that took it. With a key it waits for the key's connection, without one
        for any. If it raises BlockingIOError or TimeoutError, nothing was sent; OSError (ENOTCONN): there is no
        connection to send on.

        If a PDU is longer than the connection's window, later calls of send() and recv() send the rest.
        """
        deadline = None if self._timeout is None else monotonic() + self._timeout
        full: set[int] = set()
        while True:
            with self._lock:
                member = self._choose(key, full)
                if member is not None and self._sent(member, data, control):
                    return member.sock
            if member is None:
                self._wait_writable(full, key, deadline)
                full.clear()
            elif member.failure is None:
                full.add(member.sock.number)

    def _choose(self, key: Key | None, full: set[int]) -> _Member | None:
        """The connection to try next; None: no candidate has room."""
        members = [member for member in self._members.values() if member.failure is None]
        if not members:
            raise OSError(errno.ENOTCONN, "the multiplexer has no connection to send on")
        if key is not None:
            raw = _raw(key)
            chosen = max(members, key=lambda member: member.weight(raw))
            return None if chosen.sock.number in full else chosen
        free = [member for member in members if member.sock.number not in full]
        if not free:
            return None
        chosen = min(free, key=lambda member: (member.outstanding, member.turn))
        self._turns += 1
        chosen.turn = self._turns
        return chosen

    def _sent(self, member: _Member, data: Any, control: Control | None) -> bool:
        """Has the connection taken the PDU?"""
        try:
            self._send_rest(member)
            if member.rest:
                return False
            with memoryview(data) as view, view.cast("B") as octets:
                taken = member.sock.send_pdu_part(octets, control)
                member.rest = bytes(octets[taken:])
        except BlockingIOError:
            return False
        except OSError as failure:
            if failure.errno not in _GONE and not isinstance(failure, UlpError):
                raise
            self._takes_no_more(member, failure)
            return False
        if member.rest:
            self._readable.modify(member.sock, EPOLLIN | EPOLLOUT)
        member.outstanding += 1
        return True

    def _send_rest(self, member: _Member) -> None:
        """Continues a PDU that a call has left unfinished. OSError; if it would block, the rest is left for later."""
        try:
            while member.rest:
                member.rest = member.rest[member.sock.send_pdu_part(member.rest) :]
                if not member.rest:
                    self._readable.modify(member.sock, EPOLLIN)
        except BlockingIOError:
            pass

    def _takes_no_more(self, member: _Member, failure: OSError) -> None:
        """recv() reports the failure, after what is still to be read."""
        member.failure, member.rest = failure, b""
        self._readable.modify(member.sock, EPOLLIN)
        self._writable.unregister(member.sock)

    def _wait_writable(self, full: set[int], key: Key | None, deadline: float | None) -> None:
        left = self._left(deadline)
        if key is not None:
            (number,) = full
            left_ms = -1 if left is None else int(left * 1000) + 1
            result = lib.xts_py_poll(number, POLLOUT, left_ms)
            ready = again(result, lib.xts_py_poll, number, POLLOUT) != -errno.EAGAIN
        else:
            ready = bool(self._writable.poll(left, 1))
        if not ready:
            raise TimeoutError("timed out")

    def _left(self, deadline: float | None) -> float | None:
        """How many seconds a wait may take."""
        if deadline is None:
            return None
        if not self._timeout:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        left = deadline - monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        return left

    # --- receiving ------------------------------------------------------------------------------------------

    def recv(self) -> Received:
        """The next PDU of any connection, or the end of one. OSError (ENOTCONN): there is no connection left."""
        deadline = None if self._timeout is None else monotonic() + self._timeout
        while True:
            found = self._next()
            if found is not None:
                return found
            with self._lock:
                if not self._members:
                    raise OSError(errno.ENOTCONN, "the multiplexer has no connection")
            events = self._readable.poll(0) or self._readable.poll(self._left(deadline))
            for number, event in events:
                if event & EPOLLOUT:
                    self._go_on(number)
                if event & ~EPOLLOUT:
                    self._ready.append(number)

    def _go_on(self, number: int) -> None:
        """Continues a PDU when there is room for its rest again."""
        with self._lock:
            member = self._members.get(number)
            if member is not None:
                try:
                    self._send_rest(member)
                except OSError as failure:
                    self._takes_no_more(member, failure)

    def _next(self) -> Received | None:
        """A PDU, or the end, of the next connection that may have one."""
        while self._ready:
            number = self._ready.popleft()
            with self._lock:
                member = self._members.get(number)
            if member is None:
                continue
            try:
                pdu = member.sock.recv_pdu()
            except BlockingIOError:
                continue
            except OSError as failure:
                return self._ended(member, member.failure or failure)
            if pdu is None:
                return self._ended(member, member.failure)
            self._ready.append(number)  # it may have more, after the others
            with self._lock:
                member.outstanding = max(0, member.outstanding - 1)
            return Received(member.sock, pdu)
        return None

    def _ended(self, member: _Member, failure: OSError | None) -> Received | None:
        """None if it was detached meanwhile."""
        with self._lock:
            if self._members.get(member.sock.number) is not member:
                return None
            self._remove(member)
        return Received(member.sock, None, failure)


def _raw(key: Key) -> bytes:
    """A key as bytes, truncated to the size that the hash accepts for one."""
    if isinstance(key, bool) or not isinstance(key, bytes | str | int):
        raise TypeError(f"a key is bytes, str or int, not {type(key).__name__}")
    raw = key if isinstance(key, bytes) else str(key).encode()
    return raw if len(raw) <= blake2b.MAX_KEY_SIZE else blake2b(raw).digest()
