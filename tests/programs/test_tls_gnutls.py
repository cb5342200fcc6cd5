"""Connections of any kind with GnuTLS's tools as the peer, byte for byte: version, cipher, sizes, size of records, who
ends when. Against OpenSSL there are many more (tests/unit/ulp/test_tls_leave.py)."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from beds import tls_programs
from beds.authority import Issued
from beds.operated_proxy import Proxy, wait
from beds.ready import listens
from beds.tls_peers import AUTHORITY, DEADLINE_S, MANY, PATTERNS, SIZES, asked, line_of, proxy_in
from xts_lab.free_ports import free_port

#: GnuTLS's name, and OpenSSL's in TLS 1.2 and 1.3.
CIPHERS = {
    "AES-128-GCM": ("ECDHE-ECDSA-AES128-GCM-SHA256", "TLS_AES_128_GCM_SHA256"),
    "AES-256-GCM": ("ECDHE-ECDSA-AES256-GCM-SHA384", "TLS_AES_256_GCM_SHA384"),
    "CHACHA20-POLY1305": ("ECDHE-ECDSA-CHACHA20-POLY1305", "TLS_CHACHA20_POLY1305_SHA256"),
    "AES-128-CCM": ("ECDHE-ECDSA-AES128-CCM", "TLS_AES_128_CCM_SHA256"),
}
VERSIONS = {"1.2": 0x0303, "1.3": 0x0304}


@contextmanager
def place() -> Iterator[tuple[Path, Proxy]]:
    """A proxy that has and trusts the authority's, and their files."""
    for name in ("gnutls-cli", "gnutls-serv"):
        if not shutil.which(name):
            pytest.skip(f"{name} is not installed (gnutls-bin)")
    with tempfile.TemporaryDirectory(prefix="xts-gnutls-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        ciphers = [":".join(names) for names in zip(*CIPHERS.values(), strict=True)]
        with proxy_in(folder, ciphers=ciphers[0], ciphersuites=ciphers[1]) as proxy:
            yield folder, proxy


def by_their_client(folder: Path, port: int, chance: random.Random) -> str:
    """One connection of gnutls-cli. Returns what it was. With short records it is given little to send: of what it
    reads at once it sends one record, and drops the rest, to a server with OpenSSL, too."""
    version, cipher = chance.choice(list(VERSIONS)), chance.choice(list(CIPHERS))
    short = chance.choice([None, None, 512, 1024, 2048])
    how = {
        "seed": chance.getrandbits(32),
        "size": chance.choice(SIZES if not short else SIZES[:3]),
        "answer": chance.choice(SIZES),
        "at_once": chance.random() < 0.5,
    }
    command = ["gnutls-cli", "--port", str(port), "--x509cafile", f"{folder}/roots.pem", "--logfile", os.devnull]
    command += ["--priority", f"NORMAL:-VERS-ALL:+VERS-TLS{version}:-CIPHER-ALL:+{cipher}"]
    command += ["--recordsize", str(short)] if short else []
    sent = json.dumps(how).encode() + b"\n" + random.Random(how["seed"]).randbytes(how["size"])
    ran = subprocess.run([*command, "localhost"], input=sent, capture_output=True, timeout=DEADLINE_S, check=False)
    expected = random.Random(how["seed"] + 1).randbytes(how["answer"])
    what = f"TLS {version}, {cipher}, records of {short}, {how}"
    assert ran.returncode == 0, (what, ran.stderr)
    assert ran.stdout == expected, (what, len(ran.stdout))
    return what


@pytest.mark.parametrize("count", MANY)
def test_their_client(count: int) -> None:
    chance = random.Random(32)
    with place() as (folder, proxy), tls_programs.program(proxy, "serve", path=PATTERNS) as served:
        port = int(line_of(served))
        for _ in range(count):
            what = by_their_client(folder, port, chance)
            assert line_of(served) == "ok", what
        assert proxy.status()["tls"]["carried_ours"] == count


@contextmanager
def their_server(folder: Path, issued: Issued) -> Iterator[int]:
    """gnutls-serv, which sends lines back."""
    (folder / "their.pem").write_bytes(issued.certificate)
    (folder / "their.key").write_bytes(issued.key)
    port = free_port()
    files = ["--x509certfile", f"{folder}/their.pem", "--x509keyfile", f"{folder}/their.key"]
    process = subprocess.Popen(
        ["gnutls-serv", "--echo", "--port", str(port), *files],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait(lambda: listens(port), "gnutls-serv")
        yield port
    finally:
        process.kill()
        process.wait()


def to_their_server(chance: random.Random) -> dict[str, Any]:
    version, cipher = chance.choice(list(VERSIONS)), chance.choice(list(CIPHERS))
    number, (below, from_1_3) = VERSIONS[version], CIPHERS[cipher]
    return {
        "tls": {"min_version": number, "max_version": number, "ciphers": below, "ciphersuites": from_1_3},
        "seed": chance.getrandbits(32),
        "sizes": [chance.choice(SIZES[1:-1]) for _ in range(chance.randint(1, 4))],
        "half_close": chance.random() < 0.5,
    }


@pytest.mark.parametrize("count", MANY)
def test_their_server(count: int) -> None:
    chance = random.Random(33)
    with ExitStack() as stack:
        folder, proxy = stack.enter_context(place())
        port = stack.enter_context(their_server(folder, AUTHORITY.issue("localhost")))
        client = stack.enter_context(tls_programs.program(proxy, "connect", str(port), path=PATTERNS))
        for _ in range(count):
            how = to_their_server(chance)
            asked(client, how)
            assert line_of(client) == "ok", how
        assert proxy.status()["tls"]["carried_ours"] == count
