"""Datagram sockets of the asynchronous libraries: `xts_socket.aio`, `xts_socket.trio` and `xts_socket.anyio`."""

from __future__ import annotations

import asyncio
import socket as kernel
from collections.abc import Awaitable, Callable
from importlib.util import find_spec
from typing import Any

import anyio
import pytest
import trio
import xts_socket
import xts_socket.anyio as offloaded_anyio
import xts_socket.trio as offloaded_trio
from xts_socket import aio

pytestmark = pytest.mark.usefixtures("xts_endpoint")

DEADLINE_S = 20.0
SIZES = (1, 0, 1000, 60_000)

Scenario = Callable[..., Awaitable[None]]


class Echo(asyncio.DatagramProtocol):
    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self.transport.sendto(data[::-1], addr)


class Client(asyncio.DatagramProtocol):
    def __init__(self) -> None:
        self.got: asyncio.Queue[Any] = asyncio.Queue()
        self.calls: list[str] = []

    def connection_made(self, transport: Any) -> None:
        self.calls.append("made")

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self.got.put_nowait(data)

    def error_received(self, exc: Exception) -> None:
        self.got.put_nowait(exc)

    def pause_writing(self) -> None:
        self.calls.append("pause")

    def resume_writing(self) -> None:
        self.calls.append("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        self.calls.append("lost")
        self.got.put_nowait(None)


# --- asyncio -----------------------------------------------------------------------------------------------


def make_loop(kind: str) -> Any:
    if kind == "uvloop" and find_spec("uvloop") is None:
        pytest.skip("uvloop is not installed")
    if kind == "uvloop":
        return aio.UvloopEventLoop
    return aio.EventLoop if kind == "asyncio" else asyncio.new_event_loop


@pytest.fixture(params=["asyncio", "view", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Scenario], None]:
    """Runs a scenario with the running loop, offloading, on each kind of loop."""
    factory = make_loop(request.param)

    def start(scenario: Scenario) -> None:
        async def main() -> None:
            async with asyncio.timeout(DEADLINE_S):
                await scenario(aio.offloading())

        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(main())

    return start


def test_endpoints(run: Callable[[Scenario], None]) -> None:
    async def scenario(loop: Any) -> None:
        server, _ = await loop.create_datagram_endpoint(Echo, local_addr=("127.0.0.1", 0))
        name = server.get_extra_info("sockname")
        assert isinstance(server, aio.DatagramTransport)
        client, protocol = await loop.create_datagram_endpoint(Client, remote_addr=name)
        assert client.get_extra_info("peername") == name and protocol.calls == ["made"]
        for size in SIZES:
            client.sendto(b"a" + b"b" * size)
            assert await protocol.got.get() == b"b" * size + b"a"
        client.sendto(memoryview(b"xy"), name)
        assert await protocol.got.get() == b"yx"
        with pytest.raises(ValueError, match="Invalid address"):
            client.sendto(b"", ("127.0.0.1", 1))
        with pytest.raises(TypeError):
            client.sendto("text")
        server.close()
        await asyncio.sleep(0)
        while True:  # until the closed port answers
            client.sendto(b"nobody there")
            try:
                async with asyncio.timeout(0.05):
                    if isinstance(await protocol.got.get(), ConnectionRefusedError):
                        break
            except TimeoutError:
                pass
        client.close()
        assert client.is_closing()
        while await protocol.got.get() is not None:
            pass
        assert protocol.calls == ["made", "lost"]

    run(scenario)


def test_all_of_a_burst_arrives(run: Callable[[Scenario], None]) -> None:
    """More than a turn of the loop reads, and more than there is room to send at once."""

    async def scenario(loop: Any) -> None:
        with kernel.socket(kernel.AF_INET, kernel.SOCK_DGRAM) as peer:
            peer.setsockopt(kernel.SOL_SOCKET, kernel.SO_RCVBUF, 1 << 20)
            peer.bind(("127.0.0.1", 0))
            peer.settimeout(DEADLINE_S)
            client, protocol = await loop.create_datagram_endpoint(Client, remote_addr=peer.getsockname())
            for number in range(100):
                peer.sendto(b"%d" % number, client.get_extra_info("sockname"))
            assert [await protocol.got.get() for _ in range(100)] == [b"%d" % number for number in range(100)]
            for number in range(12):
                client.sendto(bytes([number]) * 60_000)
            assert client.get_write_buffer_size() > 0 and "pause" in protocol.calls
            client.close()  # what is buffered is sent before

            def receive() -> list[int]:
                return [peer.recv(70_000)[0] for _ in range(12)]

            assert await loop.run_in_executor(None, receive) == list(range(12))
            assert await protocol.got.get() is None

    run(scenario)


def test_an_exception_of_the_protocol_does_not_end_it(run: Callable[[Scenario], None]) -> None:
    class Failing(Client):
        def datagram_received(self, data: bytes, addr: Any) -> None:
            super().datagram_received(data, addr)
            if data == b"fail":
                raise RuntimeError("of the protocol")

    async def scenario(loop: Any) -> None:
        reported: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context["exception"]))
        server, protocol = await loop.create_datagram_endpoint(Failing, local_addr=("127.0.0.1", 0))
        with kernel.socket(kernel.AF_INET, kernel.SOCK_DGRAM) as peer:
            for word in (b"one", b"fail", b"two", b"three"):
                peer.sendto(word, server.get_extra_info("sockname"))
            assert [await protocol.got.get() for _ in range(4)] == [b"one", b"fail", b"two", b"three"]
        assert [str(each) for each in reported] == ["of the protocol"]
        server.close()
        await protocol.got.get()

    run(scenario)


def test_sock_functions(run: Callable[[Scenario], None]) -> None:
    async def scenario(loop: Any) -> None:
        with xts_socket.socket(kernel.AF_INET, kernel.SOCK_DGRAM) as a, xts_socket.socket(a.family, a.type) as b:
            a.bind(("127.0.0.1", 0))
            for each in (a, b):
                each.setblocking(False)
            assert await loop.sock_sendto(b, b"question", a.getsockname()) == 8
            data, source = await loop.sock_recvfrom(a, 100)
            assert data == b"question"
            await loop.sock_sendto(a, b"answer", source)
            buffer = bytearray(10)
            assert await loop.sock_recvfrom_into(b, buffer) == (6, a.getsockname()) and buffer.startswith(b"answer")

    run(scenario)


def test_what_is_not_udp_stays_with_the_kernel(run: Callable[[Scenario], None]) -> None:
    async def scenario(loop: Any) -> None:
        with kernel.socket(kernel.AF_INET, kernel.SOCK_DGRAM) as given:
            given.bind(("127.0.0.1", 0))
            transport, _ = await loop.create_datagram_endpoint(Echo, sock=given)
            assert not isinstance(transport, aio.DatagramTransport)
            transport.close()
            await asyncio.sleep(0)
        with xts_socket.socket(kernel.AF_INET, kernel.SOCK_STREAM) as stream:
            with pytest.raises(ValueError, match="datagram socket"):
                await loop.create_datagram_endpoint(Echo, sock=stream)
            with pytest.raises(ValueError, match="modifier"):
                await loop.create_datagram_endpoint(Echo, ("127.0.0.1", 0), sock=stream)

    run(scenario)


# --- trio and anyio ----------------------------------------------------------------------------------------


def test_trio() -> None:
    async def main() -> None:
        with trio.fail_after(DEADLINE_S):
            trio.socket.set_custom_socket_factory(offloaded_trio.SocketFactory())
            a = trio.socket.socket(kernel.AF_INET, kernel.SOCK_DGRAM)
            b = trio.socket.socket(kernel.AF_INET, kernel.SOCK_DGRAM)
            assert isinstance(a, offloaded_trio.SocketType)
            with a, b:
                await a.bind(("127.0.0.1", 0))
                for size in SIZES:
                    await b.sendto(bytes(size), a.getsockname())
                    data, source = await a.recvfrom(70_000)
                    assert len(data) == size
                    await a.sendto(data + b"!", source)
                    assert await b.recv(70_000) == data + b"!"
                await b.connect(("localhost", a.getsockname()[1]))
                await b.send(b"connected")
                assert await a.recv(100) == b"connected"
                with trio.move_on_after(0.01):
                    await a.recv(100)
                await b.sendto(b"by name", ("localhost", a.getsockname()[1]))
                assert await a.recv(100) == b"by name"

    trio.run(main)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_anyio(backend: str) -> None:
    async def main() -> None:
        with anyio.fail_after(DEADLINE_S):
            async with await offloaded_anyio.create_udp_socket(local_host="127.0.0.1") as server:
                port = server.extra(anyio.abc.SocketAttribute.local_port)
                assert isinstance(server.extra(anyio.abc.SocketAttribute.raw_socket), xts_socket.socket)
                client = offloaded_anyio.create_connected_udp_socket("localhost", port, family=kernel.AF_INET)
                async with await client as c:
                    for size in SIZES:
                        await c.send(bytes(size))
                        data, (host, source) = await server.receive()
                        assert (len(data), host) == (size, "127.0.0.1")
                        await server.sendto(data + b"!", host, source)
                        assert await c.receive() == data + b"!"
                    with anyio.move_on_after(0.01):
                        await c.receive()
                    assert c.extra(anyio.abc.SocketAttribute.remote_port) == port
            with pytest.raises(anyio.ClosedResourceError):
                await server.receive()

    anyio.run(main, backend=backend)
