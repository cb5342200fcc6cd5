"""A transport for httpx: `httpx.Client(transport=XtsTransport())`.

httpx2, its successor, has the same interface with classes of its own: a response is made of those of the library that
has made the request.
"""

from __future__ import annotations

import ssl
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import httpcore
import httpx

from .._tls_context import ssl_context
from ..layers import Tls
from .httpcore import XtsBackend


def library_of(request: Any) -> Any:
    """The module of a request, httpx or httpx2. TypeError: it is another library's."""
    library = sys.modules.get(type(request).__module__.partition(".")[0])
    if not all(hasattr(library, name) for name in ("Response", "SyncByteStream", "AsyncByteStream", "TransportError")):
        raise TypeError(f"this transport is for httpx and httpx2: {request!r} is a request of neither")
    return library


@contextmanager
def mapped(library: Any = httpx) -> Iterator[None]:
    """Converts httpcore's exceptions to the library's, which have the same names."""
    try:
        yield
    except Exception as failure:
        kind = next(
            (getattr(library, k.__name__, None) for k in type(failure).__mro__ if k.__module__ == "httpcore"), None
        )
        if kind is None:
            raise
        raise kind(str(failure)) from failure


def pool_options(
    verify: bool | ssl.SSLContext, tls: Tls | bool, limits: httpx.Limits | None, **others: Any
) -> dict[str, Any]:
    """Converts a transport's arguments to those of httpcore's pool."""
    limits = limits or httpx.Limits(max_connections=100, max_keepalive_connections=20)
    context: ssl.SSLContext
    if tls:
        if verify is not True:
            raise ValueError("verify is for TLS in this process: with tls use Tls(ca=…, verify=…)")
        context = ssl_context(tls)
    else:
        context = verify if isinstance(verify, ssl.SSLContext) else httpx.create_ssl_context(verify=verify)
    return {
        "ssl_context": context,
        "max_connections": limits.max_connections,
        "max_keepalive_connections": limits.max_keepalive_connections,
        "keepalive_expiry": limits.keepalive_expiry,
        **others,
    }


def core_request(request: httpx.Request) -> httpcore.Request:
    """Converts httpx's request to httpcore's."""
    url = request.url
    return httpcore.Request(
        request.method,
        httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
        headers=request.headers.raw,
        content=request.stream,
        extensions=request.extensions,
    )


@cache
def _stream_of(library: Any) -> Any:
    """The class of a response's stream for a library, which looks at what it is derived from."""

    class Stream(library.SyncByteStream):  # type: ignore[misc]
        def __init__(self, stream: Any) -> None:
            self._stream = stream

        def __iter__(self) -> Iterator[bytes]:
            with mapped(library):
                yield from self._stream

        def close(self) -> None:
            if hasattr(self._stream, "close"):
                self._stream.close()

    return Stream


class XtsTransport(httpx.BaseTransport):
    """HTTP/1.1, and HTTP/2 if requested and `h2` is installed, with connections kept alive; all are offloaded.

    verify: True, False, or a context. tls: instead, the proxy does TLS, with these parameters (True: the server's
    certificate is checked). The limits are httpx's. Blocks; raises httpx's exceptions.
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
        self._pool = httpcore.ConnectionPool(
            **pool_options(
                verify,
                tls,
                limits,
                http2=http2,
                retries=retries,
                local_address=local_address,
                socket_options=socket_options,
                network_backend=XtsBackend(),
            )
        )

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        library = library_of(request)
        with mapped(library):
            answer = self._pool.handle_request(core_request(request))
        stream = _stream_of(library)(answer.stream)
        response: httpx.Response = library.Response(
            answer.status, headers=answer.headers, stream=stream, extensions=answer.extensions
        )
        return response

    def close(self) -> None:
        self._pool.close()
