"""The Python socket against TCP peers of this machine's kernel, through a proxy over shared memory, without root.

What CPython promises of `socket.socket` for TCP is asked of `xts_socket.socket`. Every wait has a deadline: the peers
have timeouts, and so has each test.
"""

from __future__ import annotations

import array
import errno
import gc
import hashlib
import io
import pickle
import random
import select
import selectors
import socket as kernel
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
import xts_socket as socket
from proxy_process import ProxyProcess

pytestmark = pytest.mark.usefixtures("xts_endpoint")

DEADLINE_S = 10.0
LOOPBACK = {kernel.AF_INET: "127.0.0.1", kernel.AF_INET6: "::1"}
LARGE = 16 << 20
RESET = struct.pack("ii", 1, 0)  # SO_LINGER: close with a reset


class Pair:
    """A connection: the offloaded end and the kernel's."""

    def __init__(self, offloaded: socket.socket, peer: kernel.socket) -> None:
        self.offloaded, self.peer = offloaded, peer
        self.peer.settimeout(DEADLINE_S)

    def close(self) -> None:
        self.offloaded.close()
        self.peer.close()

    def peer_receives(self, count: int) -> bytes:
        data = b""
        while len(data) < count and (more := self.peer.recv(count - len(data))):
            data += more
        return data


@pytest.fixture(params=[kernel.AF_INET, kernel.AF_INET6], ids=["ipv4", "ipv6"])
def family(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def listener() -> Iterator[kernel.socket]:
    with kernel.create_server(("127.0.0.1", 0)) as made:
        made.settimeout(DEADLINE_S)
        yield made


@pytest.fixture
def pair(listener: kernel.socket) -> Iterator[Pair]:
    made = Pair(socket.create_connection(listener.getsockname()), listener.accept()[0])
    yield made
    made.close()


@pytest.fixture
def in_thread() -> Iterator[Callable[..., threading.Thread]]:
    """Starts threads; at the end all must have ended, and none with an exception."""
    threads: list[threading.Thread] = []
    failures: list[BaseException] = []

    def start(function: Callable[..., object], *arguments: Any) -> threading.Thread:
        def body() -> None:
            try:
                function(*arguments)
            except BaseException as failure:
                failures.append(failure)

        threads.append(threading.Thread(target=body, daemon=True))
        threads[-1].start()
        return threads[-1]

    yield start
    for thread in threads:
        thread.join(DEADLINE_S)
        assert not thread.is_alive()
    if failures:
        raise failures[0]


def data_of(size: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(size)


def receive_all(sock: Any, size: int = 65536) -> bytes:
    parts = []
    while part := sock.recv(size):
        parts.append(part)
    return b"".join(parts)


def fill(sock: socket.socket) -> None:
    """Sends until nothing more is taken, also after what is on its way has gone as far as it can."""
    sock.setblocking(False)
    while select.select([], [sock], [], 0.2)[1]:
        with suppress(BlockingIOError):
            sock.send(bytes(65536))


def unused_port() -> int:
    with kernel.create_server(("127.0.0.1", 0)) as made:
        return int(made.getsockname()[1])


# --- connecting and accepting -------------------------------------------------------------------------------------


def test_connect_knows_both_addresses(family: int) -> None:
    with kernel.create_server((LOOPBACK[family], 0), family=family) as server:
        with socket.create_connection(server.getsockname()[:2], timeout=DEADLINE_S) as sock:
            peer, address = server.accept()
            with peer:
                assert sock.getpeername() == server.getsockname()
                assert sock.getsockname() == address
                assert (sock.family, sock.type, sock.timeout) == (family, kernel.SOCK_STREAM, DEADLINE_S)


def test_connect_refused(family: int) -> None:
    port = unused_port()
    with socket.socket(family) as sock:
        with pytest.raises(ConnectionRefusedError) as caught:
            sock.connect((LOOPBACK[family], port))
        assert caught.value.errno == errno.ECONNREFUSED
        assert sock.connect_ex((LOOPBACK[family], port)) == errno.ECONNREFUSED


def test_a_socket_connects_after_it_was_refused(listener: kernel.socket) -> None:
    with socket.socket() as sock:
        assert sock.connect_ex(("127.0.0.1", unused_port())) == errno.ECONNREFUSED
        sock.connect(listener.getsockname())
        listener.accept()[0].close()
        assert sock.connect_ex(listener.getsockname()) == errno.EISCONN


def test_create_connection_gives_all_errors() -> None:
    with pytest.raises(ExceptionGroup) as caught:
        socket.create_connection(("127.0.0.1", unused_port()), all_errors=True)
    assert all(isinstance(failure, ConnectionRefusedError) for failure in caught.value.exceptions)


def test_create_connection_binds_its_source(listener: kernel.socket) -> None:
    with socket.create_connection(listener.getsockname(), source_address=("127.0.0.9", 0)) as sock:
        peer, address = listener.accept()
        peer.close()
        assert address == sock.getsockname() and address[0] == "127.0.0.9"


def test_connect_times_out() -> None:
    """A listener whose queue is full answers no SYN."""
    with kernel.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        fillers = [kernel.socket() for _ in range(4)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(full.getsockname())
        with socket.socket() as sock:
            sock.settimeout(0.2)
            begin = time.monotonic()
            with pytest.raises(TimeoutError):
                sock.connect(full.getsockname())
            assert 0.2 <= time.monotonic() - begin < DEADLINE_S
        with socket.socket() as sock:
            sock.settimeout(0.05)
            assert sock.connect_ex(full.getsockname()) == errno.EAGAIN
        for filler in fillers:
            filler.close()


def test_connect_without_blocking(listener: kernel.socket) -> None:
    with socket.socket() as sock:
        sock.setblocking(False)
        assert sock.connect_ex(listener.getsockname()) in (0, errno.EINPROGRESS)
        assert select.select([], [sock], [], DEADLINE_S)[1] == [sock]
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
        assert sock.getpeername() == listener.getsockname()
    with socket.socket() as sock:
        sock.setblocking(False)
        with pytest.raises((BlockingIOError, ConnectionRefusedError)):
            sock.connect(("127.0.0.1", unused_port()))
        select.select([], [sock], [], DEADLINE_S)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) in (0, errno.ECONNREFUSED)


def test_accept_tells_the_peer(family: int) -> None:
    with socket.create_server((LOOPBACK[family], 0), family=family) as server:
        with kernel.create_connection(server.getsockname()[:2]) as peer:
            sock, address = server.accept()
            with sock:
                assert address == sock.getpeername() == peer.getsockname()
                assert sock.getsockname() == server.getsockname() == peer.getpeername()
                assert sock.family == family and sock.gettimeout() is None
                peer.sendall(b"question")
                assert sock.recv(100) == b"question"


def test_two_offloaded_ends_meet() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as one:
        two, _ = server.accept()
        with two:
            one.sendall(b"there")
            assert two.recv(100) == b"there"
            two.sendall(b"and back")
            assert one.recv(100) == b"and back"


def test_accept_waits_as_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.1)
        with pytest.raises(TimeoutError):
            server.accept()
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.accept()
        with kernel.create_connection(server.getsockname()):
            assert select.select([server], [], [], DEADLINE_S)[0] == [server]
            server.accept()[0].close()


def test_servers_share_a_port_when_asked() -> None:
    with socket.create_server(("127.0.0.1", 0), reuse_port=True) as one:
        with socket.create_server(one.getsockname(), reuse_port=True) as two:
            assert one.getsockname() == two.getsockname()
        with pytest.raises(OSError, match="while attempting to bind on address") as caught:
            socket.create_server(one.getsockname())
        assert caught.value.errno == errno.EADDRINUSE


def test_dual_stack() -> None:
    assert socket.has_dualstack_ipv6()
    with socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True) as server:
        with kernel.create_connection(("127.0.0.1", server.getsockname()[1])):
            sock, address = server.accept()
            assert address[0] == "::ffff:127.0.0.1"
            sock.close()


def test_names_are_resolved() -> None:
    with kernel.create_server(("127.0.0.1", 0)) as server:
        with socket.socket() as sock:
            sock.connect(("localhost", server.getsockname()[1]))
        with pytest.raises(kernel.gaierror), socket.socket() as sock:
            sock.connect(("nonexistent.invalid", 80))


# --- data ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [bytes, bytearray, memoryview, lambda data: array.array("B", data)])
def test_anything_with_a_buffer_is_sent(pair: Pair, make: Callable[[bytes], Any]) -> None:
    data = data_of(1000)
    assert pair.offloaded.send(make(data)) == 1000
    pair.offloaded.sendall(make(data))
    assert pair.peer_receives(2000) == data * 2


def test_other_things_are_not_sent(pair: Pair) -> None:
    for wrong in ("text", 5, None, [b"x"]):
        with pytest.raises(TypeError):
            pair.offloaded.send(wrong)
        with pytest.raises(TypeError):
            pair.offloaded.sendall(wrong)
    with pytest.raises(TypeError):
        pair.offloaded.recv("1")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="negative"):
        pair.offloaded.recv(-1)


def test_receiving_into_buffers(pair: Pair) -> None:
    pair.peer.sendall(b"0123456789")
    buffer = bytearray(b"." * 8)
    assert pair.offloaded.recv_into(memoryview(buffer)[2:], 3) == 3
    assert buffer == b"..012..."
    assert pair.offloaded.recv_into(buffer) == 7
    assert buffer == b"3456789."
    with pytest.raises(ValueError, match="too small"):
        pair.offloaded.recv_into(buffer, 9)
    with pytest.raises(TypeError):
        pair.offloaded.recv_into(b"read-only")
    pair.peer.sendall(b"abc")
    assert pair.offloaded.recvfrom(10) == (b"abc", None)
    pair.peer.sendall(b"def")
    assert pair.offloaded.recv(0) == b""
    assert pair.offloaded.recvfrom_into(buffer) == (3, None)


def test_an_error_does_not_hold_the_buffer(pair: Pair) -> None:
    pair.offloaded.setblocking(False)
    buffer = bytearray(10)
    with pytest.raises(BlockingIOError) as caught:
        pair.offloaded.recv_into(buffer)
    buffer.extend(b"grows")
    assert caught.value.errno == errno.EAGAIN
    fill(pair.offloaded)
    for call in (pair.offloaded.send, pair.offloaded.sendall, lambda data: pair.offloaded.sendmsg([data])):
        with pytest.raises(BlockingIOError) as caught:
            while True:
                call(buffer)
        buffer.extend(b"again")


def test_flags(pair: Pair) -> None:
    pair.peer.sendall(b"abcdef")
    assert pair.offloaded.recv(3, socket.MSG_PEEK) == b"abc"
    assert pair.offloaded.recv(6, socket.MSG_WAITALL) == b"abcdef"
    with pytest.raises(BlockingIOError):
        pair.offloaded.recv(1, socket.MSG_DONTWAIT)
    assert pair.offloaded.send(b"held, ", socket.MSG_MORE) == 6
    assert pair.offloaded.send(b"sent", socket.MSG_NOSIGNAL) == 4
    assert pair.peer_receives(10) == b"held, sent"
    assert pair.offloaded.sendto(b"address unused", ("127.0.0.1", 1)) == 14
    assert pair.peer_receives(14) == b"address unused"


def test_waitall_gathers_what_comes_in_pieces(pair: Pair, in_thread: Callable[..., threading.Thread]) -> None:
    data = data_of(300_000)

    def send_pieces() -> None:
        for at in range(0, len(data), 10_000):
            pair.peer.sendall(data[at : at + 10_000])

    in_thread(send_pieces)
    assert pair.offloaded.recv(len(data), socket.MSG_WAITALL) == data


def test_scatter_and_gather(pair: Pair) -> None:
    assert pair.offloaded.sendmsg([b"one ", bytearray(b"two "), memoryview(b"three")]) == 13
    assert pair.peer_receives(13) == b"one two three"
    assert pair.offloaded.sendmsg([]) == 0
    pair.peer.sendall(b"one two three")
    head, rest = bytearray(4), bytearray(20)
    got, ancillary, flags, _ = pair.offloaded.recvmsg_into([head, rest])
    assert (got, ancillary, flags) == (13, [], 0)
    assert head == b"one " and rest[:9] == b"two three"
    pair.peer.sendall(b"again")
    assert pair.offloaded.recvmsg(100, 64)[:3] == (b"again", [], 0)


@pytest.mark.parametrize("timeout", [None, DEADLINE_S], ids=["blocking", "timeout"])
def test_large_transfers_arrive_whole(
    pair: Pair, in_thread: Callable[..., threading.Thread], timeout: float | None
) -> None:
    pair.offloaded.settimeout(timeout)
    out, back = data_of(LARGE, 1), data_of(LARGE, 2)
    digests: dict[str, str] = {}

    def peer() -> None:
        def receive() -> None:
            digests["out"] = hashlib.sha256(receive_all(pair.peer)).hexdigest()

        receiving = threading.Thread(target=receive)
        receiving.start()
        pair.peer.sendall(back)
        pair.peer.shutdown(kernel.SHUT_WR)
        receiving.join()

    def send() -> None:
        pair.offloaded.sendall(out)
        pair.offloaded.shutdown(socket.SHUT_WR)

    threads = [in_thread(peer), in_thread(send)]
    digests["back"] = hashlib.sha256(receive_all(pair.offloaded)).hexdigest()
    for thread in threads:
        thread.join(60)
    assert digests == {"out": hashlib.sha256(out).hexdigest(), "back": hashlib.sha256(back).hexdigest()}


def test_receiving_in_every_size(pair: Pair, in_thread: Callable[..., threading.Thread]) -> None:
    data = data_of(4 << 20)
    in_thread(pair.peer.sendall, data)
    choose = random.Random(3)
    received = bytearray()
    while len(received) < len(data):
        size = choose.choice([1, 7, 1000, 65536, 262144, 262145, 1 << 20])
        if choose.random() < 0.5:
            received += pair.offloaded.recv(size)
        else:
            buffer = bytearray(size)
            received += buffer[: pair.offloaded.recv_into(buffer)]
    assert received == data


def test_sendfile(pair: Pair, tmp_path: Path, in_thread: Callable[..., threading.Thread]) -> None:
    data = data_of(3_000_000)
    path = tmp_path / "data"
    path.write_bytes(data)
    received: list[bytes] = []
    with path.open("rb") as file:
        receiving = in_thread(lambda: received.append(pair.peer_receives(len(data) + 1000)))
        assert pair.offloaded.sendfile(file) == len(data)
        assert file.tell() == len(data)
        assert pair.offloaded.sendfile(file, 500, 1000) == 1000
        assert file.tell() == 1500
        receiving.join(DEADLINE_S)
        assert received == [data + data[500:1500]]
        pair.offloaded.setblocking(False)
        with pytest.raises(ValueError, match="non-blocking"):
            pair.offloaded.sendfile(file)
    with path.open("r", encoding="latin-1") as text, pytest.raises(ValueError, match="binary"):
        pair.offloaded.sendfile(text)  # type: ignore[arg-type]


# --- the end ------------------------------------------------------------------------------------------------------


def test_half_close_by_us(pair: Pair) -> None:
    pair.offloaded.sendall(b"question")
    pair.offloaded.shutdown(socket.SHUT_WR)
    assert receive_all(pair.peer) == b"question"
    pair.peer.sendall(b"answer")
    pair.peer.close()
    assert receive_all(pair.offloaded) == b"answer"
    with pytest.raises(BrokenPipeError):
        pair.offloaded.send(b"more")


def test_half_close_by_the_peer(pair: Pair) -> None:
    pair.peer.sendall(b"question")
    pair.peer.shutdown(kernel.SHUT_WR)
    assert receive_all(pair.offloaded) == b"question"
    assert pair.offloaded.recv(10) == b""
    pair.offloaded.sendall(b"answer")
    pair.offloaded.close()
    assert receive_all(pair.peer) == b"answer"


def test_shutdown_of_receiving(pair: Pair) -> None:
    pair.offloaded.shutdown(socket.SHUT_RD)
    assert pair.offloaded.recv(10) == b""
    pair.offloaded.sendall(b"still goes out")
    assert pair.peer_receives(14) == b"still goes out"


def test_close_delivers_what_was_sent(pair: Pair, in_thread: Callable[..., threading.Thread]) -> None:
    data = data_of(1 << 20)

    def send_and_close() -> None:
        pair.offloaded.sendall(data)
        pair.offloaded.close()

    in_thread(send_and_close)
    assert receive_all(pair.peer) == data


def test_reset_by_the_peer(pair: Pair) -> None:
    pair.peer.setsockopt(kernel.SOL_SOCKET, kernel.SO_LINGER, RESET)
    pair.peer.close()
    with pytest.raises(ConnectionResetError):
        pair.offloaded.recv(10)


def test_reset_by_us(pair: Pair) -> None:
    pair.offloaded.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    pair.offloaded.close()
    with pytest.raises(ConnectionResetError):
        pair.peer.recv(10)


def test_close_of_the_socket_object(pair: Pair) -> None:
    number = pair.offloaded.number
    assert number >= 0 and f"xts={number}" in repr(pair.offloaded) and "raddr=('127.0.0.1'" in repr(pair.offloaded)
    pair.offloaded.close()
    pair.offloaded.close()
    assert pair.offloaded.fileno() == pair.offloaded.number == -1
    assert "[closed]" in repr(pair.offloaded)
    for call in (lambda: pair.offloaded.recv(1), lambda: pair.offloaded.send(b"x"), pair.offloaded.getsockname):
        with pytest.raises(OSError, match="Bad file descriptor") as caught:
            call()
        assert caught.value.errno == errno.EBADF
    assert receive_all(pair.peer) == b""


def test_detach_gives_the_socket_away_by_its_descriptor(pair: Pair) -> None:
    number, descriptor = pair.offloaded.number, pair.offloaded.fileno()
    assert pair.offloaded.detach() == descriptor
    assert (pair.offloaded.fileno(), pair.offloaded.detach()) == (-1, -1)
    with socket.socket(fileno=descriptor) as other:
        assert (other.family, other.type, other.number) == (kernel.AF_INET, kernel.SOCK_STREAM, number)
        other.sendall(b"alive")
        assert pair.peer_receives(5) == b"alive"
    for gone in (number, descriptor):
        with pytest.raises(OSError, match="Bad file descriptor"):
            socket.socket(fileno=gone)


def test_a_socket_is_taken_over_by_its_number(pair: Pair) -> None:
    with socket.socket(fileno=pair.offloaded.number) as other:
        assert pair.offloaded.detach() == other.fileno()
        other.sendall(b"alive")
        assert pair.peer_receives(5) == b"alive"


def test_a_detached_socket_is_closed_by_its_descriptor(pair: Pair) -> None:
    socket.close(pair.offloaded.detach())
    assert pair.peer_receives(1) == b""


def test_a_duplicate_keeps_the_connection_open(pair: Pair) -> None:
    pair.offloaded.settimeout(DEADLINE_S)
    with pair.offloaded.dup() as second, socket.fromfd(second.fileno(), second.family, second.type) as third:
        assert second.gettimeout() == DEADLINE_S
        assert len({sock.fileno() for sock in (pair.offloaded, second, third)}) == 3
        assert not select.select([second, third], [], [], 0)[0]
        pair.peer.sendall(b"one")
        assert len(select.select([second, third], [], [], DEADLINE_S)[0]) >= 1
        pair.offloaded.close()
        assert (second.recv(1), third.recv(2)) == (b"o", b"ne")
        second.close()
        third.sendall(b"two")
        assert pair.peer_receives(3) == b"two"
    assert pair.peer_receives(1) == b""


def test_descriptors_that_are_not_ours(pair: Pair) -> None:
    with pytest.raises(OSError) as caught:
        socket.socket(fileno=pair.peer.fileno())
    assert caught.value.errno == errno.ENOTSOCK
    with pytest.raises(OSError) as caught:
        socket.fromfd(pair.peer.fileno(), kernel.AF_INET, kernel.SOCK_STREAM)
    assert caught.value.errno == errno.ENOTSOCK
    socket.close(socket.dup(pair.peer.fileno()))
    a, b = socket.socketpair()
    with a, b:
        assert isinstance(a, kernel.socket)


def test_every_name_of_the_standard_module_is_here() -> None:
    missing = [name for name in dir(kernel) if not name.startswith("__") and not hasattr(socket, name)]
    assert not missing
    assert set(kernel.__all__) <= set(socket.__all__) <= set(dir(socket))


def test_an_unclosed_socket_warns_and_closes(listener: kernel.socket) -> None:
    sock = socket.create_connection(listener.getsockname())
    peer, _ = listener.accept()
    with pytest.warns(ResourceWarning, match="unclosed <xts_socket.socket"):
        del sock
        gc.collect()
    with peer:
        peer.settimeout(DEADLINE_S)
        assert peer.recv(1) == b""


def test_what_a_socket_does_not_do(pair: Pair) -> None:
    with pytest.raises(TypeError, match="pickle"):
        pickle.dumps(pair.offloaded)
    assert pair.offloaded.get_inheritable() is False
    pair.offloaded.set_inheritable(False)
    with pytest.raises(OSError, match="exec"):
        pair.offloaded.set_inheritable(True)


# --- options ------------------------------------------------------------------------------------------------------


def test_options(pair: Pair) -> None:
    sock = pair.offloaded
    for level, option in ((socket.IPPROTO_TCP, socket.TCP_NODELAY), (socket.SOL_SOCKET, socket.SO_KEEPALIVE)):
        assert sock.getsockopt(level, option) == 0
        sock.setsockopt(level, option, 1)
        assert sock.getsockopt(level, option) != 0
        sock.setsockopt(level, option, struct.pack("i", 0))
        assert sock.getsockopt(level, option, 4) == bytes(4)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 17)
    assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 17
    assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 8)[0] == 1  # TCP_ESTABLISHED
    assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_TYPE) == socket.SOCK_STREAM
    assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_DOMAIN) == socket.AF_INET
    with pytest.raises(OSError) as caught:
        sock.setsockopt(socket.IPPROTO_TCP, 9999, 1)
    assert caught.value.errno == errno.ENOPROTOOPT
    with pytest.raises(OSError, match="out of range"):
        sock.getsockopt(socket.SOL_SOCKET, socket.SO_TYPE, 1025)
    with pytest.raises(TypeError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, None)
    with pytest.raises(TypeError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, "1")


# --- waiting ------------------------------------------------------------------------------------------------------


def test_timeouts(pair: Pair) -> None:
    pair.offloaded.settimeout(0.1)
    begin = time.monotonic()
    for call in (lambda: pair.offloaded.recv(1), lambda: pair.offloaded.recv_into(bytearray(1))):
        with pytest.raises(TimeoutError, match="timed out"):
            call()
    assert 0.2 <= time.monotonic() - begin < 5
    pair.peer.sendall(b"late")
    assert pair.offloaded.recv(10) == b"late"
    for wrong, raised in (
        (-1, ValueError),
        (float("nan"), ValueError),
        ("1", (TypeError, ValueError)),
        (1e300, OverflowError),
    ):
        with pytest.raises(raised):  # type: ignore[arg-type]
            pair.offloaded.settimeout(wrong)  # type: ignore[arg-type]
    assert pair.offloaded.gettimeout() == 0.1 and pair.offloaded.getblocking()


def test_sendall_times_out_as_a_whole_when_nobody_reads(pair: Pair) -> None:
    pair.offloaded.settimeout(0.3)
    begin = time.monotonic()
    with pytest.raises(TimeoutError):
        pair.offloaded.sendall(bytes(64 << 20))
    assert 0.3 <= time.monotonic() - begin < 5
    pair.offloaded.setblocking(False)
    with pytest.raises(BlockingIOError):
        while True:
            pair.offloaded.send(bytes(65536))


def test_the_default_timeout_is_the_standard_module_s(listener: kernel.socket) -> None:
    socket.setdefaulttimeout(3.5)
    try:
        with socket.create_connection(listener.getsockname()) as sock, socket.create_server(("127.0.0.1", 0)) as server:
            assert sock.gettimeout() == 3.5
            with kernel.create_connection(server.getsockname()):
                accepted, _ = server.accept()
                with accepted:
                    assert accepted.gettimeout() == 3.5
    finally:
        socket.setdefaulttimeout(None)


def test_non_blocking(pair: Pair) -> None:
    pair.offloaded.setblocking(False)
    assert pair.offloaded.gettimeout() == 0 and not pair.offloaded.getblocking()
    with pytest.raises(BlockingIOError):
        pair.offloaded.recv(1)
    with pytest.raises(BlockingIOError):
        pair.offloaded.recvmsg(1)
    pair.peer.sendall(b"x")
    assert select.select([pair.offloaded], [], [], DEADLINE_S)[0]
    assert pair.offloaded.recv(10) == b"x"
    with socket.socket(type=socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as sock:
        assert sock.gettimeout() == 0 and sock.type == socket.SOCK_STREAM


def test_a_blocked_thread_wakes_for_data(pair: Pair, in_thread: Callable[..., threading.Thread]) -> None:
    """recv() blocks with the GIL released; otherwise nobody could send."""
    received: list[bytes] = []
    begun = threading.Event()

    def receive() -> None:
        begun.set()
        received.append(pair.offloaded.recv(10))

    thread = in_thread(receive)
    begun.wait(DEADLINE_S)
    pair.peer.sendall(b"data")
    thread.join(DEADLINE_S)
    assert received == [b"data"]


def test_threads_share_one_socket(pair: Pair, in_thread: Callable[..., threading.Thread]) -> None:
    """Records of one size, sent by several threads, echoed, and received by several: none torn, none lost."""
    size, each, senders = 64, 500, 4
    total = size * each * senders

    def echo() -> None:
        left = total
        while left:
            data = pair.peer.recv(65536)
            pair.peer.sendall(data)
            left -= len(data)

    def send(mark: int) -> None:
        for _ in range(each):
            pair.offloaded.sendall(bytes([mark]) * size)

    in_thread(echo)
    for mark in range(senders):
        in_thread(send, mark)
    counts = [0] * senders
    left = total
    while left:
        record = pair.offloaded.recv(size, socket.MSG_WAITALL)
        assert len(record) == size
        for mark in record:
            counts[mark] += 1
        left -= size
    assert counts == [size * each] * senders


def test_a_thread_that_waits_does_not_hold_up_the_requests_of_others(
    in_thread: Callable[..., threading.Thread],
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        begun = threading.Event()

        def accept() -> None:
            begun.set()
            server.accept()[0].close()

        waiting = in_thread(accept)
        begun.wait(DEADLINE_S)
        times = []
        with socket.socket() as sock:
            for _ in range(20):
                begin = time.monotonic()
                sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 8)
                times.append(time.monotonic() - begin)
        assert min(times) < 0.1
        socket.create_connection(server.getsockname()).close()
        waiting.join(DEADLINE_S)


def test_many_threads_with_sockets_of_their_own(in_thread: Callable[..., threading.Thread]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()

        def serve() -> None:
            for _ in range(16):
                sock, _ = server.accept()
                in_thread(echo, sock)

        def echo(sock: socket.socket) -> None:
            with sock:
                while data := sock.recv(65536):
                    sock.sendall(data)

        def ask(seed: int) -> None:
            with socket.create_connection(address) as sock:
                for turn in range(50):
                    data = data_of(200, seed * 100 + turn)
                    sock.sendall(data)
                    assert sock.recv(200, socket.MSG_WAITALL) == data

        threads = [in_thread(serve)] + [in_thread(ask, seed) for seed in range(16)]
        for thread in threads:
            thread.join(DEADLINE_S)


# --- files --------------------------------------------------------------------------------------------------------


def test_makefile_reads_and_writes_lines(pair: Pair) -> None:
    with pair.offloaded.makefile("rw", encoding="utf-8", newline="\n") as file:
        file.write("Grüße\nzweite\n")
        file.flush()
        assert pair.peer_receives(15) == "Grüße\nzweite\n".encode()
        pair.peer.sendall(b"Antwort\nnoch")
        pair.peer.shutdown(kernel.SHUT_WR)
        assert file.readlines() == ["Antwort\n", "noch"]
        assert file.mode == "rw"


def test_makefile_keeps_the_socket_open(pair: Pair) -> None:
    reader, writer = pair.offloaded.makefile("rb"), pair.offloaded.makefile("wb")
    pair.offloaded.close()
    assert pair.offloaded.number >= 0
    writer.write(b"buffered")
    writer.close()
    assert pair.peer_receives(8) == b"buffered"
    pair.peer.sendall(b"to the file")
    assert reader.read(11) == b"to the file"
    reader.close()
    assert pair.offloaded.number == -1
    assert pair.peer.recv(1) == b""


def test_makefile_kinds(pair: Pair) -> None:
    raw = pair.offloaded.makefile("rb", buffering=0)
    assert isinstance(raw, io.RawIOBase)
    pair.peer.sendall(b"raw")
    assert raw.read(10) == b"raw"
    raw.close()
    with pair.offloaded.makefile("rwb") as both:
        assert isinstance(both, io.BufferedRWPair)
    with pytest.raises(ValueError, match="invalid mode"):
        pair.offloaded.makefile("a")
    with pytest.raises(ValueError, match="unbuffered"):
        pair.offloaded.makefile("r", buffering=0)


def test_makefile_times_out_like_the_standard_one(pair: Pair) -> None:
    pair.offloaded.settimeout(0.05)
    with pair.offloaded.makefile("rb") as file:
        with pytest.raises(TimeoutError):
            file.read(1)
        with pytest.raises(OSError, match="timed out"):
            file.read(1)


# --- watching -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make", [selectors.SelectSelector, selectors.PollSelector, selectors.EpollSelector], ids=lambda kind: kind.__name__
)
def test_selectors_see_readiness(pair: Pair, make: type[selectors.BaseSelector]) -> None:
    with make() as selector:
        key = selector.register(pair.offloaded, selectors.EVENT_READ)
        assert selector.select(0) == []
        pair.peer.sendall(b"x")
        assert selector.select(DEADLINE_S) == [(key, selectors.EVENT_READ)]
        assert selector.select(0) == [(key, selectors.EVENT_READ)]
        assert pair.offloaded.recv(10) == b"x"
        assert selector.select(0) == []
        key = selector.modify(pair.offloaded, selectors.EVENT_WRITE)
        assert selector.select(DEADLINE_S) == [(key, selectors.EVENT_WRITE)]
        fill(pair.offloaded)
        assert selector.select(0) == []
        selector.unregister(pair.offloaded)


def test_a_watched_socket_shows_its_end(pair: Pair) -> None:
    poll = select.poll()
    poll.register(pair.offloaded, select.POLLIN | select.POLLRDHUP)
    pair.peer.close()
    ((_, events),) = poll.poll(DEADLINE_S * 1000)
    assert events & select.POLLIN
    assert pair.offloaded.recv(1) == b""


def test_epoll_of_our_own(pair: Pair) -> None:
    with socket.epoll() as epoll, socket.create_server(("127.0.0.1", 0)) as server:
        epoll.register(server, select.EPOLLIN)
        epoll.register(pair.offloaded, select.EPOLLIN)
        with pytest.raises(FileExistsError):
            epoll.register(pair.offloaded.number)
        assert epoll.poll(0) == []
        begin = time.monotonic()
        assert epoll.poll(0.1) == [] and time.monotonic() - begin >= 0.1
        pair.peer.sendall(b"x")
        assert epoll.poll(DEADLINE_S) == [(pair.offloaded.number, select.EPOLLIN)]
        assert pair.offloaded.recv(1) == b"x"
        with kernel.create_connection(server.getsockname()):
            assert epoll.poll(DEADLINE_S) == [(server.number, select.EPOLLIN)]
            server.accept()[0].close()
        epoll.modify(pair.offloaded, select.EPOLLOUT)
        assert epoll.poll(DEADLINE_S, 1) == [(pair.offloaded.number, select.EPOLLOUT)]
        epoll.unregister(pair.offloaded)
        with pytest.raises(FileNotFoundError):
            epoll.modify(pair.offloaded, select.EPOLLIN)
        pair.peer.sendall(b"y")
        with kernel.create_connection(server.getsockname()):
            # The descriptor may be ready for a frame that turns out to concern no socket of the set.
            found: list[tuple[int, int]] = []
            while not found:
                assert select.select([epoll], [], [], DEADLINE_S)[0] == [epoll]
                found = epoll.poll(0)
            assert found == [(server.number, select.EPOLLIN)]
        with pytest.raises(ValueError, match="maxevents"):
            epoll.poll(0, 0)
    assert epoll.closed
    with pytest.raises(ValueError, match="closed"):
        epoll.poll(0)


def test_the_descriptor_of_an_epoll_is_quiet_again_once_poll_finds_nothing(pair: Pair) -> None:
    with socket.epoll() as epoll:
        epoll.register(pair.offloaded, select.EPOLLIN)
        pair.peer.sendall(b"x")
        assert select.select([epoll], [], [], DEADLINE_S)[0] == [epoll]
        assert epoll.poll(DEADLINE_S) == [(pair.offloaded.number, select.EPOLLIN)]
        assert pair.offloaded.recv(10) == b"x"
        rounds = 0
        while select.select([epoll], [], [], 0.05)[0]:  # at most for what is still on its way about the socket
            assert epoll.poll(0) == [] and rounds < 10
            rounds += 1
        pair.peer.sendall(b"y")
        assert select.select([epoll], [], [], DEADLINE_S)[0] == [epoll]


def test_the_descriptor_of_an_epoll_when_the_last_mirrored_socket_has_gone(listener: kernel.socket) -> None:
    """The thread that kept mirrors true must leave the queue's doorbell armed for others who sleep on it."""
    with socket.epoll() as epoll:
        for _ in range(60):
            with socket.socket() as sock:
                sock.setblocking(False)
                assert sock.connect_ex(listener.getsockname()) == errno.EINPROGRESS
                epoll.register(sock, select.EPOLLOUT | select.EPOLLONESHOT)
                events: list[tuple[int, int]] = []
                while not events:
                    assert select.select([epoll], [], [], DEADLINE_S)[0] == [epoll]
                    events = epoll.poll(0)
                assert epoll.poll(0) == []
                sock.fileno()  # from here on it is mirrored
                with listener.accept()[0] as peer:
                    sock.send(b"x")
                    assert peer.recv(1) == b"x"


def test_epoll_that_takes_turns(pair: Pair) -> None:
    with socket.epoll(turn=True) as epoll:
        epoll.register(pair.offloaded, select.EPOLLIN)
        pair.peer.sendall(b"x")
        found: list[tuple[int, int]] = []
        while not found:
            assert select.select([epoll], [], [], DEADLINE_S)[0] == [epoll]
            epoll.flush()
            found = epoll.poll(0)
        assert found == [(pair.offloaded.number, select.EPOLLIN)]
        epoll.flush()  # and it is still readable
        assert select.select([epoll], [], [], DEADLINE_S)[0] == [epoll]
        assert epoll.poll(0) == found and pair.offloaded.recv(10) == b"x"
        epoll.flush()
        while select.select([epoll], [], [], 0.05)[0]:
            assert epoll.poll(0) == []


def test_epoll_that_batches(pair: Pair) -> None:
    with socket.epoll(batch=True) as epoll:
        epoll.register(pair.offloaded, select.EPOLLIN)
        for turn in range(20):
            pair.offloaded.send(b"%d" % (turn % 10))
        epoll.flush()
        assert pair.peer_receives(20) == b"01234567890123456789"
        pair.peer.sendall(b"answer")
        assert epoll.poll(DEADLINE_S) == [(pair.offloaded.number, select.EPOLLIN)]
        assert pair.offloaded.recv(10) == b"answer"


# --- the paper's functions, and the attachment --------------------------------------------------------------------


def test_the_paper_s_functions(listener: kernel.socket) -> None:
    s = socket.xts_socket(socket.AF_INET, socket.SOCK_STREAM, 0)
    socket.xts_bind(s, ("127.0.0.1", 0))
    socket.xts_connect(s, listener.getsockname())
    peer, address = listener.accept()
    with peer:
        assert socket.xts_getsockname(s) == address
        assert socket.xts_getpeername(s) == listener.getsockname()
        assert socket.xts_send(s, b"one ") == 4
        assert socket.xts_sendto(s, b"two ", 0, ("127.0.0.1", 1)) == 4
        assert socket.xts_sendmsg(s, [b"thr", b"ee"]) == 5
        socket.xts_close(s)
        assert receive_all(peer) == b"one two three"


def test_the_paper_s_functions_listening() -> None:
    listening = socket.xts_socket()
    socket.xts_setsockopt(listening, socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    assert socket.xts_getsockopt(listening, socket.SOL_SOCKET, socket.SO_REUSEADDR) == 1
    socket.xts_bind(listening, ("127.0.0.1", 0))
    socket.xts_listen(listening, 5)
    ectx = socket.xts_epoll_ctx_create()
    socket.xts_epoll_ctl(ectx, 1, listening, select.EPOLLIN)
    assert socket.xts_epoll(ectx) == []
    with kernel.create_connection(socket.xts_getsockname(listening)) as peer:
        assert select.select([socket.xts_fileno(listening)], [], [], DEADLINE_S)[0]
        assert socket.xts_epoll(ectx) == [(listening, select.EPOLLIN)]
        s, address = socket.xts_accept(listening)
        assert address == peer.getsockname()
        peer.sendall(b"abcdef")
        assert socket.xts_recv(s, 2) == b"ab"
        assert socket.xts_recvfrom(s, 2) == (b"cd", None)
        buffer = bytearray(8)
        assert socket.xts_recvmsg(s, [buffer]) == (2, [], 0) and buffer[:2] == b"ef"
        assert socket.xts_fcntl(s, 4, 0o4000) == 0  # F_SETFL, O_NONBLOCK
        assert socket.xts_fcntl(s, 3) & 0o4000  # F_GETFL
        with pytest.raises(BlockingIOError):
            socket.xts_recv(s, 1)
        peer.sendall(b"queued")
        assert select.select([socket.xts_fileno(s)], [], [], DEADLINE_S)[0]
        assert socket.xts_ioctl(s, 0x541B, bytes(4)) == struct.pack("i", 6)  # FIONREAD
        assert socket.xts_ioctl(s, 0x5421, struct.pack("i", 0)) == bytes(4)  # FIONBIO
        socket.xts_close(s)
        with pytest.raises(OSError):
            socket.xts_recv(s, 1)
    socket.xts_epoll_ctx_destroy(ectx)
    socket.xts_close(listening)


def test_info_tells_of_the_attachment(pair: Pair, xts_endpoint: ProxyProcess) -> None:
    before = socket.info()
    assert before.queue_kind == "shm" and before.link_state == "up" and before.link_error == 0
    assert before.sockets >= 1 and before.frame_window >= 4 and before.largest_message >= 3840
    pair.offloaded.sendall(b"x")
    assert pair.peer_receives(1) == b"x"
    assert socket.info().sent_frames > before.sent_frames
    with pytest.raises(OSError) as caught:
        socket.configure(spin_us=10)
    assert caught.value.errno == errno.EBUSY


def test_an_option_does_not_wait_for_a_connect_on_its_way() -> None:
    with ExitStack() as stack:
        full = stack.enter_context(kernel.socket())
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for _ in range(4):  # a full backlog: further connects stay unanswered
            client = stack.enter_context(kernel.socket())
            client.setblocking(False)
            client.connect_ex(full.getsockname())
        ours = stack.enter_context(socket.socket())
        ours.setblocking(False)
        assert ours.connect_ex(full.getsockname()) == errno.EINPROGRESS
        begun = time.monotonic()
        ours.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        assert ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert time.monotonic() - begun < 1.0  # the connect itself takes seconds to minutes
        assert ours.connect_ex(full.getsockname()) == errno.EALREADY
