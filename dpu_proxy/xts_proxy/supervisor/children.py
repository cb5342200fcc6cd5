"""The proxy's other processes: forked from the supervisor before it has threads, each with its own privileges.

They end with the supervisor, however it ends: the kernel kills them, and their connections to it hang up. Those that
another proxy may go on with have the latter alone. The supervisor sees by a descriptor that one of them has ended.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from xts_proxy.supervisor import quiet_start, sandbox

_STDERR = 2
#: Exit status of a process that made a forbidden system call (native/common/allowed_syscalls.c).
_FORBIDDEN_CALL = 159
#: The process that forked this one, if fork() below did.
_parent = 0


@dataclass(slots=True)
class Child:
    """A process that we have forked. close() kills it if it still runs."""

    name: str
    pid: int
    pidfd: int
    status: int | None = None

    def fileno(self) -> int:
        """Readable when it has ended."""
        return self.pidfd

    def ended(self) -> str | None:
        """How it ended, for people; None: it still runs."""
        if self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid == 0:
                return None
            self.status = os.waitstatus_to_exitcode(status)
        if self.status == _FORBIDDEN_CALL:
            return "it made a system call that it may not"
        if self.status < 0:
            return f"killed by {signal.Signals(-self.status).name}"
        return f"exit status {self.status}"

    def ends_within(self, seconds: float) -> bool:
        """Waits for its end."""
        return bool(select.select([self.pidfd], [], [], seconds)[0]) and self.ended() is not None

    def kill(self) -> None:
        """Harmless when it has ended."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)

    def close(self) -> None:
        """Harmless when repeated."""
        if self.pidfd < 0:
            return
        if self.status is None:
            self.kill()
            with suppress(ChildProcessError):
                self.status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        os.close(self.pidfd)
        self.pidfd = -1

    def leave(self) -> None:
        """It is another proxy's from now on, and outlives us. It must not be bound_to_parent()."""
        os.close(self.pidfd)
        self.pidfd = -1


class Inherited(Child):
    """A process of the proxy before this one, which is no child of ours: nobody tells us how it ended."""

    @classmethod
    def of(cls, pidfd: int) -> Inherited:
        """By its descriptor, which is ours from now on."""
        lines = Path(f"/proc/self/fdinfo/{pidfd}").read_text(encoding="ascii").splitlines()
        pid = next((int(line.split()[1]) for line in lines if line.startswith("Pid:")), 0)
        name = "a process of the proxy before"
        with suppress(OSError):
            name = Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
        return cls(name, pid, pidfd)

    def ended(self) -> str | None:
        """As that of Child."""
        return "it has ended" if select.select([self.pidfd], [], [], 0)[0] else None

    def close(self) -> None:
        """As that of Child."""
        if self.pidfd < 0:
            return
        self.kill()
        select.select([self.pidfd], [], [])
        os.close(self.pidfd)
        self.pidfd = -1


def fork(name: str, keep: Iterable[int], run: Callable[[], None], *, starts_quietly: bool = False) -> Child:
    """Runs `run` in a process that has only stderr and `keep` of our descriptors. It calls `bound_to_parent()` when it
    has its final user, or ends when its connection to us does. When it returns, the process ends. `starts_quietly`: it
    says itself when its start is over (quiet_start.py), if ours is not. OSError: there is none."""
    global _parent  # noqa: PLW0603 - the new process inherits it
    kept = {_STDERR, *keep}
    gc.collect()
    sys.stderr.flush()
    _parent = os.getpid()
    pid = os.fork()
    if pid:
        return Child(name, pid, _pidfd(pid))
    status = 1
    try:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)  # only the supervisor acts on them
        sandbox.set_name(name)
        if starts_quietly:
            quiet_start.go_on()
        else:
            quiet_start.end()
        _close_others(kept)
        run()
        status = 0
    except Exception as error:  # no traceback, because it would read files, which may be forbidden by now
        os.write(_STDERR, f"{name}: {type(error).__name__}: {error}\n".encode())
    finally:
        os._exit(status)


def adopt(name: str, pid: int) -> Child:
    """A process that one of ours has made, with us as its parent. OSError ECHILD: it is none of ours."""
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    return Child(name, pid, _pidfd(pid))


def _pidfd(pid: int) -> int:
    """Of a child, which does not run on when there is none."""
    try:
        return os.pidfd_open(pid)
    except OSError:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise


def bound_to_parent() -> None:
    """From now on this process is killed when the one that forked it has ended."""
    sandbox.die_with_parent()
    if os.getppid() != _parent:  # it had ended before (it may also be process 1, of a container)
        os._exit(1)


def _close_others(kept: set[int]) -> None:
    for entry in list(Path("/proc/self/fd").iterdir()):
        if int(entry.name) not in kept:
            with suppress(OSError):  # the descriptor of the listing itself
                os.close(int(entry.name))
