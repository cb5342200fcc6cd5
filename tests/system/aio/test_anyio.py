"""xts_socket.anyio on asyncio and on trio, through a proxy over shared memory."""

from __future__ import annotations

import os
import socket as kernel
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import pytest
import xts_socket
import xts_socket.anyio as offloaded
from anyio.abc import SocketAttribute
from anyio.streams.tls import TLSAttribute, TLSListener, TLSStream
from beds.authority import certificate_for_localhost

pytestmark = pytest.mark.usefixtures("xts_endpoint")

DEADLINE_S = 20.0
RESET = struct.pack("ii", 1, 0)  # SO_LINGER: close with a reset

Scenario = Callable[..., Awaitable[None]]


@pytest.fixture(params=["asyncio", "trio"])
def run(request: pytest.FixtureRequest) -> Callable[[Scenario], None]:
    """anyio.run with a deadline, on each back end."""

    def start(scenario: Scenario) -> None:
        async def main() -> None:
            with anyio.fail_after(DEADLINE_S):
                await scenario()

        anyio.run(main, backend=request.param)

    return start


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[offloaded.SocketStream, anyio.abc.SocketStream]]:
    """An offloaded stream and the kernel's at the other end."""
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
        port = listener.extra(SocketAttribute.local_port)
        accepted: list[Any] = []

        async with anyio.create_task_group() as tasks:

            async def accept() -> None:
                accepted.append(await listener.listeners[0].accept())  # type: ignore[attr-defined]

            tasks.start_soon(accept)
            ours = await offloaded.connect_tcp("127.0.0.1", port)
    async with ours, accepted[0] as peer:
        yield ours, peer


def test_both_ways_half_close_and_attributes(run: Callable[[Scenario], None]) -> None:
    async def scenario() -> None:
        data = os.urandom(5_000_000)
        got: list[bytes] = []
        async with connected() as (ours, peer):
            assert ours.extra(SocketAttribute.family) == kernel.AF_INET
            assert ours.extra(SocketAttribute.local_address) == peer.extra(SocketAttribute.remote_address)
            assert ours.extra(SocketAttribute.remote_port) == peer.extra(SocketAttribute.local_port)
            assert isinstance(ours.extra(SocketAttribute.raw_socket), xts_socket.socket)

            async def receive(stream: anyio.abc.ByteReceiveStream) -> None:
                got.append(b"".join([part async for part in stream]))

            async with anyio.create_task_group() as tasks:
                for sender, receiver in ((ours, peer), (peer, ours)):
                    tasks.start_soon(receive, receiver)
                    await sender.send(data)
                    await sender.send_eof()
            assert got == [data, data]
            with pytest.raises(anyio.EndOfStream):
                await ours.receive()
            with pytest.raises(ValueError, match="max_bytes"):
                await ours.receive(0)

    run(scenario)


def test_errors_are_anyios(run: Callable[[Scenario], None]) -> None:
    async def scenario() -> None:
        async with connected() as (ours, peer):
            with pytest.raises(BaseExceptionGroup) as busy:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(ours.receive)
                    tasks.start_soon(ours.receive)
            assert busy.group_contains(anyio.BusyResourceError)
            linger = peer.extra(SocketAttribute.raw_socket)
            linger.setsockopt(kernel.SOL_SOCKET, kernel.SO_LINGER, RESET)
            await peer.aclose()
            with pytest.raises(anyio.BrokenResourceError):
                await ours.receive()
        for call in (ours.receive(), ours.send(b"x"), ours.send_eof()):
            with pytest.raises(anyio.ClosedResourceError):
                await call

    run(scenario)


def test_closing_wakes_who_waits(run: Callable[[Scenario], None]) -> None:
    async def scenario() -> None:
        async def closed(call: Callable[[], Awaitable[Any]]) -> None:
            with pytest.raises(anyio.ClosedResourceError):
                await call()

        async with connected() as (ours, _):
            listener = await offloaded.create_tcp_listener(local_host="127.0.0.1")
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(closed, ours.receive)
                tasks.start_soon(closed, listener.listeners[0].accept)  # type: ignore[attr-defined]
                await anyio.wait_all_tasks_blocked()
                await ours.aclose()
                await listener.aclose()

    run(scenario)


def test_cancelling_loses_no_data(run: Callable[[Scenario], None]) -> None:
    async def scenario() -> None:
        async with connected() as (ours, peer):
            for _ in range(3):
                with anyio.move_on_after(0.01) as scope:
                    await ours.receive()
                assert scope.cancelled_caught
            await peer.send(b"kept")
            with anyio.CancelScope() as scope:
                scope.cancel()
                await ours.receive()
            assert scope.cancelled_caught and await ours.receive() == b"kept"

    run(scenario)


@pytest.mark.parametrize("host", [None, "localhost", "::1", "127.0.0.1"])
def test_a_listener_serves(run: Callable[[Scenario], None], host: str | None) -> None:
    async def scenario() -> None:
        async def echo(stream: anyio.abc.SocketStream) -> None:
            async with stream:
                async for data in stream:
                    await stream.send(data)

        async def client(port: int, address: str) -> None:
            async with await anyio.connect_tcp(address, port) as stream:
                await stream.send(address.encode())
                await stream.send_eof()
                assert await stream.receive() == address.encode()

        async with await offloaded.create_tcp_listener(local_host=host, backlog=50) as listener:
            port = listener.extra(SocketAttribute.local_port)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(listener.serve, echo)
                async with anyio.create_task_group() as clients:
                    addresses = [each.extra(SocketAttribute.local_address)[0] for each in listener.listeners]
                    addresses = ["127.0.0.1", "::1"] if addresses == ["::"] else addresses
                    for address in addresses * 10:
                        clients.start_soon(client, port, address)
                tasks.cancel_scope.cancel()

    run(scenario)


def test_connecting_fails_with_its_reason(run: Callable[[Scenario], None]) -> None:
    async def scenario() -> None:
        with kernel.socket() as bound:  # and not listening: nobody else gets the port
            bound.bind(("127.0.0.1", 0))
            with pytest.raises(OSError, match=r"all attempts to connect to 127\.0\.0\.1 port") as caught:
                await offloaded.connect_tcp(*bound.getsockname())
        assert isinstance(caught.value.__cause__, ConnectionRefusedError)
        with kernel.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            async with await offloaded.connect_tcp("localhost", port, local_host="127.0.0.1") as stream:
                peer, address = server.accept()
                peer.close()
                assert address == stream.extra(SocketAttribute.local_address)

    run(scenario)


def test_tls(run: Callable[[Scenario], None], tmp_path: Path) -> None:
    certificate = certificate_for_localhost(tmp_path)
    data = os.urandom(300_000)

    async def echo(stream: TLSStream) -> None:
        async with stream:
            received = b""
            while len(received) < len(data):
                received += await stream.receive()
            await stream.send(received)

    async def scenario() -> None:
        listener = TLSListener(
            await offloaded.create_tcp_listener(local_host="127.0.0.1"), certificate.server_context()
        )
        async with listener, anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, echo)
            stream = await offloaded.connect_tcp(
                "127.0.0.1",
                listener.listener.extra(SocketAttribute.local_port),
                ssl_context=certificate.client_context(),
            )
            async with stream:
                assert stream.extra(TLSAttribute.tls_version) == "TLSv1.3"
                tasks.start_soon(stream.send, data)
                received = b""
                while len(received) < len(data):
                    received += await stream.receive()
                assert received == data
            tasks.cancel_scope.cancel()

    run(scenario)
