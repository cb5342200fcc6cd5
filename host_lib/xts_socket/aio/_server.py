"""`Server`, `create_server`, `connect_accepted_socket`: accepting on offloaded listeners, as asyncio does."""

from __future__ import annotations

import asyncio
import errno
import itertools
import ssl as standard_ssl
import sys
from asyncio import constants
from asyncio.trsock import TransportSocket
from collections.abc import Callable, Iterable, Sequence
from contextvars import copy_context
from socket import (
    AF_INET6,
    AF_UNSPEC,
    AI_PASSIVE,
    IPPROTO_IPV6,
    IPPROTO_TCP,
    IPV6_V6ONLY,
    SO_REUSEADDR,
    SO_REUSEPORT,
    SOCK_STREAM,
    SOL_SOCKET,
    TCP_NODELAY,
)
from typing import TYPE_CHECKING, Any, Self
from weakref import WeakSet

from .._create import as_server
from .._misuse import named
from .._socket import socket
from ._poller import poller_of
from ._resolve import resolve
from ._socket_transport import logger, until_begun
from ._tls import in_proxy, make_transport, push_tls

if TYPE_CHECKING:
    from ..layers import Tls

_NO_RESOURCE = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Listener:
    """Accepts on one socket for a server."""

    def __init__(self, server: Server, sock: socket) -> None:
        self._server = server
        self._sock = sock
        self._loop = server.get_loop()
        self._context = copy_context()
        self._stopped = False

    def start(self) -> None:
        self._sock.listen(self._server.backlog)
        poller_of(self._loop).add(self._sock.number, self._handle)

    def stop(self) -> None:
        self._stopped = True
        poller_of(self._loop).remove(self._sock.number)
        self._sock.close()

    def _handle(self, _events: int) -> None:
        self._context.run(self._accept)

    def _accept(self) -> None:
        """Accepts until no connection waits (the next one is an edge), but at most the backlog in one round."""
        for _ in range(self._server.backlog or 1):
            if self._stopped:
                return
            try:
                sock, address = self._sock.accept()
                sock.setblocking(False)
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionAbortedError:
                continue
            except OSError as failure:
                self._failed(failure)
                return
            self._server._serve(sock, address)
        self._loop.call_soon(self._accept)

    def _failed(self, failure: OSError) -> None:
        about = "socket.accept() out of system resource"
        if failure.errno in _NO_RESOURCE:
            self._loop.call_later(constants.ACCEPT_RETRY_DELAY, self._accept)
        else:
            about = "socket.accept() failed"
        self._loop.call_exception_handler(
            {"message": about, "exception": failure, "socket": TransportSocket(self._sock)}  # type: ignore[arg-type]
        )


class Server(asyncio.AbstractServer):
    """Made by `create_server`. wait_closed() behaves as in the running Python: since 3.12 it waits for connections."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sockets: Sequence[socket],
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        *,
        context: standard_ssl.SSLContext | None,
        backlog: int,
        handshake_timeout_s: float | None,
        shutdown_timeout_s: float | None,
    ) -> None:
        self._loop = loop
        self._sockets: list[socket] | None = list(sockets)
        self._protocol_factory = protocol_factory
        self._context = context
        self.backlog = backlog
        self._timeouts = (handshake_timeout_s, shutdown_timeout_s)
        self._listeners: list[Listener] = []
        self._serving = False
        self._forever: asyncio.Future[None] | None = None
        self._clients: WeakSet[asyncio.Transport] = WeakSet()
        self._active = 0
        self._waiters: list[asyncio.Future[None]] | None = []

    def __repr__(self) -> str:
        return f"<{self.__class__.__name__} sockets={self.sockets!r}>"

    # --- connections ----------------------------------------------------------------------------------------

    def _serve(self, sock: socket, address: Any) -> None:
        """A connection has come."""
        loop = self._loop
        if loop.get_debug():
            logger.debug("%r got a new connection from %r: %r", self, address, sock)
        context: dict[str, Any] = {"message": "Error on transport creation for incoming connection"}
        try:
            protocol = context["protocol"] = self._protocol_factory()
            make_transport(
                loop, sock, protocol, self._context, tls=self._context is not None, server_side=True,
                extra={"peername": address}, server=self, handshake_timeout_s=self._timeouts[0],
                shutdown_timeout_s=self._timeouts[1],
            )  # fmt: skip
        except (SystemExit, KeyboardInterrupt):
            sock.close()
            raise
        except BaseException as failure:
            sock.close()
            if loop.get_debug():
                loop.call_exception_handler({**context, "exception": failure})

    def _attach(self, transport: asyncio.Transport) -> None:
        self._clients.add(transport)
        self._active += 1

    def _detach(self, transport: asyncio.Transport) -> None:
        self._clients.discard(transport)
        self._active -= 1
        if not self._active and self._sockets is None:
            self._wake()

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, None
        for waiter in waiters or ():
            if not waiter.done():
                waiter.set_result(None)

    def close_clients(self) -> None:
        """Closes all connections (asyncio has this since 3.13)."""
        for transport in list(self._clients):
            transport.close()

    def abort_clients(self) -> None:
        """Closes all connections at once; data that they have not sent is lost (asyncio has this since 3.13)."""
        for transport in list(self._clients):
            transport.abort()

    # --- the server -----------------------------------------------------------------------------------------

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    def is_serving(self) -> bool:
        return self._serving

    @property
    def sockets(self) -> tuple[TransportSocket, ...]:
        return tuple(TransportSocket(sock) for sock in self._sockets or ())  # type: ignore[arg-type]

    def _start(self) -> None:
        if self._serving or self._sockets is None:
            return
        self._serving = True
        for sock in self._sockets:
            listener = Listener(self, sock)
            listener.start()
            self._listeners.append(listener)

    async def start_serving(self) -> None:
        self._start()
        await asyncio.sleep(0)

    async def serve_forever(self) -> None:
        """Serves until it is cancelled, or the server is closed."""
        if self._forever is not None:
            raise RuntimeError(f"server {self!r} is already being awaited on serve_forever()")
        if self._sockets is None:
            raise RuntimeError(f"server {self!r} is closed")
        self._start()
        self._forever = self._loop.create_future()
        try:
            await self._forever
        except asyncio.CancelledError:
            try:
                self.close()
                await self.wait_closed()
            finally:
                raise
        finally:
            self._forever = None

    def close(self) -> None:
        """Stops listening; connections stay."""
        sockets, self._sockets = self._sockets, None
        if sockets is None:
            return
        for listener in self._listeners:
            listener.stop()
        self._listeners.clear()
        for sock in sockets:
            sock.close()
        self._serving = False
        if self._forever is not None and not self._forever.done():
            self._forever.cancel()
            self._forever = None
        if not self._active:
            self._wake()

    async def wait_closed(self) -> None:
        if self._waiters is None or (sys.version_info < (3, 12) and self._sockets is None):
            return
        waiter = self._loop.create_future()
        self._waiters.append(waiter)
        await waiter

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()
        await self.wait_closed()


def check_tls(context: Any, handshake_timeout_s: float | None, shutdown_timeout_s: float | None) -> None:
    """ValueError for a timeout without TLS."""
    for name, value in (
        ("ssl_handshake_timeout", handshake_timeout_s),
        ("ssl_shutdown_timeout", shutdown_timeout_s),
    ):
        if value is not None and not context:
            raise ValueError(f"{name} is only meaningful with ssl")


@named
async def create_server(
    protocol_factory: Callable[[], asyncio.BaseProtocol],
    host: str | Sequence[str] | None = None,
    port: int | str | None = None,
    *,
    family: int = AF_UNSPEC,
    flags: int = AI_PASSIVE,
    sock: socket | None = None,
    backlog: int = 100,
    ssl: standard_ssl.SSLContext | Tls | None = None,
    tls: Tls | None = None,
    reuse_address: bool | None = None,
    reuse_port: bool | None = None,
    keep_alive: bool | None = None,
    ssl_handshake_timeout: float | None = None,
    ssl_shutdown_timeout: float | None = None,
    start_serving: bool = True,
    loop: asyncio.AbstractEventLoop | None = None,
) -> Server:
    """loop.create_server() on the device's addresses; `sock` is an XTS socket.

    tls, or `ssl` with Tls(): the proxy does TLS, with the identity that these parameters name. A connection whose
    handshake fails is never accepted, and the proxy's configuration limits the time of a handshake.
    """
    loop = loop or asyncio.get_running_loop()
    if isinstance(ssl, bool):
        raise TypeError("ssl argument must be an SSLContext or None")
    offloaded = in_proxy(ssl, tls)
    check_tls(ssl or tls, ssl_handshake_timeout, ssl_shutdown_timeout)
    if host is not None or port is not None:
        if sock is not None:
            raise ValueError("host/port and sock can not be specified at the same time")
        sockets = await _bound(
            loop, host, port, family=family, flags=flags, reuse_address=reuse_address is not False,
            reuse_port=bool(reuse_port),
        )  # fmt: skip
    else:
        if sock is None:
            raise ValueError("Neither host/port nor sock were specified")
        sockets = [check_socket(sock)]
    for each in sockets:
        each.setblocking(False)
        each.setsockopt(IPPROTO_TCP, TCP_NODELAY, 1)  # accepted connections inherit it
        if keep_alive:
            each.setsockopt(SOL_SOCKET, 9, 1)
        if offloaded is not None and each.tls is None:
            each.push(as_server(offloaded))
    context = ssl if isinstance(ssl, standard_ssl.SSLContext) and offloaded is None else None
    server = Server(
        loop, sockets, protocol_factory, context=context, backlog=backlog, handshake_timeout_s=ssl_handshake_timeout,
        shutdown_timeout_s=ssl_shutdown_timeout,
    )  # fmt: skip
    if start_serving:
        server._start()
        await asyncio.sleep(0)
    if loop.get_debug():
        logger.info("%r is serving", server)
    return server


def check_socket(sock: Any) -> socket:
    """TypeError unless it is an XTS socket."""
    if isinstance(sock, standard_ssl.SSLSocket):
        raise TypeError("Socket cannot be of type SSLSocket")
    if not isinstance(sock, socket):
        raise TypeError(f"an xts_socket.socket is required, not {type(sock).__name__!r}")
    if sock.type != SOCK_STREAM:
        raise ValueError(f"A Stream Socket was expected, got {sock!r}")
    return sock


async def _bound(
    loop: asyncio.AbstractEventLoop,
    host: Any,
    port: Any,
    *,
    family: int,
    flags: int,
    reuse_address: bool,
    reuse_port: bool,
) -> list[socket]:
    hosts: Iterable[Any]
    if host == "":
        hosts = [None]
    elif isinstance(host, str) or not isinstance(host, Iterable):
        hosts = [host]
    else:
        hosts = host
    found = await asyncio.gather(
        *(resolve(loop, (each, port), family=family, kind=SOCK_STREAM, flags=flags) for each in hosts)
    )
    sockets: list[socket] = []
    try:
        for af, kind, proto, _, address in dict.fromkeys(itertools.chain.from_iterable(found)):
            try:
                sock = socket(af, kind, proto)
            except OSError as failure:
                if failure.errno == errno.ENETDOWN:
                    raise
                if loop.get_debug():
                    logger.warning(
                        "create_server() failed to create socket(%r, %r, %r)", af, kind, proto, exc_info=True
                    )
                continue
            sockets.append(sock)
            if reuse_address:
                sock.setsockopt(SOL_SOCKET, SO_REUSEADDR, 1)
            if reuse_port:
                sock.setsockopt(SOL_SOCKET, SO_REUSEPORT, 1)
            if af == AF_INET6:
                sock.setsockopt(IPPROTO_IPV6, IPV6_V6ONLY, 1)
            _bind(sock, address)
    except BaseException:
        for sock in sockets:
            sock.close()
        raise
    return sockets


def _bind(sock: socket, address: Any) -> None:
    try:
        sock.bind(address)
    except OSError as failure:
        reason = (failure.strerror or str(failure)).lower()
        raise OSError(failure.errno, f"error while attempting to bind on address {address!r}: {reason}") from None


@named
async def connect_accepted_socket(
    protocol_factory: Callable[[], asyncio.BaseProtocol],
    sock: socket,
    *,
    ssl: standard_ssl.SSLContext | Tls | None = None,
    tls: Tls | None = None,
    ssl_handshake_timeout: float | None = None,
    ssl_shutdown_timeout: float | None = None,
    loop: asyncio.AbstractEventLoop | None = None,
) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
    """loop.connect_accepted_socket() for an XTS socket that other code has accepted; tls, or `ssl` with Tls(): from
    here on the proxy does TLS."""
    loop = loop or asyncio.get_running_loop()
    check_socket(sock)
    offloaded = in_proxy(ssl, tls)
    check_tls(ssl or tls, ssl_handshake_timeout, ssl_shutdown_timeout)
    sock.setblocking(False)
    if offloaded is not None:
        try:
            await push_tls(sock, as_server(offloaded), ssl_handshake_timeout)
        except BaseException:
            sock.close()
            raise
    protocol = protocol_factory()
    waiter: asyncio.Future[None] = loop.create_future()
    transport = make_transport(
        loop, sock, protocol, ssl if isinstance(ssl, standard_ssl.SSLContext) else None, waiter,
        tls=bool(ssl) and offloaded is None, server_side=True, server_hostname="",
        handshake_timeout_s=ssl_handshake_timeout, shutdown_timeout_s=ssl_shutdown_timeout,
    )  # fmt: skip
    await until_begun(transport, waiter)
    return transport, protocol
