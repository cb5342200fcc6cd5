"""A transport for httpx under asyncio: `httpx.AsyncClient(transport=AsyncXtsTransport())`."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Iterable
from typing import Any

import httpcore
import httpx

from ..layers import Tls
from .httpcore_async import AsyncXtsBackend
from .httpx import core_request, mapped, pool_options


class _Stream(httpx.AsyncByteStream):
    def __init__(self, stream: Any) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with mapped():
            async for part in self._stream:
                yield part

    async def aclose(self) -> None:
        if hasattr(self._stream, "aclose"):
            await self._stream.aclose()


class AsyncXtsTransport(httpx.AsyncBaseTransport):
    """HTTP/1.1, and HTTP/2 if requested and `h2` is installed, with connections kept alive; all are offloaded.

    verify: True, False, or a context. tls: instead, the proxy does TLS, with these parameters (True: the server's
    certificate is checked). The limits are httpx's. Raises httpx's exceptions.
    """

    def __init__(
        self,
        verify: bool | ssl.SSLContext = True,
        *,
        tls: Tls | bool = False,
        http2: bool = False,
        limits: httpx.Limits | None = None,
        retries: int = 0,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> None:
        self._pool = httpcore.AsyncConnectionPool(
            **pool_options(
                verify,
                tls,
                limits,
                http2=http2,
                retries=retries,
                local_address=local_address,
                socket_options=socket_options,
                network_backend=AsyncXtsBackend(),
            )
        )

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        with mapped():
            answer = await self._pool.handle_async_request(core_request(request))
        return httpx.Response(
            answer.status, headers=answer.headers, stream=_Stream(answer.stream), extensions=answer.extensions
        )

    async def aclose(self) -> None:
        await self._pool.aclose()
