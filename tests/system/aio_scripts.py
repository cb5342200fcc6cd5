"""What asyncio programs do with connections, as scripts that record what happened: run on asyncio's own transports and
on ours, the records have to be the same. `Net` is the side under test; the peer is always asyncio on the kernel."""

from __future__ import annotations

import asyncio
import contextvars
import hashlib
import re
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

HOST = "127.0.0.1"
LARGE = bytes(range(256)) * 32768  # 8 MiB: more than all buffers on the way
Record = list[Any]


def said(failure: BaseException | None) -> Any:
    """An exception as a comparable value: type and words, without what differs from run to run."""
    if failure is None:
        return None
    words = re.sub(r"'?0x[0-9a-f]+'?|\b\d{4,5}\b|<[^<>]*(<[^<>]*>[^<>]*)*>", "#", str(failure))
    return type(failure).__name__, re.sub(r"\(_ssl\.c:.*?\)", "", words)


class Net:
    """The calls under test, and the certificates to use in them."""

    def __init__(self, calls: Any, certificate: Path | None = None) -> None:
        self.connect: Callable[..., Awaitable[Any]] = calls.create_connection
        self.serve: Callable[..., Awaitable[Any]] = calls.create_server
        self.start_tls: Callable[..., Awaitable[Any]] = calls.start_tls
        self.calls = calls
        self.certificate = certificate
        self.reported: Record = []

    def server_context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        assert self.certificate is not None
        context.load_cert_chain(self.certificate)
        return context

    def client_context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.certificate))


class Recorder(asyncio.Protocol):
    """Writes down what it is told; data only as their sum, since their pieces are chance."""

    def __init__(self, keep_open: bool = False) -> None:
        self.record: Record = []
        self.keep_open = keep_open
        self.data = bytearray()
        self.lost = asyncio.get_running_loop().create_future()
        self.ended = asyncio.get_running_loop().create_future()
        self.more = asyncio.Event()
        self.paused = asyncio.Event()
        self.resumed = asyncio.Event()
        self.transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.record.append("made")

    def data_received(self, data: bytes) -> None:
        assert type(data) is bytes
        if not self.data:
            self.record.append("data")
        self.data += data
        self.more.set()

    def eof_received(self) -> bool:
        self.record.append(("eof", hashlib.sha256(self.data).hexdigest()))
        self.ended.set_result(None)
        return self.keep_open

    def pause_writing(self) -> None:
        self.record.append("pause")
        self.paused.set()

    def resume_writing(self) -> None:
        self.record.append("resume")
        self.resumed.set()

    def connection_lost(self, failure: Exception | None) -> None:
        self.record.append(("lost", said(failure)))
        if not self.lost.done():
            self.lost.set_result(None)

    async def receive(self, count: int) -> bytes:
        while len(self.data) < count:
            self.more.clear()
            await self.more.wait()
        return bytes(self.data[:count])


class Peer:
    """The other end: a kernel stream."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def reset(self) -> None:
        self.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    async def close(self) -> None:
        self.writer.close()
        with suppress(OSError):  # it was reset
            await self.writer.wait_closed()

    @staticmethod
    async def listen(**options: Any) -> tuple[asyncio.Server, asyncio.Queue[Peer], int]:
        queue: asyncio.Queue[Peer] = asyncio.Queue()
        bound = socket.create_server((HOST, 0))  # of the kernel, whatever the loop would make
        server = await asyncio.start_server(lambda r, w: queue.put_nowait(Peer(r, w)), sock=bound, **options)
        return server, queue, server.sockets[0].getsockname()[1]

    @staticmethod
    async def connect(port: int, **options: Any) -> Peer:
        sock = socket.socket()
        sock.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(sock, (HOST, port))
        except OSError:
            sock.close()
            raise
        return Peer(*await asyncio.open_connection(sock=sock, **options))


class Pair:
    """A connection of the side under test with a peer: `side` says which of the two listens."""

    def __init__(self, protocol: Any, transport: Any, peer: Peer, servers: list[Any]) -> None:
        self.protocol, self.transport, self.peer, self.servers = protocol, transport, peer, servers

    @staticmethod
    async def make(net: Net, side: str, factory: Callable[[], Any] = Recorder) -> Pair:
        if side == "client":
            server, queue, port = await Peer.listen()
            transport, protocol = await net.connect(factory, HOST, port)
            return Pair(protocol, transport, await queue.get(), [server])
        made: list[Any] = []

        def remember() -> Any:
            made.append(factory())
            return made[0]

        server = await net.serve(remember, HOST, 0)
        peer = await Peer.connect(server.sockets[0].getsockname()[1])
        while not made or made[0].transport is None:
            await asyncio.sleep(0.001)
        return Pair(made[0], made[0].transport, peer, [server])

    async def end(self) -> Record:
        await self.protocol.lost
        await self.peer.close()
        for server in self.servers:
            server.close()
            await server.wait_closed()
        await asyncio.sleep(0)
        record: Record = self.protocol.record
        return record


# --- a connection's life: each runs as client and as server ---------------------------------------------------------


async def echo_and_close(net: Net, side: str) -> Record:
    pair = await Pair.make(net, side)
    pair.transport.write(b"hello")
    got = await pair.peer.reader.readexactly(5)
    pair.peer.writer.write(got * 2)
    got = await pair.protocol.receive(10)
    pair.transport.close()
    closing = pair.transport.is_closing()
    pair.transport.close()
    return [got, closing, await pair.peer.reader.read(), await pair.end()]


async def peer_closes(net: Net, side: str) -> Record:
    pair = await Pair.make(net, side)
    pair.peer.writer.write(b"last words")
    pair.peer.writer.close()
    return [await pair.end(), bytes(pair.protocol.data), pair.transport.is_closing()]


async def peer_half_closes_and_we_keep_open(net: Net, side: str) -> Record:
    pair = await Pair.make(net, side, lambda: Recorder(keep_open=True))
    pair.peer.writer.write(b"question")
    pair.peer.writer.write_eof()
    await pair.protocol.ended
    facts = [pair.transport.is_closing(), pair.transport.is_reading()]
    pair.transport.write(b"answer")
    pair.transport.close()
    return [facts, await pair.peer.reader.read(), await pair.end()]


async def we_half_close(net: Net, side: str) -> Record:
    pair = await Pair.make(net, side)
    facts = [pair.transport.can_write_eof()]
    pair.transport.writelines([b"one ", bytearray(b"two "), memoryview(b"three")])
    pair.transport.write_eof()
    pair.transport.write_eof()
    try:
        pair.transport.write(b"more")
    except RuntimeError as failure:
        facts.append(said(failure))
    facts.append(await pair.peer.reader.read())
    pair.peer.writer.write(b"answer after the end")
    await pair.protocol.receive(20)
    pair.peer.writer.close()
    return [facts, await pair.end(), bytes(pair.protocol.data)]


async def write_eof_waits_for_the_buffer(net: Net, side: str) -> Record:
    pair = await Pair.make(net, side)
    pair.transport.write(LARGE)
    pair.transport.write_eof()
    data = await pair.peer.reader.read()
    pair.peer.writer.close()
    return [data == LARGE, await pair.end()]


async def close_waits_for_the_buffer(net: Net, side: str) -> Record:
    pair = await Pair.make(net, side)
    pair.transport.write(LARGE)
    buffered = pair.transport.get_write_buffer_size() > 0
    pair.transport.close()
    return [buffered, await pair.peer.reader.read() == LARGE, await pair.end()]


async def flow_control(net: Net, side: str) -> Record:
    pair = await Pair.make(net, side)
    limits = [pair.transport.get_write_buffer_limits()]
    pair.transport.set_write_buffer_limits(high=100_000, low=1000)
    limits.append(pair.transport.get_write_buffer_limits())
    pair.transport.write(LARGE)
    await pair.protocol.paused.wait()
    pair.transport.write(b"end")
    data = await pair.peer.reader.readexactly(len(LARGE) + 3)
    await pair.protocol.resumed.wait()
    sizes = [pair.transport.get_write_buffer_size() <= 1000]
    for arguments in ({"high": 10, "low": 20}, {"high": -1}):
        try:
            pair.transport.set_write_buffer_limits(**arguments)
        except ValueError as failure:
            sizes.append(said(failure))
    pair.transport.set_write_buffer_limits(low=50)
    limits.append(pair.transport.get_write_buffer_limits())
    pair.transport.set_write_buffer_limits(high=0)
    limits.append(pair.transport.get_write_buffer_limits())
    pair.transport.close()
    return [limits, sizes, data == LARGE + b"end", await pair.end()]


async def pause_reading(net: Net, side: str) -> Record:
    pair = await Pair.make(net, side)
    facts = [pair.transport.is_reading()]
    pair.transport.pause_reading()
    pair.transport.pause_reading()
    facts.append(pair.transport.is_reading())
    pair.peer.writer.write(b"held back")
    await pair.peer.writer.drain()
    await asyncio.sleep(0.05)
    facts.append(bytes(pair.protocol.data))
    pair.transport.resume_reading()
    pair.transport.resume_reading()
    facts += [await pair.protocol.receive(9), pair.transport.is_reading()]
    pair.transport.pause_reading()
    pair.peer.writer.write(b" and again")
    pair.peer.writer.write_eof()
    await asyncio.sleep(0.05)
    facts.append(bytes(pair.protocol.data))
    pair.transport.resume_reading()
    return [facts, await pair.end(), bytes(pair.protocol.data)]


async def receive_much(net: Net, side: str) -> Record:
    pair = await Pair.make(net, side)
    pair.peer.writer.write(LARGE)
    pair.peer.writer.close()
    return [await pair.end(), pair.protocol.data == LARGE]


class PausesOften(Recorder):
    """Takes one piece at a time."""

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self.transport.pause_reading()
        asyncio.get_running_loop().call_soon(self.transport.resume_reading)


async def pausing_loses_nothing(net: Net, side: str) -> Record:
    pair = await Pair.make(net, side, PausesOften)
    pair.peer.writer.write(LARGE)
    pair.peer.writer.close()
    return [await pair.end(), pair.protocol.data == LARGE]


class Buffered(asyncio.BufferedProtocol):
    """A Recorder with a buffer of its own."""

    size = 1000
    failing: str | None = None

    def __init__(self) -> None:
        self.inner = Recorder()
        self.record, self.data, self.lost = self.inner.record, self.inner.data, self.inner.lost
        self.room = bytearray(self.size)
        self.transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.inner.connection_made(transport)

    def get_buffer(self, sizehint: int) -> Any:
        if self.failing == "get_buffer":
            raise ValueError("no buffer")
        if self.failing == "empty":
            return bytearray()
        assert sizehint == -1
        return memoryview(self.room)

    def buffer_updated(self, nbytes: int) -> None:
        if self.failing == "buffer_updated":
            raise ValueError("not now")
        self.inner.data_received(bytes(self.room[:nbytes]))

    def eof_received(self) -> bool:
        return self.inner.eof_received()

    def connection_lost(self, failure: Exception | None) -> None:
        self.inner.connection_lost(failure)


async def buffered_protocol(net: Net, side: str) -> Record:
    pair = await Pair.make(net, side, Buffered)
    pair.peer.writer.write(LARGE[:300_000])
    pair.peer.writer.close()
    return [await pair.end(), pair.protocol.data == LARGE[:300_000]]


async def buffered_protocol_fails(net: Net, side: str) -> Record:
    records = []
    for failing in ("get_buffer", "empty", "buffer_updated"):
        pair = await Pair.make(net, side, type("Failing", (Buffered,), {"failing": failing}))
        pair.peer.writer.write(b"x")
        records.append(await pair.end())
    return records


class Raises(Recorder):
    """Raises in one of its callbacks."""

    where = ""

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.where == "data":
            raise ValueError("from data_received")

    def eof_received(self) -> bool:
        super().eof_received()
        if self.where == "eof":
            raise ValueError("from eof_received")
        return False

    def pause_writing(self) -> None:
        super().pause_writing()
        if self.where == "pause":
            raise ValueError("from pause_writing")

    def resume_writing(self) -> None:
        super().resume_writing()
        if self.where == "pause":
            raise ValueError("from resume_writing")

    def connection_lost(self, failure: Exception | None) -> None:
        super().connection_lost(failure)
        if self.where == "lost":
            raise ValueError("from connection_lost")


async def protocol_raises(net: Net, side: str) -> Record:
    records = []
    for where in ("data", "eof", "lost"):
        pair = await Pair.make(net, side, type("RaisesThere", (Raises,), {"where": where}))
        pair.peer.writer.write(b"x")
        pair.peer.writer.write_eof()
        records.append(await pair.end())
    return records


async def flow_control_raises(net: Net, side: str) -> Record:
    pair = await Pair.make(net, side, type("RaisesThere", (Raises,), {"where": "pause"}))
    pair.transport.write(LARGE)
    await pair.protocol.paused.wait()
    data = await pair.peer.reader.readexactly(len(LARGE))
    await pair.protocol.resumed.wait()
    pair.transport.close()
    return [data == LARGE, await pair.end()]


async def abort(net: Net, side: str) -> Record:
    pair = await Pair.make(net, side)
    pair.transport.write(LARGE)
    pair.transport.abort()
    facts = [pair.transport.is_closing(), pair.transport.get_write_buffer_size()]
    pair.transport.abort()
    pair.transport.write(b"nobody hears this")
    return [facts, await pair.end()]


async def peer_resets(net: Net, side: str) -> Record:
    pair = await Pair.make(net, side)
    pair.peer.reset()
    return [await pair.end(), pair.transport.is_closing()]


async def peer_resets_a_writer(net: Net, side: str) -> Record:
    pair = await Pair.make(net, side)
    pair.transport.pause_reading()
    pair.transport.write(LARGE)
    await pair.protocol.paused.wait()
    pair.peer.reset()
    record = await pair.end()
    return [record[:-1], record[-1][0], record[-1][1][0] in ("ConnectionResetError", "BrokenPipeError")]


async def wrong_data(net: Net, side: str) -> Record:
    pair = await Pair.make(net, side)
    facts = []
    for data in ("text", 1, None, [b"x"]):
        try:
            pair.transport.write(data)
        except TypeError as failure:
            facts.append(said(failure))
    pair.transport.write(b"")
    pair.transport.write(bytearray())
    data = bytearray(b"mutable")
    pair.transport.write(data)
    data[:] = b"changed"
    pair.transport.write(memoryview(b"a view"))
    got = await pair.peer.reader.readexactly(13)
    pair.transport.close()
    return [facts, got, await pair.end()]


async def extra_info(net: Net, side: str) -> Record:
    pair = await Pair.make(net, side)
    info, peer = pair.transport.get_extra_info, pair.peer.writer.get_extra_info
    sock = info("socket")
    facts = [
        type(sock).__name__, sock.family, sock.type, sock.gettimeout(), sock.getsockname() == info("sockname"),
        sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0, info("nothing"), info("nothing", 7),
        info("sockname") == peer("peername"), info("peername") == peer("sockname"), info("sslcontext"), info("cipher"),
        pair.transport.get_protocol() is pair.protocol,
    ]  # fmt: skip
    pair.transport.close()
    record = await pair.end()
    return [facts, info("sockname") == peer("peername"), sock.fileno(), record]


async def change_protocol(net: Net, side: str) -> Record:
    pair = await Pair.make(net, side)
    other = Recorder()
    pair.transport.set_protocol(other)
    pair.peer.writer.write(b"for the new one")
    data = await other.receive(15)
    buffered = Buffered()
    pair.transport.set_protocol(buffered)
    pair.peer.writer.write(b"and for the third")
    pair.peer.writer.close()
    await buffered.lost
    pair.protocol.lost.set_result(None)
    return [data, other.record, buffered.record, await pair.end()]


VARIABLE: contextvars.ContextVar[str] = contextvars.ContextVar("VARIABLE", default="nobody's")


class SeesContext(Recorder):
    """Writes down whose context it is called in."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.record.append(VARIABLE.get())

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self.record.append(VARIABLE.get())

    def connection_lost(self, failure: Exception | None) -> None:
        self.record.append(VARIABLE.get())
        super().connection_lost(failure)


async def context_of_callbacks(net: Net, side: str) -> Record:
    records = []
    for name in ("first", "second"):
        VARIABLE.set(name)
        pair = await Pair.make(net, side, SeesContext)
        pair.peer.writer.write(b"x")
        await pair.protocol.receive(1)
        pair.peer.writer.close()
        records.append(await pair.end())
    return records


LIVES = (
    echo_and_close, peer_closes, peer_half_closes_and_we_keep_open, we_half_close, write_eof_waits_for_the_buffer,
    close_waits_for_the_buffer, flow_control, pause_reading, receive_much, pausing_loses_nothing, buffered_protocol,
    buffered_protocol_fails, protocol_raises, flow_control_raises, abort, peer_resets, peer_resets_a_writer, wrong_data,
    extra_info, change_protocol, context_of_callbacks,
)  # fmt: skip


# --- connecting, serving, TLS ----------------------------------------------------------------------------------------


async def attempt(awaitable: Awaitable[Any]) -> Any:
    """What it came to; a connection is closed again."""
    try:
        result = await awaitable
    except Exception as failure:
        return said(failure)
    if isinstance(result, tuple):
        result[0].close()
        await result[1].lost
        return result[1].record
    return result


def unused_port() -> int:
    with socket.create_server((HOST, 0)) as sock:
        return int(sock.getsockname()[1])


async def connecting(net: Net) -> Record:
    server, queue, port = await Peer.listen()
    closed = unused_port()
    facts = [
        await attempt(net.connect(Recorder, HOST, closed)),
        await attempt(net.connect(Recorder, "localhost", closed)),
        await attempt(net.connect(Recorder, "localhost", port, family=socket.AF_INET)),
        await attempt(net.connect(Recorder, "localhost", port, happy_eyeballs_delay=0.05)),
        await attempt(net.connect(Recorder, "localhost", closed, happy_eyeballs_delay=0.05)),
        await attempt(net.connect(Recorder, "localhost", port, interleave=1)),
        await attempt(net.connect(Recorder, HOST, port, local_addr=("127.0.0.1", 0))),
        await attempt(net.connect(Recorder, HOST, port, local_addr=("127.0.0.1", port))),
        await attempt(net.connect(Recorder, HOST, port, local_addr=("::1", 0))),
        await attempt(net.connect(Recorder, HOST, port, family=socket.AF_INET6)),
        await attempt(net.connect(Recorder, HOST, str(port))),
    ]
    server.close()
    while not queue.empty():
        await queue.get_nowait().close()
    return facts


async def wrong_arguments(net: Net) -> Record:
    kernel = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    facts = [
        await attempt(net.connect(Recorder)),
        await attempt(net.connect(Recorder, HOST, 1, server_hostname="x")),
        await attempt(net.connect(Recorder, HOST, 1, ssl_handshake_timeout=1)),
        await attempt(net.connect(Recorder, HOST, 1, ssl_shutdown_timeout=1)),
        await attempt(net.connect(Recorder, "", 1, ssl=True)),
        await attempt(net.serve(Recorder)),
        await attempt(net.serve(Recorder, HOST, 0, ssl=True)),
        await attempt(net.serve(Recorder, HOST, 0, ssl_handshake_timeout=1)),
        await attempt(net.serve(Recorder, HOST, 0, ssl_shutdown_timeout=1)),
        await attempt(net.serve(Recorder, HOST, 0, sock=kernel) if net.certificate is None else asyncio.sleep(0)),
    ]
    kernel.close()
    return facts


async def serving(net: Net) -> Record:
    facts: Record = []
    server = await net.serve(Recorder, HOST, 0, start_serving=False, backlog=5)
    port = server.sockets[0].getsockname()[1]
    facts += [server.is_serving(), len(server.sockets), type(server.sockets[0]).__name__]
    try:
        await Peer.connect(port)
    except OSError as failure:
        facts.append(said(failure)[0])
    await server.start_serving()
    facts += [server.is_serving(), server.get_loop() is asyncio.get_running_loop()]
    facts.append(await attempt(net.serve(Recorder, HOST, port)))
    forever = asyncio.ensure_future(server.serve_forever())
    await asyncio.sleep(0)
    facts.append(await attempt(server.serve_forever()))
    forever.cancel()
    facts.append((await asyncio.gather(forever, return_exceptions=True))[0].__class__.__name__)
    facts += [server.is_serving(), server.sockets, await attempt(server.serve_forever())]
    server.close()
    await server.wait_closed()
    async with await net.serve(Recorder, [HOST, "::1"], 0) as both:
        facts.append(sorted(sock.family for sock in both.sockets))
    facts.append(both.is_serving())
    async with await net.serve(Recorder, HOST, 0, reuse_address=False, reuse_port=True) as first:
        same = await net.serve(Recorder, HOST, first.sockets[0].getsockname()[1], reuse_port=True)
        same.close()
    forever = asyncio.ensure_future((closing := await net.serve(Recorder, HOST, 0)).serve_forever())
    await asyncio.sleep(0)
    closing.close()
    facts.append((await asyncio.gather(forever, return_exceptions=True))[0].__class__.__name__)
    return facts


async def closed_server_keeps_connections(net: Net) -> Record:
    pair = await Pair.make(net, "server")
    pair.servers[0].close()
    pair.peer.writer.write(b"still there")
    facts = [await pair.protocol.receive(11)]
    waiting = asyncio.ensure_future(pair.servers[0].wait_closed())
    await asyncio.sleep(0.02)
    facts.append(waiting.done())  # since Python 3.12 it waits for the connection
    pair.transport.close()
    record = await pair.end()
    await waiting
    return [facts, record]


async def many_at_once(net: Net) -> Record:
    server, queue, port = await Peer.listen(backlog=200)

    async def peer_echoes() -> None:
        async def one(peer: Peer) -> None:
            peer.writer.write(await peer.reader.readexactly(1000))
            await peer.close()

        async with asyncio.TaskGroup() as group:
            for _ in range(100):
                group.create_task(one(await queue.get()))

    async def talk(number: int) -> bool:
        transport, protocol = await net.connect(Recorder, HOST, port)
        transport.write(bytes([number]) * 1000)
        await protocol.lost
        return bool(protocol.data == bytes([number]) * 1000)

    echoing = asyncio.ensure_future(peer_echoes())
    results = await asyncio.gather(*(talk(number) for number in range(100)))
    await echoing
    server.close()
    return results


async def tls_client(net: Net) -> Record:
    context = net.server_context()
    server, queue, port = await Peer.listen(ssl=context)
    transport, protocol = await net.connect(
        Recorder, "localhost", port, family=socket.AF_INET, ssl=net.client_context()
    )
    peer = await queue.get()
    facts = [tls_facts(transport), transport.get_extra_info("peercert")["subject"]]
    transport.write(LARGE)
    facts.append(await peer.reader.readexactly(len(LARGE)) == LARGE)
    peer.writer.write(LARGE)
    facts.append(await protocol.receive(len(LARGE)) == LARGE)
    transport.close()
    await protocol.lost
    facts.append(protocol.record)
    await peer.close()
    server.close()
    for options in ({"ssl": True}, {"ssl": net.client_context(), "server_hostname": "else.where"}):
        with socket.create_server((HOST, 0)) as listener:
            refused = asyncio.ensure_future(asyncio.to_thread(fail_handshake, listener, context))
            facts.append(await attempt(net.connect(Recorder, HOST, listener.getsockname()[1], **options)))
            await refused
    return facts


def fail_handshake(listener: socket.socket, context: ssl.SSLContext) -> None:
    with listener.accept()[0] as sock, suppress(OSError):
        context.wrap_socket(sock, server_side=True).close()


def tls_facts(transport: Any) -> Record:
    info = transport.get_extra_info
    facts: Record = [
        type(info(name)).__name__ for name in ("sslcontext", "ssl_object", "cipher", "compression", "socket")
    ]
    facts += [transport.can_write_eof(), transport.is_closing(), info("peername") is not None]
    try:
        transport.write_eof()
    except NotImplementedError as failure:
        facts.append(said(failure))
    return facts


async def tls_server(net: Net) -> Record:
    made: list[Recorder] = []

    def factory() -> Recorder:
        made.append(Recorder())
        return made[-1]

    server = await net.serve(factory, HOST, 0, ssl=net.server_context())
    port = server.sockets[0].getsockname()[1]
    options = {"ssl": net.client_context(), "server_hostname": "localhost"}
    peer = await Peer.connect(port, **options)
    peer.writer.write(LARGE)
    facts = [await made[0].receive(len(LARGE)) == LARGE, tls_facts(made[0].transport)]
    made[0].transport.write(LARGE)
    facts.append(await peer.reader.readexactly(len(LARGE)) == LARGE)
    await peer.close()
    await made[0].lost
    facts.append(made[0].record)
    plain = await Peer.connect(port)
    plain.writer.write(b"not a handshake\r\n\r\n")
    with suppress(OSError):
        await plain.reader.read()  # until it hangs up
    await plain.close()
    await asyncio.sleep(0.01)
    server.close()
    await server.wait_closed()
    return [*facts, made[-1].record]


async def tls_handshake_takes_too_long(net: Net) -> Record:
    server, queue, port = await Peer.listen()
    facts = await attempt(net.connect(Recorder, HOST, port, ssl=net.client_context(), ssl_handshake_timeout=0.1))
    while not queue.empty():
        await queue.get_nowait().close()
    server.close()
    return facts


async def upgrade_to_tls(net: Net) -> Record:
    """STARTTLS: both ways, first as client, then as server."""
    pair = await Pair.make(net, "client")
    upgrade = asyncio.ensure_future(pair.peer.writer.start_tls(net.server_context()))
    tls = await net.start_tls(pair.transport, pair.protocol, net.client_context(), server_hostname="localhost")
    await upgrade
    facts = [tls_facts(tls)]
    tls.write(b"secret")
    facts.append(await pair.peer.reader.readexactly(6))
    tls.close()
    facts.append(await pair.end())
    pair = await Pair.make(net, "server")
    wrapping = asyncio.ensure_future(
        net.start_tls(pair.transport, pair.protocol, net.server_context(), server_side=True)
    )
    await pair.peer.writer.start_tls(net.client_context(), server_hostname="localhost")
    (tls := await wrapping).write(b"secret too")
    facts.append(await pair.peer.reader.readexactly(10))
    tls.close()
    facts.append(await pair.end())
    pair = await Pair.make(net, "client")
    facts.append(await attempt(net.start_tls(pair.transport, pair.protocol, None)))
    pair.transport.close()
    return [*facts, await pair.end()]


async def streams(net: Net) -> Record:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(line.upper())
            await writer.drain()
            if line == b"starttls\n":
                await writer.start_tls(net.server_context())
        writer.close()

    server = await net.calls.start_server(serve, HOST, 0)
    port = server.sockets[0].getsockname()[1]
    reader, writer = await net.calls.open_connection(HOST, port, limit=100)
    facts: Record = []
    for line in (b"one\n", b"two\n", b"starttls\n"):
        writer.write(line)
        await writer.drain()
        facts.append(await reader.readline())
    await writer.start_tls(net.client_context(), server_hostname="localhost")
    writer.write(b"three\n" + b"x" * 200 + b"\n")
    facts += [await reader.readline(), type(writer.get_extra_info("ssl_object")).__name__]
    facts.append(await attempt(reader.readline()))
    writer.close()
    await writer.wait_closed()
    server.close()
    await server.wait_closed()
    return facts


OTHERS = (
    connecting, wrong_arguments, serving, closed_server_keeps_connections, many_at_once, tls_client, tls_server,
    tls_handshake_takes_too_long, upgrade_to_tls, streams,
)  # fmt: skip
