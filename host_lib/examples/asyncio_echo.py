"""An echo server on asyncio's streams, over offloaded sockets: python asyncio_echo.py [port]"""

import asyncio
import sys

from xts_socket import aio


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()


async def main() -> None:
    async with await aio.start_server(echo, "0.0.0.0", int((sys.argv[1:] or ["0"])[0])) as server:
        print("port", server.sockets[0].getsockname()[1], flush=True)
        await server.serve_forever()


asyncio.run(main())
