"""TLS below our transports, done by the proxy (`Tls` pushed onto the socket), and above them: the standard library's
own TLS protocol (with ssl.MemoryBIO), which uses only public methods of a loop and so behaves the same on every loop.
"""

from __future__ import annotations

import asyncio
import ssl
from asyncio import sslproto
from typing import TYPE_CHECKING, Any

from .._create import as_client, as_server
from .._misuse import named
from .._socket import socket
from ._sock import sock_push
from ._transport import Transport

if TYPE_CHECKING:
    from ..layers import Tls

_HANDSHAKE_S = 60.0  # asyncio's constants.SSL_HANDSHAKE_TIMEOUT


def in_proxy(context: Any, tls: Tls | bool | None) -> Tls | None:
    """The TLS that the proxy shall do, which two arguments can request: `ssl` (Tls(), or a context of `ssl_context()`),
    and `tls`. None: not in the proxy. ValueError if both are given."""
    if not tls and (context is None or isinstance(context, bool)):
        return None
    from .._tls_context import OffloadedContext
    from ..layers import Tls

    if tls:
        if context:
            raise ValueError("ssl and tls can not be specified at the same time")
        if tls is not True and not isinstance(tls, Tls):
            raise TypeError(f"tls: Tls() or a bool is wanted, not {tls!r}")
        return Tls() if tls is True else tls
    if isinstance(context, OffloadedContext):
        return context.tls
    return context if isinstance(context, Tls) else None


def make_transport(
    loop: asyncio.AbstractEventLoop,
    sock: socket,
    protocol: asyncio.BaseProtocol,
    context: ssl.SSLContext | None = None,
    waiter: asyncio.Future[None] | None = None,
    *,
    tls: bool = False,
    server_side: bool = False,
    server_hostname: str | None = None,
    extra: dict[str, Any] | None = None,
    server: Any = None,
    handshake_timeout_s: float | None = None,
    shutdown_timeout_s: float | None = None,
) -> asyncio.Transport:
    """The transport to which the protocol writes: a plain one, or with `tls` one with TLS (`context` None: the client's
    defaults). `waiter` is done when connection_made() has been called."""
    if not tls:
        return Transport(loop, sock, protocol, waiter=waiter, extra=extra, server=server)
    inner = sslproto.SSLProtocol(
        loop,
        protocol,
        context,  # type: ignore[arg-type]
        waiter,  # type: ignore[arg-type]
        server_side,
        server_hostname,
        ssl_handshake_timeout=handshake_timeout_s,  # type: ignore[arg-type]
        ssl_shutdown_timeout=shutdown_timeout_s,
    )
    Transport(loop, sock, inner, extra=extra, server=server)
    return inner._app_transport


@named
async def start_tls(
    transport: asyncio.WriteTransport,
    protocol: asyncio.BaseProtocol,
    sslcontext: ssl.SSLContext | Tls,
    *,
    server_side: bool = False,
    server_hostname: str | None = None,
    ssl_handshake_timeout: float | None = None,
    ssl_shutdown_timeout: float | None = None,
    loop: asyncio.AbstractEventLoop | None = None,
) -> asyncio.Transport:
    """loop.start_tls() for a transport of ours, on any loop: returns the transport to use from now on.

    With `Tls()` instead of a context, the proxy does TLS, and the same transport is returned. Data that was written
    before leaves unchanged.
    """
    offloaded = in_proxy(sslcontext, None)
    if offloaded is None and not isinstance(sslcontext, ssl.SSLContext):
        raise TypeError(f"sslcontext is expected to be an instance of ssl.SSLContext, got {sslcontext!r}")
    if not getattr(transport, "_start_tls_compatible", False):
        raise TypeError(f"transport {transport!r} is not supported by start_tls()")
    if offloaded is not None:
        if not isinstance(transport, Transport):
            raise TypeError(f"{transport!r} does TLS in this process: there can be none in the proxy above it")
        offloaded = as_server(offloaded) if server_side else as_client(offloaded, server_hostname)
        await _push_under(transport, offloaded, ssl_handshake_timeout)
        transport.set_protocol(protocol)
        return transport
    loop = loop or asyncio.get_running_loop()
    waiter: asyncio.Future[None] = loop.create_future()
    inner = sslproto.SSLProtocol(
        loop,
        protocol,
        sslcontext,  # type: ignore[arg-type]  # a context: all else has been dealt with
        waiter,
        server_side,
        server_hostname,
        call_connection_made=False,
        ssl_handshake_timeout=ssl_handshake_timeout,  # type: ignore[arg-type]
        ssl_shutdown_timeout=ssl_shutdown_timeout,
    )
    # The TLS protocol must not get data before it has its transport.
    below: Any = transport
    below.pause_reading()
    below.set_protocol(inner)
    made = loop.call_soon(inner.connection_made, below)
    resumed = loop.call_soon(below.resume_reading)
    try:
        await waiter
    except BaseException:
        below.close()
        made.cancel()
        resumed.cancel()
        raise
    return inner._app_transport


async def push_tls(sock: socket, tls: Tls, timeout_s: float | None) -> None:
    """Pushes TLS onto a connected socket without a transport, and waits for its handshake."""
    async with asyncio.timeout(_HANDSHAKE_S if timeout_s is None else timeout_s):
        await sock_push(sock, tls)


async def _push_under(transport: Transport, tls: Tls, timeout_s: float | None) -> None:
    """Pushes TLS below a transport that is in use, and waits for its handshake. The protocol reads nothing meanwhile.
    If it fails, the transport is closed."""
    paused = not transport.is_reading()
    transport.pause_reading()
    try:
        async with asyncio.timeout(_HANDSHAKE_S if timeout_s is None else timeout_s):
            await transport.push(tls)
    except BaseException:
        transport.abort()
        raise
    if not paused:
        transport.resume_reading()
