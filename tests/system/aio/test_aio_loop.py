"""`xts_socket.aio.EventLoop`: its selector waits for XTS sockets, kernel descriptors, threads and signals at once."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from beds.aio import HOST, LARGE, Net, Pair, Record, Recorder, said
from beds.application import Application
from beds.scripted_proxy import ScriptedProxy
from xts_socket import aio

pytestmark = pytest.mark.usefixtures("xts_endpoint")

DEADLINE_S = 10.0
DELAY_S = 0.02  # until the loop sleeps, or spins: both are right


async def _pair() -> Pair:
    return await Pair.make(Net(aio), "client")


async def _end(pair: Pair) -> None:
    pair.transport.close()
    await pair.end()


def _run(program: Callable[[], Any], *, debug: bool = False) -> Any:
    async def limited() -> Any:
        async with asyncio.timeout(DEADLINE_S):
            return await program()

    with asyncio.Runner(loop_factory=aio.EventLoop, debug=debug) as runner:
        return runner.run(limited())


@contextmanager
def _after(call: Callable[[], Any]) -> Iterator[None]:
    """Makes the call from another thread, soon."""
    timer = threading.Timer(DELAY_S, call)
    timer.start()
    try:
        yield
    finally:
        timer.join()


@pytest.mark.parametrize("asked", [False, True], ids=["idle", "spinning"])
def test_what_is_no_xts_socket_ends_its_wait(asked: bool) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        pair = await _pair()
        for _ in range(10):
            if asked:
                pair.transport.write(b"?")  # one request outstanding: waits spin
            came = asyncio.Event()
            with _after(partial(loop.call_soon_threadsafe, came.set)):
                await came.wait()
            near, far = socket.socketpair()
            near.setblocking(False)
            with near, far, _after(partial(far.send, b"x")):
                assert await loop.sock_recv(near, 10) == b"x"
            before = loop.time()
            await asyncio.sleep(DELAY_S)
            assert loop.time() - before >= DELAY_S
        assert await loop.run_in_executor(None, lambda: 42) == 42
        await _end(pair)

    _run(main)


def test_a_signal_is_handled_while_it_waits() -> None:
    """Without the loop's own help: signal.signal(), whose handler runs when select() returns. The signals come while it
    spins, as it falls asleep, and after."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        pair = await _pair()
        came: asyncio.Future[int] = loop.create_future()
        before = signal.signal(signal.SIGALRM, lambda number, _: came.done() or came.set_result(number))
        try:
            for after_us in range(10, 1000, 5):
                came = loop.create_future()
                pair.protocol.data.clear()
                pair.peer.writer.write(b"!")
                await pair.protocol.receive(1)
                pair.transport.write(b"?")
                signal.setitimer(signal.ITIMER_REAL, after_us / 1e6)
                assert await came == signal.SIGALRM
        finally:
            signal.signal(signal.SIGALRM, before)
        await _end(pair)

    _run(main)


def test_an_interrupt_stops_it() -> None:
    async def main() -> None:
        pair = await _pair()
        try:
            with _after(partial(os.kill, os.getpid(), signal.SIGINT)):
                await asyncio.Event().wait()
        finally:
            await _end(pair)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # what runs in the background ignores it
    try:
        with pytest.raises(KeyboardInterrupt):
            _run(main)
    finally:
        signal.signal(signal.SIGINT, before)


def test_what_was_sent_leaves_when_it_stops() -> None:
    with socket.create_server((HOST, 0)) as server, asyncio.Runner(loop_factory=aio.EventLoop) as runner:
        server.settimeout(DEADLINE_S)
        port = server.getsockname()[1]

        async def connect() -> tuple[Any, Recorder]:
            return await aio.create_connection(Recorder, HOST, port)

        transport, protocol = runner.run(connect())
        peer, _ = server.accept()

        async def write() -> None:
            transport.write(b"last words")

        with peer:
            peer.settimeout(DEADLINE_S)
            runner.run(write())
            assert peer.recv(100) == b"last words"  # the loop does not run

        async def end() -> None:
            await protocol.lost

        runner.run(end())


class Unkind(Recorder):
    def connection_lost(self, failure: Exception | None) -> None:
        super().connection_lost(failure)
        raise ValueError("from connection_lost")


@pytest.mark.parametrize("debug", [False, True])
def test_an_exception_in_an_event_is_reported(debug: bool) -> None:
    """connection_lost() is called by the event that lets the last bytes leave."""

    async def main() -> Record:
        reported: Record = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: reported.append(said(context.get("exception"))))
        pair = await Pair.make(Net(aio), "client", Unkind)
        pair.transport.write(LARGE)
        assert pair.transport.get_write_buffer_size()
        pair.transport.close()
        assert await pair.peer.reader.read() == LARGE
        await pair.end()
        return reported

    assert _run(main, debug=debug) == [("ValueError", "from connection_lost")]


def test_slow_callbacks_are_told_in_debug_mode(caplog: pytest.LogCaptureFixture) -> None:
    class Slow(Recorder):
        def data_received(self, data: bytes) -> None:
            threading.Event().wait(0.02)
            super().data_received(data)

    async def main() -> None:
        asyncio.get_running_loop().slow_callback_duration = 0.01
        pair = await Pair.make(Net(aio), "client", Slow)
        pair.peer.writer.write(b"x")
        await pair.protocol.receive(1)
        await _end(pair)

    _run(main, debug=True)
    assert "Executing" in caplog.text


CONNECT = """
import asyncio, json
from xts_socket import aio

async def main():
    transport, _ = await aio.create_connection(asyncio.Protocol, "198.18.0.2", 80)
    transport.write(b"hello")
    await asyncio.sleep(0)
    print(json.dumps(["connected", True]), flush=True)
    transport.abort()

with asyncio.Runner(loop_factory=aio.EventLoop) as runner:
    runner.run(main())
"""


def test_connecting_does_not_wait_for_an_option(tmp_path: Path) -> None:
    with ScriptedProxy(tmp_path / "endpoint.sock") as proxy, Application(CONNECT, proxy.path) as application:
        channel = proxy.next_channel()
        channel.accept_connect()
        asked = channel.expect("XTS_CMD_SETSOCKOPT")  # and is never answered
        assert (asked.fields["level"], asked.fields["option"]) == (socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert channel.expect("XTS_CMD_SEND").payload == b"hello"
        assert application.result(proxy) == {"connected": True}
