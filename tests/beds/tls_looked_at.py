"""Servers that programs of others look at: a listener of ours, and `openssl s_server`, with the same certificate and
the same ciphers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from xts_lab.certificate import self_signed
from xts_lab.free_ports import free_port

from beds.operated_proxy import Proxy, running, user_to_become, wait
from beds.patience import SLOWER
from beds.ready import listens, readable

PAGE_SERVER = Path(__file__).parents[1] / "tls" / "programs" / "page_server.py"
#: As the proxy has them by itself, and those that scripts want which know no other, which stay with OpenSSL (CBC, and
#: keys that RSA transports).
CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20:ECDHE+AES:AES128-GCM-SHA256:AES128-SHA:AES256-SHA:AES128-SHA256:AES256-SHA256"
SUITES = "TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256:TLS_AES_128_GCM_SHA256"
STARTS_S = 30.0 * SLOWER


@dataclass(frozen=True, slots=True)
class Place:
    folder: Path
    proxy: Proxy


@contextmanager
def place(ciphers: str = CIPHERS) -> Iterator[Place]:
    """A proxy with the identity "own", whose files are there: own.pem and own.key.pem. Its key is of RSA, and so is its
    signature, since most scripts know no other. ciphers "": the proxy's own."""
    with tempfile.TemporaryDirectory(prefix="xts-looked-at-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        made = self_signed(folder, "own", "localhost", "rsa")
        if os.geteuid() == 0:
            shutil.chown(made.key, user_to_become())
        files = f'certificate = "{made.certificate}"\nkey = "{made.key}"\n'
        chosen = f'ciphers = "{ciphers}"\nciphersuites = "{SUITES}"\n' if ciphers else ""
        with running(folder, f'[tls]\n{chosen}[[tls.identity]]\nname = "own"\n{files}') as proxy:
            yield Place(folder, proxy)


@contextmanager
def our_server(made: Place) -> Iterator[int]:
    process = subprocess.Popen(
        [sys.executable, str(PAGE_SERVER)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"XTS_ENDPOINT": made.proxy.endpoint},
    )
    assert process.stdin and process.stdout
    try:
        assert readable(process.stdout, STARTS_S)
        yield int(process.stdout.readline())
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


@contextmanager
def openssl_server(made: Place) -> Iterator[int]:
    if not shutil.which("openssl"):
        pytest.skip("openssl is not installed")
    port = free_port()
    files = ["-cert", f"{made.folder}/own.pem", "-key", f"{made.folder}/own.key.pem"]
    chosen = ["-cipher", CIPHERS, "-ciphersuites", SUITES, "-serverpref", "-prioritize_chacha"]
    refused = ["-no_renegotiation", "-no_ssl3", "-no_tls1", "-no_tls1_1"]
    process = subprocess.Popen(
        ["openssl", "s_server", "-www", "-quiet", "-accept", f"127.0.0.1:{port}", *files, *chosen, *refused],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait(lambda: listens(port), "openssl s_server")
        yield port
    finally:
        process.kill()
        process.wait()
