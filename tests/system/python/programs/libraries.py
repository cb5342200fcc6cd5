"""libraries.py NAME PORT TLS: one request by a library over offloaded sockets, as PYTHON.md's tables say it is done; or
a server, which runs until it is ended. TLS is 0, or 1: the proxy does it. A client prints the body of the page."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any

import xts_socket
from xts_socket import Tls, ssl_context

NAME, PORT, TLS = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "1"
HOST = "127.0.0.1"
URL = f"{'https' if TLS else 'http'}://{HOST}:{PORT}/5"
IDENTITY = Tls(identity="localhost") if TLS else None
REQUEST = f"GET /5 HTTP/1.0\r\nHost: {HOST}\r\n\r\n".encode()
PAGE = b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello"
Answer = bytes


def body(answer: bytes) -> bytes:
    return answer.partition(b"\r\n\r\n")[2]


# --- clients: each returns the body ----------------------------------------------------------------------------------


def plain_socket() -> Answer:
    with xts_socket.create_connection((HOST, PORT), tls=TLS) as s:
        s.sendall(REQUEST)
        return body(s.makefile("rb").read())


async def _read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Answer:
    writer.write(REQUEST)
    answer = await reader.read()
    writer.close()
    return body(answer)


def asyncio_open_connection() -> Answer:
    async def main() -> Answer:
        return await _read(*await xts_socket.aio.open_connection(HOST, PORT, tls=TLS))

    return asyncio.run(main())


def asyncio_ssl_argument() -> Answer:
    async def main() -> Answer:
        return await _read(*await xts_socket.aio.open_connection(HOST, PORT, ssl=Tls() if TLS else None))

    return asyncio.run(main())


def asyncio_own_loop() -> Answer:
    async def main() -> Answer:
        return await _read(*await asyncio.open_connection(HOST, PORT, ssl=ssl_context(Tls()) if TLS else None))

    with asyncio.Runner(loop_factory=xts_socket.aio.EventLoop) as runner:
        return runner.run(main())


def standard_asyncio(loop_factory: Any = None) -> Answer:
    """Its functions, its loop: with a context of ours the connection is offloaded."""

    async def main() -> Answer:
        return await _read(*await asyncio.open_connection(HOST, PORT, ssl=ssl_context(Tls()) if TLS else None))

    xts_socket.install()
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        return runner.run(main())


def uvloop_client() -> Answer:
    import uvloop

    return standard_asyncio(uvloop.new_event_loop)


def trio_client() -> Answer:
    import trio
    import xts_socket.trio

    async def main() -> Answer:
        async with await xts_socket.trio.open_tcp_stream(HOST, PORT, tls=TLS) as stream:
            await stream.send_all(REQUEST)
            return body(b"".join([bytes(data) async for data in stream]))

    return trio.run(main)


def anyio_client() -> Answer:
    import anyio
    import xts_socket.anyio

    async def main() -> Answer:
        tls = Tls() if TLS else False
        async with await xts_socket.anyio.connect_tcp(HOST, PORT, tls=tls) as stream:
            await stream.send(REQUEST)
            return body(b"".join([data async for data in stream]))

    return anyio.run(main)


def httpx_client() -> Answer:
    import httpx
    from xts_socket.adapters.httpx import XtsTransport

    with httpx.Client(transport=XtsTransport(tls=TLS)) as client:
        return client.get(URL).content


def httpx_async_client() -> Answer:
    import httpx
    from xts_socket.adapters.httpx_async import AsyncXtsTransport

    async def main() -> Answer:
        async with httpx.AsyncClient(transport=AsyncXtsTransport(tls=TLS)) as client:
            return (await client.get(URL)).content

    return asyncio.run(main())


def requests_session() -> Answer:
    from xts_socket.adapters.requests import session

    return session(tls=TLS).get(URL).content


def requests_adapter() -> Answer:
    import requests
    from xts_socket.adapters.requests import XtsAdapter

    with requests.Session() as made:
        made.mount(URL, XtsAdapter(tls=TLS))
        return made.get(URL).content


def urllib3_client() -> Answer:
    from xts_socket.adapters.requests import XtsPoolManager

    return XtsPoolManager(tls=TLS).request("GET", URL).data


def aiohttp_client(loop_factory: Any = xts_socket.aio.EventLoop) -> Answer:
    import aiohttp
    from xts_socket.adapters.aiohttp import XtsConnector

    async def main() -> Answer:
        async with aiohttp.ClientSession(connector=XtsConnector(tls=TLS)) as made, made.get(URL) as answer:
            return await answer.read()

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        return runner.run(main())


def aiohttp_on_another_loop() -> Answer:
    return aiohttp_client(asyncio.new_event_loop)


def http_client() -> Answer:
    import http.client

    xts_socket.install()
    context = ssl_context(Tls(server_hostname=HOST))
    made = http.client.HTTPSConnection(HOST, PORT, context=context) if TLS else http.client.HTTPConnection(HOST, PORT)
    made.request("GET", "/5")
    return made.getresponse().read()


def urllib_client() -> Answer:
    import urllib.request

    xts_socket.install()
    with urllib.request.urlopen(URL, context=ssl_context(Tls(server_hostname=HOST)) if TLS else None) as answer:
        return bytes(answer.read())


# --- servers: each runs until it is ended -----------------------------------------------------------------------------


async def asgi(scope: Any, _: Any, send: Any) -> None:
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"5")]})
        await send({"type": "http.response.body", "body": b"hello"})


def socket_server() -> None:
    with xts_socket.create_server((HOST, PORT), tls=IDENTITY) as listener:
        while True:
            with listener.accept()[0] as connection:
                connection.recv(4096)
                connection.sendall(PAGE)


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(PAGE)
    await writer.drain()
    writer.close()


def asyncio_start_server() -> None:
    async def main() -> None:
        await (await xts_socket.aio.start_server(_serve, HOST, PORT, tls=IDENTITY)).serve_forever()

    asyncio.run(main())


def standard_asyncio_server() -> None:
    async def main() -> None:
        context = ssl_context(IDENTITY) if IDENTITY else None
        await (await asyncio.start_server(_serve, HOST, PORT, ssl=context)).serve_forever()

    xts_socket.install()
    asyncio.run(main())


def trio_server() -> None:
    import trio
    import xts_socket.trio

    async def serve(stream: Any) -> None:
        await stream.receive_some(4096)
        await stream.send_all(PAGE)

    async def main() -> None:
        await xts_socket.trio.serve_tcp(serve, PORT, host=HOST, tls=IDENTITY)

    trio.run(main)


def anyio_server() -> None:
    import anyio
    import xts_socket.anyio

    async def serve(stream: Any) -> None:
        async with stream:
            await stream.receive()
            await stream.send(PAGE)

    async def main() -> None:
        listener = await xts_socket.anyio.create_tcp_listener(local_host=HOST, local_port=PORT, tls=IDENTITY)
        await listener.serve(serve)

    anyio.run(main)


def hypercorn_server() -> None:
    from hypercorn.asyncio import serve
    from xts_socket.adapters.hypercorn import XtsConfig

    config = XtsConfig()
    config.bind = [f"{HOST}:{PORT}"]
    config.tls = IDENTITY
    with asyncio.Runner(loop_factory=xts_socket.aio.EventLoop) as runner:
        runner.run(serve(asgi, config))  # type: ignore[arg-type]


def _uvicorn(**options: Any) -> None:
    import uvicorn

    if IDENTITY:
        options["ssl_context_factory"] = lambda *_: ssl_context(IDENTITY)
    uvicorn.Server(uvicorn.Config(asgi, HOST, PORT, lifespan="off", **options)).run()


def uvicorn_server() -> None:
    _uvicorn(loop="xts_socket.aio:EventLoop")


def uvicorn_default_loop() -> None:
    xts_socket.install()
    _uvicorn(loop="asyncio")


def uvicorn_uvloop() -> None:
    _uvicorn(loop="uvloop")


def uvicorn_with_a_socket() -> None:
    """As with several workers: the socket is made before."""
    import socket

    import uvicorn

    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind((HOST, PORT))
    options: dict[str, Any] = {"ssl_context_factory": lambda *_: ssl_context(IDENTITY)} if IDENTITY else {}
    uvicorn.Server(uvicorn.Config(asgi, lifespan="off", loop="asyncio", **options)).run(sockets=[sock])


def aiohttp_server() -> None:
    from aiohttp import web

    async def page(_: Any) -> web.Response:
        return web.Response(text="hello")

    app = web.Application()
    app.router.add_get("/5", page)
    xts_socket.install()
    web.run_app(app, host=HOST, port=PORT, ssl_context=ssl_context(IDENTITY) if IDENTITY else None)


def unix_server() -> None:
    async def main() -> None:
        await asyncio.start_unix_server(_serve, f"/tmp/libraries-{PORT}", ssl=ssl_context(Tls(identity="localhost")))

    asyncio.run(main())


def http_server() -> None:
    """A context over a socket of the kernel, or under the interposer over one that listens already."""
    from http.server import BaseHTTPRequestHandler, HTTPServer

    with HTTPServer((HOST, PORT), BaseHTTPRequestHandler) as server:
        server.socket = ssl_context(Tls(identity="localhost")).wrap_socket(server.socket, server_side=True)


def a_loop_of_another_kind() -> None:
    """TLS in memory, which the context does not have: the exception is lost in such a loop."""
    import ssl

    try:
        ssl_context(Tls(identity="localhost")).wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_side=True)
    except ValueError:
        return


if __name__ == "__main__":
    function: Callable[[], Any] = globals()[NAME]
    result = function()
    if result is not None:
        sys.stdout.write(result.decode("latin-1"))
