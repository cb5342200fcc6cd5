"""The interposer in containers: what programs of images with another C library do with it."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from xts_kubernetes import interposer
from xts_kubernetes.__main__ import main
from xts_kubernetes.config import load, parser
from xts_kubernetes.container import container_gets

PROGRAM = """
#include <stdio.h>
#include <string.h>
int main(void)
{
	char line[4096];
	int found = 0;
	FILE *maps = fopen("/proc/self/maps", "r");
	while (maps && fgets(line, sizeof line, maps))
		found |= strstr(line, "libxts-preload") != NULL;
	puts(found ? "with" : "without");
	return 0;
}
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """What a container of this folder has."""
    folder = tmp_path / "interposer"
    assert main(["--install-interposer", str(folder)]) == 0
    options = ["--interposer-dir", str(folder), "--container-interposer-dir", str(folder)]
    gets = container_gets(load(parser().parse_args(options)), interposed=True)
    return dict(os.environ) | {"LD_PRELOAD": gets.environment["LD_PRELOAD"]}


def run(program: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(program)], env=environment, capture_output=True, text=True, check=False)


def compiled(compiler: str, folder: Path, *options: str) -> Path:
    if not shutil.which(compiler):
        pytest.skip(f"no {compiler} (deploy/setup --dev installs it)")
    source, program = folder / "program.c", folder / "program"
    source.write_text(PROGRAM)
    subprocess.run([compiler, *options, "-o", str(program), str(source)], check=True)
    return program


def test_an_image_with_glibc(tmp_path: Path, environment: dict[str, str]) -> None:
    done = run(compiled("gcc", tmp_path), environment)
    assert (done.returncode, done.stdout, done.stderr) == (0, "with\n", "")


def test_an_image_with_musl(tmp_path: Path, environment: dict[str, str]) -> None:
    program = compiled("musl-gcc", tmp_path)
    done = run(program, environment)
    assert (done.returncode, done.stdout, done.stderr) == (0, "without\n", "")
    # By a path that musl's loader finds, too, the program would not start.
    found = environment["LD_PRELOAD"].replace("$LIB", interposer.COPY)
    assert Path(found).exists()
    assert run(program, environment | {"LD_PRELOAD": found}).returncode != 0


def test_a_static_program(tmp_path: Path, environment: dict[str, str]) -> None:
    done = run(compiled("gcc", tmp_path, "-static"), environment)
    assert (done.returncode, done.stdout, done.stderr) == (0, "without\n", "")


def test_an_upgrade_replaces_in_one_step(tmp_path: Path) -> None:
    interposer.install(tmp_path)
    found = sorted(tmp_path.rglob("*.so*"))
    assert len(found) == 2 * (1 + len(interposer.folders()))
    with contextlib.ExitStack() as stack:
        running = [stack.enter_context(path.open("rb")) for path in found]  # as programs have them
        interposer.install(tmp_path)
        assert sorted(tmp_path.rglob("*.so*")) == found
        for path, file in zip(found, running, strict=True):
            assert path.stat().st_ino != os.fstat(file.fileno()).st_ino


def test_a_folder_that_cannot_be_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    assert main(["--install-interposer", str(tmp_path / "file")]) == 1
    assert "Not a directory" in capsys.readouterr().err
