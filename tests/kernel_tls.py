"""The kernel's TLS (CONFIG_TLS), as tests need it: is it there, and has it been used?"""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path

STAT = Path("/proc/net/tls_stat")


def kernel_tls_reason() -> str:
    """Why this kernel does no TLS; empty: it does."""
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as near:
        far, _ = listener.accept()
        with far:
            try:
                near.setsockopt(socket.IPPROTO_TCP, 31, b"tls")  # TCP_ULP
            except OSError as error:
                if error.errno != errno.ENOENT:
                    return f"this kernel's TLS does not work: {error.strerror}"
                return f"this kernel ({os.uname().release}) has no TLS"
    return ""


def tls_stat() -> dict[str, int]:
    """The counters of /proc/net/tls_stat; empty where there is no TLS."""
    if not STAT.exists():
        return {}
    return {name: int(value) for name, value in (line.split() for line in STAT.read_text().splitlines())}
