"""xts_socket.aio against asyncio: the same programs have to see the same, on asyncio's transports over kernel sockets
and on ours, on asyncio's loop and on uvloop's."""

from __future__ import annotations

import asyncio
import gc
import socket
import subprocess
import sys
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import uvloop
import xts_socket
from beds.aio import HOST, LARGE, Net, Peer, Record, Recorder, said
from beds.authority import certificate_for_localhost
from system.aio.programs import aio_lives, aio_serving
from xts_socket import aio

pytestmark = pytest.mark.usefixtures("xts_endpoint")

DEADLINE_S = 20.0
LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.SelectorEventLoop,
    "uvloop": uvloop.new_event_loop,
    "ours": aio.EventLoop,
}
Script = Callable[..., Any]


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Key and certificate of `localhost`, which is its own authority."""
    return certificate_for_localhost(tmp_path_factory.mktemp("tls")).both


def play(script: Script, calls: Callable[[], Any], loop_factory: Callable[[], Any], certificate: Path) -> Record:
    """The record of a script, and what the loop has reported meanwhile."""

    async def main() -> Record:
        net = Net(calls(), certificate)
        loop = asyncio.get_running_loop()

        def report(_: Any, context: dict[str, Any]) -> None:
            net.reported.append((context["message"].partition(" callback")[0], said(context.get("exception"))))

        loop.set_exception_handler(report)
        async with asyncio.timeout(DEADLINE_S):
            result = await script(net)
        return [result, net.reported]

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        record = runner.run(main())
    gc.collect()  # what was left open complains now
    return record


def asyncios() -> Any:
    loop = asyncio.get_running_loop()
    return SimpleNamespace(
        create_connection=loop.create_connection, create_server=loop.create_server, start_tls=loop.start_tls,
        open_connection=asyncio.open_connection, start_server=asyncio.start_server,
    )  # fmt: skip


@cache
def expected(script: Script, certificate: Path) -> Record:
    return play(script, asyncios, asyncio.SelectorEventLoop, certificate)


#: The same function every time, for the cache.
LIVES = {
    f"{script.__name__}-{side}": partial(script, side=side)
    for script in aio_lives.LIVES
    for side in ("client", "server")
}
SCRIPTS: dict[str, Script] = {**LIVES, **{script.__name__: script for script in aio_serving.OTHERS}}


@pytest.mark.parametrize("loop", ["asyncio", "ours", pytest.param("uvloop", marks=pytest.mark.long)])
@pytest.mark.parametrize("name", SCRIPTS)
def test_as_asyncio(name: str, loop: str, certificate: Path) -> None:
    ours = play(SCRIPTS[name], lambda: aio, LOOPS[loop], certificate)
    assert ours == expected(SCRIPTS[name], certificate)


# --- what asyncio does not have, or does not show ---------------------------------------------------------------------


@pytest.fixture(params=LOOPS)
def runner(request: pytest.FixtureRequest) -> Any:
    """A runner of each kind of loop."""
    with asyncio.Runner(loop_factory=LOOPS[request.param]) as made:
        yield made
    gc.collect()


def run(runner: asyncio.Runner, program: Callable[[], Any]) -> Any:
    async def limited() -> Any:
        async with asyncio.timeout(DEADLINE_S):
            return await program()

    return runner.run(limited())


def test_importing_xts_socket_does_not_import_asyncio() -> None:
    program = "import sys, xts_socket; assert 'asyncio' not in sys.modules; import xts_socket.aio"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_sock_calls(runner: asyncio.Runner, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(LARGE)

    async def main() -> None:
        with xts_socket.create_server((HOST, 0)) as listener:
            listener.setblocking(False)
            accepting = asyncio.ensure_future(aio.sock_accept(listener))
            await asyncio.sleep(0)
            with xts_socket.socket() as near:
                near.setblocking(False)
                await aio.sock_connect(near, listener.getsockname())
                far, address = await accepting
                with far:
                    assert address == near.getsockname()
                    reading = asyncio.ensure_future(aio.sock_recv(far, 100))
                    sending = asyncio.ensure_future(aio.sock_sendall(far, LARGE))  # both wait on one socket
                    await asyncio.sleep(0)
                    await aio.sock_sendall(near, memoryview(b"hello"))
                    assert await reading == b"hello"
                    received = await receive(near, len(LARGE))
                    await sending
                    assert received == LARGE
                    with file.open("rb") as opened:
                        sent = asyncio.ensure_future(aio.sock_sendfile(far, opened, 1000))
                        assert await receive(near, len(LARGE) - 1000) == LARGE[1000:]
                        assert await sent == len(LARGE) - 1000
                        assert opened.tell() == len(LARGE)
                        with pytest.raises(ValueError, match="count must be a positive integer"):
                            await aio.sock_sendfile(far, opened, 0, 0)

    async def receive(sock: xts_socket.socket, count: int) -> bytes:
        data = bytearray(count)
        at = 0
        while at < count:
            got = await aio.sock_recv_into(sock, memoryview(data)[at:])
            assert got
            at += got
        return bytes(data)

    run(runner, main)


def test_a_waiting_sock_call_can_be_cancelled(runner: asyncio.Runner) -> None:
    async def main() -> None:
        server, queue, port = await Peer.listen()
        with xts_socket.socket() as sock:
            sock.setblocking(False)
            await aio.sock_connect(sock, (HOST, port))
            peer = await queue.get()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.02):
                    await aio.sock_recv(sock, 100)
            peer.writer.write(b"later")
            assert await aio.sock_recv(sock, 100) == b"later"
        await peer.close()
        server.close()

    run(runner, main)


def test_a_socket_of_a_transport_is_refused_to_sock_calls(runner: asyncio.Runner) -> None:
    async def main() -> None:
        server, queue, port = await Peer.listen()
        sock = xts_socket.create_connection((HOST, port))
        transport, protocol = await aio.create_connection(Recorder, sock=sock)
        sock.setblocking(False)
        with pytest.raises(RuntimeError, match="is used by transport"):
            await aio.sock_recv(sock, 1)
        transport.close()
        await protocol.lost
        assert sock.fileno() == -1
        await queue.get_nowait().close()
        server.close()

    run(runner, main)


def test_a_kernel_socket_is_refused(runner: asyncio.Runner) -> None:
    async def main() -> None:
        with socket.socket() as kernel:
            with pytest.raises(TypeError, match=r"an xts_socket\.socket is required"):
                await aio.create_connection(Recorder, sock=kernel)  # type: ignore[arg-type]
            with pytest.raises(TypeError, match=r"an xts_socket\.socket is required"):
                await aio.create_server(Recorder, sock=kernel)  # type: ignore[arg-type]
            with pytest.raises(TypeError, match=r"an xts_socket\.socket is required"):
                await aio.sock_recv(kernel, 1)  # type: ignore[arg-type]

    run(runner, main)


def test_a_factory_that_raises_leaves_nothing_open(runner: asyncio.Runner) -> None:
    def factory() -> Recorder:
        raise ValueError("no protocol")

    async def main() -> None:
        server, queue, port = await Peer.listen()
        with pytest.raises(ValueError, match="no protocol"):
            await aio.create_connection(factory, HOST, port)
        peer = await queue.get()
        assert await peer.reader.read() == b""
        await peer.close()
        server.close()
        served = await aio.create_server(factory, HOST, 0)
        peer = await Peer.connect(served.sockets[0].getsockname()[1])
        assert await peer.reader.read() == b""
        await peer.close()
        served.close()

    run(runner, main)


class Interrupts(Recorder):
    """Ends the loop from a callback, as Ctrl-C or sys.exit() do."""

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        raise SystemExit("from a callback")


def test_events_collected_together_survive_an_exit(runner: asyncio.Runner) -> None:
    loop = runner.get_loop()
    protocols: list[Recorder] = []

    async def connect() -> Any:
        server, queue, port = await Peer.listen()
        for _ in range(5):
            protocols.append((await aio.create_connection(Interrupts, HOST, port))[1])
        peers = [await queue.get() for _ in protocols]
        return server, peers

    server, peers = loop.run_until_complete(connect())
    for peer in peers:
        peer.writer.write(b"x")

    async def finish() -> None:
        async with asyncio.timeout(DEADLINE_S):
            for protocol in protocols:
                await protocol.receive(1)
            for peer in peers:
                await peer.close()
            for protocol in protocols:
                await protocol.lost
            server.close()

    ends = 0
    finishing = loop.create_task(finish())
    while not finishing.done():
        try:
            loop.run_until_complete(finishing)
        except SystemExit:
            ends += 1
    finishing.result()
    assert ends  # uvloop makes one of several
    assert all(bytes(protocol.data) == b"x" for protocol in protocols)


def test_a_loop_of_ours_is_used_by_asyncios_own_calls() -> None:
    async def main() -> Record:
        kinds: Record = []
        served = asyncio.get_running_loop().create_future()
        server = await asyncio.start_server(lambda _, writer: served.set_result(writer), HOST, 0)
        kinds.append(type(server))
        port = server.sockets[0].getsockname()[1]
        _, writer = await asyncio.open_connection(HOST, port)
        other = await served
        for each in (writer, other):
            kinds.append(type(each.transport))
            each.close()
            await each.wait_closed()
        server.close()
        near, far = socket.socketpair()
        _, kernel = await asyncio.open_connection(sock=near)
        kinds.append(isinstance(kernel.transport, aio.Transport))
        kernel.close()
        far.close()
        return kinds

    for factory in (aio.EventLoop, aio.UvloopEventLoop):
        with asyncio.Runner(loop_factory=factory) as runner:
            assert runner.run(main()) == [aio.Server, aio.Transport, aio.Transport, False]


@pytest.mark.parametrize("loop", ["EventLoop", "UvloopEventLoop"])
@pytest.mark.parametrize("name", ["echo_and_close-client", "tls_server", "upgrade_to_tls", "streams", "serving"])
def test_a_loop_of_ours_is_as_asyncios(name: str, loop: str, certificate: Path) -> None:
    ours = play(SCRIPTS[name], asyncios, getattr(aio, loop), certificate)
    assert ours == expected(SCRIPTS[name], certificate)


def test_sendfile_of_the_loop(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(LARGE)

    async def main() -> None:
        server, queue, port = await Peer.listen()
        transport, protocol = await aio.create_connection(Recorder, HOST, port)
        peer = await queue.get()
        with file.open("rb") as opened:
            sending = asyncio.ensure_future(asyncio.get_running_loop().sendfile(transport, opened))
            assert await peer.reader.readexactly(len(LARGE)) == LARGE
            assert await sending == len(LARGE)
        transport.close()
        await protocol.lost
        await peer.close()
        server.close()

    with asyncio.Runner() as runner:
        run(runner, main)


def test_one_descriptor_for_all_sockets(runner: asyncio.Runner) -> None:
    async def main() -> None:
        server, queue, port = await Peer.listen()
        transports = []

        async def one_more() -> int:
            transports.append((await aio.create_connection(Recorder, HOST, port))[0])
            peers.append(await queue.get())
            return len(list(Path("/proc/self/fd").iterdir()))

        peers: list[Peer] = []
        before = await one_more()
        for _ in range(10):
            after = await one_more()
        assert after == before + 10  # the peers' descriptors
        for transport, peer in zip(transports, peers, strict=True):
            transport.close()
            await peer.close()
        server.close()

    run(runner, main)


@pytest.mark.usefixtures("xts_endpoint")
def test_a_write_of_a_view_with_gaps() -> None:
    """asyncio's transport takes it."""

    async def body() -> bytes:
        server = await xts_socket.aio.start_server(echo, "127.0.0.1", 0)
        reader, writer = await xts_socket.aio.open_connection(*server.sockets[0].getsockname())
        writer.write(memoryview(bytearray(range(10)))[::2])
        got = await asyncio.wait_for(reader.readexactly(5), 20)
        writer.close()
        await writer.wait_closed()
        server.close()
        return got

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readexactly(5))
        writer.close()

    assert asyncio.run(body()) == bytes(range(0, 10, 2))
