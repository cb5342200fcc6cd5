"""A wire with the MTU that interfaces have unless somebody has raised it: everything crosses that crosses another one,
in parts. veth drops what is longer than the MTU of its other end."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from beds.lab import raise_or_skip, skip_without_lab
from beds.lab_processes import attached, echo_server, echoed_whole
from beds.running_agent import until
from xts_lab.card import Cable
from xts_lab.lab import Lab
from xts_lab.wire import Wire, set_cables
from xts_messages.attaching.attach import list_queues

pytestmark = [pytest.mark.root, pytest.mark.afxdp]

QUEUES = 3
WAIT_S = 20.0

#: Answers each datagram with itself.
DATAGRAMS = """
import socket

with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    s.bind(("198.18.0.2", 0))
    print(s.getsockname()[1], flush=True)
    while True:
        s.sendto(*s.recvfrom(65536))
"""

#: Datagrams of many sizes come back whole.
SIZES = """
import random, sys
import xts_socket
from xts_socket import AF_INET, SOCK_DGRAM

with xts_socket.socket(AF_INET, SOCK_DGRAM) as s:
    s.settimeout(10)
    s.connect(("198.18.0.2", int(sys.argv[1])))
    largest = xts_socket.info().largest_message
    for size in (1, 1400, 1472, 1473, 4096, largest - 60, largest - 56, largest - 32, largest, 65507):
        data = random.Random(size).randbytes(size)
        for _ in range(20):
            s.send(data)
            assert s.recv(65536) == data, size
print("all of", largest)
"""


def raised(mtu: int, **settings: object) -> Iterator[Lab]:
    lab = raise_or_skip("afxdp", "short", queues=QUEUES, relayed_max=None, mtu=mtu, **settings)  # type: ignore[arg-type]
    try:
        yield lab
    finally:
        assert not lab.down()


@pytest.fixture(scope="module", params=[1500, 1280])
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    yield from raised(request.param)


def echoes(lab: Lab) -> None:
    with echo_server(lab) as port:
        echoed_whole(lab, port)


def test_every_byte_arrives(lab: Lab) -> None:
    echoes(lab)


def largest_after_datagrams(lab: Lab) -> str:
    """Datagrams of many sizes come back; what the client says then."""
    with lab.popen("net", [sys.executable, "-c", DATAGRAMS], stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout
            command = [sys.executable, "-c", SIZES, server.stdout.readline().strip()]
            done = lab.run("host", command, capture_output=True, text=True, timeout=60)
            assert done.returncode == 0, done.stderr
            return str(done.stdout)
        finally:
            server.kill()


def test_datagrams_that_are_longer_than_a_packet(lab: Lab) -> None:
    assert largest_after_datagrams(lab) == f"all of {14 + 8 * (lab.settings.mtu + 14 - 36)}\n"


class HeadlessHost(Lab):
    """A lab whose proxy takes frames with heads and without, and whose host sends them without: its agent has found no
    use for them."""

    def proxy_configuration(self) -> str:
        return super().proxy_configuration().replace('steering = "none"', 'steering = "address"')


def test_a_proxy_that_leaves_room_for_heads_which_its_host_has_not() -> None:
    skip_without_lab("afxdp")
    lab = HeadlessHost(f"t{os.getpid()}headless", queues=1, relayed_max=0, steering="none", mtu=1500)
    lab.up()
    try:
        assert largest_after_datagrams(lab) == f"all of {14 + 8 * (1514 - 36)}\n"
    finally:
        assert not lab.down()


def test_more_processes_than_queues(lab: Lab) -> None:
    """The frames of a relay are as long as those of a process with a queue of its own."""
    with echo_server(lab) as port, ExitStack() as stack:
        kinds = [attached(lab, port, stack).says() for _ in range(QUEUES + 2)]
        assert [kind.split()[:2] for kind in kinds] == [["ok", "afxdp"]] * (QUEUES - 1) + [["ok", "relay"]] * 3


def test_a_wire_that_loses_packets() -> None:
    """Each part is repeated by itself."""
    for lab in raised(1500, wire=Wire.SWITCH, reliable=True):
        until(lambda: not any(one.lacking for one in list_queues(str(lab.endpoint))), WAIT_S)  # noqa: B023
        set_cables(lab.card, Cable(10_000))
        echoes(lab)
        set_cables(lab.card, Cable())
