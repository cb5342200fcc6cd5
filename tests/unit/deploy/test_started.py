"""Ctrl-C just when a program has been started: the program ends with the block all the same."""

from __future__ import annotations

import signal
import subprocess

import pytest
from xts_lab.places import started


def test_interrupted_while_it_starts(ctrl_c: None) -> None:
    made: list[subprocess.Popen[bytes]] = []

    def start() -> subprocess.Popen[bytes]:
        process = subprocess.Popen(["sleep", "60"])
        made.append(process)
        signal.raise_signal(signal.SIGINT)
        return process

    with pytest.raises(KeyboardInterrupt), started(start):
        pytest.fail("the block was entered")
    assert made[0].returncode == -signal.SIGTERM


def test_one_that_cannot_be_started() -> None:
    with pytest.raises(FileNotFoundError), started(lambda: subprocess.Popen(["/no/such/program"])):
        pytest.fail("the block was entered")
