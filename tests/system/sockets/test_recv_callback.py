"""Receive callbacks of datagram and message sockets: programs/recv_callback.py over both sizes of window."""

from __future__ import annotations

import errno
import json
import signal
import subprocess
import sys

import pytest
from beds.shm_proxy import SYSTEM, ShmProxy, library

PROGRAM = "sockets/programs/recv_callback.py"


@pytest.mark.parametrize("window", ["4", "128"])
def test_callbacks(proxy: ShmProxy, window: str) -> None:
    done = json.loads(proxy.run(PROGRAM, library(), XTS_FRAME_WINDOW=window))
    assert done == {
        "verdicts": 12,
        "what_it_sees": "seen",
        "held_takes_credits": "bounded",
        "pdus": "each",
        "refusals": [-errno.EOPNOTSUPP, -errno.EBADF, 0],
    }


def test_a_callback_that_calls_the_library_is_told_so(proxy: ShmProxy) -> None:
    command = [sys.executable, str(SYSTEM / PROGRAM), library(), "called_from_within"]
    done = subprocess.run(command, env=proxy.environment(), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == -signal.SIGABRT
    assert "a receive callback has called this library" in done.stderr
