"""What one call of a thread writes stays together, also where other threads write to the same connection."""

from __future__ import annotations

from pathlib import Path

import pytest
from beds.compiled import compile_program
from beds.interposed_place import STRICT, Place
from beds.patience import SLOWER

SOURCE = Path(__file__).with_name("programs") / "lines_of_threads.c"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> str:
    return compile_program(SOURCE, tmp_path_factory.mktemp("program"))


@pytest.mark.parametrize("stacks", ["process", "thread"])
def test_no_line_is_parted(place: Place, program: str, stacks: str) -> None:
    """The kernel parts a few of tens of thousands, so it is no oracle: only where its buffer is full."""
    with place.start([program], {**STRICT, "XTS_STACKS": stacks}) as process:
        said, _ = process.communicate(timeout=30 * SLOWER)
    assert (process.returncode, said) == (0, b"0 parted\n")
