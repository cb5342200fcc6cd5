"""What peers hear of servers with several processes that are killed (programs/killed_group.py), and when."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from beds.interposed_place import Place
from beds.ready import readable
from system.interposer.programs.killed_group import CONNECTIONS, TAKEN

PROGRAM = str(Path(__file__).with_name("programs") / "killed_group.py")
PATIENCE_S = 30.0
#: With the kernel it is at once. What has nobody any more would else be kept for a minute.
SOON_S = 5.0


Connect = Callable[[int], socket.socket]


@pytest.fixture
def connect(place: Place) -> Iterator[Connect]:
    with ExitStack() as undo:
        yield lambda port: undo.enter_context(place.client(port))


def port_of(program: subprocess.Popen[bytes]) -> int:
    """The next one that it prints."""
    assert program.stdout
    assert readable(program.stdout, PATIENCE_S)
    return int(program.stdout.readline())


def said(connection: socket.socket) -> str:
    connection.settimeout(PATIENCE_S)
    line = b""
    while not line.endswith(b"\n"):
        got = connection.recv(1)
        assert got, line
        line += got
    return line.decode().strip()


def answered(connection: socket.socket) -> int:
    """By which process."""
    connection.sendall(b"?")
    return int(said(connection))


def has_ended(connection: socket.socket, until: float) -> bool:
    connection.settimeout(max(0.01, until - time.monotonic()))
    try:
        return not connection.recv(1)
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False


def still_there(connections: Iterable[socket.socket], seconds: float) -> int:
    until = time.monotonic() + seconds
    return sum(not has_ended(connection, until) for connection in connections)


def test_all_are_killed_at_once(place: Place, connect: Connect) -> None:
    """In a chain of forks and an exec; connections that only their process has used, and some that moved."""
    with place.start([sys.executable, PROGRAM, "all"]) as program:
        clients: list[socket.socket] = []
        chain = []
        for _ in range(4):
            port = port_of(program)
            more = [connect(port) for _ in range(CONNECTIONS)]
            chain.append({answered(client) for client in more})
            clients += more
        assert [len(numbers) for numbers in chain] == [1] * 4, chain
        assert len(set.union(*chain)) == 4, chain
        assert {answered(client) for client in clients[:TAKEN]} == chain[3]
        os.killpg(program.pid, signal.SIGKILL)
        assert not still_there(clients, SOON_S)


def test_one_is_killed_just_after_the_other_has_closed(place: Place, connect: Connect) -> None:
    """The other one goes on, and keeps what it has not closed."""
    with place.start([sys.executable, PROGRAM, "closer"]) as program:
        port = port_of(program)
        clients = [connect(port) for _ in range(CONNECTIONS)]
        parent = {answered(client) for client in clients}
        own = connect(port)
        assert {answered(own)} == parent
        (child,) = {answered(client) for client in clients}
        assert answered(own) == program.pid
        assert said(own) == "closed"
        os.kill(child, signal.SIGKILL)
        assert not still_there(clients, SOON_S)
        assert answered(own) == program.pid


def test_a_survivor_keeps_all(place: Place, connect: Connect) -> None:
    with place.start([sys.executable, PROGRAM, "survivor"]) as program:
        port = port_of(program)
        clients = [connect(port) for _ in range(CONNECTIONS)]
        assert {answered(client) for client in clients} == {program.pid}
        assert {answered(client) for client in clients} == {program.pid}
        children = Path(f"/proc/{program.pid}/task/{program.pid}/children").read_text().split()
        assert len(children) == 2
        for child in children:
            os.kill(int(child), signal.SIGKILL)
        assert still_there(clients, 1.0) == CONNECTIONS
        assert {answered(client) for client in clients} == {program.pid}
