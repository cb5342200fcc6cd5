"""The interposer's calls under every name that a C program may be linked with, those of -D_FORTIFY_SOURCE too."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from beds.preload import PreloadBed

SOURCE = Path(__file__).with_name("programs") / "calls.c"
#: The compiler makes them of plain calls; the others are in the source.
MADE = ("read", "recv", "recvfrom", "poll", "ppoll", "dprintf", "vdprintf")


@pytest.fixture(scope="module", params=[0, 2], ids=["plain", "fortified"])
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    made = tmp_path_factory.mktemp("calls") / "calls"
    flags = ["-O2", "-Wall", "-Wno-unused-result", "-U_FORTIFY_SOURCE", f"-D_FORTIFY_SOURCE={request.param}"]
    subprocess.run([compiler, *flags, "-o", str(made), str(SOURCE)], check=True)
    done = subprocess.run(["nm", "-u", str(made)], check=True, capture_output=True, text=True)
    called = set(re.findall(r" U (\w+)@", done.stdout))
    expected = {f"__{name}_chk" for name in MADE} if request.param else set(MADE)
    assert expected <= called, sorted(expected - called)
    return made


def test_on_the_kernel(program: Path) -> None:
    subprocess.run([program], check=True, timeout=60)


def test_offloaded(program: Path, bed: PreloadBed) -> None:
    done = bed.run([str(program)], strict=True, env={"XTS_LOG": "1"})
    assert done.stderr.count(b": offloaded") >= 2
    assert b"stays with the kernel" not in done.stderr
