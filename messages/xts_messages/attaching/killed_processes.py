"""Processes that were killed, kept for a while by the endpoint to which they were attached: their names, and what they
had done.

Theory of operation. A program that ends normally reports itself what it has done (`xts run -v`), and marks its status
page (`closed`, native/attaching/status.h). A program that is killed does neither. When an attachment ends whose page is
not marked, its figures are copied; the rest of the page is not kept. The process must end within a moment: if it lives
on, it has executed another program. If the kernel reports how a process ended (Linux 6.15), one that was not killed is
dropped.

The records of a user are bounded in number and age, and shown only to that user and to root.
"""

from __future__ import annotations

import fcntl
import os
import select
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from xts_messages._native import ffi, lib
from xts_messages.attaching.status_page import Figures, read_figures

ENDED_KEEP_S, ENDED_KEEP_S_MAX = 600, 86400  # default for a server, and the maximum
PROGRAMS_MAX = 256
PROGRAMS_OF_A_USER_MAX = 32
#: An attachment ends some microseconds before its process; a debugger or a core dump can turn that into seconds.
ENDS_WITHIN_S = 10.0

_PIDFD_GET_INFO = 0xC040FF0B  # _IOWR(0xFF, 11, the first 64 bytes of struct pidfd_info)
_PIDFD_INFO = struct.Struct("=QQ11Ii")  # mask, cgroup, eleven numbers, and the exit code
_PIDFD_INFO_EXIT = 1 << 3


@dataclass(slots=True, eq=False)
class _Program:
    pid: int
    uid: int
    name: str
    pidfd: int  # -1: it is known how the process ended
    at: float  # when its last attachment ended
    has_ended: bool = False
    signal: int = 0
    stacks: dict[int, Figures] = field(default_factory=dict)


class EndedProcesses:
    """The ended processes of one endpoint. The owner calls `settle()` at `deadline()`."""

    def __init__(self, keep_s: float, now: Callable[[], float] = time.monotonic) -> None:
        """keep_s: for how long each is listed; 0: not at all."""
        self.keep_s = keep_s
        self._now = now
        self._programs: dict[tuple[int, int], _Program] = {}  # oldest first

    def __len__(self) -> int:
        return len(self._programs)

    def add(self, pid: int, uid: int, name: str, pidfd: int, status_fd: int) -> None:
        """An attachment has ended. The caller keeps the descriptors."""
        figures = read_figures(status_fd) if self.keep_s else None
        if figures is None or figures.closed:
            return
        key = pid, figures.program
        program = self._programs.pop(key, None)
        if program is None:
            self._make_room(uid)
            program = _Program(pid, uid, name, os.dup(pidfd), 0.0)
        program.at = self._now()
        program.stacks[figures.stack] = figures
        self._programs[key] = program
        self.settle()

    def _make_room(self, uid: int) -> None:
        held = Counter(program.uid for program in self._programs.values())
        if held[uid] >= PROGRAMS_OF_A_USER_MAX:
            self._forget_oldest(uid)
        elif len(self._programs) >= PROGRAMS_MAX:
            self._forget_oldest(held.most_common(1)[0][0])

    def _forget_oldest(self, uid: int) -> None:
        self._forget(next(key for key, program in self._programs.items() if program.uid == uid))

    def _forget(self, key: tuple[int, int]) -> None:
        program = self._programs.pop(key)
        if program.pidfd >= 0:
            os.close(program.pidfd)

    def deadline(self) -> float | None:
        """The time at which `settle()` has to be called; None: no deadline."""
        undecided = [p.at + ENDS_WITHIN_S for p in self._programs.values() if not p.has_ended]
        return min(undecided, default=None)

    def settle(self) -> None:
        """Drops processes that live on, that were not killed, or that have been kept long enough."""
        now = self._now()
        for key, program in list(self._programs.items()):
            if program.pidfd >= 0:
                self._look(program)
            lives_on = not program.has_ended and program.at + ENDS_WITHIN_S <= now
            if lives_on or program.signal < 0 or program.at + self.keep_s <= now:
                self._forget(key)

    @staticmethod
    def _look(program: _Program) -> None:
        """signal < 0: it ended by itself."""
        if not program.has_ended:
            program.has_ended = pidfd_readable(program.pidfd)
        if program.has_ended and (status := _exit_status(program.pidfd)) is not None:
            program.signal = os.WTERMSIG(status) if os.WIFSIGNALED(status) else -1
            os.close(program.pidfd)
            program.pidfd = -1

    def listing(self, uid: int) -> Iterator[bytes]:
        """A `struct xts_attach_ended` for each process that the user may see, oldest first."""
        self.settle()
        for program in self._programs.values():
            if uid in (0, program.uid) and program.has_ended:
                yield self._listed(program)

    def _listed(self, program: _Program) -> bytes:
        native = ffi.new("struct xts_attach_ended *")
        native.magic = lib.XTS_ATTACH_ENDED_MAGIC
        native.version = lib.XTS_ATTACH_VERSION
        native.pid, native.uid = program.pid, program.uid
        native.program = program.name.encode(errors="replace")[:63]
        native.ended_ms_ago = int((self._now() - program.at) * 1000)
        native.signal = program.signal
        native.stacks = len(program.stacks)
        Figures.sum(program.stacks.values()).write(native.figures)
        return bytes(ffi.buffer(native))

    def close(self) -> None:
        """Drops all. May be called again."""
        for key in list(self._programs):
            self._forget(key)


def pidfd_readable(pidfd: int) -> bool:
    """Has the process ended?"""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(0))


def _exit_status(pidfd: int) -> int | None:
    """The exit status as in wait(2). None: the kernel does not report it, or only after another process has waited."""
    buffer = bytearray(_PIDFD_INFO.pack(_PIDFD_INFO_EXIT, *[0] * 13))
    try:
        fcntl.ioctl(pidfd, _PIDFD_GET_INFO, buffer)
    except OSError:
        return None
    mask, *_, status = _PIDFD_INFO.unpack(buffer)
    return status if mask & _PIDFD_INFO_EXIT else None
