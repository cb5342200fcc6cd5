"""xts_socket.trio, through a proxy over shared memory: trio's conformance suite, and what a run needs beyond it."""

from __future__ import annotations

import os
import socket as kernel
import struct
import subprocess
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
import xts_socket.trio as offloaded
from beds.authority import Certificate, certificate_for_localhost

pytestmark = pytest.mark.usefixtures("xts_endpoint")

DEADLINE_S = 20.0
CLOGGED_S = 0.03  # nothing taken for so long: the buffers of both ends and of the proxy are full
RESET = struct.pack("ii", 1, 0)  # SO_LINGER: close with a reset


def run(test: Callable[..., Awaitable[Any]], *arguments: Any) -> Any:
    """trio.run with a deadline."""

    async def main() -> Any:
        with trio.fail_after(DEADLINE_S):
            return await test(*arguments)

    return trio.run(main)


async def both_offloaded() -> tuple[Any, Any]:
    """A connection, both ends of which are offloaded."""
    (listener,) = await offloaded.open_tcp_listeners(0, host="127.0.0.1")
    async with listener:
        ours = await offloaded.open_tcp_stream(*listener.socket.getsockname())
        return ours, await listener.accept()


async def kernel_peer() -> tuple[Any, Any]:
    """A connection of an offloaded stream to one of the kernel's."""
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with listener:
        ours = await offloaded.open_tcp_stream(*listener.socket.getsockname())
        return ours, await listener.accept()


async def trios_own_streams() -> tuple[Any, Any]:
    """Trio's functions and classes, over offloaded sockets by way of the factory."""
    trio.socket.set_custom_socket_factory(offloaded.SocketFactory())
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with listener:
        ours = await trio.open_tcp_stream(*listener.socket.getsockname())
        assert isinstance(ours.socket, offloaded.SocketType)
        return ours, await listener.accept()


async def clogged(make: Callable[[], Awaitable[tuple[Any, Any]]]) -> tuple[Any, Any]:
    """The same with nothing more to be sent in either direction."""
    pair = await make()
    for stream in pair:  # of the kernel, at the device or here: buffers that do not grow
        for option in (kernel.SO_SNDBUF, kernel.SO_RCVBUF):
            stream.socket.setsockopt(kernel.SOL_SOCKET, option, 16384)
    clear = True
    while clear:
        clear = False
        for stream in pair:
            with trio.move_on_after(CLOGGED_S):
                while True:
                    await stream.socket.send(bytes(65536))
                    clear = True
    return pair


@pytest.mark.parametrize("make", [both_offloaded, kernel_peer, trios_own_streams])
def test_the_streams_conform(make: Any) -> None:
    """Half-closeable is the largest of trio's suites: it holds those of two-way and one-way streams."""
    run(trio.testing.check_half_closeable_stream, make, partial(clogged, make))


def test_a_run_has_one_descriptor_for_all_its_streams() -> None:
    def descriptors() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    async def scenario() -> None:
        first = await both_offloaded()
        before = descriptors()
        streams = [stream for _ in range(20) for stream in await both_offloaded()]
        async with trio.open_nursery() as nursery:
            for stream in streams:
                nursery.start_soon(stream.receive_some)
            await trio.testing.wait_all_tasks_blocked()
            assert descriptors() == before
            nursery.cancel_scope.cancel()
        for stream in (*streams, *first):
            await stream.aclose()

    run(scenario)


def test_errors_are_trios() -> None:
    async def scenario() -> None:
        ours, peer = await kernel_peer()
        async with ours:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(ours.receive_some)
                await trio.testing.wait_all_tasks_blocked()
                with pytest.raises(trio.BusyResourceError):
                    await ours.receive_some()
                nursery.cancel_scope.cancel()
            peer.setsockopt(kernel.SOL_SOCKET, kernel.SO_LINGER, RESET)
            await peer.aclose()
            with pytest.raises(trio.BrokenResourceError):
                await ours.receive_some()
        with pytest.raises(trio.ClosedResourceError), trio.testing.assert_checkpoints():
            await ours.receive_some()
        with pytest.raises(ValueError, match="max_bytes"):
            await ours.receive_some(0)

    run(scenario)


def test_cancelling_loses_no_data_and_leaves_the_stream_usable() -> None:
    async def scenario() -> None:
        ours, peer = await kernel_peer()
        async with ours, peer:
            with trio.move_on_after(0.01) as scope:
                await ours.receive_some()
            assert scope.cancelled_caught
            await peer.send_all(b"kept")
            with trio.CancelScope() as scope:
                scope.cancel()
                await ours.receive_some()
            assert scope.cancelled_caught
            assert await ours.receive_some() == b"kept"

    run(scenario)


def test_a_connect_that_fails_or_is_cancelled() -> None:
    async def scenario() -> None:
        with kernel.socket() as bound:  # and not listening: nobody else gets the port
            bound.bind(("127.0.0.1", 0))
            with pytest.raises(OSError, match=r"all attempts to connect to 127\.0\.0\.1:") as caught:
                await offloaded.open_tcp_stream(*bound.getsockname())
            assert isinstance(caught.value.__cause__, ExceptionGroup)
            assert isinstance(caught.value.__cause__.exceptions[0], ConnectionRefusedError)
        sock = offloaded.socket()
        with trio.CancelScope() as scope, kernel.create_server(("127.0.0.1", 0)) as server:
            scope.cancel()
            await sock.connect(server.getsockname())
        assert scope.cancelled_caught and sock.fileno() == -1
        with pytest.raises(TypeError, match="port"):
            await offloaded.open_tcp_stream("127.0.0.1", "80")  # type: ignore[arg-type]

    run(scenario)


def test_names_and_addresses() -> None:
    async def scenario() -> None:
        for host in ("localhost", "::1"):
            listeners = await offloaded.open_tcp_listeners(0, host=host)
            port = listeners[0].socket.getsockname()[1]
            stream = await offloaded.open_tcp_stream(host, port, local_address=listeners[0].socket.getsockname()[0])
            async with stream, await listeners[0].accept() as accepted:
                assert accepted.socket.getpeername()[:2] == stream.socket.getsockname()[:2]
            for listener in listeners:
                await listener.aclose()
        with pytest.raises(OSError, match="failed") as caught:
            await offloaded.open_tcp_stream("127.0.0.1", 9, local_address="::1")
        assert "incompatible" in str(caught.value.__cause__.exceptions[0])  # type: ignore[union-attr]

    run(scenario)


def test_serve_tcp_many_at_once() -> None:
    async def echo(stream: Any) -> None:
        async for data in stream:
            await stream.send_all(data)

    async def client(port: int, text: bytes) -> None:
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            await stream.send_all(text)
            await stream.send_eof()
            assert b"".join([part async for part in stream]) == text

    async def scenario() -> None:
        async with trio.open_nursery() as nursery:
            listeners = await nursery.start(partial(offloaded.serve_tcp, echo, 0, host="127.0.0.1"))
            port = listeners[0].socket.getsockname()[1]
            async with trio.open_nursery() as clients:
                for i in range(50):
                    clients.start_soon(client, port, os.urandom(1 + 3000 * i))
            nursery.cancel_scope.cancel()

    run(scenario)


def test_a_closed_listener_wakes_who_accepts() -> None:
    async def scenario() -> None:
        (listener,) = await offloaded.open_tcp_listeners(0, host="127.0.0.1", backlog=5)

        async def accept() -> None:
            with pytest.raises(trio.ClosedResourceError):
                await listener.accept()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(accept)
            await trio.testing.wait_all_tasks_blocked()
            await listener.aclose()
        with pytest.raises(trio.ClosedResourceError):
            await listener.accept()
        with offloaded.socket() as idle, pytest.raises(ValueError, match="listening"):
            offloaded.SocketListener(idle)

    run(scenario)


def test_tls(tmp_path: Path) -> None:
    certificate: Certificate = certificate_for_localhost(tmp_path)

    async def scenario() -> None:
        ours, peer = await kernel_peer()
        client = trio.SSLStream(ours, certificate.client_context(), server_hostname="localhost")
        server = trio.SSLStream(peer, certificate.server_context(), server_side=True)
        data = os.urandom(300_000)

        async def serve() -> None:
            assert b"".join([part async for part in server]) == data
            await server.aclose()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve)
            await client.send_all(data)
            assert client.version() == "TLSv1.3"
            await client.aclose()

    run(scenario)


def test_a_raw_socket() -> None:
    """What trio's sockets have beyond what streams use."""

    async def scenario() -> None:
        with kernel.create_server(("127.0.0.1", 0)) as server, offloaded.socket() as sock:
            await sock.connect(("localhost", server.getsockname()[1]))
            peer, _ = server.accept()
            with peer:
                peer.settimeout(DEADLINE_S)
                assert not sock.is_readable()
                assert await sock.sendmsg([b"scat", b"ter"]) == 7 and await sock.send(b"!") == 1
                with peer.makefile("rb") as said:  # two segments: with a time-out Python's MSG_WAITALL does not wait
                    assert said.read(8) == b"scatter!"
                peer.sendall(b"12345678")
                buffer = bytearray(2)
                assert await sock.recv_into(buffer) == 2 and buffer == b"12"
                assert (await sock.recvfrom(2))[0] == b"34"
                assert (await sock.recvmsg(2))[0] == b"56"
                assert sock.is_readable()
                assert (await sock.recvmsg_into([buffer]))[0] == 2 and buffer == b"78"
            again = offloaded.from_xts_socket(type(sock.xts_socket)(fileno=sock.detach()))
            with again:
                assert await again.recv(1) == b""
                assert "xts_socket.trio.SocketType" in repr(again) and again.family == kernel.AF_INET

    run(scenario)


OUTLIVES = """
import os, sys, tempfile
from pathlib import Path
import trio
import xts_socket.trio
from beds.proxy_process import running_proxy

async def meet(proxy):
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with listener:
        ours = await xts_socket.trio.open_tcp_stream(*listener.socket.getsockname())
        peer = await listener.accept()
    async with ours, peer, trio.open_nursery() as nursery:
        nursery.start_soon(peer.send_all, b"hello")
        assert await ours.receive_some() == b"hello"
        nursery.start_soon(kill, proxy)
        try:
            await ours.receive_some()
        except trio.BrokenResourceError:
            print("broken")

async def kill(proxy):
    await trio.testing.wait_all_tasks_blocked()
    proxy.process.kill()

async def main():
    for _ in range(2):
        with running_proxy(folder) as proxy:
            with trio.fail_after(20):
                await meet(proxy)

with tempfile.TemporaryDirectory() as name:
    folder = Path(name)
    xts_socket.configure(endpoint=str(folder / "endpoint.sock"))
    import trio.testing
    trio.run(main)
"""


def test_a_run_outlives_its_proxy() -> None:
    """Its streams break, and new ones are made by the next proxy, waited for on the descriptor that the run has."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", OUTLIVES],
        env=os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[2])},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (0, "broken\nbroken\n"), done.stderr
