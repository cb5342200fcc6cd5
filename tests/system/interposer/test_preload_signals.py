"""Signal handlers that interrupt calls, and do in them what they may on the kernel: under the interposer, and in
programs that call libxts."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from beds.compiled import compile_program
from beds.preload import ALL, PreloadBed, preload_library
from beds.shm_proxy import library
from xts_lab.lab import Lab

FOLDER = Path(__file__).with_name("programs")
TOP = Path(__file__).resolve().parents[3]
RUN_S = 3
INTERRUPTS = 2000
CHILDREN = 500
DEADLINE_S = 60.0
DEVICE = "198.18.0.1"

Compile = Callable[..., str]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compile:
    """The program made of a source in `programs`."""
    folder = tmp_path_factory.mktemp("programs")

    def make(name: str, *more: str) -> str:
        return compile_program(FOLDER / f"{name}.c", folder, *more)

    return make


def counts(output: bytes) -> dict[str, int]:
    words = output.decode().split()
    return dict(zip(words[1::2], map(int, words[::2]), strict=True))


def all_happened(output: bytes) -> bool:
    return all(counts(output).values())


def test_handlers_interrupt_every_call(compiled: Compile, bed: PreloadBed) -> None:
    program = compiled("interrupting")
    plain = subprocess.run([program, str(INTERRUPTS // 10)], capture_output=True, check=True, timeout=DEADLINE_S)
    assert all_happened(plain.stdout), plain.stdout
    done = bed.run([program, str(INTERRUPTS)], strict=True, env={"XTS_LOG": "1"})
    assert all_happened(done.stdout), done.stdout
    assert b": offloaded" in done.stderr


def test_handlers_interrupt_every_call_between_machines(compiled: Compile, lab: Lab, tmp_path: Path) -> None:
    rules = tmp_path / "rules"
    rules.write_text(ALL)
    environment = {"LD_PRELOAD": preload_library(), "XTS_RULES": str(rules), "XTS_STRICT": "1"}
    command = [compiled("interrupting"), str(INTERRUPTS), DEVICE]
    done = lab.run("host", command, environment=environment, capture_output=True, timeout=DEADLINE_S)
    assert done.returncode == 0, done.stderr.decode()
    assert all_happened(done.stdout), done.stdout


def test_a_server_whose_handlers_start_children(compiled: Compile, bed: PreloadBed) -> None:
    """Before handlers were put off it stopped within seconds, for ever, in two of two runs."""
    done = bed.run([compiled("forking"), str(RUN_S)], strict=True, env={"XTS_LOG": "1"})
    assert counts(done.stdout)["started"] > 20
    assert b": offloaded" in done.stderr


def test_signals_are_delivered_as_on_the_kernel(compiled: Compile, bed: PreloadBed) -> None:
    """Siginfo, order, alternate stack, masks in the handler and after it, SA_RESETHAND; stop and continue."""
    program = compiled("delivered")
    plain = subprocess.run([program], capture_output=True, check=True, timeout=DEADLINE_S)
    assert plain.stdout.count(b"signal ") == 6 and plain.stdout.count(b"EINTR") == 2
    done = bed.run([program], strict=True, env={"XTS_LOG": "1"})
    assert done.stdout == plain.stdout
    assert b": offloaded" in done.stderr


@pytest.mark.parametrize("installed", ["ours", "plain"])
def test_a_program_that_calls_libxts(installed: str, compiled: Compile, bed: PreloadBed) -> None:
    """Its handlers fork in the middle of the calls; those that xts_sigaction() has installed make such calls too."""
    where = str(Path(library()).parent)
    includes = [f"-I{TOP / part / 'native'}" for part in ("host_lib", "messages")]
    program = compiled("handlers", *includes, f"-L{where}", f"-Wl,-rpath,{where}", "-l:libxts.so.1")
    done = subprocess.run(
        [program, installed, str(CHILDREN)],
        env=os.environ | {"XTS_ENDPOINT": bed.proxy.endpoint},
        capture_output=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    found = counts(done.stdout)
    assert found["children"] >= CHILDREN and bool(found["written"]) == (installed == "ours")
