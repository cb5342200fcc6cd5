"""Suites that were written for a cable, on a switch with cards: processes, their ends, tenants, relays."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from beds.lab import WIRE_VARIABLE
from xts_lab.wire import Wire

pytestmark = [pytest.mark.root, pytest.mark.afxdp, pytest.mark.long]

TESTS = Path(__file__).resolve().parents[2]
SUITES = (
    "agent/test_agent_death.py",
    "agent/test_agent_token.py",
    "agent/test_many_start.py",
    "agent/test_processes_end.py",
    "agent/test_relay.py",
    "agent/test_relay_default.py",
    "agent/test_relay_faults.py",
    "hostile/test_raw_peer_afxdp.py",
    "operate/test_killed.py",
    "operate/test_ports_of_users.py",
    "processes/test_inherit.py",
    "sockets/test_afxdp_calls.py",
    "sockets/test_end_connecting.py",
    "sockets/test_stacks.py",
)


@pytest.mark.parametrize("suite", SUITES)
def test_on_a_switch(suite: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(TESTS / "system" / suite)]
    environment = os.environ | {WIRE_VARIABLE: Wire.SWITCH}
    done = subprocess.run(
        [*command, "-m", "not long"], env=environment, capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stdout[-5000:]
    assert " passed" in done.stdout
