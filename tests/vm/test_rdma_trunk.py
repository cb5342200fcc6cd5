"""A relay whose trunk to the proxy is over RDMA: unchanged applications behind it, and how it ends."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import cast

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


class _Back(asyncio.DatagramProtocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.DatagramTransport, transport)  # it is none by its class

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self.transport.sendto(data, addr)


@pytest.fixture
def echo() -> Iterator[tuple[int, int]]:
    """Ports that answer with what they hear: TCP and UDP."""
    loop = asyncio.new_event_loop()

    async def back(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
        writer.close()

    server = loop.run_until_complete(asyncio.start_server(back, "127.0.0.1", 0))
    transport, _ = loop.run_until_complete(loop.create_datagram_endpoint(_Back, ("127.0.0.1", 0)))
    running = threading.Thread(target=loop.run_forever)
    running.start()
    yield server.sockets[0].getsockname()[1], transport.get_extra_info("sockname")[1]
    loop.call_soon_threadsafe(loop.stop)
    running.join()
    transport.close()
    server.close()
    loop.run_until_complete(asyncio.sleep(0))  # closes them
    loop.close()


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
