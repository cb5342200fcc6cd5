"""Fetches URLs at once with aiohttp over offloaded sockets: python aiohttp_get.py https://example.org/ [...]"""

import asyncio
import sys

import aiohttp
import xts_socket
from xts_socket import aio
from xts_socket.adapters.aiohttp import XtsConnector


async def fetch(session: aiohttp.ClientSession, url: str) -> str:
    async with session.get(url) as answer:
        return f"{answer.status} {len(await answer.read())} bytes over {xts_socket.info().queue_kind}"


async def main() -> None:
    async with aiohttp.ClientSession(connector=XtsConnector()) as session:
        print(*await asyncio.gather(*(fetch(session, url) for url in sys.argv[1:])), sep="\n")


if len(sys.argv) < 2:
    sys.exit("usage: python aiohttp_get.py URL [...]")
with asyncio.Runner(loop_factory=aio.EventLoop) as runner:
    runner.run(main())
