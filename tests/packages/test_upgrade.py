"""Upgrading the packages on a running site: connections may end, new ones come within a second."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from beds.booted import Machine
from beds.package_site import DEVICE, GREETING, HOST, PORT, SERVER, USER, install, raised, wait

pytestmark = [pytest.mark.long, pytest.mark.root, pytest.mark.afxdp, pytest.mark.timeout(1800)]
#: The longest time in which no connection is made, on a machine that does nothing else.
GAP_MAX_S = 1.0
PYTHON = "/usr/lib/python3-xts/bin/python3"
CLIENT = Path(__file__).with_name("programs") / "client.py"


@dataclass(frozen=True)
class Attempt:
    """A connection, from its first call to the server's whole answer. `error` is "" if it came."""

    begun_s: float
    ended_s: float
    error: str


class Client:
    """A program of a user of the host, which connects again and again."""

    def __init__(self, process: subprocess.Popen[str], path: Path) -> None:
        self._process, self._path = process, path

    def attempts(self) -> list[Attempt]:
        assert self._process.poll() is None, self._path.read_text()
        whole = [line for line in self._path.read_text().splitlines(keepends=True) if line.endswith("\n")]
        return [Attempt(*json.loads(line)) for line in whole]

    def succeeds_after(self, instant_s: float) -> bool:
        return any(not one.error and one.begun_s > instant_s for one in self.attempts())


@contextmanager
def connecting(host: Machine, folder: Path) -> Iterator[Client]:
    path = folder / "attempts"
    command = host.command(PYTHON, "-c", CLIENT.read_text(), SERVER, str(PORT), GREETING, user=USER)
    with path.open("w") as output, subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, text=True) as run:
        try:
            client = Client(run, path)
            wait(lambda: client.succeeds_after(0), "first connection")
            yield client
        finally:
            run.terminate()


def stretch(machine: Machine) -> float:
    """How many times longer a program takes here than it computes, because others compute, too."""
    before, begun_s = os.times(), time.monotonic()
    subprocess.run([*machine.command("xts", "--version")], check=True, stdout=subprocess.DEVNULL)
    took_s, after = time.monotonic() - begun_s, os.times()
    computed_s = after.children_user + after.children_system - before.children_user - before.children_system
    return max(1.0, took_s / max(computed_s, 0.05))


def longest_gap_s(client: Client, begun_s: float) -> float:
    """Between two connections that came about, one after the other, the later one after that instant. Waits for one
    that was begun now."""
    now_s = time.monotonic()
    wait(lambda: client.succeeds_after(now_s), "new connection")
    ends = [one.ended_s for one in client.attempts() if not one.error]
    return max(after - before for before, after in itertools.pairwise(ends) if after > begun_s)


def test_upgrade(older: Path, packages: Path, tmp_path: Path, record_property: Any) -> None:
    folders = {"today": packages, "older": older}
    with raised("upgrade", tmp_path, **folders) as site:
        site.install("older")
        site.configure()
        with connecting(site.host, tmp_path) as client:
            busy = stretch(site.host)
            proxy = site.device.property("xts-proxy", "MainPID")
            agent = site.host.property("xts-agent", "MainPID")
            gaps_s, begun_s = [], time.monotonic()
            install(site.device, "today", DEVICE)
            assert site.device.property("xts-proxy", "MainPID") != proxy, "the old proxy still runs"
            gaps_s.append(longest_gap_s(client, begun_s))
            begun_s = time.monotonic()
            install(site.host, "today", HOST)
            assert site.host.property("xts-agent", "MainPID") != agent, "the old agent still runs"
            gaps_s.append(longest_gap_s(client, begun_s))
            busy = max(busy, stretch(site.host))
        record_property("gaps_s", gaps_s)
        record_property("stretch", busy)
        print(f"longest time without a new connection, in s: device {gaps_s[0]:.2f}, host {gaps_s[1]:.2f}; ", end="")
        print(f"programs take {busy:.1f} times as long as they compute")
        assert max(gaps_s) <= GAP_MAX_S * busy
        for machine, names in ((site.device, DEVICE), (site.host, HOST)):
            versions = machine.run("dpkg-query", "--show", "--showformat=${Version}\n", *names).split()
            assert len(set(versions)) == 1 and versions[0] > "0.1.9"
            assert machine.run("systemctl", "--failed", "--quiet") == ""
