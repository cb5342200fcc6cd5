"""The Python socket against TCP peers of this machine's kernel, through a proxy over shared memory, without root.

What CPython promises of `socket.socket` for TCP is asked of `xts_socket.socket`. Every wait has a deadline: the peers
have timeouts, and so has each test.
"""

from __future__ import annotations

import errno
import gc
import pickle
import select
import socket as kernel
import threading
import time
from collections.abc import Callable

import pytest
import xts_socket as socket
from beds.python_socket import DEADLINE_S, LOOPBACK, RESET, Pair, data_of, receive_all
from xts_lab.free_ports import free_port

pytestmark = pytest.mark.usefixtures("xts_endpoint")


# --- connecting and accepting -------------------------------------------------------------------------


def test_connect_knows_both_addresses(family: int) -> None:
    with kernel.create_server((LOOPBACK[family], 0), family=family) as server:
        with socket.create_connection(server.getsockname()[:2], timeout=DEADLINE_S) as sock:
            peer, address = server.accept()
            with peer:
                assert sock.getpeername() == server.getsockname()
                assert sock.getsockname() == address
                assert (sock.family, sock.type, sock.timeout) == (family, kernel.SOCK_STREAM, DEADLINE_S)


def test_connect_refused(family: int) -> None:
    port = free_port()
    with socket.socket(family) as sock:
        with pytest.raises(ConnectionRefusedError) as caught:
            sock.connect((LOOPBACK[family], port))
        assert caught.value.errno == errno.ECONNREFUSED
        assert sock.connect_ex((LOOPBACK[family], port)) == errno.ECONNREFUSED


def test_a_socket_connects_after_it_was_refused(listener: kernel.socket) -> None:
    with socket.socket() as sock:
        assert sock.connect_ex(("127.0.0.1", free_port())) == errno.ECONNREFUSED
        sock.connect(listener.getsockname())
        listener.accept()[0].close()
        assert sock.connect_ex(listener.getsockname()) == errno.EISCONN


def test_create_connection_gives_all_errors() -> None:
    with pytest.raises(ExceptionGroup) as caught:
        socket.create_connection(("127.0.0.1", free_port()), all_errors=True)
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
            sock.connect(("127.0.0.1", free_port()))
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


# --- the end ------------------------------------------------------------------------------------------


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
