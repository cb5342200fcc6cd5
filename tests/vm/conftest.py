"""RDMA devices of the virtual machine."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from typing import TypeVar, cast

import pytest
from beds.patience import SLOWER
from beds.rdma import Acceptor, Device
from beds.rdma_wire import Wire

Made = TypeVar("Made", Device, Wire)


@pytest.fixture(scope="session", params=["rxe", "siw"])
def device(request: pytest.FixtureRequest) -> Device:
    """A software RDMA device: RoCE or iWARP."""
    return _made(Device(str(request.param)))


@pytest.fixture(scope="session", params=["rxe", "siw"])
def wire(request: pytest.FixtureRequest) -> Wire:
    """Two of them, with a wire between."""
    return _made(Wire(str(request.param)))


def _made(it: Made) -> Made:
    if not os.environ.get("XTS_VM"):
        pytest.skip("this is not the virtual machine (tests/vm/run)")
    if reason := it.missing():
        pytest.skip(reason)
    it.make()
    return it


@pytest.fixture(scope="session")
def acceptor(device: Device) -> Iterator[Acceptor]:
    """What accepts there."""
    with Acceptor(device.address) as made:
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
        try:
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            return
        finally:
            writer.close()

    server = loop.run_until_complete(asyncio.start_server(back, "127.0.0.1", 0))
    transport, _ = loop.run_until_complete(loop.create_datagram_endpoint(_Back, ("127.0.0.1", 0)))
    running = threading.Thread(target=loop.run_forever)
    running.start()
    yield server.sockets[0].getsockname()[1], transport.get_extra_info("sockname")[1]

    async def end() -> None:
        """Also what is left of programs that a test has killed."""
        transport.close()
        server.close()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    asyncio.run_coroutine_threadsafe(end(), loop).result(12 * SLOWER)
    loop.call_soon_threadsafe(loop.stop)
    running.join()
    loop.run_until_complete(asyncio.sleep(0))  # closes them
    loop.close()
