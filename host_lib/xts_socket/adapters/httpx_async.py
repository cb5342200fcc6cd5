"""A transport for httpx under asyncio: `httpx.AsyncClient(transport=AsyncXtsTransport())`."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Iterable
from functools import cache
from typing import Any

import httpcore
import httpx

from ..layers import Tls
from .httpcore_async import AsyncXtsBackend
from .httpx import core_request, library_of, mapped, pool_options


@cache
def _stream_of(library: Any) -> Any:
    """The class of a response's stream for a library, which looks at what it is derived from."""

    class Stream(library.AsyncByteStream):  # type: ignore[misc]
        def __init__(self, stream: Any) -> None:
            self._stream = stream

        async def __aiter__(self) -> AsyncIterator[bytes]:
            with mapped(library):
                async for part in self._stream:
                    yield part

        async def aclose(self) -> None:
            if hasattr(self._stream, "aclose"):
                await self._stream.aclose()

    return Stream


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
        library = library_of(request)
        with mapped(library):
            answer = await self._pool.handle_async_request(core_request(request))
        stream = _stream_of(library)(answer.stream)
        response: httpx.Response = library.Response(
            answer.status, headers=answer.headers, stream=stream, extensions=answer.extensions
        )
        return response

    async def aclose(self) -> None:
        await self._pool.aclose()
