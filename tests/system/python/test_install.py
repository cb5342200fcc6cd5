"""install() and offload(): the standard module's sockets, offloaded by rules, and undone."""

from __future__ import annotations

import asyncio
import errno
import gc
import http.client
import os
import select
import selectors
import socket
import ssl
import subprocess
import sys
import threading
import urllib.request
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import xts_socket
from beds.patience import SLOWER
from beds.preload import preload_library
from beds.proxy_process import ProxyProcess, running_proxy
from xts_socket import Reason
from xts_socket.cli.processes.interposed import find, reason_name

pytestmark = pytest.mark.usefixtures("xts_endpoint")

DEADLINE_S = 10.0 * SLOWER
STANDARD = socket.socket
SERVERS_STAY = "use os tcp_server *:*\n"
EVERYTHING = "use xts tcp_client *:*\nuse xts tcp_server *:*\n"


@pytest.fixture
def installed(rules: Callable[[str], Path]) -> Iterator[None]:
    """Everything is offloaded, loopback included."""
    assert xts_socket.install(rules(EVERYTHING))
    try:
        yield
    finally:
        xts_socket.uninstall()
        assert socket.socket is STANDARD


@pytest.fixture
def kernel_listener() -> Iterator[socket.socket]:
    with STANDARD() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        listener.settimeout(DEADLINE_S)
        yield listener


def connected(listener: socket.socket) -> tuple[Any, socket.socket]:
    sock = socket.create_connection(listener.getsockname(), DEADLINE_S)
    return sock, STANDARD.accept(listener)[0]


# --- what is replaced --------------------------------------------------------------------------------------------


def test_install_and_uninstall(rules: Callable[[str], Path]) -> None:
    names = [(socket, "socket"), (socket, "fromfd"), (socket, "dup"), (socket, "close"), (os, "sendfile")]
    names += [(os, name) for name in ("read", "write", "close", "fdopen")]
    names += [(ssl.SSLSocket, "_create"), (subprocess.Popen, "__init__")]
    before = [getattr(owner, name) for owner, name in names]
    assert xts_socket.install(rules(EVERYTHING)) and xts_socket.install()
    try:
        assert all(getattr(owner, name) is not was for (owner, name), was in zip(names, before, strict=True))
    finally:
        xts_socket.uninstall()
        xts_socket.uninstall()
    assert [getattr(owner, name) for owner, name in names] == before


def test_a_block_reads_nothing_twice(rules: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be one for each request. A file that has changed is read again."""
    opened: list[str] = []
    on = [True]
    sys.addaudithook(lambda name, arguments: opened.append(str(arguments[0])) if name == "open" and on else None)
    file = rules(EVERYTHING)
    with xts_socket.offload(file):
        assert socket.getaddrinfo is not None
    del opened[:]
    parsed: list[str] = []
    read = xts_socket._rules.Rules.read
    monkeypatch.setattr(xts_socket._rules.Rules, "read", lambda path: parsed.append(path) or read(path))
    for _ in range(3):
        with xts_socket.offload(file), xts_socket.offload():
            pass
    on.clear()
    assert (opened, parsed) == ([], [])
    file.write_text(EVERYTHING + "# changed\n")
    with xts_socket.offload(file):
        pass
    assert parsed == [str(file)]


def test_wrong_rules_change_nothing(rules: Callable[[str], Path]) -> None:
    path = rules("use xts tcp_client *:*\nuse xts tcp_clients *:*\n")
    with pytest.raises(ValueError, match=rf"{path}:2:\d+: expected"):
        xts_socket.install(path)
    with pytest.raises(FileNotFoundError):
        xts_socket.install("/nonexistent/rules")
    assert socket.socket is STANDARD


def test_under_the_interposer_nothing_is_done_and_that_is_said(xts_endpoint: ProxyProcess) -> None:
    program = (
        "import socket, warnings, xts_socket\n"
        "with warnings.catch_warnings(record=True) as caught:\n"
        "    warnings.simplefilter('always')\n"
        "    before = socket.socket\n"
        "    print(xts_socket.install(), socket.socket is before, len(caught), caught[0].message)\n"
        "    with xts_socket.offload(): print(socket.socket is before, len(caught))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "LD_PRELOAD": f"{os.environ.get('LD_PRELOAD', '')} {preload_library()}".strip()},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    first, second = done.stdout.splitlines()
    assert first.startswith("False True 1 this process runs under libxts-preload"), done.stderr
    assert second == "True 2"


def test_the_reasons_are_those_of_the_interposer() -> None:
    assert {reason.value: reason.name for reason in Reason if reason} == {
        number: reason_name(number) for number in range(1, len(Reason))
    }


def test_instances(kernel_listener: socket.socket) -> None:
    with xts_socket.offload():
        with socket.socket() as sock:
            assert (
                isinstance(sock, STANDARD) and isinstance(sock, socket.socket) and isinstance(sock, socket.SocketType)
            )
            assert sock.reason is None
        assert isinstance(kernel_listener, socket.socket)
        assert not isinstance(3, socket.socket)

        class Mine(socket.socket):
            pass

        assert not isinstance(kernel_listener, Mine)


# --- deciding ------------------------------------------------------------------------------------------------------


def test_a_client(installed: None, kernel_listener: socket.socket) -> None:
    sock, peer = connected(kernel_listener)
    with sock, peer:
        assert sock.reason is Reason.NONE
        assert sock.getpeername() == kernel_listener.getsockname()
        assert sock.getsockname() == sock._ours.getsockname()
        sock.sendall(b"there")
        assert peer.recv(5) == b"there"
        peer.sendall(b"back\n")
        assert sock.makefile("rb").readline() == b"back\n"


def test_a_server(installed: None) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, STANDARD() as peer:
        assert listener.reason is Reason.NONE
        peer.connect(listener.getsockname())
        accepted, address = listener.accept()
        with accepted:
            assert accepted.reason is Reason.NONE and address == peer.getsockname()
            accepted.sendall(b"hello")
            assert peer.recv(5) == b"hello"
            assert select.select([accepted], [], [], 0)[0] == []
            peer.sendall(b"!")
            assert select.select([accepted], [], [], DEADLINE_S)[0] == [accepted]


def test_default_rules_leave_loopback_to_the_kernel(kernel_listener: socket.socket) -> None:
    before = xts_socket.reasons().get(Reason.RULE, 0)
    with xts_socket.offload():
        sock, peer = connected(kernel_listener)
        with sock, peer, socket.create_server(("127.0.0.1", 0)) as listener:
            assert sock.reason is listener.reason is Reason.RULE
    assert xts_socket.reasons()[Reason.RULE] == before + 2


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ((socket.AF_UNIX,), Reason.FAMILY),
        ((socket.AF_INET, socket.SOCK_DGRAM), Reason.PROTOCOL),
        ((socket.AF_INET, socket.SOCK_STREAM, 132), Reason.PROTOCOL),  # SCTP
    ],
)
def test_what_is_never_offloaded(installed: None, kind: tuple[int, ...], reason: Reason) -> None:
    try:
        sock = socket.socket(*kind)
    except OSError as failure:
        pytest.skip(f"the kernel has none: {failure}")
    with sock:
        assert sock.reason is reason  # type: ignore[attr-defined]


def test_mptcp_is_tcp(installed: None, kernel_listener: socket.socket) -> None:
    try:
        sock = socket.socket(proto=262)
    except OSError as failure:
        pytest.skip(f"the kernel has none: {failure}")
    with sock:
        sock.connect(kernel_listener.getsockname())
        assert sock.reason is Reason.NONE  # type: ignore[attr-defined]


@pytest.mark.parametrize("proto", [0, socket.IPPROTO_TCP])
def test_the_protocol_is_the_one_that_was_given(proto: int, installed: None) -> None:
    """As in the standard library: `proto` says what the program has given, and accepted sockets have the listener's."""
    with socket.socket(proto=proto) as listener, socket.socket(proto=proto) as client:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        client.connect(listener.getsockname())
        with listener.accept()[0] as accepted, accepted.dup() as copy:
            assert [s.proto for s in (listener, client, accepted, copy)] == [proto] * 4
        assert client.reason is Reason.NONE  # type: ignore[attr-defined]


@pytest.mark.parametrize("proto", [0, socket.IPPROTO_UDP])
def test_the_protocol_of_a_datagram_socket(proto: int, rules: Callable[[str], Path]) -> None:
    with (
        xts_socket.offload(rules("use xts udp_receiver *:*\n")),
        socket.socket(type=socket.SOCK_DGRAM, proto=proto) as sock,
    ):
        sock.bind(("127.0.0.1", 0))
        assert sock.reason is Reason.NONE  # type: ignore[attr-defined]
        assert sock.proto == proto


def test_a_connection_bound_before(installed: None, kernel_listener: socket.socket) -> None:
    sock = socket.create_connection(kernel_listener.getsockname(), DEADLINE_S, ("127.0.0.1", 0))
    with sock, STANDARD.accept(kernel_listener)[0] as peer:
        assert sock.reason is Reason.NONE  # type: ignore[attr-defined]
        assert peer.getpeername() == sock.getsockname()


def test_bound_as_a_server_then_connected_where_clients_stay(
    rules: Callable[[str], Path], kernel_listener: socket.socket
) -> None:
    path = rules("use os tcp_client *:*\nuse xts tcp_server *:*\n")
    with xts_socket.offload(path), socket.socket() as sock:
        number = sock.fileno()
        sock.settimeout(DEADLINE_S)
        sock.bind(("127.0.0.1", 0))
        assert sock.reason is Reason.NONE  # type: ignore[attr-defined]
        bound = sock.getsockname()
        sock.connect(kernel_listener.getsockname())
        assert sock.reason is Reason.RULE  # type: ignore[attr-defined]
        assert (sock.fileno(), sock.getsockname(), sock.gettimeout()) == (number, bound, DEADLINE_S)
        with STANDARD.accept(kernel_listener)[0] as peer:
            peer.sendall(b"x")
            assert select.select([number], [], [], DEADLINE_S)[0] and sock.recv(1) == b"x"


def test_options_are_kept(installed: None, kernel_listener: socket.socket) -> None:
    with socket.socket() as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 77)
        sock.settimeout(3.5)
        sock.connect(kernel_listener.getsockname())
        assert sock.reason is Reason.NONE  # type: ignore[attr-defined]
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 77
        assert (sock.gettimeout(), sock.timeout) == (3.5, 3.5)


def test_a_socket_at_the_loopback_device_is_the_kernels(
    rules: Callable[[str], Path], kernel_listener: socket.socket
) -> None:
    with xts_socket.offload(rules(EVERYTHING), strict=True):
        for names, reason in (((b"lo",), Reason.RULE), ((b"lo", b""), Reason.NONE)):
            with socket.socket() as sock:
                for name in names:
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, name)
                sock.connect(kernel_listener.getsockname())
                assert sock.reason is reason  # type: ignore[attr-defined]


def test_an_option_that_the_proxy_refuses_is_a_reason(
    rules: Callable[[str], Path], kernel_listener: socket.socket
) -> None:
    for strict in (False, True):
        with xts_socket.offload(rules(EVERYTHING), strict=strict), socket.socket() as sock:
            sock.setsockopt(socket.SOL_SOCKET, 60, 1)  # SO_ZEROCOPY
            if strict:
                with pytest.raises(OSError) as caught:
                    sock.connect(kernel_listener.getsockname())
                assert caught.value.errno == errno.EOPNOTSUPP
            else:
                sock.connect(kernel_listener.getsockname())
                assert sock.reason is Reason.OPTION  # type: ignore[attr-defined]


def test_an_address_that_only_the_host_has(rules: Callable[[str], Path]) -> None:
    """The proxy's machine is this one: so an address that the proxy does not let hosts use stands for it."""
    with xts_socket.offload(rules(EVERYTHING)), socket.socket() as sock:
        with pytest.raises(OSError) as caught:
            sock.bind(("192.0.2.1", 0))
        assert caught.value.errno == errno.EADDRNOTAVAIL
        assert sock.reason is None  # type: ignore[attr-defined]


def test_without_an_endpoint(tmp_path: Path) -> None:
    program = (
        "import socket, sys, xts_socket\n"
        "listener = socket.create_server(('127.0.0.1', 0))\n"
        "xts_socket.install(sys.argv[1], strict=sys.argv[2] == 'strict')\n"
        "try: print(socket.create_connection(listener.getsockname()).reason.name)\n"
        "except OSError as failure: print(failure.errno)\n"
    )
    path = tmp_path / "rules"
    path.write_text(EVERYTHING)
    for strict, expected in (("", "NO_ENDPOINT"), ("strict", str(errno.ENETDOWN))):
        done = subprocess.run(
            [sys.executable, "-c", program, str(path), strict],
            env={**os.environ, "XTS_ENDPOINT": str(tmp_path / "nobody.sock")},
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.stdout.split() == [expected], done.stderr


def test_status_shows_them(rules: Callable[[str], Path], kernel_listener: socket.socket) -> None:
    path = rules(f"# clients\nuse xts tcp_client *:*\nuse os tcp_client 127.0.0.1/32:*\n{SERVERS_STAY}")
    with xts_socket.offload(path), socket.socket() as unused, socket.create_server(("127.0.0.1", 0)) as stayed:
        sock, peer = connected(kernel_listener)
        with sock, peer:
            mine = next(process for process in find() if process.pid == os.getpid())
            shown = {entry.fd: entry for entry in mine.descriptors}
            there, here = shown[sock.fileno()], shown[stayed.fileno()]
            assert (there.kind, there.rule_line, there.xts_socket) == ("offloaded", 2, sock._ours.number)
            assert there.peer == "127.0.0.1:{1}".format(*sock.getpeername())
            assert (here.kind, here.reason_name, here.rule_line) == ("kernel", "RULE", 4)
            assert here.local == "127.0.0.1:{1}".format(*stayed.getsockname())
            assert unused.fileno() not in shown and mine.rules == str(path)
            counts = xts_socket.reasons()
            assert {reason.number: reason.count for reason in mine.stayed} == {k: v for k, v in counts.items() if k}
            assert mine.offloaded == counts[Reason.NONE]
    assert not {here.fd, there.fd} & {entry.fd for entry in next(p for p in find() if p.pid == os.getpid()).descriptors}


DYING = """
import os, signal, socket, sys, xts_socket
xts_socket.install(sys.argv[1])
listener = socket.create_server(("127.0.0.1", 0)); address = listener.getsockname()
first = socket.create_connection(address)
os.kill(int(sys.argv[2]), signal.SIGKILL)
try: print(first.recv(1))
except ConnectionResetError: print("reset")
later = None
while later is None:
    try: later = socket.create_connection(("127.0.0.1", int(sys.argv[3])), 10)
    except ConnectionAbortedError: pass  # sent before the death was noticed
print(later.reason.name, later.recv(4))
"""


def test_after_the_proxys_death_sockets_stay_with_the_kernel(
    tmp_path: Path, rules: Callable[[str], Path], kernel_listener: socket.socket
) -> None:
    with running_proxy(tmp_path) as proxy:
        command = [sys.executable, "-W", "ignore", "-c", DYING, str(rules(EVERYTHING)), str(proxy.process.pid)]
        environment = {**os.environ, "XTS_ENDPOINT": proxy.endpoint}
        port = str(kernel_listener.getsockname()[1])
        with subprocess.Popen([*command, port], env=environment, stdout=subprocess.PIPE, text=True) as process:
            accepted, _ = STANDARD.accept(kernel_listener)
            with accepted:
                accepted.sendall(b"here")
                output, _ = process.communicate(timeout=60)
    assert output.split("\n")[:2] in (["reset", f"{reason} b'here'"] for reason in ("NO_ENDPOINT", "PROXY_DOWN"))


# --- the descriptor ------------------------------------------------------------------------------------------------


def test_the_descriptor_keeps_its_number(installed: None, kernel_listener: socket.socket) -> None:
    with socket.socket() as sock:
        number = sock.fileno()
        sock.connect(kernel_listener.getsockname())
        assert sock.reason is Reason.NONE and sock.fileno() == number  # type: ignore[attr-defined]
        with STANDARD.accept(kernel_listener)[0] as peer, selectors.DefaultSelector() as selector:
            selector.register(number, selectors.EVENT_READ)
            assert selector.select(0) == []
            peer.sendall(b"now")
            assert len(selector.select(DEADLINE_S)) == 1
            assert sock.recv(3) == b"now"
            assert selector.select(0) == []
    with pytest.raises(OSError):
        os.fstat(number)


def test_detach_dup_fromfd_and_close(installed: None, kernel_listener: socket.socket) -> None:
    sock, peer = connected(kernel_listener)
    with peer:
        number = sock.fileno()
        assert sock.detach() == number and sock.fileno() == -1
        with socket.socket(fileno=number) as second, second.dup() as third:
            with socket.fromfd(number, socket.AF_INET, socket.SOCK_STREAM) as fourth:
                second.close()
                third.sendall(b"3")
                fourth.sendall(b"4")
                assert peer.recv(2, socket.MSG_WAITALL) == b"34"
            last = third.detach()
        socket.close(last)
        assert peer.recv(1) == b""


def test_the_kernels_sendfile_copies(installed: None, kernel_listener: socket.socket, tmp_path: Path) -> None:
    content = os.urandom(200_000)
    (tmp_path / "file").write_bytes(content)
    sock, peer = connected(kernel_listener)
    with sock, peer, (tmp_path / "file").open("rb") as file:
        assert os.sendfile(sock.fileno(), file.fileno(), 5, 100) == 100
        assert os.sendfile(sock.fileno(), file.fileno(), None, 50) == 50 == file.tell()
        assert peer.recv(150, socket.MSG_WAITALL) == content[5:105] + content[:50]
        received = bytearray()
        reader = threading.Thread(target=lambda: received.extend(peer.makefile("rb").read()))
        reader.start()
        assert sock.sendfile(file) == len(content)
        sock.shutdown(socket.SHUT_WR)
        reader.join(DEADLINE_S)
        assert received == content


def test_finalized_together_with_what_it_holds(
    installed: None, kernel_listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a cycle of garbage the inner socket may go first."""
    complaints: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", complaints.append)
    sock, peer = connected(kernel_listener)
    with peer, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sock._ours.__del__()
        del sock
        gc.collect()
        assert not complaints and peer.recv(1) == b""


def test_a_listener_outlives_its_block(rules: Callable[[str], Path]) -> None:
    for text in (EVERYTHING, "use os tcp_server *:*\n"):
        with xts_socket.offload(rules(text)):
            listener = socket.create_server(("127.0.0.1", 0))
        with listener, STANDARD() as peer:
            peer.connect(listener.getsockname())
            accepted, _ = listener.accept()
            with accepted:
                accepted.sendall(b"late")
                assert peer.recv(4) == b"late"


def test_a_program_s_own_subclass(installed: None, kernel_listener: socket.socket) -> None:
    class Counting(socket.socket):
        sent = 0

        def send(self, data: Any, flags: int = 0) -> int:
            self.sent += len(data)
            return super().send(data, flags)

    with Counting() as sock, xts_socket.offload():
        sock.connect(kernel_listener.getsockname())
        with STANDARD.accept(kernel_listener)[0] as peer, Counting() as stayed:
            assert sock.send(b"abc") == sock.sent == 3 and peer.recv(3) == b"abc"
            stayed.connect(kernel_listener.getsockname())
            with STANDARD.accept(kernel_listener)[0] as second:
                assert (sock.reason, stayed.reason) == (Reason.NONE, Reason.RULE)  # type: ignore[attr-defined]
                assert stayed.send(b"de") == stayed.sent == 2 and second.recv(2) == b"de"


def test_an_unclosed_one_warns_and_closes(installed: None, kernel_listener: socket.socket) -> None:
    sock, peer = connected(kernel_listener)
    with peer:
        with pytest.warns(ResourceWarning, match="unclosed <xts_socket"):
            del sock
            gc.collect()
        assert peer.recv(1) == b""


# --- a listener for both worlds --------------------------------------------------------------------------------------


@pytest.mark.parametrize("waits_with", ["accept", "select"])
def test_a_wildcard_listener_serves_the_hosts_loopback(waits_with: str) -> None:
    """The default rules. In this test the device's loopback is the host's too, so its port is taken for the host's
    side: that is told, and what comes through the proxy is served."""
    with xts_socket.offload(), socket.socket() as listener:
        listener.settimeout(DEADLINE_S)
        listener.bind(("", 0))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            listener.listen()
        assert [str(one.message).partition(" is ")[2][:21] for one in caught] == ["taken on this host, w"]
        with STANDARD() as peer:
            peer.connect(("127.0.0.1", listener.getsockname()[1]))
            if waits_with == "select":
                assert select.select([listener], [], [], DEADLINE_S)[0]
            accepted, _ = listener.accept()
            with accepted:
                assert accepted.reason is Reason.NONE  # type: ignore[attr-defined]


def test_accepting_from_both(installed: None) -> None:
    """The two sides put together by hand, at two ports."""
    with socket.create_server(("127.0.0.1", 0)) as listener, STANDARD() as local:
        local.bind(("127.0.0.1", 0))
        local.listen()
        local.setblocking(False)
        there, here = listener.getsockname(), local.getsockname()
        listener._kernel_listener = local.dup()  # type: ignore[attr-defined]
        listener._kernel_listener.setblocking(False)  # type: ignore[attr-defined]
        with pytest.raises(BlockingIOError):
            listener.settimeout(0)
            listener.accept()
        listener.settimeout(0.05)
        with pytest.raises(TimeoutError):
            listener.accept()
        listener.settimeout(DEADLINE_S)
        for target, reason in ((here, Reason.LOCAL), (there, Reason.NONE)) * 2:
            begun = threading.Event()

            def connect(address: Any = target, begun: threading.Event = begun) -> None:
                begun.wait(DEADLINE_S)
                with STANDARD() as peer:
                    peer.connect(address)
                    peer.recv(1)

            thread = threading.Thread(target=connect)
            thread.start()
            assert select.select([listener], [], [], 0)[0] == []
            begun.set()
            assert select.select([listener], [], [], DEADLINE_S)[0] == [listener]
            accepted, _ = listener.accept()
            with accepted:
                assert accepted.reason is reason and accepted.gettimeout() is None  # type: ignore[attr-defined]
            thread.join(DEADLINE_S)
        with pytest.raises(OSError, match="two sockets"):
            listener.detach()
        with pytest.raises(OSError, match=r"two sockets.*send_fds") as refused:
            listener.set_inheritable(True)
        assert refused.value.errno == errno.EOPNOTSUPP


# --- offload() -------------------------------------------------------------------------------------------------------


def test_a_block_is_for_its_own_context(rules: Callable[[str], Path], kernel_listener: socket.socket) -> None:
    seen: list[Any] = []

    def elsewhere() -> None:
        with closing(socket.create_connection(kernel_listener.getsockname(), DEADLINE_S)) as sock:
            seen.append(getattr(sock, "reason", "standard"))

    with xts_socket.offload(rules(EVERYTHING)):
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join(DEADLINE_S)
        elsewhere()
        with xts_socket.offload():
            elsewhere()
        elsewhere()
    elsewhere()
    assert seen == [None, Reason.NONE, Reason.RULE, Reason.NONE, "standard"]
    assert socket.socket is STANDARD


# --- programs that never heard of us ---------------------------------------------------------------------------------


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.path)))
        self.end_headers()
        self.wfile.write(self.path.encode())

    def log_message(self, *_: object) -> None:
        pass


def serving() -> ThreadingHTTPServer:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    return server


@pytest.mark.parametrize("side", ["client", "server", "both"])
def test_http(rules: Callable[[str], Path], side: str) -> None:
    client, server = side != "server", side != "client"
    text = f"use {'xts' if client else 'os'} tcp_client *:*\nuse {'xts' if server else 'os'} tcp_server *:*\n"
    xts_socket.install(rules(text))
    try:
        with serving() as http_server:
            assert (http_server.socket.reason is Reason.NONE) is server  # type: ignore[attr-defined]
            connection = http.client.HTTPConnection(*http_server.server_address[:2], timeout=DEADLINE_S)  # type: ignore[arg-type]
            with closing(connection):
                for path in ("/one", "/two"):
                    connection.request("GET", path)
                    assert connection.getresponse().read() == path.encode()
                assert (connection.sock.reason is Reason.NONE) is client  # type: ignore[attr-defined]
            opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            url = "http://{}:{}/three".format(*http_server.server_address[:2])
            with opener.open(url, timeout=DEADLINE_S) as answer:
                assert answer.read() == b"/three"
            http_server.shutdown()
    finally:
        xts_socket.uninstall()


def test_asyncio(installed: None, tmp_path: Path) -> None:
    content = os.urandom(300_000)
    (tmp_path / "file").write_bytes(content)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        name = (await reader.readline()).strip()
        with (tmp_path / name.decode()).open("rb") as file:
            await asyncio.get_running_loop().sendfile(writer.transport, file)
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    async def main() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with server:
            assert server.sockets[0]._sock.reason is Reason.NONE  # type: ignore[attr-defined]
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            writer.write(b"file\n")
            assert await reader.read(-1) == content
            writer.close()
            await writer.wait_closed()

    asyncio.run(asyncio.wait_for(main(), DEADLINE_S))
