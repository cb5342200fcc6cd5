"""Event loops whose TCP and UDP are offloaded: for programs and frameworks that call asyncio and know nothing of XTS.

`EventLoop` is asyncio's loop, `UvloopEventLoop` uvloop's: `asyncio.run(main(), loop_factory=EventLoop)`.
`offloading(loop)` is a view of any loop, for code that takes a loop as an argument. In all of them TCP connections and
servers, and UDP datagram endpoints, are offloaded, unless a kernel socket is passed in; everything else is done by the
loop itself.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable
from socket import AF_INET, AF_INET6, AF_UNSPEC
from typing import TYPE_CHECKING, Any

from .._native import lib
from .._socket import socket
from . import _connect, _datagrams, _server, _sock, _tls
from ._poller import forget
from ._selector import Selector
from ._transport import Transport
from ._wakeup import Wakeup

_OF_UDP = (AF_UNSPEC, AF_INET, AF_INET6)


class Offloading:
    """The methods of a loop that concern TCP and UDP."""

    def _kernels(self, name: str) -> Any:
        """The loop's own method, for kernel sockets."""
        raise NotImplementedError

    async def create_connection(
        self, protocol_factory: Any, host: Any = None, port: Any = None, *, sock: Any = None, **options: Any
    ) -> Any:
        if sock is not None and not isinstance(sock, socket):
            call = self._kernels("create_connection")
            return await call(protocol_factory, host, port, sock=sock, **options)
        return await _connect.create_connection(protocol_factory, host, port, sock=sock, loop=_loop(self), **options)

    async def create_server(
        self, protocol_factory: Any, host: Any = None, port: Any = None, *, sock: Any = None, **options: Any
    ) -> Any:
        if sock is not None and not isinstance(sock, socket):
            return await self._kernels("create_server")(protocol_factory, host, port, sock=sock, **options)
        return await _server.create_server(protocol_factory, host, port, sock=sock, loop=_loop(self), **options)

    async def create_datagram_endpoint(
        self, protocol_factory: Any, local_addr: Any = None, remote_addr: Any = None, **options: Any
    ) -> Any:
        sock = options.get("sock")
        ours = isinstance(sock, socket) if sock is not None else options.get("family", 0) in _OF_UDP
        if not ours:
            call = self._kernels("create_datagram_endpoint")
            return await call(protocol_factory, local_addr, remote_addr, **options)
        return await _datagrams.create_datagram_endpoint(
            protocol_factory, local_addr, remote_addr, loop=_loop(self), **options
        )

    async def connect_accepted_socket(self, protocol_factory: Any, sock: Any, **options: Any) -> Any:
        if not isinstance(sock, socket):
            return await self._kernels("connect_accepted_socket")(protocol_factory, sock, **options)
        return await _server.connect_accepted_socket(protocol_factory, sock, loop=_loop(self), **options)

    async def start_tls(self, transport: Any, protocol: Any, sslcontext: Any, **options: Any) -> Any:
        if not getattr(transport, "_start_tls_compatible", False):
            return await self._kernels("start_tls")(transport, protocol, sslcontext, **options)
        return await _tls.start_tls(transport, protocol, sslcontext, loop=_loop(self), **options)

    async def sendfile(
        self, transport: Any, file: Any, offset: int = 0, count: int | None = None, *, fallback: bool = True
    ) -> int:
        """As asyncio's. Its copy in parts, which our transports use, would begin at the file's position if `offset` is
        0; its sendfile(2), for which that stands in, begins at 0."""
        if isinstance(transport, Transport) and hasattr(file, "seek"):
            file.seek(offset)
        return int(await self._kernels("sendfile")(transport, file, offset, count, fallback=fallback))

    async def sock_recv(self, sock: Any, nbytes: int) -> bytes:
        return await self._sock("sock_recv", sock, nbytes)  # type: ignore[no-any-return]

    async def sock_recv_into(self, sock: Any, buf: Any) -> int:
        return await self._sock("sock_recv_into", sock, buf)  # type: ignore[no-any-return]

    async def sock_sendall(self, sock: Any, data: Any) -> None:
        await self._sock("sock_sendall", sock, data)

    async def sock_recvfrom(self, sock: Any, bufsize: int) -> Any:
        return await self._sock("sock_recvfrom", sock, bufsize)

    async def sock_recvfrom_into(self, sock: Any, buf: Any, nbytes: int = 0) -> Any:
        return await self._sock("sock_recvfrom_into", sock, buf, nbytes)

    async def sock_sendto(self, sock: Any, data: Any, address: Any) -> int:
        return await self._sock("sock_sendto", sock, data, address)  # type: ignore[no-any-return]

    async def sock_connect(self, sock: Any, address: Any) -> None:
        await self._sock("sock_connect", sock, address)

    async def sock_accept(self, sock: Any) -> Any:
        return await self._sock("sock_accept", sock)

    async def sock_sendfile(self, sock: Any, *arguments: Any, **options: Any) -> int:
        return await self._sock("sock_sendfile", sock, *arguments, **options)  # type: ignore[no-any-return]

    async def _sock(self, name: str, sock: Any, *arguments: Any, **options: Any) -> Any:
        if not isinstance(sock, socket):
            return await self._kernels(name)(sock, *arguments, **options)
        return await getattr(_sock, name)(sock, *arguments, loop=_loop(self), **options)


class EventLoop(Offloading, asyncio.SelectorEventLoop):
    """asyncio's event loop with offloaded TCP and UDP. If the caller passes no selector, it waits in the library
    itself, which is faster than any other loop can be."""

    def __init__(self, selector: selectors.BaseSelector | None = None) -> None:
        if selector is None:
            selector = Selector()
        self.xts_selector = selector if isinstance(selector, Selector) else None
        super().__init__(selector)

    def run_forever(self) -> None:
        if (wakeup := self._wakeup()) is not None:
            wakeup.begin()
        try:
            super().run_forever()
        finally:
            lib.xts_flush()  # sends what the last turn has written
            if (wakeup := self._wakeup()) is not None:
                wakeup.end()

    def _wakeup(self) -> Wakeup | None:
        poller = self.xts_selector and self.xts_selector.poller
        return poller.wakeup if poller else None

    def _kernels(self, name: str) -> Any:
        return getattr(super(Offloading, self), name)

    def close(self) -> None:
        super().close()
        forget(self)


class View(Offloading):
    """Any loop, with offloaded TCP: use `offloading`."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loop, name)

    def _kernels(self, name: str) -> Any:
        return getattr(self.loop, name)


def _loop(one: Any) -> asyncio.AbstractEventLoop:
    loop: asyncio.AbstractEventLoop = one.loop if isinstance(one, View) else one
    return loop


def offloading(loop: asyncio.AbstractEventLoop | None = None) -> Any:
    """The loop (default: the running one), with TCP offloaded."""
    loop = loop or asyncio.get_running_loop()
    return loop if isinstance(loop, Offloading) else View(loop)


def _make_uvloop() -> type[asyncio.AbstractEventLoop]:
    import uvloop

    class UvloopEventLoop(Offloading, uvloop.Loop):  # type: ignore[misc]
        """uvloop's event loop with offloaded TCP."""

        def _kernels(self, name: str) -> Any:
            return getattr(super(Offloading, self), name)

        def close(self) -> None:
            super().close()
            forget(self)

    return UvloopEventLoop


def _make_policy() -> Callable[[], Any]:
    class EventLoopPolicy(asyncio.DefaultEventLoopPolicy):
        """For asyncio.set_event_loop_policy(): new event loops are `EventLoop`s."""

        _loop_factory = EventLoop

    return EventLoopPolicy


def __getattr__(name: str) -> Any:
    """uvloop is optional, and newer Pythons have no policies: so these classes are made on first use."""
    if name == "UvloopEventLoop":
        value: Any = _make_uvloop()
    elif name == "EventLoopPolicy":
        value = _make_policy()
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


if TYPE_CHECKING:
    UvloopEventLoop: type[asyncio.AbstractEventLoop]
    EventLoopPolicy: Callable[[], Any]
