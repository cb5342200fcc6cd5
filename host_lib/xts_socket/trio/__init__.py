"""Offloaded sockets for trio: `open_tcp_stream`, `open_tcp_listeners` and `serve_tcp` with trio's signatures.

Streams and listeners have the interfaces of trio's, so that `trio.SSLStream`, `trio.serve_listeners` and similar
functions work on them. All waits of a run share one kernel descriptor. Code that calls trio's own functions is
offloaded for a run with

    trio.socket.set_custom_socket_factory(xts_socket.trio.SocketFactory())

which costs a descriptor for each stream.

Control calls (bind, listen, options, addresses) wait for the proxy's answer, which takes microseconds, as system calls
do; sending, receiving, accepting and connecting never block the run. Needs the package `trio`.
"""

from __future__ import annotations

from ._socket import SocketFactory, SocketType, from_xts_socket, socket
from ._stream import SocketListener, SocketStream
from ._tcp import open_tcp_listeners, open_tcp_stream, serve_tcp

__all__ = [
    "SocketFactory",
    "SocketListener",
    "SocketStream",
    "SocketType",
    "from_xts_socket",
    "open_tcp_listeners",
    "open_tcp_stream",
    "serve_tcp",
    "socket",
]
