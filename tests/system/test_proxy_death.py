"""The proxy dies: sockets of a real program end in a clear errno within a second, and new ones work with the next."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from operated_proxy import START_S, running
from test_proxy_afxdp import DEVICE_MAC, Cable, cable, inside, proxy_on

__all__ = ["cable"]  # a fixture

NOTICED_S = 1.0
#: Connects, waits for data that never comes, tells how that ended, and connects again as soon as it can.
PROGRAM = """
import sys, time
import xts_socket
peer = ("127.0.0.1", int(sys.argv[1]))
with xts_socket.create_connection(peer) as first:
    print("connected", flush=True)
    try:
        first.recv(1)
        print("end of stream", flush=True)
    except OSError as error:
        print(error.errno, flush=True)
deadline = time.monotonic() + 10
while True:
    try:
        with xts_socket.create_connection(peer, timeout=2) as second:
            second.sendall(b"again")
            print(second.recv(5).decode(), flush=True)
        break
    except OSError:
        if time.monotonic() > deadline:
            raise
        time.sleep(0.01)
"""


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as made:
        made.settimeout(START_S)
        yield made


@contextlib.contextmanager
def program(endpoint: str, server: socket.socket) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", PROGRAM, str(server.getsockname()[1])]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | {"XTS_ENDPOINT": endpoint})
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdout
        process.stdout.close()


def line_of(process: subprocess.Popen[str], timeout_s: float) -> str:
    assert process.stdout
    assert select.select([process.stdout], [], [], timeout_s)[0], f"nothing said in {timeout_s} s"
    return process.stdout.readline().strip()


def serve_again(process: subprocess.Popen[str], server: socket.socket) -> None:
    """The program's second connection goes through."""
    peer, _ = server.accept()
    with peer:
        peer.settimeout(START_S)
        with peer.makefile("rb") as stream:
            peer.sendall(stream.read(5))
        assert line_of(process, START_S) == "again"
    assert process.wait(START_S) == 0


def test_on_shared_memory(tmp_path: Path, server: socket.socket) -> None:
    with running(tmp_path) as proxy:
        with program(proxy.endpoint, server) as process:
            assert line_of(process, START_S) == "connected"
            proxy.process.kill()
            assert int(line_of(process, NOTICED_S)) == errno.ECONNRESET
            proxy.ended()
            server.accept()[0].close()
            with running(tmp_path):
                serve_again(process, server)


@contextlib.contextmanager
def agent_on(cable: Cable, endpoint: Path) -> Iterator[None]:
    ready, told = os.pipe()
    command = [sys.executable, "-m", "xts_agent", "--interface", "xts0", "--peer-mac", DEVICE_MAC]
    command += ["--endpoint", str(endpoint), "--ready-fd", str(told)]
    with inside(cable.host):
        process = subprocess.Popen(command, pass_fds=[told], stdout=subprocess.DEVNULL)
    os.close(told)
    try:
        assert select.select([ready], [], [], START_S)[0]
        assert os.read(ready, 64)
        yield
    finally:
        os.close(ready)
        process.terminate()
        process.wait(START_S)


@pytest.mark.root
@pytest.mark.afxdp
@pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")
def test_on_af_xdp(cable: Cable, tmp_path: Path) -> None:
    with inside(cable.device):
        server = socket.create_server(("127.0.0.1", 0))
    server.settimeout(START_S)
    endpoint = tmp_path / "agent.sock"
    with server, proxy_on(cable, tmp_path) as proxy, agent_on(cable, endpoint):
        with inside(cable.host):
            context = program(str(endpoint), server)
            process = context.__enter__()
        with contextlib.ExitStack() as stack:
            stack.push(context.__exit__)
            assert line_of(process, START_S) == "connected"
            proxy.process.kill()
            assert int(line_of(process, NOTICED_S)) == errno.ECONNRESET
            proxy.ended()
            server.accept()[0].close()
            with proxy_on(cable, tmp_path):
                serve_again(process, server)
