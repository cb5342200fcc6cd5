"""An interface that is made of others, on which an agent refuses to work."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

from xts_lab import topology
from xts_lab.lab import Lab

from beds.patience import SLOWER


def refusal_of_agent(lab: Lab, made: Sequence[str], timeout_s: float = 20 * SLOWER) -> subprocess.CompletedProcess[str]:
    """Makes the interface "other0" in the network of the lab (`made`: behind `ip link add`), and starts an agent there,
    which has to end by itself."""

    def done(*words: str) -> subprocess.CompletedProcess[str]:
        return lab.run(topology.NET.role, list(words), capture_output=True, text=True, timeout=timeout_s)

    added = done("ip", "link", "add", *made)
    assert added.returncode == 0, added.stderr
    try:
        command = [sys.executable, "-m", "xts_agent", "--interface", "other0"]
        return done(*command, "--endpoint", str(lab.directory / "other"), "--peer-mac", "02:00:00:00:00:02")
    finally:
        done("ip", "link", "del", "other0")
