"""A master that has a listener by exec() and leaves it to its children: nobody is refused when the last child ends."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from beds.patience import SLOWER
from beds.preload import PreloadBed
from beds.ready import readable
from beds.worker import receive_exactly

PROGRAM = str(Path(__file__).with_name("programs") / "listener_over_exec.py")
WAIT_S = 20.0 * SLOWER


def served(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), WAIT_S)


def line_of(program: subprocess.Popen[bytes]) -> bytes:
    assert program.stdout is not None and readable(program.stdout, WAIT_S)
    return program.stdout.readline()


@pytest.mark.parametrize("before", ["forks", "does-not-fork"])
def test_the_last_child_ends(bed: PreloadBed, before: str) -> None:
    with bed.start([sys.executable, PROGRAM, before]) as master:
        port = int(line_of(master))
        for _ in range(2):
            with served(port) as client:
                assert receive_exactly(client, 5) == b"child"
        assert line_of(master) == b"left\n"
        with served(port) as client:
            master.send_signal(signal.SIGUSR1)
            assert receive_exactly(client, 6) == b"parent"
        assert master.wait(WAIT_S) == 0
