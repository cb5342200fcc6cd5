"""Masters that bind a socket and leave the listening to workers that they start."""

from __future__ import annotations

import http.client
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest
from beds.preload import PreloadBed
from xts_lab.free_ports import free_port

APPLICATION = """
import os

async def application(scope, receive, send):
    if scope["type"] != "http":
        return
    await send({"type": "http.response.start", "status": 200, "headers": [(b"connection", b"close")]})
    await send({"type": "http.response.body", "body": str(os.getpid()).encode()})
"""
WORKERS = 2
PATIENCE_S = 30.0


def answer(port: int) -> bytes:
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    try:
        client.request("GET", "/")
        return client.getresponse().read()
    finally:
        client.close()


@pytest.mark.parametrize(
    "master",
    [
        ("uvicorn", "--workers", str(WORKERS), "--lifespan", "off", "--host", "127.0.0.1", "--port", "{port}"),
        ("hypercorn", "--workers", str(WORKERS), "--bind", "127.0.0.1:{port}"),
    ],
    ids=lambda master: master[0],
)
def test_every_worker_serves(master: tuple[str, ...], bed: PreloadBed, tmp_path: Path) -> None:
    if find_spec(master[0]) is None:
        pytest.skip(f"{master[0]} is not installed")
    (tmp_path / "served.py").write_text(APPLICATION)
    port = free_port()
    arguments = [argument.format(port=port) for argument in master]
    environment = {"PYTHONPATH": str(tmp_path), "XTS_STRICT": "1"}
    seen: set[bytes] = set()
    end = time.monotonic() + PATIENCE_S
    with bed.start([sys.executable, "-m", *arguments, "served:application"], env=environment) as server:
        while len(seen) < WORKERS:
            assert server.poll() is None and time.monotonic() < end, (seen, server.communicate()[0].decode())
            try:
                seen.add(answer(port))
            except ConnectionRefusedError:
                time.sleep(0.02)  # nobody listens yet
