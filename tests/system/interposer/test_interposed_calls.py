"""Calls that only the interposer has, and arguments that no call can use: as on the kernel, errno for errno."""

from __future__ import annotations

import errno
import json
import subprocess
import sys
from typing import Any

import pytest
from beds.preload import PreloadBed
from beds.shm_proxy import SYSTEM
from system.interposer.programs.calls_by_number import SCRIPTS as BY_NUMBER
from system.interposer.programs.interposed_calls import SCRIPTS
from system.sockets.programs import call_arguments, call_message_arguments
from system.sockets.programs.call_program import SCRIPTS as SHARED

PROGRAMS = SYSTEM / "interposer" / "programs"
PROGRAM = str(SYSTEM / "sockets" / "programs" / "call_program.py")
ABOUT_ARGUMENTS = {call_arguments.__name__, call_message_arguments.__name__}
ARGUMENTS = [name for name, function in SHARED.items() if function.__module__ in ABOUT_ARGUMENTS]
ROLES = ("tcp_client", "tcp_server", "udp_sender", "udp_receiver", "udp_connect")
ALL = "".join(f"use xts {role} *:*\n" for role in ROLES)
Traces = dict[str, list[Any]]
COMMANDS = (
    [sys.executable, str(PROGRAMS / "interposed_calls.py")],
    [sys.executable, str(PROGRAMS / "calls_by_number.py")],
    [sys.executable, PROGRAM, "kernel", *ARGUMENTS],
)


@pytest.fixture(scope="module")
def kernel() -> Traces:
    done = [subprocess.run(command, capture_output=True, check=True, timeout=60).stdout for command in COMMANDS]
    return {name: trace for each in done for name, trace in json.loads(each).items()}


@pytest.fixture(scope="module")
def offloaded(bed: PreloadBed) -> Traces:
    done = [bed.run(command, rules=ALL, strict=True).stdout for command in COMMANDS]
    return {name: trace for each in done for name, trace in json.loads(each).items()}


@pytest.mark.parametrize("name", [*SCRIPTS, *BY_NUMBER, *ARGUMENTS])
def test_goes_as_on_the_kernel(name: str, kernel: Traces, offloaded: Traces) -> None:
    assert not [entry for entry in kernel[name] if entry[0] == "failed"], kernel[name]
    assert offloaded[name] == kernel[name]


#: Prints the errno of each call that waits, on protected memory.
PROTECTED = """
import ctypes, mmap
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
page = ctypes.c_void_p(libc.mmap(None, ctypes.c_size_t(mmap.PAGESIZE), 0, 0x22, -1, ctypes.c_long(0)))
for name, *arguments in (
    ("select", 9, page, None, None, None), ("select", 9, None, None, page, None),
    ("pselect", 9, None, page, None, None, None), ("poll", page, ctypes.c_ulong(3), 0),
    ("ppoll", page, ctypes.c_ulong(3), None, None),
):
    print(getattr(libc, name)(*arguments), ctypes.get_errno())
"""


def test_protected_memory_in_a_program_without_sockets(bed: PreloadBed) -> None:
    """Only in calls on offloaded sockets it ends the program, as DIFFERENCES.md says."""
    said = bed.run([sys.executable, "-c", PROTECTED]).stdout.decode()
    assert said.splitlines() == [f"-1 {errno.EFAULT}"] * 5
