"""Offloaded sockets for anyio, on asyncio and on trio: `connect_tcp`, `create_tcp_listener`, `create_udp_socket` and
`create_connected_udp_socket` with anyio's signatures.

Streams and listeners are `anyio.abc.SocketStream` and `anyio.abc.SocketListener`, with their typed attributes;
TLS is anyio's `TLSStream`, or with `Tls()` the proxy's. All waits of an event loop share one kernel descriptor. Needs
the package `anyio`.
"""

from __future__ import annotations

from ._stream import SocketListener, SocketStream
from ._tcp import connect_tcp, create_tcp_listener
from ._udp import ConnectedUDPSocket, UDPSocket, create_connected_udp_socket, create_udp_socket

__all__ = [
    "ConnectedUDPSocket",
    "SocketListener",
    "SocketStream",
    "UDPSocket",
    "connect_tcp",
    "create_connected_udp_socket",
    "create_tcp_listener",
    "create_udp_socket",
]
