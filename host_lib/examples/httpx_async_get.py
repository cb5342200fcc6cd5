"""Fetches URLs at once with httpx over offloaded sockets: python httpx_async_get.py https://example.org/ [...]"""

import asyncio
import sys

import httpx
import xts_socket
from xts_socket.adapters.httpx_async import AsyncXtsTransport


async def main() -> None:
    async with httpx.AsyncClient(transport=AsyncXtsTransport()) as client:
        for answer in await asyncio.gather(*(client.get(url) for url in sys.argv[1:])):
            print(answer.status_code, len(answer.content), "bytes over", xts_socket.info().queue_kind)


if len(sys.argv) < 2:
    sys.exit("usage: python httpx_async_get.py URL [...]")
asyncio.run(main())
