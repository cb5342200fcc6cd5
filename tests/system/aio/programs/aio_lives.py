"""What asyncio programs do in a connection's life, as client and as server. As scripts that record what happened: run
on asyncio's own transports and on ours, the records have to be the same."""

from __future__ import annotations

import asyncio
import contextvars
import socket
from typing import Any

from beds.aio import LARGE, Net, Pair, Record, Recorder, said


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
