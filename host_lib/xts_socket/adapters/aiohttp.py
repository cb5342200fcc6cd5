"""A connector for aiohttp: `aiohttp.ClientSession(connector=XtsConnector())`, on an event loop of `xts_socket.aio`.

aiohttp asks its connector for sockets and its loop for transports: this module makes the sockets, from which
`EventLoop` or `UvloopEventLoop` make transports of ours. aiohttp's servers need only the loop.
"""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp

from .._socket import socket
from .._tls_context import ssl_context
from ..aio._loop import Offloading
from ..layers import Tls


def _socket(info: tuple[Any, ...]) -> Any:
    """A socket for an address in the form of getaddrinfo()."""
    family, kind, proto, _, _ = info
    sock = socket(family, kind, proto)
    sock.setblocking(False)
    return sock


class XtsConnector(aiohttp.TCPConnector):
    """aiohttp.TCPConnector, with its arguments, and with offloaded connections.

    tls: the proxy does TLS, with these parameters, or (True) those of a client that checks the server's certificate; a
    request's own `ssl` takes precedence. RuntimeError on another event loop: run the program with
    `asyncio.Runner(loop_factory=xts_socket.aio.EventLoop)`.
    """

    def __init__(self, *, tls: Tls | bool = False, **options: Any) -> None:
        loop = asyncio.get_running_loop()
        if not isinstance(loop, Offloading):
            raise RuntimeError(
                f"XtsConnector needs an event loop of xts_socket.aio, not {type(loop).__name__}: run the program with "
                "asyncio.Runner(loop_factory=xts_socket.aio.EventLoop)"
            )
        if tls:
            options["ssl"] = ssl_context(tls)
        super().__init__(socket_factory=_socket, **options)
