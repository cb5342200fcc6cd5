"""An upgrade, and connections that several processes have: a parent and its child in turn, a process for each
connection. Ordinary programs under the interposer."""

from __future__ import annotations

import json
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from beds.dialogues import echo_server, peer_address
from beds.ready import readable
from beds.upgrades import Upgrading, upgrading

PROGRAM = Path(__file__).with_name("programs") / "upgraded_forked.py"
AFXDP = [pytest.mark.root, pytest.mark.afxdp]
KINDS = ["shm", pytest.param("afxdp", marks=AFXDP), pytest.param("relay", marks=AFXDP)]


@contextmanager
def place_of(kind: str) -> Iterator[Upgrading]:
    with tempfile.TemporaryDirectory(prefix="xts-upgrade-") as folder:
        Path(folder).chmod(0o755)
        with upgrading(kind, Path(folder), "") as where:
            yield where


def serves(connection: socket.socket) -> None:
    connection.sendall(b"ping")
    assert connection.recv(4) == b"ping"


@pytest.mark.parametrize("kind", KINDS)
def test_processes_that_have_connections_in_common(kind: str) -> None:
    """Two upgrades; each connection goes on, and no byte is lost, or comes twice."""
    with place_of(kind) as where, echo_server(where.place) as port:
        arguments = [str(PROGRAM), peer_address(where.place), str(port), where.place.address]
        with where.place.program(arguments) as process:
            assert process.stdout
            server = int(process.stdout.readline())
            clients = [where.place.connect(server, 10.0) for _ in range(4)]
            for number in range(2):
                print(number, flush=True)
                where.upgrade()
                for client in clients:
                    serves(client)
                clients.append(where.place.connect(server, 10.0))
                serves(clients[-1])
            assert where.status()["reset"] == 0
            for client in clients:
                client.close()
            out, complaint = process.communicate("", timeout=30)
        said = [json.loads(line) for line in out.splitlines()]
        print(said, complaint)
        assert {one["name"] for one in said} == {"parent", "child"}
        for one in said:
            assert one["failures"] == [] and one["requests"] > 20


LEAVES_A_CHILD = """
import os, signal, socket, sys
connections = [socket.create_connection((sys.argv[1], int(sys.argv[2]))) for _ in range(4)]
def use(word):
    for connection in connections:
        connection.sendall(b"request")
        assert connection.recv(7, socket.MSG_WAITALL) == b"request"
    print(word, flush=True)
use("begun")
sys.stdin.readline()
use("moved")
if os.fork():
    os.kill(os.getpid(), signal.SIGKILL)
use("left")
"""


@pytest.mark.parametrize("kind", KINDS[:2])
def test_a_child_goes_on_when_its_parent_dies(kind: str) -> None:
    """What the two sides have counted since the upgrade says that nothing is missing."""
    with place_of(kind) as where, echo_server(where.place) as port:
        with where.place.program(["-c", LEAVES_A_CHILD, peer_address(where.place), str(port)]) as process:
            assert process.stdin
            assert process.stdout
            assert process.stdout.readline() == "begun\n"
            where.upgrade()
            process.stdin.write("\n")
            process.stdin.flush()
            for word in ("moved\n", "left\n"):
                assert readable(process.stdout, 10), word
                assert process.stdout.readline() == word
