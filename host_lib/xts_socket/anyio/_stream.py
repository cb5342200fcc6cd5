"""`SocketStream` and `SocketListener`: anyio's interfaces of these names over offloaded sockets."""

from __future__ import annotations

import errno
import socket as _standard
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from socket import IPPROTO_TCP, SHUT_WR, TCP_NODELAY
from typing import Any, cast

import anyio
import anyio.abc
from anyio.lowlevel import checkpoint
from anyio.streams.tls import TLSAttribute

from .._readiness import READABLE, WRITABLE
from .._socket import socket as XtsSocket  # noqa: N812 - next to anyio's kinds of socket
from ._waits import close, until

#: These errors of accept() are about one connection, which is gone, and not about the listener.
_ONE_CONNECTION_LOST = (errno.ECONNABORTED, errno.ECONNRESET, errno.EPROTO, errno.ETIMEDOUT)


@contextmanager
def resource_errors() -> Iterator[None]:
    try:
        yield
    except OSError as failure:
        if failure.errno == errno.EBADF:
            raise anyio.ClosedResourceError from None
        raise anyio.BrokenResourceError from failure


class Attributes:
    """The source of the typed attributes of anyio's classes."""

    def __init__(self, sock: XtsSocket) -> None:
        sock.setblocking(False)
        self._sock = sock

    @property
    def _raw_socket(self) -> _standard.socket:
        # anyio's type is a standard socket; an offloaded one has its methods.
        return cast(_standard.socket, self._sock)

    async def aclose(self) -> None:
        close(self._sock)
        await checkpoint()


class SocketStream(Attributes, anyio.abc.SocketStream):
    """A connection. Takes over the `xts_socket.socket`. Sets TCP_NODELAY, as anyio does."""

    def __init__(self, sock: XtsSocket) -> None:
        super().__init__(sock)
        self._receiving = anyio.ResourceGuard("reading from")
        self._sending = anyio.ResourceGuard("writing to")
        with suppress(OSError):  # if the connection has failed meanwhile, its first use reports that
            sock.setsockopt(IPPROTO_TCP, TCP_NODELAY, 1)

    async def receive(self, max_bytes: int = 65536) -> bytes:
        if max_bytes < 1:
            raise ValueError("max_bytes must be a positive integer")
        with self._receiving, resource_errors():
            data = await until(self._sock, READABLE, self._sock.recv, max_bytes)
        if not data:
            raise anyio.EndOfStream
        return data

    async def send(self, item: bytes) -> None:
        with self._sending, resource_errors(), memoryview(item) as view, view.cast("B") as rest:
            if not rest:
                await checkpoint()
            sent = 0
            while sent < len(rest):
                with rest[sent:] as part:
                    sent += await until(self._sock, WRITABLE, self._sock.send, part)

    async def send_eof(self) -> None:
        with self._sending, resource_errors():
            self._sock.shutdown(SHUT_WR)
        await checkpoint()

    @property
    def extra_attributes(self) -> Mapping[Any, Callable[[], Any]]:
        """The attributes of the connection, and of TLS in the proxy."""
        found = super().extra_attributes
        tls = self._sock.tls
        if tls is None:
            return found
        attributes: dict[Any, Callable[[], Any]] = {
            TLSAttribute.alpn_protocol: tls.selected_alpn_protocol,
            TLSAttribute.cipher: tls.cipher,
            TLSAttribute.peer_certificate: tls.getpeercert,
            TLSAttribute.peer_certificate_binary: partial(tls.getpeercert, True),
            TLSAttribute.ssl_object: lambda: tls,
            TLSAttribute.tls_version: tls.version,
        }
        return {**found, **attributes}


class SocketListener(Attributes, anyio.abc.SocketListener):
    """A listening socket. Takes over the `xts_socket.socket`."""

    def __init__(self, sock: XtsSocket) -> None:
        super().__init__(sock)
        self._accepting = anyio.ResourceGuard("accepting connections from")

    async def accept(self) -> SocketStream:
        with self._accepting:
            while True:
                try:
                    sock, _ = await until(self._sock, READABLE, self._sock.accept)
                except OSError as failure:
                    if failure.errno == errno.EBADF:
                        raise anyio.ClosedResourceError from None
                    if failure.errno not in _ONE_CONNECTION_LOST:
                        raise
                else:
                    return SocketStream(sock)
