"""What has moved to another process of the proxy, by an upgrade or after a crash, was within the limits before: it goes
on at the limit, with many others, and newcomers do not get its place meanwhile."""

from __future__ import annotations

import json
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from beds.crashes import Crashing
from beds.dialogues import echo_server, peer_address
from beds.operated_proxy import wait
from beds.ready import readable
from beds.upgrades import Upgrading, upgrading

PROGRAM = Path(__file__).with_name("programs") / "many_sockets.py"
ANSWER_S = 60.0
STREAMS, DATAGRAMS = 60, 4
#: Queues have some, too.
DESCRIPTORS = 250
AFXDP = [pytest.mark.root, pytest.mark.afxdp]
KINDS = ["shm", pytest.param("afxdp", marks=AFXDP), pytest.param("relay", marks=AFXDP)]
#: A window for each connection of the size that is allowed would be ten times of what there is.
LITTLE_MEMORY = "window_kib = 1024\nwindow_max_kib = 1024\nspill_mib = 6\n"


def told(program: subprocess.Popen[str], line: str) -> Any:
    assert program.stdin
    program.stdin.write(f"{line}\n")
    program.stdin.flush()
    return heard(program)


def heard(program: subprocess.Popen[str]) -> Any:
    assert program.stdout and program.stderr
    assert readable(program.stdout.fileno(), ANSWER_S)
    line = program.stdout.readline()
    assert line, program.stderr.read()
    return json.loads(line)


@contextmanager
def limited(kind: str, limits: str) -> Iterator[Upgrading]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="xts-limits-")))
        folder.chmod(0o755)
        yield stack.enter_context(upgrading(kind, folder, f"[limits]\n{limits}"))


@contextmanager
def program(where: Upgrading, port: int, streams: int, datagrams: int) -> Iterator[subprocess.Popen[str]]:
    command = [str(PROGRAM), peer_address(where.place), str(port), str(streams), str(datagrams)]
    with where.place.program(command, interposed=False) as process:
        assert heard(process) == "ready"
        yield process


def moves(where: Upgrading, how: str) -> None:
    if how == "upgrade":
        where.upgrade()
    else:
        Crashing(where.place, where.pid(), Path(where.control())).crash(signal.SIGKILL)


@pytest.mark.parametrize("how", ["upgrade", "crash"])
@pytest.mark.parametrize("kind", KINDS)
def test_all_connections_find_a_window_again(kind: str, how: str) -> None:
    with limited(kind, LITTLE_MEMORY) as where, echo_server(where.place) as port:
        with program(where, port, STREAMS, DATAGRAMS) as process:
            assert told(process, "use") == {}
            for _ in range(2):
                moves(where, how)
                assert told(process, "use") == {}


@pytest.mark.parametrize("how", ["upgrade", "crash"])
@pytest.mark.parametrize("kind", ["shm", pytest.param("afxdp", marks=AFXDP)])
def test_at_the_limit_of_connections(kind: str, how: str) -> None:
    """Another program asks for more meanwhile; when there is room again it gets it."""
    with limited(kind, f"connections = {STREAMS + 1}\n") as where, echo_server(where.place) as port:
        with program(where, port, STREAMS, 0) as process, program(where, port, 0, 0) as other:
            assert told(other, "more") == ""
            refused = told(other, "more")
            assert refused
            moves(where, how)
            if how == "upgrade":  # after a crash channels go on one by one: what is of a later one is not counted yet
                assert told(other, "more") == refused
            assert told(process, "use") == told(other, "use") == {}
            assert told(other, "more") == refused
            assert told(process, "less") == "closed"
            wait(lambda: told(other, "more") == "", "room")
            assert told(other, "use") == {}


@pytest.mark.parametrize("how", ["upgrade", "crash"])
@pytest.mark.parametrize("kind", ["shm", pytest.param("afxdp", marks=AFXDP)])
def test_at_the_limit_of_descriptors(kind: str, how: str) -> None:
    with limited(kind, f"descriptors = {DESCRIPTORS}\n") as where, echo_server(where.place) as port:
        with program(where, port, STREAMS, DATAGRAMS) as process:
            opened = 0
            while not (refused := told(process, "more")):
                opened += 1
                assert opened < DESCRIPTORS
            for _ in range(2):
                moves(where, how)
                assert told(process, "use") == {}
            if how == "upgrade":
                assert told(process, "more") == refused
                assert told(process, "less") == "closed"
                wait(lambda: told(process, "more") == "", "room")  # when TCP has ended it


@pytest.mark.long
@pytest.mark.parametrize("kind", ["shm", pytest.param("afxdp", marks=AFXDP)])
def test_ten_thousand(kind: str) -> None:
    with limited(kind, "") as where, echo_server(where.place) as port:
        with program(where, port, 10_000, 0) as process:
            moves(where, "upgrade")
            moves(where, "upgrade")
            assert told(process, "use") == {}
