"""The understudy: a process next to that of the workers, from which the next one is made when that one has died
(PROTOCOL.md, "Crash"; native/channel/ledger.h).

Theory of operation. The workers' process makes it, before it has threads or has read anything of a host. The two share
their table of descriptors (clone(2) with CLONE_FILES), so that what the workers have open stays open when they die, at
no cost for each connection. It waits. When the supervisor says so, with the two sockets over which the next workers'
process will be called, it makes that one of itself, in the same way: with the same descriptors, and with the memory
that the first one had before it began. Then it waits again.

It is confined as the workers are, and may make such a process in addition. It reads one byte from the supervisor. It
does not map the memory for keys, which is made later. It has its descriptor, as all others, and the process that is
made of it takes what it needs out of that memory (native/loop/recover_tls.h).

A process that is made so has the address layout of the one that has died. So a host could find out addresses by
crashing workers: supervisor/crash.py.
"""

from __future__ import annotations

import errno
import os
import resource
import socket
import struct
from collections.abc import Callable, Sequence
from typing import NamedTuple

from xts_proxy._native import ffi, lib
from xts_proxy.config.config_limits import DESCRIPTORS_MAX

_PID = struct.Struct("=i")
#: It answers at once, if it is there.
_PATIENCE_S = 2.0
#: Channels whose queue and host are written down. Those with a higher number end with the workers' process.
CHANNELS_MAX = 4096


class Swept(NamedTuple):
    """struct xts_swept: sockets that may go on, and connections that were reset."""

    kept: int
    reset: int


def descriptors_max() -> int:
    """Below this number are all descriptors of this process."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return DESCRIPTORS_MAX if limit == resource.RLIM_INFINITY else min(limit, DESCRIPTORS_MAX)


def make(
    control: socket.socket, confine: Callable[[], None], begin: Callable[[socket.socket, socket.socket], None]
) -> int:
    """Makes it, in the workers' process. `control`: where the supervisor speaks to it. `confine`: gives up all rights;
    `begin`: is the next workers' process, over its two sockets. Returns its number. OSError: it could not be made."""
    if error := lib.xts_ledger_make(descriptors_max(), CHANNELS_MAX):
        raise OSError(-error, f"memory for what connections are: {os.strerror(-error)}")
    if pid := _clone():
        return pid
    status = 1
    try:
        confine()
        _wait(control, begin)
        status = 0
    except Exception as error:  # as children.fork()
        os.write(2, f"xts-understudy: {type(error).__name__}: {error}\n".encode())
    finally:
        os._exit(status)


def _clone() -> int:
    pid = int(lib.xts_clone_sharing())
    if pid < 0:
        raise OSError(-pid, f"making a process: {os.strerror(-pid)}")
    return pid


def _wait(control: socket.socket, begin: Callable[[socket.socket, socket.socket], None]) -> None:
    while True:
        word, descriptors, _, _ = socket.recv_fds(control, 1, 2)
        if not word:
            return
        if pid := _clone():
            control.send(_PID.pack(pid))  # the descriptors are the other one's now: the table is the same
            continue
        begin(socket.socket(fileno=descriptors[0]), socket.socket(fileno=descriptors[1]))
        return


def sweep(keep: Sequence[int]) -> Swept:
    """In the process that goes on, before it opens anything: closes what the one before had open, but `keep` and what
    may go on."""
    out = ffi.new("struct xts_swept *")
    if error := lib.xts_ledger_sweep(descriptors_max(), list(keep), len(keep), out):
        raise OSError(-error, f"closing descriptors: {os.strerror(-error)}")
    return Swept(int(out.kept), int(out.reset))


def ask(control: socket.socket, sockets: Sequence[socket.socket]) -> int:
    """In the supervisor: has the next process made. Returns its number. OSError: it is not there any more."""
    control.settimeout(_PATIENCE_S)
    try:
        socket.send_fds(control, [b"."], [one.fileno() for one in sockets])
        answer = control.recv(_PID.size)
    except TimeoutError:
        raise OSError(errno.ETIMEDOUT, "the understudy does not answer") from None
    if len(answer) != _PID.size:
        raise OSError(errno.EPIPE, "the understudy has ended")
    return int(_PID.unpack(answer)[0])
