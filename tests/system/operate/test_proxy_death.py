"""The proxy dies: sockets of a real program end in a clear errno, over shared memory within a second, else when the
device has been silent for as long as is configured; new ones work with the next. One that stands still ends nothing."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from beds import process_tree
from beds.operated_proxy import START_S, Proxy, running
from beds.ready import readable
from test_proxy_afxdp import DEVICE_MAC, Cable, cable, inside, proxy_on

__all__ = ["cable"]  # a fixture

NOTICED_S = 1.0
DEAD_MS = 700
STANDSTILL_S = 1.5  # less than the default of XTS_DEAD_MS
#: Connects, waits for data that never comes, tells how that ended, and connects again as soon as it can.
PROGRAM = """
import sys, time
import xts_socket
peer = ("127.0.0.1", int(sys.argv[1]))
with xts_socket.create_connection(peer) as first:
    print("connected", flush=True)
    try:
        while data := first.recv(64):
            print(data.decode(), flush=True)
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
def program(endpoint: str, server: socket.socket, **settings: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", PROGRAM, str(server.getsockname()[1])]
    environment = os.environ | {"XTS_ENDPOINT": endpoint} | settings
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdout
        process.stdout.close()


def line_of(process: subprocess.Popen[str], timeout_s: float) -> str:
    assert process.stdout
    assert readable(process.stdout, timeout_s), f"nothing said in {timeout_s} s"
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


def stands_still(proxy: Proxy, process: subprocess.Popen[str], server: socket.socket) -> None:
    """The proxy stops for a while, and the program's connection goes on."""
    assert line_of(process, START_S) == "connected"
    peer, _ = server.accept()
    workers = proxy.pid_of("xts-workers")
    with peer:
        process_tree.stop(workers)
        time.sleep(STANDSTILL_S)
        peer.sendall(b"still-there")
        os.kill(workers, signal.SIGCONT)
        assert line_of(process, START_S) == "still-there"


def test_a_proxy_that_stands_still_is_not_dead_on_shared_memory(tmp_path: Path, server: socket.socket) -> None:
    with running(tmp_path) as proxy, program(proxy.endpoint, server) as process:
        stands_still(proxy, process, server)


def test_a_proxy_that_stands_still_is_given_up_after_the_configured_time(tmp_path: Path, server: socket.socket) -> None:
    with running(tmp_path) as proxy, program(proxy.endpoint, server, XTS_DEAD_MS=str(DEAD_MS)) as process:
        assert line_of(process, START_S) == "connected"
        begun = time.monotonic()
        workers = proxy.pid_of("xts-workers")
        process_tree.stop(workers)
        try:
            assert int(line_of(process, START_S)) == errno.ECONNRESET
            assert time.monotonic() - begun > (DEAD_MS - 250) / 1000  # the last sign of life may be a ping old
        finally:
            os.kill(workers, signal.SIGCONT)


@contextlib.contextmanager
def agent_on(cable: Cable, endpoint: Path) -> Iterator[None]:
    ready, told = os.pipe()
    command = [sys.executable, "-m", "xts_agent", "--interface", "xts0", "--peer-mac", DEVICE_MAC]
    command += ["--endpoint", str(endpoint), "--ready-fd", str(told)]
    with inside(cable.host):
        process = subprocess.Popen(command, pass_fds=[told], stdout=subprocess.DEVNULL)
    os.close(told)
    try:
        assert readable(ready, START_S)
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
            context = program(str(endpoint), server, XTS_DEAD_MS=str(DEAD_MS))
            process = context.__enter__()
        with contextlib.ExitStack() as stack:
            stack.push(context.__exit__)
            assert line_of(process, START_S) == "connected"
            proxy.process.kill()
            assert int(line_of(process, START_S)) == errno.ECONNRESET
            proxy.ended()
            server.accept()[0].close()
            with proxy_on(cable, tmp_path):
                serve_again(process, server)


@pytest.mark.root
@pytest.mark.afxdp
@pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")
def test_a_proxy_that_stands_still_is_not_dead_on_af_xdp(cable: Cable, tmp_path: Path) -> None:
    """Over Ethernet nothing tells a proxy that is busy from one that is dead: sockets were reset after 0.85 s."""
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
            stands_still(proxy, process, server)
