"""One end of a TLS connection whose TLS is done by the proxy: fetches from an HTTPS server, or is one.

    tls_end.py fetch PORT       verifies `localhost` by the proxy's trust roots "test"
    tls_end.py visit PORT       the same, with ten connections, one after the other: which have resumed a session
    tls_end.py serve            with the identity "test"; prints its port, then serves until its input ends

Prints JSON, a line each: version, cipher, SHA-256 and length of the body.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import threading

import xts_socket
from xts_socket import Tls

BODY = bytes(range(256)) * 4096


def complete(answer: bytes) -> bool:
    """All that Content-Length says: some servers end without close_notify, which is an error here."""
    head, _, body = answer.partition(b"\r\n\r\n")
    length = re.search(rb"content-length: *(\d+)", head, re.IGNORECASE)
    return length is not None and len(body) >= int(length[1])


def fetch(port: int) -> None:
    tls = Tls(server_hostname="localhost", ca="test", alpn=("http/1.1",))
    with xts_socket.create_connection(("127.0.0.1", port), 20, tls=tls) as sock:
        sock.sendall(b"GET /body HTTP/1.0\r\nHost: localhost\r\n\r\n")
        answer = bytearray()
        while not complete(bytes(answer)) and (part := sock.recv(1 << 16)):
            answer += part
        head, _, body = bytes(answer).partition(b"\r\n\r\n")
        assert sock.tls is not None
        told = {"version": sock.tls.version(), "cipher": (sock.tls.cipher() or ("", "", 0))[0]}
        crypto = sock.tls.crypto
        told |= {"crypto": str(crypto), "status": head.split(b"\r\n")[0].decode()}
    print(json.dumps({**told, "bytes": len(body), "sha256": hashlib.sha256(body).hexdigest()}))


def visit(port: int) -> None:
    """A server of HTTP/1.0 says its tickets before its answer, if it has any; a thread of the proxy's reads them."""
    resumed = []
    tls = Tls(server_hostname="localhost", ca="test", alpn=("http/1.1",))
    for _ in range(10):
        with xts_socket.create_connection(("127.0.0.1", port), 20, tls=tls) as sock:
            sock.sendall(b"GET /body HTTP/1.0\r\nHost: localhost\r\n\r\n")
            answer = bytearray()
            while not complete(bytes(answer)) and (part := sock.recv(1 << 16)):
                answer += part
            assert sock.tls is not None
            resumed.append(sock.tls.session_reused)
    print(json.dumps({"resumed": resumed}))


def answer(sock: xts_socket.socket) -> None:
    with sock:
        request = b""
        while b"\r\n\r\n" not in request and (part := sock.recv(4096)):
            request += part
        head = f"HTTP/1.0 200 OK\r\nContent-Length: {len(BODY)}\r\nConnection: close\r\n\r\n"
        sock.sendall(head.encode() + BODY)
        sock.shutdown(xts_socket.SHUT_WR)
        while sock.recv(4096):  # until the client has gone, so that no reset overtakes the body
            pass


def serve() -> None:
    listener = xts_socket.create_server(("127.0.0.1", 0), tls=Tls(identity="test", alpn=("http/1.1",)))

    def accept() -> None:
        while True:
            sock, _ = listener.accept()
            threading.Thread(target=answer, args=(sock,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    print(json.dumps({"port": listener.getsockname()[1]}), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    if sys.argv[1] == "fetch":
        fetch(int(sys.argv[2]))
    elif sys.argv[1] == "visit":
        visit(int(sys.argv[2]))
    else:
        serve()
