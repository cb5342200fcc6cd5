"""A network back end for httpcore: `httpcore.ConnectionPool(network_backend=XtsBackend())`.

adapters/httpx.py builds on it.
"""

from __future__ import annotations

import select
import ssl
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import httpcore

from .. import IPPROTO_TCP, TCP_NODELAY, create_connection, wrap_ssl
from .._ssl import SSLSocket


@contextmanager
def mapped(timed_out: type[Exception], failed: type[Exception]) -> Iterator[None]:
    try:
        yield
    except TimeoutError as failure:
        raise timed_out(str(failure)) from failure
    except OSError as failure:
        raise failed(str(failure)) from failure


class XtsStream(httpcore.NetworkStream):
    """A connection. Reads and writes wait for at most their timeout, in seconds; None: forever."""

    def __init__(self, sock: Any) -> None:
        self._sock = sock

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        with mapped(httpcore.ReadTimeout, httpcore.ReadError):
            self._sock.settimeout(timeout)
            return bytes(self._sock.recv(max_bytes))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        with mapped(httpcore.WriteTimeout, httpcore.WriteError):
            self._sock.settimeout(timeout)
            self._sock.sendall(buffer)

    def close(self) -> None:
        self._sock.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        """TLS over the existing stream, which may be TLS itself (through an HTTPS proxy); with `ssl_context()` the
        offload proxy does it."""
        try:
            with mapped(httpcore.ConnectTimeout, httpcore.ConnectError):
                self._sock.settimeout(timeout)
                return XtsStream(wrap_ssl(self._sock, ssl_context, server_hostname=server_hostname))
        except BaseException:
            self.close()
            raise

    def get_extra_info(self, info: str) -> Any:
        sock = self._sock
        if info == "ssl_object":
            return sock if isinstance(sock, SSLSocket) else sock.tls
        if info == "client_addr":
            return sock.getsockname()
        if info == "server_addr":
            return sock.getpeername()
        if info == "socket":
            return sock
        if info == "is_readable":
            return _is_readable(sock)
        return None


def _is_readable(sock: Any) -> bool:
    if sock.fileno() < 0:
        return True
    poll = select.poll()
    poll.register(sock.fileno(), select.POLLIN)
    return bool(poll.poll(0))


class XtsBackend(httpcore.NetworkBackend):
    """Connections through the offload proxy. httpcore.ConnectError if there is none; Unix sockets are refused."""

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        source = None if local_address is None else (local_address, 0)
        with mapped(httpcore.ConnectTimeout, httpcore.ConnectError):
            sock = create_connection((host, port), timeout, source)
            try:
                for option in socket_options or ():
                    sock.setsockopt(*option)
                sock.setsockopt(IPPROTO_TCP, TCP_NODELAY, 1)
            except BaseException:
                sock.close()
                raise
        return XtsStream(sock)

    def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: Iterable[Any] | None = None
    ) -> httpcore.NetworkStream:
        raise httpcore.ConnectError(f"{path}: a Unix socket cannot be offloaded")

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)
