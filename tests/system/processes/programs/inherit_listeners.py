"""Listeners that are kept over fork."""

from __future__ import annotations

import ctypes
import errno
import os
import select
import signal
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from beds.calls import EPOLL_CTL_ADD, Calls, address, until
from beds.libc_structs import EpollEvent
from beds.scripts import script
from system.processes.programs.inheriting import (
    PATIENCE_S,
    Child,
    Signal,
    accept,
    ask,
    kernel_receive_all,
    listen,
    poll,
    refused,
    serve_names,
    workers,
)
from system.sockets.programs.library_scripts import info, send


@script("inherit")
def came_before_the_fork(c: Calls) -> None:
    """A master that listens and never accepts: what came to it before the fork is its worker's."""
    s, port = listen(c)
    peers = [socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) for _ in range(20)]
    until(lambda: info(c).received_frames >= 23)  # BIND_ACK, LISTEN_ACK, SHARE_ACK, NEWCONNs
    with workers(c, s, 2):
        for peer in peers:
            assert kernel_receive_all(peer) in (b"0", b"1")


@script("inherit")
def the_first_after_a_fork_come_in_order(c: Calls) -> None:
    """A master that listens, forks and never accepts: its child accepts the first connections in their order. What the
    master had been promised brought the first one to it, and back behind the second."""

    def serve(s: int) -> None:
        assert poll(c, s) & select.POLLIN
        for _ in range(2):
            connection = accept(c, s)
            byte = ctypes.create_string_buffer(1)
            assert c.call("recv", connection, byte, ctypes.c_size_t(1), 0) == 1
            served.append(byte.raw)
        assert served == [b"A", b"B"], served

    served: list[bytes] = []
    for _ in range(10):
        s, port = listen(c)
        child = Child(c, partial(serve, s))
        peers = []
        for name in (b"A", b"B"):
            peers.append(socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S))
            peers[-1].sendall(name)
        child.wait()
        for peer in peers:
            peer.close()
        assert c.call("close", s) == 0


@script("inherit")
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


@script("inherit")
def a_service_accepts_once(c: Calls) -> None:
    """A super-server sees readiness and starts a service, which accepts without waiting, before it does anything else.
    The connection is there, though it had been offered to the super-server."""
    s, port = listen(c)
    c.call("ioctl", s, 0x5421, ctypes.byref(ctypes.c_int(1)))

    def service() -> None:
        connection = accept(c, s)
        assert send(c, connection, b"served") == 6
        assert c.call("close", connection) == 0

    for _ in range(20):
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as peer:
            assert poll(c, s) & select.POLLIN
            Child(c, service).wait()
            assert kernel_receive_all(peer) == b"served"


@script("inherit")
def workers_share_fairly(c: Calls) -> None:
    s, port = listen(c)
    with workers(c, s, 4):
        until(lambda: len({ask(port) for _ in range(8)}) >= 4)
        seen = Counter(ask(port) for _ in range(200))
    assert len(seen) == 4 and min(seen.values()) >= 20, seen


@script("inherit")
def a_stopped_worker_takes_no_connection(c: Calls) -> None:
    """What it has been offered goes to those that accept. Going on, it serves again, and what it had been offered is
    a connection that has been reset."""
    s, port = listen(c)

    def work(index: int) -> None:
        while True:
            connection = accept(c, s)
            with suppress(ConnectionResetError):
                send(c, connection, b"%d" % index)
            c.call("close", connection)

    with workers(c, s, 3, work) as made:
        until(lambda: len({ask(port) for _ in range(6)}) == 3)
        made[0].stop()
        peers = [socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) for _ in range(6)]
        assert {kernel_receive_all(peer) for peer in peers} <= {b"1", b"2"}
        os.kill(made[0].pid, signal.SIGCONT)
        until(lambda: ask(port) == b"0")


@script("inherit")
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
    assert late <= 15, f"{late} of 150 connections found their worker asleep"


@script("inherit")
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


@script("inherit")
def parent_was_interested_before_the_fork(c: Calls) -> None:
    """It accepted, forked, and from then on leaves the accepting to the child: what it was promised goes there."""
    s, port = listen(c)
    with socket.create_connection(("127.0.0.1", port)):
        c.call("close", accept(c, s))
    with workers(c, s, 1):
        for _ in range(20):
            assert ask(port) == b"0"


@script("inherit")
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
    assert longest < 0.8, longest  # who waits for the busy one waits for a second
    assert seen[b"1"] > 150


@script("inherit")
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


@script("inherit")
def killed_with_an_offer(c: Calls) -> None:
    """What a worker was offered and had not accepted when it was killed goes to another."""
    s, port = listen(c)
    with workers(c, s, 2) as (first, _second):
        until(lambda: len({ask(port) for _ in range(4)}) == 2)
        first.stop()
        peers = [socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) for _ in range(8)]
        answered = select.select(peers, [], [], 0.2)[0]
        while len(ready := select.select(peers, [], [], 0.2)[0]) > len(answered):
            answered = ready
        assert 0 < len(answered) < len(peers), f"{len(answered)} answered: the stopped worker was offered none, or all"
        os.kill(first.pid, signal.SIGKILL)
        assert [kernel_receive_all(peer) for peer in peers] == [b"1"] * len(peers)


@script("inherit")
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


@script("inherit")
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


@script("inherit")
def closed_before_a_child_has_joined(c: Calls) -> None:
    """The parent leaves it to a child that has not used it yet: no client is refused meanwhile."""
    s, port = listen(c)
    go = Signal()

    def serve() -> None:
        go.wait()
        serve_names(c, s, b"child", 1)
        assert c.call("close", s) == 0

    child = Child(c, serve)
    assert c.call("close", s) == 0
    until(lambda: info(c).sockets == 0)
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as peer:
        go.tell()
        assert kernel_receive_all(peer) == b"child"
    child.wait()
    until(partial(refused, port))


@script("inherit")
def made_again_it_leaves_its_address_to_others(c: Calls) -> None:
    """The parent was killed before its child had joined. What the child makes prevents no later bind."""
    told, go = Signal(), Signal()

    def parent() -> None:
        s, port = listen(c)

        def child() -> None:
            go.wait()
            c.call("ioctl", s, 0x5421, ctypes.byref(ctypes.c_int(1)))
            assert c.call("accept4", s, None, None, 0) == -errno.EAGAIN
            assert c.get(s, socket.SOL_SOCKET, socket.SO_REUSEADDR) == 1
            told.tell()

        Child(c, child)
        told.tell(struct.pack("=H", port))
        Signal().wait()

    killed = Child(c, parent)
    (port,) = struct.unpack("=H", told.wait(2))
    killed.kill()
    until(partial(refused, port))
    go.tell()
    told.wait()


@script("inherit")
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


# --- bound, and not listening yet --------------------------------------------------------------------


def bound(c: Calls) -> tuple[int, int]:
    s = c.create()
    assert c.call("bind", s, address(0), 16) == 0
    found = c.name("getsockname", s)
    assert found
    return s, found[1]


@script("inherit")
def children_listen_on_what_was_bound(c: Calls) -> None:
    """Each for itself; the last of them ends it, whether or not the parent ever listens."""
    s, port = bound(c)

    def work(index: int) -> None:
        assert c.call("listen", s, 16) == 0
        serve_names(c, s, b"%d" % index)

    with workers(c, s, 2, work):
        until(lambda: not refused(port))
        until(lambda: len({ask(port) for _ in range(4)}) == 2)
        assert c.call("close", s) == 0
        assert ask(port) in (b"0", b"1")
    until(partial(refused, port))


@script("inherit")
def grandchildren_listen_on_what_was_bound(c: Calls) -> None:
    s, port = bound(c)
    told = Signal()

    def child() -> None:
        def grandchild() -> None:
            assert c.call("listen", s, 16) == 0
            told.tell()
            serve_names(c, s, b"grandchild", 1)

        Child(c, grandchild).wait()

    family = Child(c, child)
    told.wait()
    assert ask(port) == b"grandchild"
    family.wait()
    assert c.call("listen", s, 16) == 0
    with socket.create_connection(("127.0.0.1", port)):
        accept(c, s)


@script("inherit")
def killed_after_a_helper_has_ended(c: Calls) -> None:
    """A server has forked once, and is killed: nobody has its listener then. Clients are refused, as on the kernel, and
    do not wait for a child that is not there."""
    for helper in (lambda: None, lambda: os.kill(os.getpid(), signal.SIGKILL)):
        known = Signal()

        def serve(helper: Callable[[], object] = helper, known: Signal = known) -> None:
            s, port = listen(c)
            if not (pid := os.fork()):
                helper()
                os._exit(0)
            os.waitpid(pid, 0)
            known.tell(port.to_bytes(2, "big"))
            serve_names(c, s, b"served")

        server = Child(c, serve)
        port = int.from_bytes(known.wait(2), "big")
        assert ask(port) == b"served"
        server.kill()
        began = time.monotonic()
        with suppress(ConnectionError):
            ask(port)  # it may be connected for a moment
        until(lambda port=port: refused(port))  # type: ignore[misc]
        assert time.monotonic() - began < 3, "clients wait"


@script("inherit")
def left_by_a_daemons_parent(c: Calls) -> None:
    """A parent that exits leaves the listener to its child, which is slow: it is kept for the child, with the clients
    that have come."""
    known, go, served = Signal(), Signal(), Signal()

    def parent() -> None:
        s, port = listen(c)
        if not os.fork():
            try:
                signal.alarm(30)
                go.wait()
                serve_names(c, s, b"served", 1)
                c.native.xts_before_exit()
                served.tell()
            finally:
                os._exit(0)
        known.tell(port.to_bytes(2, "big"))

    Child(c, parent).wait()
    with socket.create_connection(("127.0.0.1", int.from_bytes(known.wait(2), "big")), timeout=PATIENCE_S) as peer:
        time.sleep(1)  # longer than it is kept for those that are killed
        go.tell()
        assert kernel_receive_all(peer) == b"served"
    served.wait()
