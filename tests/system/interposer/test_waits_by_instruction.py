"""A program that waits for an epoll set by an instruction of its own, and not by calling the C library, as Bun does:
what it sees of its sockets is what it would see on the kernel."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest
from beds.compiled import compile_program
from beds.interposed_place import OnTheKernel, Place
from beds.patience import SLOWER

PROGRAM = Path(__file__).with_name("programs") / "waits_by_instruction.c"
CASES: tuple[str, ...] = ("both_ends", "edges", "refused", "full", "many", "calls_too")
if platform.machine() == "x86_64":
    CASES += ("alone",)  # a program of one thread, whose file has the instruction
RUN_S = 120 * SLOWER
STATUS = 7
#: It ends by quick_exit(), and its last line says so, too.
VERBOSE = {"XTS_VERBOSE": "1"}
SUMMARY = "libxts: waits_by_instruction"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> str:
    return compile_program(PROGRAM, tmp_path_factory.mktemp("by-instruction"))


def ran(place: Place, program: str, case: str) -> tuple[int, list[str], list[str]]:
    """Its status, what it has said, and what the library has."""
    with place.start([program, case], VERBOSE) as process:
        lines = process.communicate(timeout=RUN_S)[0].decode().splitlines()
    return (
        process.returncode,
        [line for line in lines if not line.startswith("libxts: ")],
        [line for line in lines if line.startswith(SUMMARY)],
    )


@pytest.mark.parametrize("case", CASES)
def test_it_sees_what_the_kernel_shows(case: str, program: str, place: Place) -> None:
    status, said, summaries = ran(place, program, case)
    assert (status, said) == ran(OnTheKernel(), program, case)[:2]
    assert status == STATUS
    (summary,) = summaries
    assert " 0 offloaded" not in summary
    assert "; 0 not" in summary
