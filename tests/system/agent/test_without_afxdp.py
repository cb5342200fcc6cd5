"""A kernel without AF_XDP: the agent, the call under it and `xts doctor` say so in a sentence."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

WITHOUT = Path(__file__).parents[1] / "operate" / "programs" / "without_calls.py"
SENTENCE = "this kernel has no AF_XDP (CONFIG_XDP_SOCKETS, Linux 4.18)"
LINK = "ip link add name x0 mtu 61500 type veth peer name x1 mtu 61500; ip link set x0 up; ip link set x1 up"
DEADLINE_S = 30


def without_afxdp(*command: str, around: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("XTS_")}
    return subprocess.run(
        [*around, sys.executable, str(WITHOUT), "AF_XDP", *command],
        capture_output=True, text=True, timeout=DEADLINE_S, check=False, env=environment,
    )  # fmt: skip


def test_opening_a_queue() -> None:
    done = without_afxdp(
        sys.executable, "-c", "from xts_messages.queues.afxdp import open_socket; open_socket('lo', 0)"
    )
    assert f"OSError: [Errno 97] AF_XDP socket on queue 0 of lo: {SENTENCE}" in done.stderr


@pytest.mark.root
def test_the_agent(tmp_path: Path) -> None:
    done = without_afxdp(
        sys.executable, "-m", "xts_agent", "--interface", "x0", "--peer-mac", "02:00:00:00:00:02",
        "--endpoint", str(tmp_path / "endpoint.sock"),
        around=("unshare", "-n", "sh", "-ec", f'{LINK}; exec "$@"', "-"),
    )  # fmt: skip
    assert done.returncode == 2, "its unit does not start it again"
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("xts-agent: ")]
    assert SENTENCE in line
    assert "Traceback" not in done.stderr


def test_the_doctor() -> None:
    done = without_afxdp(sys.executable, "-m", "xts_socket.cli", "doctor")
    assert "not in this kernel" in done.stdout or SENTENCE in done.stdout, done.stdout
