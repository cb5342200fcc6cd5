"""Connections of any kind with Go's TLS as the peer, byte for byte, as test_tls_gnutls.py has them with GnuTLS."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from beds import tls_programs
from beds.operated_proxy import Proxy
from beds.patience import SLOWER
from beds.tls_peers import MANY, OWN, PATTERNS, SIZES, asked, line_of, proxy_in

PROGRAMS = Path(__file__).with_name("programs")
TLS_1_2, TLS_1_3 = 0x0303, 0x0304
#: Of TLS 1.2, by OpenSSL's name: its number. Go has no CCM. That of 1.3 is chosen by Go (AES-128-GCM here, as a rule).
CIPHERS = {
    "ECDHE-ECDSA-AES128-GCM-SHA256": 0xC02B,
    "ECDHE-ECDSA-AES256-GCM-SHA384": 0xC02C,
    "ECDHE-ECDSA-CHACHA20-POLY1305": 0xCCA9,
}
SUITES = ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256")
PIECES = (1, 100, 1400, 16384, 16385, 60_000)


@pytest.fixture(scope="module")
def peer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled program. Its compiler keeps what it has made next to it."""
    go = shutil.which("go")
    if not go:
        pytest.skip("Go's compiler is not installed (golang-go)")
    folder = tmp_path_factory.mktemp("go")
    environment = os.environ | {"GOCACHE": str(folder / "cache"), "GO111MODULE": "off", "CGO_ENABLED": "0"}
    command = [go, "build", "-o", str(folder / "tls_peer"), str(PROGRAMS / "tls_peer.go")]
    built = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300 * SLOWER, check=False)
    assert built.returncode == 0, built.stderr
    return folder / "tls_peer"


@pytest.fixture
def place(tmp_path: Path) -> Iterator[tuple[Path, Proxy]]:
    """A proxy that has and trusts the authority's, and their files."""
    (tmp_path / "their.pem").write_bytes(OWN.certificate)
    (tmp_path / "their.key").write_bytes(OWN.key)
    with proxy_in(tmp_path, ciphers=":".join(CIPHERS)) as proxy:
        yield tmp_path, proxy


@contextmanager
def theirs(command: list[str]) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def wish(folder: Path, chance: random.Random) -> tuple[dict[str, Any], bytes]:
    """One connection of theirs, and what is to come back."""
    how = {
        "seed": chance.getrandbits(32),
        "size": chance.choice(SIZES),
        "answer": chance.choice(SIZES),
        "at_once": chance.random() < 0.5,
    }
    file = folder / "to-send"
    file.write_bytes(json.dumps(how).encode() + b"\n" + random.Random(how["seed"]).randbytes(how["size"]))
    smallest = 0 if file.stat().st_size < 20_000 else 2
    what = {
        "version": chance.choice([TLS_1_2, TLS_1_3]),
        "cipher": chance.choice(list(CIPHERS.values())),
        "file": str(file),
        "pieces": chance.choices(PIECES[smallest:], k=3),
        "growing": chance.random() < 0.5,
        "atOnce": chance.random() < 0.5,
    }
    return what, random.Random(how["seed"] + 1).randbytes(how["answer"])


@pytest.mark.parametrize("count", MANY)
def test_its_client(peer: Path, place: tuple[Path, Proxy], count: int) -> None:
    """Some resume: it keeps sessions."""
    chance, (folder, proxy), resumed = random.Random(34), place, 0
    with ExitStack() as stack:
        served = stack.enter_context(tls_programs.program(proxy, "serve", path=PATTERNS))
        port = line_of(served)
        client = stack.enter_context(theirs([str(peer), "client", port, str(folder / "roots.pem")]))
        for _ in range(count):
            what, back = wish(folder, chance)
            asked(client, what)
            told = json.loads(line_of(client))
            assert (told["Error"], told["Bytes"]) == ("", len(back)), (what, told)
            assert told["Sha256"] == hashlib.sha256(back).hexdigest(), what
            assert told["Version"] == what["version"]
            assert told["Version"] == TLS_1_3 or told["Resumed"] or told["Cipher"] == what["cipher"]
            assert line_of(served) == "ok", what
            resumed += told["Resumed"]
        assert resumed > count // 8  # it has one session for a server, of one version and cipher
        assert proxy.status()["tls"]["carried_ours"] == count


@pytest.mark.parametrize("count", MANY)
def test_its_server(peer: Path, place: tuple[Path, Proxy], count: int) -> None:
    chance, (folder, proxy), resumed = random.Random(35), place, 0
    with ExitStack() as stack:
        server = stack.enter_context(
            theirs([str(peer), "server", str(folder / "their.pem"), str(folder / "their.key")])
        )
        port = line_of(server)
        client = stack.enter_context(tls_programs.program(proxy, "connect", port, path=PATTERNS))
        for _ in range(count):
            version, suite = chance.choice([TLS_1_2, TLS_1_3]), chance.choice(SUITES)
            tls = {"min_version": version, "max_version": version, "ciphersuites": suite}
            tls["ciphers"] = chance.choice(list(CIPHERS))
            how = {
                "tls": tls,
                "seed": chance.getrandbits(32),
                "sizes": [chance.choice(SIZES[1:-1]) for _ in range(chance.randint(1, 4))],
                "half_close": chance.random() < 0.5,
            }
            asked(client, how)
            assert line_of(client) == "ok", how
            told = json.loads(line_of(server))
            assert (told["Error"], told["Version"]) == ("", version), (how, told)
            assert told["Bytes"] == sum(2 * size + 1 for size in how["sizes"]), (how, told)
            resumed += told["Resumed"]
        assert resumed > count // 4
        assert proxy.status()["tls"]["carried_ours"] == count
