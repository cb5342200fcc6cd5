"""pthread_cancel() ends a thread that waits: on the kernel, under the interposer, and in programs that call libxts."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from beds.compiled import compile_program
from beds.preload import PreloadBed
from beds.shm_proxy import library

FOLDER = Path(__file__).with_name("programs")
TOP = Path(__file__).resolve().parents[3]
ROLES = ("tcp_client", "tcp_server", "udp_receiver", "udp_connect")
TIMES, DEADLINE_S = 2, 60.0


@pytest.fixture(scope="module")
def full() -> Iterator[int]:
    """The port of a listener that has as many connections as may wait: a connect waits, too."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server, socket.socket() as client:
        client.connect(server.getsockname())
        yield server.getsockname()[1]


def compiled(folder: Path, *flags: str) -> str:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    made = folder / "cancelling"
    strict = ("-O2", "-Wall", "-Wextra", "-Werror", "-pthread")
    subprocess.run([compiler, *strict, "-o", made, FOLDER / "cancelling.c", *flags], check=True)
    return str(made)


def test_on_the_kernel(full: int, tmp_path: Path) -> None:
    """What the program asserts is true there."""
    subprocess.run([compiled(tmp_path), str(full), str(TIMES)], check=True, timeout=DEADLINE_S)


@pytest.mark.parametrize("roles", [pytest.param(ROLES, id="all"), pytest.param(ROLES[:2], id="streams")])
@pytest.mark.parametrize("stacks", ["process", "thread"])
def test_under_the_interposer(full: int, bed: PreloadBed, tmp_path: Path, roles: tuple[str, ...], stacks: str) -> None:
    """Without a rule for receivers the datagram sockets are undecided, and their threads sleep in the kernel."""
    rules = "".join(f"use xts {role} *:*\n" for role in (*roles, "udp_sender"))
    env = {"XTS_LOG": "1", "XTS_STACKS": stacks}
    done = bed.run([compiled(tmp_path), str(full), str(TIMES)], rules=rules, env=env)
    assert b": offloaded" in done.stderr


def test_with_libxts(full: int, bed: PreloadBed, tmp_path: Path) -> None:
    where = Path(library())
    native = TOP / "host_lib" / "native"
    includes = [f"-I{native}", f"-I{TOP / 'messages' / 'native'}", "-DOWN"]
    program = compiled(tmp_path, *includes, str(where), f"-Wl,-rpath,{where.parent}")
    env = {"LD_PRELOAD": ""}
    bed.run([program, str(full), str(TIMES)], env=env)


def test_what_is_no_cancellation_point(bed: PreloadBed, tmp_path: Path) -> None:
    program = compile_program(FOLDER / "not_cancelled.c", tmp_path)
    subprocess.run([program], check=True, timeout=DEADLINE_S)
    bed.run([program])
