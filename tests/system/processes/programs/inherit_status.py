"""What belongs to the open file description: O_NONBLOCK, time-outs and SO_RCVLOWAT that one process sets, and all have.
All of it is so on the kernel."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import socket
import struct
from collections.abc import Callable

from beds.calls import Calls
from beds.datagram_calls import bound
from beds.scripts import script
from system.processes.programs.inherit_shutdown import listener, nonblocking
from system.processes.programs.inheriting import Child, Signal
from system.sockets.programs.library_scripts import recv

F_GETFL, F_SETFL = 3, 4
SHORT = struct.pack("=qq", 0, 200_000)  # whole ticks, also of a kernel with 100 a second


def is_nonblocking(c: Calls, s: int) -> bool:
    flags = c.call("fcntl", s, F_GETFL, 0)
    assert flags >= 0
    return bool(flags & os.O_NONBLOCK)


def timeout(c: Calls, s: int, option: int) -> bytes:
    value, length = ctypes.create_string_buffer(16), ctypes.c_uint(16)
    assert c.call("getsockopt", s, socket.SOL_SOCKET, option, value, ctypes.byref(length)) == 0
    return value.raw


def is_for_both(c: Calls, s: int, receives: Callable[[], int]) -> None:
    """What the parent sets after the fork its child has, and the other way round. receives: a call for which nothing is
    there."""
    go, done = Signal(), Signal()

    def child() -> None:
        assert not is_nonblocking(c, s)
        done.tell()
        go.wait()
        assert receives() == -errno.EAGAIN and is_nonblocking(c, s)
        nonblocking(c, s, False)
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            assert c.set(s, socket.SOL_SOCKET, option, SHORT) == 0
        done.tell()
        go.wait()
        assert receives() == -errno.EAGAIN and is_nonblocking(c, s)

    made = Child(c, child)
    done.wait()
    assert c.call("fcntl", s, F_SETFL, os.O_NONBLOCK) == 0
    go.tell()
    done.wait()
    assert not is_nonblocking(c, s)
    assert timeout(c, s, socket.SO_RCVTIMEO) == timeout(c, s, socket.SO_SNDTIMEO) == SHORT
    assert receives() == -errno.EAGAIN, "it waits for as long as the child has said"
    nonblocking(c, s)
    go.tell()
    made.wait()


@script("inherit")
def status_of_a_listener(c: Calls) -> None:
    s, _ = listener(c)
    is_for_both(c, s, lambda: c.call("accept4", s, None, None, 0))


@script("inherit")
def status_of_a_connection(c: Calls) -> None:
    s, _peer = c.connected()
    data = ctypes.create_string_buffer(1)
    is_for_both(c, s, lambda: c.call("recv", s, data, ctypes.c_size_t(1), 0))


@script("inherit")
def status_of_a_datagram_socket(c: Calls) -> None:
    s, _ = bound(c)
    data = ctypes.create_string_buffer(1)
    is_for_both(c, s, lambda: c.call("recv", s, data, ctypes.c_size_t(1), 0))


@script("inherit")
def status_of_a_connection_how_much_is_waited_for(c: Calls) -> None:
    """SO_RCVLOWAT of the child is the parent's: recv() waits for so much, also for more than fitted before."""
    s, peer = c.connected()

    def child() -> None:
        c.set(s, socket.SOL_SOCKET, socket.SO_RCVLOWAT, 200_000)

    Child(c, child).wait()
    lowat = c.get(s, socket.SOL_SOCKET, socket.SO_RCVLOWAT)
    assert lowat > 100_000
    sent = 0
    peer.setblocking(False)
    while sent < lowat:
        with_room = min(65536, lowat - sent)
        try:
            sent += peer.send(bytes(with_room))
        except BlockingIOError:
            continue
    assert len(recv(c, s, lowat)) == lowat


@script("inherit")
def status_before_the_fork_and_after_the_child_has_gone(c: Calls) -> None:
    s, _peer = c.connected()
    nonblocking(c, s)

    def child() -> None:
        assert is_nonblocking(c, s)
        nonblocking(c, s, False)

    Child(c, child).wait()
    assert not is_nonblocking(c, s)
    nonblocking(c, s)
    assert is_nonblocking(c, s)


@script("inherit")
def status_of_a_connection_when_it_is_closed(c: Calls) -> None:
    """SO_LINGER of the child, which has gone: the parent's close() resets."""
    s, peer = c.connected()

    def child() -> None:
        assert c.set(s, socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("=ii", 1, 0)) == 0

    Child(c, child).wait()
    assert c.call("close", s) == 0
    with contextlib.suppress(ConnectionResetError):
        raise AssertionError(peer.recv(1))
