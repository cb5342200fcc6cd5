"""A network back end for httpcore under asyncio: `httpcore.AsyncConnectionPool(network_backend=AsyncXtsBackend())`.

adapters/httpx_async.py builds on it.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import httpcore

from .. import aio
from .httpcore import mapped


class AsyncXtsStream(httpcore.AsyncNetworkStream):
    """A connection. Reads and writes wait for at most their timeout, in seconds; None: forever."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        with mapped(httpcore.ReadTimeout, httpcore.ReadError):
            async with asyncio.timeout(timeout):
                return await self._reader.read(max_bytes)

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        with mapped(httpcore.WriteTimeout, httpcore.WriteError):
            async with asyncio.timeout(timeout):
                self._writer.write(buffer)
                await self._writer.drain()

    async def aclose(self) -> None:
        self._writer.close()
        with suppress(OSError):  # it is closed, with or without an error
            await self._writer.wait_closed()

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.AsyncNetworkStream:
        """TLS over the existing stream, which may be TLS itself (through an HTTPS proxy)."""
        try:
            with mapped(httpcore.ConnectTimeout, httpcore.ConnectError):
                async with asyncio.timeout(timeout):
                    await self._writer.start_tls(ssl_context, server_hostname=server_hostname)
        except BaseException:
            self._writer.close()  # after a failed handshake, asyncio's wait_closed() would wait forever
            raise
        return self

    def get_extra_info(self, info: str) -> Any:
        names = {"client_addr": "sockname", "server_addr": "peername", "ssl_object": "ssl_object", "socket": "socket"}
        if info in names:
            return self._writer.get_extra_info(names[info])
        if info == "is_readable":  # asked for an idle connection: has its server closed it?
            return self._reader.at_eof() or self._writer.is_closing()
        return None


class AsyncXtsBackend(httpcore.AsyncNetworkBackend):
    """Connections through the offload proxy, for programs under asyncio, on any of its loops. httpcore.ConnectError if
    there is none; Unix sockets are refused."""

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        local = None if local_address is None else (local_address, 0)
        with mapped(httpcore.ConnectTimeout, httpcore.ConnectError):
            async with asyncio.timeout(timeout):
                reader, writer = await aio.open_connection(host, port, local_addr=local)
            try:
                for option in socket_options or ():
                    writer.get_extra_info("socket").setsockopt(*option)
            except BaseException:
                writer.close()
                raise
        return AsyncXtsStream(reader, writer)

    async def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: Iterable[Any] | None = None
    ) -> httpcore.AsyncNetworkStream:
        raise httpcore.ConnectError(f"{path}: a Unix socket cannot be offloaded")

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
