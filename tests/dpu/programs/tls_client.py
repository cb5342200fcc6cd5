"""A client whose TLS is the proxy's: with each line that comes it asks once, and says the version and what came."""

import sys

import xts_socket
from xts_socket import Tls

host, port = sys.argv[1], int(sys.argv[2])
tls = Tls(server_hostname="localhost")
with xts_socket.create_connection((host, port), 60, tls=tls) as connection:
    connection.settimeout(60)
    print(connection.tls.version(), connection.tls.crypto.send, flush=True)
    for _ in sys.stdin:
        connection.sendall(b"over TLS " * 1000)
        came = b""
        while len(came) < 9000 and (more := connection.recv(1 << 16)):
            came += more
        print("answered" if came == b"over TLS " * 1000 else f"{len(came)} bytes", flush=True)
