"""The kernel's TLS (CONFIG_TLS), as tests need it: is it there, and has it been used?"""

from __future__ import annotations

import errno
import os
import socket
import struct
from pathlib import Path

STAT = Path("/proc/net/tls_stat")
_TCP_ULP, _SOL_TLS, _TLS_TX = 31, 282, 1
#: struct tls12_crypto_info_aes_gcm_128, of TLS 1.3, of zeros
_KEY = struct.pack("HH36x", 0x0304, 51)


def kernel_tls_reason() -> str:
    """Why this kernel does no TLS; empty: it does."""
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as near:
        far, _ = listener.accept()
        with far:
            try:
                near.setsockopt(socket.IPPROTO_TCP, _TCP_ULP, b"tls")
            except OSError as error:
                if error.errno != errno.ENOENT:
                    return f"this kernel's TLS does not work: {error.strerror}"
                return f"this kernel ({os.uname().release}) has no TLS"
    return ""


def kernel_changes_keys() -> bool:
    """Does a kernel that does TLS take another key of TLS 1.3 on a socket that has one? Linux does since 6.14."""
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as near:
        near.setsockopt(socket.IPPROTO_TCP, _TCP_ULP, b"tls")
        near.setsockopt(_SOL_TLS, _TLS_TX, _KEY)
        try:
            near.setsockopt(_SOL_TLS, _TLS_TX, _KEY)
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
            return False
    return True


def tls_stat() -> dict[str, int]:
    """The counters of /proc/net/tls_stat; empty where there is no TLS."""
    if not STAT.exists():
        return {}
    return {name: int(value) for name, value in (line.split() for line in STAT.read_text().splitlines())}
