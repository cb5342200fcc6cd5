"""What a host does in one round of memory.py: `host PEER PORT TLS_PORT KIND` as a process that attaches, and
`peer CERTIFICATE` as everybody it talks to."""

from __future__ import annotations

import os
import socket as kernel
import ssl
import sys
import threading
import time
from collections.abc import Callable

from beds.patience import SLOWER

CONNECTIONS = 600
LISTENERS = 50
BULK_BYTES = 8 << 20
STALLED = 40
HANDSHAKES = 40
DEADLINE_S = 30.0 * SLOWER
STALL_S = 4.0
DATAGRAM_SOCKETS = 30
DATAGRAMS = 50
STEADY_CONNECTIONS = 100
STEADY_PAUSE_S = 0.02

#: What a client asks for, by its first byte.
ECHO, SINK, SOURCE, STALL = b"e", b"s", b"g", b"w"


# --- the peer ------------------------------------------------------------------------------------------


def serve(s: kernel.socket) -> None:
    with s:
        what = s.recv(1)
        if what == SOURCE:
            for _ in range(BULK_BYTES >> 16):
                s.sendall(bytes(1 << 16))
        elif what == SINK:
            left = BULK_BYTES
            while left and (data := s.recv(1 << 16)):
                left -= len(data)
            s.sendall(b"!")
        elif what == STALL:
            time.sleep(STALL_S)
            while s.recv(1 << 16):
                pass
        else:
            while data := s.recv(1 << 16):
                s.sendall(data)


def accepting(listener: kernel.socket, wrap: Callable[[kernel.socket], kernel.socket]) -> None:
    def one(s: kernel.socket) -> None:
        try:
            serve(wrap(s))
        except OSError:
            s.close()

    while True:
        threading.Thread(target=one, args=(listener.accept()[0],), daemon=True).start()


def datagrams(s: kernel.socket) -> None:
    """Answers each one with the same."""
    while True:
        data, address = s.recvfrom(1 << 16)
        s.sendto(data, address)


def peer(certificate: str) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    threading.stack_size(1 << 18)
    ports = []
    wraps: list[Callable[[kernel.socket], kernel.socket]] = [
        lambda s: s,
        lambda s: context.wrap_socket(s, server_side=True),
    ]
    for wrap in wraps:
        listener = kernel.create_server(("", 0), backlog=2048)
        ports.append(listener.getsockname()[1])
        threading.Thread(target=accepting, args=(listener, wrap), daemon=True).start()
    udp = kernel.socket(kernel.AF_INET, kernel.SOCK_DGRAM)
    udp.bind(("", ports[0]))
    threading.Thread(target=datagrams, args=(udp,), daemon=True).start()
    print(*ports, flush=True)
    for line in sys.stdin:  # connect to a host's listener, twenty times
        host, port = line.split()
        for _ in range(20):
            with kernel.create_connection((host, int(port)), DEADLINE_S) as s:
                s.sendall(b"hello")
                s.recv(5)
        print("done", flush=True)


# --- the host ------------------------------------------------------------------------------------------


def exchange_datagrams(address: str, port: int) -> None:
    import xts_socket as socket

    made = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(DATAGRAM_SOCKETS)]
    for s in made:
        s.connect((address, port))
        s.settimeout(DEADLINE_S)
        for size in range(0, 1400, 1400 // DATAGRAMS):
            s.send(bytes(size))
            s.recv(1 << 16)
    for s in made:
        s.close()


def stay(address: str, port: int) -> None:
    """Uses connections until it is killed."""
    import xts_socket as socket

    made = [socket.create_connection((address, port)) for _ in range(STEADY_CONNECTIONS)]
    for s in made:
        s.sendall(ECHO)
    print("busy", flush=True)
    while True:
        for s in made:
            s.sendall(b"x" * 1000)
            left = 1000
            while left:
                left -= len(s.recv(left))
        time.sleep(STEADY_PAUSE_S)


def host(address: str, port: int, tls_port: int, kind: str) -> None:
    import xts_socket as socket
    from xts_socket import Tls

    def connect(what: bytes) -> socket.socket:
        s = socket.create_connection((address, port))
        s.sendall(what)
        return s

    def many() -> None:
        made = [connect(ECHO) for _ in range(CONNECTIONS)]
        for s in made:
            s.sendall(b"x" * 100)
        for s in made:
            s.recv(100)
            s.close()

    def bulk() -> None:
        with connect(SINK) as s:
            for _ in range(BULK_BYTES >> 16):
                s.sendall(bytes(1 << 16))
            assert s.recv(1) == b"!"
        with connect(SOURCE) as s:
            left = BULK_BYTES
            while left:
                left -= len(s.recv(1 << 18))

    def stalled() -> None:
        made = [connect(STALL) for _ in range(STALLED)]
        for s in made:
            s.setblocking(False)
        for _ in range(20):
            for s in made:
                try:
                    s.send(bytes(1 << 16))
                except (BlockingIOError, ConnectionError):
                    continue
        if kind == "killed":
            os.kill(os.getpid(), 9)
        for s in made:
            s.close()

    def tls() -> None:
        for _ in range(HANDSHAKES):
            with socket.create_connection((address, tls_port), tls=Tls(server_hostname="localhost", ca="lab")) as s:
                s.sendall(b"e" + bytes(20_000))
                s.recv(1 << 16)

    def listeners() -> None:
        made = [socket.create_server(("0.0.0.0", 0)) for _ in range(LISTENERS)]
        print(made[0].getsockname()[1], flush=True)
        for _ in range(20):
            s, _ = made[0].accept()
            s.sendall(s.recv(5))
            s.close()
        for each in made:
            each.close()

    for step in (many, bulk, tls, lambda: exchange_datagrams(address, port), listeners, stalled):
        step()


if __name__ == "__main__":
    if sys.argv[1] == "peer":
        peer(sys.argv[2])
    elif sys.argv[5] == "steady":
        stay(sys.argv[2], int(sys.argv[3]))
    else:
        host(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5])
