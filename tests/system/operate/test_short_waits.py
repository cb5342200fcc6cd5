"""The end of a proxy is noticed by programs that never wait long, and by those that never wait."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import tempfile
from pathlib import Path

import pytest
from beds.ready import readable
from beds.restarts import place
from system.operate.programs.short_waits import WAYS
from xts_lab import topology

PROGRAM = Path(__file__).with_name("programs") / "short_waits.py"
NOTICED_S = 10.0  # 3 s of silence over AF_XDP, on a busy machine


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout and process.stderr
    if not readable(process.stdout, NOTICED_S):
        return "it does not notice"
    return process.stdout.readline().strip() or process.stderr.read()


@pytest.mark.parametrize("kind", ["shm", pytest.param("afxdp", marks=[pytest.mark.root, pytest.mark.afxdp])])
def test_the_end_is_noticed(kind: str) -> None:
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="xts-short-")))
        folder.chmod(0o755)
        where = stack.enter_context(place(kind, folder))
        with where.network():
            server = stack.enter_context(socket.create_server(("", 0), backlog=len(WAYS)))
        address = "127.0.0.1" if kind == "shm" else str(topology.NET.addresses[0].ip)
        arguments = [address, str(server.getsockname()[1])]
        programs = {way: stack.enter_context(where.program([str(PROGRAM), way, *arguments])) for way in WAYS}
        assert {way: line(process) for way, process in programs.items()} == dict.fromkeys(WAYS, "connected")
        where.end("kill")
        said = {way: line(process) for way, process in programs.items()}
    assert set(said.values()) <= {"ECONNRESET", "ENETDOWN"}, said
