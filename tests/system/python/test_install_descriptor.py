"""What is done to the descriptor of an offloaded socket, not to the socket: it is done, or refused; never lost."""

from __future__ import annotations

import _socket
import asyncio
import contextlib
import io
import os
import select
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import xts_socket
from beds.authority import Authority
from beds.proxy_process import ProxyProcess
from beds.worker import receive_exactly

PATIENCE_S = 20.0
EVERYTHING = "use xts tcp_client *:*\nuse xts tcp_server *:*\n"

Ends = tuple[Any, socket.socket]


@pytest.fixture
def ends(xts_endpoint: ProxyProcess, rules: Callable[[str], Path]) -> Iterator[Ends]:
    """An offloaded connection, and its peer of the kernel, within a block of offload()."""
    with socket.create_server(("127.0.0.1", 0)) as listener, xts_socket.offload(rules(EVERYTHING)):
        sock = socket.create_connection(listener.getsockname())
        peer = socket.socket(fileno=listener._accept()[0])
        peer.settimeout(PATIENCE_S)
        with peer, contextlib.suppress(OSError):
            with sock:
                yield sock, peer


def read_all(peer: socket.socket) -> bytes:
    with peer.makefile("rb") as file:
        return file.read()


# --- what the kernel refuses ----------------------------------------------------------------------------------------


def test_a_write_of_c_code_is_refused(ends: Ends) -> None:
    """The standard module's class makes its calls on the descriptor, as any C code does."""
    sock, peer = ends
    stand_in = _socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM, 0, os.dup(sock.fileno()))
    for call in (stand_in.send, stand_in.sendall):
        with pytest.raises(OSError, match="not connected"):
            call(b"lost")
    with pytest.raises(BlockingIOError):
        stand_in.recv(1)
    stand_in.close()
    sock.sendall(b"not lost")
    sock.shutdown(socket.SHUT_WR)
    assert read_all(peer) == b"not lost"


def test_a_program_that_got_the_descriptor_is_refused(ends: Ends) -> None:
    sock, _ = ends
    copy = os.dup(sock.fileno())
    code = "import os\ntry:\n    os.write(1, b'lost')\nexcept OSError as failure:\n    os._exit(failure.errno)\n"
    try:
        pid = os.posix_spawn(
            sys.executable, [sys.executable, "-c", code], os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, copy, 1)]
        )
    finally:
        os.close(copy)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 107  # ENOTCONN


@pytest.mark.parametrize("which", ["stdin", "stdout", "stderr"])
@pytest.mark.parametrize("form", ["object", "number"])
def test_a_program_is_not_started_with_it(which: str, form: str, ends: Ends) -> None:
    sock, peer = ends
    given = sock if form == "object" else sock.fileno()
    with pytest.raises(OSError, match="through a pipe"):
        subprocess.run(["true"], check=True, **{which: given})
    subprocess.run(["true"], check=True, **{which: peer})

    async def in_a_loop() -> None:
        with pytest.raises(OSError, match="through a pipe"):
            await asyncio.create_subprocess_exec("true", **{which: given})

    asyncio.run(in_a_loop())


def test_readiness_without_data(ends: Ends) -> None:
    """Readable, full, with room again, half-closed and closed: as a descriptor of the kernel shows it."""
    sock, peer = ends
    sock.setblocking(False)
    poll = select.poll()
    poll.register(sock, select.POLLIN | select.POLLOUT | select.POLLRDHUP)
    edges = select.epoll()
    edges.register(sock, select.EPOLLOUT | select.EPOLLET)
    assert poll.poll(0) == [(sock.fileno(), select.POLLOUT)] and edges.poll(0)
    with contextlib.suppress(BlockingIOError):
        while True:
            sock.send(bytes(100000))
    assert poll.poll(0) == [] and edges.poll(0) == []
    taken = 0
    while not edges.poll(0.01):
        taken += len(peer.recv(1 << 20))
    assert poll.poll(0) == [(sock.fileno(), select.POLLOUT)]
    for _ in range(3):
        peer.sendall(b"x")
        poll.modify(sock, select.POLLIN)
        assert poll.poll(PATIENCE_S * 1000) == [(sock.fileno(), select.POLLIN)]
        assert sock.recv(10) == b"x"
        assert poll.poll(0) == []
    peer.shutdown(socket.SHUT_WR)
    poll.modify(sock, select.POLLIN | select.POLLRDHUP)
    assert poll.poll(PATIENCE_S * 1000) == [(sock.fileno(), select.POLLIN | select.POLLRDHUP)]
    edges.close()


# --- what is done ---------------------------------------------------------------------------------------------------


def test_os_functions(ends: Ends) -> None:
    sock, peer = ends
    fd = sock.detach()
    assert os.get_blocking(fd) and os.write(fd, b"one") == 3 and os.writev(fd, [b" two", b" three"]) == 10
    peer.sendall(b"back again")
    assert receive_exactly(peer, 13) == b"one two three"
    assert os.read(fd, 4) == b"back"
    room = [bytearray(2), bytearray(100)]
    assert os.readv(fd, room) == 6 and bytes(room[0]) + room[1][:4] == b" again"
    assert os.read(fd, 0) == b""
    os.set_blocking(fd, False)
    assert not os.get_blocking(fd)
    with pytest.raises(BlockingIOError):
        os.read(fd, 1)
    os.close(fd)
    assert peer.recv(1) == b"", "the socket is closed, not only its descriptor"
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.write(fd, b"late")


def test_other_descriptors_are_the_kernels(ends: Ends) -> None:
    read_end, write_end = os.pipe()
    assert os.write(write_end, b"pipe") == 4 and os.read(read_end, 10) == b"pipe"
    os.close(write_end)
    with os.fdopen(read_end, "rb") as file:
        assert isinstance(file, io.BufferedReader) and isinstance(file.raw, io.FileIO) and file.read() == b""
    for call in (os.read, os.write, os.close):
        with pytest.raises(TypeError):
            call("no descriptor", *(() if call is os.close else (b"x",)))


@pytest.mark.parametrize("mode", ["wb", "w"])
def test_fdopen(mode: str, ends: Ends) -> None:
    sock, peer = ends
    with os.fdopen(sock.fileno(), "r", closefd=False) as lines:
        peer.sendall(b"a line\n")
        assert lines.readline() == "a line\n"
    with os.fdopen(sock.detach(), mode) as file:
        file.write(b"written" if mode == "wb" else "written")  # type: ignore[call-overload]
    assert read_all(peer) == b"written"


def test_a_read_pipe_of_asyncio(ends: Ends) -> None:
    sock, peer = ends

    async def body() -> bytes:
        reader = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sock)
        peer.sendall(b"to the pipe\n")
        line = await asyncio.wait_for(reader.readline(), PATIENCE_S)
        transport.close()
        return line

    assert asyncio.run(body()) == b"to the pipe\n"


def test_a_write_pipe_of_asyncio(ends: Ends) -> None:
    """That has to wait for room."""
    sock, peer = ends

    async def body() -> bytes:
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, sock)
        transport.write(bytes(3_000_000))
        transport.close()
        return await asyncio.wait_for(loop.run_in_executor(None, read_all, peer), PATIENCE_S)

    assert asyncio.run(body()) == bytes(3_000_000)


@pytest.mark.parametrize("way", ["sock_sendfile", "sendfile"])
@pytest.mark.parametrize("loop_of", ["asyncio", "ours"])
def test_files_that_asyncio_sends(
    way: str, loop_of: str, tmp_path: Path, xts_endpoint: ProxyProcess, rules: Callable[[str], Path]
) -> None:
    """From the start, wherever the position is."""
    data = bytes(range(256)) * 4000
    path = tmp_path / "file"
    path.write_bytes(data)

    async def body(address: Any) -> int:
        loop = asyncio.get_running_loop()
        with path.open("rb") as file:
            file.read(5000)
            if way == "sendfile":
                transport, _ = await loop.create_connection(asyncio.Protocol, *address)
                count = await loop.sendfile(transport, file)  # type: ignore[arg-type]
                transport.close()
                return count
            with (xts_socket if loop_of == "ours" else socket).socket() as sock:
                sock.setblocking(False)
                await loop.sock_connect(sock, address)
                return await loop.sock_sendfile(sock, file)

    factory = xts_socket.aio.EventLoop if loop_of == "ours" else None
    with socket.create_server(("127.0.0.1", 0)) as listener, xts_socket.offload(rules(EVERYTHING)):
        got: list[bytes] = []

        def take() -> None:
            with socket.socket(fileno=listener._accept()[0]) as peer:
                got.append(read_all(peer))

        thread = threading.Thread(target=take)
        thread.start()
        with asyncio.Runner(loop_factory=factory) as runner:
            count = runner.run(body(listener.getsockname()))
        thread.join(PATIENCE_S)
    assert (count, got[0] == data) == (len(data), True)


class Counting(ssl.SSLSocket):
    """A program's own class: SSLContext.sslsocket_class."""

    sent = 0

    def sendall(self, data: Any, flags: int = 0) -> None:
        self.sent += len(data)
        super().sendall(data, flags)


@pytest.mark.parametrize("of_the_kernel", [False, True])
def test_a_class_for_tls_of_ones_own(
    of_the_kernel: bool, tmp_path: Path, xts_endpoint: ProxyProcess, rules: Callable[[str], Path]
) -> None:
    authority = Authority()
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue("localhost").load_into(server)
    client = ssl.create_default_context(cadata=authority.certificate.decode())
    client.sslsocket_class = server.sslsocket_class = Counting
    with xts_socket.offload(rules("use os tcp_client *:*\nuse os tcp_server *:*\n" if of_the_kernel else EVERYTHING)):
        with server.wrap_socket(socket.create_server(("127.0.0.1", 0)), server_side=True) as listener:
            accepted: list[Any] = []

            def serve() -> None:
                sock, _ = listener.accept()
                accepted.append(sock)
                with sock:
                    sock.sendall(b"hello")

            thread = threading.Thread(target=serve)
            thread.start()
            raw = socket.create_connection(listener.getsockname(), PATIENCE_S)
            with client.wrap_socket(raw, server_hostname="localhost") as sock:
                assert sock.recv(5) == b"hello"
                assert isinstance(sock, Counting) and isinstance(sock, ssl.SSLSocket)
            thread.join(PATIENCE_S)
    assert isinstance(accepted[0], Counting) and accepted[0].sent == 5


MULTIPROCESSING = """
import sys
{before}
import xts_socket
assert xts_socket.install(sys.argv[1])
{after}
import threading
from multiprocessing.connection import Client, Listener, wait
from multiprocessing.managers import BaseManager

class Manager(BaseManager):
    pass
Manager.register("upper", str.upper)

if __name__ == "__main__":
    with Listener(("127.0.0.1", 0), authkey=b"key") as listener:
        def serve():
            with listener.accept() as connection:
                while True:
                    try:
                        connection.send(connection.recv())
                    except EOFError:
                        return
        thread = threading.Thread(target=serve)
        thread.start()
        with Client(listener.address, authkey=b"key") as connection:
            for value in ("small", bytes(3_000_000), None):
                connection.send(value)
                assert wait([connection], 20) == [connection] and connection.poll(0)
                assert connection.recv() == value
        thread.join(20)
        assert not thread.is_alive(), "the other side learns of close()"
    assert xts_socket.reasons()[xts_socket.Reason.NONE] >= 2, xts_socket.reasons()
    with Manager(("127.0.0.1", 0), authkey=b"key") as manager:
        assert manager.upper("manager")._getvalue() == "MANAGER"
    print("ok")
"""


AGAIN = "xts_socket.uninstall(); xts_socket.install(sys.argv[1])"


@pytest.mark.parametrize(("before", "after"), [("", ""), ("import multiprocessing.managers", ""), ("", AGAIN)])
def test_multiprocessing_over_tcp(
    before: str, after: str, xts_endpoint: ProxyProcess, rules: Callable[[str], Path], tmp_path: Path
) -> None:
    file = tmp_path / "program.py"
    file.write_text(MULTIPROCESSING.format(before=before, after=after))
    done = subprocess.run(
        [sys.executable, str(file), str(rules(EVERYTHING))], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr
