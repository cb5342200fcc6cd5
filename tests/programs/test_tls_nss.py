"""Connections of any kind with NSS (the TLS of Firefox) as the peer, byte for byte, as test_tls_gnutls.py has them with
GnuTLS. tstclnt, its client, ends at nothing that a server does: it is told how much to expect, and killed then."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from beds import tls_programs
from beds.operated_proxy import Proxy, wait
from beds.ready import listens
from beds.tls_peers import DEADLINE_S, MANY, PATTERNS, SIZES, asked, line_of, proxy_in
from xts_lab.free_ports import free_port

#: Of each version: OpenSSL's name and number. NSS has no CCM.
CIPHERS = {
    "tls1.2": {
        "ECDHE-ECDSA-AES128-GCM-SHA256": "C02B",
        "ECDHE-ECDSA-AES256-GCM-SHA384": "C02C",
        "ECDHE-ECDSA-CHACHA20-POLY1305": "CCA9",
    },
    "tls1.3": {
        "TLS_AES_128_GCM_SHA256": "1301",
        "TLS_AES_256_GCM_SHA384": "1302",
        "TLS_CHACHA20_POLY1305_SHA256": "1303",
    },
}
NUMBERS = {"tls1.2": 0x0303, "tls1.3": 0x0304}


@pytest.fixture
def place(tmp_path: Path) -> Iterator[tuple[Path, Proxy]]:
    """A proxy that has and trusts the authority's; their files, and NSS's database with the same, in `db`."""
    for name in ("tstclnt", "selfserv", "certutil", "pk12util", "openssl"):
        if not shutil.which(name):
            pytest.skip(f"{name} is not installed (libnss3-tools, openssl)")
    with proxy_in(tmp_path, ciphers=":".join(CIPHERS["tls1.2"])) as proxy:
        (tmp_path / "db").mkdir()
        for command in (
            "certutil -N -d sql:db --empty-password",
            "certutil -A -d sql:db -n ca -t C,, -i roots.pem",
            "openssl pkcs12 -export -in own.pem -inkey own.key -name own -passout pass: -out own.p12",
            "pk12util -i own.p12 -d sql:db -W ''",
        ):
            subprocess.run(command, shell=True, cwd=tmp_path, check=True, capture_output=True, timeout=DEADLINE_S)
        yield tmp_path, proxy


def by_their_client(folder: Path, port: str, served: subprocess.Popen[str], chance: random.Random) -> None:
    """One connection of tstclnt."""
    version = chance.choice(list(CIPHERS))
    cipher = chance.choice(list(CIPHERS[version].values()))
    how = {
        "seed": chance.getrandbits(32),
        "size": chance.choice(SIZES),
        "answer": chance.choice(SIZES),
        "at_once": chance.random() < 0.5,
        "counted": True,
    }
    sent = json.dumps(how).encode() + b"\n" + random.Random(how["seed"]).randbytes(how["size"])
    command = ["tstclnt", "-4", "-h", "localhost", "-p", port, "-d", "sql:db", "-f", "-V", f"{version}:{version}"]
    command += ["-c", f":{cipher}", *chance.choice([[], ["-G"]])]
    what = f"{command}, {how}"
    came = folder / "came"
    with came.open("wb") as out, subprocess.Popen(command, cwd=folder, stdin=subprocess.PIPE, stdout=out) as client:
        assert client.stdin
        client.stdin.write(sent)
        client.stdin.flush()
        wait(lambda: came.stat().st_size >= how["answer"] or client.poll() is not None, what, DEADLINE_S)
        assert line_of(served) == "ok", what
        client.kill()
    assert came.read_bytes() == random.Random(how["seed"] + 1).randbytes(how["answer"]), what


@pytest.mark.parametrize("count", MANY)
def test_its_client(place: tuple[Path, Proxy], count: int) -> None:
    chance, (folder, proxy) = random.Random(36), place
    with tls_programs.program(proxy, "serve", path=PATTERNS) as served:
        port = line_of(served)
        for _ in range(count):
            by_their_client(folder, port, served, chance)
        assert proxy.status()["tls"]["carried_ours"] == count


@contextmanager
def their_server(folder: Path) -> Iterator[int]:
    """selfserv, which sends files by HTTP."""
    port = free_port()
    command = ["selfserv", "-d", "sql:db", "-n", "own", "-p", str(port), "-u", "-G", "-V", "tls1.2:tls1.3"]
    ciphers = [f":{number}" for of_version in CIPHERS.values() for number in of_version.values()]
    with subprocess.Popen(
        [*command, "-c", "".join(ciphers)], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            wait(lambda: listens(port), "selfserv")
            yield port
        finally:
            process.kill()


@pytest.mark.parametrize("count", MANY)
def test_its_server(place: tuple[Path, Proxy], count: int) -> None:
    chance, (folder, proxy) = random.Random(37), place
    with ExitStack() as stack:
        port = stack.enter_context(their_server(folder))
        body = folder / "body"
        client = stack.enter_context(tls_programs.program(proxy, "get", str(port), path=PATTERNS))
        for _ in range(count):
            version = chance.choice(list(CIPHERS))
            tls: dict[str, Any] = {"min_version": NUMBERS[version], "max_version": NUMBERS[version]}
            tls["ciphers" if version == "tls1.2" else "ciphersuites"] = chance.choice(list(CIPHERS[version]))
            how = {
                "tls": tls,
                "seed": chance.getrandbits(32),
                "size": chance.choice(SIZES),
                "path": str(body).lstrip("/"),
            }
            body.write_bytes(random.Random(how["seed"]).randbytes(how["size"]))
            asked(client, how)
            assert line_of(client) == "ok", how
        assert proxy.status()["tls"]["carried_ours"] == count
