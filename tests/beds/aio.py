"""What the scripts of asyncio programs have in common (aio_lives.py, aio_serving.py). They record what happened. `Net`
is the side under test, on asyncio's own transports or on ours; the peer is always asyncio on the kernel."""

from __future__ import annotations

import asyncio
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
