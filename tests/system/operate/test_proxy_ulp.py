"""Pushed protocols as the operator configures them: a whole xts-proxy, its rights given up."""

from __future__ import annotations

import errno
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from beds.operated_proxy import Proxy, running
from beds.scripted_host import ScriptedHost
from beds.worker import FEATURES, connected, server
from xts_bpf.parser import EXAMPLE
from xts_messages.attaching.attach import attach
from xts_proxy.supervisor import sandbox

__all__ = ["server"]  # fixture
FRAME = b"\0\0\3\0\1\0\0\0\1abc"


@pytest.fixture
def directory() -> Iterator[Path]:
    """One that another user can read, with a parser in it."""
    with tempfile.TemporaryDirectory(prefix="xts-proxy-") as name:
        path = Path(name)
        path.chmod(0o755)
        shutil.copy(EXAMPLE, path / "http2.o")
        yield path


def parser(directory: Path, name: str = "http2", program: str = "http2_frames") -> str:
    return f'[[ulp.parser]]\nname = "{name}"\nobject = "{directory / "http2.o"}"\nprogram = "{program}"\n'


def frames_arrive(proxy: Proxy, server: socket.socket, program: str) -> None:
    """A host pushes the program by its name, and gets the PDUs it finds."""
    attachment = attach(proxy.endpoint, program="test")
    try:
        host = ScriptedHost(attachment.queue, attachment.epoch, {"features": FEATURES}).open()
        push = {"ulp": "BPF_PARSER", "way": "PUSH_ULP_RX", "program": program}
        with connected(host, server, push) as c:
            c.peer.sendall(FRAME * 2)
            assert [c.read_pdu() for _ in range(2)] == [FRAME, FRAME]
            assert c.close().error == 0
    finally:
        attachment.close()


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="loading a BPF program needs CAP_BPF")
def test_a_program_is_loaded_with_rights_and_runs_without(directory: Path, server: socket.socket) -> None:
    with running(directory, parser(directory), user="nobody") as proxy:
        status = Path(f"/proc/{proxy.pid_of('xts-workers')}/status").read_text()
        kept = sum(1 << sandbox.CAPABILITIES[name] for name in sandbox.of_workers())
        assert f"CapEff:\t{kept:016x}" in status
        frames_arrive(proxy, server, "http2")
        # What is loaded may be named again; what is not cannot be loaded any more, and then nothing changes.
        proxy.write_config(parser(directory, "frames") + "[ulp]\npdu_mib_max = 1\n", user="nobody")
        proxy.hang_up("taken")
        frames_arrive(proxy, server, "frames")
        shutil.copy(EXAMPLE, directory / "other.o")
        (directory / "other.o").chmod(0o644)
        other = parser(directory, "other").replace("http2.o", "other.o")
        proxy.write_config(other, user="nobody")
        said = proxy.hang_up("refused")
        assert "parser other: loading http2_frames" in said
        assert "CAP_BPF" in said
        frames_arrive(proxy, server, "frames")


def test_limits_of_the_configuration_bind_pushes(tmp_path: Path, server: socket.socket) -> None:
    with running(tmp_path, "[ulp]\npdu_mib_max = 2\n") as proxy:
        attachment = attach(proxy.endpoint, program="test")
        try:
            host = ScriptedHost(attachment.queue, attachment.epoch, {"features": FEATURES}).open()
            push = {"ulp": "LENGTH_PREFIXED", "max_bytes": (2 << 20) + 1}
            answer = host.push(number=host.new_socket(), **push)
            assert answer.error == errno.EINVAL
            assert host.push(number=host.new_socket(), ulp="LENGTH_PREFIXED", max_bytes=2 << 20).error == 0
        finally:
            attachment.close()
