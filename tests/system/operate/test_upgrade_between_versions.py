"""`xts-proxy upgrade` between versions, forth and back, and who cannot ask for it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from beds.operated_proxy import PROXY, wait
from beds.upgrades import OverSharedMemory, Upgrading, upgrading
from xts_messages.wire import record_table
from xts_proxy.supervisor import sandbox
from xts_proxy.upgrade import handover

pytestmark = pytest.mark.root
BUILD = """
import sys
from xts_messages.wire import record_table
from xts_proxy.upgrade import handover
handover.VERSION, handover.COMPATIBLE, record_table.VERSION, record_table.COMPATIBLE = {}
from xts_proxy.__main__ import main
sys.exit(main())
"""
#: Of a process of a broken-into worker that was ended for a call (children.py).
FORBIDDEN_CALL = 159


RECORDS = record_table.VERSION, record_table.COMPATIBLE


def build(talk: tuple[int, int], records: tuple[int, int] = RECORDS) -> list[str]:
    """A build with other versions. Its records are those of this one: fields that a version adds have defaults."""
    return [sys.executable, "-c", BUILD.format((*talk, *records))]


OURS, FARTHER = handover.VERSION, handover.VERSION + 2
NEXT, FAR = build((OURS + 1, OURS), (RECORDS[0] + 1, RECORDS[1])), build((FARTHER, FARTHER))
BETWEEN = build((FARTHER, OURS))  # from which FAR takes over
LATER_RECORDS = build((OURS, OURS), (RECORDS[0] + 1, RECORDS[0] + 1))
RANGE = f"versions {handover.COMPATIBLE} to {OURS}"

DIALOGUE = """
import os, sys
import xts_socket as socket
connection = socket.create_connection((sys.argv[1], int(sys.argv[2])))
for line in sys.stdin:
    request, answer = os.urandom(64), b""
    connection.sendall(request)
    while len(answer) < len(request) and (more := connection.recv(1000)):
        answer += more
    print("goes on" if answer == request else "another answer", flush=True)
"""


@pytest.fixture(scope="module")
def where() -> Iterator[OverSharedMemory]:
    with tempfile.TemporaryDirectory(prefix="xts-upgrade-") as folder:
        Path(folder).chmod(0o755)
        with upgrading("shm", Path(folder)) as made:
            assert isinstance(made, OverSharedMemory)
            yield made


@contextmanager
def dialogue(where: Upgrading) -> Iterator[Callable[[], str]]:
    """A program with a connection to a peer that sends back what it gets."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        arguments = ["-c", DIALOGUE, "127.0.0.1", str(server.getsockname()[1])]
        with where.place.program(arguments, interposed=False) as process:
            assert process.stdin and process.stdout
            stdin, stdout = process.stdin, process.stdout
            server.settimeout(20)
            connection, _ = server.accept()

            def ask() -> str:
                stdin.write("\n")
                stdin.flush()
                connection.sendall(connection.recv(64))
                return stdout.readline().strip()

            with connection:
                connection.settimeout(20)
                yield ask


def test_to_the_next_version_and_back(where: OverSharedMemory) -> None:
    """The version before takes over from the living next one: that is the way back."""
    with dialogue(where) as ask:
        for program in (NEXT, PROXY, NEXT, NEXT, PROXY):
            where.upgrade(program)
            assert where.status() == {"channels": 1, "sockets": 1, "reset": 0}
            assert ask() == "goes on"
    log = (where.directory / "log").read_text()
    assert "upgrade: the new proxy is xts-proxy" in log and "sha256" in log


@pytest.mark.parametrize(
    ("before", "other", "because"),
    [
        ([], FAR, f"by {RANGE} of the talk between proxies, this one by version {FARTHER}"),
        ([BETWEEN, FAR], PROXY, f"by version {FARTHER} of the talk between proxies, this one by {RANGE}"),
        ([LATER_RECORDS], PROXY, f"it writes records of version {RECORDS[0] + 1}"),
    ],
    ids=["running-too-old", "running-too-new", "records"],
)
def test_what_is_not_understood_is_refused(before: list[list[str]], other: list[str], because: str) -> None:
    """With a sentence; and the running one goes on."""
    with tempfile.TemporaryDirectory(prefix="xts-upgrade-") as folder:
        Path(folder).chmod(0o755)
        with upgrading("shm", Path(folder)) as where:
            assert isinstance(where, OverSharedMemory)
            for program in before:
                where.upgrade(program)
            with dialogue(where) as ask:
                new, ready = where.begin(other)
                assert new.wait(20) == 1
                os.close(ready)
                assert because in (where.directory / "log").read_text()
                wait(lambda: where.proxy_state() == "running", "end of the attempt")
                assert ask() == "goes on"


# --- who may --------------------------------------------------------------------------------------

WORKER = """
import os, socket, subprocess, sys
from xts_messages.wire import record_table
from xts_proxy.supervisor import sandbox
tried, path = sys.argv[1:]
sandbox.confine("{user}", sandbox.of_workers())
sandbox.give_up_files(network=True)
sandbox.restrict_calls(parsers=False, started=True)
if tried == "ask":
    asking = socket.socket(socket.AF_UNIX)
    asking.connect(path)
    asking.sendall(b'{{"ask": "upgrade"}}' + bytes([10]))
    os.write(2, b"asked")
elif tried == "fork":
    if os.fork() == 0:
        os.write(2, b"forked")
elif tried == "run":
    os.execv("/bin/true", ["true"])
elif tried == "listen":
    made = socket.socket(socket.AF_UNIX)
    made.bind(path + ".upgrade")
    os.write(2, b"listens")
os._exit(0)
"""


@pytest.mark.parametrize("tried", ["ask", "fork", "run", "listen"])
def test_a_worker_that_is_broken_into(where: OverSharedMemory, tried: str) -> None:
    """Any code, in a process that is confined as a worker is: it can neither ask for an upgrade nor have one come."""
    account = sandbox.user_to_become("")
    os.chown(where.control(), account.pw_uid if account else -1, -1)
    program = WORKER.format(user=account.pw_name if account else "")
    command = [sys.executable, "-c", program, tried, where.control()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == FORBIDDEN_CALL or "Permission" in done.stderr or "not permitted" in done.stderr, done
    assert not any(word in done.stderr for word in ("asked", "forked", "listens")), done
    assert where.proxy_state() == "running"
