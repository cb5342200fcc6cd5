"""The tests of kernel TLS, of NVMe/TCP and MPA against the kernel's own nvmet-tcp and siw, and of queues over RDMA, on
a kernel that has them: in a virtual machine."""

from __future__ import annotations

import faulthandler
import os
import shutil
import subprocess
from pathlib import Path

import pytest

CANNOT = 77  # of tests/vm/run: something is missing, and it says what


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_on_a_kernel_that_has_them() -> None:
    if os.environ.get("XTS_VM"):
        pytest.skip("this is the virtual machine")
    if shutil.which("qemu-system-x86_64") is None:
        pytest.skip("qemu-system-x86 is not installed; tests/vm/run, as root, installs it and runs this")
    faulthandler.cancel_dump_traceback_later()  # that this one waits for minutes is no riddle
    done = subprocess.run([Path(__file__).with_name("run")], capture_output=True, text=True, timeout=3500, check=False)
    if done.returncode == CANNOT:
        pytest.skip(done.stderr.strip().splitlines()[-1])
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-1000:]
    for missing in ("has no TLS", "has no nvmet-tcp", "has no siw", "has no rdma_rxe", "rping is not installed"):
        assert missing not in done.stdout, "what should have been tried was skipped"
