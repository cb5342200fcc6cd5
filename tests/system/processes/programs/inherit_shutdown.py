"""Listeners that one of several processes shuts down. All of it is so on the kernel."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import select
import socket
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

from beds.calls import EPOLL_CTL_ADD, Calls, address, until
from beds.libc_structs import EpollEvent
from beds.scripts import script
from system.processes.programs.inheriting import (
    Child,
    Signal,
    accept,
    kernel_receive_all,
    poll,
    serve_names,
    workers,
)
from system.sockets.programs.library_scripts import send
from xts_lab.free_ports import free_port

FIONBIO = 0x5421
#: What poll() reports of a socket that is neither connected nor listens.
UNCONNECTED = select.POLLHUP | select.POLLOUT
ALL = select.POLLIN | select.POLLOUT | 0x2000


def bound(c: Calls) -> tuple[int, int]:
    """A socket that is bound, to a port of the program's choice, and may be shared. Connections that have ended do not
    keep it from listening again."""
    for _ in range(20):
        s, port = c.create(), free_port()
        assert c.set(s, socket.SOL_SOCKET, socket.SO_REUSEADDR, 1) == 0
        if c.call("bind", s, address(port, c.here), 16) == 0:
            assert c.call("share_listener", s) == 0
            return s, port
        c.call("close", s)
    raise AssertionError("no port is free")


def listener(c: Calls) -> tuple[int, int]:
    s, port = bound(c)
    assert c.call("listen", s, 16) == 0
    return s, port


def nonblocking(c: Calls, s: int, on: bool = True) -> None:
    assert c.call("ioctl", s, FIONBIO, ctypes.byref(ctypes.c_int(on))) == 0


def uses(c: Calls, s: int) -> None:
    """This process has the socket from now on: it has made a call on it. O_NONBLOCK would be for all."""
    assert poll(c, s, select.POLLIN, 0) == 0


def until_it_sleeps(pid: int) -> None:
    """All threads of the process wait for something."""

    def states() -> set[str]:
        tasks = Path(f"/proc/{pid}/task").glob("*/stat")
        return {task.read_text().rpartition(")")[2].split()[0] for task in tasks}

    until(lambda: states() == {"S"})


def refuses(c: Calls, port: int) -> bool:
    try:
        c.tcp_client(port).close()
    except ConnectionRefusedError:
        return True
    return False


def is_shut(c: Calls, s: int) -> None:
    assert c.call("accept4", s, None, None, 0) == -errno.EINVAL
    assert poll(c, s, ALL) == UNCONNECTED
    assert c.get(s, socket.SOL_SOCKET, socket.SO_ACCEPTCONN) == 0
    assert c.get(s, socket.SOL_SOCKET, socket.SO_ERROR) == 0


def waits(c: Calls, s: int, ready: Signal) -> None:
    uses(c, s)
    ready.tell()
    assert (r := c.call("accept4", s, None, None, 0)) == -errno.EINVAL, r
    is_shut(c, s)


def asks(c: Calls, port: int) -> bytes:
    with c.tcp_client(port) as peer:
        return kernel_receive_all(peer)


@script("inherit")
def shut_by_the_parent_it_ends_accept_of_all(c: Calls) -> None:
    for how in (socket.SHUT_RD, socket.SHUT_RDWR):
        (s, port), ready = listener(c), Signal()
        children = [Child(c, partial(waits, c, s, ready)) for _ in range(3)]
        for _ in children:
            ready.wait()
        for child in children:
            until_it_sleeps(child.pid)
        assert c.call("shutdown", s, how) == 0
        for child in children:
            child.wait()
        is_shut(c, s)
        assert c.call("shutdown", s, how) == -errno.ENOTCONN
        assert refuses(c, port)
        assert c.call("close", s) == 0


@script("inherit")
def shut_by_a_child_it_ends_accept_of_all(c: Calls) -> None:
    (s, port), ready, go = listener(c), Signal(), Signal()

    def shuts() -> None:
        go.wait()
        assert c.call("shutdown", s, socket.SHUT_RDWR) == 0

    first, second = Child(c, partial(waits, c, s, ready)), Child(c, shuts)
    ready.wait()
    until_it_sleeps(first.pid)
    go.tell()
    assert c.call("accept4", s, None, None, 0) == -errno.EINVAL
    is_shut(c, s)
    first.wait()
    second.wait()
    assert refuses(c, port)


@script("inherit")
def shut_for_writing_it_goes_on(c: Calls) -> None:
    s, port = listener(c)
    with workers(c, s, 2):
        assert asks(c, port) in (b"0", b"1")
        assert c.call("shutdown", s, socket.SHUT_WR) == 0
        for _ in range(4):
            assert asks(c, port) in (b"0", b"1")


@script("inherit")
def shut_before_a_child_has_used_it(c: Calls) -> None:
    """What the child remembers of it is not what it is."""
    (s, port), go = listener(c), Signal()

    def late() -> None:
        go.wait()
        assert c.call("accept4", s, None, None, 0) == -errno.EINVAL
        is_shut(c, s)

    child = Child(c, late)
    assert c.call("shutdown", s, socket.SHUT_RD) == 0
    go.tell()
    child.wait()
    assert refuses(c, port)


@script("inherit")
def shut_while_children_begin_to_use_it(c: Calls) -> None:
    """Whatever comes first: accept() ends in each, and nobody makes it listen."""
    for _ in range(20):
        (s, port), go = listener(c), Signal()

        def child(s: int = s, go: Signal = go) -> None:
            go.wait()
            assert (r := c.call("accept4", s, None, None, 0)) == -errno.EINVAL, r

        children = [Child(c, child) for _ in range(3)]
        for _ in children:
            go.tell()
        assert c.call("shutdown", s, socket.SHUT_RD) == 0
        for each in children:
            each.wait()
        assert refuses(c, port)
        assert c.call("close", s) == 0


@script("inherit")
def shut_it_resets_what_waits(c: Calls) -> None:
    """Connections that nobody has accepted, whether a process was offered them or not. What was accepted goes on."""
    (s, port), ready, go = listener(c), Signal(), Signal()

    def polls() -> None:
        uses(c, s)
        ready.tell()
        assert poll(c, s) & select.POLLIN
        ready.tell()
        go.wait()
        until(lambda: c.call("accept4", s, None, None, 0) == -errno.EINVAL)

    with c.tcp_client(port) as taken:
        connection = accept(c, s)
        child = Child(c, polls)
        ready.wait()
        peers = [c.tcp_client(port) for _ in range(8)]
        ready.wait()
        assert c.call("shutdown", s, socket.SHUT_RD) == 0
        for peer in peers:
            with contextlib.suppress(ConnectionResetError):
                raise AssertionError(peer.recv(1))
        go.tell()
        child.wait()
        assert send(c, connection, b"goes on") == 7
        assert taken.recv(100) == b"goes on"


@script("inherit")
def shut_it_is_told_to_each_who_waits_for_events(c: Calls) -> None:
    """By poll() and by sets, level- and edge-triggered."""
    (s, _), ready = listener(c), Signal()

    def polls() -> None:
        uses(c, s)
        ready.tell()
        assert poll(c, s, select.POLLIN) == select.POLLHUP
        is_shut(c, s)

    def watches(edge: int) -> None:
        uses(c, s)
        if c.is_kernel:
            wait, ctx = c.native.epoll_wait, c.call("epoll_create1", 0)
        else:
            c.native.xts_epoll_ctx_create.restype = ctypes.c_void_p
            wait, ctx = c.native.xts_epoll_wait, ctypes.c_void_p(c.native.xts_epoll_ctx_create())
        events = (EpollEvent * 4)()
        assert c.call("epoll_ctl", ctx, EPOLL_CTL_ADD, s, ctypes.byref(EpollEvent(select.EPOLLIN | edge, s))) == 0
        ready.tell()
        assert wait(ctx, events, 4, 10_000) == 1 and events[0].events == select.EPOLLHUP
        assert wait(ctx, events, 4, 0) == (0 if edge else 1)
        is_shut(c, s)

    bodies: list[Callable[[], None]] = [polls, partial(watches, 0), partial(watches, select.EPOLLET)]
    children = [Child(c, body) for body in bodies]
    for _ in children:
        ready.wait()
    for child in children:
        until_it_sleeps(child.pid)
    assert c.call("shutdown", s, socket.SHUT_RDWR) == 0
    for child in children:
        child.wait()


@script("inherit")
def shut_it_ends_accept_of_threads(c: Calls) -> None:
    (s, _), results = listener(c), []
    threads = [threading.Thread(target=lambda: results.append(c.call("accept4", s, None, None, 0))) for _ in range(3)]
    for thread in threads:
        thread.start()
    child = Child(c, partial(uses, c, s))
    child.wait()
    assert c.call("shutdown", s, socket.SHUT_RD) == 0
    for thread in threads:
        thread.join()
    assert results == [-errno.EINVAL] * 3


@script("inherit")
def shut_it_may_listen_again(c: Calls) -> None:
    """In one process, which is for all: who had it waits for connections again, whoever calls listen()."""
    (s, port), ready, listen, serve = listener(c), Signal(), Signal(), Signal()

    def child(listens: bool) -> None:
        waits(c, s, ready)
        ready.tell()
        if listens:
            listen.wait()
            assert c.call("listen", s, 16) == 0
            ready.tell()
        else:
            serve.wait()
        serve_names(c, s, b"%d" % listens)

    with workers(c, s, 2, lambda index: child(index == 1)):
        ready.wait(), ready.wait()
        assert c.call("shutdown", s, socket.SHUT_RD) == 0
        ready.wait(), ready.wait()
        assert refuses(c, port)
        listen.tell()
        ready.wait()
        serve.tell()
        until(lambda: {asks(c, port) for _ in range(8)} == {b"0", b"1"})
        assert poll(c, s, select.POLLIN, 0) == 0


@script("inherit")
def shut_again_and_again(c: Calls) -> None:
    """No process is left behind, and no connection is served by who was told that it listens no more."""
    (s, port), ready, go = listener(c), Signal(), Signal()

    def child() -> None:
        for _ in range(10):
            uses(c, s)
            ready.tell()
            while (connection := c.call("accept4", s, None, None, 0)) >= 0:
                send(c, connection, b"served")
                c.call("close", connection)
            assert connection == -errno.EINVAL
            ready.tell()
            go.wait()

    children = [Child(c, child) for _ in range(2)]
    for _ in range(10):
        ready.wait(), ready.wait()
        assert asks(c, port) == b"served"
        assert c.call("shutdown", s, socket.SHUT_RD) == 0
        ready.wait(), ready.wait()
        assert refuses(c, port)
        assert c.call("listen", s, 16) == 0
        go.tell(), go.tell()
    for each in children:
        each.wait()


@script("inherit")
def never_shut_it_listens_for_all(c: Calls) -> None:
    """A socket that was bound before the fork: listen() of the parent is for the child, too, which only accepts."""
    (s, port), ready, go = bound(c), Signal(), Signal()

    def child(joins: bool) -> None:
        if joins:
            assert c.call("accept4", s, None, None, 0) == -errno.EINVAL
        ready.tell()
        go.wait()
        serve_names(c, s, b"%d" % joins)

    with workers(c, s, 2, lambda index: child(index == 1)):
        ready.wait(), ready.wait()
        assert c.call("listen", s, 16) == 0
        go.tell(), go.tell()
        until(lambda: {asks(c, port) for _ in range(8)} == {b"0", b"1"})


@script("inherit")
def shut_alone_it_keeps_its_port_and_options(c: Calls) -> None:
    """One process alone: its socket is bound, and may listen or connect."""
    s, port = listener(c)
    assert c.set(s, socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1) == 0
    peer = c.tcp_client(port)
    until(lambda: bool(poll(c, s) & select.POLLIN))
    assert c.call("shutdown", s, socket.SHUT_RD) == 0
    with contextlib.suppress(ConnectionResetError):
        raise AssertionError(peer.recv(1))
    is_shut(c, s)
    assert c.name("getsockname", s) == (c.here, port) and c.get(s, socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
    assert c.call("listen", s, 16) == 0
    with c.tcp_client(port) as peer:
        assert send(c, accept(c, s), b"x") == 1 and peer.recv(1) == b"x"
    assert c.call("shutdown", s, socket.SHUT_RDWR) == 0
    is_shut(c, s)
