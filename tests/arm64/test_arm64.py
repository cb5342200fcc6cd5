"""The packages of arm64, and the tests that run on an emulated processor against what they installed."""

from __future__ import annotations

import faulthandler
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.long, pytest.mark.root, pytest.mark.timeout(5400)]


@pytest.mark.parametrize("how", [[], ["--boot"]], ids=["programs", "a machine"])
def test_on_an_emulated_processor(how: list[str]) -> None:
    if os.uname().machine == "aarch64":
        pytest.skip("this is one that is not emulated")
    faulthandler.cancel_dump_traceback_later()  # that this one waits for minutes is no riddle
    command = [Path(__file__).with_name("run"), *how]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=5300, check=False
    )
    sys.stdout.write(done.stdout[-20000:])
    assert done.returncode == 0, done.stdout[-5000:]
