"""Sockets that pass to another program over a Unix socket, as the interposer does it with SCM_RIGHTS."""

from __future__ import annotations

import ctypes
import errno
import os
import select
import socket
from collections.abc import Callable
from functools import partial

from beds.calls import Calls, address, until
from beds.scripts import script
from system.processes.programs.inherit_exec import ExecSocket, after_exec, exec_prepare, execute
from system.processes.programs.inheriting import (
    PATIENCE_S,
    PATTERN,
    Child,
    Signal,
    accept,
    ask,
    kernel_receive_all,
    listen,
    poll,
    receive_exactly,
    refused,
)
from system.sockets.programs.library_scripts import info, recv, send


class Way:
    """A Unix socket from one process to another. The program at its end has to have been forked before."""

    def __init__(self) -> None:
        self.here, self.there = socket.socketpair()
        self.here.settimeout(PATIENCE_S)
        self.there.settimeout(PATIENCE_S)

    def give(self, c: Calls, s: int) -> None:
        carrier = c.call("pass", s, -1)
        assert carrier >= 0, errno.errorcode[-carrier]
        socket.send_fds(self.here, [b"x"], [carrier])
        os.close(carrier)

    def take(self, c: Calls) -> int:
        return take_passed(c, self.carrier())

    def carrier(self) -> int:
        _, fds, _, _ = socket.recv_fds(self.there, 1, 1)
        assert len(fds) == 1
        return fds[0]


def take_passed(c: Calls, carrier: int) -> int:
    out = ExecSocket()
    r = c.call("take_passed", carrier, True, ctypes.byref(out))
    os.close(carrier)
    assert r == 1, r
    return int(out.number)


def at_an_end(c: Calls, way: Way, body: Callable[[int], None]) -> Child:
    """A program that gets a socket. It has no connection in common with this one before that."""

    def receives() -> None:
        body(way.take(c))

    return Child(c, receives)


def serve_connection(c: Calls) -> Callable[[int], None]:
    def serve(s: int) -> None:
        while data := recv(c, s, 65536):
            assert send(c, s, data.upper()) == len(data)
        assert c.call("close", s) == 0

    return serve


@script("inherit")
def passed_and_closed(c: Calls) -> None:
    """The usual way: who accepts hands the connection on. Bytes that it has received and not read go with it."""
    way = Way()
    child = at_an_end(c, way, serve_connection(c))
    s, peer = c.connected()
    peer.sendall(b"first second")
    assert recv(c, s, 6) == b"first "
    way.give(c, s)
    assert c.call("close", s) == 0
    assert receive_exactly(peer, 6) == b"SECOND"
    peer.sendall(PATTERN[:200_000])
    peer.shutdown(socket.SHUT_WR)
    assert kernel_receive_all(peer) == PATTERN[:200_000].upper()
    child.wait()
    until(lambda: info(c).sockets == 0)


@script("inherit")
def passed_and_kept(c: Calls) -> None:
    """Both use it, by turns; it ends with the last."""
    way, first, second = Way(), Signal(), Signal()

    def body(s: int) -> None:
        assert recv(c, s, 3) == b"one"
        assert send(c, s, b"child") == 5
        first.tell()
        second.wait()
        assert c.call("close", s) == 0

    child = at_an_end(c, way, body)
    s, peer = c.connected()
    way.give(c, s)
    peer.sendall(b"onetwo")
    first.wait()
    assert recv(c, s, 3) == b"two"
    assert send(c, s, b"parent") == 6
    second.tell()
    child.wait()
    assert receive_exactly(peer, 11) == b"childparent"
    assert not select.select([peer], [], [], 0.3)[0], "closed, though the sender has it"
    peer.sendall(b"three")
    assert recv(c, s, 5) == b"three"
    assert c.call("close", s) == 0
    assert peer.recv(1) == b""


@script("inherit")
def the_receiver_is_the_last(c: Calls) -> None:
    """It is killed when nobody else has the connection: the peer learns of it at once."""
    way, has = Way(), Signal()

    def body(s: int) -> None:
        assert send(c, s, b"x") == 1
        has.tell()
        Signal().wait()

    child = at_an_end(c, way, body)
    s, peer = c.connected()
    way.give(c, s)
    assert c.call("close", s) == 0
    has.wait()
    assert receive_exactly(peer, 1) == b"x"
    until(lambda: info(c).sockets == 0)
    assert not select.select([peer], [], [], 0.5)[0]
    child.kill()
    assert select.select([peer], [], [], PATIENCE_S)[0]
    assert peer.recv(1) == b""


@script("inherit")
def received_after_the_sender_has_exited(c: Calls) -> None:
    way = Way()
    ports: list[int] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        ports.append(server.getsockname()[1])

        def sends() -> None:
            s = c.create()
            assert c.call("connect", s, address(ports[0]), 16) == 0
            assert send(c, s, b"hello ") == 6
            way.give(c, s)

        Child(c, sends).wait()
        peer, _ = server.accept()
        peer.settimeout(PATIENCE_S)
    s = way.take(c)
    assert send(c, s, b"world") == 5
    assert c.call("close", s) == 0
    assert kernel_receive_all(peer) == b"hello world"


@script("inherit")
def nobody_receives_it(c: Calls) -> None:
    """What is on its way when the Unix socket is closed is closed with it."""
    way = Way()
    s, peer = c.connected()
    way.give(c, s)
    assert c.call("close", s) == 0
    assert not select.select([peer], [], [], 0.3)[0], "closed, though it is on its way"
    way.there.close()
    way.here.close()
    assert peer.recv(1) == b""
    until(lambda: info(c).sockets == 0)


@script("inherit")
def to_itself(c: Calls) -> None:
    """A process that gets what it has, or has closed, has it."""
    way = Way()
    s, peer = c.connected()
    way.give(c, s)
    assert way.take(c) == s
    way.give(c, s)
    assert c.call("close", s) == 0
    again = way.take(c)
    assert send(c, again, b"x") == 1
    assert peer.recv(1) == b"x"
    assert c.call("close", again) == 0
    assert peer.recv(1) == b""


@script("inherit")
def passed_on_and_back(c: Calls) -> None:
    there, back = Way(), Way()

    def body(s: int) -> None:
        assert recv(c, s, 4) == b"ping"
        back.give(c, s)
        assert c.call("close", s) == 0

    child = at_an_end(c, there, body)
    s, peer = c.connected()
    there.give(c, s)
    assert c.call("close", s) == 0
    peer.sendall(b"ping")
    s = back.take(c)
    assert send(c, s, b"pong") == 4
    assert receive_exactly(peer, 4) == b"pong"
    child.wait()
    assert c.call("close", s) == 0
    assert peer.recv(1) == b""


@script("inherit")
def a_child_of_the_receiver_is_the_last(c: Calls) -> None:
    way = Way()

    def body(s: int) -> None:
        def grandchild() -> None:
            assert recv(c, s, 3) == b"abc"
            assert send(c, s, b"ABC") == 3
            assert c.call("close", s) == 0

        made = Child(c, grandchild)
        assert c.call("close", s) == 0
        made.wait()

    child = at_an_end(c, way, body)
    s, peer = c.connected()
    way.give(c, s)
    peer.sendall(b"abc")
    child.wait()
    assert receive_exactly(peer, 3) == b"ABC"
    assert not select.select([peer], [], [], 0.3)[0], "closed, though the sender has it"
    assert c.call("close", s) == 0
    assert peer.recv(1) == b""


@after_exec
def goes_on_after_exec(c: Calls, sockets: dict[int, int]) -> None:
    s = sockets[100]
    assert recv(c, s, 3) == b"abc"
    assert send(c, s, b"ABC") == 3
    assert c.call("close", s) == 0


@script("inherit")
def the_receiver_execs(c: Calls) -> None:
    way = Way()
    child = at_an_end(c, way, lambda s: execute(goes_on_after_exec, exec_prepare(c, s)))
    s, peer = c.connected()
    way.give(c, s)
    peer.sendall(b"abc")
    assert receive_exactly(peer, 3) == b"ABC"
    child.wait()
    assert not select.select([peer], [], [], 0.3)[0], "closed, though the sender has it"
    assert c.call("close", s) == 0
    assert peer.recv(1) == b""


@script("inherit")
def listener_passed(c: Calls) -> None:
    """Both accept; the receiver goes on when the sender has closed it."""
    way, has = Way(), Signal()

    def body(s: int) -> None:
        for i in range(2):
            connection = accept(c, s)
            assert send(c, connection, b"child") == 5
            assert c.call("close", connection) == 0
            if i == 0:
                has.tell()
        assert c.call("close", s) == 0

    child = at_an_end(c, way, body)
    s, port = listen(c)
    way.give(c, s)
    assert ask(port) == b"child"
    has.wait()
    assert c.call("close", s) == 0
    assert ask(port) == b"child"
    child.wait()
    until(lambda: refused(port))


@script("inherit")
def a_service_that_was_passed_the_listener_accepts_once(c: Calls) -> None:
    """As inherit_listeners.a_service_accepts_once(); the service is a program of its own."""
    ways = [Way() for _ in range(20)]

    def service(s: int) -> None:
        c.call("ioctl", s, 0x5421, ctypes.byref(ctypes.c_int(1)))
        connection = accept(c, s)
        assert send(c, connection, b"served") == 6
        assert c.call("close", connection) == 0

    services = [at_an_end(c, way, service) for way in ways]
    s, port = listen(c)
    for way, started in zip(ways, services, strict=True):
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as peer:
            assert poll(c, s) & select.POLLIN
            way.give(c, s)
            started.wait()
            assert kernel_receive_all(peer) == b"served"


@script("inherit")
def bound_socket_passed(c: Calls) -> None:
    way = Way()

    def body(s: int) -> None:
        assert c.call("listen", s, 5) == 0
        connection = accept(c, s)
        assert send(c, connection, b"bound") == 5
        assert c.call("close", connection) == 0 and c.call("close", s) == 0

    child = at_an_end(c, way, body)
    s = c.create()
    assert c.call("bind", s, address(0), 16) == 0
    found = c.name("getsockname", s)
    assert found
    way.give(c, s)
    until(lambda: not refused_by_kernel(found[1]))
    child.wait()


def refused_by_kernel(port: int) -> bool:
    try:
        assert ask(port) == b"bound"
    except ConnectionRefusedError:
        return True
    return False


PROGRAMS = 40


@script("inherit")
def passed_to_forty_programs(c: Calls) -> None:
    """All use it; some are killed; it ends with the last."""
    way = Way()
    takes, leaves = [Signal() for _ in range(PROGRAMS)], [Signal() for _ in range(PROGRAMS)]
    used = Signal()

    def body(at: int) -> None:
        takes[at].wait()
        s = way.take(c)
        assert send(c, s, b"%02d" % at) == 2
        used.tell()
        leaves[at].wait()
        assert send(c, s, b"%02d" % at) == 2
        assert c.call("close", s) == 0

    programs = [Child(c, partial(body, at)) for at in range(PROGRAMS)]
    s, peer = c.connected()
    for _ in programs:
        way.give(c, s)
    for at in range(PROGRAMS):
        takes[at].tell()
        used.wait()
        assert receive_exactly(peer, 2) == b"%02d" % at
    assert c.call("close", s) == 0
    for at, program in enumerate(programs):
        if at % 4 == 1:
            program.kill()
        else:
            leaves[at].tell()
            program.wait()
            assert receive_exactly(peer, 2) == b"%02d" % at
        assert at == PROGRAMS - 1 or not select.select([peer], [], [], 0.01)[0], "closed, though others have it"
    assert peer.recv(1) == b""
    until(lambda: info(c).sockets == 0)
