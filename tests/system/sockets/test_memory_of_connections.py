"""What an idle connection takes of memory, in the application and in the proxy.

A server has thousands of them, and a device has those of many hosts, so a member that is added to struct xts_sock or
struct connection without thought costs more than the feature it is for. Their sizes are asserted where they are
defined; here the whole is measured, with what malloc and the tables add. Who needs another member for something that
few connections do puts it into a part that is there only then: struct cold of libxts, or what struct connection
points to.
"""

from __future__ import annotations

import resource
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from beds.operated_proxy import running
from beds.scripts import RUN_S
from beds.shm_proxy import SYSTEM, library

#: Blocks of libxts's table of sockets, so that none is used in part; the first are for what is made once.
FIRST, FURTHER = 256, 2048
#: Of the application, libxts has 328 in struct xts_sock; 200 are on the status page, for `xts status` and `xts top`.
APPLICATION_BYTES_MAX = 528 + 60
#: Of the proxy, 416 in struct connection, with malloc's part, 16 in the channel's table, and 72 in the ledger.
PROXY_BYTES_MAX = 504 + 60


def resident_bytes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("VmRSS:"))) * 1024


@pytest.fixture
def descriptors() -> Iterator[None]:
    """As many as the connections need, here and in the proxy."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def accept(server: socket.socket, count: int) -> list[socket.socket]:
    return [server.accept()[0] for _ in range(count)]


@pytest.mark.usefixtures("descriptors")
def test_an_idle_connection_takes_little_memory(tmp_path: Path) -> None:
    peers: list[socket.socket] = []

    with socket.create_server(("127.0.0.1", 0), backlog=FURTHER) as server, running(tmp_path) as proxy:
        server.settimeout(RUN_S)
        workers = proxy.pid_of("xts-workers")
        command = [sys.executable, str(SYSTEM / "sockets/programs/many_connections.py"), library()]
        command += [str(server.getsockname()[1]), str(FIRST), str(FURTHER)]
        with subprocess.Popen(
            command, env={"XTS_ENDPOINT": str(proxy.directory / "endpoint.sock")}, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True,
        ) as program:  # fmt: skip
            assert program.stdin and program.stdout

            def made(count: int) -> tuple[int, int]:
                accepting = threading.Thread(target=lambda: peers.extend(accept(server, count)))
                accepting.start()
                line = program.stdout.readline()
                accepting.join(RUN_S)
                assert line.strip() == str(len(peers))
                return resident_bytes(program.pid), resident_bytes(workers)

            before = made(FIRST)
            program.stdin.write("\n")
            program.stdin.flush()
            after = made(FURTHER)
            program.stdin.write("\n")
            program.stdin.flush()
            assert program.wait(RUN_S) == 0
        for peer in peers:
            peer.close()
    application, proxied = ((after[i] - before[i]) / FURTHER for i in range(2))
    print(f"{application:.0f} bytes in the application, {proxied:.0f} in the proxy")
    assert 0 < application <= APPLICATION_BYTES_MAX
    assert 0 < proxied <= PROXY_BYTES_MAX
