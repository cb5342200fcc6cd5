"""The examples for trio and anyio, run as their readers would."""

from __future__ import annotations

import http.server
import os
import socket as kernel
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from beds.proxy_process import ProxyProcess
from beds.worker import receive_exactly

EXAMPLES = Path(__file__).resolve().parents[3] / "host_lib" / "examples"
DEADLINE_S = 20.0


def command(name: str, *arguments: str) -> list[str]:
    return [sys.executable, "-W", "error", str(EXAMPLES / name), *arguments]


def test_trio_echo(xts_endpoint: ProxyProcess) -> None:
    environment = os.environ | {"XTS_ENDPOINT": xts_endpoint.endpoint}
    with subprocess.Popen(command("trio_echo.py"), env=environment, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout
            port = int(server.stdout.readline().split()[-1])
            with kernel.create_connection(("127.0.0.1", port), DEADLINE_S) as sock:
                sock.sendall(b"hello")
                assert receive_exactly(sock, 5) == b"hello"
        finally:
            server.terminate()


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_anyio_fetch(xts_endpoint: ProxyProcess, tmp_path: Path, backend: str) -> None:
    (tmp_path / "index.html").write_text("the page")

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments: object) -> None:
            super().__init__(*arguments, directory=str(tmp_path))  # type: ignore[arg-type]

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            answer = subprocess.run(
                command("anyio_fetch.py", "127.0.0.1", str(server.server_port), backend),
                env=os.environ | {"XTS_ENDPOINT": xts_endpoint.endpoint},
                capture_output=True,
                check=False,
                timeout=DEADLINE_S,
                text=True,
            )
        finally:
            server.shutdown()
            thread.join()
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.startswith("HTTP/1.0 200 OK") and answer.stdout.endswith("the page")
