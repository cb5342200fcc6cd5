"""Calls that only the interposer has, and arguments that no call can use: as on the kernel, errno for errno."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from beds.preload import PreloadBed
from beds.shm_proxy import SYSTEM
from system.interposer.programs.interposed_calls import SCRIPTS
from system.sockets.programs import call_arguments
from system.sockets.programs.call_program import SCRIPTS as SHARED

OWN = str(SYSTEM / "interposer" / "programs" / "interposed_calls.py")
PROGRAM = str(SYSTEM / "sockets" / "programs" / "call_program.py")
ARGUMENTS = [name for name, function in SHARED.items() if function.__module__ == call_arguments.__name__]
ROLES = ("tcp_client", "tcp_server", "udp_sender", "udp_receiver", "udp_connect")
ALL = "".join(f"use xts {role} *:*\n" for role in ROLES)
Traces = dict[str, list[Any]]
COMMANDS = ([sys.executable, OWN], [sys.executable, PROGRAM, "kernel", *ARGUMENTS])


@pytest.fixture(scope="module")
def kernel() -> Traces:
    done = [subprocess.run(command, capture_output=True, check=True, timeout=60).stdout for command in COMMANDS]
    return {name: trace for each in done for name, trace in json.loads(each).items()}


@pytest.fixture(scope="module")
def offloaded(bed: PreloadBed) -> Traces:
    done = [bed.run(command, rules=ALL, strict=True).stdout for command in COMMANDS]
    return {name: trace for each in done for name, trace in json.loads(each).items()}


@pytest.mark.parametrize("name", [*SCRIPTS, *ARGUMENTS])
def test_goes_as_on_the_kernel(name: str, kernel: Traces, offloaded: Traces) -> None:
    assert not [entry for entry in kernel[name] if entry[0] == "failed"], kernel[name]
    assert offloaded[name] == kernel[name]
