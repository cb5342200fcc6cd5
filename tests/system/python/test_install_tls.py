"""TLS over offloaded sockets: SSLContext.wrap_socket() after install(), and xts_socket.wrap_ssl()."""

from __future__ import annotations

import hashlib
import http.client
import os
import select
import socket
import ssl
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import xts_socket
from beds.authority import Certificate, certificate_for_localhost
from beds.proxy_process import ProxyProcess
from test_install import DEADLINE_S, EVERYTHING, STANDARD, Handler
from xts_socket import Reason

pytestmark = pytest.mark.usefixtures("xts_endpoint")

STANDARD_TLS = ssl.SSLSocket
LARGE = 3 << 20


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return certificate_for_localhost(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def installed(tmp_path: Path, xts_endpoint: ProxyProcess) -> Iterator[None]:
    rules = tmp_path / "rules"
    rules.write_text(EVERYTHING)
    with xts_socket.offload(rules):
        yield


@contextmanager
def peer(talk: Callable[[Any], None], context: ssl.SSLContext | None) -> Iterator[tuple[str, int]]:
    """A server of the kernel's, that talks with one client, in TLS if there is a context."""
    failures: list[BaseException] = []

    def serve() -> None:
        try:
            sock = STANDARD.accept(listener)[0]
            sock.settimeout(DEADLINE_S)
            plain = STANDARD(fileno=sock.detach())
            plain.settimeout(DEADLINE_S)
            with plain if context is None else context.wrap_socket(plain, server_side=True) as wrapped:
                talk(wrapped)
        except BaseException as failure:
            failures.append(failure)

    with STANDARD() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        listener.settimeout(DEADLINE_S)
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()
        finally:
            thread.join(DEADLINE_S)
        assert not thread.is_alive()
        if failures:
            raise failures[0]


def echo(sock: Any) -> None:
    while data := sock.recv(65536):
        sock.sendall(data)


def client(context: ssl.SSLContext, address: tuple[str, int], **settings: Any) -> Any:
    """A TLS client over an offloaded socket, the way programs make one."""
    sock = socket.create_connection(address, DEADLINE_S)
    assert sock.reason is Reason.NONE  # type: ignore[attr-defined]
    return context.wrap_socket(sock, server_hostname="localhost", **settings)


def test_a_round_trip_of_much_data(installed: None, certificate: Certificate) -> None:
    content = os.urandom(LARGE)
    with peer(echo, certificate.server_context()) as address:
        with client(certificate.client_context(), address) as sock:
            assert isinstance(sock, ssl.SSLSocket) and sock.version() in ("TLSv1.2", "TLSv1.3")
            sender = threading.Thread(target=sock.sendall, args=(content,))
            sender.start()
            digest, got = hashlib.sha256(), 0
            while got < LARGE:
                data = sock.recv(100_000)
                digest.update(data)
                got += len(data)
            sender.join(DEADLINE_S)
            assert digest.digest() == hashlib.sha256(content).digest()
            sock.unwrap()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_what_the_connection_is(installed: None, certificate: Certificate, version: ssl.TLSVersion) -> None:
    server_context, context = certificate.server_context(), certificate.client_context()
    names: list[str | None] = []
    server_context.sni_callback = lambda _sock, name, _context: names.append(name)
    server_context.set_alpn_protocols(["h2", "http/1.1"])
    context.set_alpn_protocols(["http/1.1"])
    context.minimum_version = context.maximum_version = version
    with peer(echo, server_context) as address, client(context, address) as sock:
        assert names == ["localhost"]
        assert sock.selected_alpn_protocol() == "http/1.1"
        assert ("DNS", "localhost") in sock.getpeercert()["subjectAltName"]
        assert sock.getpeercert(True) == ssl.PEM_cert_to_DER_cert(certificate.certificate.read_text())
        assert sock.cipher()[0] and sock.version() and sock.compression() is None
        assert (sock.server_hostname, sock.server_side, sock.context) == ("localhost", False, context)
        assert sock.getpeername() == address and sock.family == socket.AF_INET
        assert sock.get_channel_binding() if version is ssl.TLSVersion.TLSv1_2 else True
        sock.sendall(b"x")
        assert sock.recv(1) == b"x"
        assert sock.session is not None and sock.session_reused is False
        sock.unwrap()


def test_a_server_that_chooses_a_context_by_name(installed: None, certificate: Certificate, tmp_path: Path) -> None:
    """The callback gets the socket that the program has, and its choice is that socket's context."""
    other = certificate_for_localhost(tmp_path)
    first, second = certificate.server_context(), other.server_context()
    given: list[Any] = []

    def choose(sock: Any, name: str | None, context: ssl.SSLContext) -> None:
        given.append((sock, name, context))
        sock.context = second

    first.sni_callback = choose
    made: list[Any] = []

    def serve() -> None:
        sock = first.wrap_socket(listener.accept()[0], server_side=True, do_handshake_on_connect=False)
        with sock:
            made.append(sock)
            sock.do_handshake()
            made.append(sock.context)
            sock.sendall(b"x")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert listener.reason is Reason.NONE  # type: ignore[attr-defined]
        listener.settimeout(DEADLINE_S)
        thread = threading.Thread(target=serve)
        thread.start()
        with client(other.client_context(), listener.getsockname()) as sock:
            assert sock.recv(1) == b"x"
            assert sock.getpeercert(True) == ssl.PEM_cert_to_DER_cert(other.certificate.read_text())
        thread.join(DEADLINE_S)
    assert isinstance(made[0], ssl.SSLSocket) and made[1] is second
    assert given == [(made[0], "localhost", first)]


def test_unwrap_leaves_the_stream_at_the_plain_text(installed: None, certificate: Certificate) -> None:
    def talk(sock: Any) -> None:
        assert sock.recv(4) == b"stop"
        plain = sock.unwrap()
        plain.sendall(b"plain text")
        assert plain.recv(3) == b"bye"

    with peer(talk, certificate.server_context()) as address, client(certificate.client_context(), address) as sock:
        sock.sendall(b"stop")
        plain = sock.unwrap()
        assert plain.makefile("rb").read(10) == b"plain text"
        plain.sendall(b"bye")
        with pytest.raises(ValueError, match="unwrapped"):
            sock.read(1)


def test_pending_and_select_hide_nothing(installed: None, certificate: Certificate) -> None:
    context = certificate.client_context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2  # no tickets after the handshake
    server_context = certificate.server_context()

    def talk(sock: Any) -> None:
        sock.sendall(b"abc")
        sock.sendall(b"def")
        assert sock.recv(1) == b""

    with peer(talk, server_context) as address, client(context, address) as sock:
        assert sock.recv(1) == b"a" and sock.pending() == 2
        assert sock.recv(10) == b"bc" and sock.pending() == 0
        assert select.select([sock], [], [], DEADLINE_S)[0] == [sock]
        assert sock.recv(10) == b"def"


def test_timeouts(installed: None, certificate: Certificate) -> None:
    done = threading.Event()
    with peer(lambda sock: done.wait(DEADLINE_S) and None, certificate.server_context()) as address:
        with client(certificate.client_context(), address) as sock:
            sock.settimeout(0.05)
            with pytest.raises(TimeoutError, match="read operation timed out"):
                sock.recv(1)
            with pytest.raises(TimeoutError, match="write operation timed out"):
                while True:
                    sock.sendall(bytes(1 << 20))
        done.set()


def test_a_handshake_that_nobody_answers_times_out(installed: None, certificate: Certificate) -> None:
    done = threading.Event()
    with peer(lambda sock: done.wait(DEADLINE_S) and None, None) as address:
        sock = socket.create_connection(address, 0.1)
        with pytest.raises(TimeoutError):
            certificate.client_context().wrap_socket(sock, server_hostname="localhost")
        assert sock.fileno() == -1
        done.set()


def test_non_blocking(installed: None, certificate: Certificate) -> None:
    """As event loops do: writes until one is refused, then both ways; the refused one is made again as it was."""
    block = os.urandom(50_000)
    with peer(echo, certificate.server_context()) as address:
        with client(certificate.client_context(), address, do_handshake_on_connect=False) as sock:
            sock.setblocking(False)
            wait_for(sock, sock.do_handshake)
            received, sent, refused, offset = bytearray(), 0, 0, 0
            again = False  # TLS has a part of what was refused: it has to be sent before the connection ends
            while len(received) < sent or not refused or again:
                writing = not refused or again or sent < LARGE
                select.select([sock] if refused else [], [sock] if writing else [], [], DEADLINE_S)
                with suppress(ssl.SSLWantReadError):
                    while refused:
                        received += sock.recv(65536)
                try:
                    while writing:
                        count = sock.send(memoryview(block)[offset:])
                        offset = (offset + count) % len(block)
                        sent += count
                        writing, again = not refused, False
                except ssl.SSLWantWriteError:
                    refused, again = refused + 1, True
            assert len(received) == sent >= LARGE
            assert received == (block * (sent // len(block) + 1))[:sent]
            wait_for(sock, sock.unwrap)


def wait_for(sock: Any, step: Callable[[], Any]) -> None:
    while True:
        try:
            step()
            return
        except ssl.SSLWantReadError:
            assert select.select([sock], [], [], DEADLINE_S)[0]
        except ssl.SSLWantWriteError:
            assert select.select([], [sock], [], DEADLINE_S)[1]


def test_a_server(installed: None, certificate: Certificate) -> None:
    """The listener is wrapped, and hands out wrapped sockets."""
    with socket.create_server(("127.0.0.1", 0)) as plain:
        listener = certificate.server_context().wrap_socket(plain, server_side=True)
        with listener:
            answers: list[bytes] = []

            def connect() -> None:
                with STANDARD() as sock:
                    sock.settimeout(DEADLINE_S)
                    sock.connect(listener.getsockname())
                    context = certificate.client_context()
                    with context.wrap_socket(STANDARD(fileno=sock.detach()), server_hostname="localhost") as wrapped:
                        wrapped.sendall(b"ask")
                        answers.append(wrapped.recv(6))

            thread = threading.Thread(target=connect)
            thread.start()
            accepted, _ = listener.accept()
            with accepted:
                assert type(accepted) is not STANDARD_TLS and accepted.recv(3) == b"ask"
                accepted.sendall(b"answer")
                thread.join(DEADLINE_S)
            assert answers == [b"answer"]


def test_wrapped_before_it_is_connected(installed: None, certificate: Certificate) -> None:
    with peer(echo, certificate.server_context()) as address:
        with certificate.client_context().wrap_socket(socket.socket(), server_hostname="localhost") as sock:
            with pytest.raises(OSError):
                sock.getpeercert()
            sock.connect(address)
            assert sock.getpeercert() and sock._sock.reason is Reason.NONE  # type: ignore[attr-defined]
            sock.sendall(b"late")
            assert sock.recv(4) == b"late"


def test_faults_are_errors(installed: None, certificate: Certificate) -> None:
    def garbage(sock: Any) -> None:
        sock.sendall(b"HTTP/1.0 400 this is no TLS\r\n\r\n")
        sock.recv(1)

    with peer(garbage, None) as address, pytest.raises(ssl.SSLError, match="WRONG_VERSION_NUMBER"):
        client(certificate.client_context(), address)
    with peer(lambda sock: None, None) as address, pytest.raises((ssl.SSLError, ConnectionError)):
        client(certificate.client_context(), address)

    with peer(echo, certificate.server_context()) as address, client(certificate.client_context(), address) as sock:
        for call, arguments in ((sock.recv, (1, 1)), (sock.recvfrom, (1,)), (sock.sendto, (b"", 0))):
            with pytest.raises(ValueError):
                call(*arguments)


@pytest.mark.parametrize("suppressed", [True, False])
@pytest.mark.parametrize("ignored", [True, False])
def test_an_end_without_close_notify(
    installed: None, certificate: Certificate, suppressed: bool, ignored: bool
) -> None:
    """The same outcome as on the standard class, whatever that is in this version of Python."""
    context = certificate.client_context()
    if not ignored:
        context.options &= ~ssl.OP_IGNORE_UNEXPECTED_EOF
    outcomes = []
    for make in (STANDARD, socket.socket):
        with peer(lambda sock: sock.sendall(b"cut"), certificate.server_context()) as address, make() as plain:
            plain.settimeout(DEADLINE_S)
            plain.connect(address)
            with context.wrap_socket(plain, server_hostname="localhost", suppress_ragged_eofs=suppressed) as sock:
                assert sock.recv(3) == b"cut"
                try:
                    outcomes.append((sock.recv(1), sock.recv_into(bytearray(1))))
                except ssl.SSLError as failure:
                    outcomes.append((type(failure), failure.reason))
    assert outcomes[0] == outcomes[1]


def test_an_untrusted_certificate_is_refused(installed: None, certificate: Certificate) -> None:
    def refused(sock: Any) -> None:
        raise AssertionError("the handshake was to fail")

    with pytest.raises(ssl.SSLError, match=r"(?i)unknown.ca"), peer(refused, certificate.server_context()) as address:
        with pytest.raises(ssl.SSLCertVerificationError):
            client(ssl.create_default_context(), address)


def test_a_socket_of_the_kernels_is_wrapped_as_ever(certificate: Certificate) -> None:
    with xts_socket.offload(), peer(echo, certificate.server_context()) as address:
        with socket.create_connection(address, DEADLINE_S) as plain:
            with certificate.client_context().wrap_socket(plain, server_hostname="localhost") as sock:
                assert type(sock) is STANDARD_TLS
                sock.sendall(b"k")
                assert sock.recv(1) == b"k"


def test_wrap_ssl_without_install(certificate: Certificate) -> None:
    with peer(echo, certificate.server_context()) as address:
        sock = xts_socket.create_connection(address, DEADLINE_S)
        with xts_socket.wrap_ssl(sock, certificate.client_context(), server_hostname="localhost") as wrapped:
            assert sock.fileno() == -1
            wrapped.sendall(b"direct")
            assert wrapped.makefile("rb").read(6) == b"direct"


def test_tls_over_tls(certificate: Certificate) -> None:
    """As through an HTTPS proxy; both ends are ours."""
    with xts_socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            sock: Any = listener.accept()[0]
            sock.settimeout(DEADLINE_S)
            for _ in range(2):
                sock = xts_socket.wrap_ssl(sock, certificate.server_context(), server_side=True)
            with sock:
                echo(sock)

        thread = threading.Thread(target=serve)
        thread.start()
        sock: Any = xts_socket.create_connection(listener.getsockname(), DEADLINE_S)
        for _ in range(2):
            sock = xts_socket.wrap_ssl(sock, certificate.client_context(), server_hostname="localhost")
        with sock:
            sock.sendall(bytes(100_000))
            assert len(sock.makefile("rb").read(100_000)) == 100_000
            sock.unwrap()
        thread.join(DEADLINE_S)
        assert not thread.is_alive()


def test_https(installed: None, certificate: Certificate, tmp_path: Path) -> None:
    from http.server import ThreadingHTTPServer

    class Server(ThreadingHTTPServer):
        def get_request(self) -> Any:
            sock, address = super().get_request()
            return certificate.server_context().wrap_socket(sock, server_side=True), address

    context = certificate.client_context()
    with Server(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        port = server.server_address[1]
        with closing(http.client.HTTPSConnection("localhost", port, timeout=DEADLINE_S, context=context)) as connection:
            for path in ("/a", "/b"):
                connection.request("GET", path)
                assert connection.getresponse().read() == path.encode()
            assert connection.sock._sock.reason is Reason.NONE
        handlers = (urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
        with urllib.request.build_opener(*handlers).open(f"https://localhost:{port}/c", timeout=DEADLINE_S) as answer:
            assert answer.read() == b"/c"
        server.shutdown()
