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

from call_scripts import EPOLL_CTL_ADD, Calls, EpollEvent, PollFd, address, until
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
    return len(os.listdir(f"/proc/{pid or 'self'}/fd"))


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

    made = [Child(c, lambda i=i: work(i)) for i in range(count)]  # type: ignore[misc]
    try:
        yield made
    finally:
        for child in made:
            os.kill(child.pid, signal.SIGKILL)
            os.waitpid(child.pid, 0)


# --- listeners ---------------------------------------------------------------------------------------


@script
def no_interest_no_connection(c: Calls) -> None:
    """A master that never accepts takes nothing, though it has listened, and forked or not."""
    s, port = listen(c)
    with socket.create_connection(("127.0.0.1", port)):
        time.sleep(0.05)
        assert info(c).received_frames == 3, "BIND_ACK, LISTEN_ACK, SHARE_ACK"
        connection = accept(c, s)
        send(c, connection, b"x")


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

    with workers(c, s, 3, work):
        until(lambda: len({ask(port) for _ in range(8)}) >= 3)
        seen = Counter(ask(port) for _ in range(150))
    assert len(seen) == 3 and min(seen.values()) >= 20, seen


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
    """Workers come and go, by SIGKILL while they wait or in an orderly way; each connection gets its answer."""
    s, port = listen(c)
    failed: list[BaseException] = []
    answered = Counter[bytes]()
    stop = threading.Event()

    def work(index: int) -> None:
        serve_names(c, s, b"%d" % index, 5 + index % 7)

    crew = [Child(c, lambda: work(i)) for i in range(4)]
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
        crew.append(Child(c, lambda: work(made)))
    stop.set()
    while any(thread.is_alive() for thread in loaders):
        if len(crew) < 2:
            crew.append(Child(c, lambda: work(0)))
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

        def refused() -> bool:
            try:
                ask(port)
            except ConnectionRefusedError:
                return True
            except OSError:
                return False
            return False

        until(refused)


def main() -> None:
    faulthandler.dump_traceback_later(100, exit=True)
    calls = Calls(sys.argv[1])
    calls.native.xts_inherit_over_fork()
    SCRIPTS[sys.argv[2]](calls)


if __name__ == "__main__":
    main()
