"""The Python socket: time-outs, threads, selectors, epoll. See test_python_socket.py."""

from __future__ import annotations

import errno
import select
import selectors
import socket as kernel
import threading
import time
from collections.abc import Callable

import pytest
import xts_socket as socket
from beds.python_socket import DEADLINE_S, Pair, data_of, fill

pytestmark = pytest.mark.usefixtures("xts_endpoint")


# --- waiting ------------------------------------------------------------------------------------------


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


# --- watching -----------------------------------------------------------------------------------------


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
