"""Readiness is that of the connections, also where their data had no room in the queue: calls that do not wait."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pytest
from beds.interposed_place import ended
from beds.lab import raise_or_skip
from beds.preload import PreloadBed, preload_bed, preload_library
from xts_lab.lab import Lab

PROGRAMS = Path(__file__).with_name("programs")
PEER, PROGRAM = str(PROGRAMS / "many_peer.py"), str(PROGRAMS / "readable_at_once.py")
PATIENCE_S = 60.0
#: Twice a window of frames, and more, for each ten thousand connections of ours and theirs.
LIMITS = "[limits]\nconnections = 25000\nspill_mib = 2000\n"
FEW = [1, 64, 300]
RULES = "use xts tcp_client *:*\nuse xts tcp_server *:*\n"


class Place(Protocol):
    """Where the program runs, and its peers outside."""

    peer: str  # the peers' address
    here: str  # where servers of the program are found

    def start(
        self, outside: bool, command: list[str], env: Mapping[str, str] | None, fd: int
    ) -> subprocess.Popen[bytes]: ...


PIPES: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}


@dataclass
class Here:
    bed: PreloadBed
    peer: str = "127.0.0.1"
    here: str = "127.0.0.1"

    def start(
        self, outside: bool, command: list[str], env: Mapping[str, str] | None, fd: int
    ) -> subprocess.Popen[bytes]:
        inside = self.bed.environment(RULES, env)
        return subprocess.Popen(command, env=None if outside else inside, pass_fds=[fd], **PIPES)


@dataclass
class InLab:
    lab: Lab
    rules: Path
    peer: str = "198.18.0.2"
    here: str = "198.18.0.1"

    def start(
        self, outside: bool, command: list[str], env: Mapping[str, str] | None, fd: int
    ) -> subprocess.Popen[bytes]:
        ours = {} if outside else {"LD_PRELOAD": preload_library(), "XTS_RULES": str(self.rules), **(env or {})}
        return self.lab.popen("net" if outside else "host", command, environment=ours, pass_fds=[fd], **PIPES)


@pytest.fixture(scope="module")
def on_shm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with preload_bed(tmp_path_factory.mktemp("readiness"), LIMITS) as made:
        yield Here(made)


@pytest.fixture(scope="module")
def on_afxdp(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    rules = tmp_path_factory.mktemp("rules") / "all.rules"
    rules.write_text(RULES)
    lab = raise_or_skip("afxdp", "ready", tables=LIMITS)
    try:
        yield InLab(lab, rules)
    finally:
        lab.down()


@pytest.fixture(params=["shm", pytest.param("afxdp", marks=[pytest.mark.root, pytest.mark.afxdp])])
def place(request: pytest.FixtureRequest) -> Place:
    made: Place = request.getfixturevalue(f"on_{request.param}")
    return made


@contextmanager
def both(place: Place, module: str, count: int, env: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ask = [sys.executable, PEER, place.peer, str(theirs.fileno())]
        with ended(place.start(True, ask, None, theirs.fileno())):
            theirs.close()
            command = [sys.executable, PROGRAM, module, str(count), place.peer, str(ours.fileno()), place.here]
            with ended(place.start(False, command, env, ours.fileno())) as program:
                ours.close()
                yield program


def run(place: Place, module: str, count: int, patience_s: float = PATIENCE_S, **env: str) -> None:
    if module == "xts_socket":
        env = {**env, "LD_PRELOAD": ""}
    with both(place, module, count, env) as program:
        said = program.communicate(timeout=patience_s)[0]
    assert program.returncode == 0 and said == b"done\n", said.decode()


WAYS = ["socket", "xts_socket"]


class OnTheKernel(Here):
    """The same without the interposer."""

    def start(
        self, outside: bool, command: list[str], env: Mapping[str, str] | None, fd: int
    ) -> subprocess.Popen[bytes]:
        return subprocess.Popen(command, pass_fds=[fd], **PIPES)


def test_as_on_the_kernel(bed: PreloadBed) -> None:
    """What the program asserts is true there."""
    run(OnTheKernel(bed), "socket", 300)


@pytest.mark.parametrize("module", WAYS)
@pytest.mark.parametrize("count", FEW)
def test_a_call_that_does_not_wait_finds_all(module: str, count: int, place: Place) -> None:
    """By the interposer and by the library's own interface."""
    run(place, module, count, XTS_STRICT="1")


@pytest.mark.slow
@pytest.mark.parametrize("module", WAYS)
def test_it_finds_two_thousand(module: str, place: Place) -> None:
    run(place, module, 2000)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("module", WAYS)
def test_it_finds_ten_thousand(module: str, place: Place) -> None:
    run(place, module, 10_000, 110.0)
