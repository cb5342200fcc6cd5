"""A process inherits a connection while there is no agent that could give it a queue."""

from __future__ import annotations

import socket
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from beds.ready import readable
from beds.restarts import Ethernet
from xts_lab import topology

PROGRAM = Path(__file__).with_name("programs") / "inherits_later.py"
ANSWER_S = 20.0


@pytest.fixture(scope="module")
def where() -> Iterator[Ethernet]:
    with tempfile.TemporaryDirectory(prefix="xts-inherits-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        place = Ethernet(folder)
        try:
            yield place
        finally:
            place.close()


@pytest.fixture
def echo_port(where: Ethernet) -> Iterator[int]:
    """Of a server in the network that answers one client."""
    with where.network():
        server = socket.create_server(("", 0))

    def serve() -> None:
        connection, _ = server.accept()
        with connection:
            while data := connection.recv(64):
                connection.sendall(data)

    with server:
        # The proxy keeps the connection for a minute: the parent could not say that it has ended, without a queue.
        threading.Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1]


@pytest.mark.root
@pytest.mark.afxdp
@pytest.mark.parametrize("how", ["fork", pytest.param("exec", marks=pytest.mark.long)])
def test_the_agent_is_started_again(where: Ethernet, echo_port: int, how: str) -> None:
    peer = [str(topology.NET.addresses[0].ip), str(echo_port)]
    with where.program([str(PROGRAM), *peer]) as process:
        assert process.stdin and process.stdout and process.stderr
        assert process.stdout.readline() == "connected\n"
        where.end_agent()
        process.stdin.write(f"{how}\n")
        process.stdin.flush()
        assert not readable(process.stdout, 0.5), "it found a queue without an agent, or gave up"
        where.start_agent()
        assert readable(process.stdout, ANSWER_S)
        assert process.stdout.readline() == "0\n", process.stderr.read()
