"""Fetches a page over a connection whose TCP runs on the device, with anyio on either back end:
python anyio_fetch.py HOST PORT [asyncio|trio]"""

from __future__ import annotations

import sys

import anyio
import xts_socket.anyio


async def main(host: str, port: int) -> None:
    async with await xts_socket.anyio.connect_tcp(host, port) as stream:
        await stream.send(f"GET / HTTP/1.0\r\nHost: {host}\r\n\r\n".encode())
        async for data in stream:
            sys.stdout.buffer.write(data)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit("usage: python anyio_fetch.py HOST PORT [asyncio|trio]")
    anyio.run(main, sys.argv[1], int(sys.argv[2]), backend=(sys.argv[3:] or ["asyncio"])[0])
