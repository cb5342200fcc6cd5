"""Connections that are kept over fork, and processes that end, fail, or are many."""

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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from beds.calls import SIOCOUTQ, Calls, address, until
from beds.scripts import script
from system.processes.programs.inheriting import (
    PATIENCE_S,
    PATTERN,
    Child,
    Signal,
    kernel_receive_all,
    listen,
    open_descriptors,
    poll,
    receive_all,
)
from system.sockets.programs.library_scripts import info, recv, send


@script("inherit")
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


@script("inherit")
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


@script("inherit")
def exits_between_parent_and_grandchild(c: Calls) -> None:
    """A child exits that has used nothing; its child and its parent go on with what they have."""
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
    assert c.call("close", second) == 0
    assert kernel_receive_all(second_peer) == b"grandchild"
    assert send(c, s, b", still") == 7
    assert c.call("close", s) == 0
    assert kernel_receive_all(peer) == b"parent, still"


@script("inherit")
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


@script("inherit")
def killed_child(c: Calls) -> None:
    """Killed while it holds the connection, with nothing unread: the parent goes on, as on the kernel."""
    s, peer = c.connected()

    def child() -> None:
        assert recv(c, s, 100) == b"to the child"
        send(c, s, b"x")
        time.sleep(60)

    taken = Child(c, child)
    peer.sendall(b"to the child")
    assert peer.recv(1) == b"x"
    taken.kill()
    assert send(c, s, b"y") == 1 and peer.recv(1) == b"y"
    peer.sendall(b"to the parent")
    assert recv(c, s, 100) == b"to the parent"


@script("inherit")
def killed_with_unread_data(c: Calls) -> None:
    """What had been delivered to a process that is killed is lost, and the connection with it."""
    s, peer = c.connected()
    waits = Signal()

    def child() -> None:
        assert send(c, s, b"x") == 1
        assert poll(c, s) & select.POLLIN
        waits.tell()
        time.sleep(60)

    holder = Child(c, child)
    assert peer.recv(1) == b"x"
    peer.sendall(b"nobody reads this")
    waits.wait()
    holder.kill()
    assert c.call("recv", s, ctypes.create_string_buffer(100), 100, 0) == -errno.ECONNRESET
    assert c.call("close", s) == 0


def outlives_its_parent(c: Calls, s: int, peer: socket.socket, unread: bytes, use: Callable[[], None]) -> None:
    """A process that holds the connection forks and is killed; its child then uses the connection."""
    forked, go = Signal(), Signal()

    def child() -> None:
        go.wait()
        use()
        forked.tell()

    def parent() -> None:
        assert send(c, s, b"mine") == 4
        Child(c, child)
        if unread:
            assert poll(c, s) & select.POLLIN
        forked.tell()
        time.sleep(60)

    middle = Child(c, parent)
    assert c.call("close", s) == 0
    assert peer.recv(4) == b"mine"
    peer.sendall(unread)
    forked.wait()
    middle.kill()
    go.tell()
    forked.wait()


@script("inherit")
def killed_right_after_its_fork(c: Calls) -> None:
    """More keys than the frame window has room for are known to the proxy when fork() returns."""
    server = socket.create_server(("127.0.0.1", 0), backlog=512)
    done = Signal()

    def parent() -> None:
        made = []
        for _ in range(300):
            made.append(c.create())
            assert c.call("connect", made[-1], address(server.getsockname()[1]), 16) == 0
        before = os.getpid()

        def child() -> None:
            os.kill(before, signal.SIGKILL)
            assert [send(c, s, b"x") for s in made[-1:]] == [1]
            done.tell()

        Child(c, child)
        Signal().wait()

    Child(c, parent).wait(-signal.SIGKILL)
    done.wait()


@script("inherit")
def killed_parent(c: Calls) -> None:
    """Before its child's first use."""
    s, peer = c.connected()

    def use() -> None:
        assert send(c, s, b"child") == 5
        assert c.call("close", s) == 0

    outlives_its_parent(c, s, peer, b"", use)
    assert kernel_receive_all(peer) == b"child"


@script("inherit")
def killed_parent_with_unread_data(c: Calls) -> None:
    s, peer = c.connected()

    def use() -> None:
        assert c.call("recv", s, ctypes.create_string_buffer(9), 9, 0) == -errno.ECONNRESET

    outlives_its_parent(c, s, peer, b"unread", use)


@script("inherit")
def stopped_holder(c: Calls) -> None:
    """It keeps nobody for ever: a call fails in some seconds, and works when the holder goes on."""
    s, peer = c.connected()

    def child() -> None:
        assert send(c, s, b"x") == 1
        time.sleep(60)

    holder = Child(c, child)
    assert peer.recv(1) == b"x"
    holder.stop()
    result = c.call("send", s, b"y", 1, 0)
    assert result == -errno.ETIMEDOUT, result
    os.kill(holder.pid, signal.SIGCONT)
    assert send(c, s, b"z") == 1
    assert peer.recv(1) == b"z"
    holder.kill()


@contextmanager
def held_by_one_that_is_stopped(c: Calls, s: int, peer: socket.socket) -> Iterator[Child]:
    def child() -> None:
        assert send(c, s, b"x") == 1
        Signal().wait()

    holder = Child(c, child)
    assert peer.recv(1) == b"x"
    holder.stop()
    yield holder
    holder.kill()


FIONBIO = 0x5421
#: A call that must not wait ends in 0.1 s; one that waits for the holder, in 2 s.
AT_ONCE_S = 0.5
#: A machine with much to do may hold up any call for as long, but hardly the same one so often.
ATTEMPTS = 5


def at_once(call: Callable[[], None]) -> None:
    for _ in range(ATTEMPTS):
        begun = time.monotonic()
        call()
        if time.monotonic() - begun < AT_ONCE_S:
            return
    raise AssertionError(f"{ATTEMPTS} times it took {AT_ONCE_S} s and more")


@script("inherit")
def no_wait_for_a_stopped_holder(c: Calls) -> None:
    """Whatever the reason for which they do not wait. Those that need the connection say EAGAIN, except
    shutdown(), which is done later."""
    s, peer = c.connected()
    length, one = ctypes.c_uint(104), ctypes.c_int(1)
    info = (socket.SOL_TCP, socket.TCP_INFO, ctypes.create_string_buffer(104), ctypes.byref(length))
    error = (socket.SOL_SOCKET, socket.SO_ERROR, ctypes.byref(ctypes.c_int()), ctypes.byref(ctypes.c_uint(4)))

    def refused_for_now(name: str, *arguments: Any) -> None:
        result = c.call(name, s, *arguments)
        assert result == -errno.EAGAIN, (name, arguments, result)

    def allowed() -> None:
        assert c.call("getsockopt", s, *error) == 0 and c.name("getpeername", s)
        assert poll(c, s, select.POLLIN | select.POLLOUT, 0) == 0

    def shut() -> None:
        assert c.call("shutdown", s, socket.SHUT_WR) == 0

    with held_by_one_that_is_stopped(c, s, peer):
        for nonblocking in (False, True):
            c.call("ioctl", s, FIONBIO, ctypes.byref(ctypes.c_int(nonblocking)))
            flags = 0 if nonblocking else socket.MSG_DONTWAIT
            for name, *arguments in [
                ("send", b"y", 1, flags),
                ("recv", ctypes.create_string_buffer(9), 9, flags),
                ("recv", ctypes.create_string_buffer(9), 9, flags | socket.MSG_PEEK | socket.MSG_WAITALL),
                ("getsockopt", *info),
                ("setsockopt", socket.SOL_TCP, socket.TCP_NODELAY, ctypes.byref(one), 4),
                ("ioctl", SIOCOUTQ, ctypes.byref(one)),
            ]:
                at_once(partial(refused_for_now, name, *arguments))
            at_once(allowed)
        at_once(shut)
        assert not select.select([peer], [], [], 0)[0]
    assert peer.recv(1) == b""


@script("inherit")
def readiness_comes_when_a_stopped_holder_goes_on(c: Calls) -> None:
    """It was refused to a call that did not wait: poll asks for it as that call did, also from a process that uses
    it again before a poll alone would get it (IDLE_NS)."""
    s, peer = c.connected()
    going, enough = Signal(), Signal()

    def child() -> None:
        assert send(c, s, b"x") == 1
        going.wait()
        while not select.select([enough.read_end], [], [], 0.01)[0]:
            assert c.call("send", s, b"x", 1, 0) == 1
        Signal().wait()

    holder = Child(c, child)
    assert peer.recv(1) == b"x"
    holder.stop()
    assert c.call("send", s, b"y", 1, socket.MSG_DONTWAIT) == -errno.EAGAIN
    os.kill(holder.pid, signal.SIGCONT)
    going.tell()
    assert poll(c, s, select.POLLOUT) & select.POLLOUT
    enough.tell()  # else it may have it again by now, and again: whoever of the two gets less of a core waits for long
    until(lambda: poll(c, s, select.POLLOUT) and c.call("send", s, b"y", 1, socket.MSG_DONTWAIT) == 1)
    holder.kill()


@script("inherit")
def a_time_out_ends_a_call_that_waits_for_a_stopped_holder(c: Calls) -> None:
    s, peer = c.connected()
    limit = struct.pack("=qq", 0, 200_000)
    for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        assert c.call("setsockopt", s, socket.SOL_SOCKET, option, limit, len(limit)) == 0
    with held_by_one_that_is_stopped(c, s, peer):
        for name, *arguments in [("recv", ctypes.create_string_buffer(9), 9, 0), ("send", b"y", 1, 0)]:
            begun = time.monotonic()
            assert c.call(name, s, *arguments) == -errno.EAGAIN
            assert 0.2 <= time.monotonic() - begun < 1.5, name


@script("inherit")
def what_cannot_be_kept(c: Calls) -> None:
    """Refused, each with an errno; and what the proxy never knew is as good as new."""
    _server = socket.create_server(("127.0.0.1", 0))
    port = _server.getsockname()[1]
    fresh, bound, listening = c.create(), c.create(), listen(c, share=False)[0]
    assert c.call("bind", bound, address(0), 16) == 0

    def child() -> None:
        assert c.call("accept4", listening, None, None, 0) == -errno.ENETDOWN
        assert c.call("connect", fresh, address(port), 16) == -errno.ENETDOWN  # nothing attaches it
        assert c.call("connect", bound, address(port), 16) == -errno.EOPNOTSUPP  # the parent has it bound, too
        mine = c.create()
        assert c.call("connect", mine, address(port), 16) == 0
        assert c.call("connect", fresh, address(port), 16) == 0
        for s in (fresh, bound, listening, mine):
            assert c.call("close", s) == 0

    Child(c, child).wait()
    assert c.call("listen", bound, 5) == 0


@script("inherit")
def two_children_use_it(c: Calls) -> None:
    s, peer = c.connected()
    first, second = Signal(), Signal()

    def one() -> None:
        assert send(c, s, b"x") == 1
        first.tell()
        second.wait()
        assert send(c, s, b"z") == 1

    def other() -> None:
        first.wait()
        assert send(c, s, b"y") == 1
        assert c.call("close", s) == 0
        second.tell()

    children = [Child(c, one), Child(c, other)]
    for child in children:
        child.wait()
    assert send(c, s, b".") == 1
    assert c.call("close", s) == 0
    assert kernel_receive_all(peer) == b"xyz."


@script("inherit")
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


@script("inherit")
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
