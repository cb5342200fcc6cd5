"""The workers die, and of a connection's last bytes the counts alone do not tell everything: its program has closed it,
or its peer has sent urgent data, which reading skips (PROTOCOL.md, "Crash")."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import IO

import pytest
from beds.crashes import Crashing, crashing
from beds.dialogues import peer_address
from beds.ready import readable
from beds.restarts import Place

KINDS = ["shm", *(pytest.param(kind, marks=[pytest.mark.root, pytest.mark.afxdp]) for kind in ("afxdp", "relay"))]
SENT = 5000
PATIENCE_S = 20.0

#: Does what each line says, and answers with a line.
PROGRAM = """
import errno, socket, sys
server = sys.argv[1], int(sys.argv[2])
connection = socket.create_connection(server)
print("connected", flush=True)
for line in sys.stdin:
    what = line.strip()
    try:
        if what == "read":
            said = connection.recv(100).decode()
        elif what == "call":
            socket.create_connection(server).close()
            said = ""
        else:
            connection.sendall(b"x" * int(what))
            connection.close()
            said = ""
    except OSError as error:
        said = errno.errorcode[error.errno]
    print(said, flush=True)
"""


@contextmanager
def listening(place: Place) -> Iterator[socket.socket]:
    with place.network():
        made = socket.socket()
    with made:
        made.bind((peer_address(place), 0))
        made.listen()
        made.settimeout(PATIENCE_S)
        yield made


def line(stream: IO[str] | None) -> str:
    assert stream
    assert readable(stream, PATIENCE_S)
    return stream.readline().rstrip("\n")


def does(process: subprocess.Popen[str], what: str) -> str:
    assert process.stdin
    process.stdin.write(f"{what}\n")
    process.stdin.flush()
    return line(process.stdout)


@contextmanager
def connected(where: Crashing) -> Iterator[tuple[subprocess.Popen[str], socket.socket]]:
    """The program, and the peer's end of its connection."""
    with listening(where.place) as server:
        arguments = ["-c", PROGRAM, peer_address(where.place), str(server.getsockname()[1])]
        with where.place.program(arguments) as process:
            peer, _ = server.accept()
            with peer:
                peer.settimeout(PATIENCE_S)
                assert line(process.stdout) == "connected"
                yield process, peer


def everything(peer: socket.socket) -> int:
    count = 0
    while data := peer.recv(1 << 16):
        count += len(data)
    return count


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_sent_before_a_close_arrives(kind: str) -> None:
    """The workers see neither: they are stopped, and then die. The program goes on with something else."""
    with crashing(kind) as where, connected(where) as (process, peer):
        where.crash(signal.SIGKILL, lambda _: does(process, str(SENT)))
        assert does(process, "call") == ""
        assert everything(peer) == SENT


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("was_read", [True, False], ids=["read", "unread"])
def test_no_byte_is_made_up_for_urgent_data(kind: str, was_read: bool) -> None:
    """The kernel counts the byte that was skipped, and the program has not got it. So nobody knows any more whether all
    is there: the connection is reset."""
    with crashing(kind) as where, connected(where) as (process, peer):
        peer.sendall(b"before")
        peer.send(b"!", socket.MSG_OOB)
        peer.sendall(b"after")
        if was_read:
            came = ""
            while len(came) < len("beforeafter"):
                came += does(process, "read")
            assert came == "beforeafter"
        else:
            until = time.monotonic() + PATIENCE_S
            while unread(where) and time.monotonic() < until:
                time.sleep(0.01)
        where.crash(signal.SIGKILL)
        came = ""
        while (said := does(process, "read")) not in ("", errno.errorcode[errno.ECONNRESET]):
            came += said
        assert said == "ECONNRESET"
        assert came == "" if was_read else "beforeafter".startswith(came)


#: More connections than there are frames on their way at most.
MANY = 150
MANY_SENDS = """
import socket, sys
connections = [socket.create_connection((sys.argv[1], int(sys.argv[2]))) for _ in range(int(sys.argv[3]))]
print("connected", flush=True)
sys.stdin.readline()
for connection in connections:
    connection.sendall(b"x" * 50)
"""


def end_of(peer: socket.socket) -> str:
    try:
        return str(everything(peer))
    except ConnectionResetError:
        return "reset"


@pytest.mark.parametrize("kind", KINDS)
def test_what_could_not_be_sent_before_an_exit_is_not_taken_for_the_end(kind: str) -> None:
    """Nobody serves the queue for longer than a program waits at its exit. What has not left it is lost, and the peers
    must learn of that."""
    with crashing(kind) as where, listening(where.place) as server:
        server.listen(MANY)
        arguments = ["-c", MANY_SENDS, peer_address(where.place), str(server.getsockname()[1]), str(MANY)]
        with where.place.program(arguments) as process, ExitStack() as stack:
            peers = [stack.enter_context(server.accept()[0]) for _ in range(MANY)]
            assert line(process.stdout) == "connected"
            os.kill(where.pid, signal.SIGSTOP)
            try:
                where.crash(signal.SIGKILL)
                assert process.stdin
                process.stdin.write("\n")
                process.stdin.flush()
                process.wait(PATIENCE_S)
            finally:
                os.kill(where.pid, signal.SIGCONT)
            for peer in peers:
                peer.settimeout(PATIENCE_S)
            assert {end_of(peer) for peer in peers} <= {"50", "reset"}


def unread(where: Crashing) -> bool:
    """Has the proxy not yet read what has come for the program?"""
    return all(row["received_bytes"] < len("beforeafter") for row in where.status(connections=True)["connections"])
