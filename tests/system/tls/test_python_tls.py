"""TLS in the proxy from Python: one argument of what connects and listens, on threads, asyncio, trio and anyio, and in
libraries. The peers are Python's ssl on the kernel's sockets."""

from __future__ import annotations

import asyncio
import errno
import http.client
import os
import selectors
import socket as kernel
import ssl
import struct
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
import trio
import xts_socket
import xts_socket.anyio
import xts_socket.trio
from anyio.streams.tls import TLSAttribute
from beds.authority import Authority, self_signed
from beds.http_server import Web, serving
from beds.patience import SLOWER
from beds.proxy_process import ProxyProcess
from beds.tls_exchange import exchange
from beds.ulp_tls import client_context, server_context
from xts_lab.free_ports import free_port
from xts_socket import Tls, aio

httpx = pytest.importorskip("httpx", reason="httpx is not installed")
requests = pytest.importorskip("requests", reason="requests is not installed")
aiohttp = pytest.importorskip("aiohttp", reason="aiohttp is not installed")
from xts_socket.adapters.aiohttp import XtsConnector  # noqa: E402
from xts_socket.adapters.httpx import XtsTransport  # noqa: E402
from xts_socket.adapters.httpx_async import AsyncXtsTransport  # noqa: E402
from xts_socket.adapters.requests import XtsPoolManager, session  # noqa: E402

pytestmark = pytest.mark.usefixtures("xts_endpoint")

EXAMPLES = Path(__file__).resolve().parents[3] / "host_lib" / "examples"
DEADLINE_S = 20.0 * SLOWER
REQUEST = b"GET /1000 HTTP/1.1\r\nHost: localhost\r\n\r\n"
SERVER = Tls(identity="localhost", alpn=("h2", "http/1.1"))
LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {"asyncio": asyncio.new_event_loop, "ours": aio.EventLoop}


@pytest.fixture(scope="module")
def web(xts_authority: Authority) -> Iterator[Web]:
    """A web server whose certificate the proxy trusts."""
    with serving(server_context(xts_authority.issue("localhost", "127.0.0.1"))) as made:
        yield made


@contextmanager
def echoing(context: ssl.SSLContext) -> Iterator[tuple[str, int]]:
    """A server of one connection that sends back what it receives, in TLS; its address."""

    def serve() -> None:
        try:
            sock, _ = listener.accept()
            with sock, context.wrap_socket(sock, server_side=True) as tls:
                while data := tls.recv(65536):
                    tls.sendall(data)
                tls.unwrap()
        except OSError:
            return  # the client has found something wrong

    with kernel.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(DEADLINE_S)
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()
        finally:
            thread.join(DEADLINE_S)


def page(sock: Any) -> bytes:
    """The body that the server sends."""
    sock.sendall(REQUEST)
    with sock.makefile("rb") as file:
        while file.readline().strip():
            pass
        return bytes(file.read(1000))


# --- clients ------------------------------------------------------------------------------------------------


def test_one_argument(web: Web) -> None:
    with xts_socket.create_connection(web.server_address, DEADLINE_S, tls=True) as sock:
        assert page(sock) == bytes(1000)
        tls = sock.tls
        assert tls is not None and tls.verified and tls.version() == "TLSv1.3"
        cipher = tls.cipher()
        assert (
            cipher is not None and cipher[0].startswith("TLS_") and cipher[1:] in (("TLSv1.3", 256), ("TLSv1.3", 128))
        )
        certificate = tls.getpeercert()
        assert ("DNS", "localhost") in certificate["subjectAltName"]
        assert tls.get_unverified_chain()[0] == tls.getpeercert(binary_form=True)
        crypto = tls.crypto
        assert crypto is not None and {crypto.send, crypto.receive} <= {"user", "kernel", "device"}
        assert tls.selected_alpn_protocol() is None and sock.ulp_error() is None
    with pytest.raises(OSError):  # closed
        assert sock.tls is not None and sock.tls.version()


def test_parameters_are_heeded(xts_authority: Authority) -> None:
    asked: list[Any] = []
    context = server_context(xts_authority.issue("example.org"))
    context.sni_callback = lambda _sock, name, _context: asked.append(name)
    context.set_alpn_protocols(["spdy", "http/1.1"])
    tls = Tls(server_hostname="example.org", alpn=["h2", "http/1.1"], max_version=0x0303, ca="default")
    with echoing(context) as address, xts_socket.create_connection(address, DEADLINE_S, tls=tls) as sock:
        sock.sendall(b"hello")
        assert sock.recv(5, xts_socket.MSG_WAITALL) == b"hello"
        assert sock.tls is not None and sock.tls.version() == "TLSv1.2"
        assert sock.tls.selected_alpn_protocol() == "http/1.1" and sock.tls.server_hostname == "example.org"
        assert asked == ["example.org"]
        sock.shutdown(xts_socket.SHUT_WR)
        assert sock.recv(1) == b"", "close_notify"


@pytest.mark.parametrize("blame", ["name", "nobody", "expired", "version"])
@pytest.mark.parametrize("how", ["connect", "push", "asyncio", "start_tls", "trio", "anyio"])
def test_who_is_not_to_be_trusted_is_not_connected_to(xts_authority: Authority, blame: str, how: str) -> None:
    issued = {
        "name": lambda: xts_authority.issue("example.org"),
        "nobody": lambda: self_signed("localhost"),
        "expired": lambda: xts_authority.issue("localhost", expired=True),
        "version": lambda: xts_authority.issue("localhost"),
    }[blame]()
    context = server_context(issued)
    tls = Tls(server_hostname="localhost")
    if blame == "version":
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        tls = Tls(server_hostname="localhost", min_version=ssl.TLSVersion.TLSv1_3)
    with echoing(context) as address, pytest.raises(OSError) as failed:
        _connect(how, address, tls)
    found: Any = failed.value
    while not isinstance(found, xts_socket.UlpError) and found.__cause__ is not None:  # what trio and anyio make of it
        found = found.__cause__.exceptions[0] if isinstance(found.__cause__, ExceptionGroup) else found.__cause__
    if blame == "version":
        assert isinstance(found, xts_socket.TlsError) and found.errno == errno.EPROTO
    else:
        assert isinstance(found, xts_socket.CertificateError) and found.errno == errno.EKEYREJECTED
        assert isinstance(found, ssl.SSLCertVerificationError) and found.fault == "certificate"
    assert found.strerror


def _connect(how: str, address: tuple[str, int], tls: Tls) -> None:
    if how == "connect":
        xts_socket.create_connection(address, DEADLINE_S, tls=tls).close()
    elif how == "push":
        with xts_socket.create_connection(address, DEADLINE_S) as sock:
            sock.push(tls)
    elif how in ("asyncio", "start_tls"):

        async def on_asyncio() -> None:
            if how == "asyncio":
                await aio.open_connection(*address, tls=tls)
            else:
                _, writer = await aio.open_connection(*address)
                await writer.start_tls(tls)  # type: ignore[arg-type]

        asyncio.run(on_asyncio())
    elif how == "trio":
        trio.run(lambda: xts_socket.trio.open_tcp_stream(*address, tls=tls))
    else:
        anyio.run(lambda: xts_socket.anyio.connect_tcp(*address, tls=tls))


def test_a_push_in_the_midst_and_without_blocking(web: Web, xts_authority: Authority) -> None:
    """As STARTTLS does: plain text before, with nothing lost on either side."""
    context = server_context(xts_authority.issue("localhost"))

    def serve() -> None:
        sock, _ = listener.accept()
        with sock:
            sock.sendall(b"ready?")
            assert sock.recv(3, kernel.MSG_WAITALL) == b"go!"
            with context.wrap_socket(sock, server_side=True) as tls:
                tls.sendall(tls.recv(100).upper())
                assert tls.recv(1) == b""

    with kernel.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        with xts_socket.create_connection(listener.getsockname(), DEADLINE_S) as sock:
            assert sock.recv(6, xts_socket.MSG_WAITALL) == b"ready?"
            sock.sendall(b"go!")
            sock.push(Tls(server_hostname="localhost"))
            sock.sendall(b"quietly")
            assert sock.recv(100) == b"QUIETLY"
        thread.join(DEADLINE_S)
    with xts_socket.create_connection(web.server_address, DEADLINE_S) as sock:
        sock.settimeout(0)
        sock.push(Tls(server_hostname="localhost"))
        with selectors.DefaultSelector() as selector:
            selector.register(sock, selectors.EVENT_WRITE)
            while True:
                try:
                    sock.do_handshake()
                    break
                except BlockingIOError:
                    assert selector.select(DEADLINE_S), "writable when it is done"
        sock.settimeout(DEADLINE_S)
        sock.do_handshake()
        assert page(sock) == bytes(1000)


def test_libraries_that_take_a_context(web: Web) -> None:
    port = web.server_address[1]
    context = xts_socket.ssl_context()

    connection = http.client.HTTPSConnection("localhost", port, timeout=DEADLINE_S, context=context)
    connection._create_connection = xts_socket.create_connection  # type: ignore[attr-defined]
    connection.request("GET", "/1000")
    assert connection.getresponse().read() == bytes(1000)
    assert connection.sock.tls.verified  # type: ignore[attr-defined]
    connection.close()
    with httpx.Client(transport=XtsTransport(tls=True), timeout=DEADLINE_S) as client:
        assert client.get(web.url("/5000")).content == client.post(web.url("/"), content=bytes(5000)).content
        answer = client.get(web.url("/1"))
        assert answer.extensions["network_stream"].get_extra_info("ssl_object").version() == "TLSv1.3"
    with session(tls=True) as client:
        assert client.get(web.url("/5000"), timeout=DEADLINE_S).content == bytes(5000)
        with pytest.raises(ValueError, match="proxy"):
            client.get(web.url("/1"), verify=False)
    with XtsPoolManager(tls=Tls(verify=False)) as pools:
        pools.connection_pool_kw["cert_reqs"] = "CERT_NONE"
        with pytest.warns(match="Unverified"):
            assert pools.request("GET", web.url("/7")).data == bytes(7)
    with pytest.raises(ValueError, match="verify is for TLS in this process"):
        XtsTransport(verify=False, tls=True)


def test_the_standard_library_after_install(web: Web, tmp_path: Path) -> None:
    rules = tmp_path / "rules"
    rules.write_text("use xts tcp_client *:*\n")
    context = xts_socket.ssl_context()
    with (
        xts_socket.offload(rules),
        urllib.request.urlopen(web.url("/1000"), context=context, timeout=DEADLINE_S) as got,
    ):
        assert got.read() == bytes(1000)
    with pytest.raises(ValueError, match="not offloaded"), xts_socket.offload():  # loopback is the kernel's
        urllib.request.urlopen(web.url("/1"), context=context, timeout=DEADLINE_S)


def test_their_errors(xts_authority: Authority) -> None:
    with serving(server_context(self_signed("localhost"))) as web:
        with httpx.Client(transport=XtsTransport(tls=True)) as client, pytest.raises(httpx.ConnectError, match="self"):
            client.get(web.url("/1"))
        with session(tls=True) as client, pytest.raises(requests.exceptions.SSLError):
            client.get(web.url("/1"), timeout=DEADLINE_S)


@pytest.mark.parametrize("loop", LOOPS)
def test_asyncio(web: Web, loop: str) -> None:
    async def fetch(**options: Any) -> None:
        reader, writer = await aio.open_connection("localhost", web.server_address[1], **options)
        if not options:
            await writer.start_tls(Tls(), server_hostname="localhost")  # type: ignore[arg-type]
        writer.write(REQUEST)
        await reader.readuntil(b"\r\n\r\n")
        assert await reader.readexactly(1000) == bytes(1000)
        found = writer.get_extra_info("ssl_object")
        assert found.version() == "TLSv1.3" == writer.get_extra_info("cipher")[1]
        assert ("DNS", "localhost") in writer.get_extra_info("peercert")["subjectAltName"]
        assert isinstance(writer.get_extra_info("sslcontext"), ssl.SSLContext)
        assert writer.get_extra_info("nothing", 7) == 7
        writer.close()
        await writer.wait_closed()

    async def main() -> None:
        for options in ({}, {"tls": True}, {"tls": Tls(alpn="h3")}, {"ssl": Tls()}, {"ssl": xts_socket.ssl_context()}):
            await fetch(**options)
        with kernel.create_connection(web.server_address):
            sock = xts_socket.create_connection(web.server_address, 0.5)
            await fetch_on(sock)
        with pytest.raises(ValueError, match="same time"):
            await aio.open_connection("localhost", 1, tls=True, ssl=True)
        async with httpx.AsyncClient(transport=AsyncXtsTransport(tls=True), timeout=DEADLINE_S) as client:
            assert (await client.get(web.url("/5000"))).content == bytes(5000)

    async def fetch_on(sock: xts_socket.socket) -> None:
        reader, writer = await aio.open_connection(sock=sock, tls=True, server_hostname="localhost")
        writer.write(REQUEST)
        await reader.readuntil(b"\r\n\r\n")
        writer.close()
        await writer.wait_closed()

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(main())


def test_aiohttp(web: Web) -> None:
    async def main() -> None:
        async with aiohttp.ClientSession(connector=XtsConnector(tls=True)) as client:
            async with client.get(web.url("/70000")) as answer:
                assert answer.connection is not None and answer.connection.transport is not None
                assert answer.connection.transport.get_extra_info("ssl_object").version() == "TLSv1.3"
                assert await answer.read() == bytes(70000)

    with asyncio.Runner(loop_factory=aio.EventLoop) as runner:
        runner.run(main())


def test_trio_and_anyio(web: Web) -> None:
    port = web.server_address[1]

    async def on_trio() -> None:
        stream = await xts_socket.trio.open_tcp_stream("localhost", port, tls=True)
        await stream.send_all(REQUEST)
        got = b""
        while len(got.partition(b"\r\n\r\n")[2]) < 1000:
            got += await stream.receive_some()
        assert stream.socket.tls is not None and stream.socket.tls.verified
        await stream.aclose()

    async def on_anyio() -> None:
        async with await xts_socket.anyio.connect_tcp("localhost", port, tls=Tls()) as stream:
            await stream.send(REQUEST)
            got = b""
            while len(got.partition(b"\r\n\r\n")[2]) < 1000:
                got += await stream.receive()
            assert stream.extra(TLSAttribute.tls_version) == "TLSv1.3"
            assert ("DNS", "localhost") in stream.extra(TLSAttribute.peer_certificate)["subjectAltName"]

    trio.run(on_trio)
    for backend in ("asyncio", "trio"):
        anyio.run(on_anyio, backend=backend)


# --- servers ------------------------------------------------------------------------------------------------


def ask(address: Any, context: ssl.SSLContext, data: bytes) -> tuple[bytes, ssl.SSLSocket]:
    """What a server sends back for data, to a client of the kernel's."""
    with kernel.create_connection(address[:2], DEADLINE_S) as sock:
        with context.wrap_socket(sock, server_hostname="localhost") as tls:
            tls.sendall(data)
            got = b""
            while len(got) < len(data) and (part := tls.recv(65536)):
                got += part
            return got, tls


def test_a_server(xts_authority: Authority) -> None:
    context = client_context(xts_authority.certificate)
    context.set_alpn_protocols(["http/1.1"])
    with xts_socket.create_server(("127.0.0.1", 0), tls=SERVER) as listener:
        listener.settimeout(DEADLINE_S)
        address = listener.getsockname()
        seen: list[Any] = []

        def serve() -> None:
            sock, _ = listener.accept()
            with sock:
                assert sock.tls is not None
                seen.extend((sock.tls.selected_alpn_protocol(), sock.tls.server_hostname, sock.tls.getpeercert()))
                while data := sock.recv(65536):
                    sock.sendall(data)

        thread = threading.Thread(target=serve)
        with kernel.create_connection(address, DEADLINE_S) as plain:
            plain.sendall(b"GET / HTTP/1.0\r\n\r\n")  # its handshake fails: it is never seen
            thread.start()
            data = os.urandom(300_000)
            with kernel.create_connection(address, DEADLINE_S) as sock:
                with context.wrap_socket(sock, server_hostname="localhost") as tls:
                    assert exchange(tls, data) == data and tls.selected_alpn_protocol() == "http/1.1"
        thread.join(DEADLINE_S)
        assert seen == ["http/1.1", "localhost", None]


@pytest.mark.parametrize("suppress", [True, False])
def test_an_end_without_that_of_tls(xts_authority: Authority, suppress: bool) -> None:
    """As ssl has it: taken for the end, unless one says that it matters."""
    client = client_context(xts_authority.certificate)

    async def on_asyncio(sock: xts_socket.socket) -> bytes:
        reader, writer = await aio.open_connection(sock=sock)
        try:
            return await reader.read()
        finally:
            writer.close()
            await asyncio.wait([asyncio.ensure_future(writer.wait_closed())])

    def on_asyncio_now(sock: xts_socket.socket) -> bytes:
        return asyncio.run(on_asyncio(sock))

    with xts_socket.create_server(("127.0.0.1", 0), tls=SERVER) as listener:
        listener.settimeout(DEADLINE_S)
        listener.suppress_ragged_eofs = suppress
        for receive in (lambda sock: sock.recv(5), on_asyncio_now):
            with kernel.create_connection(listener.getsockname(), DEADLINE_S) as sock:
                with client.wrap_socket(sock, server_hostname="localhost") as tls:
                    ours, _ = listener.accept()
                    ours.sendall(b"hello")
                    assert tls.recv(5) == b"hello"
            with ours:
                if suppress:
                    assert receive(ours) == b""
                else:
                    with pytest.raises(xts_socket.UlpError) as failed:
                        receive(ours)
                    assert failed.value.errno == errno.EBADMSG and failed.value.fault == "truncated"


@pytest.mark.parametrize("reads", ["the request", "to the end", "and minds"])
def test_a_request_and_fin_are_answered(xts_authority: Authority, reads: str) -> None:
    """FIN without close_notify behind a request (ncat --ssl, .NET, monitoring scripts) says that no more comes, not
    that nobody listens. Whether the server has met it already or will never look makes no difference."""
    client, answer = client_context(xts_authority.certificate), os.urandom(200_000)
    with xts_socket.create_server(("127.0.0.1", 0), tls=SERVER) as listener:
        listener.settimeout(DEADLINE_S)
        listener.suppress_ragged_eofs = reads != "and minds"
        with kernel.create_connection(listener.getsockname(), DEADLINE_S) as sock:
            with client.wrap_socket(sock, server_hostname="localhost", suppress_ragged_eofs=False) as tls:
                tls.sendall(b"request")
                with kernel.socket(fileno=os.dup(tls.fileno())) as below:
                    below.shutdown(kernel.SHUT_WR)
                with listener.accept()[0] as ours:
                    assert ours.recv(7, xts_socket.MSG_WAITALL) == b"request"
                    if reads == "to the end":
                        assert ours.recv(1) == b"" == ours.recv(1)
                    elif reads == "and minds":
                        for _ in range(2):
                            with pytest.raises(xts_socket.UlpError) as failed:
                                ours.recv(1)
                            assert failed.value.errno == errno.EBADMSG and failed.value.fault == "truncated"
                    else:
                        with selectors.DefaultSelector() as selector:  # the proxy knows of the end
                            selector.register(ours, selectors.EVENT_READ)
                            assert selector.select(DEADLINE_S)
                    threading.Thread(target=lambda: (ours.sendall(answer), ours.shutdown(kernel.SHUT_WR))).start()
                    received = b""
                    while data := tls.recv(65536):
                        received += data
                    assert received == answer


@pytest.mark.parametrize("over_tls", [False, True])
def test_errors_of_other_protocols_are_not_those_of_ssl(xts_authority: Authority, over_tls: bool) -> None:
    """By whose fault it is: HTTP/2's is none of TLS, even above TLS, and TLS's is one below HTTP/2."""
    context = client_context(xts_authority.certificate)
    context.set_alpn_protocols(["h2"])
    tls = SERVER if over_tls else None
    with xts_socket.create_server(("127.0.0.1", 0), tls=tls, push=[xts_socket.Http2()]) as listener:
        listener.settimeout(DEADLINE_S)
        for broken in ("http2", "tls") if over_tls else ("http2",):
            with ExitStack() as stack:
                sock: Any = stack.enter_context(kernel.create_connection(listener.getsockname(), DEADLINE_S))
                raw = sock
                if over_tls:
                    sock = stack.enter_context(context.wrap_socket(sock, server_hostname="localhost"))
                    raw = stack.enter_context(kernel.socket(fileno=os.dup(sock.fileno())))
                if broken == "http2":
                    sock.sendall(b"GET / HTTP/1.1\r\n\r\n")
                else:
                    raw.sendall(b"\x17\3\3\0\x20" + bytes(32))  # no record of these keys
                ours = stack.enter_context(listener.accept()[0])
                with pytest.raises(xts_socket.UlpError) as failed:
                    ours.recv_pdu()
                assert isinstance(failed.value, ssl.SSLError) == (broken == "tls"), failed.value
                assert isinstance(failed.value, xts_socket.TlsError) == (broken == "tls")
                assert broken == "tls" or "preface of HTTP/2" in failed.value.strerror


def test_who_leaves_at_once_has_been_there(xts_authority: Authority) -> None:
    """Its connection may be reset, for it leaves session tickets unread, before the proxy announces it: what it sent
    counts."""
    client = client_context(xts_authority.certificate)
    with xts_socket.create_server(("127.0.0.1", 0), tls=SERVER) as listener:
        listener.settimeout(DEADLINE_S)
        for _ in range(5):
            with kernel.create_connection(listener.getsockname(), DEADLINE_S) as sock:
                address = sock.getsockname()
                with client.wrap_socket(sock, server_hostname="localhost") as tls:
                    tls.sendall(b"hello")
            ours, peer = listener.accept()
            with ours:
                assert peer == address and ours.recv(5) == b"hello"


@contextmanager
def before_the_last_flight(
    address: tuple[str, int], context: ssl.SSLContext
) -> Iterator[tuple[kernel.socket, ssl.SSLObject, ssl.MemoryBIO]]:
    """A client that has all it needs from the server, and has not sent its last flight."""
    came, leaves = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(came, leaves, server_hostname="localhost")
    with kernel.create_connection(address, DEADLINE_S) as sock:
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                sock.sendall(leaves.read())
                came.write(sock.recv(65536))
        yield sock, tls, leaves


@pytest.mark.parametrize("end", ["none", "fin", "reset"])
def test_a_request_comes_with_the_end_of_the_handshake(xts_authority: Authority, end: str) -> None:
    """In one segment, so that there is one event for both. Where the client resets, the server cannot send its session
    tickets any more, and that ends nothing."""
    client = client_context(xts_authority.certificate)
    with xts_socket.create_server(("127.0.0.1", 0), tls=SERVER) as listener:
        listener.settimeout(DEADLINE_S)
        for _ in range(20):
            with before_the_last_flight(listener.getsockname(), client) as (sock, tls, leaves):
                tls.write(b"hello")
                sock.sendall(leaves.read())
                if end == "reset":
                    sock.setsockopt(kernel.SOL_SOCKET, kernel.SO_LINGER, struct.pack("ii", 1, 0))
                    sock.close()
                elif end == "fin":
                    sock.shutdown(kernel.SHUT_WR)
                with listener.accept()[0] as ours:
                    assert ours.recv(5) == b"hello"
                    if end == "fin":
                        assert ours.recv(1) == b""


def test_a_reset_behind_the_handshake_is_told_as_one(xts_authority: Authority) -> None:
    """The kernel tells it once, and may tell it to who sends the session tickets."""
    client = client_context(xts_authority.certificate)
    with xts_socket.create_server(("127.0.0.1", 0), tls=SERVER) as listener:
        listener.settimeout(DEADLINE_S)
        for _ in range(20):
            with before_the_last_flight(listener.getsockname(), client) as (sock, tls, leaves):
                sock.sendall(leaves.read())
                tls.write(b"hello")
                sock.sendall(leaves.read())
                # what waits for an acknowledgement goes with the client's socket
                sock.setsockopt(kernel.SOL_SOCKET, kernel.SO_LINGER, struct.pack("ii", 1, 0))
            with listener.accept()[0] as ours:
                with suppress(ConnectionResetError):
                    assert ours.recv(5) == b"hello"


def test_a_server_that_wants_to_know_its_clients(xts_authority: Authority) -> None:
    with xts_socket.create_server(
        ("127.0.0.1", 0), tls=Tls(identity="localhost", verify=True, ca="default")
    ) as listener:
        listener.settimeout(DEADLINE_S)
        client = client_context(xts_authority.certificate, xts_authority.issue("a client"))
        with kernel.create_connection(listener.getsockname(), DEADLINE_S) as sock:
            with client.wrap_socket(sock, server_hostname="localhost"):
                ours, _ = listener.accept()
                with ours:
                    assert ours.tls is not None and ours.tls.verified
                    assert ours.tls.getpeercert()["subject"] == ((("commonName", "a client"),),)
        ours = xts_socket.create_connection(
            listener.getsockname(), DEADLINE_S, tls=Tls(server_hostname="localhost", identity="localhost")
        )
        with ours, listener.accept()[0] as theirs:
            assert theirs.tls is not None and theirs.tls.verified
    with pytest.raises(xts_socket.UlpError, match="TRUST"):
        xts_socket.create_server(("127.0.0.1", 0), tls=Tls(identity="localhost", verify=True))
    with pytest.raises(xts_socket.UlpError, match="nobody"):
        xts_socket.create_server(("127.0.0.1", 0), tls=Tls(identity="nobody"))


def test_async_servers(xts_authority: Authority) -> None:
    context = client_context(xts_authority.certificate)
    context.set_alpn_protocols(["http/1.1"])

    async def on_asyncio() -> None:
        async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                assert writer.get_extra_info("ssl_object").selected_alpn_protocol() == "http/1.1"
                while data := await reader.read(65536):
                    writer.write(data)
            finally:  # also when the loop ends, which the client does not wait for
                writer.close()

        for options in ({"tls": SERVER}, {"ssl": SERVER}, {"ssl": xts_socket.ssl_context(SERVER)}):
            async with await aio.start_server(echo, "127.0.0.1", 0, **options) as server:
                address = server.sockets[0].getsockname()
                got, _ = await asyncio.to_thread(ask, address, context, b"hello")
                assert got == b"hello"

    async def on_trio() -> None:
        async def echo(stream: xts_socket.trio.SocketStream) -> None:
            async for data in stream:
                await stream.send_all(data)

        async with trio.open_nursery() as nursery:
            serve = lambda task_status: xts_socket.trio.serve_tcp(  # noqa: E731
                echo, 0, host="127.0.0.1", tls=SERVER, task_status=task_status
            )
            listeners = await nursery.start(lambda *, task_status: serve(task_status))
            address = listeners[0].socket.getsockname()
            assert (await trio.to_thread.run_sync(ask, address, context, b"hello"))[0] == b"hello"
            nursery.cancel_scope.cancel()

    async def on_anyio() -> None:
        async with await xts_socket.anyio.create_tcp_listener(local_host="127.0.0.1", tls=SERVER) as listener:
            address = ("127.0.0.1", listener.extra(anyio.abc.SocketAttribute.local_port))

            async def echo(stream: anyio.abc.ByteStream) -> None:
                async with stream:
                    assert stream.extra(TLSAttribute.alpn_protocol) == "http/1.1"
                    async for data in stream:
                        await stream.send(data)

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(listener.serve, echo)
                assert (await anyio.to_thread.run_sync(ask, address, context, b"hello"))[0] == b"hello"
                tasks.cancel_scope.cancel()

    asyncio.run(on_asyncio())
    trio.run(on_trio)
    anyio.run(on_anyio)


# --- examples -----------------------------------------------------------------------------------------------


def command(name: str, *arguments: str) -> list[str]:
    return [sys.executable, "-W", "error::ResourceWarning", str(EXAMPLES / name), *arguments]


@contextmanager
def server_example(name: str, xts_endpoint: ProxyProcess) -> Iterator[int]:
    """An example that serves; its port."""
    port = free_port()
    environment = os.environ | {"XTS_ENDPOINT": xts_endpoint.endpoint}
    with subprocess.Popen(command(name, str(port), "localhost"), env=environment) as server:
        try:
            yield port
        finally:
            server.terminate()


@pytest.mark.parametrize("name", ["hypercorn_serve.py", "uvicorn_serve.py"])
def test_servers_of_others(name: str, xts_endpoint: ProxyProcess) -> None:
    pytest.importorskip("hypercorn", reason="hypercorn is not installed")
    pytest.importorskip("uvicorn", reason="uvicorn is not installed")
    http2 = name.startswith("hypercorn")
    with server_example(name, xts_endpoint) as port:
        transport = XtsTransport(tls=True, http2=http2, retries=0)
        with httpx.Client(transport=transport, timeout=DEADLINE_S) as client:
            deadline = threading.Event()
            for _ in range(200):
                try:
                    answer = client.get(f"https://localhost:{port}/")
                    break
                except httpx.ConnectError as failure:
                    assert "refused" in str(failure)
                    deadline.wait(0.1)
            assert answer.status_code == 200 and answer.text.startswith("hello from")
            assert answer.http_version == ("HTTP/2" if http2 else "HTTP/1.1")


def test_fetching_with_tls(web: Web, xts_endpoint: ProxyProcess) -> None:
    done = subprocess.run(
        command("tls_fetch.py", web.url("/1000")),
        env=os.environ | {"XTS_ENDPOINT": xts_endpoint.endpoint},
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE_S,
    )
    assert done.returncode == 0, done.stderr
    assert "TLSv1.3" in done.stdout and "1000 bytes" in done.stdout


@pytest.mark.parametrize("how", ["Tls", "context", "asyncio"])
@pytest.mark.parametrize("name", ["bücher.test", "BÜCHER.test", "xn--bcher-kva.test"])
def test_an_international_name(name: str, how: str, xts_authority: Authority) -> None:
    """It is asked for, and its certificate checked, in the form that it has in the certificate (IDNA)."""
    issued = xts_authority.issue("xn--bcher-kva.test")
    context = server_context(issued)
    asked: list[str | None] = []
    context.sni_callback = lambda _sock, wanted, _context: asked.append(wanted)
    with echoing(context) as address:
        if how == "asyncio":

            async def fetch() -> bytes:
                reader, writer = await aio.open_connection(*address, ssl=Tls(), server_hostname=name)
                writer.write(b"hello")
                data = await reader.readexactly(5)
                writer.close()
                await writer.wait_closed()
                return data

            assert asyncio.run(fetch()) == b"hello"
        else:
            with xts_socket.create_connection(address, DEADLINE_S) as sock:
                if how == "Tls":
                    sock.push(Tls(server_hostname=name))
                else:
                    xts_socket.ssl_context(Tls()).wrap_socket(sock, server_hostname=name)
                sock.sendall(b"hello")
                assert sock.recv(5) == b"hello"
    assert [(one or "").lower() for one in asked] == ["xn--bcher-kva.test"]
