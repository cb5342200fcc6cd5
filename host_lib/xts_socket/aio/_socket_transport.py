"""The common part of stream and datagram transports: one socket, its poller, and their beginning and end."""

from __future__ import annotations

import asyncio
import logging
import warnings
from abc import ABC, abstractmethod
from asyncio import transports
from asyncio.trsock import TransportSocket
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from typing import Any

from .._socket import socket
from ._poller import poller_of

logger = logging.getLogger("asyncio")


class SocketTransport(transports._FlowControlMixin, ABC):
    """The transport owns the socket, and closes it. Subclasses have a `_buffer` of unsent data, and get edges in
    `_edge()`."""

    _kind: str  # what messages call it
    _buffer: Any
    _sock: socket | None = None  # for __del__, if __init__ fails

    def __init__(self, loop: asyncio.AbstractEventLoop, sock: socket, extra: dict[str, Any] | None = None) -> None:
        super().__init__(extra, loop)
        self._extra: dict[str, Any]
        self._loop: asyncio.AbstractEventLoop
        self._extra["socket"] = TransportSocket(sock)  # type: ignore[arg-type]
        self._extra["sockname"] = _address(sock.getsockname)
        if "peername" not in self._extra:
            self._extra["peername"] = _address(sock.getpeername)
        self._number = sock.number
        self._poller = poller_of(loop)
        self._context = copy_context()
        self._unread = self._scheduled = self._closing = False
        self._conn_lost = 0  # counts writes after connection_lost() has been scheduled

    def _begin(self, sock: socket, waiter: asyncio.Future[None] | None) -> None:
        """The last step of __init__()."""
        self._sock = sock
        self._loop.call_soon(self._protocol.connection_made, self)
        self._loop.call_soon(self._start)
        if waiter is not None:
            self._loop.call_soon(_wake, waiter)

    def __del__(self, _warn: Any = warnings.warn) -> None:
        if self._sock is not None:
            try:
                _warn(f"unclosed transport {self!r}", ResourceWarning, source=self)
            finally:
                with suppress(OSError):  # the garbage collector may have taken the socket first
                    self._sock.close()

    # --- protocol and life ----------------------------------------------------------------------------------

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol: Any = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        protocol: asyncio.BaseProtocol = self._protocol
        return protocol

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        """Sends buffered data first."""
        if self._closing:
            return
        self._closing = True
        if not self._buffer:
            self._conn_lost += 1
            self._loop.call_soon(self._call_connection_lost, None)

    def abort(self) -> None:
        self._force_close(None)

    def _start(self) -> None:
        """connection_made() has been called: events are delivered from now on."""
        if self._conn_lost or self._sock is None:
            return
        try:
            self._poller.add(self._number, self._handle)
        except OSError as failure:
            self._fatal_error(failure, f"Fatal error on {self._kind} transport")

    def _fatal_error(self, exc: BaseException, message: str = "Fatal error on transport") -> None:
        if isinstance(exc, OSError):
            if self._loop.get_debug():
                logger.debug("%r: %s", self, message, exc_info=True)
        else:
            self._loop.call_exception_handler(
                {"message": message, "exception": exc, "transport": self, "protocol": self._protocol}
            )
        self._force_close(exc)

    def _drop_buffer(self) -> None:
        self._buffer.clear()

    def _force_close(self, exc: BaseException | None) -> None:
        if self._conn_lost:
            return
        self._drop_buffer()
        self._closing = True
        self._conn_lost += 1
        self._loop.call_soon(self._call_connection_lost, exc)

    def _call_connection_lost(self, exc: BaseException | None) -> None:
        try:
            self._protocol.connection_lost(exc)
        finally:
            sock, self._sock = self._sock, None
            self._poller.remove(self._number)
            if sock is not None:
                sock.close()
            self._protocol = None
            self._loop = None  # type: ignore[assignment]

    # --- events ---------------------------------------------------------------------------------------------

    def _handle(self, events: int) -> None:
        """An edge, reported by the poller; runs in the context of the code that made the transport."""
        self._context.run(self._edge, events)

    @abstractmethod
    def _edge(self, events: int) -> None:
        """The socket has an event."""

    @abstractmethod
    def _read(self) -> None:
        """Reads as much as one turn of the loop may; calls _read_later() if more may be left."""

    def _read_later(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._read_again)

    def _read_again(self) -> None:
        self._scheduled = False
        self._read()


async def until_begun(transport: transports.BaseTransport, waiter: asyncio.Future[None]) -> None:
    """Waits until the protocol has been started; if that fails, closes the transport again."""
    try:
        await waiter
    except BaseException:
        transport.close()
        raise


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.cancelled():
        waiter.set_result(None)


def _address(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except OSError:
        return None
