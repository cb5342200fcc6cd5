"""A server whose TLS is the proxy's: answers with what it gets."""

import sys

import xts_socket
from xts_socket import Tls

server = xts_socket.create_server((sys.argv[1], int(sys.argv[2])), tls=Tls(identity="web"))
print("up", flush=True)
while True:
    connection, _ = server.accept()
    with connection:
        while data := connection.recv(1 << 16):
            connection.sendall(data)
