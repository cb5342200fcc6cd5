"""A server whose socket gets a new key of which the proxy has not heard, as by a child that is killed just then. A
child that comes afterwards joins the socket. It prints how many clients were served. Argument: one of KINDS."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

HERE = os.environ["LISTEN_AT"]
PATIENCE_S = 10.0
KEY_AT = 16  # in a deed (host_lib/native/processes/deed.c)


def serve(listener: socket.socket, says: int) -> None:
    """A child: it answers clients until SIGTERM."""
    signal.signal(signal.SIGTERM, lambda _number, _frame: os._exit(0))
    listener.settimeout(0)
    with suppress(BlockingIOError):
        listener.accept()
    os.write(says, b".")
    listener.settimeout(PATIENCE_S)
    while True:
        connection, _ = listener.accept()
        with connection:
            connection.sendall(b"served")


def child(listener: socket.socket) -> int:
    """Once it has joined the listener, or cannot."""
    reads, says = os.pipe()
    if not (made := os.fork()):
        try:
            serve(listener, says)
        finally:
            os._exit(1)
    os.close(says)
    os.read(reads, 1)
    os.close(reads)
    return made


def end(one: int) -> None:
    os.kill(one, signal.SIGTERM)
    os.waitpid(one, 0)


def is_served(listener: socket.socket) -> bool:
    with socket.create_connection(listener.getsockname(), timeout=PATIENCE_S) as client:
        try:
            return client.recv(6, socket.MSG_WAITALL) == b"served"
        except OSError:
            return False


def deeds() -> list[int]:
    found = []
    for place in Path("/proc/self/fd").iterdir():
        if place.is_symlink() and "xts-deed" in str(place.readlink()):
            found.append(os.open(place, os.O_RDWR))
    return found


def another_key() -> None:
    for deed in deeds():
        os.pwrite(deed, os.urandom(8), KEY_AT)
        os.close(deed)


def listener() -> int:
    """The child serves: of one client before and one after, how many were served?"""
    with socket.create_server((HERE, 0), backlog=64) as listener:
        first = child(listener)
        served = is_served(listener)
        another_key()
        second = child(listener)
        end(first)
        served += is_served(listener)
        end(second)
    return served


@contextmanager
def joined(*sockets: socket.socket) -> Iterator[None]:
    """A child that has looked at the socket once, and then takes nothing: what comes is for its parent."""
    reads, says = os.pipe()
    ends, tells = os.pipe()
    if not (made := os.fork()):
        for one in sockets:
            one.settimeout(0)
            with suppress(BlockingIOError):
                one.accept() if one.type == socket.SOCK_STREAM else one.recv(100)
        os.write(says, b".")
        os.close(tells)
        os.read(ends, 1)
        os._exit(0)
    assert os.read(reads, 1) == b"."
    try:
        yield
    finally:
        os.close(tells)
        _, status = os.waitpid(made, 0)
        assert status == 0, status


def reuseport() -> int:
    """Two listeners could have the address. Of ten clients, how many were served?"""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind((HERE, 0))
        listener.listen(64)
        listener.settimeout(PATIENCE_S)
        with joined(listener):
            pass
        another_key()
        served = 0
        with joined(listener):
            for _ in range(10):
                with socket.create_connection(listener.getsockname(), timeout=PATIENCE_S):
                    with suppress(TimeoutError):
                        listener.accept()[0].close()
                        served += 1
    return served


def datagrams(*options: int) -> int:
    """Of ten datagrams, how many came?"""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server, socket.socket(type=socket.SOCK_DGRAM) as client:
        for option in options:
            server.setsockopt(socket.SOL_SOCKET, option, 1)
        server.bind((HERE, 0))
        server.settimeout(1)
        with joined(server):
            pass
        another_key()
        came = 0
        with joined(server):
            for _ in range(10):
                client.sendto(b"x", server.getsockname())
                with suppress(TimeoutError):
                    came += len(server.recv(100))
    return came


def answers(bind: bool = True) -> int:
    """The child answers from the port to which it was sent: as a socket that it would have made again could not.
    `bind`: else the device chooses the port, when something is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server, socket.socket(type=socket.SOCK_DGRAM) as client:
        if bind:
            server.bind((HERE, 0))
        else:
            server.sendto(b"to nobody", (HERE, 9))
        client.connect((HERE, server.getsockname()[1]))
        client.settimeout(PATIENCE_S)
        with joined(server):
            pass
        served = 0
        for _ in range(10):
            client.send(b"x")
            another_key()
            if not (made := os.fork()):
                data, sender = server.recvfrom(100)
                os._exit(0 if server.sendto(data, sender) == 1 else 1)
            with suppress(TimeoutError):
                served += len(client.recv(100))
            assert os.waitpid(made, 0)[1] == 0
    return served


def bound() -> int:
    """A child listens at what its parent has bound. Was its client served?"""
    with socket.socket() as server:
        server.bind((HERE, 0))
        reads, says = os.pipe()
        if not (first := os.fork()):
            server.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
            os.write(says, b".")
            signal.pause()
        os.read(reads, 1)
        another_key()
        if not (second := os.fork()):
            server.listen(8)
            os.write(says, b".")
            server.accept()[0].sendall(b"served")
            os._exit(0)
        os.read(reads, 1)
        served = int(is_served(server))
        end(first)
        os.waitpid(second, 0)
    return served


KINDS = {
    "listener": listener,
    "reuseport": reuseport,
    "datagrams": datagrams,
    "reuseaddr_datagrams": lambda: datagrams(socket.SO_REUSEADDR),
    "reuseport_datagrams": lambda: datagrams(socket.SO_REUSEPORT),
    "answers": answers,
    "answers_from_chosen": lambda: answers(bind=False),
    "bound": bound,
}

if __name__ == "__main__":
    print(KINDS[sys.argv[1]]())
