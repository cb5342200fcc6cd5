"""Waiting under the interposer: the same scripts on kernel sockets and on offloaded ones, with equal results."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from beds.preload import ALL, PreloadBed
from beds.stack_modes import MODES
from system.waiting.programs.wait_scripts import SCRIPTS

PROGRAMS = Path(__file__).with_name("programs")
PROGRAM = [sys.executable, str(PROGRAMS / "wait_scripts.py")]
PLAIN_S = 60
# The host's own connections to a wildcard listener are the kernel's, the others offloaded; here both are from the host.
BOTH_HALVES = "use os tcp_server 127.0.0.0/8:*\nuse xts tcp_server *:*\nuse xts tcp_client *:*\n"


@pytest.fixture(scope="module")
def expected() -> dict[str, Any]:
    done = subprocess.run(PROGRAM, capture_output=True, check=True, timeout=PLAIN_S)
    traces: dict[str, Any] = json.loads(done.stdout)
    return traces


@pytest.mark.parametrize("name", sorted(SCRIPTS))
def test_as_on_the_kernel(name: str, bed: PreloadBed, expected: dict[str, Any]) -> None:
    assert expected[name], "the script notes nothing"
    assert not [note for note in expected[name] if note[0] == "failed"]
    done = bed.run([*PROGRAM, name], env={"XTS_LOG": "1"})
    assert json.loads(done.stdout)[name] == expected[name], done.stderr.decode()
    assert b": offloaded" in done.stderr


@pytest.mark.parametrize("mode", MODES)
def test_in_several_stacks(mode: str, bed: PreloadBed, expected: dict[str, Any]) -> None:
    """All scripts in one process, which takes as long as a few of those above."""
    of = MODES[mode]
    done = bed.run(PROGRAM, rules=of.rules(ALL, bed.proxy.endpoint), env=of.environment, timeout_s=PLAIN_S)
    found = json.loads(done.stdout)
    assert {name: found[name] for name in SCRIPTS if found[name] != expected[name]} == {}, done.stderr.decode()


def test_a_listener_in_both_worlds(bed: PreloadBed, expected: dict[str, Any]) -> None:
    done = bed.run([*PROGRAM, "local_listener"], rules=BOTH_HALVES, env={"XTS_LOG": "1"})
    assert json.loads(done.stdout)["local_listener"] == expected["local_listener"], done.stderr.decode()
    assert b"(LOCAL)" in done.stderr, "no connection came to the kernel's half"
    assert b": offloaded" in done.stderr


@pytest.mark.parametrize("kind", ["SelectSelector", "PollSelector", "EpollSelector", "uvloop"])
def test_event_loops(kind: str, bed: PreloadBed) -> None:
    if kind == "uvloop":
        pytest.importorskip("uvloop", reason="uvloop is not installed")
    done = bed.run([sys.executable, str(PROGRAMS / "loop_program.py"), kind], env={"XTS_LOG": "1"})
    assert done.stdout == b"done\n" and b"Exception" not in done.stderr, done.stderr.decode()
    assert done.stderr.count(b": offloaded") >= 2


def test_io_uring_is_refused_and_said_to_be(bed: PreloadBed) -> None:
    """By number, and through liburing's functions: this kernel has none, as far as the program can tell."""
    program = """
import ctypes, errno
libc = ctypes.CDLL(None, use_errno=True)
params = (ctypes.c_uint8 * 256)()
assert libc.syscall(425, 4, params) == -1 and ctypes.get_errno() == errno.ENOSYS
assert libc.io_uring_queue_init(4, params, 0) == -errno.ENOSYS
"""
    done = bed.run([sys.executable, "-c", program], env={"XTS_LOG": "1"})
    assert done.stderr.count(b"io_uring is refused") == 2
    allowed = program.replace("assert libc.syscall", "raise SystemExit(libc.syscall").split(" == -1")[0] + " < 0)"
    bed.run([sys.executable, "-c", allowed], env={"XTS_IO_URING": "allow"})
