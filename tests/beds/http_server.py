"""An HTTP server of the kernel's on loopback, in plain text and in TLS, that tells what it saw."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Web(ThreadingHTTPServer):
    """`clients`: the address of each request's connection, in order."""

    daemon_threads = True

    def __init__(self, context: ssl.SSLContext | None) -> None:
        self.clients: list[Any] = []
        self._context = context
        super().__init__(("127.0.0.1", 0), Handler)

    def url(self, path: str) -> str:
        return f"http{'s' if self._context else ''}://localhost:{self.server_address[1]}{path}"

    def get_request(self) -> Any:
        sock, address = super().get_request()
        if self._context is not None:
            sock = self._context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
        return sock, address


class Handler(BaseHTTPRequestHandler):
    """GET /N answers with N bytes, POST with what was posted."""

    protocol_version = "HTTP/1.1"
    server: Web

    def do_GET(self) -> None:
        self._answer(bytes(int(self.path[1:])))

    def do_POST(self) -> None:
        self._answer(self.rfile.read(int(self.headers["Content-Length"])))

    def _answer(self, body: bytes) -> None:
        self.server.clients.append(self.client_address)
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serving(context: ssl.SSLContext | None = None) -> Iterator[Web]:
    """Serves until the end of the block; in TLS with a context."""
    with Web(context) as web:
        thread = threading.Thread(target=web.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield web
        finally:
            web.shutdown()
            thread.join()
