"""The asynchronous adapters, through the examples, run as their readers would, against the kernel."""

from __future__ import annotations

import asyncio
import http.server
import os
import socket as kernel
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpcore
import httpx
import pytest
from beds.authority import certificate_for_localhost
from beds.proxy_process import ProxyProcess
from beds.worker import receive_exactly
from xts_lab.free_ports import free_port
from xts_socket import aio
from xts_socket.adapters.aiohttp import XtsConnector
from xts_socket.adapters.httpcore_async import AsyncXtsBackend
from xts_socket.adapters.httpx_async import AsyncXtsTransport
from xts_socket.adapters.hypercorn import XtsConfig

EXAMPLES = Path(__file__).resolve().parents[3] / "host_lib" / "examples"
DEADLINE_S = 20.0
BODY = bytes(range(256)) * 4096


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers with BODY, or with what it was sent."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.answer(BODY)

    def do_POST(self) -> None:
        self.answer(self.rfile.read(int(self.headers["Content-Length"])))

    def answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@pytest.fixture
def site() -> Iterator[str]:
    """The URL of a server on the kernel."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


def example(name: str, *arguments: str, endpoint: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(EXAMPLES / name), *arguments], env=os.environ | {"XTS_ENDPOINT": endpoint}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


@pytest.mark.parametrize("name", ["httpx_async_get.py", "aiohttp_get.py"])
def test_a_client(name: str, site: str, xts_endpoint: ProxyProcess, tmp_path: Path) -> None:
    with example(name, site, site, site, endpoint=xts_endpoint.endpoint) as process:
        out, said = process.communicate(timeout=DEADLINE_S)
    assert out.splitlines() == [f"200 {len(BODY)} bytes over shm"] * 3, said
    with example(name, site, endpoint=str(tmp_path / "nowhere")) as process:
        _, said = process.communicate(timeout=DEADLINE_S)
    assert "no offload proxy can be reached" in said or "Cannot connect" in said


def wait_for_port(process: subprocess.Popen[str], port: int) -> None:
    until = time.monotonic() + DEADLINE_S
    while time.monotonic() < until and process.poll() is None:
        try:
            kernel.create_connection(("127.0.0.1", port), DEADLINE_S).close()
            return
        except ConnectionRefusedError:
            time.sleep(0.02)
    process.kill()
    raise AssertionError(process.communicate()[1])


def kernel_tcp_sockets(pid: int) -> set[str]:
    """The inodes of TCP sockets that a process holds."""
    lines = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()]
    inodes = {f"socket:[{fields[9]}]" for fields in lines if len(fields) > 9}
    return inodes & {str(link.readlink()) for link in Path(f"/proc/{pid}/fd").iterdir()}


@pytest.mark.parametrize("name", ["uvicorn_serve.py", "hypercorn_serve.py"])
def test_a_server(name: str, xts_endpoint: ProxyProcess) -> None:
    port = free_port()
    with example(name, str(port), endpoint=xts_endpoint.endpoint) as process:
        try:
            wait_for_port(process, port)
            for _ in range(3):
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=DEADLINE_S) as answer:
                    assert answer.read() == f"hello from {name.removesuffix('_serve.py')}\n".encode()
            assert not kernel_tcp_sockets(process.pid)
        finally:
            process.terminate()
            process.communicate(timeout=DEADLINE_S)


def test_the_echo_server(xts_endpoint: ProxyProcess) -> None:
    with example("asyncio_echo.py", endpoint=xts_endpoint.endpoint) as process:
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline().split()[1])
            with kernel.create_connection(("127.0.0.1", port), DEADLINE_S) as sock:
                sock.sendall(b"hello")
                assert receive_exactly(sock, 5) == b"hello"
            assert not kernel_tcp_sockets(process.pid)
        finally:
            process.terminate()
            process.communicate(timeout=DEADLINE_S)


# --- errors, in this process ----------------------------------------------------------------------------------------


def run(main: Any) -> Any:
    async def limited() -> Any:
        async with asyncio.timeout(DEADLINE_S):
            return await main()

    with asyncio.Runner() as runner:
        return runner.run(limited())


def test_httpx_keeps_connections_and_posts(site: str, xts_endpoint: ProxyProcess) -> None:
    async def main() -> None:
        async with httpx.AsyncClient(transport=AsyncXtsTransport()) as client:
            first = await client.get(site)
            again = await client.post(site, content=BODY)
            assert first.content == again.content == BODY
            streams = [answer.extensions["network_stream"] for answer in (first, again)]
            assert streams[0].get_extra_info("client_addr") == streams[1].get_extra_info("client_addr")

    run(main)


def test_httpx_says_what_failed(xts_endpoint: ProxyProcess) -> None:
    async def main() -> None:
        async with httpx.AsyncClient(transport=AsyncXtsTransport()) as client:
            with pytest.raises(httpx.ConnectError):
                await client.get(f"http://127.0.0.1:{free_port()}/")
            with kernel.create_server(("127.0.0.1", 0)) as silent:
                port = silent.getsockname()[1]
                with pytest.raises(httpx.ReadTimeout):
                    await client.get(f"http://127.0.0.1:{port}/", timeout=0.05)
                with pytest.raises(httpx.ConnectTimeout):
                    await client.get(f"https://127.0.0.1:{port}/", timeout=0.05)

    run(main)


def test_httpcore_refuses_unix_sockets(xts_endpoint: ProxyProcess) -> None:
    async def main() -> None:
        with pytest.raises(httpcore.ConnectError, match="a Unix socket cannot be offloaded"):
            await AsyncXtsBackend().connect_unix_socket("/somewhere")

    run(main)


def test_httpcore_reads_over_tls(xts_endpoint: ProxyProcess, tmp_path: Path) -> None:
    certificate = certificate_for_localhost(tmp_path)
    context = certificate.server_context()

    async def main() -> None:
        closed = asyncio.Event()

        async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(await reader.readexactly(5))
            writer.close()
            await writer.wait_closed()
            closed.set()

        async with await asyncio.start_server(greet, "127.0.0.1", 0, ssl=context) as server:
            port = server.sockets[0].getsockname()[1]
            plain = await AsyncXtsBackend().connect_tcp("127.0.0.1", port)
            secure = await plain.start_tls(certificate.client_context(), "localhost", 5)
            assert secure.get_extra_info("ssl_object").version() == "TLSv1.3"
            assert secure.get_extra_info("is_readable") is False
            await secure.write(b"hello", 5)
            assert await secure.read(100, 5) == b"hello"
            await secure.aclose()
            await closed.wait()

    run(main)


def test_aiohttp_needs_a_loop_of_ours() -> None:
    async def main() -> None:
        with pytest.raises(RuntimeError, match="needs an event loop of"):
            XtsConnector()

    run(main)


@pytest.mark.parametrize("bind", ["unix:/tmp/socket", "fd://3", "0.0.0.0", "host:http"])
def test_hypercorn_refuses_other_binds(bind: str) -> None:
    config = XtsConfig()
    config.bind = [bind]
    with pytest.raises(ValueError, match="only host:port is offloaded"):
        config.create_sockets()
    assert aio.EventLoop  # which serves the others
