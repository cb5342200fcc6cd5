"""Agent and proxy share a key, and the clock of either is wrong for a while. Processes are refused meanwhile, if the
clocks differ too much, and attach again as soon as the clocks agree: nothing has to be restarted."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from beds.lab import raise_or_skip
from beds.patience import SLOWER
from xts_lab.lab import Lab

pytestmark = [pytest.mark.root, pytest.mark.afxdp]
PROGRAMS = Path(__file__).parent / "programs"
DAY = 86400
AGENT, PROXY = "agent", "proxy"


@dataclass
class Clocks:
    """A lab whose agent and proxy have clocks of their own."""

    lab: Lab
    folder: Path
    shim: Path
    files: dict[str, Path] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for program in (AGENT, PROXY):
            self.files[program] = self.folder / f"{program}.clock"
            self.files[program].write_bytes(bytes(8))
            self.restart(program)

    def set(self, *programs: str, ahead_s: int) -> None:
        for program in programs:
            with self.files[program].open("r+b") as file:
                file.write(struct.pack("=q", ahead_s))

    def restart(self, program: str) -> None:
        self.lab.stop_program(program)
        environment = {"LD_PRELOAD": str(self.shim), "TEST_CLOCK": str(self.files[program])}
        if program == AGENT:
            self.lab.start_agent(environment)
        else:
            self.lab.start_proxy(environment)

    def attach(self) -> str:
        """Why a process could not attach; "": it could."""
        command = [sys.executable, "-m", "xts_lab.crossing"]
        done = self.lab.run("host", command, capture_output=True, text=True, timeout=30 * SLOWER)
        return "" if done.returncode == 0 else str(done.stderr)


@pytest.fixture(scope="module")
def clocks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clocks]:
    folder = tmp_path_factory.mktemp("clocks")
    shim = folder / "set_clock.so"
    if not (compiler := shutil.which(os.environ.get("CC", "cc"))):
        pytest.skip("no C compiler")
    lab = raise_or_skip("afxdp", "clock", queues=2)
    try:
        subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", shim, PROGRAMS / "set_clock.c"], check=True)
        yield Clocks(lab, folder, shim)
    finally:
        assert not lab.down()


@pytest.mark.parametrize("ahead_s", [DAY, -DAY], ids=["ahead", "back"])
@pytest.mark.parametrize("wrong", [(AGENT,), (PROXY,), (AGENT, PROXY)], ids=["agent", "proxy", "both"])
def test_a_clock_that_was_wrong_leaves_nothing_behind(clocks: Clocks, wrong: tuple[str, ...], ahead_s: int) -> None:
    assert not clocks.attach()
    clocks.set(*wrong, ahead_s=ahead_s)
    expected = "" if len(wrong) == 2 else "Key has expired"
    for _ in range(2):
        assert expected in (said := clocks.attach())
        assert bool(said) == bool(expected), said
    clocks.set(*wrong, ahead_s=0)
    for _ in range(3):
        assert not clocks.attach()


@pytest.mark.parametrize("restarted", [AGENT, PROXY])
@pytest.mark.parametrize("ahead_s", [DAY, -DAY], ids=["ahead", "back"])
def test_nor_when_one_is_started_meanwhile(clocks: Clocks, restarted: str, ahead_s: int) -> None:
    clocks.set(AGENT, PROXY, ahead_s=ahead_s)
    assert not clocks.attach()
    clocks.restart(restarted)
    assert not clocks.attach()
    clocks.set(AGENT, PROXY, ahead_s=0)
    assert not clocks.attach()
    clocks.restart(restarted)
    for _ in range(2):
        assert not clocks.attach()
