"""The tests of kernel TLS, of NVMe/TCP and MPA against the kernel's own nvmet-tcp and siw, of queues over RDMA, and of
network cards with zero copy, on a kernel that has them: in a virtual machine."""

from __future__ import annotations

import faulthandler
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

CANNOT = 77  # of tests/vm/run: something is missing, and it says what


def run(*words: str, timeout_s: float) -> str:
    """What tests/vm/run prints."""
    if os.environ.get("XTS_VM"):
        pytest.skip("this is the virtual machine")
    if shutil.which("qemu-system-x86_64") is None:
        pytest.skip("qemu-system-x86 is not installed; tests/vm/run, as root, installs it and runs this")
    faulthandler.cancel_dump_traceback_later()  # that this one waits for minutes is no riddle
    command = [Path(__file__).with_name("run"), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    if done.returncode == CANNOT:
        pytest.skip((done.stderr or done.stdout).strip().splitlines()[-1])
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-1000:]
    return done.stdout


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_on_a_kernel_that_has_them() -> None:
    said = run(timeout_s=3500)
    for missing in ("has no TLS", "has no nvmet-tcp", "has no siw", "has no rdma_rxe", "rping is not installed"):
        assert missing not in said, "what should have been tried was skipped"


@pytest.mark.long
@pytest.mark.timeout(4800)
def test_network_cards() -> None:
    """The set by its name (tests/suite/named_sets.py)."""
    assert re.match(r"cards: (\d+) of \1 parts right", run("--named", "cards", timeout_s=4700).splitlines()[-1])
