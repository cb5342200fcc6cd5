"""One emulated machine for all of these tests, and what answers in the network behind it."""

from __future__ import annotations

import faulthandler
import subprocess
import sys
from collections.abc import Iterator

import pytest
from beds import dpu_machine
from beds.dpu_machine import NET, SERVER_ADDRESS, Dpu, entered
from beds.dpu_programs import PORT, PROGRAMS
from beds.patience import EMULATED


@pytest.fixture(scope="session")
def dpu() -> Iterator[Dpu]:
    faulthandler.cancel_dump_traceback_later()  # that this one waits for minutes is no riddle
    if not (dpu_machine.ROOT / "etc").is_dir():
        command = [dpu_machine.TOP / "tests/arm64/run", "--root"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=720 * EMULATED, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    with Dpu() as made:
        yield made


@pytest.fixture
def endpoint(dpu: Dpu) -> Iterator[str]:
    """Where one program at a time has the queue."""
    with dpu.agent() as made:
        yield made


@pytest.fixture
def relayed(dpu: Dpu) -> Iterator[str]:
    """Where a relay has it, and carries the frames of several programs."""
    with dpu.agent("--relayed-max", "16") as made:
        yield made


@pytest.fixture(scope="session")
def server(dpu: Dpu) -> Iterator[None]:
    """In the network behind the machine."""
    command = entered(NET, sys.executable, str(PROGRAMS / "echo_server.py"), SERVER_ADDRESS, str(PORT))
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout and process.stdout.readline() == "up\n"
            yield
        finally:
            process.kill()
