"""The agent is killed, or stopped, under traffic: no connection notices, and those that come later are served."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import IO

import pytest
from beds.echo_server import ECHO
from beds.lab import raise_or_skip
from beds.patience import SLOWER
from beds.ready import readable
from xts_lab.lab import Lab

pytestmark = [pytest.mark.root, pytest.mark.afxdp]

LINE_S = 20.0 * SLOWER
#: One request after the other on one connection, for as long as it goes well; each hundredth is told.
CLIENT = """
import itertools, os, sys
import xts_socket as socket
with socket.create_connection(("198.18.0.2", int(sys.argv[1])), 10) as s:
    for number in itertools.count(1):
        sent = os.urandom(1000)
        s.sendall(sent)
        assert s.recv(1000, socket.MSG_WAITALL) == sent
        if number % 100 == 0:
            print(number, flush=True)
"""
ONCE = """
import sys
import xts_socket as socket
with socket.create_connection(("198.18.0.2", int(sys.argv[1])), 10) as s:
    s.sendall(b"once")
    assert s.recv(4, socket.MSG_WAITALL) == b"once"
"""
#: Its child uses the connection, for which it needs a queue of its own.
FORKS = """
import os, socket, sys
with socket.create_connection(("198.18.0.2", int(sys.argv[1])), 10) as s:
    s.settimeout(None)
    print(1, flush=True)
    sys.stdin.readline()
    if os.fork() == 0:
        s.sendall(b"once")
        print(2 if s.recv(4, socket.MSG_WAITALL) == b"once" else 0, flush=True)
        os._exit(0)
    os.wait()
"""
#: Longer than an agent takes to start, on a busy machine.
AWAY_S = 5.0


@pytest.fixture
def lab() -> Iterator[Lab]:
    raised = raise_or_skip("afxdp", "death")
    try:
        yield raised
    finally:
        assert not raised.down()


@contextlib.contextmanager
def speaking(lab: Lab, role: str, *command: str) -> Iterator[IO[str]]:
    """A Python program in the lab: what it prints."""
    with lab.popen(role, ["python", "-c", *command], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            yield process.stdout
        finally:
            process.kill()


def line(said: IO[str]) -> int:
    assert readable(said, LINE_S), f"nothing in {LINE_S} s"
    text = said.readline()
    assert text, "the connection was lost"
    return int(text)


def kill_agent(lab: Lab) -> None:
    record = lab.record("agent")
    assert record
    os.kill(record.pid, signal.SIGKILL)
    deadline = time.monotonic() + 5 * SLOWER
    while record.alive:
        assert time.monotonic() < deadline
        time.sleep(0.002)


def stop_agent(lab: Lab) -> None:
    lab.stop_program("agent")


@pytest.mark.parametrize("end", [kill_agent, stop_agent])
def test_connections_outlive_agents(lab: Lab, end: Callable[[Lab], None]) -> None:
    with speaking(lab, "net", ECHO) as server:
        port = str(line(server))
        with speaking(lab, "host", CLIENT, port) as first:
            line(first)
            for agents in range(1, 4):
                end(lab)
                if agents == 2:  # not started again at once: they do not need it
                    for _ in range(5):
                        line(first)
                lab.start_agent()
                for _ in range(3):
                    line(first)
                done = lab.run(
                    "host", ["python", "-c", ONCE, port], capture_output=True, text=True, timeout=30 * SLOWER
                )
                assert done.returncode == 0, done.stderr
            line(first)


def test_a_child_waits_for_the_next_agent(lab: Lab) -> None:
    with speaking(lab, "net", ECHO) as server:
        command = ["xts", "run", "--", "python", "-c", FORKS, str(line(server))]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        with lab.popen("host", command, **pipes) as process:
            try:
                assert process.stdin
                assert process.stdout
                assert line(process.stdout) == 1
                stop_agent(lab)
                process.stdin.write("\n")
                process.stdin.flush()
                assert not readable(process.stdout, AWAY_S)
                lab.start_agent()
                assert line(process.stdout) == 2
            finally:
                process.kill()
