"""`open_connection` and `start_server`: asyncio's streams over our transports."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from ._connect import create_connection
from ._loop import offloading
from ._server import Server, create_server

_LIMIT_BYTES = 64 * 1024

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None] | None]


async def open_connection(
    host: str | None = None, port: int | str | None = None, *, limit: int = _LIMIT_BYTES, **options: Any
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """asyncio.open_connection(); the options are those of `create_connection`."""
    loop = asyncio.get_running_loop()
    view = offloading(loop)  # StreamWriter.start_tls() asks its loop for it
    reader = asyncio.StreamReader(limit=limit, loop=view)
    protocol = asyncio.StreamReaderProtocol(reader, loop=view)
    transport, _ = await create_connection(lambda: protocol, host, port, loop=loop, **options)
    return reader, asyncio.StreamWriter(transport, protocol, reader, view)


async def start_server(
    client_connected_cb: Serve,
    host: Any = None,
    port: int | str | None = None,
    *,
    limit: int = _LIMIT_BYTES,
    **options: Any,
) -> Server:
    """asyncio.start_server(); the options are those of `create_server`."""
    loop = asyncio.get_running_loop()
    view = offloading(loop)

    def factory() -> asyncio.StreamReaderProtocol:
        reader = asyncio.StreamReader(limit=limit, loop=view)
        return asyncio.StreamReaderProtocol(reader, client_connected_cb, loop=view)

    return await create_server(factory, host, port, loop=loop, **options)
