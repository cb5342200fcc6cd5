"""Kernel TLS, which TLS offload needs on the proxy's machine: tried on a connection over loopback."""

from __future__ import annotations

import socket
from collections.abc import Iterator

from . import Check, read_text

_TCP_ULP = 31


def checks() -> Iterator[Check]:
    try:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            with socket.create_connection(listener.getsockname(), timeout=5) as connection:
                listener.settimeout(5)
                accepted, _ = listener.accept()
                with accepted:  # while it is open: a connection that has ended takes no protocol
                    yield _attempt(connection)
    except OSError as failure:
        yield Check("kernel TLS", "warn", f"not tried: no loopback here ({failure.strerror or failure})")


def _attempt(connection: socket.socket) -> Check:
    try:
        connection.setsockopt(socket.IPPROTO_TCP, _TCP_ULP, b"tls")
    except FileNotFoundError:
        there = read_text("/proc/sys/net/ipv4/tcp_available_ulp") or "none"
        return Check(
            "kernel TLS",
            "warn",
            f"not available (protocols over TCP here: {there})",
            "modprobe tls (CONFIG_TLS)",
        )
    except OSError as failure:
        return Check("kernel TLS", "warn", f"refused: {failure.strerror}")
    return Check("kernel TLS", "ok", "available")
