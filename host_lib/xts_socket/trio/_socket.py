"""`SocketType`: a trio socket whose TCP or UDP the offload proxy does; and the factory with which trio makes them."""

from __future__ import annotations

import errno
import os
import socket as _standard
from collections.abc import Awaitable, Callable, Iterable
from socket import (
    AF_INET,
    AF_INET6,
    AI_PASSIVE,
    IPPROTO_IPV6,
    IPV6_V6ONLY,
    SHUT_RDWR,
    SHUT_WR,
    SO_ERROR,
    SOCK_DGRAM,
    SOCK_STREAM,
    SOL_SOCKET,
    SOMAXCONN,
)
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

import trio
from trio.lowlevel import cancel_shielded_checkpoint, checkpoint, checkpoint_if_cancelled

from .._errors import UlpError, explained
from .._readiness import READABLE, WRITABLE, Tasks, is_readable, is_writable
from .._socket import socket as XtsSocket  # noqa: N812 - one of three kinds of socket here
from ._waits import forget, wait

if TYPE_CHECKING:
    from .._tls import TlsConnection
    from ..control import Control, Pdu
    from ..layers import Layer

Result = TypeVar("Result")

_TASKS = Tasks(wait, checkpoint_if_cancelled, cancel_shielded_checkpoint)
_UNSENT_S = 0.005


class SocketType(trio.socket.SocketType):
    """A non-blocking `xts_socket.socket` with the interface of trio's sockets.

    Cancelling an operation loses no data, except that cancelling `connect` closes the socket, as in trio.
    """

    def __init__(self, sock: XtsSocket) -> None:
        super().__init__()
        sock.setblocking(False)
        self._sock = sock
        self._shut = False

    @property
    def xts_socket(self) -> XtsSocket:
        """The `xts_socket.socket` below, for its `number` or its information; do not wait on it or close it."""
        return self._sock

    # --- methods that do not wait ----------------------------------------------------------------------------

    def detach(self) -> int:
        """Gives the socket up without closing it: `xts_socket.socket(fileno=…)` takes the result over."""
        forget(self._sock)
        return self._sock.detach()

    def fileno(self) -> int:
        """A kernel descriptor that mirrors the socket's readiness, made on first use; -1 if it is closed."""
        return self._sock.fileno()

    def getpeername(self) -> Any:
        return self._sock.getpeername()

    def getsockname(self) -> Any:
        return self._sock.getsockname()

    def getsockopt(self, level: int, optname: int, buflen: int | None = None) -> Any:
        return self._sock.getsockopt(level, optname, buflen or 0)

    def setsockopt(self, level: int, optname: int, value: Any, optlen: int | None = None) -> None:
        self._sock.setsockopt(level, optname, value, optlen)

    def listen(self, backlog: int = min(SOMAXCONN, 128)) -> None:
        self._sock.listen(backlog)

    def get_inheritable(self) -> bool:
        return self._sock.get_inheritable()

    def set_inheritable(self, inheritable: bool) -> None:
        self._sock.set_inheritable(inheritable)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @property
    def family(self) -> _standard.AddressFamily:
        return self._sock.family

    @property
    def type(self) -> _standard.SocketKind:
        return self._sock.type

    @property
    def proto(self) -> int:
        return self._sock.proto

    @property
    def did_shutdown_SHUT_WR(self) -> bool:  # noqa: N802 - trio's name
        return self._shut

    def __repr__(self) -> str:
        return repr(self._sock).replace("xts_socket.socket", "xts_socket.trio.SocketType", 1)

    def dup(self) -> Any:
        """Refused (OSError, EOPNOTSUPP)."""
        self._sock.dup()

    def close(self) -> None:
        """Tasks that wait for the socket get ClosedResourceError. Data that was sent is still delivered."""
        if self._sock.number >= 0:
            forget(self._sock)
            self._sock.close()

    def shutdown(self, flag: int) -> None:
        self._sock.shutdown(flag)
        if flag in (SHUT_WR, SHUT_RDWR):
            self._shut = True

    def is_readable(self) -> bool:
        return is_readable(self._sock)

    # --- methods that wait ------------------------------------------------------------------------------------

    async def bind(self, address: Any) -> None:
        address = await self._resolved(address, AI_PASSIVE)
        await checkpoint()
        self._sock.bind(address)

    async def connect(self, address: Any) -> None:
        await self.connect_with(address)

    async def connect_with(self, address: Any, *layers: Layer) -> None:
        """connect() with protocols pushed first, in one message to the proxy: `xts_socket.socket.connect_with()`."""
        try:
            address = await self._resolved(address, 0)
            await checkpoint_if_cancelled()
            try:
                self._sock.connect_with(address, *layers)
            except BlockingIOError:
                await wait(self._sock, WRITABLE)
            else:
                await cancel_shielded_checkpoint()
                return
        except trio.Cancelled:
            self.close()
            raise
        code = self._sock.getsockopt(SOL_SOCKET, SO_ERROR)
        if code:
            failure = self._sock._failure(code, True)
            if isinstance(failure, UlpError):
                raise failure
            text = f"Error connecting to {address!r}: {os.strerror(code)}"
            raise explained(OSError(code, text), getattr(failure, "reason", text))

    async def wait_writable(self) -> None:
        await checkpoint_if_cancelled()
        if self._sock.number >= 0 and is_writable(self._sock):
            await cancel_shielded_checkpoint()
        else:
            await wait(self._sock, WRITABLE)

    async def accept(self) -> tuple[SocketType, Any]:
        sock, address = await self._until(READABLE, self._sock.accept)
        return SocketType(sock), address

    def recv(self, buflen: int, flags: int = 0, /) -> Awaitable[bytes]:
        return self._until(READABLE, self._sock.recv, buflen, flags)

    def recv_into(self, buffer: Any, nbytes: int = 0, flags: int = 0) -> Awaitable[int]:
        return self._until(READABLE, self._sock.recv_into, buffer, nbytes, flags)

    def recvfrom(self, bufsize: int, flags: int = 0, /) -> Awaitable[tuple[bytes, Any]]:
        return self._until(READABLE, self._sock.recvfrom, bufsize, flags)

    def recvfrom_into(self, buffer: Any, nbytes: int = 0, flags: int = 0) -> Awaitable[tuple[int, Any]]:
        return self._until(READABLE, self._sock.recvfrom_into, buffer, nbytes, flags)

    def recvmsg(
        self, bufsize: int, ancbufsize: int = 0, flags: int = 0, /
    ) -> Awaitable[tuple[bytes, list[tuple[int, int, bytes]], int, object]]:
        return self._until(READABLE, self._sock.recvmsg, bufsize, ancbufsize, flags)

    def recvmsg_into(
        self, buffers: Iterable[Any], ancbufsize: int = 0, flags: int = 0, /
    ) -> Awaitable[tuple[int, list[tuple[int, int, bytes]], int, object]]:
        return self._until(READABLE, self._sock.recvmsg_into, buffers, ancbufsize, flags)

    def send(self, data: Any, flags: int = 0, /) -> Awaitable[int]:
        return self._until(WRITABLE, self._sock.send, data, flags)

    async def sendto(self, data: Any, *arguments: Any) -> int:
        """sendto(data, [flags,] address): one datagram; on TCP, the same as send()."""
        if arguments:
            arguments = (*arguments[:-1], await self._destination(arguments[-1]))
        return await self._until(WRITABLE, self._sock.sendto, data, *arguments)

    async def sendmsg(
        self, buffers: Iterable[Any], ancdata: Iterable[Any] = (), flags: int = 0, address: Any = None, /
    ) -> int:
        address = await self._destination(address)
        return await self._until(WRITABLE, self._sock.sendmsg, list(buffers), ancdata, flags, address)

    async def push(self, *layers: Layer) -> None:
        """Pushes protocols; on a connected socket it waits for their handshakes: `xts_socket.socket.push()`."""
        while True:
            try:
                self._sock.push(*layers)
                break
            except BlockingIOError:  # data that was sent earlier has to leave first; no event says when it has
                await trio.sleep(_UNSENT_S)
        try:
            await self.do_handshake()
        except OSError as failure:
            if failure.errno != errno.ENOTCONN:  # connect() will wait for them
                raise

    def do_handshake(self) -> Awaitable[None]:
        """Waits until the handshakes of the pushed protocols are done."""
        return self._until(WRITABLE, self._sock.do_handshake)

    def recv_pdu(self) -> Awaitable[Pdu | None]:
        """The next PDU, complete; None at the end of the stream."""
        return self._until(READABLE, self._sock.recv_pdu)

    async def send_pdu(self, data: Any, control: Control | None = None) -> None:
        """Sends one PDU. If it is cancelled, a part of a PDU longer than half of the window may have been sent."""
        with memoryview(data) as view, view.cast("B") as rest:
            sent = await self._until(WRITABLE, self._sock.send_pdu_part, rest, control)
            while sent < len(rest):
                sent += await self._until(WRITABLE, self._sock.send_pdu_part, rest[sent:])

    @property
    def tls(self) -> TlsConnection | None:
        """TLS in the proxy: `xts_socket.socket.tls`."""
        return self._sock.tls

    def _until(self, event: int, call: Callable[..., Result], *arguments: Any) -> Awaitable[Result]:
        return _TASKS.until(self._sock, event, call, *arguments)

    async def _destination(self, address: Any) -> Any:
        """The destination of a datagram; a stream socket ignores it."""
        return await self._resolved(address, 0) if self._sock.type == SOCK_DGRAM else address

    async def _resolved(self, address: Any, flags: int) -> Any:
        """The address, with its host's name resolved without blocking the run."""
        if not isinstance(address, tuple) or len(address) < 2 or not isinstance(address[0], str) or not address[0]:
            return address  # there is nothing to resolve, or the socket shall refuse it
        host, port, *rest = address
        family = self._sock.family
        if family == AF_INET6 and not self._sock.getsockopt(IPPROTO_IPV6, IPV6_V6ONLY):
            flags |= _standard.AI_V4MAPPED
        found = await trio.socket.getaddrinfo(host, port, family, self._sock.type, flags=flags)
        resolved: tuple[Any, ...] = found[0][4]
        # Only the address itself contains a flow label, and a scope that the host's name does not contain.
        return (*resolved[:2], *rest, *resolved[2 + len(rest) :]) if rest else resolved


def socket(family: int = AF_INET, type: int = SOCK_STREAM, proto: int = 0) -> SocketType:
    """A new offloaded trio socket. OSError as for `xts_socket.socket`: ENETDOWN without a proxy."""
    return SocketType(XtsSocket(family, type, proto))


def from_xts_socket(sock: XtsSocket) -> SocketType:
    """Makes a trio socket from an `xts_socket.socket`, which it takes over."""
    return SocketType(sock)


class SocketFactory(trio.abc.SocketFactory):
    """For `trio.socket.set_custom_socket_factory`: the TCP and UDP sockets that trio's functions make are offloaded.

    Sockets of other families and types are kernel sockets, as before.
    """

    def socket(self, family: int = AF_INET, type: int = SOCK_STREAM, proto: int = 0) -> trio.socket.SocketType:
        if family in (AF_INET, AF_INET6) and type & 0xF in (SOCK_STREAM, SOCK_DGRAM):
            return socket(family, type, proto)
        return trio.socket.from_stdlib_socket(_standard.socket(family, type, proto))
