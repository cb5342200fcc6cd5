"""A server with TLS in the proxy, pushed onto its listener: upgraded_tls_server.py ADDRESS [verifies]. It says its
port, and echoes four bytes of each connection, one after the other. It says what accept() fails with."""

from __future__ import annotations

import sys

import xts_socket as socket
from xts_socket import Tls

listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
listener.bind((sys.argv[1], 0))
wants = {"verify": True, "ca": "default"} if sys.argv[2:] == ["verifies"] else {}
listener.push(Tls(identity="own", role="server", **wants))
listener.listen(64)
print(listener.getsockname()[1], flush=True)
while True:
    try:
        connection, _ = listener.accept()
    except OSError as error:
        print(error.strerror, flush=True)
        continue
    with connection:
        connection.sendall(connection.recv(4))
