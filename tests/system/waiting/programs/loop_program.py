"""An asyncio program that knows nothing of XTS: `python loop_program.py EpollSelector` (or another, or uvloop).

Echoes on both sides of twenty connections, with timers, a thread and, on uvloop (which forks as C programs do), a
process.
"""

from __future__ import annotations

import asyncio
import selectors
import sys
from asyncio import StreamReader, StreamWriter
from collections.abc import Callable

CONNECTIONS, ROUNDS = 20, 50


async def echo(reader: StreamReader, writer: StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()


async def talk(port: int, i: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for n in range(ROUNDS):
        data = bytes([i]) * (n * 977 % 40_000 + 1)
        writer.write(data)
        await writer.drain()
        assert await reader.readexactly(len(data)) == data
    writer.write_eof()
    assert await reader.read() == b""
    writer.close()
    await writer.wait_closed()


async def main(with_process: bool) -> None:
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    loop = asyncio.get_running_loop()
    in_thread = loop.run_in_executor(None, lambda: 5)
    await asyncio.gather(*(talk(port, i) for i in range(CONNECTIONS)), asyncio.sleep(0.01))
    assert await in_thread == 5
    if with_process:
        process = await asyncio.create_subprocess_exec("/bin/echo", "hello", stdout=asyncio.subprocess.PIPE)
        assert (await process.communicate())[0] == b"hello\n"
    await talk(port, 99)
    server.close()
    await server.wait_closed()
    print("done")


def loop_factory(kind: str) -> Callable[[], asyncio.AbstractEventLoop]:
    if kind == "uvloop":
        import uvloop

        return uvloop.new_event_loop
    return lambda: asyncio.SelectorEventLoop(getattr(selectors, kind)())


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=loop_factory(sys.argv[1])) as runner:
        runner.run(main(sys.argv[1] == "uvloop"))
