"""The Python socket and what surrounds it: signals, fork, asyncio, a proxy that dies, and the `xts` command."""

from __future__ import annotations

import asyncio
import errno
import functools
import hashlib
import http.client
import http.server
import json
import os
import signal
import socket as kernel
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import xts_socket as socket
from beds.proxy_process import ProxyProcess, running_proxy

DEADLINE_S = 10.0


@pytest.fixture
def pair(xts_endpoint: ProxyProcess) -> Iterator[tuple[socket.socket, kernel.socket]]:
    """An offloaded socket, and the kernel's at the other end."""
    with kernel.create_server(("127.0.0.1", 0)) as listener:
        with socket.create_connection(listener.getsockname()) as sock:
            peer, _ = listener.accept()
            with peer:
                peer.settimeout(DEADLINE_S)
                yield sock, peer


# --- signals ------------------------------------------------------------------------------------------------------


@contextmanager
def signals_every(interval_s: float, handler: Callable[[], None]) -> Iterator[None]:
    """Sends SIGUSR1 to this process again and again; `handler` runs in the main thread."""
    before = signal.signal(signal.SIGUSR1, lambda number, frame: handler())
    over = threading.Event()

    def send() -> None:
        while not over.wait(interval_s):
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("timeout", [None, DEADLINE_S], ids=["blocking", "timeout"])
def test_an_interrupted_receive_goes_on(pair: tuple[socket.socket, kernel.socket], timeout: float | None) -> None:
    sock, peer = pair
    sock.settimeout(timeout)
    calls = 0

    def handler() -> None:
        nonlocal calls
        calls += 1
        if calls == 5:
            peer.sendall(b"sent by the signal handler")

    with signals_every(0.02, handler):
        assert sock.recv(100) == b"sent by the signal handler"
    assert calls >= 5


def test_an_interrupted_accept_goes_on(xts_endpoint: ProxyProcess) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        peers: list[kernel.socket] = []

        def handler() -> None:
            if not peers:
                peers.append(kernel.create_connection(server.getsockname()))

        with signals_every(0.05, handler):
            sock, _ = server.accept()
        sock.close()
        peers[0].close()


def test_an_interrupted_sendall_loses_and_doubles_nothing(pair: tuple[socket.socket, kernel.socket]) -> None:
    sock, peer = pair
    data = bytes(range(256)) * (32 << 10)
    received = hashlib.sha256()

    def receive() -> None:
        left = len(data)
        while left:
            part = peer.recv(min(left, 65536))
            received.update(part)
            left -= len(part)

    thread = threading.Thread(target=receive)
    thread.start()
    with signals_every(0.001, lambda: None):
        sock.sendall(data)
    thread.join(DEADLINE_S)
    assert received.digest() == hashlib.sha256(data).digest()


class _FromHandlerError(Exception):
    pass


def test_a_handler_that_raises_ends_the_call_only(pair: tuple[socket.socket, kernel.socket]) -> None:
    sock, peer = pair

    def handler() -> None:
        raise _FromHandlerError

    with pytest.raises(_FromHandlerError):
        with signals_every(0.1, handler):
            sock.recv(100)
    peer.sendall(b"still alive")
    assert sock.recv(100) == b"still alive"


def test_signals_do_not_prolong_a_timeout(pair: tuple[socket.socket, kernel.socket]) -> None:
    sock, _ = pair
    sock.settimeout(0.5)
    begin = time.monotonic()
    with signals_every(0.05, lambda: None), pytest.raises(TimeoutError):
        sock.recv(1)
    assert 0.5 <= time.monotonic() - begin < 3


# --- fork ---------------------------------------------------------------------------------------------------------

_FORK = """
import os, socket as kernel, xts_socket
listener = kernel.create_server(("127.0.0.1", 0))
parent = xts_socket.create_connection(listener.getsockname())
peer, _ = listener.accept()
epoll = xts_socket.epoll()
child = os.fork()
if child == 0:
    status = 1
    try:
        for call in (lambda: parent.recv(1), lambda: parent.send(b"from the child")):
            try:
                call()
            except OSError as error:
                assert error.errno == 9, error
            else:
                raise AssertionError("a parent's socket works in the child")
        assert parent.fileno() == -1 and epoll.closed
        parent.close()
        with xts_socket.create_connection(listener.getsockname()) as own:
            own.sendall(b"from the child's own")
            own.shutdown(1)
            own.recv(1)
        status = 0
    finally:
        os._exit(status)
own, _ = listener.accept()
assert b"".join(iter(lambda: own.recv(100), b"")) == b"from the child's own"
own.close()
assert os.waitpid(child, 0)[1] == 0
parent.sendall(b"from the parent")
assert peer.recv(100) == b"from the parent"
peer.sendall(b"back")
assert parent.recv(100) == b"back"
for sock in (parent, peer, listener, epoll):
    sock.close()
print("well")
"""


def run_python(code: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-X", "dev", "-W", "error", "-c", code]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_a_forked_child_has_an_attachment_of_its_own(xts_endpoint: ProxyProcess) -> None:
    done = run_python(_FORK)
    assert (done.stdout, done.stderr, done.returncode) == ("well\n", "", 0)


# --- asyncio ------------------------------------------------------------------------------------------------------


def test_asyncio_watches_the_descriptor(pair: tuple[socket.socket, kernel.socket]) -> None:
    sock, peer = pair
    sock.setblocking(False)

    async def run() -> bytes:
        loop = asyncio.get_running_loop()
        arrived: asyncio.Future[bytes] = loop.create_future()
        loop.add_reader(sock, lambda: arrived.done() or arrived.set_result(sock.recv(100)))
        loop.call_soon(peer.sendall, b"for the reader")
        try:
            return await asyncio.wait_for(arrived, DEADLINE_S)
        finally:
            loop.remove_reader(sock)

    assert asyncio.run(run()) == b"for the reader"


def test_asyncio_uses_the_object_as_a_socket(xts_endpoint: ProxyProcess) -> None:
    data = os.urandom(2_000_000)

    async def serve(server: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        sock, _ = await loop.sock_accept(server)  # type: ignore[arg-type]
        with sock:
            while part := await loop.sock_recv(sock, 65536):
                await loop.sock_sendall(sock, part)

    async def ask(address: tuple[str, int]) -> bytes:
        loop = asyncio.get_running_loop()
        with socket.socket() as sock:
            sock.setblocking(False)
            await loop.sock_connect(sock, address)  # type: ignore[arg-type]
            sending = asyncio.create_task(loop.sock_sendall(sock, data))  # type: ignore[arg-type]
            received = bytearray()
            while len(received) < len(data):
                received += await loop.sock_recv(sock, 65536)  # type: ignore[arg-type]
            await sending
            return bytes(received)

    async def run() -> bytes:
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.setblocking(False)
            serving = asyncio.create_task(serve(server))
            received = await asyncio.wait_for(ask(server.getsockname()), DEADLINE_S)
            await asyncio.wait_for(serving, DEADLINE_S)
            return received

    assert asyncio.run(run()) == data


def test_asyncio_streams_take_the_object(pair: tuple[socket.socket, kernel.socket]) -> None:
    sock, peer = pair
    sock.setblocking(False)

    async def run() -> bytes:
        reader, writer = await asyncio.open_connection(sock=sock)  # type: ignore[arg-type]
        writer.write(b"a line\n")
        await writer.drain()
        assert peer.recv(100) == b"a line\n"
        peer.sendall(b"an answer\n")
        line = await asyncio.wait_for(reader.readline(), DEADLINE_S)
        writer.close()
        await writer.wait_closed()
        return line

    assert asyncio.run(run()) == b"an answer\n"
    assert peer.recv(1) == b""


# --- code written for the standard socket -------------------------------------------------------------------------


def test_http_client_over_an_offloaded_socket(xts_endpoint: ProxyProcess, tmp_path: Path) -> None:
    data = os.urandom(1_000_000)
    (tmp_path / "file").write_bytes(data)

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    handler = functools.partial(Quiet, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        try:
            connection = http.client.HTTPConnection(*server.server_address[:2], timeout=DEADLINE_S)
            connection._create_connection = socket.create_connection  # type: ignore[attr-defined]
            for _ in range(2):
                connection.request("GET", "/file")
                assert isinstance(connection.sock, socket.socket)
                assert connection.getresponse().read() == data
            connection.close()
        finally:
            server.shutdown()
            serving.join()


def test_a_socketserver_that_listens_through_the_proxy(xts_endpoint: ProxyProcess) -> None:
    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.wfile.write(self.rfile.readline().upper())

    class Server(socketserver.ThreadingTCPServer):
        def __init__(self) -> None:
            socketserver.BaseServer.__init__(self, ("127.0.0.1", 0), Handler)
            self.socket = socket.create_server(("127.0.0.1", 0))  # type: ignore[assignment]
            self.server_address = self.socket.getsockname()

    with Server() as server:
        serving = threading.Thread(target=server.serve_forever, args=(0.05,))
        serving.start()
        try:
            for _ in range(3):
                with kernel.create_connection(server.server_address, timeout=DEADLINE_S) as peer:
                    peer.sendall(b"a line\n")
                    assert peer.makefile("rb").read() == b"A LINE\n"
        finally:
            server.shutdown()
            serving.join()


# --- the proxy's end ----------------------------------------------------------------------------------------------

_PROXY_DIES = """
import errno, os, signal, socket as kernel, sys, time, xts_socket
listener = kernel.create_server(("127.0.0.1", 0))
sock = xts_socket.create_connection(listener.getsockname())
server = xts_socket.create_server(("127.0.0.1", 0))
peer, _ = listener.accept()
begin = time.monotonic()
os.kill(int(os.environ["PROXY_PID"]), signal.SIGKILL)
try:
    sock.recv(1)
except OSError as error:
    print(errno.errorcode[error.errno], flush=True)
print(time.monotonic() - begin < 1, flush=True)
try:
    xts_socket.socket()
except OSError as error:
    print(errno.errorcode[error.errno], flush=True)
sys.stdin.readline()
with xts_socket.create_connection(listener.getsockname()) as again:
    again_peer, _ = listener.accept()
    again_peer.sendall(b"works again")
    print(again.recv(100).decode(), flush=True)
    again_peer.close()
def connection():
    deadline = time.monotonic() + 20
    while True:
        try:
            return kernel.create_connection(server.getsockname(), timeout=20)
        except ConnectionRefusedError:  # the listener comes back a moment after the proxy
            assert time.monotonic() < deadline
            time.sleep(0.01)
with connection() as client:
    accepted, _ = server.accept()
    accepted.sendall(b"the listener is back")
    print(client.recv(100).decode(), flush=True)
    accepted.close()
for made in (sock, server, peer, listener):
    made.close()
"""


def test_a_dead_proxy_is_noticed_and_a_new_one_is_used(tmp_path: Path) -> None:
    with running_proxy(tmp_path) as proxy:
        program = subprocess.Popen(
            [sys.executable, "-X", "dev", "-W", "error", "-c", _PROXY_DIES],
            env=os.environ | {"XTS_ENDPOINT": proxy.endpoint, "PROXY_PID": str(proxy.process.pid)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert program.stdout is not None
        lines = [program.stdout.readline().strip() for _ in range(3)]
        assert lines == ["ECONNRESET", "True", "ENETDOWN"], lines
        proxy.process.wait(DEADLINE_S)
    with running_proxy(tmp_path):
        output, errors = program.communicate("go on\n", timeout=30)
    assert (output, errors, program.returncode) == ("works again\nthe listener is back\n", "", 0)


# --- the command --------------------------------------------------------------------------------------------------


def xts(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run_python(f"import sys; from xts_socket.cli import main; sys.exit(main({list(arguments)!r}))")


def test_status_lists_our_sockets(pair: tuple[socket.socket, kernel.socket], xts_endpoint: ProxyProcess) -> None:
    sock, peer = pair
    peer.sendall(b"unread")
    assert sock.recv(1, socket.MSG_PEEK) == b"u"
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as server:
        done = xts("status", "--json", "--pid", str(os.getpid()))
        assert done.returncode == 0, done.stderr
        (process,) = json.loads(done.stdout)["processes"]
        table = xts("status")
        listeners = xts("status", "--listening")
        assert process["queue_kind"] == "shm" and process["link_state"] == "up"
        assert process["pid"] == os.getpid() and process["uid"] == os.getuid()
        local = f"127.0.0.1:{sock.getsockname()[1]}"
        (entry,) = [entry for entry in process["entries"] if entry["local"] == local]
        assert entry["state"] == "ESTAB" and entry["peer"] == f"127.0.0.1:{sock.getpeername()[1]}"
        assert entry["xts_socket"] == sock.number and entry["proxy_id"] != 0
        assert entry["recv_queue"] == entry["received_bytes"] == 6 and entry["send_credits"] > 0
        listening = f"[::1]:{server.getsockname()[1]}"
        states = {entry["local"]: entry["state"] for entry in process["entries"]}
        assert states[listening] == "LISTEN"
        assert local in table.stdout and listening in table.stdout and f"({os.getpid()})" in table.stdout
        assert listening in listeners.stdout and local not in listeners.stdout


def test_ping_and_doctor_reach_the_proxy(xts_endpoint: ProxyProcess) -> None:
    done = xts("ping", "-n", "5", "--json")
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert figures["count"] == 5 and 0 < figures["min_us"] <= figures["median_us"] <= figures["max_us"]
    assert "round trips" in xts("ping", "-n", "1").stdout
    done = xts("doctor", "--json")
    report = json.loads(done.stdout)
    assert done.returncode == 0 and report["works"]
    checks = {check["name"]: check for check in report["checks"]}
    assert checks["endpoint"]["level"] == checks["attach"]["level"] == checks["proxy"]["level"] == "ok"
    assert "IPv4 and IPv6" in checks["proxy"]["found"]
    assert checks["protocols"]["level"] == "ok" and "LENGTH_PREFIXED 1" in checks["protocols"]["found"]
    offer = {"name": "LENGTH_PREFIXED", "number": 4, "version": 1, "receive": True, "send": True}
    assert offer in report["protocols"]
    assert "Offloaded sockets work here." in xts("doctor").stdout


def test_configure_before_the_first_socket(xts_endpoint: ProxyProcess) -> None:
    code = (
        "import xts_socket\n"
        "xts_socket.configure(spin_us=xts_socket.SPIN_NEVER, window_bytes=32768, frame_window=16)\n"
        "with xts_socket.socket() as sock:\n"
        "    sock.getsockopt(xts_socket.IPPROTO_TCP, xts_socket.TCP_INFO, 8)\n"
        "    print(xts_socket.info().frame_window, xts_socket.info().spins)\n"
    )
    done = run_python(code)
    assert (done.stdout, done.stderr) == ("16 0\n", "")


@pytest.mark.parametrize("kind", ["a file", "nobody listens"])
def test_an_endpoint_that_is_not_one(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "endpoint.sock"
    if kind == "a file":
        path.touch()
    else:
        with kernel.socket(kernel.AF_UNIX, kernel.SOCK_SEQPACKET) as dead:
            dead.bind(str(path))
    code = (
        "import xts_socket\n"
        f"xts_socket.configure(endpoint={str(path)!r})\n"
        "try: xts_socket.socket()\n"
        "except OSError as error: print(error.errno)\n"
    )
    done = run_python(code)
    assert (done.stdout, done.stderr) == (f"{errno.ENETDOWN}\n", "")


EARLY_HOOK = """
import os, sys
state = {}
os.register_at_fork(after_in_child=lambda: state.update(made=make()))
import socket
import xts_socket
module = xts_socket
address = ("127.0.0.1", int(sys.argv[1]))
def make():
    sock = module.create_connection(address, timeout=20)
    context = xts_socket.epoll()
    context.register(sock, 1) if module is xts_socket else sock.fileno()
    return sock, sock.dup(), context
if sys.argv[2] == "installed":
    xts_socket.install(xts_socket._rules.Rules.parse(b"use xts tcp_client *:*\\n"))
    module = socket
parents = make()
if not (child := os.fork()):
    sock, copy, context = state["made"]
    sock.sendall(b"from ")
    sock.close()
    copy.sendall(b"the child")
    assert context.poll(0) == [] and copy.fileno() >= 0
    assert parents[0].fileno() == -1 or module is socket
    copy.close()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
parents[0].sendall(b"from the parent")
"""


@pytest.mark.parametrize("way", ["swapped", "installed"])
def test_a_hook_of_fork_that_was_there_earlier_makes_sockets(way: str, xts_endpoint: ProxyProcess) -> None:
    """They are the child's, and last. The parent's are untouched."""
    with kernel.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(DEADLINE_S)
        command = [sys.executable, "-W", "ignore", "-c", EARLY_HOOK, str(listener.getsockname()[1]), way]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            got = []
            for _ in range(2):
                with listener.accept()[0] as peer:
                    peer.settimeout(DEADLINE_S)
                    if not got:
                        first = peer.dup()
                        got.append("")
                        continue
                    got.append(peer.makefile().read())
            with first:
                got[0] = first.makefile().read()
            assert (process.wait(DEADLINE_S), process.stderr.read() if process.stderr else "") == (0, "")
    assert got == ["from the parent", "from the child"]


def test_a_connection_that_comes_back_ends_with_its_last_socket(xts_endpoint: ProxyProcess) -> None:
    """A program passes one to itself, and has closed it by the time it receives it."""
    program = """
import socket, sys
import xts_socket
given = xts_socket.create_connection(("127.0.0.1", int(sys.argv[1])))
here, there = socket.socketpair()
xts_socket.send_fds(here, [b"it"], [given.fileno()] * 2)
given.close()
for fd in socket.recv_fds(there, 10, 2)[1]:
    with xts_socket.socket(fileno=fd) as again:
        again.sendall(b"x")
sys.stdin.read()
"""
    with kernel.create_server(("127.0.0.1", 0)) as listener:
        command = [sys.executable, "-W", "ignore", "-c", program, str(listener.getsockname()[1])]
        with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
            listener.settimeout(DEADLINE_S)
            with listener.accept()[0] as peer:
                peer.settimeout(DEADLINE_S)
                assert peer.makefile().read() == "xx", "it ended, while the program still runs"
            process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0


def test_a_socket_of_another_endpoint_is_refused_for_that_reason(xts_endpoint: ProxyProcess) -> None:
    giver = """
import os, sys
import xts_socket
import socket
way = socket.socket(fileno=int(sys.argv[1]))
with xts_socket.create_server(("127.0.0.1", 0)) as listener:
    xts_socket.send_fds(way, [b"it"], [listener.fileno()])
    way.recv(1)
"""
    taker = """
import sys
import xts_socket
import socket
way = socket.socket(fileno=int(sys.argv[1]))
with xts_socket.dev():
    xts_socket.socket().close()
    _, (fd,), _, _ = socket.recv_fds(way, 10, 1)
    try:
        xts_socket.socket(fileno=fd)
    except OSError as failure:
        print(failure.errno, failure)
way.send(b"x")
"""
    here, there = kernel.socketpair()
    with here, there:
        command = [sys.executable, "-W", "ignore", "-c", giver, str(here.fileno())]
        with subprocess.Popen(command, pass_fds=[here.fileno()]) as process:
            done = subprocess.run(
                [sys.executable, "-W", "ignore", "-c", taker, str(there.fileno())],
                pass_fds=[there.fileno()], capture_output=True, text=True, timeout=60, check=False,
            )  # fmt: skip
            assert process.wait(DEADLINE_S) == 0
    assert "one of another endpoint" in done.stdout and "policy" not in done.stdout, done.stdout + done.stderr
