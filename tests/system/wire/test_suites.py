"""Suites that were written for a cable with long packets, on other wires: processes, their ends, tenants, relays."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from beds.lab import MTU_VARIABLE, WIRE_VARIABLE
from xts_lab.wire import Wire

pytestmark = [pytest.mark.root, pytest.mark.afxdp, pytest.mark.long, pytest.mark.timeout(1000)]

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
@pytest.mark.parametrize("wire", [{WIRE_VARIABLE: Wire.SWITCH}, {MTU_VARIABLE: "1500"}], ids=["switch", "mtu 1500"])
def test_on_another_wire(suite: str, wire: dict[str, str]) -> None:
    """A switch with cards; and a cable with short packets."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(TESTS / "system" / suite)]
    environment = os.environ | wire
    done = subprocess.run(
        [*command, "-m", "not long"], env=environment, capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stdout[-5000:]
    assert " passed" in done.stdout
