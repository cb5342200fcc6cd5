"""The process that serves metrics: who may ask, TLS, and scrapers that read slowly or never."""

from __future__ import annotations

import base64
import json
import socket
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from beds.authority import certificate_for_localhost
from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from xts_messages.metrics import metrics_credentials, metrics_server
from xts_messages.metrics.metrics_address import MetricsAddress
from xts_messages.metrics.metrics_credentials import CredentialError, Credentials

TOKEN = "a-token-of-24-characters"


class Some(Collector):
    """Metrics whose text is larger than what sockets take at once."""

    asked = 0

    def collect(self) -> Iterator[GaugeMetricFamily]:
        self.asked += 1
        family = GaugeMetricFamily("xts_some", "Some.", labels=["which"])
        for i in range(5_000):
            family.add_metric([f"{i:0100}"], i)
        yield family


@dataclass
class Served:
    port: int
    some: Some
    context: ssl.SSLContext | None = None
    header: dict[str, str] = field(default_factory=dict)

    def get(self, path: str = "/metrics", **header: str) -> bytes:
        scheme = "https" if self.context else "http"
        request = urllib.request.Request(
            f"{scheme}://127.0.0.1:{self.port}{path}", headers={key.title(): value for key, value in header.items()}
        )
        with urllib.request.urlopen(request, timeout=10, context=self.context) as answer:
            return bytes(answer.read())

    def status(self, path: str = "/metrics", **header: str) -> int:
        try:
            self.get(path, **header)
        except urllib.error.HTTPError as error:
            error.close()
            return error.code
        return 200

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=10)


@contextmanager
def served(credentials: Credentials | None = None) -> Iterator[Served]:
    some, registry = Some(), CollectorRegistry()
    registry.register(some)
    found = credentials or Credentials()
    context = found.context()
    listener = socket.create_server(("127.0.0.1", 0))
    server = metrics_server.Server(listener, metrics_server.application(registry, lambda: found.token), lambda: context)
    thread = threading.Thread(target=server.serve_forever, args=[0.05])
    thread.start()
    try:
        yield Served(listener.getsockname()[1], some)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_a_scrape_gets_metrics_and_another_path_what_to_do() -> None:
    with served() as server:
        assert b'xts_some{which="' in server.get()
        assert server.status("/") == 404
        assert server.status("/metrics?name[]=xts_some") == 200


def test_only_who_has_the_token_gets_metrics() -> None:
    with served(Credentials(token=TOKEN.encode())) as server:
        assert server.status() == 401
        assert server.status(authorization=f"Bearer {TOKEN}x") == 401
        assert server.status(authorization=f"Basic {base64.b64encode(TOKEN.encode()).decode()}") == 401
        assert server.some.asked == 0, "who may not ask costs the program nothing"
        assert server.status(authorization=f"Bearer {TOKEN}") == 200


def test_metrics_are_served_by_tls(tmp_path: Path) -> None:
    files = certificate_for_localhost(tmp_path)
    with served(metrics_credentials.read(str(files.certificate), str(files.key), "")) as server:
        server.context = files.client_context()
        with server.connect():  # says nothing: its handshake keeps nobody waiting
            assert b"xts_some" in server.get()
        with server.connect() as plain:
            plain.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
            with suppress(ConnectionError):
                assert b"xts_some" not in b"".join(iter(lambda: plain.recv(65536), b""))


def test_scrapers_that_read_nothing_make_room_for_others() -> None:
    with served() as server:
        never = [server.connect() for _ in range(3 * metrics_server.CONNECTIONS_MAX)]
        for one in never[::2]:
            one.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        assert b"xts_some" in server.get()
        deadline = time.monotonic() + 10
        while threading.active_count() >= metrics_server.CONNECTIONS_MAX + 10:  # those of closed connections end
            assert time.monotonic() < deadline
            time.sleep(0.01)
        for one in never:
            one.close()


def test_connections_count_before_their_threads_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine many are accepted before the first thread runs."""
    runs, finish = threading.Event(), metrics_server.Server.finish_request

    def late(server: metrics_server.Server, *arguments: Any) -> None:
        assert runs.wait(60)
        finish(server, *arguments)

    monkeypatch.setattr(metrics_server.Server, "finish_request", late)
    with served() as server:
        connections = [server.connect() for _ in range(metrics_server.CONNECTIONS_MAX + 1)]
        assert connections[0].recv(1) == b"", "it has made room for the last one"
        runs.set()
        for one in connections:
            one.close()
        assert server.status() == 200


def test_a_connection_ends_when_its_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that sends or reads a byte now and then, of which no call ever takes long."""
    monkeypatch.setattr(metrics_server, "REQUEST_S", 0.3)
    with served() as server, server.connect() as slow:
        deadline = time.monotonic() + 10
        with suppress(ConnectionError):
            while True:
                slow.sendall(b"G")
                assert time.monotonic() < deadline
                time.sleep(0.02)
        monkeypatch.undo()  # to make so many metrics may take longer than that
        assert b"xts_some" in server.get()


@pytest.mark.parametrize(
    "sent",
    [b"", b"GET /metrics HT", b"x" * 100_000, b"GET /metrics HTTP/1.1\r\nA: " + b"x" * 100_000, b"\0\xff\r\n\r\n"],
)
def test_a_broken_request_ends_the_connection_and_nothing_else(sent: bytes) -> None:
    with served() as server:
        with server.connect() as connection, suppress(OSError):
            connection.sendall(sent)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(65536):
                pass
        assert server.status() == 200


# --- the connection to the owner -----------------------------------------------------------------------


@contextmanager
def owner() -> Iterator[tuple[metrics_server.Owner, socket.socket]]:
    ours, its = socket.socketpair()
    ours.settimeout(10)
    with ours, its:
        ended = threading.Event()
        yield metrics_server.Owner(its, Credentials(), ended.set), ours
        ours.close()
        assert ended.wait(10)


def test_figures_are_asked_for_and_late_ones_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_server, "ANSWER_S", 0.05)
    monkeypatch.setattr(metrics_server, "PAUSE_FACTOR", 0.0)
    with owner() as (found, ours):
        with pytest.raises(TimeoutError):
            found.figures()
        assert ours.recv(2) == b"?"
        monkeypatch.setattr(metrics_server, "ANSWER_S", 10.0)
        ours.sendall(metrics_server.figures_message(b'"late"') + metrics_server.figures_message(b'"new"'))
        assert found.figures() == "new"
        ours.sendall(metrics_server.figures_message(metrics_server.NO_FIGURES))
        with pytest.raises(BlockingIOError):
            found.figures()


def test_other_credentials_are_taken_over(tmp_path: Path) -> None:
    files = certificate_for_localhost(tmp_path)
    new = metrics_credentials.read(str(files.certificate), str(files.key), "")
    with owner() as (found, ours):
        assert found.context is None
        ours.sendall(metrics_server.credentials_message(new))
        deadline = time.monotonic() + 10
        while found.context is None:
            assert time.monotonic() < deadline
            time.sleep(0.005)


# --- credentials and addresses -------------------------------------------------------------------------


def wrong(text: str) -> Callable[[Path], tuple[str, str, str]]:
    def make(folder: Path) -> tuple[str, str, str]:
        files = certificate_for_localhost(folder)
        other = folder / "other"
        other.write_text("no key" if text != "empty" else "")
        return {
            "no key": (str(files.certificate), str(other), ""),
            "half": (str(files.certificate), "", ""),
            "empty": (str(other), str(files.key), ""),
            "none": (str(files.certificate), str(folder / "none"), ""),
            "token": ("", "", str(other)),
        }[text]

    return make


@pytest.mark.parametrize(
    ("text", "which", "says"),
    [
        ("no key", "key", "cannot be used"),
        ("half", "key", "is needed with a certificate"),
        ("empty", "certificate", "is empty"),
        ("none", "key", "No such file"),
        ("token", "token", "a token has 16 to 1024"),
    ],
)
def test_files_that_cannot_be_used(tmp_path: Path, text: str, which: str, says: str) -> None:
    with pytest.raises(CredentialError, match=says) as error:
        metrics_credentials.read(*wrong(text)(tmp_path))
    assert error.value.which == which


def test_credentials_show_nothing() -> None:
    secret = Credentials(b"certificate", b"key", TOKEN.encode())
    assert "key" not in repr(secret) and TOKEN not in repr(secret)
    assert json.loads(metrics_server.credentials_message(secret)[5:])


@pytest.mark.parametrize("text", ["off", "unix:/run/x.sock", "127.0.0.1:9464", "0.0.0.0:0", "[::]:9464", "[fd18::1]:1"])
def test_addresses_print_as_they_parse(text: str) -> None:
    address = MetricsAddress.parse(text)
    assert str(address) == text
    assert bool(address) == (text != "off")
    assert address.is_remote == (text[0] in "0[")


@pytest.mark.parametrize(
    "text", ["", "unix:x", "127.0.0.1", "localhost:1", "1.2.3.4:70000", "[1.2.3:1", f"unix:/{'x' * 107}"]
)
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ValueError):
        MetricsAddress.parse(text)


def asked(server: Served, method: str, path: str = "/metrics", *headers: str) -> tuple[str, dict[str, str], bytes]:
    """Status line, headers and body of an answer."""
    with server.connect() as connection:
        connection.sendall("\r\n".join([f"{method} {path} HTTP/1.1", "Host: x", *headers, "", ""]).encode())
        with connection.makefile("rb") as answer:
            head, _, body = answer.read().partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    return status, {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}, body


@pytest.mark.parametrize(("path", "code"), [("/metrics", "200"), ("/other", "404")])
def test_head_is_get_without_its_body(path: str, code: str) -> None:
    """RFC 9110, section 9.3.2. Monitoring asks so."""
    with served() as server:
        status, headers, body = asked(server, "GET", path)
        assert code in status and len(body) == int(headers["content-length"])
        same, without, nothing = asked(server, "HEAD", path)
        assert (same, nothing) == (status, b"")
        assert without | {"date": ""} == headers | {"date": ""}
        assert "Python" not in str(headers)


def test_other_methods() -> None:
    with served() as server:
        for method in ("POST", "PUT", "DELETE", "PATCH"):
            status, headers, _ = asked(server, method)
            assert "405" in status and headers["allow"] == "GET, HEAD, OPTIONS"
        status, headers, _ = asked(server, "OPTIONS")
        assert "200" in status and headers["allow"] == "GET, HEAD, OPTIONS"


def test_head_needs_the_token_too() -> None:
    with served(Credentials(token=TOKEN.encode())) as server:
        status, _, body = asked(server, "HEAD")
        assert "401" in status and not body
        assert "200" in asked(server, "HEAD", "/metrics", f"Authorization: Bearer {TOKEN}")[0]
