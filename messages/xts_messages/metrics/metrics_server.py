"""The process that serves metrics: HTTP or HTTPS for Prometheus.

Theory of operation. It is forked by the program whose figures it serves (the owner), with the listening socket and a
connection to the owner, and gives up everything else: so strangers' bytes are parsed by HTTP and TLS here, and not in
the process that hands out queues. For a scrape it asks the owner for its figures, which come as one JSON text, and
makes metrics from them. A scraper that reads slowly, or never, costs a thread here, for at most REQUEST_S; with
CONNECTIONS_MAX connections, the oldest is closed for a new one. The owner has one request at a time, and after an
answer gets none for four times as long as the answer took, so that scrapes take at most a fifth of its time.

    owner -> server:  "A" and figures, for each byte that came; "C" and credentials, when they are others than before
    server -> owner:  "?" for figures; "!" once, when it serves

HTTP is the standard library's and the text prometheus_client's.
"""

from __future__ import annotations

import _thread
import base64
import errno
import hmac
import json
import os
import queue
import resource
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from socketserver import ThreadingMixIn
from typing import Any, BinaryIO
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from xts_messages.metrics.metrics_credentials import CredentialError, Credentials

REQUEST_S = 10.0
#: After its time, for a connection that has been shut down: its thread closes it.
_GIVEN_UP_S = 5.0
CONNECTIONS_MAX = 16
ANSWER_S = 8.0
#: After an answer the owner is left alone for this many times as long as the answer took.
PAUSE_FACTOR = 4.0

#: An answer that means: there are no figures now.
NO_FIGURES = b"null"

_HEAD = struct.Struct("=cI")
_BODY_BYTES_MAX = 256 << 20
_DESCRIPTORS_MAX = 64


# --- what the owner sends ------------------------------------------------------------------------------


def figures_message(figures: bytes) -> bytes:
    """The message with an answer."""
    return _HEAD.pack(b"A", len(figures)) + figures


def credentials_message(credentials: Credentials) -> bytes:
    """The message with new credentials, for connections from now on."""
    parts = (credentials.certificate, credentials.key, credentials.token)
    body = json.dumps([base64.b64encode(part).decode() for part in parts]).encode()
    return _HEAD.pack(b"C", len(body)) + body


# --- the server's end of the connection to its owner ---------------------------------------------------


class Owner:
    """The connection to the owner. `ended` is called, in a thread, when the owner hangs up."""

    def __init__(
        self,
        connection: socket.socket,
        credentials: Credentials,
        ended: Callable[[], None] = lambda: os._exit(0),
    ) -> None:
        self._connection = connection
        self._ended = ended
        self._answers: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._asked = threading.Lock()
        self._unanswered = 0
        self._not_before = 0.0
        self._take(credentials)
        threading.Thread(target=self._read, daemon=True).start()

    def _take(self, credentials: Credentials) -> None:
        self.context, self.token = credentials.context(), credentials.token

    def figures(self) -> Any:
        """The owner's figures. OSError ETIMEDOUT: it does not answer now."""
        with self._asked:
            time.sleep(max(0.0, self._not_before - time.monotonic()))
            began = time.monotonic()
            self._connection.sendall(b"?")
            self._unanswered += 1
            while self._unanswered:  # skips late answers to earlier requests
                left = began + ANSWER_S - time.monotonic()
                try:
                    answer = self._answers.get(timeout=max(0.0, left))
                except queue.Empty:
                    raise OSError(errno.ETIMEDOUT, "the program does not answer") from None
                self._unanswered -= 1
            now = time.monotonic()
            self._not_before = now + PAUSE_FACTOR * (now - began)
        if answer == NO_FIGURES:
            raise OSError(errno.EAGAIN, "the program has no figures now")
        return json.loads(answer)

    def _read(self) -> None:
        try:
            with suppress(OSError), self._connection.makefile("rb") as stream:
                self._read_messages(stream)
        finally:  # also without memory: nobody else would answer
            self._ended()

    def _read_messages(self, stream: BinaryIO) -> None:
        while len(head := stream.read(_HEAD.size)) == _HEAD.size:
            kind, length = _HEAD.unpack(head)
            body = stream.read(min(length, _BODY_BYTES_MAX))
            if kind == b"A":
                self._answers.put(body)
            else:
                with suppress(CredentialError):  # the earlier ones stay in force
                    self._take(Credentials(*(base64.b64decode(part) for part in json.loads(body))))


# --- HTTP ----------------------------------------------------------------------------------------------

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


_ALLOWED = "GET, HEAD, OPTIONS"


def application(registry: CollectorRegistry, token: Callable[[], bytes]) -> Application:
    """GET and HEAD of /metrics, for clients that have the token."""
    metrics = make_wsgi_app(registry)
    making = threading.Lock()  # one text at a time: many at once would all be late

    def get(request: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        wanted, given = token(), request.get("HTTP_AUTHORIZATION", "").encode("latin-1")
        if wanted and not hmac.compare_digest(given, b"Bearer " + wanted):
            return _plain(start, "401 Unauthorized", "a bearer token is needed", ("WWW-Authenticate", "Bearer"))
        if request["PATH_INFO"] != "/metrics":
            return _plain(start, "404 Not Found", "metrics are at /metrics")
        if request["REQUEST_METHOD"] == "OPTIONS":
            return _plain(start, "200 OK", _ALLOWED, ("Allow", _ALLOWED))
        if request["REQUEST_METHOD"] != "GET":
            return _plain(start, "405 Method Not Allowed", "use GET", ("Allow", _ALLOWED))
        try:
            with making:
                return list(metrics(request, start))
        except OSError as error:
            return _plain(start, "503 Service Unavailable", error.strerror or str(error))

    def answer(request: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        def named(status: str, headers: list[tuple[str, str]], *more: Any) -> Any:
            return start(status, [*headers, ("Server", "xts-metrics")], *more)  # else it tells the version of Python

        return head(request, named) if request["REQUEST_METHOD"] == "HEAD" else get(request, named)

    def head(request: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        """RFC 9110, section 9.3.2: what GET answers, with its length and without its body."""
        begun: list[Any] = []
        body = get(request | {"REQUEST_METHOD": "GET"}, lambda *arguments: begun.extend(arguments))
        status, headers = begun
        start(status, [*headers, ("Content-Length", str(sum(map(len, body))))])
        return []

    return answer


def _plain(start: Callable[..., Any], status: str, text: str, *headers: tuple[str, str]) -> Iterable[bytes]:
    start(status, [("Content-Type", "text/plain; charset=utf-8"), *headers])
    return [f"{text}\n".encode()]


class _Handler(WSGIRequestHandler):
    """One request, then the connection ends."""

    timeout = REQUEST_S

    def log_message(self, format: str, *arguments: Any) -> None:
        """Writes nothing: a scrape is not worth a line, and a stranger must not be able to fill the log."""


class Server(ThreadingMixIn, WSGIServer):
    """Serves a listening socket. `context`: returns the context for TLS, called for each connection; None: no TLS."""

    daemon_threads = True

    def __init__(
        self, listener: socket.socket, answer: Application, context: Callable[[], ssl.SSLContext | None]
    ) -> None:
        super().__init__(("", 0), _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listener
        self.server_name, self.server_port = "xts", 0
        self.setup_environ()
        self.set_app(answer)
        self._context = context
        self._lock = threading.Lock()
        self._open: dict[socket.socket, tuple[float, socket.socket]] = {}  # as accepted, oldest first: its deadline

    def get_request(self) -> tuple[socket.socket, tuple[str, int]]:
        connection, address = self.socket.accept()
        return connection, address or ("unix", 0)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Counts the connection before it has a thread: on a busy machine, threads begin late."""
        with self._lock:
            crowd = len(self._open) - CONNECTIONS_MAX + 1
            for _, connection in list(self._open.values())[: max(0, crowd)]:
                _end(connection)
            self._open[request] = time.monotonic() + REQUEST_S, request
        try:
            # not a Thread, whose start() waits for ever for one that memory runs out for as it begins
            _thread.start_new_thread(self.process_request_thread, (request, client_address))
        except BaseException:  # no thread could be made
            with self._lock:
                del self._open[request]
            raise

    def finish_request(self, request: Any, client_address: Any) -> None:
        """In a thread of its own."""
        connection = request
        try:
            request.settimeout(REQUEST_S)
            if context := self._context():
                with self._lock:
                    connection = context.wrap_socket(request, server_side=True, do_handshake_on_connect=False)
                    self._open[request] = self._open[request][0], connection
            if isinstance(connection, ssl.SSLSocket):
                connection.do_handshake()
            super().finish_request(connection, client_address)
        except (OSError, ValueError):
            pass  # only this scraper gets no answer
        finally:
            with self._lock:
                self._open.pop(request, None)
            if connection is not request:
                with suppress(OSError):
                    connection.close()

    def service_actions(self) -> None:
        """Twice a second: ends connections that take too long in total. A socket's timeout is for a single call."""
        now = time.monotonic()
        with self._lock:
            for request, (until, connection) in list(self._open.items()):
                if now >= until:
                    _end(connection)
                if now >= until + _GIVEN_UP_S:  # its thread has never begun
                    del self._open[request]
                    request.close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Writes nothing: only the scraper's connection ends."""


def _end(connection: socket.socket) -> None:
    with suppress(OSError):
        socket.socket.shutdown(connection, socket.SHUT_RDWR)  # below ssl, whose object belongs to the other thread


# --- the process ---------------------------------------------------------------------------------------


class _Collector(Collector):
    def __init__(self, owner: Owner, families: Callable[[Any], Iterable[Metric]]) -> None:
        self._owner = owner
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families(self._owner.figures())


def limit() -> None:
    """Few descriptors, and no core dump."""
    limits = {resource.RLIMIT_NOFILE: _DESCRIPTORS_MAX, resource.RLIMIT_CORE: 0}
    for what, most in limits.items():
        hard = resource.getrlimit(what)[1]
        lower = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(what, (lower, lower))


def run(
    listener: socket.socket,
    connection: socket.socket,
    credentials: Credentials,
    families: Callable[[Any], Iterable[Metric]],
) -> None:
    """Serves until the owner has ended. `families`: makes metrics from the owner's figures."""
    owner = Owner(connection, credentials)
    registry = CollectorRegistry()
    registry.register(_Collector(owner, families))
    server = Server(listener, application(registry, lambda: owner.token), lambda: owner.context)
    connection.sendall(b"!")
    server.serve_forever()
