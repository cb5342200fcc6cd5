"""What happens as time passes: both ends in this process, with a clock of the test's (beds/pair.py). No test waits."""

from __future__ import annotations

import contextlib
import errno
import socket
import struct
from collections.abc import Iterator

import pytest
from beds.pair import Pair

ALIVE_S = 3.0  # so long the other end may be silent, over shared memory (XTS_DEAD_MS)
HOUR_S = 3600.0


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as made:
        yield made


@pytest.fixture
def pair() -> Iterator[Pair]:
    with Pair() as made:
        yield made


def connected(pair: Pair, server: socket.socket) -> tuple[int, socket.socket]:
    s = pair.socket()
    pair.connect(s, server.getsockname()[1])
    return s, server.accept()[0]


def fill(pair: Pair, s: int) -> None:
    """Nobody reads at the other end."""
    with contextlib.suppress(BlockingIOError):
        while True:
            pair.send(s, bytes(100_000), socket.MSG_DONTWAIT)
            pair.run()


def fails(code: int) -> pytest.RaisesExc[OSError]:
    return pytest.raises(OSError, match=errno.errorcode[code])


def test_without_time_passing(pair: Pair, server: socket.socket) -> None:
    s, peer = connected(pair, server)
    with peer:
        assert pair.send(s, b"hello") == 5
        pair.run()
        assert peer.recv(10) == b"hello"
        peer.sendall(b"world")
        assert pair.recv(s, 10) == b"world"
    assert pair.recv(s, 10) == b""
    pair.close(s)
    pair.run()
    assert (pair.now_s, pair.connections) == (0, 0)


def test_an_idle_connection_lives(pair: Pair, server: socket.socket) -> None:
    s, peer = connected(pair, server)
    with peer:
        pair.advance(HOUR_S)
        peer.sendall(b"x")
        assert pair.recv(s, 10) == b"x"


@pytest.mark.parametrize("dead_ms", [0, 1000, 60_000])
def test_silence_is_noticed(server: socket.socket, dead_ms: int) -> None:
    with Pair(dead_ms=dead_ms or round(ALIVE_S * 1000)) as pair:
        s, peer = connected(pair, server)
        pair.advance(HOUR_S)
        with peer:
            pair.to_host.held = True
            start = pair.now_s
            with fails(errno.ECONNRESET):
                pair.recv(s, 10)
            assert pair.now_s - start == pytest.approx(dead_ms / 1000 or ALIVE_S, abs=0.3)
            pair.to_host.held = False
            again, second = connected(pair, server)  # attaches again
            second.close()
            assert pair.recv(again, 10) == b""


def test_silence_while_connecting(pair: Pair, server: socket.socket) -> None:
    s = pair.socket()
    pair.to_host.held = True
    with fails(errno.ECONNABORTED):
        pair.connect(s, server.getsockname()[1])
    assert pair.now_s == pytest.approx(ALIVE_S, abs=0.3)


def test_a_connection_lost_before_connect_said_so_leaves_nothing_to_read(pair: Pair, server: socket.socket) -> None:
    s = pair.socket(socket.SOCK_NONBLOCK)
    with fails(errno.EINPROGRESS):
        pair.connect(s, server.getsockname()[1])
    pair.run()
    with server.accept()[0] as peer:
        peer.sendall(b"hello")
        other, other_peer = connected(pair, server)
        pair.run()
        pair.to_host.held = True
        with other_peer, fails(errno.ECONNRESET):  # a thread that waits notices the silence
            pair.recv(other, 10)
        with fails(errno.ECONNRESET):
            pair.connect(s, server.getsockname()[1])
        with fails(errno.ENOTCONN):  # tcp_disconnect() drops what was received, too
            pair.recv(s, 10)


def test_nobody_answers_the_hello(pair: Pair, server: socket.socket) -> None:
    pair.to_host.held = True
    with fails(errno.ENETDOWN):
        pair.socket()
    assert 1 < pair.now_s < 12
    pair.to_host.held = False
    connected(pair, server)[1].close()


@pytest.mark.parametrize(("option", "name"), [(socket.SO_RCVTIMEO, "recv"), (socket.SO_SNDTIMEO, "send")])
def test_a_call_ends_at_its_timeout(pair: Pair, server: socket.socket, option: int, name: str) -> None:
    s, peer = connected(pair, server)
    with peer:
        fill(pair, s)
        pair.set(s, socket.SOL_SOCKET, option, struct.pack("ll", 1234, 0))
        with fails(errno.EAGAIN):
            if name == "recv":
                pair.recv(s, 10)
            else:
                pair.send(s, b"x")
        assert pair.now_s == pytest.approx(1234, abs=0.002)


def test_a_lingering_close_waits(pair: Pair, server: socket.socket) -> None:
    s, peer = connected(pair, server)
    with peer:
        fill(pair, s)
        pair.set(s, socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 20))
        pair.close(s)
        assert pair.now_s == pytest.approx(20, abs=0.002)
