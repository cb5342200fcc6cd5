"""Threads with the least stack that the C library allows may make every call, as with the kernel's sockets."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from beds.compiled import compile_program
from beds.interposed_place import STRICT, Place

SOURCE = Path(__file__).with_name("programs") / "small_stacks.c"
LEAST_BYTES = os.sysconf("SC_THREAD_STACK_MIN")
#: Its frames are larger, and its own functions need more.
pytestmark = pytest.mark.skipif("libasan" in os.environ.get("LD_PRELOAD", ""), reason="under a sanitizer")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> str:
    return compile_program(SOURCE, tmp_path_factory.mktemp("program"))


def test_on_the_kernel(program: str) -> None:
    """What the program asserts is true there."""
    subprocess.run([program, str(LEAST_BYTES)], check=True, timeout=20)


@pytest.mark.parametrize("stacks", ["process", "thread"])
def test_under_the_interposer(place: Place, program: str, stacks: str) -> None:
    with place.start([program, str(LEAST_BYTES)], {**STRICT, "XTS_STACKS": stacks}) as process:
        said, _ = process.communicate(timeout=20)
    assert (process.returncode, said) == (0, b"passed\n")
