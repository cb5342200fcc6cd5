"""Programs that keep sockets over fork and exec: `python inherit_scripts.py LIBRARY NAME`.

Each is a process of its own, with children of its own, that calls libxts.so as the interposer would. They assert; the
exit status tells. TCP peers are the kernel's.
"""

from __future__ import annotations

import ctypes
import errno
import faulthandler
import hashlib
import os
import select
import signal
import socket
import struct
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from call_scripts import EPOLL_CTL_ADD, Calls, address, until
from libc_structs import EpollEvent, PollFd
from library_scripts import info, recv, send

SCRIPTS: dict[str, Callable[[Calls], None]] = {}
PATIENCE_S = 10.0
PATTERN = hashlib.shake_128(b"pattern").digest(1 << 20)


def script(function: Callable[[Calls], None]) -> Callable[[Calls], None]:
    SCRIPTS[function.__name__] = function
    return function


# --- processes ---------------------------------------------------------------------------------------


class Child:
    """A forked process that runs a function and leaves as a program under the interposer would."""

    def __init__(self, c: Calls, body: Callable[[], None], orderly: bool = True) -> None:
        self.complaints, tell = os.pipe()
        self.pid = os.fork()
        if self.pid:
            os.close(tell)
            return
        status = 1
        try:
            signal.alarm(60)
            body()
            status = 0
        except BaseException as error:
            os.write(tell, "".join(traceback.format_exception(error)).encode()[-4000:])
        if orderly:
            c.native.xts_before_exit()
        os._exit(status)

    def wait(self, expected: int = 0) -> None:
        end = time.monotonic() + 60
        while True:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                break
            assert time.monotonic() < end, "a child hangs"
            time.sleep(0.005)
        complaint = os.read(self.complaints, 4000).decode() if os.waitstatus_to_exitcode(status) == 1 else ""
        os.close(self.complaints)
        assert os.waitstatus_to_exitcode(status) == expected, (status, complaint)

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        self.wait(-signal.SIGKILL)


class Signal:
    """One process tells another, through a pipe."""

    def __init__(self) -> None:
        self.read_end, self.write_end = os.pipe()

    def tell(self, what: bytes = b"x") -> None:
        os.write(self.write_end, what)

    def wait(self, size: int = 1) -> bytes:
        assert select.select([self.read_end], [], [], PATIENCE_S)[0], "nobody tells"
        return os.read(self.read_end, size)


def open_descriptors(pid: int | None = None) -> int:
    return len(list(Path(f"/proc/{pid or 'self'}/fd").iterdir()))


# --- sockets -----------------------------------------------------------------------------------------


def listen(c: Calls, backlog: int = 128, share: bool = True) -> tuple[int, int]:
    """A listener that may be shared, and its port."""
    s = c.create()
    if share:
        assert c.call("share_listener", s) == 0
    assert c.call("bind", s, address(0), 16) == 0 and c.call("listen", s, backlog) == 0
    found = c.name("getsockname", s)
    assert found
    return s, found[1]


def poll(c: Calls, s: int, events: int = select.POLLIN, timeout_ms: int = 10_000) -> int:
    fds = (PollFd * 1)(PollFd(s, events, 0))
    r = c.call("poll", fds, ctypes.c_ulong(1), timeout_ms)
    assert r >= 0, r
    return int(fds[0].revents)


def accept(c: Calls, s: int) -> int:
    r = c.call("accept4", s, None, None, 0)
    assert r >= 0, errno.errorcode[-r]
    return r


def receive_all(c: Calls, s: int, size: int) -> bytes:
    data = b""
    while len(data) < size and (part := recv(c, s, min(size - len(data), 65536))):
        data += part
    return data


def kernel_receive_all(peer: socket.socket) -> bytes:
    data = b""
    while part := peer.recv(65536):
        data += part
    return data


def ask(port: int) -> bytes:
    """One connection to a server that says who it is and closes."""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as peer:
        return kernel_receive_all(peer)


def refused(port: int) -> bool:
    """Does nobody listen there any more?"""
    with socket.socket() as probe:
        probe.settimeout(PATIENCE_S)
        return probe.connect_ex(("127.0.0.1", port)) == errno.ECONNREFUSED


def serve_names(c: Calls, s: int, name: bytes, count: int = 1 << 30) -> None:
    for _ in range(count):
        connection = accept(c, s)
        send(c, connection, name)
        c.call("close", connection)


@contextmanager
def workers(c: Calls, s: int, count: int, body: Callable[[int], None] | None = None) -> Iterator[list[Child]]:
    def work(index: int) -> None:
        if body:
            body(index)
        else:
            serve_names(c, s, b"%d" % index)

    made = [Child(c, partial(work, i)) for i in range(count)]
    try:
        yield made
    finally:
        for child in made:
            os.kill(child.pid, signal.SIGKILL)
            os.waitpid(child.pid, 0)


# --- listeners ---------------------------------------------------------------------------------------


@script
def came_before_the_fork(c: Calls) -> None:
    """A master that listens and never accepts: what came to it before the fork is its worker's."""
    s, port = listen(c)
    peers = [socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) for _ in range(20)]
    until(lambda: info(c).received_frames >= 23)  # BIND_ACK, LISTEN_ACK, SHARE_ACK, NEWCONNs
    with workers(c, s, 2):
        for peer in peers:
            assert kernel_receive_all(peer) in (b"0", b"1")


@script
def accept_does_not_wait(c: Calls) -> None:
    """Calls that do not wait find a connection, without a poll before: before a fork, after it, and in the child."""
    s, port = listen(c)
    c.call("ioctl", s, 0x5421, ctypes.byref(ctypes.c_int(1)))

    def accept_one() -> None:
        assert c.call("accept4", s, None, None, 0) == -errno.EAGAIN
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as peer:
            until(lambda: (connection := c.call("accept4", s, None, None, 0)) >= 0 and send(c, connection, b"x") == 1)
            assert peer.recv(1) == b"x"

    with socket.create_connection(("127.0.0.1", port)):
        until(lambda: c.call("accept4", s, None, None, 0) >= 0)
    accept_one()
    Child(c, accept_one).wait()
    accept_one()


@script
def workers_share_fairly(c: Calls) -> None:
    s, port = listen(c)
    with workers(c, s, 4):
        until(lambda: len({ask(port) for _ in range(8)}) >= 4)
        seen = Counter(ask(port) for _ in range(200))
    assert len(seen) == 4 and min(seen.values()) >= 20, seen


@script
def workers_of_one_epoll_each(c: Calls) -> None:
    """As nginx does it: non-blocking accept after a wait in a context of the worker's own."""
    s, port = listen(c)
    c.native.xts_epoll_ctx_create.restype = ctypes.c_void_p

    def work(index: int) -> None:
        ctx = ctypes.c_void_p(c.native.xts_epoll_ctx_create())
        c.call("ioctl", s, 0x5421, ctypes.byref(ctypes.c_int(1)))
        events = (EpollEvent * 16)()
        assert c.call("epoll_ctl", ctx, EPOLL_CTL_ADD, s, ctypes.byref(EpollEvent(select.EPOLLIN, s))) == 0
        while c.call("epoll_wait", ctx, events, 16, -1) > 0:
            while (connection := c.call("accept4", s, None, None, 0)) >= 0:
                send(c, connection, b"%d" % index)
                c.call("close", connection)
            assert connection == -errno.EAGAIN, connection

    late = 0
    with workers(c, s, 3, work):
        until(lambda: len({ask(port) for _ in range(8)}) >= 3)
        seen = Counter[bytes]()
        for _ in range(150):
            start = time.monotonic()
            seen[ask(port)] += 1
            late += time.monotonic() - start > 0.2
    assert len(seen) == 3 and min(seen.values()) >= 20, seen
    assert late <= 2, f"{late} of 150 connections found their worker asleep"


@script
def context_made_before_the_fork(c: Calls) -> None:
    s, port = listen(c)
    c.native.xts_epoll_ctx_create.restype = ctypes.c_void_p
    ctx = ctypes.c_void_p(c.native.xts_epoll_ctx_create())
    assert c.call("epoll_ctl", ctx, EPOLL_CTL_ADD, s, ctypes.byref(EpollEvent(select.EPOLLIN, s))) == 0

    def work(index: int) -> None:
        events = (EpollEvent * 16)()
        while c.call("epoll_wait", ctx, events, 16, -1) > 0:
            serve_names(c, s, b"%d" % index, 1)

    with workers(c, s, 2, work):
        until(lambda: len({ask(port) for _ in range(8)}) >= 2)


@script
def parent_was_interested_before_the_fork(c: Calls) -> None:
    """It accepted, forked, and from then on leaves the accepting to the child: what it was promised goes there."""
    s, port = listen(c)
    with socket.create_connection(("127.0.0.1", port)):
        c.call("close", accept(c, s))
    with workers(c, s, 1):
        for _ in range(20):
            assert ask(port) == b"0"


@script
def busy_worker_holds_nothing(c: Calls) -> None:
    """Two workers, of which one is busy for a second after each connection: the other serves the rest at once."""
    s, port = listen(c)

    def work(index: int) -> None:
        while True:
            serve_names(c, s, b"%d" % index, 1)
            if index == 0:
                time.sleep(1)

    with workers(c, s, 2, work):
        until(lambda: len({ask(port) for _ in range(2)}) == 2)
        longest = 0.0
        seen = Counter[bytes]()
        for _ in range(200):
            start = time.monotonic()
            seen[ask(port)] += 1
            longest = max(longest, time.monotonic() - start)
    print(f"{seen}, longest {longest * 1000:.1f} ms")
    assert longest < 0.3, longest
    assert seen[b"1"] > 150


@script
def no_connection_is_lost(c: Calls) -> None:
    """Workers come and go under load; each connection gets its answer."""
    s, port = listen(c)
    failed: list[BaseException] = []
    answered = Counter[bytes]()
    stop = threading.Event()

    def work(index: int) -> None:
        serve_names(c, s, b"%d" % index, 5 + index % 7)

    crew = [Child(c, partial(work, i)) for i in range(4)]
    made = 4

    def load() -> None:
        while not stop.is_set():
            try:
                answered[ask(port)] += 1
            except BaseException as error:
                failed.append(error)
                return

    loaders = [threading.Thread(target=load) for _ in range(4)]
    for thread in loaders:
        thread.start()
    end = time.monotonic() + 4
    while time.monotonic() < end and not failed:
        pid, status = os.waitpid(-1, 0)
        assert status == 0, status
        crew = [child for child in crew if child.pid != pid]
        made += 1
        crew.append(Child(c, partial(work, made)))
    stop.set()
    while any(thread.is_alive() for thread in loaders):
        if len(crew) < 2:
            crew.append(Child(c, partial(work, 0)))
        pid, _ = os.waitpid(-1, os.WNOHANG)
        crew = [child for child in crew if child.pid != pid]
        for thread in loaders:
            thread.join(0.05)
    for child in crew:
        os.kill(child.pid, signal.SIGKILL)
        os.waitpid(child.pid, 0)
    assert not failed, failed
    print(f"{made} workers, {sum(answered.values())} connections")
    assert b"" not in answered, answered
    assert made > 20 and sum(answered.values()) > 150


@script
def killed_with_an_offer(c: Calls) -> None:
    """What a worker was offered and had not accepted when it was killed goes to another."""
    s, port = listen(c)
    with workers(c, s, 2) as (first, _second):
        until(lambda: len({ask(port) for _ in range(4)}) == 2)
        os.kill(first.pid, signal.SIGSTOP)
        peers = [socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) for _ in range(8)]
        answered = select.select(peers, [], [], 0.2)[0]
        while len(ready := select.select(peers, [], [], 0.2)[0]) > len(answered):
            answered = ready
        assert 0 < len(answered) < len(peers), f"{len(answered)} answered: the stopped worker was offered none, or all"
        os.kill(first.pid, signal.SIGKILL)
        assert [kernel_receive_all(peer) for peer in peers] == [b"1"] * len(peers)


@script
def parent_exits_after_fork(c: Calls) -> None:
    """daemon(): the parent exits at once; the child, later, is the only one that listens."""
    told, done = Signal(), Signal()

    def parent() -> None:
        s, port = listen(c)

        def child() -> None:
            told.tell(struct.pack("=H", port))
            time.sleep(0.3)
            serve_names(c, s, b"child", 2)
            done.tell()

        Child(c, child)

    Child(c, parent).wait()
    (port,) = struct.unpack("=H", told.wait(2))
    assert ask(port) == b"child" and ask(port) == b"child"
    done.wait()


@script
def closed_by_one(c: Calls) -> None:
    """The parent's close() leaves the children's listener; the last one's ends it."""
    s, port = listen(c)
    ready = Signal()

    def work(index: int) -> None:
        c.call("ioctl", s, 0x5421, ctypes.byref(ctypes.c_int(1)))
        assert c.call("accept4", s, None, None, 0) == -errno.EAGAIN
        ready.tell()
        c.call("ioctl", s, 0x5421, ctypes.byref(ctypes.c_int(0)))
        serve_names(c, s, b"%d" % index, 3)
        assert c.call("close", s) == 0
        ready.tell()
        time.sleep(60)

    with workers(c, s, 1, work):
        ready.wait()
        assert c.call("close", s) == 0
        for _ in range(3):
            assert ask(port) == b"0"
        ready.wait()
        until(partial(refused, port))


@script
def all_have_exited(c: Calls) -> None:
    """The last process that had a listener has ended, in order, without closing it: nobody else is waited for."""
    for last in ("parent", "child"):
        told, go = Signal(), Signal()

        def family(last: str = last, told: Signal = told, go: Signal = go) -> None:
            s, port = listen(c)

            def child() -> None:
                serve_names(c, s, b"child", 1)
                told.tell()
                if last == "child":
                    go.wait()

            made = Child(c, child)
            told.tell(struct.pack("=H", port))
            if last == "parent":
                made.wait()
                go.wait()

        parent = Child(c, family)
        (port,) = struct.unpack("=H", told.wait(2))
        assert ask(port) == b"child"
        told.wait()
        if last == "child":
            parent.wait()
        go.tell()
        limit = time.monotonic() + 3  # the proxy would keep it for 5
        until(partial(refused, port))
        assert time.monotonic() < limit, last
        if last == "parent":
            parent.wait()


# --- connections -------------------------------------------------------------------------------------


@script
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


@script
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


@script
def exec_without_the_sockets(c: Calls) -> None:
    s, peer = c.connected()
    fds = open_descriptors()
    for _ in range(20):
        pid = os.fork()
        if pid == 0:
            os.execv("/bin/true", ["true"])
        assert os.waitpid(pid, 0)[1] == 0
    until(lambda: open_descriptors() <= fds)
    assert send(c, s, b"still mine") == 10 and peer.recv(100) == b"still mine"


@script
def moves_with_unread_data(c: Calls) -> None:
    """What the parent had received, and what came meanwhile, reaches the child; the parent's copy is gone."""
    s, peer = c.connected()
    waiting: list[int] = []
    fd = c.call("fileno", s)
    peer.sendall(PATTERN[:40_000])
    poll(c, s)
    assert recv(c, s, 1000, socket.MSG_WAITALL) == PATTERN[:1000]

    def child() -> None:
        assert c.name("getpeername", s) == ("127.0.0.1", peer.getsockname()[1])
        assert receive_all(c, s, 199_000) == PATTERN[1000:200_000]
        assert send(c, s, b"from the child") == 14
        assert recv(c, s, 1) == b""
        assert c.call("close", s) == 0

    moved = Child(c, child)
    peer.sendall(PATTERN[40_000:200_000])
    assert peer.recv(100) == b"from the child"

    def call() -> None:
        waiting.append(c.call("recv", s, ctypes.create_string_buffer(1), 1, 0))

    assert select.select([fd], [], [], PATIENCE_S)[0]
    call()
    assert waiting == [-errno.ENOTCONN], waiting
    assert c.call("send", s, b"x", 1, 0) == -errno.ENOTCONN
    assert c.call("shutdown", s, socket.SHUT_WR) == -errno.ENOTCONN
    assert c.get(s, socket.IPPROTO_TCP, socket.TCP_NODELAY) == -errno.ENOTCONN
    assert c.name("getpeername", s) is None
    assert poll(c, s) & select.POLLHUP
    assert c.call("close", s) == 0
    peer.shutdown(socket.SHUT_WR)
    moved.wait()
    assert peer.recv(1) == b""
    assert info(c).sockets == 0


@script
def a_thread_of_the_parent_is_reading(c: Calls) -> None:
    s, peer = c.connected()
    results: list[int] = []
    thread = threading.Thread(target=lambda: results.append(c.call("recv", s, ctypes.create_string_buffer(9), 9, 0)))
    thread.start()
    time.sleep(0.05)

    def child() -> None:
        assert send(c, s, b"mine") == 4
        assert recv(c, s, 10) == b"yours"

    moved = Child(c, child)
    assert peer.recv(10) == b"mine"
    peer.sendall(b"yours")
    moved.wait()
    thread.join(PATIENCE_S)
    assert results == [-errno.ENOTCONN]


@script
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


@script
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


@script
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


@script
def grandchild_asks_through_the_child(c: Calls) -> None:
    s, peer = c.connected()
    peer.sendall(b"hello")
    poll(c, s)

    def grandchild() -> None:
        assert recv(c, s, 10) == b"hello"
        assert send(c, s, b"grandchild") == 10

    Child(c, lambda: Child(c, grandchild).wait()).wait()
    assert peer.recv(100) == b"grandchild"


@script
def parent_exits(c: Calls) -> None:
    """ssh -f: the parent exits at once with data unread; the connection is the child's."""
    s, peer = c.connected()
    go = Signal()

    def parent() -> None:
        # It has taken the connection from us when it forks in its turn.
        assert recv(c, s, 1000, socket.MSG_WAITALL) == PATTERN[:1000]
        Child(c, rest)

    def rest() -> None:
        go.wait()
        assert receive_all(c, s, 59_000) == PATTERN[1000:60_000]
        assert send(c, s, b"child") == 5

    peer.sendall(PATTERN[:60_000])
    Child(c, parent).wait()
    go.tell()
    assert peer.recv(100) == b"child"


@script
def daemon_forks_twice(c: Calls) -> None:
    s, peer = c.connected()
    peer.sendall(b"hello")
    go = Signal()

    def grandchild() -> None:
        go.wait()
        assert recv(c, s, 10) == b"hello"
        assert send(c, s, b"daemon") == 6
        c.call("close", s)

    def child() -> None:
        Child(c, grandchild)

    def parent() -> None:
        assert send(c, s, b"parent") == 6
        Child(c, child)

    Child(c, parent).wait()
    assert c.call("close", s) == 0
    go.tell()
    assert kernel_receive_all(peer) == b"parentdaemon"


@script
def exits_between_parent_and_grandchild(c: Calls) -> None:
    """What a child has not used stays its parent's when it exits; the grandchild asks there."""
    s, peer = c.connected()
    second, second_peer = c.connected()
    go, used = Signal(), Signal()

    def grandchild() -> None:
        go.wait()
        assert send(c, second, b"grandchild") == 10
        used.tell()
        assert c.call("close", s) == 0 and c.call("close", second) == 0

    def child() -> None:
        Child(c, grandchild)

    Child(c, child).wait()
    assert send(c, s, b"parent") == 6
    go.tell()
    used.wait()
    assert kernel_receive_all(second_peer) == b"grandchild"
    assert send(c, s, b", still") == 7
    assert c.call("close", s) == 0
    assert kernel_receive_all(peer) == b"parent, still"


@script
def closes_when_nobody_wants_it(c: Calls) -> None:
    """The parent has closed; the child never uses its copy. Its close, its end or its death ends the connection."""
    for how in ("close", "end", "kill", "child first"):
        s, peer = c.connected()
        go, closed = Signal(), Signal()

        def child(how: str = how, s: int = s, go: Signal = go, closed: Signal = closed) -> None:
            if how != "child first":
                go.wait()
            if how in ("close", "child first"):
                assert c.call("close", s) == 0
                closed.tell()
                time.sleep(60)
            if how == "kill":
                time.sleep(60)

        made = Child(c, child)
        if how == "child first":
            closed.wait()
        assert c.call("close", s) == 0
        assert c.call("close", s) == -errno.EBADF
        if how != "child first":
            assert not select.select([peer], [], [], 0.1)[0], "closed, though the child may want it"
            go.tell()
        if how == "kill":
            made.kill()
        assert peer.recv(1) == b"", how
        if how in ("close", "child first"):
            made.kill()
        elif how == "end":
            made.wait()
        until(lambda: info(c).sockets == 0)


@script
def killed_child(c: Calls) -> None:
    """A child killed after it has taken the connection: the peer learns it, the parent's copy stays gone."""
    s, peer = c.connected()

    def child() -> None:
        send(c, s, b"x")
        time.sleep(60)

    taken = Child(c, child)
    assert peer.recv(1) == b"x"
    taken.kill()
    assert peer.recv(1) == b""
    assert c.call("send", s, b"x", 1, 0) == -errno.ENOTCONN


@script
def what_cannot_be_kept(c: Calls) -> None:
    """Refused, each with an errno; and what the proxy never knew is as good as new."""
    _server = socket.create_server(("127.0.0.1", 0))
    port = _server.getsockname()[1]
    fresh, bound, listening = c.create(), c.create(), listen(c, share=False)[0]
    assert c.call("bind", bound, address(0), 16) == 0

    def child() -> None:
        assert c.call("listen", bound, 5) == -errno.ENETDOWN
        assert c.call("connect", bound, address(port), 16) == -errno.ENETDOWN
        assert c.call("accept4", listening, None, None, 0) == -errno.ENETDOWN
        assert c.call("connect", fresh, address(port), 16) == -errno.ENETDOWN  # nothing attaches it
        mine = c.create()
        assert c.call("connect", mine, address(port), 16) == 0
        assert c.call("connect", fresh, address(port), 16) == 0
        for s in (fresh, bound, listening, mine):
            assert c.call("close", s) == 0

    Child(c, child).wait()
    assert c.call("listen", bound, 5) == 0


@script
def another_child_was_faster(c: Calls) -> None:
    s, peer = c.connected()
    first, second = Signal(), Signal()

    def takes() -> None:
        assert send(c, s, b"x") == 1
        first.tell()
        second.wait()

    def too_late() -> None:
        first.wait()
        assert c.call("send", s, b"y", 1, 0) == -errno.ENOTCONN
        assert c.call("close", s) == 0
        second.tell()

    children = [Child(c, takes), Child(c, too_late)]
    for child in children:
        child.wait()
    assert kernel_receive_all(peer) == b"x"


@script
def hundreds_of_forks(c: Calls) -> None:
    """Each child uses one connection, closes one and leaves one alone. No descriptor, socket or thread is left over."""
    server = socket.create_server(("127.0.0.1", 0))
    port = server.getsockname()[1]
    kept = c.create()
    assert c.call("connect", kept, address(port), 16) == 0
    kept_peer = server.accept()[0]

    def one() -> None:
        s = c.create()
        assert c.call("connect", s, address(port), 16) == 0
        peer = server.accept()[0]

        def child() -> None:
            assert send(c, s, b"child") == 5
            assert c.call("close", kept) == 0

        made = Child(c, child)
        assert c.call("close", s) == 0
        assert kernel_receive_all(peer) == b"child"
        peer.close()
        made.wait()

    one()
    until(lambda: info(c).sockets == 1)
    fds, threads = open_descriptors(), len(list(Path("/proc/self/task").iterdir()))
    for _ in range(200):
        one()
    until(lambda: info(c).sockets == 1)
    until(lambda: open_descriptors() <= fds and len(list(Path("/proc/self/task").iterdir())) <= threads)
    assert send(c, kept, b"still mine") == 10 and kept_peer.recv(100) == b"still mine"


@script
def fork_amid_threads(c: Calls) -> None:
    """Threads echo on connections of their own while the process forks; children take one connection each."""
    server = socket.create_server(("127.0.0.1", 0), backlog=64)
    port = server.getsockname()[1]
    stop = threading.Event()
    failed: list[BaseException] = []
    rounds = Counter[int]()

    def busy(index: int) -> None:
        try:
            s = c.create()
            assert c.call("connect", s, address(port), 16) == 0
            while not stop.is_set():
                data = PATTERN[index : index + 5000]
                assert send(c, s, data) == len(data)
                assert receive_all(c, s, len(data)) == data
                rounds[index] += 1
            c.call("close", s)
        except BaseException as error:
            failed.append(error)

    def echo(peer: socket.socket) -> None:
        with peer:
            while data := peer.recv(65536):
                peer.sendall(data)

    def accepting() -> None:
        while True:
            threading.Thread(target=echo, args=(server.accept()[0],), daemon=True).start()

    threading.Thread(target=accepting, daemon=True).start()
    threads = [threading.Thread(target=busy, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(25):
        s = c.create()
        assert c.call("connect", s, address(port), 16) == 0

        def child(s: int = s) -> None:
            assert send(c, s, b"child") == 5
            assert receive_all(c, s, 5) == b"child"

        made = Child(c, child)
        assert c.call("close", s) == 0
        made.wait()
    stop.set()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert not failed, failed
    assert len(rounds) == 4


# --- exec --------------------------------------------------------------------------------------------


class Bequest(ctypes.Structure):
    _fields_ = (("number", ctypes.c_int), ("descriptor", ctypes.c_int), ("again", ctypes.c_bool))


NEXT: dict[str, Callable[[Calls, dict[int, int]], None]] = {}


def after_exec(function: Callable[[Calls, dict[int, int]], None]) -> Callable[[Calls, dict[int, int]], None]:
    """What runs in the new program, with its sockets by the descriptors they had."""
    NEXT[function.__name__] = function
    return function


def bequeath(c: Calls, *sockets: int) -> int:
    """The sockets are given up; their descriptors shall be 100, 101 …"""
    array = (Bequest * len(sockets))(*(Bequest(s, 100 + i) for i, s in enumerate(sockets)))
    memfd = c.call("bequeath", array, len(sockets))
    assert memfd >= 0, memfd
    return memfd


def execute(function: Callable[[Calls, dict[int, int]], None], memfd: int, program: str = sys.executable) -> None:
    here = [sys.argv[0], sys.argv[1], function.__name__, str(memfd)]
    os.execv(program, [program, *here])


def take_over(c: Calls, memfd: int) -> tuple[dict[int, int], list[tuple[int, int]]]:
    """The sockets by descriptor; and the lost ones, with their errno."""
    got: dict[int, int] = {}
    lost = []
    out = Bequest()
    while r := c.call("inherit_next", memfd, ctypes.byref(out)):
        if r == 1:
            assert out.again == (out.number in got.values())
            got[out.descriptor] = out.number
        else:
            lost.append((out.descriptor, -r))
    return got, lost


@after_exec
def serves_on(c: Calls, sockets: dict[int, int]) -> None:
    connection, listener = sockets[100], sockets[101]
    assert c.call("fcntl", connection, 3, 0) & os.O_NONBLOCK
    assert c.call("ioctl", connection, 0x5421, ctypes.byref(ctypes.c_int(0))) == 0
    assert receive_all(c, connection, 199_000) == PATTERN[1000:200_000]
    assert send(c, connection, b"after exec") == 10
    serve_names(c, listener, b"next", 3)


@script
def exec_keeps_a_connection_and_a_listener(c: Calls) -> None:
    told = Signal()

    def program() -> None:
        s, port = listen(c)
        told.tell(struct.pack("=H", port))
        connection = accept(c, s)
        assert recv(c, connection, 1000, socket.MSG_WAITALL) == PATTERN[:1000]
        assert c.call("ioctl", connection, 0x5421, ctypes.byref(ctypes.c_int(1))) == 0
        poll(c, connection)
        execute(serves_on, bequeath(c, connection, s))

    child = Child(c, program)
    (port,) = struct.unpack("=H", told.wait(2))
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as peer:
        peer.sendall(PATTERN[:200_000])
        assert peer.recv(100) == b"after exec"
        for _ in range(3):
            assert ask(port) == b"next"
    child.wait()


@after_exec
def serves_once(c: Calls, sockets: dict[int, int]) -> None:
    assert recv(c, sockets[100], 100) == b"to whoever reads"
    assert send(c, sockets[100], b"inetd") == 5
    assert c.call("close", sockets[100]) == 0


@script
def fork_and_exec_with_a_connection(c: Calls) -> None:
    """inetd: the parent accepts, forks, closes; the child gives the connection to the program it becomes."""
    s, port = listen(c)
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as peer:
        peer.sendall(b"to whoever reads")
        connection = accept(c, s)
        child = Child(c, lambda: execute(serves_once, bequeath(c, connection)))
        assert c.call("close", connection) == 0
        assert kernel_receive_all(peer) == b"inetd"
        child.wait()
    until(lambda: info(c).sockets == 1)


@after_exec
def has_duplicates(c: Calls, sockets: dict[int, int]) -> None:
    assert list(sockets) == [100, 101, 102, 103]
    assert sockets[100] == sockets[102] == sockets[103] != sockets[101]
    assert recv(c, sockets[102], 100) == b"to the other"
    assert send(c, sockets[103], b"by the third") == 12


@script
def exec_with_several_descriptors_of_a_socket(c: Calls) -> None:
    s, peer = c.connected()
    other, _ = listen(c)
    peer.sendall(b"to the other")
    child = Child(c, lambda: execute(has_duplicates, bequeath(c, s, other, s, s)))
    assert kernel_receive_all(peer) == b"by the third"
    child.wait()
    peer.close()


@after_exec
def uses_nothing(c: Calls, sockets: dict[int, int]) -> None:
    assert list(sockets) == [100, 101]


@script
def fork_and_exec_of_a_program_that_uses_nothing(c: Calls) -> None:
    """A program with the server's sockets among its descriptors, as most have it: the server does not notice."""
    listener, port = listen(c)
    s, peer = c.connected()
    peer.sendall(b"before")
    poll(c, s)
    Child(c, lambda: execute(uses_nothing, bequeath(c, listener, s))).wait()
    assert recv(c, s, 100) == b"before"
    assert send(c, s, b"still mine") == 10 and peer.recv(100) == b"still mine"
    assert c.call("close", s) == 0
    assert peer.recv(1) == b""
    until(lambda: info(c).sockets == 1)
    thread = threading.Thread(target=serve_names, args=(c, listener, b"me", 1))
    thread.start()
    assert ask(port) == b"me"
    thread.join()


@after_exec
def listens_too(c: Calls, sockets: dict[int, int]) -> None:
    serve_names(c, sockets[100], b"new", 40)


@script
def upgrade_under_load(c: Calls) -> None:
    """nginx's upgrade of its program: old and new listen together, then the new one alone; no connection is lost."""
    s, port = listen(c)
    old = Child(c, lambda: serve_names(c, s, b"old", 40))
    seen = Counter(ask(port) for _ in range(10))
    new = Child(c, lambda: execute(listens_too, bequeath(c, s)))
    seen += Counter(ask(port) for _ in range(70))
    assert seen == {b"old": 40, b"new": 40}, seen
    for child in (old, new):
        child.wait()


@script
def exec_fails(c: Calls) -> None:
    """Everything comes back under its old number, unread data too."""
    s, port = listen(c)
    t, peer = c.connected()
    peer.sendall(PATTERN[:100_000])
    assert recv(c, t, 1000, socket.MSG_WAITALL) == PATTERN[:1000]
    fds = open_descriptors()
    memfd = bequeath(c, s, t)
    try:
        os.execv("/nonexistent", ["nonexistent"])
    except FileNotFoundError:
        c.native.xts_resume(memfd)
    assert open_descriptors() == fds
    assert receive_all(c, t, 99_000) == PATTERN[1000:100_000]
    assert send(c, t, b"still mine") == 10 and peer.recv(100) == b"still mine"
    thread = threading.Thread(target=serve_names, args=(c, s, b"me", 1))
    thread.start()
    assert ask(port) == b"me"
    thread.join()


@after_exec
def says_what_is_lost(c: Calls, sockets: dict[int, int]) -> None:
    raise AssertionError("not reached")


@script
def exec_without_a_proxy(c: Calls) -> None:
    """The new program cannot attach: it is told of each connection, once."""

    def program() -> None:
        s, _peer = c.connected()
        t, _other = c.connected()
        memfd = bequeath(c, s, t)
        os.environ["XTS_ENDPOINT"] = "/nowhere"
        execute(says_what_is_lost, memfd)

    child = Child(c, program)
    _, status = os.waitpid(child.pid, 0)
    assert os.waitstatus_to_exitcode(status) == 3


@after_exec
def finds_some(c: Calls, sockets: dict[int, int]) -> None:
    assert list(sockets) == [101]
    assert send(c, sockets[101], b"x") == 1


@script
def exec_loses_what_cannot_be_kept(c: Calls) -> None:
    s, peer = c.connected()
    bound = c.create()
    assert c.call("bind", bound, address(0), 16) == 0
    Child(c, lambda: execute(finds_some, bequeath(c, bound, s))).wait()
    assert peer.recv(1) == b"x"


@script
def nonsense_is_refused(c: Calls) -> None:
    for content in (b"x", bytes(8), bytes(4096), PATTERN[:5000], struct.pack("=II", 0x58545342, 9) + bytes(400)):
        memfd = os.memfd_create("nonsense")
        os.write(memfd, content)
        os.lseek(memfd, 0, os.SEEK_SET)
        assert c.call("inherit_next", memfd, ctypes.byref(Bequest())) == -errno.EPROTO
        assert c.call("inherit_next", memfd, ctypes.byref(Bequest())) == 0
    assert info(c).sockets == 0


def main() -> None:
    faulthandler.dump_traceback_later(100, exit=True)
    calls = Calls(sys.argv[1])
    calls.native.xts_inherit_over_fork()
    if len(sys.argv) > 3:
        got, lost = take_over(calls, int(sys.argv[3]))
        if sys.argv[2] == "says_what_is_lost":
            assert not got and [descriptor for descriptor, _ in lost] == [100, 101], (got, lost)
            sys.exit(3)
        assert not lost, lost
        NEXT[sys.argv[2]](calls, got)
    else:
        SCRIPTS[sys.argv[2]](calls)


if __name__ == "__main__":
    main()
