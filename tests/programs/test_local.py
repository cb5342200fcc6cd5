"""What is not on the network: clients on the host itself, and programs that must not fall back (--strict)."""

from __future__ import annotations

import hashlib
import json
import sys

import pytest
from beds.real_programs import NET4, NET6, Bed, Site, need, nginx

pytestmark = [pytest.mark.root]

LISTEN = "import socket; socket.create_server(('0.0.0.0', 0)); print('listens')"


def test_a_wildcard_listener_serves_its_own_host_and_the_network(bed: Bed, site: Site) -> None:
    """The host has loopback only; nginx listens on all addresses, in two families, with two workers."""
    need("curl")
    command, _ = nginx(bed, "host", site, name="nginx", workers=2)
    with bed.program("host", *command, name="nginx") as process:
        bed.wait_for_port("net", bed.here4, 443, process)
        hosts = {"net": (bed.here4, f"[{bed.here6}]"), bed.place("host"): ("127.0.0.1", "[::1]")}
        for role, addresses in hosts.items():
            for address in addresses:
                for scheme in ("http", "https"):
                    out = bed.folder / "out"
                    url = f"{scheme}://{address}/large.bin"
                    curl = ["curl", "-sS", "--fail", "-k", "-o", str(out), url]
                    done = bed.lab.run(role, curl, timeout=60)  # the client is the kernel's
                    assert done.returncode == 0, url
                    assert hashlib.sha256(out.read_bytes()).hexdigest() == site.sha256, url
        under_us = bed.run("host", "curl", "-sS", "--fail", "http://127.0.0.1/small.txt")
        assert under_us == "a small file\n"


def test_curl_under_strict_rules(bed: Bed, site: Site) -> None:
    """What it needs is offloaded, so it works as ever."""
    need("curl")
    command, _ = nginx(bed, "net", site, name="nginx")
    with bed.program("net", *command, name="nginx") as process:
        bed.wait_for_port("net", NET4, 443, process)
        for host in (NET4, f"[{NET6}]"):
            line = bed.offloaded(
                "curl", "-sS", "--fail", "--cacert", str(site.certificate), f"https://{host}/small.txt",
                options=["--strict"],
            )  # fmt: skip
            done = bed.lab.run(bed.place("host"), line, capture_output=True, text=True, timeout=30)
            assert (done.returncode, done.stdout) == (0, "a small file\n"), done.stderr


def test_strict_refuses_what_would_stay_with_the_kernel(bed: Bed) -> None:
    """There is no proxy: without --strict the program listens on the host itself, and `xts status` would say so."""
    if bed.queue == "kernel":
        pytest.skip("there is nothing to be strict about")
    absent = ["--endpoint", str(bed.folder / "absent")]
    for options, status in ((absent, 0), ([*absent, "--strict"], 3)):
        line = bed.offloaded(sys.executable, "-c", LISTEN, options=options)
        done = bed.lab.run("host", line, capture_output=True, text=True, timeout=30)
        assert (done.returncode, "listens" in done.stdout) == (status, not status), done.stderr
        assert not status or "Network is down" in done.stderr


def test_status_tells_what_stayed_and_why(bed: Bed, site: Site) -> None:
    if bed.queue == "kernel":
        pytest.skip("nothing of ours is there")
    command, _ = nginx(bed, "host", site, name="nginx")
    with bed.program("host", *command, name="nginx") as process:
        bed.wait_for_port("net", bed.here4, 443, process)
        done = bed.lab.run("host", ["xts", "status", "--processes", "--json"], capture_output=True, text=True)
        found = {each["pid"]: each for each in json.loads(done.stdout)["processes"]}
        master = found[process.pid]
        listeners = {each["local"] for each in master["descriptors"] if each["kind"] == "offloaded"}
        assert listeners == {"0.0.0.0:80", "[::]:80", "0.0.0.0:443", "[::]:443"}
        assert master["unseen"] == 0
