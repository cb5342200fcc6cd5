"""Datagram sockets that are kept over fork and exec: one socket, which each process that has it may use."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import select
import signal
import socket
import time

from beds.calls import Calls, address
from beds.datagram_calls import bound, datagram, port_of
from beds.scripts import script
from system.processes.programs.inherit_exec import after_exec, exec_prepare, execute
from system.processes.programs.inheriting import PATIENCE_S, Child, Signal, poll

DATAGRAMS = 60
FOREVER = 1 << 30


def receive(c: Calls, s: int, flags: int = 0) -> tuple[bytes, int]:
    """A datagram and the port it is from."""
    data, where, length = ctypes.create_string_buffer(2000), ctypes.create_string_buffer(28), ctypes.c_uint(28)
    n = c.call("recvfrom", s, data, 2000, flags, where, ctypes.byref(length))
    if n < 0:
        raise OSError(-n, os.strerror(-n))
    return data.raw[:n], int.from_bytes(where.raw[2:4], "big")


def send_to(c: Calls, s: int, data: bytes, port: int) -> None:
    where = address(port, c.there)
    assert c.call("sendto", s, data, len(data), 0, where, len(where)) == len(data)


def echo(c: Calls, s: int, count: int = 1) -> None:
    """Answers so many datagrams."""
    for _ in range(count):
        data, port = receive(c, s)
        send_to(c, s, data + b" back", port)


def asks(c: Calls, port: int, attempts: int = 1) -> None:
    """A client of the kernel gets an answer, from the port that it has asked. attempts: a datagram may be lost."""
    with c.udp_peer() as peer:
        peer.settimeout(PATIENCE_S / attempts)
        for _ in range(attempts):
            peer.sendto(b"hello", (c.here, port))
            with contextlib.suppress(TimeoutError):
                assert peer.recvfrom(100) == (b"hello back", (c.here, port))
                return
    raise AssertionError("no answer")


@script("inherit")
def datagrams_of_a_daemon(c: Calls) -> None:
    """It binds, forks into the background, and its parent is gone when the child serves."""
    port_known, served = Signal(), Signal()

    def parent() -> None:
        s, port = bound(c, c.here)
        if os.fork():
            os._exit(0)
        try:
            signal.alarm(30)
            time.sleep(0.05)  # the parent has gone
            port_known.tell(port.to_bytes(2, "big"))
            echo(c, s)
            served.tell()
            c.native.xts_before_exit()
        finally:
            os._exit(0)

    Child(c, parent, orderly=False).wait()
    asks(c, int.from_bytes(port_known.wait(2), "big"))
    served.wait()


@script("inherit")
def datagrams_go_to_one_of_three(c: Calls) -> None:
    """Parent and two children receive on one socket: each datagram is received once."""
    s, port = bound(c, c.here)
    got, over = os.pipe()

    def take_all() -> None:
        while (data := receive(c, s)[0]) != b"end":
            os.write(over, data + b"\n")

    children = [Child(c, take_all) for _ in range(2)]
    with c.udp_peer() as peer:
        for n in range(DATAGRAMS):
            peer.sendto(b"%d" % n, (c.here, port))
        numbers: list[int] = []
        while len(numbers) < DATAGRAMS:
            if poll(c, s, timeout_ms=5) & select.POLLIN:
                with contextlib.suppress(BlockingIOError):  # a child was faster
                    numbers.append(int(receive(c, s, socket.MSG_DONTWAIT)[0]))
            while select.select([got], [], [], 0)[0]:
                numbers += [int(line) for line in os.read(got, 4096).split()]
            if len(numbers) < DATAGRAMS and not poll(c, s, timeout_ms=0):
                time.sleep(0.001)
        assert sorted(numbers) == list(range(DATAGRAMS))
        assert c.call("close", s) == 0
        for _ in range(20):
            peer.sendto(b"end", (c.here, port))
    for child in children:
        child.wait()


@script("inherit")
def datagrams_of_a_master_that_does_not_read(c: Calls) -> None:
    """The master binds and never reads; it goes on living. All is for the worker."""
    s, port = bound(c, c.here)
    ready = Signal()

    def work() -> None:
        ready.tell()
        echo(c, s, DATAGRAMS)

    child = Child(c, work)
    ready.wait()
    with c.udp_peer() as peer:
        for n in range(DATAGRAMS):
            peer.sendto(b"%d" % n, (c.here, port))
        answers = sorted(int(peer.recv(100).split()[0]) for _ in range(DATAGRAMS))
    assert answers == list(range(DATAGRAMS))
    child.wait()


@script("inherit")
def datagrams_are_sent_from_one_port(c: Calls) -> None:
    s, port = bound(c, c.here)
    with c.udp_peer() as peer:
        for _ in range(2):
            Child(c, lambda: send_to(c, s, b"child", peer.getsockname()[1])).wait()
            assert peer.recvfrom(100) == (b"child", (c.here, port))
        send_to(c, s, b"parent", peer.getsockname()[1])
        assert peer.recvfrom(100) == (b"parent", (c.here, port))


@script("inherit")
def datagrams_do_not_wait(c: Calls) -> None:
    """Calls that do not wait, in a child's first use of the socket: it sends at once."""
    s, _ = bound(c, c.here)
    with c.udp_peer() as peer:

        def child() -> None:
            where = address(peer.getsockname()[1], c.there)
            assert c.call("sendto", s, b"x", 1, socket.MSG_DONTWAIT, where, len(where)) == 1

        Child(c, child).wait()
        assert peer.recv(10) == b"x"


@script("inherit")
def datagrams_of_a_connected_socket(c: Calls) -> None:
    with c.udp_peer() as peer:
        s = datagram(c)
        where = address(peer.getsockname()[1], c.there)
        assert c.call("connect", s, where, len(where)) == 0
        here = (c.here, port_of(c, s))

        def child() -> None:
            assert c.call("send", s, b"question", 8, 0) == 8
            assert receive(c, s)[0] == b"answer"

        child_process = Child(c, child)
        assert peer.recvfrom(100) == (b"question", here)
        peer.sendto(b"answer", here)
        child_process.wait()
        assert c.call("send", s, b"parent", 6, 0) == 6
        assert peer.recvfrom(100) == (b"parent", here)


@script("inherit")
def datagrams_close_in_one(c: Calls) -> None:
    """The parent closes its copy, before the child has used it: it is the child's."""
    s, port = bound(c, c.here)
    closed = Signal()

    def child() -> None:
        closed.wait()
        echo(c, s)

    child_process = Child(c, child)
    assert c.call("close", s) == 0
    closed.tell()
    asks(c, port)
    child_process.wait()
    with c.udp_peer() as peer:
        peer.connect((c.here, port))
        try:
            for _ in range(200):
                peer.send(b"x")
                time.sleep(0.005)
        except ConnectionRefusedError:
            return
    raise AssertionError("nobody has it, and its port is still bound")


@script("inherit")
def datagrams_killed_child(c: Calls) -> None:
    s, port = bound(c, c.here)
    ready = Signal()

    def child() -> None:
        echo(c, s)
        ready.tell()
        signal.pause()

    child_process = Child(c, child)
    asks(c, port)
    ready.wait()
    child_process.kill()
    other = Child(c, lambda: echo(c, s, FOREVER))
    asks(c, port, 20)  # the proxy may not know of its end yet
    other.kill()


@script("inherit")
def datagrams_killed_parent(c: Calls) -> None:
    tell, served = Signal(), Signal()

    def parent() -> None:
        s, port = bound(c, c.here)
        if not os.fork():
            signal.alarm(30)
            echo(c, s)
            tell.tell(b"ok")
            echo(c, s)
            served.tell()
            c.native.xts_before_exit()
            os._exit(0)
        tell.tell(port.to_bytes(2, "big"))
        signal.pause()

    parent_process = Child(c, parent)
    port = int.from_bytes(tell.wait(2), "big")
    asks(c, port)
    assert tell.wait(2) == b"ok"
    parent_process.kill()
    asks(c, port)
    served.wait()


@script("inherit")
def datagrams_after_the_parent_has_read(c: Calls) -> None:
    """A parent that has read, and does not any more, takes nothing from its child."""
    s, port = bound(c, c.here)
    with c.udp_peer() as peer:
        peer.sendto(b"to the parent", (c.here, port))
        assert receive(c, s)[0] == b"to the parent"
        child = Child(c, lambda: echo(c, s, 3))
        for n in range(3):
            peer.sendto(b"%d" % n, (c.here, port))
            assert peer.recv(100) == b"%d back" % n
        child.wait()
        poll(c, s, timeout_ms=1)  # it shows interest, and is then away for longer than that lasts
        time.sleep(0.1)
        child = Child(c, lambda: echo(c, s, 3))
        for n in range(3):
            peer.sendto(b"%d" % n, (c.here, port))
            assert peer.recv(100) == b"%d back" % n
        child.wait()


@script("inherit")
def datagrams_of_children_that_do_not_use_it(c: Calls) -> None:
    """Children that never use it cost it nothing."""
    s, port = bound(c, c.here)
    for _ in range(50):
        Child(c, lambda: None).wait()
    child = Child(c, lambda: echo(c, s))
    asks(c, port)
    child.wait()
    asked = Child(c, lambda: asks(c, port))
    echo(c, s)
    asked.wait()


@after_exec
def serves_datagrams(c: Calls, sockets: dict[int, int]) -> None:
    echo(c, sockets[100], 2)
    assert c.call("getsockopt", sockets[100], socket.SOL_SOCKET, socket.SO_BROADCAST, *option()) == 0


def option() -> tuple[object, object]:
    return ctypes.byref(ctypes.c_int(0)), ctypes.byref(ctypes.c_uint(4))


@script("inherit")
def datagrams_over_exec(c: Calls) -> None:
    """A program that is started with the socket: its parent still has it, then has closed it."""
    s, port = bound(c, c.here)
    child = Child(c, lambda: execute(serves_datagrams, exec_prepare(c, s)))
    asks(c, port)
    assert c.call("close", s) == 0
    asks(c, port)
    child.wait()


@script("inherit")
def datagrams_over_exec_alone(c: Calls) -> None:
    """The process that has bound it becomes another program."""
    tell = Signal()

    def body() -> None:
        s, port = bound(c, c.here)
        tell.tell(port.to_bytes(2, "big"))
        execute(serves_datagrams, exec_prepare(c, s))

    child = Child(c, body)
    port = int.from_bytes(tell.wait(2), "big")
    asks(c, port)
    asks(c, port)
    child.wait()


@script("inherit")
def datagrams_wait_for_a_late_child(c: Calls) -> None:
    """What comes when nobody reads waits in the device's kernel."""
    s, port = bound(c, c.here)
    go = Signal()

    def child() -> None:
        go.wait()
        assert [receive(c, s)[0] for _ in range(10)] == [b"%d" % n for n in range(10)]
        assert (
            c.call("recvfrom", s, ctypes.create_string_buffer(9), 9, socket.MSG_DONTWAIT, None, None) == -errno.EAGAIN
        )

    child_process = Child(c, child)
    time.sleep(0.05)
    with c.udp_peer() as peer:
        for n in range(10):
            peer.sendto(b"%d" % n, (c.here, port))
    go.tell()
    child_process.wait()


def refused_socket(c: Calls) -> int:
    """Connected to a port that nobody has. It has sent there, and the error is pending."""
    s = datagram(c)
    with c.udp_peer() as peer:
        where = address(peer.getsockname()[1], c.there)
    assert c.call("connect", s, where, len(where)) == 0
    assert c.call("send", s, b"x", ctypes.c_size_t(1), 0) == 1
    assert poll(c, s) & select.POLLERR
    return s


def pending_error(c: Calls, s: int) -> int:
    number, length = ctypes.c_int(-1), ctypes.c_uint(4)
    assert c.call("getsockopt", s, socket.SOL_SOCKET, socket.SO_ERROR, ctypes.byref(number), ctypes.byref(length)) == 0
    return number.value


@script("inherit")
def datagrams_whose_error_the_child_asks_for(c: Calls) -> None:
    """An error is of the socket, which both have: who asks first gets it, and the other does not."""

    def receives(s: int) -> None:
        assert poll(c, s) & select.POLLERR
        assert c.call("recv", s, ctypes.create_string_buffer(1), ctypes.c_size_t(1), 0) == -errno.ECONNREFUSED

    def asks(s: int) -> None:
        assert pending_error(c, s) == errno.ECONNREFUSED

    def polls_and_leaves(s: int) -> None:
        assert poll(c, s) & select.POLLERR

    def does_nothing(_: int) -> None:
        pass

    for body, left in (
        (receives, 0),
        (asks, 0),
        (polls_and_leaves, errno.ECONNREFUSED),
        (does_nothing, errno.ECONNREFUSED),
    ):
        s = refused_socket(c)
        Child(c, lambda body=body, s=s: body(s)).wait()  # type: ignore[misc]
        assert pending_error(c, s) == left, body.__name__
        assert c.call("close", s) == 0


@script("inherit")
def datagrams_whose_error_comes_to_the_parent(c: Calls) -> None:
    """The parent has sent, and asks for nothing any more: the error is the child's, which waits."""
    s, ready = refused_socket(c), Signal()
    assert pending_error(c, s) == errno.ECONNREFUSED

    def receives() -> None:
        ready.wait()
        assert c.call("recv", s, ctypes.create_string_buffer(1), ctypes.c_size_t(1), 0) == -errno.ECONNREFUSED

    child = Child(c, receives)
    assert c.call("send", s, b"x", ctypes.c_size_t(1), 0) == 1
    assert poll(c, s) & select.POLLERR
    ready.tell()
    child.wait()
    assert pending_error(c, s) == 0
