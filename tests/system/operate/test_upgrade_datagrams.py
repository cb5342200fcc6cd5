"""Datagram sockets through `xts-proxy upgrade`: none of their calls fails, and nothing that has reached one is lost."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from beds.operated_proxy import wait
from beds.restarts import Place
from beds.upgrades import Upgrading, upgrading
from xts_lab import topology

PROGRAM = Path(__file__).with_name("programs") / "upgraded_datagrams.py"
AFXDP = [pytest.mark.root, pytest.mark.afxdp]
KINDS = ["shm", pytest.param("afxdp", marks=AFXDP)]
GROUP = "239.7.7.8"
PAUSE_S = 0.002


def peer_address(place: Place) -> str:
    return place.address if place.address == "127.0.0.1" else str(topology.NET.addresses[0].ip)


class Network:
    """What is in the network: an echo server, whom the program sends to; and who sends to the program."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.failures: list[str] = []
        self.count = self.answered = 0
        self._ended = threading.Event()
        with place.network():
            self.echoing = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            self.echoing.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
            self.echoing.bind((peer_address(place), 0))
            self.sending = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            self.sending.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(peer_address(place)))
            self.asking = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            self.asking.settimeout(10)
        self.port = self.echoing.getsockname()[1]
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Network:
        self._begin(self._echo)
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
        with contextlib.suppress(OSError):
            self.echoing.shutdown(socket.SHUT_RDWR)
        for sock in (self.echoing, self.sending, self.asking):
            sock.close()

    def _begin(self, does: object) -> None:
        assert callable(does)
        self._threads.append(threading.Thread(target=does, daemon=True))
        self._threads[-1].start()

    def _echo(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                data, sender = self.echoing.recvfrom(1 << 16)
                if not data:
                    return
                self.echoing.sendto(data, sender)

    def begin(self, receiver: int, server: int) -> None:
        def send() -> None:
            while not self._ended.wait(PAUSE_S):
                self.sending.sendto(b"another, which the filter drops", (GROUP, receiver))
                self.count += 1
                self.sending.sendto(b"N" + struct.pack("!Q", self.count), (GROUP, receiver))
            self.sending.sendto(b"N" + struct.pack("!Q", 0), (GROUP, receiver))

        def ask() -> None:
            while not self._ended.is_set():
                question = struct.pack("!Q", self.answered)
                try:
                    self.asking.sendto(question, (self.place.address, server))
                    if self.asking.recv(64) != question:
                        self.failures.append("another answer")
                    self.answered += 1
                except OSError as error:
                    self.failures.append(repr(error))

        self._begin(send)
        self._begin(ask)

    def end(self) -> None:
        self._ended.set()
        for thread in self._threads[1:]:
            thread.join(15)

    def wait_for(self, more: int) -> None:
        sent, answered = self.count + more, self.answered + more
        wait(lambda: (self.count > sent and self.answered > answered) or self.failures, "answers", 15)


@contextmanager
def place_of(kind: str) -> Iterator[Upgrading]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="xts-upgrade-")))
        folder.chmod(0o755)
        yield stack.enter_context(upgrading(kind, folder))


@contextmanager
def program(where: Upgrading, network: Network) -> Iterator[subprocess.Popen[str]]:
    place = where.place
    arguments = [peer_address(place), str(network.port), place.address, place.interface, GROUP]
    with place.program([str(PROGRAM), *arguments]) as process:
        assert process.stdout
        line = process.stdout.readline()
        if not line:
            raise AssertionError(process.communicate()[1])
        network.begin(*map(int, line.split()))
        yield process


def nothing_is_lost(where: Upgrading, upgrades: int) -> None:
    with Network(where.place) as network, program(where, network) as process:
        network.wait_for(20)
        for _ in range(upgrades):
            where.upgrade()
            network.wait_for(50)
        assert where.status()["reset"] == 0
        assert where.status()["sockets"] == 8  # five of the program, and one of each that serves for it
        network.end()
        assert process.stdin and process.stdout
        process.stdin.write("\n")
        process.stdin.flush()
        said = json.loads(process.stdout.readline())
        print(said, network.count, network.answered)
    assert said["failures"] == [] and network.failures == []
    assert said["group"] == network.count
    assert said["echoed"] > 1000 and said["large"] > 100 and said["refused"]


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_lost(kind: str) -> None:
    with place_of(kind) as where:
        nothing_is_lost(where, 2)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_lost_twenty_times(kind: str) -> None:
    with place_of(kind) as where:
        nothing_is_lost(where, 20)


LATE_CHILD = """
import os, signal, socket, sys
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind((sys.argv[1], 0))
print(server.getsockname()[1], flush=True)
if os.fork():
    signal.pause()
sys.stdin.readline()
while True:
    data, sender = server.recvfrom(64)
    server.sendto(data, sender)
"""


@pytest.mark.parametrize("kind", ["shm", pytest.param("afxdp", marks=[*AFXDP, pytest.mark.long])])
def test_a_child_that_receives_while_its_parent_sleeps(kind: str) -> None:
    """The socket is the parent's, which has not noticed the upgrade, and never will."""
    with place_of(kind) as where, where.place.program(["-c", LATE_CHILD, where.place.address]) as process:
        assert process.stdout and process.stdin
        port = int(process.stdout.readline())
        where.upgrade()
        with where.place.network(), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
            asking.bind((peer_address(where.place), 0))
            asking.settimeout(10)
            asking.sendto(b"came before it reads", (where.place.address, port))
            process.stdin.write("begin\n")
            process.stdin.flush()
            assert asking.recv(64) == b"came before it reads"
            asking.sendto(b"comes now", (where.place.address, port))
            assert asking.recv(64) == b"comes now"
