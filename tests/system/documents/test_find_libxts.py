"""How C programs find libxts after an installation: pkg-config and CMake; and what CMake says where it cannot run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
from collections.abc import Sequence
from pathlib import Path

import pytest
from beds.native_core import compiler

TOP = Path(__file__).resolve().parents[3]
INSTALLED = Path(sysconfig.get_path("data"))
PROGRAM = """
#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>
#include <xts.h>

int main(void)
{
\tif (xts_socket(AF_INET, SOCK_STREAM, 0) >= 0 || errno != ENETDOWN)
\t\treturn 1;
\tputs("linked");
\treturn 0;
}
"""
PROJECT = """
cmake_minimum_required(VERSION 3.22)
project(uses_xts LANGUAGES C)
find_package(xts {version} REQUIRED)
add_executable(program program.c)
target_link_libraries(program PRIVATE xts::xts)
"""
#: CMake takes a while on a busy machine: it compiles two small programs before ours.
PATIENCE_S = 100

pytestmark = pytest.mark.skipif(
    shutil.which("cmake") is None or shutil.which("pkg-config") is None, reason="cmake or pkg-config is not installed"
)


def done(command: Sequence[str | Path], folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=folder,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def runs(program: Path) -> bool:
    return done([program], program.parent, XTS_ENDPOINT=str(program.parent / "nobody.sock")).stdout == "linked\n"


def configured(folder: Path, version: str) -> subprocess.CompletedProcess[str]:
    (folder / "program.c").write_text(PROGRAM)
    (folder / "CMakeLists.txt").write_text(PROJECT.format(version=version))
    return done(["cmake", "-S", ".", "-B", "build", f"-DCMAKE_PREFIX_PATH={INSTALLED}"], folder)


def test_by_pkg_config(tmp_path: Path) -> None:
    (tmp_path / "program.c").write_text(PROGRAM)
    asked = done(
        ["pkg-config", "--cflags", "--libs", "xts"], tmp_path, PKG_CONFIG_PATH=str(INSTALLED / "lib/pkgconfig")
    )
    assert asked.returncode == 0, asked.stderr
    built = done([compiler(), "-o", "program", "program.c", *asked.stdout.split()], tmp_path)
    assert built.returncode == 0, built.stderr
    assert runs(tmp_path / "program")


@pytest.mark.parametrize("version", ["", "0.1"])
def test_by_cmake(tmp_path: Path, version: str) -> None:
    found = configured(tmp_path, version)
    assert found.returncode == 0, found.stdout + found.stderr
    built = done(["cmake", "--build", "build"], tmp_path)
    assert built.returncode == 0, built.stdout + built.stderr
    assert runs(tmp_path / "build" / "program")


def test_a_version_that_is_not_there(tmp_path: Path) -> None:
    found = configured(tmp_path, "99.0")
    assert found.returncode != 0 and "xtsConfig.cmake, version: " in found.stderr


@pytest.mark.parametrize("system", ["Darwin", "Windows"])
def test_elsewhere_one_sentence_says_how_to_run_it(tmp_path: Path, system: str) -> None:
    """Instead of errors of a compiler."""
    tried = done(
        ["cmake", "-S", TOP / "deploy/cmake", "-B", tmp_path / "build", f"-DCMAKE_SYSTEM_NAME={system}"], tmp_path
    )
    told = " ".join(tried.stderr.split())
    assert tried.returncode != 0
    assert f"xts-offload runs on Linux only, and this is {system}. Here it runs in a container: podman build" in told
    assert "compiler" not in told
