"""A server that sleeps in one of several ways, and makes no call until it is asked.

sleeping_ways.py WAY ADDRESS STREAM UDP, two ports. It answers each client with a line, and prints "ready" first.
"""

from __future__ import annotations

import asyncio
import selectors
import socket
import sys
import threading
from collections.abc import Callable
from typing import Any

WAYS: dict[str, Callable[[str, int, int], None]] = {}
#: These run without the interposer.
LIBRARY = {"aio", "libxts_accept", "libxts_epoll", "kernel_selector", "installed"}


def way(function: Callable[[str, int, int], None]) -> Callable[[str, int, int], None]:
    WAYS[function.__name__] = function
    return function


def ready() -> None:
    print("ready", flush=True)


class Echo(asyncio.DatagramProtocol):
    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, peer: Any) -> None:
        self.transport.sendto(data, peer)


async def serve_asyncio(address: str, stream: int, udp: int, start_server: Any, *, endpoints: bool = True) -> None:
    async def answer(_: Any, writer: Any) -> None:
        writer.write(b"served\n")
        writer.close()

    server = await start_server(answer, address, stream)
    if endpoints:
        await asyncio.get_running_loop().create_datagram_endpoint(Echo, local_addr=(address, udp))
    ready()
    async with server:
        await server.serve_forever()


@way
def standard_asyncio(address: str, stream: int, udp: int) -> None:
    asyncio.run(serve_asyncio(address, stream, udp, asyncio.start_server))


@way
def installed(address: str, stream: int, udp: int) -> None:
    import xts_socket

    xts_socket.install()
    standard_asyncio(address, stream, udp)


@way
def aio(address: str, stream: int, udp: int) -> None:
    """On the library's own event loop, which sleeps on the descriptor of a polling context."""
    from xts_socket import aio

    with asyncio.Runner(loop_factory=aio.EventLoop) as runner:
        runner.run(serve_asyncio(address, stream, udp, asyncio.start_server))


def serve(streams: Any, datagrams: Any, wait: Callable[[], Any]) -> None:
    streams.setblocking(False)
    datagrams.setblocking(False)
    ready()
    while True:
        wait()
        try:
            connection, _ = streams.accept()
            with connection:
                connection.sendall(b"served\n")
        except BlockingIOError:
            pass
        try:
            data, peer = datagrams.recvfrom(2048)
            datagrams.sendto(data, peer)
        except BlockingIOError:
            pass


def pair(module: Any, address: str, stream: int, udp: int) -> tuple[Any, Any]:
    datagrams = module.socket(socket.AF_INET, socket.SOCK_DGRAM)
    datagrams.bind((address, udp))
    return module.create_server((address, stream)), datagrams


@way
def kernel_selector(address: str, stream: int, udp: int) -> None:
    """The kernel's epoll, and the descriptors that mirror the sockets."""
    import xts_socket

    streams, datagrams = pair(xts_socket, address, stream, udp)
    with selectors.DefaultSelector() as selector:
        selector.register(streams, selectors.EVENT_READ)
        selector.register(datagrams, selectors.EVENT_READ)
        serve(streams, datagrams, selector.select)


@way
def libxts_epoll(address: str, stream: int, udp: int) -> None:
    import xts_socket

    streams, datagrams = pair(xts_socket, address, stream, udp)
    with xts_socket.epoll() as polled:
        polled.register(streams, selectors.EVENT_READ)
        polled.register(datagrams, selectors.EVENT_READ)
        serve(streams, datagrams, polled.poll)


def serve_threads(streams: Any, datagrams: Any) -> None:
    """Each waits in its own call."""

    def answer() -> None:
        while True:
            connection, _ = streams.accept()
            with connection:
                connection.sendall(b"served\n")

    def echo() -> None:
        while True:
            data, peer = datagrams.recvfrom(2048)
            datagrams.sendto(data, peer)

    threads = [threading.Thread(target=target, daemon=True) for target in (answer, echo)]
    for thread in threads:
        thread.start()
    ready()
    for thread in threads:
        thread.join()


@way
def libxts_accept(address: str, stream: int, udp: int) -> None:
    import xts_socket

    serve_threads(*pair(xts_socket, address, stream, udp))


@way
def standard_accept(address: str, stream: int, udp: int) -> None:
    serve_threads(*pair(socket, address, stream, udp))


@way
def standard_select(address: str, stream: int, udp: int) -> None:
    import select

    streams, datagrams = pair(socket, address, stream, udp)
    serve(streams, datagrams, lambda: select.select([streams, datagrams], [], []))


def main() -> None:
    WAYS[sys.argv[1]](sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))


if __name__ == "__main__":
    main()
