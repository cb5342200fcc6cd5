"""Programs of the host of the emulated machine (dpu_machine.py), under `xts run`, and visitors from the network."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from xts_lab import netns

from beds.dpu_machine import DEVICE_ADDRESS, HOST, NET, SERVER_ADDRESS, Dpu, entered
from beds.patience import EMULATED

PROGRAMS = Path(__file__).parents[1] / "dpu/programs"
RULES = str(PROGRAMS / "everything.rules")
XTS = str(Path(sys.executable).with_name("xts"))
#: Of the server in the network.
PORT = 8090
SECONDS = 24.0 * EMULATED


def under_xts(name: str, *arguments: object) -> list[str]:
    """A program of the host, as it is. With a socket that is not offloaded it ends with an error."""
    program = sys.executable, str(PROGRAMS / name), *map(str, arguments)
    return entered(HOST, XTS, "run", "--strict", "--rules", RULES, "--", *program)


@contextlib.contextmanager
def running(dpu: Dpu, endpoint: str, name: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    pipe, env = subprocess.PIPE, dpu.environment(endpoint)
    with subprocess.Popen(under_xts(name, *arguments), env=env, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def says(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    return process.stdout.readline().strip()


def ask(process: subprocess.Popen[str]) -> str:
    assert process.stdin
    process.stdin.write("\n")
    process.stdin.flush()
    return says(process)


def ends(process: subprocess.Popen[str]) -> None:
    """It has read all that it is to read."""
    assert process.stdin
    process.stdin.close()
    assert process.wait(SECONDS) == 0


def transferred(dpu: Dpu, endpoint: str, count: int) -> str:
    command = under_xts("transfer.py", SERVER_ADDRESS, PORT, count)
    env = dpu.environment(endpoint)
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120 * EMULATED, check=False)
    return done.stdout.strip() or done.stderr


def visit(port: int) -> bytes:
    """What a server of the host answers to somebody in the network."""
    with netns.inside(NET):
        made = socket.socket()
    with made:
        made.settimeout(6 * EMULATED)
        made.connect((DEVICE_ADDRESS, port))
        made.sendall(b"a visitor")
        return made.recv(100)


def until(holds: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + SECONDS
    while True:
        with contextlib.suppress(OSError):
            if holds():
                return
        assert time.monotonic() < deadline, f"no {what} in {SECONDS:g} s"
        time.sleep(0.2)
