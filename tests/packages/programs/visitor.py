"""Keeps a connection to a web server open: asks again for each line it reads, and prints whether it was answered."""

import socket
import sys

host, port = sys.argv[1], int(sys.argv[2])
REQUEST = f"GET / HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()
TIMEOUT_S = 20


def answered(connection: socket.socket) -> bool:
    try:
        connection.sendall(REQUEST)
        return connection.recv(65536).startswith(b"HTTP/1.1 200")
    except OSError:
        return False


with socket.create_connection((host, port), TIMEOUT_S) as visit:
    print("answered" if answered(visit) else "refused", flush=True)
    for _ in sys.stdin:
        print("answered" if answered(visit) else "ended", flush=True)
