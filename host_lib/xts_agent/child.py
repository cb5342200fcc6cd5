"""Child processes of the agent, forked by a process without threads. Each keeps one descriptor: its link to the
agent."""

from __future__ import annotations

import array
import ctypes
import errno
import logging
import os
import signal
import socket
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

log = logging.getLogger("xts-agent")


class LostError(OSError):
    """EMFILE: descriptors of a message, which this process has no room for. The kernel has closed them."""

    def __init__(self, data: bytes) -> None:
        super().__init__(errno.EMFILE, os.strerror(errno.EMFILE))
        self.data = data

    def __reduce__(self) -> tuple[type[LostError], tuple[bytes], dict[str, Any]]:
        return type(self), (self.data,), self.__dict__


_PR_SET_NAME = 15
_libc = ctypes.CDLL(None)


def fork(name: str, main: Callable[[socket.socket], int]) -> tuple[socket.socket, int]:
    """The child, a process of this name, runs main() on its end of the connection, and exits with the result. Returns
    our end, and the child's process number. The child ignores the signals that end the agent; it ends with the
    connection instead."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    # room for two requests for each queue, so that a child which is stopped does not block us
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    with theirs:
        try:
            process = os.fork()
        except OSError:
            ours.close()
            raise
        if process == 0:
            _run(name, main, theirs)
    return ours, process


def send(connection: socket.socket, data: bytes, descriptors: Sequence[int]) -> None:
    """Sends a message at once. BlockingIOError: there is no room. (send_fds() of Python 3.11 ignores flags.)"""
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))]
    connection.sendmsg([data], rights, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)


def receive(connection: socket.socket, bytes_max: int, descriptors_max: int) -> tuple[bytes, list[int]]:
    """The next message, with its descriptors, which the caller owns. BlockingIOError: there is none now. LostError.
    (recv_fds() of Python 3.11 ignores flags.)"""
    found = array.array("i")
    room = socket.CMSG_LEN(descriptors_max * found.itemsize)
    data, ancillary, said, _ = connection.recvmsg(bytes_max, room, socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC)
    for level, kind, came in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            found.frombytes(came[: len(came) - len(came) % found.itemsize])
    if said & socket.MSG_CTRUNC:
        for fd in found:
            os.close(fd)
        raise LostError(data)
    return data, list(found)


def set_name(name: str) -> None:
    """Names this process, for people who list processes."""
    _libc.prctl(_PR_SET_NAME, name.encode()[:15], 0, 0, 0)


def _run(name: str, main: Callable[[socket.socket], int], inherited: socket.socket) -> NoReturn:
    status = 1
    try:
        set_name(name)
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        os.dup2(inherited.fileno(), 3)
        os.closerange(4, os.sysconf("SC_OPEN_MAX"))
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, fileno=3)
        connection.set_inheritable(False)
        status = main(connection)
    except OSError as error:
        log.error("%s ends: %s", name, error.strerror or error)
    except Exception as error:  # a bug; no traceback, because that would read files
        log.error("%s ends: %s: %s", name, type(error).__name__, error)
    finally:
        os._exit(status)
