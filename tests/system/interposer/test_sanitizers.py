"""Programs that are built with a sanitizer: they start, their sockets are offloaded, their mistakes are found."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from beds.dev import DevBed, dev_bed

SOURCE = Path(__file__).with_name("programs") / "sanitized.c"
pytestmark = pytest.mark.skipif("LD_PRELOAD" in os.environ, reason="another sanitizer is preloaded here")


@pytest.fixture
def bed() -> Iterator[DevBed]:
    with dev_bed() as made:
        yield made


def built(folder: Path, compiler: str, sanitizers: str) -> str:
    path = shutil.which(compiler) or pytest.skip(f"no {compiler}")
    program = folder / "program"
    command = [path, "-O1", f"-fsanitize={sanitizers}", "-o", str(program), str(SOURCE), "-pthread"]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    if made.returncode:
        pytest.skip(f"{compiler} has no {sanitizers} sanitizer: {made.stderr.splitlines()[-1]}")
    return str(program)


@pytest.mark.parametrize(
    ("compiler", "sanitizers"),
    [
        *(("gcc", kind) for kind in ("address", "leak", "thread", "undefined", "address,undefined")),
        *(("clang", kind) for kind in ("address", "leak", "undefined")),  # thread: below
    ],
)
def test_it_works_as_without(bed: DevBed, tmp_path: Path, compiler: str, sanitizers: str) -> None:
    """Also when a program starts it."""
    program = built(tmp_path, compiler, sanitizers)
    for command in ([program], ["sh", "-c", f"{program}; exit $?"]):
        done = bed.dev("--strict", "-v", "--", *command)
        assert (done.returncode, done.stdout) == (0, "1234567\n"), done.stderr
        assert "sockets: 3 offloaded" in done.stderr and len(done.stderr.splitlines()) == 1


def test_thread_sanitizer_of_clang(bed: DevBed, tmp_path: Path) -> None:
    """It begins before any library, and has to be told about a lock of ours (unmodified.md)."""
    (tmp_path / "suppressions").write_text("mutex:libxts.so\n")
    options = {"TSAN_OPTIONS": f"suppressions={tmp_path / 'suppressions'}"}
    program = built(tmp_path, "clang", "thread")
    done = bed.dev("--strict", "-v", "--", program, **options)
    assert (done.returncode, done.stdout) == (0, "1234567\n"), done.stderr
    assert "sockets: 3 offloaded" in done.stderr
    assert "data race" in bed.dev("--", program, "race", **options).stderr


@pytest.mark.parametrize(
    ("sanitizer", "mistake", "word"),
    [
        ("address", "overflow", "heap-buffer-overflow"),
        ("address", "leak", "detected memory leaks"),
        ("leak", "leak", "detected memory leaks"),
        ("thread", "race", "data race"),
    ],
)
def test_its_own_mistakes_are_found(bed: DevBed, tmp_path: Path, sanitizer: str, mistake: str, word: str) -> None:
    done = bed.dev("--strict", "--", built(tmp_path, "gcc", sanitizer), mistake)
    assert done.stdout == "1234567\n" and done.returncode and word in done.stderr
    assert "libxts" not in done.stderr


def test_what_its_environment_says_comes_first(bed: DevBed, tmp_path: Path) -> None:
    program = built(tmp_path, "gcc", "address")
    refused = bed.dev("--", program, ASAN_OPTIONS="verify_asan_link_order=1")
    assert refused.returncode == 1 and "does not come first" in refused.stderr
    assert bed.dev("--", program, "leak", ASAN_OPTIONS="detect_leaks=0").returncode == 0
