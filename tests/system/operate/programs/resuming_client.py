"""A client with TLS in the proxy: resuming_client.py ADDRESS PORT. For each line of its input it connects, exchanges
four bytes, and says whether it has resumed a session."""

from __future__ import annotations

import sys

import xts_socket as socket
from xts_socket import Tls

for _ in sys.stdin:
    tls = Tls(server_hostname="localhost")
    with socket.create_connection((sys.argv[1], int(sys.argv[2])), 20, tls=tls) as connection:
        connection.sendall(b"four")
        answer = connection.recv(4)
        assert connection.tls and answer == b"four", answer
        print(connection.tls.session_reused, flush=True)
