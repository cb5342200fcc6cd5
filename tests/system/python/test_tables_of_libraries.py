"""Each row of PYTHON.md's table of libraries, as client and server, with TLS in the proxy and without: one request
each, with a peer of the kernel's. What cannot be done is refused with a sentence, before anything listens."""

from __future__ import annotations

import http.client
import re
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from beds.authority import Authority, tls_tables
from beds.http_server import serving
from beds.preload import preload_library
from xts_lab.free_ports import free_port
from xts_socket._dev_proxy import DevProxy
from xts_socket.cli.device.proxy_side import ask

TOP = Path(__file__).resolve().parents[3]
PROGRAM = Path(__file__).with_name("programs") / "libraries.py"
DEADLINE_S = 60.0

#: Row of the table -> functions of the program: of clients, of servers.
ROWS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "asyncio": (
        ("asyncio_open_connection", "asyncio_ssl_argument", "asyncio_own_loop", "standard_asyncio"),
        ("asyncio_start_server", "standard_asyncio_server"),
    ),
    "trio, anyio": (("trio_client", "anyio_client"), ("trio_server", "anyio_server")),
    "httpx, requests": (("httpx_client", "httpx_async_client", "requests_session", "requests_adapter"), ()),
    "urllib3, aiohttp": (("urllib3_client", "aiohttp_client"), ("aiohttp_server",)),
    "hypercorn": ((), ("hypercorn_server",)),
    "uvicorn": ((), ("uvicorn_server", "uvicorn_default_loop")),
    # what is said below the table, and above it
    "what takes an ssl.SSLContext": (("http_client", "urllib_client"), ()),
    "sockets": (("plain_socket",), ("socket_server",)),
}
CLIENTS = [name for clients, _ in ROWS.values() for name in clients]
SERVERS = [name for _, servers in ROWS.values() for name in servers]
#: Without TLS uvloop's sockets are the kernel's, so only TLS is tried.
ONLY_TLS = ("uvloop_client", "uvicorn_uvloop")


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[DevProxy]:
    with DevProxy(tls_tables(tmp_path_factory.mktemp("tables"), authority)) as running:
        yield running


@pytest.fixture
def made(proxy: DevProxy) -> Iterator[list[int]]:
    """How many connections the proxy made and accepted in the test, once it has ended."""
    counts: list[int] = []
    before = total(proxy)
    yield counts
    assert total(proxy) > before, "it was not offloaded"


def total(proxy: DevProxy) -> int:
    return sum(worker.connects_ok + worker.accepts for worker in ask(proxy.control).workers)


def command(name: str, port: int, tls: bool) -> list[str]:
    return [sys.executable, str(PROGRAM), name, str(port), str(int(tls))]


def fetch(port: int, tls: bool, authority: Authority) -> bytes:
    context = ssl.create_default_context(cadata=authority.certificate.decode())
    kind = http.client.HTTPSConnection if tls else http.client.HTTPConnection
    options = {"context": context} if tls else {}
    with closing(kind("127.0.0.1", port, timeout=DEADLINE_S, **options)) as connection:  # type: ignore[arg-type]
        connection.request("GET", "/5")
        return connection.getresponse().read()


@pytest.fixture(params=["", "interposed"])
def environment(request: pytest.FixtureRequest, proxy: DevProxy) -> dict[str, str]:
    """Of the program: alone, and under the interposer, as by `xts dev -- python program.py`."""
    return proxy.environment(**({"LD_PRELOAD": preload_library()} if request.param else {}))


@pytest.mark.usefixtures("made")
@pytest.mark.parametrize(
    ("name", "tls"), [*((name, tls) for name in CLIENTS for tls in (False, True)), (ONLY_TLS[0], True)]
)
def test_a_client(name: str, tls: bool, environment: dict[str, str], authority: Authority) -> None:
    context = None
    if tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue("localhost", "127.0.0.1").load_into(context)
    with serving(context) as web:
        done = subprocess.run(
            command(name, web.server_address[1], tls),
            env=environment,
            capture_output=True,
            timeout=DEADLINE_S,
            check=False,
        )
    assert (done.returncode, done.stdout) == (0, bytes(5)), done.stderr.decode()


@pytest.mark.usefixtures("made")
@pytest.mark.parametrize(
    ("name", "tls"), [*((name, tls) for name in SERVERS for tls in (False, True)), (ONLY_TLS[1], True)]
)
def test_a_server(name: str, tls: bool, environment: dict[str, str], authority: Authority) -> None:
    answers(name, tls, environment, authority)


@pytest.mark.usefixtures("made")
def test_a_socket_that_was_made_before(proxy: DevProxy, authority: Authority) -> None:
    """Only under the interposer can it have TLS in the proxy."""
    answers("uvicorn_with_a_socket", True, proxy.environment(LD_PRELOAD=preload_library()), authority)


def answers(name: str, tls: bool, environment: dict[str, str], authority: Authority) -> None:
    port, deadline = free_port(), time.monotonic() + DEADLINE_S
    with subprocess.Popen(
        command(name, port, tls), env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as server:
        try:
            while True:
                assert server.poll() is None and time.monotonic() < deadline, server.communicate()[1].decode()
                try:
                    assert fetch(port, tls, authority) == b"hello"
                    break
                except ConnectionRefusedError:
                    time.sleep(0.05)
        finally:
            server.kill()
            server.wait(DEADLINE_S)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("uvicorn_with_a_socket", "needs an offloaded socket, and the socket that was passed in"),
        ("unix_server", "needs an offloaded socket, and a Unix socket is not one"),
        ("aiohttp_on_another_loop", "XtsConnector needs an event loop of xts_socket.aio, not"),
        ("http_server", "is not offloaded: there can be no TLS in the proxy for it"),
        ("a_loop_of_another_kind", "this library, or event loop, cannot use it"),
    ],
)
def test_what_cannot_be_done_is_refused(name: str, sentence: str, proxy: DevProxy) -> None:
    """It said that it ran, and reset each client."""
    done = subprocess.run(
        command(name, free_port(), True), env=proxy.environment(), capture_output=True, text=True, timeout=DEADLINE_S,
        check=False,
    )  # fmt: skip
    assert sentence in done.stderr, done.stderr
    assert "running on" not in done.stderr
    assert done.returncode or name == "a_loop_of_another_kind"


def test_a_listener_is_too_late(proxy: DevProxy) -> None:
    """Its connections would come in plain text."""
    done = subprocess.run(
        command("http_server", free_port(), True), env=proxy.environment(LD_PRELOAD=preload_library()),
        capture_output=True, text=True, timeout=DEADLINE_S, check=False,
    )  # fmt: skip
    assert done.returncode and "listens already: TLS in the proxy has to be there before listen()" in done.stderr


def test_each_row_of_the_table_is_here() -> None:
    text = (TOP / "host_lib" / "PYTHON.md").read_text()
    table = re.search(r"\| for \| where \|\n\|---\|---\|\n((?:\|.*\n)+)", text)
    assert table
    rows = {line.split("|")[1].strip() for line in table[1].splitlines()}
    assert rows <= set(ROWS), "a row that no test tries"
