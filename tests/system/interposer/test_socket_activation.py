"""Services that get their socket from the program that starts them (systemd's LISTEN_FDS), under the interposer."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from beds.interposed_place import PATIENCE_S, Place

PROGRAMS = Path(__file__).parent / "programs"
ROUNDS = 3


@pytest.mark.parametrize(("what", "how"), [("listener", "waits"), ("listener", "at-once"), ("connection", "waits")])
def test_a_service_gets_its_socket(what: str, how: str, place: Place) -> None:
    """What has arrived before the service is there is answered; when it has ended, the next one is started."""
    service = [sys.executable, str(PROGRAMS / "activated.py"), how]
    command = [str(PROGRAMS / "activator.py"), what, str(ROUNDS), *service]
    with place.start([sys.executable, *command]) as activator:
        assert activator.stdout is not None
        port = int(activator.stdout.readline())
        for _ in range(ROUNDS):
            with place.client(port) as client:
                client.sendall(b"hello")
                answer = client.makefile("rb").read()
                assert answer == b"hello for %d" % client.getsockname()[1], activator.stdout.read()
            assert activator.stdout.readline() == b"0\n"
        assert activator.wait(PATIENCE_S) == 0
