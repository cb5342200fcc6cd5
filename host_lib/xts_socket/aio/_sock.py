"""The loop's sock_* methods for XTS sockets without a transport: `sock_recv`, `sock_sendall`, `sock_connect`, …"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from select import EPOLLIN, EPOLLOUT
from socket import SO_ERROR, SOL_SOCKET
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

from .._errors import UlpError, explained
from .._socket import socket
from ._poller import poller_of, wait_for
from ._resolve import resolve

if TYPE_CHECKING:
    from ..control import Control, Pdu
    from ..layers import Layer

T = TypeVar("T")

_FILE_BYTES = 256 * 1024
_UNSENT_S = 0.005


def _ready(sock: socket, loop: asyncio.AbstractEventLoop | None) -> asyncio.AbstractEventLoop:
    if not isinstance(sock, socket):
        raise TypeError(f"an xts_socket.socket is required, not {type(sock).__name__!r}")
    loop = loop or asyncio.get_running_loop()
    if sock.gettimeout() != 0 and loop.get_debug():
        raise ValueError("the socket must be non-blocking")
    return loop


async def _done(loop: asyncio.AbstractEventLoop, sock: socket, events: int, call: Callable[[], T]) -> T:
    """Repeats the call until it does not have to wait."""
    while True:
        try:
            return call()
        except (BlockingIOError, InterruptedError):
            pass
        await wait_for(loop, sock.number, events)


async def sock_recv(sock: socket, nbytes: int, *, loop: asyncio.AbstractEventLoop | None = None) -> bytes:
    """At most `nbytes` bytes; b"" at the end of the stream."""
    return await _done(_ready(sock, loop), sock, EPOLLIN, partial(sock.recv, nbytes))


async def sock_recv_into(sock: socket, buf: Any, *, loop: asyncio.AbstractEventLoop | None = None) -> int:
    """Into a writable buffer; returns how many bytes."""
    return await _done(_ready(sock, loop), sock, EPOLLIN, partial(sock.recv_into, buf))


async def sock_recvfrom(
    sock: socket, bufsize: int, *, loop: asyncio.AbstractEventLoop | None = None
) -> tuple[bytes, Any]:
    """(a datagram, the address from which it came)."""
    return await _done(_ready(sock, loop), sock, EPOLLIN, partial(sock.recvfrom, bufsize))


async def sock_recvfrom_into(
    sock: socket, buf: Any, nbytes: int = 0, *, loop: asyncio.AbstractEventLoop | None = None
) -> tuple[int, Any]:
    """Into a writable buffer: (how many bytes, the address from which the datagram came)."""
    return await _done(_ready(sock, loop), sock, EPOLLIN, partial(sock.recvfrom_into, buf, nbytes))


async def sock_sendto(sock: socket, data: Any, address: Any, *, loop: asyncio.AbstractEventLoop | None = None) -> int:
    """A datagram, to an address that needs no resolving."""
    loop = _ready(sock, loop)
    poller_of(loop).sent = True
    return await _done(loop, sock, EPOLLOUT, partial(sock.sendto, data, address))


async def sock_sendall(sock: socket, data: Any, *, loop: asyncio.AbstractEventLoop | None = None) -> None:
    """Sends everything. After an error it is unknown how much was sent."""
    loop = _ready(sock, loop)
    poller = poller_of(loop)
    with memoryview(data).cast("B") as view:
        sent = 0
        while sent < len(view):
            poller.sent = True
            sent += await _done(loop, sock, EPOLLOUT, partial(sock.send, view[sent:]))


async def sock_accept(sock: socket, *, loop: asyncio.AbstractEventLoop | None = None) -> tuple[socket, Any]:
    """(a new non-blocking socket, the address of its peer)."""
    accepted, address = await _done(_ready(sock, loop), sock, EPOLLIN, sock.accept)
    accepted.setblocking(False)
    return accepted, address


async def sock_connect(sock: socket, address: Any, *, loop: asyncio.AbstractEventLoop | None = None) -> None:
    """Connects; a host name is resolved without blocking the loop."""
    loop = _ready(sock, loop)
    infos = await resolve(loop, address, family=sock.family, kind=sock.type, proto=sock.proto)
    await connect(loop, sock, infos[0][4])


async def connect(loop: asyncio.AbstractEventLoop, sock: socket, address: Any, layers: Sequence[Layer] = ()) -> None:
    """As sock_connect(), to an address that needs no resolving, with protocols pushed."""
    try:
        sock.connect_with(address, *layers)
        return
    except (BlockingIOError, InterruptedError):
        pass
    await wait_for(loop, sock.number, EPOLLOUT)
    failure = sock.getsockopt(SOL_SOCKET, SO_ERROR)
    if failure:
        found = sock._failure(failure, True)
        if isinstance(found, UlpError):
            raise found
        raise explained(OSError(failure, f"Connect call failed {address}"), getattr(found, "reason", ""))


async def sock_push(sock: socket, *layers: Layer, loop: asyncio.AbstractEventLoop | None = None) -> None:
    """Pushes protocols onto a connected socket, and waits for their handshakes: `socket.push()`."""
    loop = _ready(sock, loop)
    await push_when_sent(sock, layers)
    await _done(loop, sock, EPOLLOUT, sock.do_handshake)


async def push_when_sent(sock: socket, layers: Sequence[Layer]) -> None:
    """Pushes onto a non-blocking socket. Data that was sent earlier has to leave first; no event says when it has."""
    while True:
        try:
            sock.push(*layers)
            return
        except BlockingIOError:
            await asyncio.sleep(_UNSENT_S)


async def sock_recv_pdu(sock: socket, *, loop: asyncio.AbstractEventLoop | None = None) -> Pdu | None:
    """The next PDU, complete; None at the end of the stream: `socket.recv_pdu()`."""
    return await _done(_ready(sock, loop), sock, EPOLLIN, sock.recv_pdu)


async def sock_send_pdu(
    sock: socket, data: Any, control: Control | None = None, *, loop: asyncio.AbstractEventLoop | None = None
) -> None:
    """Sends one PDU: `socket.send_pdu()`."""
    loop = _ready(sock, loop)
    poller = poller_of(loop)
    with memoryview(data).cast("B") as view:
        sent = 0
        while True:
            poller.sent = True
            first_control = None if sent else control
            sent += await _done(loop, sock, EPOLLOUT, partial(sock.send_pdu_part, view[sent:], first_control))
            if sent == len(view):
                return


async def sock_sendfile(
    sock: socket,
    file: BinaryIO,
    offset: int = 0,
    count: int | None = None,
    *,
    fallback: bool | None = None,
    loop: asyncio.AbstractEventLoop | None = None,
) -> int:
    """Sends a file, opened in binary mode, from `offset` to its end or `count` bytes; returns how many. The file is
    read in the loop's executor. With `fallback` False: SendfileNotAvailableError, as there is no sendfile(2)."""
    loop = _ready(sock, loop)
    if "b" not in getattr(file, "mode", "b"):
        raise ValueError("file should be opened in binary mode")
    for name, value, least in (("count", count, 1), ("offset", offset, 0)):
        kind = "positive" if least else "non-negative"
        if value is not None and not isinstance(value, int):
            raise TypeError(f"{name} must be a {kind} integer (got {value!r})")
        if value is not None and value < least:
            raise ValueError(f"{name} must be a {kind} integer (got {value!r})")
    if fallback is False:
        raise asyncio.SendfileNotAvailableError(f"sendfile(2) is not available for socket {sock!r}")
    file.seek(offset)
    room = memoryview(bytearray(min(count or _FILE_BYTES, _FILE_BYTES)))
    total = 0
    try:
        while count is None or total < count:
            part = room if count is None else room[: count - total]
            got = await loop.run_in_executor(None, file.readinto, part)  # type: ignore[attr-defined]
            if not got:
                break
            await sock_sendall(sock, part[:got], loop=loop)
            total += got
        return total
    finally:
        file.seek(offset + total)
