"""A relay whose trunk to the proxy is over RDMA: unchanged applications behind it, and how it ends."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from beds.rdma import PATIENCE_S, Acceptor, Device
from beds.rdma_trunk import Trunk
from xts_messages.native import lib

PROGRAMS = Path(__file__).with_name("programs")


@pytest.fixture
def acceptor(device: Device) -> Iterator[Acceptor]:
    with Acceptor(device.address) as made:
        yield made


@pytest.fixture
def trunk(device: Device, acceptor: Acceptor, tmp_path: Path) -> Iterator[Trunk]:
    with Trunk(device, acceptor, tmp_path) as made:
        made.until_reported(int(lib.XTS_RELAY_UP))
        yield made


def start_client(trunk: Trunk, echo: tuple[int, int], size: int) -> subprocess.Popen[str]:
    words = [sys.executable, str(PROGRAMS / "rdma_client.py"), str(echo[0]), str(echo[1]), str(size)]
    environment = {**os.environ, "XTS_ENDPOINT": str(trunk.path)}
    return subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True)


def test_applications_behind_it(trunk: Trunk, echo: tuple[int, int]) -> None:
    """Three at once: streams of a megabyte both ways, datagrams, and a listener."""
    clients = [start_client(trunk, echo, 1_000_000 + number) for number in range(3)]
    for client in clients:
        assert client.stdout
        port = int(client.stdout.readline())
        with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as peer:
            peer.sendall(b"hello")
            assert peer.recv(100) == b"goodbye"
        assert client.stdout.readline() == "done\n"
        assert client.wait(PATIENCE_S) == 0
        client.stdout.close()


def test_a_killed_relay_shows_at_the_proxy(trunk: Trunk, echo: tuple[int, int]) -> None:
    """No GOODBYE: the worker forgets its channels, while an application behind it is connected."""
    client = start_client(trunk, echo, 1000)
    assert client.stdout
    assert int(client.stdout.readline())
    assert trunk.channels()
    children = Path(f"/proc/{trunk.relay.pid}/task/{trunk.relay.pid}/children").read_text().split()
    os.kill(int(children[0]), signal.SIGKILL)
    trunk.until_no_channel()
    client.kill()  # it waits for a proxy, to listen there again
    client.wait()
    client.stdout.close()
