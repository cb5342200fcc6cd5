"""TLS over our transports: the standard library's own TLS protocol (ssl.MemoryBIO inside), which needs nothing of a
loop but its public methods and so is the same on every loop."""

from __future__ import annotations

import asyncio
import ssl
from asyncio import sslproto
from typing import Any

from .._socket import socket
from ._transport import Transport


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
    """What the protocol is to write to: a plain transport, or with `tls` one of TLS (`context` None: the client's
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


async def start_tls(
    transport: asyncio.WriteTransport,
    protocol: asyncio.BaseProtocol,
    sslcontext: ssl.SSLContext,
    *,
    server_side: bool = False,
    server_hostname: str | None = None,
    ssl_handshake_timeout: float | None = None,
    ssl_shutdown_timeout: float | None = None,
    loop: asyncio.AbstractEventLoop | None = None,
) -> asyncio.Transport:
    """loop.start_tls() for a transport of ours, on any loop: returns the transport to use from now on."""
    if not isinstance(sslcontext, ssl.SSLContext):
        raise TypeError(f"sslcontext is expected to be an instance of ssl.SSLContext, got {sslcontext!r}")
    if not getattr(transport, "_start_tls_compatible", False):
        raise TypeError(f"transport {transport!r} is not supported by start_tls()")
    loop = loop or asyncio.get_running_loop()
    waiter: asyncio.Future[None] = loop.create_future()
    inner = sslproto.SSLProtocol(
        loop,
        protocol,
        sslcontext,
        waiter,
        server_side,
        server_hostname,
        call_connection_made=False,
        ssl_handshake_timeout=ssl_handshake_timeout,  # type: ignore[arg-type]
        ssl_shutdown_timeout=ssl_shutdown_timeout,
    )
    # Until the TLS protocol has been told of its transport, it must not be given data.
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
