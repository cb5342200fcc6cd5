"""Programs that inetd starts in its "wait" mode: they read what has woken their super-server, as with the kernel."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from beds.interposed_place import PATIENCE_S, OnTheKernel, Place

PROGRAM = Path(__file__).parent / "programs" / "super_server.py"
ROUNDS = 3
WAYS = ("fork", "spawn", "subprocess", "system")


def served(place: Place, what: str, how: str) -> None:
    with place.start([sys.executable, str(PROGRAM), what, how, str(ROUNDS)]) as server:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        for n in range(ROUNDS):
            answers(place, server, what, port, b"hello %d" % n)
        assert server.wait(PATIENCE_S) == 0, server.stdout.read()


def answers(place: Place, server: subprocess.Popen[bytes], what: str, port: int, question: bytes) -> None:
    with place.datagrams() if what == "udp" else place.client(port) as client:
        client.settimeout(PATIENCE_S)
        if what == "udp":
            client.connect((place.here, port))
        client.send(question)
        try:
            assert client.recv(100) == question.upper()
        except OSError as error:
            server.kill()
            assert server.stdout is not None
            raise AssertionError(f"{error}\n{server.stdout.read().decode()}") from None


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("what", ["udp", "tcp"])
def test_wait(what: str, how: str, place: Place) -> None:
    served(place, what, how)


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("what", ["udp", "tcp"])
def test_wait_with_the_kernel(what: str, how: str) -> None:
    served(OnTheKernel(), what, how)
