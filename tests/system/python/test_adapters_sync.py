"""The adapters for httpx, requests and urllib3, and the examples, against a web server of the kernel's."""

from __future__ import annotations

import asyncio
import os
import socket as kernel
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from beds.authority import Certificate, certificate_for_localhost
from beds.http_server import Web, serving
from beds.proxy_process import ProxyProcess

httpx = pytest.importorskip("httpx", reason="httpx is not installed")
requests = pytest.importorskip("requests", reason="requests is not installed")
httpcore = pytest.importorskip("httpcore", reason="httpcore is not installed")
import urllib3  # noqa: E402 - comes with requests
import xts_socket  # noqa: E402
from xts_socket.adapters.httpcore import XtsBackend  # noqa: E402
from xts_socket.adapters.httpx import XtsTransport  # noqa: E402
from xts_socket.adapters.requests import XtsPoolManager, session  # noqa: E402

pytestmark = pytest.mark.usefixtures("xts_endpoint")

EXAMPLES = Path(__file__).resolve().parents[3] / "host_lib" / "examples"
DEADLINE_S = 10.0
BODY = bytes(range(256)) * 4000  # a megabyte


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return certificate_for_localhost(tmp_path_factory.mktemp("tls"))


@pytest.fixture(params=["http", "https"])
def web(request: pytest.FixtureRequest, certificate: Certificate) -> Iterator[Web]:
    with serving(certificate.server_context() if request.param == "https" else None) as made:
        yield made


@pytest.fixture(autouse=True)
def attached(xts_endpoint: ProxyProcess) -> None:
    with xts_socket.create_server(("127.0.0.1", 0)):
        assert xts_socket.info().sockets


def offloaded_frames() -> int:
    return xts_socket.info().sent_frames


def test_httpx(web: Web, certificate: Certificate, xts_endpoint: ProxyProcess) -> None:
    before = offloaded_frames()
    with httpx.Client(transport=XtsTransport(certificate.client_context()), timeout=DEADLINE_S) as client:
        assert client.get(web.url("/1000")).content == bytes(1000)
        assert client.post(web.url("/"), content=BODY).content == BODY
        with client.stream("GET", web.url("/300000")) as answer:
            assert sum(map(len, answer.iter_bytes())) == 300_000
            stream = answer.extensions["network_stream"]
            assert stream.get_extra_info("server_addr") == web.server_address
            assert (stream.get_extra_info("ssl_object") is not None) is web.url("").startswith("https")
    assert len(web.clients) == 3 and len(set(web.clients)) == 1, "one connection was to be kept alive"
    assert offloaded_frames() > before


def test_httpx_errors(certificate: Certificate) -> None:
    with httpx.Client(transport=XtsTransport(), timeout=0.2) as client:
        with xts_socket.create_server(("127.0.0.1", 0)) as silent:
            address = silent.getsockname()
            with pytest.raises(httpx.ReadTimeout):
                client.get("http://{}:{}/".format(*address))
        with pytest.raises(httpx.ConnectError):
            client.get("http://{}:{}/".format(*address))
        with (
            serving(certificate.server_context()) as web,
            pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY"),
        ):
            client.get(web.url("/1"))
    with pytest.raises(httpcore.ConnectError, match="Unix socket"):
        XtsBackend().connect_unix_socket("/nowhere")


def test_requests(web: Web, certificate: Certificate) -> None:
    before = offloaded_frames()
    with session() as client:
        client.trust_env = False
        client.verify = str(certificate.certificate)
        assert client.get(web.url("/1000"), timeout=DEADLINE_S).content == bytes(1000)
        assert client.post(web.url("/"), data=BODY, timeout=DEADLINE_S).content == BODY
        assert client.get(web.url("/0"), timeout=DEADLINE_S).content == b""
    assert len(web.clients) == 3 and len(set(web.clients)) == 1, "one connection was to be kept alive"
    assert offloaded_frames() > before


@contextmanager
def http_proxy() -> Iterator[tuple[int, list[str]]]:
    """A proxy for one CONNECT; its port, and what it was asked."""
    asked: list[str] = []

    def pump(source: kernel.socket, sink: kernel.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
            sink.shutdown(kernel.SHUT_WR)

    def serve() -> None:
        sock, _ = listener.accept()
        with sock:
            head = b""
            while b"\r\n\r\n" not in head:
                head += sock.recv(4096)
            asked.append(head.decode().splitlines()[0])
            host, _, port = head.split()[1].decode().partition(":")
            with kernel.create_connection((host, int(port)), DEADLINE_S) as origin:
                sock.sendall(b"HTTP/1.1 200 go on\r\n\r\n")
                back = threading.Thread(target=pump, args=(origin, sock))
                back.start()
                pump(sock, origin)
                back.join(DEADLINE_S)

    with kernel.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(DEADLINE_S)
        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1], asked
        thread.join(DEADLINE_S)
        assert not thread.is_alive()


def test_requests_through_a_proxy(certificate: Certificate) -> None:
    with serving(certificate.server_context()) as web, http_proxy() as (port, asked):
        with session() as client:
            client.trust_env = False
            client.verify = str(certificate.certificate)
            client.proxies = {"https": f"http://127.0.0.1:{port}"}
            before = offloaded_frames()
            assert client.get(web.url("/5000"), timeout=DEADLINE_S).content == bytes(5000)
            assert offloaded_frames() > before
            assert asked[0].startswith(f"CONNECT localhost:{web.server_address[1]} ")


def test_requests_errors(certificate: Certificate) -> None:
    with session() as client:
        client.trust_env = False
        with xts_socket.create_server(("127.0.0.1", 0)) as silent:
            address = silent.getsockname()
            with pytest.raises(requests.exceptions.ReadTimeout):
                client.get("http://{}:{}/".format(*address), timeout=0.2)
        with pytest.raises(requests.exceptions.ConnectionError, match="refused"):
            client.get("http://{}:{}/".format(*address), timeout=DEADLINE_S)
        with pytest.raises(requests.exceptions.ConnectionError, match="resolve"):
            client.get("http://nonexistent.invalid/", timeout=DEADLINE_S)
        with serving(certificate.server_context()) as web, pytest.raises(requests.exceptions.SSLError):
            client.get(web.url("/1"), timeout=DEADLINE_S)


def test_urllib3(web: Web, certificate: Certificate) -> None:
    with XtsPoolManager(ca_certs=str(certificate.certificate), timeout=DEADLINE_S) as pool:
        for _ in range(2):
            before = offloaded_frames()
            answer = pool.request("GET", web.url("/10"))
            assert offloaded_frames() > before
            assert (answer.status, answer.data) == (200, bytes(10))
    assert len(set(web.clients)) == 1
    with urllib3.PoolManager() as untouched:
        assert untouched.pool_classes_by_scheme["http"] is urllib3.HTTPConnectionPool


@pytest.mark.parametrize("example", ["httpx_get", "requests_get", "urllib_get"])
def test_an_example(
    example: str, web: Web, certificate: Certificate, xts_endpoint: ProxyProcess, tmp_path: Path
) -> None:
    rules = tmp_path / "rules"
    rules.write_text("use xts tcp_client *:*\n")
    trusted = str(certificate.certificate)
    environment = {**os.environ, "XTS_ENDPOINT": xts_endpoint.endpoint, "XTS_RULES": str(rules), "NO_PROXY": "*"}
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / f"{example}.py"), web.url("/12345"), web.url("/6")],
        env={**environment, "SSL_CERT_FILE": trusted, "REQUESTS_CA_BUNDLE": trusted},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    expected = "offloaded so far: {}" if example == "urllib_get" else "over shm"
    for number, (line, size) in enumerate(zip(done.stdout.splitlines(), (12345, 6), strict=True), 1):
        assert line.startswith(f"200 {size} bytes") and line.endswith(expected.format(number)), line
    assert len(web.clients) == 2


@pytest.mark.parametrize("way", ["sync", "async"])
def test_httpx2(way: str, web: Web, certificate: Certificate, xts_endpoint: ProxyProcess) -> None:
    """The successor's client gets its own classes: responses, and errors."""
    httpx2 = pytest.importorskip("httpx2", reason="httpx2 is not installed")
    from xts_socket.adapters.httpx_async import AsyncXtsTransport

    context = certificate.client_context()
    nowhere = "http://127.0.0.1:1/"

    async def fetch() -> Any:
        async with httpx2.AsyncClient(transport=AsyncXtsTransport(context), timeout=DEADLINE_S) as client:
            with pytest.raises(httpx2.ConnectError):
                await client.get(nowhere)
            return await client.get(web.url("/1000"))

    if way == "async":
        answer = asyncio.run(fetch())
    else:
        with httpx2.Client(transport=XtsTransport(context), timeout=DEADLINE_S) as client:
            with pytest.raises(httpx2.ConnectError):
                client.get(nowhere)
            answer = client.get(web.url("/1000"))
    assert isinstance(answer, httpx2.Response) and answer.status_code == 200 and len(answer.content) == 1000


def test_a_request_of_another_library() -> None:
    with pytest.raises(TypeError, match="httpx and httpx2"):
        XtsTransport().handle_request(object())  # type: ignore[arg-type]
