"""Programs with TLS connections through a running xts-proxy (tests/system/tls/programs/tls_rate.py), and clients of
them."""

from __future__ import annotations

import json
import os
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from beds.operated_proxy import Proxy
from beds.patience import SLOWER
from beds.ready import readable

PROGRAM = Path(__file__).parents[1] / "system" / "tls" / "programs" / "tls_rate.py"
DEADLINE_S = 30.0 * SLOWER


@contextmanager
def program(proxy: Proxy, *arguments: str, path: Path = PROGRAM) -> Iterator[subprocess.Popen[str]]:
    """It runs with these arguments, and ends with the block."""
    process = subprocess.Popen(
        [sys.executable, str(path), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"XTS_ENDPOINT": proxy.endpoint},
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream:
                stream.close()


def says(process: subprocess.Popen[str], seconds: float = DEADLINE_S) -> str:
    assert process.stdout and readable(process.stdout, seconds)
    return process.stdout.readline()


def outcome(process: subprocess.Popen[str]) -> tuple[int, list[str]]:
    """How many connections it had, and what failed."""
    assert process.stdin
    process.stdin.close()
    told = json.loads(says(process))
    return told["done"], told["failures"]


def shown_by(port: int, context: ssl.SSLContext, session: ssl.SSLSession | None = None) -> ssl.SSLSocket:
    """A connection to it; the session is for it to resume."""
    sock = socket.create_connection(("127.0.0.1", port), DEADLINE_S)
    tls = context.wrap_socket(sock, server_hostname="localhost", session=session)
    tls.sendall(b"x")
    assert tls.recv(1) == b"x"
    return tls
