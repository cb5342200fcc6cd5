"""Programs that talk to an echo server in the network, and say whether their connection has outlived what happened."""

from __future__ import annotations

import socket
import ssl
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from xts_lab import topology
from xts_lab.free_ports import free_port

from beds.restarts import Place
from beds.upgrades import Upgrading, upgrading

#: Its child accepts, once a line has come, while the parent sleeps. It says its port. Argument: the address.
LATE_CHILD = """
import os, signal, socket, sys
server = socket.create_server((sys.argv[1], 0), backlog=128)
print(server.getsockname()[1], flush=True)
if os.fork():
    signal.pause()
sys.stdin.readline()
while True:
    connection, _ = server.accept()
    with connection:
        connection.sendall(connection.recv(4))
"""


@contextmanager
def echo_server(place: Place, tls: ssl.SSLContext | None = None) -> Iterator[int]:
    """In the network, of streams and of datagrams: its port."""
    with place.network():
        address = place.address if place.address == "127.0.0.1" else "0.0.0.0"
        server = socket.create_server((address, free_port(address)), backlog=512)
        datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        datagrams.bind(server.getsockname())

    def echo(connection: socket.socket) -> None:
        with connection if not tls else tls.wrap_socket(connection, server_side=True) as made:
            try:
                while data := made.recv(1 << 18):
                    made.sendall(data)
            except OSError:
                pass  # the program says what it has seen

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            threading.Thread(target=echo, args=(connection,), daemon=True).start()

    def answer_datagrams() -> None:
        while True:
            data, sender = datagrams.recvfrom(64)
            if not data:
                return
            datagrams.sendto(data, sender)

    answering = threading.Thread(target=answer_datagrams, daemon=True)
    answering.start()
    threading.Thread(target=serve, daemon=True).start()
    try:
        yield server.getsockname()[1]
    finally:
        datagrams.sendto(b"", (peer_address(place), server.getsockname()[1]))
        answering.join(5)
        datagrams.close()
        server.shutdown(socket.SHUT_RDWR)
        server.close()


def peer_address(place: Place) -> str:
    return place.address if place.address == "127.0.0.1" else str(topology.NET.addresses[0].ip)


@contextmanager
def upgrading_with_server(kind: str, backlog: int, timeout_s: float) -> Iterator[tuple[Upgrading, socket.socket]]:
    """As upgrading(), in a folder of its own; and a server where programs of that place find their peers."""
    with tempfile.TemporaryDirectory(prefix="xts-upgrade-") as name, ExitStack() as stack:
        folder = Path(name)
        folder.chmod(0o755)
        where = stack.enter_context(upgrading(kind, folder))
        with where.place.network():
            server = stack.enter_context(socket.create_server((peer_address(where.place), 0), backlog=backlog))
        server.settimeout(timeout_s)
        yield where, server


DIALOGUE = """
import os, sys, time
import xts_socket as socket

def exchange(connection):
    request, answer = os.urandom(64), b""
    connection.sendall(request)
    while len(answer) < len(request) and (more := connection.recv(1000)):
        answer += more
    assert answer == request

how = {"tls": socket.Tls(server_hostname="localhost")} if sys.argv[3:] else {}
old = socket.create_connection((sys.argv[1], int(sys.argv[2])), **how)
exchange(old)
print("up", flush=True)
for line in sys.stdin:
    try:
        exchange(old)
        print("goes on", flush=True)
    except ConnectionResetError:
        old = socket.create_connection((sys.argv[1], int(sys.argv[2])), **how)
        exchange(old)
        print("again", flush=True)
"""


def _exchanges(process: subprocess.Popen[str]) -> Callable[[], str]:
    """Waits until the program is up. What is returned has one more exchange made, and says how it went."""
    assert process.stdin and process.stdout and process.stdout.readline() == "up\n"
    stdin, stdout = process.stdin, process.stdout

    def ask() -> str:
        stdin.write("\n")
        stdin.flush()
        return stdout.readline().strip()

    return ask


@contextmanager
def dialogue(where: Upgrading, tls: ssl.SSLContext | None = None) -> Iterator[Callable[[], str]]:
    """A program with a connection, to a peer with TLS or without. What is called says how its next exchange went."""
    arguments = ["tls"] if tls else []
    with (
        echo_server(where.place, tls) as port,
        where.place.program(
            ["-c", DIALOGUE, peer_address(where.place), str(port), *arguments], interposed=False
        ) as process,
    ):
        yield _exchanges(process)


#: A program with a connection that cannot move to another proxy: its keys are those that the program has pushed. Both
#: directions have the same ones, so that an echo can be read.
PUSHES = """
import struct, sys
import xts_socket as socket
kept = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
kept.connect((sys.argv[1], int(sys.argv[2])))
keys = struct.pack("=HH8s16s4s8s", 0x0304, 51, bytes(8), bytes(16), bytes(4), bytes(8))
for direction in ("receive", "send"):
    kept.push(socket.TlsKeys(crypto_info=keys, crypto="user"), direction=direction)
print("up", flush=True)
for line in sys.stdin:
    kept.send(b"0123")
    print("goes on" if kept.recv(100) == b"0123" else "another answer", flush=True)
"""


@contextmanager
def unmovable(where: Upgrading) -> Iterator[Callable[[], str]]:
    """That program. What is called says how its next exchange went."""
    with (
        echo_server(where.place) as port,
        where.place.program(["-c", PUSHES, peer_address(where.place), str(port)], interposed=False) as process,
    ):
        yield _exchanges(process)
