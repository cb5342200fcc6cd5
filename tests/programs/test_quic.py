"""QUIC, which is UDP all the way: HTTP/3 by aioquic, one end offloaded, then both."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from beds.real_programs import NET4, Bed, Site, wait_until

pytestmark = [pytest.mark.root]

PROGRAM = Path(__file__).with_name("programs") / "http3_end.py"
PORT = "4433"
MB = 1 << 20


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rules that offload UDP, for programs on the host."""
    rules = tmp_path / "udp.rules"
    rules.write_text("default xts\n")
    monkeypatch.setenv("XTS_RULES", str(rules))


def fetch(bed: Bed, site: Site, ends: tuple[str, str], length: int, connections: int) -> None:
    """A client fetches two files on each connection from a server, each end where `ends` says."""
    client, server = ends
    address = NET4 if server == "net" else bed.here4
    keys = (str(site.certificate), str(site.key))
    with bed.program(server, sys.executable, str(PROGRAM), "serve", *keys, address, PORT, name="http3-server") as end:
        log = bed.folder / "http3-server.log"
        wait_until(lambda: "serving" in log.read_text(errors="replace") or end.poll() is not None, "the server")
        said = bed.run(
            client, sys.executable, str(PROGRAM), "fetch", keys[0], address, PORT, str(length), str(connections)
        )
    assert f"fetched {connections * (length + 100)} bytes" in said, f"{said}\n{bed.logs()}"


@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize("ends", [("host", "net"), ("net", "host"), ("host", "host")], ids="-asks-".join)
def test_http3(bed: Bed, site: Site, ends: tuple[str, str]) -> None:
    """Four connections with a megabyte each, by hash."""
    pytest.importorskip("aioquic")
    fetch(bed, site, ends, MB, 4)


@pytest.mark.long
@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize("ends", [("host", "net"), ("net", "host")], ids="-asks-".join)
def test_http3_of_100_mb(bed: Bed, site: Site, ends: tuple[str, str]) -> None:
    """As much as a window, credits and losses have to hold for."""
    pytest.importorskip("aioquic")
    fetch(bed, site, ends, 100 * MB, 1)
