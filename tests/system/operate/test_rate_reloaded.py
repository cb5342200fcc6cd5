"""The rate and the mark of a tenant, changed by a reload while its sockets send, as the network sees them."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from beds.lab import raise_or_skip
from beds.running_agent import until
from beds.scripts import RUN_S
from beds.shm_proxy import SYSTEM
from beds.wire_view import SETTLE_S, at_rate, in_background, packets_in
from xts_lab import topology
from xts_lab.lab import Lab
from xts_proxy.status import control_socket

PROGRAM = str(SYSTEM / "operate/programs/send_fast.py")
PEER = str(topology.NET.addresses[0].ip)
EF, AF11 = 46, 10
FAST, SLOW = 64, 24
TENANT = '[[tenant]]\nname = "default"\n'
LIMITED = f"{TENANT}pacing_mbit_s = {FAST}\ndscp = {EF}\n"
WINDOW_S, SENDS_S = 1.5, 120
pytestmark = [pytest.mark.root]


@pytest.fixture(params=[pytest.param("shm"), pytest.param("afxdp", marks=pytest.mark.afxdp)])
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    with raise_or_skip(request.param, "reloaded", queues=4, tables=LIMITED) as made:
        yield made


def reload(lab: Lab, before: str, after: str) -> subprocess.CompletedProcess[str]:
    config = lab.directory / "proxy.toml"
    text = config.read_text()
    assert before in text
    config.write_text(text.replace(before, after))
    command = [sys.executable, "-m", "xts_proxy", "--config", str(config), "reload"]
    return lab.run("dpu", command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


class Sending:
    """A program of the host that sends as fast as it may, and its peer in the network."""

    def __init__(self, lab: Lab, protocol: str) -> None:
        with lab.inside("net"):
            self.peer = socket.socket(type=socket.SOCK_STREAM if protocol == "tcp" else socket.SOCK_DGRAM)
        self.peer.bind((PEER, 0))
        self.port = int(self.peer.getsockname()[1])
        if protocol == "tcp":
            self.peer.listen()
        self.bytes = 0
        in_background(self._read, protocol)
        command = [sys.executable, PROGRAM, protocol, PEER, str(self.port), str(SENDS_S), "0", "-1"]
        self.program = lab.popen("host", command, stdout=subprocess.DEVNULL)

    def _read(self, protocol: str) -> None:
        connection, headers = (self.peer.accept()[0], 0) if protocol == "tcp" else (self.peer, 28)
        connection.settimeout(RUN_S)
        with connection:
            try:
                while data := connection.recv(1 << 16):
                    self.bytes += len(data) + headers
            except OSError:
                return

    def rate(self) -> list[float]:
        """In Mbit/s, from now on."""
        until = time.monotonic() + SETTLE_S
        first, began = self.bytes, 0.0
        while True:
            time.sleep(0.01)
            now = time.monotonic()
            if not began and now >= until and self.bytes > first:
                first, began = self.bytes, now
            elif began and now >= began + WINDOW_S:
                return [(self.bytes - first) * 8 / 1e6 / (now - began)]

    def end(self) -> None:
        self.program.kill()
        self.program.wait(RUN_S)
        self.peer.close()


@contextmanager
def sending(lab: Lab, protocol: str) -> Iterator[Sending]:
    made = Sending(lab, protocol)
    try:
        yield made
    finally:
        made.end()


def marks(lab: Lab, *of: Sending) -> list[set[int]]:
    """Of what each of them sends at the moment. Where one may send as fast as it can, the capture loses packets, at
    times all that the other sends in a second: it goes on until there are some of each."""
    found: list[set[int]] = [set() for _ in of]
    with ExitStack() as stack:
        with lab.inside("net"):
            captured = stack.enter_context(packets_in(topology.NET.interface))
        for one in of:
            one.rate()

        def some_of_each() -> bool:
            for packet in captured():
                for one, seen in zip(of, found, strict=True):
                    if packet.to_port == one.port:
                        seen.add(packet.dscp)
            return all(found)

        until(some_of_each, RUN_S)
    return found


def tenant(lab: Lab) -> dict[str, Any]:
    [row] = control_socket.ask(str(lab.control), control_socket.Question("status", False))["tenants"]
    return dict(row)


@pytest.mark.parametrize("protocol", ["tcp", "udp"])
def test_a_reload_while_it_sends(lab: Lab, protocol: str) -> None:
    """The rate is another one at once, for sockets that there are; the mark is that of new ones. What is refused
    changes nothing, and what is taken away is."""
    slow = LIMITED.replace(str(FAST), str(SLOW)).replace(str(EF), str(AF11))
    with sending(lab, protocol) as old:
        at_rate(FAST, old.rate)
        assert reload(lab, LIMITED, slow).returncode == 0
        at_rate(SLOW, old.rate)
        wrong = reload(lab, slow, slow.replace(f"= {SLOW}", "= 0").replace(f"= {AF11}", "= 64"))
        assert wrong.returncode == 2
        assert "pacing_mbit_s" in wrong.stderr and "dscp" in wrong.stderr, wrong.stderr
        at_rate(SLOW, old.rate)
        assert (tenant(lab)["pacing_bytes_s"], tenant(lab)["dscp"]) == (SLOW * 125_000, AF11)
        with sending(lab, protocol) as new:
            assert marks(lab, old, new) == [{EF}, {AF11}]
    (lab.directory / "proxy.toml").write_text(
        (lab.directory / "proxy.toml").read_text().replace("= 0\ndscp = 64", f"= {SLOW}\ndscp = {AF11}")
    )
    with sending(lab, protocol) as old:
        at_rate(SLOW, old.rate)
        assert reload(lab, slow, TENANT).returncode == 0
        assert old.rate()[0] > 2 * SLOW
        with sending(lab, protocol) as new:
            assert marks(lab, old, new) == [{AF11}, {0}]
    assert (tenant(lab)["pacing_bytes_s"], tenant(lab)["dscp"]) == (0, None)
