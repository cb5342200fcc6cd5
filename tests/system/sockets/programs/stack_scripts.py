"""Stacks of one process: `python stack_scripts.py NAME[,…] ADDRESS PORT LIBRARY KIND [ENDPOINT]`.

An echo server is at ADDRESS and PORT; LIBRARY is libxts, KIND that of its queue.

Each script is a process of its own and asserts; the exit status tells.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import resource
import select
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import xts_socket
from beds.scripts import apart, script, scripts
from xts_socket._native import ffi, lib

DEADLINE_S = 20.0
PEER = ("", 0)
ENDPOINT = LIBRARY = QUEUE_KIND = ""


def connected() -> Any:
    s = xts_socket.socket()
    s.settimeout(DEADLINE_S)
    s.connect(PEER)
    return s


def echo(s: Any, text: bytes = b"hello") -> None:
    s.sendall(text)
    got = b""
    while len(got) < len(text):
        part = s.recv(len(text) - len(got))
        assert part
        got += part
    assert got == text


def in_threads(count: int, body: Callable[[], Any]) -> list[Any]:
    """Runs body in so many threads, which all live until the last has done; what it returned."""
    results: list[Any] = [None] * count
    failures: list[BaseException] = []
    done = threading.Barrier(count, timeout=DEADLINE_S)

    def run(n: int) -> None:
        try:
            results[n] = body()
            done.wait()
        except BaseException as failure:
            failures.append(failure)
            done.abort()

    threads = [threading.Thread(target=run, args=(n,)) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures
    return results


def exchange() -> tuple[int, int, int, int]:
    """A connection's exchanges: its stack, attachment, queue, and how often the thread found the lock taken."""
    with connected() as s:
        for _ in range(200):
            echo(s)
        found = xts_socket.info()
        assert found.stack == xts_socket.stack_of(s)
        return found.stack, found.epoch, found.queue_id, found.lock_waits


@script("XTS_STACKS=thread")
def threads_share_nothing() -> None:
    found = in_threads(3, exchange)
    assert len({stack for stack, *_ in found}) == 3
    assert len({epoch for _, epoch, *_ in found}) == 3
    if QUEUE_KIND == "afxdp":
        assert len({queue for _, _, queue, _ in found}) == 3
    assert [waits for *_, waits in found] == [0, 0, 0]


@script("XTS_STACKS=2")
def threads_are_spread_over_two() -> None:
    assert len({stack for stack, *_ in in_threads(4, exchange)}) == 2


@script("XTS_STACKS=process")
def threads_share_one() -> None:
    assert len({stack for stack, *_ in in_threads(3, exchange)}) == 1


@script("XTS_STACKS=thread")
def a_socket_outlives_its_thread() -> None:
    made: list[Any] = []
    thread = threading.Thread(target=lambda: made.append(connected()))
    thread.start()
    thread.join()
    s = made[0]
    stack = xts_socket.stack_of(s)
    with connected() as mine:
        assert xts_socket.stack_of(mine) != stack
        for _ in range(10):
            echo(s)
            echo(mine)
    s.close()


def wait_until_ended(stack: int) -> None:
    """Its last socket is free when the proxy has answered its close."""
    end = time.monotonic() + DEADLINE_S
    while lib.xts_py_stack_use(stack, ffi.new("int *")) != -errno.ENOENT:
        assert lib.xts_py_stack_use(lib.XTS_STACK_OF_SETTING, ffi.new("int *")) == 0
        assert time.monotonic() < end
        time.sleep(0.01)


@script("XTS_STACKS=thread")
def stacks_of_threads_that_exit_are_used_again() -> None:
    numbers = set()
    for _ in range(12):
        found: list[int] = []
        thread = threading.Thread(target=lambda found=found: found.append(exchange()[0]))
        thread.start()
        thread.join()
        numbers.add(found[0])
        wait_until_ended(found[0])
    assert len(numbers) == 1, numbers


def other_stack() -> Any:
    with xts_socket.Stack():
        return connected()


class Pollfd(ctypes.Structure):
    _fields_ = (("fd", ctypes.c_int), ("events", ctypes.c_short), ("revents", ctypes.c_short))


def poll(numbers: list[int], events: int, timeout_ms: int) -> list[int]:
    xts_poll = ctypes.CDLL(LIBRARY).xts_poll
    fds = (Pollfd * len(numbers))(*(Pollfd(number, events, 0) for number in numbers))
    ready = xts_poll(fds, ctypes.c_ulong(len(numbers)), timeout_ms)
    assert ready == sum(fd.revents != 0 for fd in fds), (ready, [fd.revents for fd in fds])
    return [fd.revents for fd in fds]


@script("XTS_STACKS=process")
def poll_over_stacks() -> None:
    with connected() as a, other_stack() as b, other_stack() as c:
        assert len({xts_socket.stack_of(s) for s in (a, b, c)}) == 3
        numbers = [s._number for s in (a, b, c)]
        assert poll(numbers, select.POLLIN, 0) == [0, 0, 0]
        assert poll(numbers, select.POLLIN, 20) == [0, 0, 0]
        for n, s in enumerate((a, b, c)):
            s.sendall(b"x")
            want = [select.POLLIN if i == n else 0 for i in range(3)]
            assert poll(numbers, select.POLLIN, 10_000) == want
            assert s.recv(10) == b"x"
            assert poll(numbers, select.POLLIN, 0) == [0, 0, 0]
        assert poll(numbers, select.POLLOUT, 10_000) == [select.POLLOUT] * 3
        c.shutdown(xts_socket.SHUT_WR)
        assert poll(numbers, select.POLLIN, 10_000) == [0, 0, select.POLLIN | select.POLLHUP]  # both ways are shut
    assert poll(numbers, select.POLLIN, 0) == [select.POLLNVAL] * 3


@script("XTS_STACKS=process")
def poll_over_stacks_while_it_sleeps() -> None:
    """Also where no descriptor is available, for hang-up alone, for a socket twice, and for one that is closed."""
    with connected() as a, other_stack() as b, other_stack() as c:
        numbers = [s._number for s in (a, b, b, c)]

        def later(action: Callable[[], Any], events: int) -> list[int]:
            timer = threading.Timer(0.05, action)
            timer.start()
            found = poll(numbers, events, 10_000)
            timer.join()
            return found

        assert later(lambda: b.sendall(b"x"), select.POLLIN) == [0, select.POLLIN, select.POLLIN, 0]
        assert b.recv(10) == b"x"
        taken: list[int] = []
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(before[0], 256), before[1]))
        threading.Timer(0.05, c.sendall, (b"x",)).start()
        try:
            with contextlib.suppress(OSError):
                while True:
                    taken.append(os.open(os.devnull, os.O_RDONLY))
            assert poll(numbers, select.POLLIN, 10_000) == [0, 0, 0, select.POLLIN]
        finally:
            for fd in taken:
                os.close(fd)
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
        assert c.recv(10) == b"x"
        assert poll(numbers, select.POLLIN, 30) == [0, 0, 0, 0]
        assert later(c.close, select.POLLIN) == [0, 0, 0, select.POLLNVAL]
        b.shutdown(xts_socket.SHUT_WR)
        assert poll(numbers[:3], 0, 10_000) == [0, select.POLLHUP, select.POLLHUP]


def epoll_wait(context: Any, timeout_ms: int) -> dict[int, int]:
    pairs = ffi.new("int32_t[]", 32)
    n = lib.xts_py_epoll_wait(context, pairs, 16, timeout_ms)
    assert n >= 0, n
    return {pairs[2 * i]: pairs[2 * i + 1] for i in range(n)}


@script("XTS_STACKS=process")
def epoll_over_stacks() -> None:
    context = lib.xts_epoll_ctx_create_flags(0)
    with connected() as a, other_stack() as b, other_stack() as c:
        for s in (a, b, c):
            assert lib.xts_py_epoll_ctl(context, 1, s._number, select.EPOLLIN) == 0
        assert lib.xts_py_epoll_ctl(context, 1, b._number, select.EPOLLIN) == -17  # EEXIST
        assert epoll_wait(context, 20) == {}
        for s in (a, b, c, b, a):
            s.sendall(b"x")
            assert epoll_wait(context, 10_000) == {s._number: select.EPOLLIN}
            assert epoll_wait(context, 0) == {s._number: select.EPOLLIN}  # level-triggered
            assert s.recv(10) == b"x"
            assert epoll_wait(context, 0) == {}
        assert lib.xts_py_epoll_ctl(context, 3, b._number, select.EPOLLOUT) == 0
        assert epoll_wait(context, 10_000) == {b._number: select.EPOLLOUT}
        assert lib.xts_py_epoll_ctl(context, 2, b._number, 0) == 0
        b.sendall(b"x")
        assert epoll_wait(context, 50) == {}
        c.close()
        assert epoll_wait(context, 50) == {}
    lib.xts_epoll_ctx_destroy(context)


ET, IN, ONESHOT = select.EPOLLET, select.EPOLLIN, select.EPOLLONESHOT


@script("XTS_STACKS=process")
def edges_over_stacks() -> None:
    """What arrives is an edge, also while something is unread; whose stack the socket is in does not matter."""
    context = lib.xts_epoll_ctx_create_flags(0)
    with connected() as a, other_stack() as b:
        for s in (a, b):
            assert lib.xts_py_epoll_ctl(context, 1, s._number, IN | ET) == 0
        for s in (a, b):
            for n in range(20):
                s.sendall(b"xy")
                assert epoll_wait(context, 10_000) == {s._number: IN}, n
            while len(s.recv(100, xts_socket.MSG_PEEK)) < 40:
                epoll_wait(context, 10_000)
            assert epoll_wait(context, 0) == {}, "no edge without an arrival"
            assert s.recv(1) == b"x" and epoll_wait(context, 0) == {}, "nor by reading"
            assert lib.xts_py_epoll_ctl(context, 3, s._number, IN | ET) == 0
            assert epoll_wait(context, 0) == {s._number: IN}, "registering again is one"
            assert lib.xts_py_epoll_ctl(context, 3, s._number, IN | ONESHOT) == 0
            assert epoll_wait(context, 0) == {s._number: IN}
            s.sendall(b"z")
            assert epoll_wait(context, 50) == {}, "until it is armed again"
            assert lib.xts_py_epoll_ctl(context, 3, s._number, IN | ET) == 0
            assert epoll_wait(context, 10_000) == {s._number: IN}
    lib.xts_epoll_ctx_destroy(context)


@script("XTS_STACKS=process")
def many_sockets_over_stacks() -> None:
    """More than are taken at a time. All in one call, each once, and again as long as they are unread."""
    count = 150
    context = lib.xts_epoll_ctx_create_flags(0)
    pairs = ffi.new("int32_t[]", 4 * count)
    with xts_socket.Stack():
        made = [connected() for _ in range(count)]
    for s in made:
        assert lib.xts_py_epoll_ctl(context, 1, s._number, IN) == 0
        s.sendall(b"x")
    for s in made:
        assert s.recv(1, xts_socket.MSG_PEEK) == b"x"
    for room in (2 * count, count, 40, 2 * count):
        n = lib.xts_py_epoll_wait(context, pairs, room, 0)
        found = {pairs[2 * i] for i in range(n)}
        assert n == min(count, room) == len(found) and found <= {s._number for s in made}, (room, n, len(found))
    for s in made[::2]:
        s.recv(1)
    for s in made[1::4]:
        s.close()
    n = lib.xts_py_epoll_wait(context, pairs, 2 * count, 0)
    assert sorted(pairs[2 * i] for i in range(n)) == sorted(s._number for s in made[3::4])
    lib.xts_epoll_ctx_destroy(context)
    for s in made:
        s.close()


@script("XTS_STACKS=process")
def sets_end_and_sockets_go_on() -> None:
    """A set is destroyed while sockets of another stack are in it, by one thread while others use them."""
    with other_stack() as s:
        for _ in range(200):
            context = lib.xts_epoll_ctx_create_flags(0)
            assert lib.xts_py_epoll_ctl(context, 1, s._number, IN | ET) == 0
            sender = threading.Thread(target=echo, args=(s,))
            sender.start()
            lib.xts_epoll_ctx_destroy(context)
            sender.join()


@script("XTS_STACKS=process")
def a_thread_waits_and_the_set_gets_a_socket_of_another_stack() -> None:
    context = lib.xts_epoll_ctx_create_flags(0)
    found: list[dict[int, int]] = []
    with connected() as a, other_stack() as b:
        assert lib.xts_py_epoll_ctl(context, 1, a._number, IN) == 0
        waiter = threading.Thread(target=lambda: found.append(epoll_wait(context, 20_000)))
        waiter.start()
        waiter.join(0.05)
        assert lib.xts_py_epoll_ctl(context, 1, b._number, IN) == 0
        b.sendall(b"x")
        waiter.join(DEADLINE_S)
        assert found == [{b._number: IN}]
    lib.xts_epoll_ctx_destroy(context)


@script("XTS_STACKS=process")
def the_descriptor_of_a_set_over_stacks() -> None:
    """It is readable while there is something to collect, and only then."""
    context = lib.xts_epoll_ctx_create_flags(0)
    fd, pairs = lib.xts_epoll_fd(context), ffi.new("int32_t[]", 32)
    with other_stack() as s:
        assert lib.xts_py_epoll_ctl(context, 1, s._number, IN) == 0
        for _ in range(20):
            while lib.xts_py_epoll_now(context, pairs, 16):
                pass
            s.sendall(b"x")
            assert select.select([fd], [], [], DEADLINE_S)[0]
            assert epoll_wait(context, 10_000) == {s._number: IN}
            assert s.recv(10) == b"x"
            assert lib.xts_py_epoll_now(context, pairs, 16) == 0
            assert not select.select([fd], [], [], 0)[0]
    lib.xts_epoll_ctx_destroy(context)


@script("XTS_STACKS=process")
def edges_of_a_kernel_descriptor() -> None:
    """fileno() in an edge-triggered set of the program's own: each arrival is an edge, however many are unread."""
    with connected() as s, select.epoll() as watch:
        watch.register(s.fileno(), IN | ET)
        for n in range(200):
            s.sendall(b"x")
            assert watch.poll(DEADLINE_S) == [(s.fileno(), IN)], n
        got = 0
        while got < 200:
            got += len(s.recv(1000))
        assert watch.poll(0) == [] and not select.select([s.fileno()], [], [], 0)[0]
        s.sendall(b"x")
        assert watch.poll(DEADLINE_S) == [(s.fileno(), IN)]


@script("XTS_STACKS=thread")
def one_thread_waits_and_another_sends() -> None:
    s: list[Any] = []
    thread = threading.Thread(target=lambda: s.append(connected()))
    thread.start()
    thread.join()
    timer = threading.Timer(0.05, s[0].sendall, (b"x",))
    timer.start()
    assert poll([s[0]._number], select.POLLIN, 10_000) == [select.POLLIN]
    timer.join()
    s[0].close()


@script("XTS_STACKS=process")
def two_endpoints() -> None:
    with connected() as a:
        here = xts_socket.info().epoch
        with xts_socket.Stack(ENDPOINT) as stack, connected() as b:
            assert xts_socket.stack_of(b) == stack.number != xts_socket.stack_of(a)
            assert xts_socket.info().epoch != here
            echo(b)
        echo(a)
    with connected() as a:
        assert xts_socket.stack_of(a) != stack.number


@script("XTS_STACKS=thread")
def fork_with_several_stacks() -> None:
    def child(sockets: list[Any]) -> None:
        for s in sockets:
            try:
                s.sendall(b"x")
            except OSError as failure:
                assert failure.errno == 9  # EBADF: plain libxts gives the child nothing
            else:
                raise AssertionError("the child has its parent's socket")
        in_threads(2, exchange)

    made = in_threads(2, connected)
    for _ in range(3):
        pid = os.fork()
        if not pid:
            try:
                child(made)
            except BaseException as failure:
                print(repr(failure), file=sys.stderr, flush=True)
                os._exit(1)
            os._exit(0)
        for s in made:
            echo(s)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    for s in made:
        echo(s)
        s.close()


#: By the value of XTS_STACKS that they run with.
BY_SETTING = {value: scripts(f"XTS_STACKS={value}") for value in ("process", "thread", "2")}
SETTINGS = {name: value for value, named in BY_SETTING.items() for name in named}

if __name__ == "__main__":
    NAME = apart(sys.argv[1])
    PEER = (sys.argv[2], int(sys.argv[3]))
    LIBRARY, QUEUE_KIND = sys.argv[4:6]
    ENDPOINT = sys.argv[6] if len(sys.argv) > 6 else ""
    BY_SETTING[SETTINGS[NAME]][NAME]()
