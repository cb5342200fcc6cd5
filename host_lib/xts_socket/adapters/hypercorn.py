"""A configuration for hypercorn: `serve(app, XtsConfig())`, on an event loop of `xts_socket.aio`.

hypercorn binds its sockets itself, as its configuration says: here they are offloaded, at the device's addresses.
"""

from __future__ import annotations

import ssl
from typing import Any

from hypercorn.config import Config, Sockets

from .. import AF_INET, AF_INET6, create_server
from .._socket import socket
from .._tls_context import ssl_context
from ..layers import Tls


class XtsConfig(Config):
    """hypercorn.config.Config whose TCP binds are offloaded. One process; ValueError for binds that are not host:port,
    and for QUIC. `tls`: TLS is done in the proxy with these parameters, instead of here with `certfile` and
    `keyfile`."""

    tls: Tls | None = None

    @property
    def ssl_enabled(self) -> bool:
        return self.tls is not None or super().ssl_enabled

    def create_ssl_context(self) -> ssl.SSLContext | None:
        if self.tls is None:
            return super().create_ssl_context()
        context = ssl_context(self.tls)
        context.set_alpn_protocols(self.alpn_protocols)
        return context

    def create_sockets(self) -> Sockets:
        if self.quic_bind:
            raise ValueError("quic_bind: QUIC is not offloaded")
        secure = self.bind if self.ssl_enabled else []
        insecure = self.insecure_bind if self.ssl_enabled else self.bind
        sockets: list[list[Any]] = [[], []]
        try:
            for made, binds in zip(sockets, (secure, insecure), strict=True):
                made += [_bound(bind, self.backlog) for bind in binds]
        except BaseException:
            for sock in sockets[0] + sockets[1]:
                sock.close()
            raise
        return Sockets(sockets[0], sockets[1], [])


def _bound(bind: str, backlog: int) -> socket:
    host, _, port = bind.rpartition(":")
    if not host or not port.isdecimal() or host.startswith(("unix", "fd")):
        raise ValueError(f"bind {bind!r}: only host:port is offloaded")
    host = host.strip("[]")
    family = AF_INET6 if ":" in host else AF_INET
    sock = create_server((host, int(port)), family=family, backlog=backlog)
    sock.setblocking(False)
    return sock
