"""`SocketStream` and `SocketListener`: the counterparts of trio's classes of these names, over `SocketType`.

Trio's own classes would work on a `SocketType` too. But they use its descriptor, which an offloaded socket makes only
on request and has to keep true from then on; and they set TCP_NOTSENT_LOWAT, with which the proxy would wait for the
network instead of keeping it supplied.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from socket import IPPROTO_TCP, SHUT_WR, SO_ACCEPTCONN, SOL_SOCKET, TCP_NODELAY
from typing import Any

import trio

from ._socket import SocketType

_RECEIVE_BYTES = 65536

#: These errors of accept() are about one connection, which is gone, and not about the listener.
_ONE_CONNECTION_LOST = frozenset(
    {
        errno.ECONNABORTED,
        errno.ECONNRESET,
        errno.EHOSTDOWN,
        errno.EHOSTUNREACH,
        errno.ENETUNREACH,
        errno.ENONET,
        errno.EPERM,
        errno.EPROTO,
        errno.ETIMEDOUT,
    }
)


@contextmanager
def _stream_errors() -> Iterator[None]:
    try:
        yield
    except OSError as failure:
        if failure.errno == errno.EBADF:
            raise trio.ClosedResourceError("this socket was already closed") from None
        raise trio.BrokenResourceError(f"socket connection broken: {failure}") from failure


class SocketStream(trio.abc.HalfCloseableStream):
    """A connection with trio's interface of a stream that can be half-closed. Takes over the socket.

    Sets TCP_NODELAY, as trio does.
    """

    def __init__(self, socket: SocketType) -> None:
        if not isinstance(socket, SocketType):
            raise TypeError("SocketStream requires an xts_socket.trio socket object")
        self.socket = socket
        self._sending = False
        with suppress(OSError):  # if the connection has failed meanwhile, its first use reports that
            socket.setsockopt(IPPROTO_TCP, TCP_NODELAY, 1)

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Sends everything. If it is cancelled, a part may have been sent."""
        if self.socket.did_shutdown_SHUT_WR:
            raise trio.ClosedResourceError("can't send data after sending EOF")
        with self._one_sender(), _stream_errors():
            with memoryview(data) as view, view.cast("B") as rest:
                if not rest:
                    self._check_open()
                    await trio.lowlevel.checkpoint()
                    return
                sent = 0
                while sent < len(rest):
                    with rest[sent:] as part:
                        sent += await self.socket.send(part)

    async def wait_send_all_might_not_block(self) -> None:
        with self._one_sender(), _stream_errors():
            self._check_open()
            await self.socket.wait_writable()

    async def send_eof(self) -> None:
        with self._one_sender():
            await trio.lowlevel.checkpoint()
            if self.socket.did_shutdown_SHUT_WR:
                return
            with _stream_errors():
                self.socket.shutdown(SHUT_WR)

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """At most `max_bytes` (default 65536); b"" at the end of the stream."""
        if max_bytes is None:
            max_bytes = _RECEIVE_BYTES
        if max_bytes < 1:
            raise ValueError("max_bytes must be >= 1")
        with _stream_errors():
            return await self.socket.recv(max_bytes)

    async def aclose(self) -> None:
        """Closes the socket. Data that was sent is still delivered."""
        self.socket.close()
        await trio.lowlevel.checkpoint()

    def setsockopt(self, level: int, option: int, value: Any, length: int | None = None) -> None:
        self.socket.setsockopt(level, option, value, length)

    def getsockopt(self, level: int, option: int, buffersize: int = 0) -> Any:
        return self.socket.getsockopt(level, option, buffersize)

    def _check_open(self) -> None:
        if self.socket.xts_socket.number < 0:
            raise trio.ClosedResourceError("this socket was already closed")

    @contextmanager
    def _one_sender(self) -> Iterator[None]:
        if self._sending:
            raise trio.BusyResourceError("another task is currently sending data on this SocketStream")
        self._sending = True
        try:
            yield
        finally:
            self._sending = False


class SocketListener(trio.abc.Listener[SocketStream]):
    """A listening socket with trio's interface of a listener. Takes over the socket."""

    def __init__(self, socket: SocketType) -> None:
        if not isinstance(socket, SocketType):
            raise TypeError("SocketListener requires an xts_socket.trio socket object")
        if not socket.getsockopt(SOL_SOCKET, SO_ACCEPTCONN):
            raise ValueError("SocketListener requires a listening socket")
        self.socket = socket

    async def accept(self) -> SocketStream:
        """The next connection. ClosedResourceError if the listener is closed; OSError, for example EMFILE, which
        serve_listeners handles."""
        while True:
            try:
                sock, _ = await self.socket.accept()
            except OSError as failure:
                if failure.errno == errno.EBADF:
                    raise trio.ClosedResourceError("this listener was already closed") from None
                if failure.errno not in _ONE_CONNECTION_LOST:
                    raise
            else:
                return SocketStream(sock)

    async def aclose(self) -> None:
        self.socket.close()
        await trio.lowlevel.checkpoint()
