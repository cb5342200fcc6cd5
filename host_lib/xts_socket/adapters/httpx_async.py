"""A transport for httpx under asyncio: `httpx.AsyncClient(transport=AsyncXtsTransport())`."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import httpcore
import httpx

from .httpcore_async import AsyncXtsBackend


@contextmanager
def _mapped() -> Iterator[None]:
    """httpcore's exceptions as httpx's, which have the same names."""
    try:
        yield
    except Exception as failure:
        names = (kind.__name__ for kind in type(failure).__mro__ if kind.__module__.startswith("httpcore"))
        kind = next((found for name in names if (found := getattr(httpx, name, None))), None)
        if kind is None:
            raise
        raise kind(str(failure)) from failure


class _Stream(httpx.AsyncByteStream):
    def __init__(self, stream: Any) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with _mapped():
            async for part in self._stream:
                yield part

    async def aclose(self) -> None:
        if hasattr(self._stream, "aclose"):
            await self._stream.aclose()


class AsyncXtsTransport(httpx.AsyncBaseTransport):
    """HTTP/1.1, and HTTP/2 if asked for and `h2` is installed, with connections kept alive; all are offloaded.

    verify: True, False, or a context of one's own. The limits are httpx's. Raises httpx's exceptions.
    """

    def __init__(
        self,
        verify: bool | ssl.SSLContext = True,
        *,
        http2: bool = False,
        limits: httpx.Limits | None = None,
        retries: int = 0,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> None:
        limits = limits or httpx.Limits(max_connections=100, max_keepalive_connections=20)
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=verify if isinstance(verify, ssl.SSLContext) else httpx.create_ssl_context(verify=verify),
            max_connections=limits.max_connections,
            max_keepalive_connections=limits.max_keepalive_connections,
            keepalive_expiry=limits.keepalive_expiry,
            http2=http2,
            retries=retries,
            local_address=local_address,
            socket_options=socket_options,
            network_backend=AsyncXtsBackend(),
        )

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        url = request.url
        asked = httpcore.Request(
            request.method,
            httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
            headers=request.headers.raw,
            content=request.stream,
            extensions=request.extensions,
        )
        with _mapped():
            answer = await self._pool.handle_async_request(asked)
        return httpx.Response(
            answer.status, headers=answer.headers, stream=_Stream(answer.stream), extensions=answer.extensions
        )

    async def aclose(self) -> None:
        await self._pool.aclose()
