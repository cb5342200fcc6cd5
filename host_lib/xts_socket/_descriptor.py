"""Kernel descriptors that stand for XTS sockets, and sockets that several objects share.

Theory of operation

`fileno()` makes a descriptor that mirrors the readiness of an XTS socket (xts_fileno). It is a handle as well:
functions of this package that take a descriptor (`socket(fileno=)`, `fromfd`, `dup`, `close`) find the socket by it. An
XTS socket has one number, so this module implements `dup()`: the objects share the number, which is closed with its
last holder, and each has a descriptor of its own.

A number carries a generation, and is never below 2**20: so an entry that has outlived its socket is recognised, and a
number is never mistaken for a descriptor.
"""

from __future__ import annotations

import errno
import os
from _thread import RLock
from socket import AF_UNIX, SO_ACCEPTCONN, SOL_SOCKET
from socket import close as _close
from socket import dup as _dup
from socket import socket as _socket
from typing import Any

from ._errors import check, error
from ._native import ffi, lib

_NUMBER_MIN = 1 << 20

#: Of xts_take_passed()'s EACCES.
_ELSEWHERE = (
    "the socket is one of another endpoint than this process is attached to, and a process does not begin to use "
    "another one because of a descriptor that it was sent"
)
#: Of its EPROTONOSUPPORT.
_OTHER_VERSION = (
    "the program that sent the socket has another version of libxts, whose record this one cannot read: start both "
    "with the same libxts"
)

_lock = RLock()
_numbers: dict[int, int] = {}  # descriptor -> number
_own: set[int] = set()  # descriptors made by duplicate(): they close with their holder
_holders: dict[int, int] = {}  # number -> how many objects hold it, if more than one
#: number -> its receive callback (_receive_callback.py), while the socket is open
receive_callbacks: dict[int, Any] = {}
#: descriptor of a listener on both host and device -> its number, the kernel's listener
_both: dict[int, tuple[int, int]] = {}
_halves: dict[int, int] = {}  # number of a listener that came from another program -> its kernel listener on this host


def descriptor_of(number: int) -> int:
    """The mirroring descriptor of a socket number; made by the first call. The socket owns it."""
    fd = check(lib.xts_py_fileno(number))
    _numbers[fd] = number
    return fd


def number_of(fd: int) -> int | None:
    """The socket number that a descriptor stands for; None: not one of ours."""
    number = _numbers.get(fd)
    if number is None:
        return None
    mirror = lib.xts_py_fileno(number)
    if mirror == fd or (mirror >= 0 and fd in _own and _same(mirror, fd)):
        return number
    return None


def number_behind(fd: int) -> tuple[int | None, int]:
    """The same, also for a duplicate that was made without this package; and, for a listener on both this host and the
    device, the kernel's listener, else -1."""
    if fd in _both:
        return _both[fd]
    if (number := number_of(fd)) is not None:
        return number, -1
    for other in set(_numbers.values()):
        if (mirror := lib.xts_py_fileno(other)) >= 0 and _same(mirror, fd):
            return other, -1
    return None, -1


def _same(mirror: int, fd: int) -> bool:
    """Is it still a duplicate? Its number may have been closed by os.close(), and be another file now."""
    try:
        return os.fstat(mirror).st_ino == os.fstat(fd).st_ino
    except OSError:
        return False


def adopt(fileno: object) -> tuple[int, int]:
    """(number, descriptor or -1) of something given as a socket: a descriptor, which may come from another program, or
    a number.

    Raises TypeError, ValueError; OSError: EBADF, or ENOTSOCK for a descriptor that does not stand for an XTS socket.
    """
    if not isinstance(fileno, int):
        raise TypeError(f"'{type(fileno).__name__}' object cannot be interpreted as an integer")
    if fileno < 0:
        raise ValueError("negative file descriptor")
    if fileno >= _NUMBER_MIN:
        return fileno, -1
    number = number_of(fileno)
    if number is None and take_over(fileno):
        number = number_of(fileno)
    if number is None:
        os.fstat(fileno)  # raises EBADF
        raise OSError(errno.ENOTSOCK, "not the descriptor of an XTS socket")
    return number, fileno


def duplicate(fd: int) -> int:
    """Makes another descriptor of the socket that `fd` stands for, as one more holder. OSError: EBADF."""
    number = number_of(fd)
    if number is None:
        raise error(errno.EBADF)
    copy = os.dup(fd)
    with _lock:
        _own.add(copy)
        _numbers[copy] = number
        _holders[number] = _holders.get(number, 1) + 1
    return copy


def keep_under(fd: int, number: int) -> None:
    """`fd` has been made a duplicate of the socket's descriptor, for a holder that exists already."""
    with _lock:
        _own.add(fd)
        _numbers[fd] = number


def keep_both(fd: int, number: int, kernel_listener: int) -> None:
    """`fd` shows the readiness of a listener on both this host and the device."""
    _both[fd] = (number, kernel_listener)


def wake_sleepers_of(number: int, fd: int) -> None:
    """To be called before `fd`, of a kernel socket, becomes a duplicate of the socket's descriptor: threads that sleep
    on it in the kernel's select() or poll() are then woken whenever the socket becomes readable. OSError."""
    check(lib.xts_py_wake_sleepers_of(number, fd))


def give(number: int, fd: int, inheritable: bool) -> None:
    """Programs that are started with the mirroring descriptor `fd` can then use the socket. OSError (EOPNOTSUPP)."""
    if inheritable and lib.xts_py_give(number, fd) < 0:
        raise OSError(errno.EOPNOTSUPP, "of XTS sockets only those that listen or are bound can outlive exec()")
    os.set_inheritable(fd, inheritable)


def _kernel_half(fd: int) -> int | None:
    """A descriptor of the kernel's listener that stood for a listener on both this host and the device."""
    with _socket(fileno=os.dup(fd)) as given:
        if given.family != AF_UNIX and given.getsockopt(SOL_SOCKET, SO_ACCEPTCONN):
            return given.detach()
    return None


def take_half(fd: int) -> int | None:
    """Once after take_over(fd): the kernel's part of a listener on both this host and the device."""
    number = number_of(fd)
    return None if number is None else _halves.pop(number, None)


def take_over(fd: int) -> bool:
    """From now on a descriptor from another program stands for its socket. False: it does not stand for one."""
    again = ffi.new("int *")
    number = lib.xts_py_take_passed(fd, again)
    if number == -errno.EACCES:
        raise error(errno.EACCES, _ELSEWHERE)
    if number == -errno.EPROTONOSUPPORT:
        raise error(errno.EPROTONOSUPPORT, _OTHER_VERSION)
    check(number)
    if not number:
        return False
    if (half := _kernel_half(fd)) is not None:
        _halves[number] = half
    os.dup2(descriptor_of(number), fd, inheritable=False)
    with _lock:
        if again[0]:
            _holders[number] = _holders.get(number, 1) + 1
        _own.add(fd)
        _numbers[fd] = number
    return True


def drop(fd: int) -> None:
    """Forgets a descriptor that is about to be closed or replaced."""
    with _lock:
        _own.discard(fd)
        _numbers.pop(fd, None)
        _both.pop(fd, None)


def release(number: int, fd: int) -> int:
    """Removes one holder, with its descriptor or -1; the last one closes the socket. 0 or -errno."""
    with _lock:
        if fd >= 0:
            _numbers.pop(fd, None)
        if fd in _own:
            _own.discard(fd)
            os.close(fd)
        holders = _holders.pop(number, 1) - 1
        if holders > 1:
            _holders[number] = holders
    if holders:
        return 0
    if receive_callbacks:
        receive_callbacks.pop(number, None)
    return lib.xts_py_close(number)


#: Dictionaries by descriptor or number, and what was in them before the fork that is under way.
_TABLES: tuple[dict[int, Any], ...] = (_numbers, _holders, receive_callbacks, _both, _halves)
_parents: list[dict[int, Any]] = []


def before_fork() -> None:
    """Notes what belongs to the parent. The lock is held over the fork, so that no other thread has it in the child; an
    at-fork hook of this thread may take it again."""
    _lock.acquire()
    _parents[:] = [dict(table) for table in _TABLES]


def forget_in_child() -> None:
    """After fork(): forgets the entries of the parent."""
    for table, before in zip(_TABLES, _parents, strict=True):
        for key, value in before.items():
            if table.get(key) == value:
                del table[key]
    _own.intersection_update(_numbers)
    after_fork()


def after_fork() -> None:
    """In the parent, and at the end in the child."""
    _parents.clear()
    _lock.release()


# --- the functions of the socket module that take descriptors -------------------------------------------------------


def close(fd: int) -> None:
    """Closes a socket by its descriptor, ours or the kernel's."""
    number = number_of(fd)
    if number is None:
        _close(fd)
    else:
        result = release(number, fd)
        if result < 0 and result != -errno.ECONNRESET:
            raise error(-result)


def dup(fd: int) -> int:
    """A new descriptor of the same socket, ours or the kernel's."""
    return _dup(fd) if number_of(fd) is None else duplicate(fd)
