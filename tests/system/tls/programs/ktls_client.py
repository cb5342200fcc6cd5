"""An unmodified program with kernel TLS: Python's ssl, which hands its keys to the kernel where it is told to
(SSL_OP_ENABLE_KTLS). Sends and receives so many bytes of an echo server, and prints which ways have keys: "tx", "rx".

    python ktls_client.py PORT CERTIFICATE VERSION CIPHERS BYTES
"""

from __future__ import annotations

import socket
import ssl
import sys

from beds.tls_exchange import exchange

SOL_TLS, TLS_TX, TLS_RX = 282, 1, 2
OP_ENABLE_KTLS = 8


def has_keys(s: socket.socket, option: int) -> bool:
    try:
        return len(s.getsockopt(SOL_TLS, option, 4)) == 4
    except OSError:
        return False


def main(port: int, certificate: str, version: str, ciphers: str, size: int) -> None:
    context = ssl.create_default_context(cafile=certificate)
    context.minimum_version = context.maximum_version = ssl.TLSVersion[version]
    if ciphers:
        context.set_ciphers(ciphers)
    context.options |= OP_ENABLE_KTLS
    data = bytes(range(256)) * (size // 256)
    with (
        socket.create_connection(("127.0.0.1", port)) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as s,
    ):
        assert exchange(s, data) == data
        print(*(name for name, option in (("tx", TLS_TX), ("rx", TLS_RX)) if has_keys(s, option)))
        s.unwrap()  # close_notify both ways


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4], int(sys.argv[5]))
