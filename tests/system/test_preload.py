"""Unmodified programs under the interposer, their peers on the kernel."""

from __future__ import annotations

import functools
import hashlib
import http.server
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from preload_bed import PreloadBed, preload_bed
from preload_scripts import KERNEL

SCRIPTS = str(Path(__file__).with_name("preload_scripts.py"))


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PreloadBed]:
    with preload_bed(tmp_path_factory.mktemp("preload")) as made:
        yield made


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


def test_curl_fetches_a_file(bed: PreloadBed, tmp_path: Path) -> None:
    data = os.urandom(20_000_000)
    (tmp_path / "file").write_bytes(data)
    handler = functools.partial(QuietHandler, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        try:
            url = f"http://127.0.0.1:{server.server_port}/file"
            done = bed.run(["curl", "-sS", url], env={"XTS_LOG": "1"})
        finally:
            server.shutdown()
            serving.join()
    assert hashlib.sha256(done.stdout).digest() == hashlib.sha256(data).digest()
    assert b": offloaded" in done.stderr


@pytest.mark.parametrize("name", sorted(KERNEL))
def test_as_the_kernel_does(name: str) -> None:
    """What the scripts assert is true without the interposer."""
    subprocess.run([sys.executable, SCRIPTS, name], check=True, timeout=60, stdout=subprocess.DEVNULL)


@pytest.mark.parametrize("name", sorted(KERNEL))
def test_offloaded(name: str, bed: PreloadBed) -> None:
    bed.run([sys.executable, SCRIPTS, name])
