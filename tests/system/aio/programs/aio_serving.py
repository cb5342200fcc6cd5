"""What asyncio programs do to connect, to serve, and with TLS. As scripts that record what happened: run on asyncio's
own transports and on ours, the records have to be the same."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable
from contextlib import suppress
from typing import Any

from beds.aio import HOST, LARGE, Net, Pair, Peer, Record, Recorder, said
from xts_lab.free_ports import free_port


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


async def connecting(net: Net) -> Record:
    server, queue, port = await Peer.listen()
    closed = free_port()
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
