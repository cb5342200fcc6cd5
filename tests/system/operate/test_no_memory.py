"""Memory of the device runs out in the proxy's own code: each request is answered all the same, and the proxy lives."""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from beds.native_core import compiler
from beds.operated_proxy import running
from beds.operated_tls import WWW, directory
from beds.ulp_tls import server_context

__all__ = ["directory"]  # fixture

PROGRAMS = Path(__file__).with_name("programs")
THREADS, CONNECTS = 8, 40


@contextmanager
def tls_server() -> Iterator[int]:
    """Reads all, and answers a little, at this port."""
    context = server_context(WWW)

    def serve(connection: socket.socket) -> None:
        with suppress(OSError), connection:
            connection.settimeout(60)  # longer than who connects waits
            with context.wrap_socket(connection, server_side=True) as peer:
                left = 20_000
                while left and (data := peer.recv(65536)):
                    left -= len(data)
                peer.sendall(b"answer")

    def accept() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=serve, args=[listener.accept()[0]], daemon=True).start()

    with socket.create_server(("127.0.0.1", 0), backlog=200) as listener:
        threading.Thread(target=accept, daemon=True).start()
        yield listener.getsockname()[1]
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)


def connects(endpoint: str, port: int) -> dict[str, int]:
    command = [sys.executable, str(PROGRAMS / "connect_often.py"), *map(str, (port, THREADS, CONNECTS))]
    environment = os.environ | {"XTS_ENDPOINT": endpoint}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100, check=True)
    found: dict[str, int] = json.loads(done.stdout)
    return found


@pytest.mark.slow
@pytest.mark.skipif("asan" in os.environ.get("LD_PRELOAD", ""), reason="a sanitizer has a malloc of its own")
@pytest.mark.parametrize(("one_in", "at_first"), [(20, False), (5, False), (60, True)])
def test_each_connect_with_tls_is_answered(directory: Path, tmp_path: Path, one_in: int, at_first: bool) -> None:
    """at_first: memory lacks already when what all connections share is made. That is tried again later."""
    shim, control = tmp_path / "shim.so", tmp_path / "control"
    source = PROGRAMS / "failing_malloc.c"
    subprocess.run(
        [compiler(), "-D_GNU_SOURCE", "-O1", "-shared", "-fPIC", "-o", str(shim), str(source), "-ldl"], check=True
    )
    control.write_bytes(bytes(8))
    control.chmod(0o666)
    tmp_path.chmod(0o755)
    failing = {"LD_PRELOAD": str(shim), "FAIL_IN": "xts_proxy/_native", "FAIL_CONTROL": str(control)}
    with (
        tls_server() as port,
        running(directory, environment=failing, user="root" if not os.geteuid() else "") as proxy,
    ):
        if not at_first:
            assert connects(proxy.endpoint, port) == {"done": THREADS * CONNECTS}
        with control.open("r+b") as file:
            file.write(struct.pack("=I", one_in))
        found = connects(proxy.endpoint, port)
        failed = struct.unpack("=II", control.read_bytes())[1]
        assert failed, "no allocation has failed"
        assert "no answer" not in found and sum(found.values()) == THREADS * CONNECTS
        with control.open("r+b") as file:
            file.write(struct.pack("=I", 0))
        assert connects(proxy.endpoint, port) == {"done": THREADS * CONNECTS}
        assert proxy.process.poll() is None
