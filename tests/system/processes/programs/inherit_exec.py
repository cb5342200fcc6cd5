"""Sockets that are kept over exec."""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import struct
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from beds.calls import Calls, address, until
from beds.scripts import script
from system.processes.programs.inheriting import (
    PATIENCE_S,
    PATTERN,
    Child,
    Signal,
    accept,
    ask,
    kernel_receive_all,
    listen,
    open_descriptors,
    poll,
    receive_all,
    receive_exactly,
    refused,
    serve_names,
)
from system.sockets.programs.library_scripts import info, recv, send


class ExecSocket(ctypes.Structure):
    _fields_ = (("number", ctypes.c_int), ("descriptor", ctypes.c_int), ("again", ctypes.c_bool))


NEXT: dict[str, Callable[[Calls, dict[int, int]], None]] = {}


def after_exec(function: Callable[[Calls, dict[int, int]], None]) -> Callable[[Calls, dict[int, int]], None]:
    """What runs in the new program, with its sockets by the descriptors they had."""
    NEXT[function.__name__] = function
    return function


def exec_prepare(c: Calls, *sockets: int) -> int:
    """The sockets are given up; their descriptors shall be 100, 101 …"""
    array = (ExecSocket * len(sockets))(*(ExecSocket(s, 100 + i) for i, s in enumerate(sockets)))
    memfd = c.call("exec_prepare", array, len(sockets))
    assert memfd >= 0, memfd
    return memfd


def execute(function: Callable[[Calls, dict[int, int]], None], memfd: int, program: str = sys.executable) -> None:
    here = [sys.argv[0], sys.argv[1], function.__name__, str(memfd)]
    os.execv(program, [program, *here])


def take_over(c: Calls, memfd: int) -> tuple[dict[int, int], list[tuple[int, int]]]:
    """The sockets by descriptor; and the lost ones, with their errno."""
    got: dict[int, int] = {}
    lost = []
    out = ExecSocket()
    while r := c.call("inherit_next", memfd, ctypes.byref(out)):
        if r == 1:
            assert out.again == (out.number in got.values())
            got[out.descriptor] = out.number
        else:
            lost.append((out.descriptor, -r))
    return got, lost


def drop_the_lock() -> None:
    """Closes a copy of the relatives' file, as a program may that looks at its descriptors. Then another process has
    the time to look for this one."""
    opened = list(Path("/proc/self/fd").iterdir())
    file = next(fd for fd in opened if fd.exists() and "xts-relatives" in str(fd.readlink()))
    os.close(os.dup(int(file.name)))
    time.sleep(0.5)


@after_exec
def lives_while_it_starts(c: Calls, sockets: dict[int, int]) -> None:
    assert send(c, sockets[100], b"child") == 5
    assert c.call("close", sockets[100]) == 0


@script("inherit")
def a_program_that_starts_is_not_dead(c: Calls) -> None:
    """Its parent has the connection, and looks whether others have it."""
    s, peer = c.connected()
    child = Child(c, lambda: execute(lives_while_it_starts, exec_prepare(c, s)))
    assert receive_exactly(peer, 5) == b"child"
    child.wait()
    assert send(c, s, b"parent") == 6
    assert receive_exactly(peer, 6) == b"parent"


@after_exec
def serves_on(c: Calls, sockets: dict[int, int]) -> None:
    connection, listener = sockets[100], sockets[101]
    assert c.call("fcntl", connection, 3, 0) & os.O_NONBLOCK
    assert c.call("ioctl", connection, 0x5421, ctypes.byref(ctypes.c_int(0))) == 0
    assert receive_all(c, connection, 199_000) == PATTERN[1000:200_000]
    assert send(c, connection, b"after exec") == 10
    serve_names(c, listener, b"next", 3)


@script("inherit")
def exec_keeps_a_connection_and_a_listener(c: Calls) -> None:
    told = Signal()

    def program() -> None:
        s, port = listen(c)
        told.tell(struct.pack("=H", port))
        connection = accept(c, s)
        assert recv(c, connection, 1000, socket.MSG_WAITALL) == PATTERN[:1000]
        assert c.call("ioctl", connection, 0x5421, ctypes.byref(ctypes.c_int(1))) == 0
        poll(c, connection)
        execute(serves_on, exec_prepare(c, connection, s))

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


@script("inherit")
def fork_and_exec_with_a_connection(c: Calls) -> None:
    """inetd: the parent accepts, forks, closes; the child gives the connection to the program it becomes."""
    s, port = listen(c)
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as peer:
        peer.sendall(b"to whoever reads")
        connection = accept(c, s)
        child = Child(c, lambda: execute(serves_once, exec_prepare(c, connection)))
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


@script("inherit")
def exec_with_several_descriptors_of_a_socket(c: Calls) -> None:
    s, peer = c.connected()
    other, _ = listen(c)
    peer.sendall(b"to the other")
    child = Child(c, lambda: execute(has_duplicates, exec_prepare(c, s, other, s, s)))
    assert c.call("close", s) == 0
    assert kernel_receive_all(peer) == b"by the third"
    child.wait()
    peer.close()


@after_exec
def uses_nothing(c: Calls, sockets: dict[int, int]) -> None:
    assert list(sockets) == [100, 101]


@script("inherit")
def fork_and_exec_of_a_program_that_uses_nothing(c: Calls) -> None:
    """A program with the server's sockets among its descriptors, as most have it: the server does not notice."""
    listener, port = listen(c)
    s, peer = c.connected()
    peer.sendall(b"before")
    poll(c, s)
    Child(c, lambda: execute(uses_nothing, exec_prepare(c, listener, s))).wait()
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


@script("inherit")
def upgrade_under_load(c: Calls) -> None:
    """nginx's upgrade of its program: old and new listen together, then the new one alone; no connection is lost."""
    s, port = listen(c)
    old = Child(c, lambda: serve_names(c, s, b"old", 40))
    seen = Counter(ask(port) for _ in range(10))
    new = Child(c, lambda: execute(listens_too, exec_prepare(c, s)))
    seen += Counter(ask(port) for _ in range(70))
    assert seen == {b"old": 40, b"new": 40}, seen
    for child in (old, new):
        child.wait()


@script("inherit")
def exec_fails(c: Calls) -> None:
    """Everything comes back under its old number, unread data too."""
    s, port = listen(c)
    t, peer = c.connected()
    peer.sendall(PATTERN[:100_000])
    assert recv(c, t, 1000, socket.MSG_WAITALL) == PATTERN[:1000]
    fds = open_descriptors()
    memfd = exec_prepare(c, s, t)
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


@script("inherit")
def exec_without_a_proxy(c: Calls) -> None:
    """The new program cannot attach: it is told of each connection, once."""

    def program() -> None:
        s, _peer = c.connected()
        t, _other = c.connected()
        memfd = exec_prepare(c, s, t)
        os.environ["XTS_ENDPOINT"] = "/nowhere"
        execute(says_what_is_lost, memfd)

    child = Child(c, program)
    _, status = os.waitpid(child.pid, 0)
    assert os.waitstatus_to_exitcode(status) == 3


@after_exec
def finds_some(c: Calls, sockets: dict[int, int]) -> None:
    assert list(sockets) == [101]
    assert send(c, sockets[101], b"x") == 1


@script("inherit")
def exec_loses_what_cannot_be_kept(c: Calls) -> None:
    """What only the proxy's socket has, options for instance, of one that is neither bound nor connected."""
    s, peer = c.connected()
    optioned = c.create()
    raw = ctypes.byref(ctypes.c_int(1))
    assert c.call("setsockopt", optioned, socket.SOL_SOCKET, socket.SO_KEEPALIVE, raw, 4) == 0
    Child(c, lambda: execute(finds_some, exec_prepare(c, optioned, s))).wait()
    assert peer.recv(1) == b"x"


@after_exec
def listens_on_what_was_bound(c: Calls, sockets: dict[int, int]) -> None:
    assert c.call("bind", sockets[100], address(0), 16) == -errno.EINVAL
    assert c.call("listen", sockets[100], 16) == 0
    serve_names(c, sockets[100], b"next", 2)


@script("inherit")
def exec_keeps_what_was_bound(c: Calls) -> None:
    told = Signal()

    def program() -> None:
        bound = c.create()
        assert c.call("bind", bound, address(0), 16) == 0
        found = c.name("getsockname", bound)
        assert found
        told.tell(struct.pack("=H", found[1]))
        execute(listens_on_what_was_bound, exec_prepare(c, bound))

    child = Child(c, program)
    (port,) = struct.unpack("=H", told.wait(2))
    until(lambda: not refused(port))
    assert ask(port) == b"next"
    child.wait()


@script("inherit")
def nonsense_is_refused(c: Calls) -> None:
    many = head_of_record(7, 2, 0, 0, 5) + bytes(20)
    for content in (b"x", bytes(24), bytes(4096), PATTERN[:5000], head_of_record(7, 0, 1, 1000), many):
        memfd = file_of_records(content)
        assert c.call("inherit_next", memfd, ctypes.byref(ExecSocket())) == -errno.EPROTO
        assert c.call("inherit_next", memfd, ctypes.byref(ExecSocket())) == 0
    assert info(c).sockets == 0


@script("inherit")
def what_follows_a_bad_record_is_found(c: Calls) -> None:
    """A record of another version is told apart, and costs its socket only. Descriptors that are none stay open."""
    pipe = os.pipe()
    versions = {(9, 9): errno.EBADMSG, (99, 99): errno.EPROTONOSUPPORT, (8, 8): errno.EPROTONOSUPPORT}
    bodies = [struct.pack(">HHI", version, compatible, 0) for version, compatible in versions]
    records = [head_of_record(at, 0, 0, len(body), 1) + struct.pack(">i", pipe[0]) for at, body in enumerate(bodies)]
    whole = b"".join(head + body for head, body in zip(records, bodies, strict=True))
    memfd = file_of_records(whole + head_of_record(77, 2, errno.EBUSY))
    out = ExecSocket()
    for descriptor, error in enumerate((*versions.values(), errno.EBUSY)):
        assert c.call("inherit_next", memfd, ctypes.byref(out)) == -error
        assert out.descriptor == (descriptor if error != errno.EBUSY else 77)
    assert c.call("inherit_next", memfd, ctypes.byref(out)) == 0
    assert os.write(pipe[1], b"x") == 1 and os.read(pipe[0], 1) == b"x"
    assert info(c).sockets == 0


@script("inherit")
def a_struct_of_an_older_version_is_known(c: Calls) -> None:
    """Up to version 8 records were structs. Which descriptor is lost is known of the first."""
    memfd = file_of_records(struct.pack("=IIIi", 0x58545342, 8, 1, 5) + bytes(600))
    out = ExecSocket()
    assert c.call("inherit_next", memfd, ctypes.byref(out)) == -errno.EPROTONOSUPPORT
    assert out.descriptor == 5
    assert c.call("inherit_next", memfd, ctypes.byref(out)) == 0


def head_of_record(descriptor: int, what: int, value: int, length: int = 0, descriptors: int = 0) -> bytes:
    return struct.pack(">IiIIII", 0x58545352, descriptor, what, value, length, descriptors)


def file_of_records(content: bytes) -> int:
    memfd = os.memfd_create("records")
    os.write(memfd, content)
    os.lseek(memfd, 0, os.SEEK_SET)
    return memfd
