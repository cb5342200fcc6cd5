"""An echo server whose TCP runs on the device, with trio: python trio_echo.py [PORT]"""

from __future__ import annotations

import sys

import trio
import xts_socket.trio


async def echo(stream: xts_socket.trio.SocketStream) -> None:
    async for data in stream:
        await stream.send_all(data)


async def main(port: int) -> None:
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(xts_socket.trio.serve_tcp, echo, port)
        print("listening on port", listeners[0].socket.getsockname()[1], flush=True)


if __name__ == "__main__":
    trio.run(main, int(sys.argv[1]) if len(sys.argv) > 1 else 0)
