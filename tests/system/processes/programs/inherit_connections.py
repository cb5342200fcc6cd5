"""Connections that are kept over fork: they move to the process that uses them."""

from __future__ import annotations

import ctypes
import errno
import hashlib
import os
import select
import socket
import struct
import threading
import time

from beds.calls import Calls, until
from beds.scripts import script
from system.processes.programs.inheriting import (
    PATIENCE_S,
    PATTERN,
    Child,
    Signal,
    accept,
    kernel_receive_all,
    listen,
    open_descriptors,
    poll,
    receive_all,
    receive_exactly,
)
from system.sockets.programs.library_scripts import info, recv, send


@script("inherit")
def accept_fork_close(c: Calls) -> None:
    """socketserver.ForkingTCPServer: the parent closes what the child serves; data comes before and after."""
    s, port = listen(c)
    for round_number in range(10):
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as peer:
            peer.sendall(PATTERN[:30_000])
            connection = accept(c, s)
            if round_number % 2:
                poll(c, connection)

            def serve(connection: int = connection) -> None:
                assert c.call("close", s) == 0
                data = receive_all(c, connection, 100_000)
                assert send(c, connection, hashlib.sha256(data).digest()) == 32
                assert recv(c, connection, 1) == b""
                assert c.call("close", connection) == 0

            child = Child(c, serve)
            assert c.call("close", connection) == 0
            peer.sendall(PATTERN[30_000:100_000])
            peer.shutdown(socket.SHUT_WR)
            assert kernel_receive_all(peer) == hashlib.sha256(PATTERN[:100_000]).digest()
            child.wait()
    until(lambda: info(c).sockets == 1)


@script("inherit")
def forked_child_touches_nothing(c: Calls) -> None:
    """subprocess, system: the child closes its copies or just ends. The parent's connection does not notice."""
    s, peer = c.connected()
    peer.sendall(b"before")
    poll(c, s)
    for close in (True, False, True):

        def end(close: bool = close) -> None:
            if close:
                assert c.call("close", s) == 0

        Child(c, end, orderly=close).wait()
    assert recv(c, s, 10) == b"before"
    peer.sendall(b"after")
    assert recv(c, s, 10) == b"after"
    assert send(c, s, b"back") == 4 and peer.recv(10) == b"back"
    assert c.call("close", s) == 0
    assert peer.recv(10) == b""


@script("inherit")
def exec_without_the_sockets(c: Calls) -> None:
    s, peer = c.connected()
    fds = 0
    for _ in range(20):
        pid = os.fork()
        if pid == 0:
            os.execv("/bin/true", ["true"])
        assert os.waitpid(pid, 0)[1] == 0
        fds = fds or open_descriptors()
    # The first fork starts the progress thread, which opens the descriptor that wakes it when it runs: maybe only now.
    until(lambda: open_descriptors() <= fds + 1)
    assert send(c, s, b"still mine") == 10 and peer.recv(100) == b"still mine"


@script("inherit")
def moves_with_unread_data(c: Calls) -> None:
    """What the parent had received, and what came meanwhile, reaches the child; then the parent goes on."""
    s, peer = c.connected()
    peer.sendall(PATTERN[:40_000])
    poll(c, s)
    assert recv(c, s, 1000, socket.MSG_WAITALL) == PATTERN[:1000]

    def child() -> None:
        assert c.name("getpeername", s) == ("127.0.0.1", peer.getsockname()[1])
        assert receive_all(c, s, 199_000) == PATTERN[1000:200_000]
        assert send(c, s, b"from the child") == 14

    moved = Child(c, child)
    peer.sendall(PATTERN[40_000:200_000])
    assert peer.recv(100) == b"from the child"
    moved.wait()
    assert c.name("getpeername", s) == ("127.0.0.1", peer.getsockname()[1])
    assert send(c, s, b"from the parent") == 15 and peer.recv(100) == b"from the parent"
    peer.sendall(b"again")
    assert poll(c, s) & select.POLLIN
    assert recv(c, s, 100) == b"again"
    assert c.get(s, socket.IPPROTO_TCP, socket.TCP_NODELAY) == 0
    assert c.call("shutdown", s, socket.SHUT_WR) == 0
    assert peer.recv(1) == b""
    assert c.call("close", s) == 0
    until(lambda: info(c).sockets == 0)


@script("inherit")
def parent_and_child_alternate(c: Calls) -> None:
    """A hundred changes, each with data that came while the other one had it; and the child's end is not the peer's."""
    s, peer = c.connected()
    mine, yours = Signal(), Signal()

    def child() -> None:
        for i in range(100):
            yours.wait()
            assert recv(c, s, 10, socket.MSG_WAITALL) == b"c%09d" % i
            assert send(c, s, b"c") == 1
            mine.tell()

    other = Child(c, child)
    for i in range(100):
        peer.sendall(b"c%09d" % i + b"p%09d" % i)
        yours.tell()
        mine.wait()
        assert recv(c, s, 10, socket.MSG_WAITALL) == b"p%09d" % i
        assert send(c, s, b"p") == 1
        assert receive_exactly(peer, 2) == b"cp"
    other.wait()
    assert not select.select([peer], [], [], 0.1)[0], "the child's end shows"
    assert c.call("close", s) == 0
    assert peer.recv(1) == b""


@script("inherit")
def one_reads_and_the_other_sends(c: Calls) -> None:
    """As clients do that copy from the terminal in one process, and to it in another."""
    s, peer = c.connected()
    done = Signal()

    def child() -> None:
        for i in range(20):
            assert recv(c, s, 4, socket.MSG_WAITALL) == b"a%03d" % i
        done.tell()

    reader = Child(c, child)
    for i in range(20):
        assert send(c, s, b"q%03d" % i) == 4
        assert receive_exactly(peer, 4) == b"q%03d" % i
        peer.sendall(b"a%03d" % i)
    done.wait()
    reader.wait()
    assert send(c, s, b"end") == 3 and peer.recv(3) == b"end"


@script("inherit")
def polls_what_a_child_uses(c: Calls) -> None:
    """The parent waits for events of a connection that its child serves, and has it afterwards."""
    s, peer = c.connected()
    started = Signal()

    def child() -> None:
        assert send(c, s, b"x") == 1
        started.tell()
        for _ in range(20):
            assert recv(c, s, 4, socket.MSG_WAITALL) == b"ping"
            assert send(c, s, b"pong") == 4

    server = Child(c, child)
    started.wait()
    assert peer.recv(1) == b"x"
    events: list[int] = []
    thread = threading.Thread(target=lambda: events.append(poll(c, s)))
    thread.start()
    for _ in range(20):
        peer.sendall(b"ping")
        assert receive_exactly(peer, 4) == b"pong"
    server.wait()
    peer.sendall(b"for the parent")
    thread.join(PATIENCE_S)
    assert events and events[0] & select.POLLIN
    assert recv(c, s, 100) == b"for the parent"


@script("inherit")
def a_thread_of_the_parent_is_reading(c: Calls) -> None:
    s, peer = c.connected()
    results: list[bytes | int] = []
    thread = threading.Thread(target=lambda: results.append(recv(c, s, 9)))
    thread.start()
    time.sleep(0.05)

    def child() -> None:
        assert send(c, s, b"mine") == 4

    moved = Child(c, child)
    assert peer.recv(10) == b"mine"
    peer.sendall(b"yours")
    moved.wait()
    thread.join(PATIENCE_S)
    assert results == [b"yours"]


@script("inherit")
def state_moves_too(c: Calls) -> None:
    """Half-closed either way; options of this end; an end of stream that had been told already."""
    s, peer = c.connected()
    c.set(s, socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 200_000))
    c.set(s, socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    peer.sendall(b"last words")
    peer.shutdown(socket.SHUT_WR)
    assert poll(c, s, select.POLLRDHUP) & select.POLLRDHUP
    t, second = c.connected()
    assert c.call("shutdown", t, socket.SHUT_WR) == 0
    assert second.recv(1) == b""

    def child() -> None:
        assert recv(c, s, 100) == b"last words"
        assert recv(c, s, 100) == b"" and recv(c, s, 100) == b""
        assert c.get(s, socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
        assert send(c, s, b"answer") == 6
        assert c.call("send", t, b"x", 1, socket.MSG_NOSIGNAL) == -errno.EPIPE
        assert recv(c, t, 100) == b"to a half-closed one"
        c.set(t, socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 50_000))
        assert c.call("recv", t, ctypes.create_string_buffer(9), 9, 0) == -errno.EAGAIN

    moved = Child(c, child)
    second.sendall(b"to a half-closed one")
    assert peer.recv(10) == b"answer"
    moved.wait()


@script("inherit")
def ended_before_the_child_looked(c: Calls) -> None:
    """A connection that was reset keeps what had come before; the child reads that, then the error."""
    s, peer = c.connected()
    peer.sendall(b"remains")
    poll(c, s)
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()
    assert poll(c, s, 0) & select.POLLHUP

    def child() -> None:
        assert recv(c, s, 100) == b"remains"
        assert c.call("recv", s, ctypes.create_string_buffer(9), 9, 0) == -errno.ECONNRESET

    Child(c, child).wait()


@script("inherit")
def window_full_at_the_move(c: Calls) -> None:
    """Megabytes on their way, both ways, while the connection moves twice."""
    s, peer = c.connected()
    size = 4 << 20
    received: list[bytes] = []
    data = PATTERN * 4

    def read() -> None:
        received.append(kernel_receive_all(peer))

    reader = threading.Thread(target=read)
    writer = threading.Thread(target=lambda: peer.sendall(data))
    reader.start()
    writer.start()
    first = receive_all(c, s, 1 << 20)
    assert send(c, s, data[: 1 << 20]) == 1 << 20

    def grandchild(before: bytes) -> None:
        rest = receive_all(c, s, size - len(before))
        assert hashlib.sha256(before + rest).digest() == hashlib.sha256(data).digest()
        assert send(c, s, data[2 << 20 :]) == 2 << 20
        assert c.call("close", s) == 0

    def child() -> None:
        before = first + receive_all(c, s, 1 << 20)
        assert send(c, s, data[1 << 20 : 2 << 20]) == 1 << 20
        Child(c, lambda: grandchild(before)).wait()

    Child(c, child).wait()
    assert c.call("close", s) == 0
    for thread in (reader, writer):
        thread.join(PATIENCE_S)
    assert hashlib.sha256(received[0]).digest() == hashlib.sha256(data).digest(), len(received[0])


@script("inherit")
def a_grandchild_uses_it(c: Calls) -> None:
    s, peer = c.connected()
    peer.sendall(b"hello")
    poll(c, s)

    def grandchild() -> None:
        assert recv(c, s, 10) == b"hello"
        assert send(c, s, b"grandchild") == 10

    Child(c, lambda: Child(c, grandchild).wait()).wait()
    assert peer.recv(100) == b"grandchild"
