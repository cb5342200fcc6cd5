"""Sockets over a queue with a clock: its frames are late (XTS_FAULTS delay_ppm), and nothing else is different."""

from __future__ import annotations

import contextlib
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
from beds.scripts import RUN_S
from beds.shm_proxy import SYSTEM, ShmProxy
from xts_lab.lab import Lab

PROGRAM = str(SYSTEM / "sockets" / "programs" / "slow_queue.py")
FAULTS = "seed=3,delay_ppm=500000,delay_us=10000"


class Echo(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        arrivals = self.server.arrivals  # type: ignore[attr-defined]
        with contextlib.suppress(ConnectionError):
            while data := self.request.recv(65536):
                arrivals.append(data)
                self.request.sendall(data)


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, address: str) -> None:
        super().__init__((address, 0), Echo)
        self.arrivals: list[bytes] = []


@contextlib.contextmanager
def serving(address: str) -> Iterator[Server]:
    with Server(address) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def check(output: str, server: Server) -> None:
    assert output.split() == ["bulk", "alone"]
    digits = [data for data in server.arrivals if data.isdigit()]
    assert digits == [b"%d" % number for number in range(8)], "none waited for the program's next call"


def test_shm(proxy: ShmProxy) -> None:
    with serving("127.0.0.1") as server:
        port = str(server.server_address[1])
        check(proxy.run("sockets/programs/slow_queue.py", "127.0.0.1", port, XTS_FAULTS=FAULTS), server)


@pytest.mark.root
@pytest.mark.afxdp
def test_afxdp(lab: Lab) -> None:
    with contextlib.ExitStack() as stack:
        with lab.inside("net"):
            server = stack.enter_context(serving("198.18.0.2"))
        command = [sys.executable, PROGRAM, "198.18.0.2", str(server.server_address[1])]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        with lab.popen("host", command, environment={"XTS_FAULTS": FAULTS}, **pipes) as process:
            output, said = process.communicate(timeout=RUN_S)
        assert process.returncode == 0, said
        check(str(output), server)
