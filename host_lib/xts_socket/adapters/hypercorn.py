"""A configuration for hypercorn: `serve(app, XtsConfig())`, on an event loop of `xts_socket.aio`.

hypercorn binds its sockets itself, according to its configuration: with this one they are offloaded, at the device's
addresses.
"""

from __future__ import annotations

import ssl
from dataclasses import replace
from typing import Any

from hypercorn.config import Config, Sockets

from .. import AF_INET, AF_INET6, create_server
from .._socket import socket
from .._tls_context import ssl_context
from ..layers import Tls


class XtsConfig(Config):
    """hypercorn.config.Config whose TCP binds are offloaded. One process; ValueError for binds that are not host:port,
    and for QUIC. `tls`: the proxy does TLS with these parameters, instead of this process with `certfile` and
    `keyfile`."""

    tls: Tls | None = None

    @property
    def ssl_enabled(self) -> bool:
        return self.tls is not None or super().ssl_enabled

    def create_ssl_context(self) -> ssl.SSLContext | None:
        tls = self._offloaded()
        return super().create_ssl_context() if tls is None else ssl_context(tls)

    def _offloaded(self) -> Tls | None:
        """The TLS to push, with the protocols that hypercorn supports."""
        if self.tls is None or self.tls.alpn:
            return self.tls
        return replace(self.tls, alpn=self.alpn_protocols)

    def create_sockets(self) -> Sockets:
        if self.quic_bind:
            raise ValueError("quic_bind: QUIC is not offloaded")
        secure = self.bind if self.ssl_enabled else []
        insecure = self.insecure_bind if self.ssl_enabled else self.bind
        sockets: list[list[Any]] = [[], []]
        try:
            for made, binds, tls in zip(sockets, (secure, insecure), (self._offloaded(), None), strict=True):
                made += [_bound(bind, self.backlog, tls) for bind in binds]
        except BaseException:
            for sock in sockets[0] + sockets[1]:
                sock.close()
            raise
        return Sockets(sockets[0], sockets[1], [])


def _bound(bind: str, backlog: int, tls: Tls | None) -> socket:
    host, _, port = bind.rpartition(":")
    if not host or not port.isdecimal() or host.startswith(("unix", "fd")):
        raise ValueError(f"bind {bind!r}: only host:port is offloaded")
    host = host.strip("[]")
    family = AF_INET6 if ":" in host else AF_INET
    sock = create_server((host, int(port)), family=family, backlog=backlog, tls=tls)
    sock.setblocking(False)
    return sock
