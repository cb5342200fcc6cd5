"""`python undecided_sleepers.py WAY ADDRESS PORT`: a thread sleeps for a datagram socket that has not been decided, in
one of the ways there are; another thread sends the first datagram, to a peer that returns it. With the word `install`
after these the package's install() decides, else the interposer."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import select
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from beds.libc_structs import Message, Vector
from system.interposer.programs.interposed import DEADLINE_S, errno_of, libc, until

WORD = b"first"
SYS_FUTEX = {"x86_64": "202", "aarch64": "98"}[platform.machine()]
LIMIT_S, DECIDED_S = 2.0, 1.0

Way = Callable[[socket.socket], bytes]
WAYS: dict[str, Way] = {}


def _way(wait: Way) -> Way:
    WAYS[wait.__name__] = wait
    return wait


@_way
def recv(s: socket.socket) -> bytes:
    return s.recv(100)


@_way
def recv_within_time(s: socket.socket) -> bytes:
    s.settimeout(DEADLINE_S)
    return s.recv(100)


@_way
def recvfrom(s: socket.socket) -> bytes:
    data, peer = s.recvfrom(100)
    assert peer == (sys.argv[2], int(sys.argv[3])), peer
    return data


@_way
def recvmsg(s: socket.socket) -> bytes:
    data, _, _, peer = s.recvmsg(100, 100)
    assert peer == (sys.argv[2], int(sys.argv[3])), peer
    return data


@_way
def read(s: socket.socket) -> bytes:
    return os.read(s.fileno(), 100)


@_way
def readv(s: socket.socket) -> bytes:
    room = bytearray(100)
    return bytes(room[: os.readv(s.fileno(), [room])])


@_way
def recvmmsg(s: socket.socket) -> bytes:
    room = ctypes.create_string_buffer(100)
    message = Message()
    message.header.vectors = ctypes.pointer(Vector(ctypes.addressof(room), len(room)))
    message.header.count = 1
    assert libc("recvmmsg", s.fileno(), ctypes.byref(message), 1, 0, None) == 1
    return room.raw[: message.bytes]


@_way
def a_duplicate(s: socket.socket) -> bytes:
    with s.dup() as copy:
        return copy.recv(100)


@_way
def poll(s: socket.socket) -> bytes:
    poller = select.poll()
    poller.register(s, select.POLLIN)
    while True:
        assert poller.poll(DEADLINE_S * 1000), "not woken"
        try:
            return s.recv(100, socket.MSG_DONTWAIT)
        except BlockingIOError:
            assert "install" in sys.argv, "woken, and there is nothing"


@_way
def poll_with_an_offloaded_one(s: socket.socket) -> bytes:
    with socket.socket(type=socket.SOCK_DGRAM) as other:
        other.connect((sys.argv[2], int(sys.argv[3])))
        poller = select.poll()
        poller.register(s, select.POLLIN)
        poller.register(other, select.POLLIN)
        assert poller.poll(DEADLINE_S * 1000) == [(s.fileno(), select.POLLIN)]
        return s.recv(100, socket.MSG_DONTWAIT)


@_way
def select_of_the_c_library(s: socket.socket) -> bytes:
    while True:
        assert select.select([s], [], [], DEADLINE_S)[0] == [s], "not woken"
        try:
            return s.recv(100, socket.MSG_DONTWAIT)
        except BlockingIOError:
            assert "install" in sys.argv, "woken, and there is nothing"


@_way
def epoll(s: socket.socket) -> bytes:
    with select.epoll() as waiter:
        waiter.register(s, select.EPOLLIN)
        while True:
            assert waiter.poll(DEADLINE_S) == [(s.fileno(), select.EPOLLIN)], "not woken"
            try:
                return s.recv(100, socket.MSG_DONTWAIT)
            except BlockingIOError:
                assert "install" in sys.argv, "woken, and there is nothing"


@_way
def epoll_with_an_offloaded_one(s: socket.socket) -> bytes:
    with select.epoll() as waiter, socket.socket(type=socket.SOCK_DGRAM) as other:
        other.connect((sys.argv[2], int(sys.argv[3])))
        waiter.register(other, select.EPOLLIN)
        waiter.register(s, select.EPOLLIN)
        assert waiter.poll(DEADLINE_S) == [(s.fileno(), select.EPOLLIN)], "not woken"
        return s.recv(100, socket.MSG_DONTWAIT)


def _asleep(thread: threading.Thread) -> bool:
    """In another system call than that of a lock."""
    doing = Path(f"/proc/self/task/{thread.native_id}/syscall").read_text().split()
    return doing[0] not in ("running", SYS_FUTEX)


def _in_a_thread(wait: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    until(lambda: _asleep(thread))
    return thread


def woken(way: Way) -> None:
    s = socket.socket(type=socket.SOCK_DGRAM)
    got: list[bytes] = []
    thread = _in_a_thread(lambda: got.append(way(s)))
    s.sendto(WORD, (sys.argv[2], int(sys.argv[3])))
    thread.join(DEADLINE_S)
    assert got == [WORD], got


def time_goes_on() -> None:
    """Of SO_RCVTIMEO: what is left of it when the socket is decided."""
    s = socket.socket(type=socket.SOCK_DGRAM)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("@ll", int(LIMIT_S), 0))
    failed: list[int] = []
    begun = time.monotonic()
    thread = _in_a_thread(lambda: failed.append(errno_of(lambda: s.recv(100))))
    thread.join(DECIDED_S)
    s.sendto(b"say nothing", (sys.argv[2], int(sys.argv[3])))
    thread.join(DEADLINE_S)
    took = time.monotonic() - begun
    assert failed == [errno.EAGAIN], failed
    assert LIMIT_S <= took < LIMIT_S + DECIDED_S * 0.9, took


def late_in_select() -> None:
    """The sleeper looks again at what it sleeps for when that has become another file: it runs where this thread does,
    and only while that sleeps."""
    os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
    s = socket.socket(type=socket.SOCK_DGRAM)
    got: list[bytes] = []

    def sleep() -> None:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        got.append(select_of_the_c_library(s))

    thread = _in_a_thread(sleep)
    begun = time.monotonic()
    s.sendto(WORD, (sys.argv[2], int(sys.argv[3])))
    thread.join(DEADLINE_S)
    assert got == [WORD], got
    assert time.monotonic() - begun < DEADLINE_S / 2, "woken by the end of its time"


class _Limit(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


def time_of_recvmmsg_goes_on() -> None:
    """Its limit, which only counts after a datagram: what is left of it when the socket is decided."""
    s = socket.socket(type=socket.SOCK_DGRAM)
    limit = _Limit(int(LIMIT_S), 0)
    messages, room = (Message * 2)(), ctypes.create_string_buffer(100)
    for message in messages:
        message.header.vectors = ctypes.pointer(Vector(ctypes.addressof(room), len(room)))
        message.header.count = 1
    got: list[int] = []
    thread = _in_a_thread(lambda: got.append(libc("recvmmsg", s.fileno(), messages, 2, 0, ctypes.byref(limit))))
    over = time.monotonic() + LIMIT_S
    thread.join(DECIDED_S)
    s.sendto(WORD, (sys.argv[2], int(sys.argv[3])))
    thread.join(over - time.monotonic())
    assert not got, got
    s.sendto(WORD, (sys.argv[2], int(sys.argv[3])))
    thread.join(DEADLINE_S)
    assert got == [2], got
    assert (limit.seconds, limit.nanoseconds) == (0, 0), (limit.seconds, limit.nanoseconds)


def time_of_recvmmsg_is_told() -> None:
    """What is left of it after the last datagram."""
    s = socket.socket(type=socket.SOCK_DGRAM)
    limit = _Limit(int(LIMIT_S), 0)
    message, room = Message(), ctypes.create_string_buffer(100)
    message.header.vectors = ctypes.pointer(Vector(ctypes.addressof(room), len(room)))
    message.header.count = 1
    got: list[int] = []
    arguments = (ctypes.byref(message), 1, 0, ctypes.byref(limit))
    thread = _in_a_thread(lambda: got.append(libc("recvmmsg", s.fileno(), *arguments)))
    thread.join(DECIDED_S)
    s.sendto(WORD, (sys.argv[2], int(sys.argv[3])))
    thread.join(DEADLINE_S)
    left = limit.seconds + limit.nanoseconds / 1e9
    assert got == [1], got
    assert 0 <= left <= LIMIT_S - DECIDED_S, left


def shut_down_before() -> None:
    """What is shut down before the socket is decided stays so: EPIPE."""
    s = socket.socket(type=socket.SOCK_DGRAM)
    assert errno_of(lambda: s.shutdown(socket.SHUT_WR)) == errno.ENOTCONN
    assert errno_of(lambda: s.sendto(WORD, (sys.argv[2], int(sys.argv[3])))) == errno.EPIPE


def shut_down_before_for_reading() -> None:
    """recv() of nothing does not wait, and a connect() changes nothing about that."""
    s = socket.socket(type=socket.SOCK_DGRAM)
    assert errno_of(lambda: s.shutdown(socket.SHUT_RD)) == errno.ENOTCONN
    s.connect((sys.argv[2], int(sys.argv[3])))
    assert s.recv(100) == b""
    assert s.send(b"say nothing") == 11


def shut_down_by_the_program() -> None:
    """Programs wake their own threads so, too."""
    s = socket.socket(type=socket.SOCK_DGRAM)
    got: list[bytes] = []
    thread = _in_a_thread(lambda: got.append(s.recv(100)))
    assert errno_of(lambda: s.shutdown(socket.SHUT_RDWR)) == errno.ENOTCONN
    thread.join(DEADLINE_S)
    assert got == [b""], got


#: Of the interposer alone: install() has neither recvmmsg() nor shutdown() before.
OF_CALLS = (time_of_recvmmsg_goes_on, time_of_recvmmsg_is_told, shut_down_before, shut_down_before_for_reading)
OTHERS = {check.__name__: check for check in (time_goes_on, late_in_select, shut_down_by_the_program, *OF_CALLS)}

if __name__ == "__main__":
    if "install" in sys.argv:
        import xts_socket

        assert xts_socket.install()
    if sys.argv[1] in OTHERS:
        OTHERS[sys.argv[1]]()
    else:
        woken(WAYS[sys.argv[1]])
