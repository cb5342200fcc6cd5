"""`Transport`: an XTS socket driven by the loop's poller, with the behaviour of asyncio's own socket transport.

Events are edges (_poller.py): `_unread` remembers that there may be something to read, while the protocol has paused
reading or if a read has not taken everything. As in asyncio, one turn of the loop reads at most once, so the rest is
read in the next.
"""

from __future__ import annotations

import asyncio
import errno
from asyncio import constants, transports
from collections.abc import Callable
from contextvars import copy_context
from select import EPOLLERR, EPOLLHUP, EPOLLIN, EPOLLOUT, EPOLLRDHUP
from socket import SHUT_WR
from typing import TYPE_CHECKING, Any

from .._errors import error
from .._native import ffi, lib
from .._socket import socket
from ._poller import RECEIVE_BYTES
from ._sock import push_when_sent
from ._socket_transport import SocketTransport, logger

if TYPE_CHECKING:
    from .._tls import TlsConnection
    from ..layers import Layer
    from ._server import Server

_recv = lib.xts_py_recv
_send = lib.xts_py_send
_unpack = ffi.unpack
_view = ffi.from_buffer
_CHARS = ffi.typeof("char[]")
_AGAIN = -errno.EAGAIN
_ERRNO_MIN = -4095  # results below it: interrupted (python_waits.h)

_READING = ~EPOLLOUT
_WRITING = ~(EPOLLIN | EPOLLRDHUP)
#: What asyncio's transports report about TLS.
_OF_TLS: dict[str, Callable[[TlsConnection], Any]] = {
    "ssl_object": lambda tls: tls,
    "peercert": lambda tls: tls.getpeercert(),
    "cipher": lambda tls: tls.cipher(),
    "compression": lambda tls: tls.compression(),
    "sslcontext": lambda tls: tls.context,
}

_ENDS = EPOLLRDHUP | EPOLLHUP | EPOLLERR


class Transport(SocketTransport, transports.Transport):
    """Made by `create_connection` and servers. The transport owns the socket, and closes it."""

    _start_tls_compatible = True  # loop.start_tls() of the standard loop checks this,
    _sendfile_compatible = constants._SendfileMode.FALLBACK  # and loop.sendfile() for this

    _kind = "socket"

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket,
        protocol: asyncio.BaseProtocol,
        *,
        waiter: asyncio.Future[None] | None = None,
        extra: dict[str, Any] | None = None,
        server: Server | None = None,
    ) -> None:
        super().__init__(loop, sock, extra)
        self._buffer = bytearray()
        self._eof = False
        self._paused = False
        self._reading = False  # from connection_made() to the end of the stream
        self._ended = False
        self._tls: TlsConnection | None = sock.tls if sock._layers else None
        self._change: asyncio.Future[None] | None = None  # done at the next event, or when the buffer is empty
        self.set_protocol(protocol)
        self._server = server
        if server is not None:
            server._attach(self)
        self._begin(sock, waiter)

    def __repr__(self) -> str:
        info = [self.__class__.__name__]
        if self._sock is None:
            info.append("closed")
        elif self._closing:
            info.append("closing")
        info.append(f"xts={self._number}")
        if self._sock is not None:
            info.append(f"read={'polling' if self._reading and not self._paused and not self._closing else 'idle'}")
            state = "polling" if self._buffer else "idle"
            info.append(f"write=<{state}, bufsize={self.get_write_buffer_size()}>")
        return f"<{' '.join(info)}>"

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """As asyncio's; with TLS in the proxy also "ssl_object", "peercert", "cipher", "compression" and
        "sslcontext"."""
        if self._tls is not None and name in _OF_TLS:
            try:
                return _OF_TLS[name](self._tls)
            except OSError:  # the connection is over
                return default
        return super().get_extra_info(name, default)

    # --- protocol and life ----------------------------------------------------------------------------------

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        super().set_protocol(protocol)
        self._buffered = isinstance(protocol, asyncio.BufferedProtocol)

    def _start(self) -> None:
        self._reading = not self._conn_lost and self._sock is not None
        super()._start()

    def _drop_buffer(self) -> None:
        super()._drop_buffer()
        self._changed()

    def _call_connection_lost(self, exc: BaseException | None) -> None:
        try:
            super()._call_connection_lost(exc)
        finally:
            server, self._server = self._server, None
            if server is not None:
                server._detach(self)

    def _edge(self, events: int) -> None:
        self._changed()
        if events & _READING:
            self._unread = True
            if events & _ENDS:
                self._ended = True
            self._read()
        if self._buffer and events & _WRITING:
            self._write_rest()

    # --- reading --------------------------------------------------------------------------------------------

    def is_reading(self) -> bool:
        return not self._paused and not self._closing

    def pause_reading(self) -> None:
        if self._closing or self._paused:
            return
        self._paused = True
        if self._loop.get_debug():
            logger.debug("%r pauses reading", self)

    def resume_reading(self) -> None:
        if self._closing or not self._paused:
            return
        self._paused = False
        self._context = copy_context()
        if self._unread:
            self._read_later()
        if self._loop.get_debug():
            logger.debug("%r resumes reading", self)

    def _read(self) -> None:
        if not self._unread or self._paused or self._closing or not self._reading:
            return
        if self._buffered:
            self._read_into()
            return
        got = _recv(self._number, self._poller.buffer, RECEIVE_BYTES, 0, 0)
        if got <= 0:
            self._read_nothing(got)
            return
        self._more(got == RECEIVE_BYTES)
        try:
            self._protocol.data_received(_unpack(self._poller.buffer, got))
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as exc:
            self._fatal_error(exc, "Fatal error: protocol.data_received() call failed.")

    def _read_into(self) -> None:
        """Like _read(), for a BufferedProtocol."""
        try:
            buffer = self._protocol.get_buffer(-1)
            if not len(buffer):
                raise RuntimeError("get_buffer() returned an empty buffer")
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as exc:
            self._fatal_error(exc, "Fatal error: protocol.get_buffer() call failed.")
            return
        try:
            with _view(_CHARS, buffer, True) as view:
                room = len(view)
                got = _recv(self._number, view, room, 0, 0)
        except BaseException as exc:
            self._fatal_error(exc, "Fatal read error on socket transport")
            return
        if got <= 0:
            self._read_nothing(got)
            return
        self._more(got == room)
        try:
            self._protocol.buffer_updated(got)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as exc:
            self._fatal_error(exc, "Fatal error: protocol.buffer_updated() call failed.")

    def _more(self, full: bool) -> None:
        """Something was read. If no edge will come, the rest is read in the loop's next round."""
        if full or self._ended:
            self._read_later()
        else:
            self._unread = False

    def _read_nothing(self, got: int) -> None:
        if got == 0:
            self._unread = self._reading = False
            self._read_end()
        elif got < _ERRNO_MIN:
            self._read_later()
        elif got == _AGAIN:
            self._unread = False
        else:
            failure = self._failure(-got)
            if self._sock is not None and self._sock._is_ragged_eof(failure):
                self._read_nothing(0)
            else:
                self._fatal_error(failure, "Fatal read error on socket transport")

    def _read_end(self) -> None:
        if self._loop.get_debug():
            logger.debug("%r received EOF", self)
        try:
            keep_open = self._protocol.eof_received()
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as exc:
            self._fatal_error(exc, "Fatal error: protocol.eof_received() call failed.")
            return
        if not keep_open:
            self.close()

    # --- writing --------------------------------------------------------------------------------------------

    def get_write_buffer_size(self) -> int:
        return len(self._buffer)

    def can_write_eof(self) -> bool:
        return True

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not isinstance(data, bytes | bytearray | memoryview):
            raise TypeError(f"data argument must be a bytes-like object, not {type(data).__name__!r}")
        if self._eof:
            raise RuntimeError("Cannot call write() after write_eof()")
        if not data:
            return
        if isinstance(data, memoryview) and not data.c_contiguous:
            data = data.tobytes()
        if self._conn_lost:
            if self._conn_lost >= constants.LOG_THRESHOLD_FOR_CONNLOST_WRITES:
                logger.warning("socket.send() raised exception.")
            self._conn_lost += 1
            return
        if self._buffer:
            self._buffer += data
        else:
            sent, size = self._send_now(data)
            if sent == size:
                return
            if sent < 0:
                if sent != _AGAIN and sent >= _ERRNO_MIN:
                    self._fatal_error(self._failure(-sent), "Fatal write error on socket transport")
                    return
                sent = 0
            self._buffer += memoryview(data).cast("B")[sent:] if sent else data
        self._maybe_pause_protocol()  # type: ignore[attr-defined]

    def _send_now(self, data: bytes | bytearray | memoryview) -> tuple[int, int]:
        """(bytes sent or -errno, bytes to send)."""
        self._poller.sent = True
        if data.__class__ is bytes:
            size = len(data)
            return _send(self._number, data, size, 0, 0), size
        with _view(_CHARS, data) as view:
            size = len(view)
            return _send(self._number, view, size, 0, 0), size

    def _write_rest(self) -> None:
        """There is room again."""
        if self._conn_lost:
            return
        sent, _ = self._send_now(self._buffer)
        if sent < 0:
            if sent == _AGAIN or sent < _ERRNO_MIN:
                return
            self._buffer.clear()
            self._fatal_error(self._failure(-sent), "Fatal write error on socket transport")
            return
        del self._buffer[:sent]
        self._maybe_resume_protocol()  # type: ignore[attr-defined]  # may write
        if self._buffer or self._sock is None:
            return
        self._changed()
        if self._closing:
            if not self._conn_lost:
                self._conn_lost += 1
                self._call_connection_lost(None)
        elif self._eof:
            self._sock.shutdown(SHUT_WR)

    def write_eof(self) -> None:
        if self._closing or self._eof:
            return
        self._eof = True
        if not self._buffer and self._sock is not None:
            self._sock.shutdown(SHUT_WR)

    # --- pushing --------------------------------------------------------------------------------------------

    async def push(self, *layers: Layer) -> None:
        """sock.push() after the data that was written before, and do_handshake(). Reading should be paused. Raises
        UlpError as these do; OSError (ECONNABORTED) if the transport is closed meanwhile."""
        while self._buffer:
            await self._until_changed()
        await push_when_sent(self._open_socket(), layers)
        while True:
            try:
                sock = self._open_socket()
                sock.do_handshake()
                break
            except BlockingIOError:
                await self._until_changed()
        self._tls = sock.tls

    def _open_socket(self) -> socket:
        if self._sock is None or self._closing:
            raise error(errno.ECONNABORTED)
        return self._sock

    async def _until_changed(self) -> None:
        self._open_socket()
        self._change = self._loop.create_future()
        try:
            await self._change
        finally:
            self._change = None

    def _changed(self) -> None:
        if self._change is not None and not self._change.done():
            self._change.set_result(None)

    def _failure(self, code: int) -> OSError:
        return error(code) if self._sock is None else self._sock._failure(code)
