"""A process that this one starts and that is not its child: os.wait() and waitpid(-1) of the program do not wait for
it, nor find it.

Theory of operation. A launcher, which is a child, forks a keeper and ends at once; its status is taken here. (A fork of
this process itself would run the program's at-fork hooks.) The keeper is the parent of the process. It tells the
process's number and, when it has ended, its status through a pipe. When this program ends, the keeper continues a
process that was stopped. The keeper belongs to init, or to a process that has asked for orphans
(PR_SET_CHILD_SUBREAPER): if that is the program itself, or the program is process 1, then it finds the keeper.
"""

from __future__ import annotations

import errno
import os
import select
import subprocess
import sys
from typing import Any

#: Arguments: the pipe, a descriptor that becomes readable when the program has ended, and the command.
_LAUNCHER = """\
import os, select, signal, sys
say, until = map(int, sys.argv[1:3])
if os.fork():
    os._exit(0)
pid = os.fork()
if not pid:
    os.setpgid(0, 0)
    os.close(say)
    os.execv(sys.argv[3], sys.argv[3:])
try:
    os.setpgid(pid, pid)
except OSError:
    pass
os.write(say, b"%d\\n" % pid)
ended = os.pidfd_open(pid)
kept = sorted({say, until, ended})
for low, high in zip([2, *kept], [*kept, os.sysconf("SC_OPEN_MAX")]):
    os.closerange(low + 1, high)
both = select.poll()
both.register(until, select.POLLIN)
both.register(ended, select.POLLIN)
if any(descriptor == until for descriptor, _ in both.poll()):  # with POLLHUP as well, when it has been waited for
    os.killpg(pid, signal.SIGCONT)
status = os.waitpid(pid, 0)[1]
try:
    os.write(say, b"%d\\n" % os.waitstatus_to_exitcode(status))
except OSError:
    pass
"""


class Grandchild:
    """A process with the interface of subprocess.Popen, as far as DevProxy needs it. It leads a process group."""

    def __init__(self, command: list[str], until_fd: int, *, pass_fds: list[int], **options: Any) -> None:
        """As Popen(), for a command that begins with a path; `until_fd` is readable when this program has ended.
        OSError."""
        self.returncode: int | None = None
        self._told, write_end = os.pipe()
        try:
            arguments = [str(write_end), str(until_fd), *command]
            with subprocess.Popen(
                [sys.executable, "-S", "-P", "-c", _LAUNCHER, *arguments],
                pass_fds=[*pass_fds, until_fd, write_end], process_group=0, **options,
            ):  # fmt: skip
                pass
        except BaseException:
            os.close(self._told)
            raise
        finally:
            os.close(write_end)
        if (pid := self._line()) is None:
            os.close(self._told)
            raise OSError(errno.ENETDOWN, "the process that starts the proxy has ended")
        self.pid = pid

    def poll(self) -> int | None:
        """Its status, as Popen's; None: it runs."""
        if self.returncode is None and self._has_ended(0):
            self.forget(self._line() or 0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Waits for its end; subprocess.TimeoutExpired."""
        if self.returncode is None and not self._has_ended(timeout):
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
        return self.poll() or 0

    def send_signal(self, number: int) -> None:
        """To the process, if it runs."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def forget(self, status: int = 0) -> None:
        """It has ended, or is no longer this process's."""
        if self.returncode is None:
            self.returncode = status
            os.close(self._told)

    def _line(self) -> int | None:
        """The next number that the keeper tells."""
        text = b""
        while not text.endswith(b"\n"):
            if not (more := os.read(self._told, 1)):
                return None
            text += more
        return int(text)

    def _has_ended(self, timeout_s: float | None) -> bool:
        waiting = select.poll()
        waiting.register(self._told, select.POLLIN)
        return bool(waiting.poll(None if timeout_s is None else timeout_s * 1000))
