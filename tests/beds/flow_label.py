"""Connections over IPv6 with a flow label of the program's choice (ipv6(7), linux/in6.h)."""

from __future__ import annotations

import socket
import struct

_FLOWLABEL_MGR, _FLOWINFO_SEND = 32, 33
_GET, _SHARE_ANY, _CREATE = 0, 255, 1
_REQUEST = struct.Struct("=16sIBBHHHI")


def connect_with_label(sock: socket.socket, address: str, port: int, label: int) -> None:
    """Connects; all packets of the connection have the label."""
    request = _REQUEST.pack(
        socket.inet_pton(socket.AF_INET6, address), socket.htonl(label), _GET, _SHARE_ANY, _CREATE, 0, 0, 0
    )
    sock.setsockopt(socket.IPPROTO_IPV6, _FLOWLABEL_MGR, request)
    sock.setsockopt(socket.IPPROTO_IPV6, _FLOWINFO_SEND, 1)
    sock.connect((address, port, label, 0))
