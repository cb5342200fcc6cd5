"""The process that starts the agent's other processes, and starts each again when it has ended.

Theory of operation. The openers and the keepers of relays and metrics servers begin with privileges that the agent's
first process has given up, and without the key that it has read. So they are children of this process, which is forked
first of all, and can be started again at any time. It keeps what they need for that, and is given nothing to do: it
forks, waits, and reads from nobody. The agent only hangs up.

Each child has a connection to the agent. For each life of a child this process makes a new pair, because half a message
may be left on the old one, and sends the agent its end, with the number of the child's role. A child that has ended is
started again at once. One that has not lived for AGAIN_S waits for that long after its start, and for twice as long
each time that this happens again, up to AGAIN_MAX_S.

When the agent hangs up, in order or not, nothing is started any more; this process ends when its last child has. When
this process ends first, the agent ends with an error, and whoever started the agent starts another.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import select
import signal
import socket
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from xts_messages.services import privilege

from xts_agent import child

log = logging.getLogger("xts-agent")

AGAIN_S, AGAIN_MAX_S = 1.0, 16.0
#: How long the first start of all children may take, together.
FIRST_S = 20.0
_ROLE = struct.Struct("=I")


@dataclass(frozen=True, slots=True)
class Role:
    """What a child does."""

    name: str  # of the process, at most 15 bytes
    main: Callable[[socket.socket], int]  # runs in the child, with its end of the connection; returns its exit status
    keep: tuple[int, ...] = ()  # capabilities that it needs


class Starter:
    """The agent's end. A context manager; at its end all children have ended."""

    def __init__(self, roles: Sequence[Role]) -> None:
        """Forks the process; to be called before there are threads and secrets."""
        self._count = len(roles)
        self._names = [role.name for role in roles]
        self._connection, self._process = child.fork("xts-starter", functools.partial(_main, roles))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def fileno(self) -> int:
        """Readable when `received()` has something to give."""
        return self._connection.fileno()

    def first(self) -> list[socket.socket]:
        """The connections to all children, in the order of their roles. Blocks until they are started."""
        found: dict[int, socket.socket] = {}
        deadline = time.monotonic() + FIRST_S
        poll = select.poll()
        poll.register(self._connection, select.POLLIN)
        while len(found) < self._count:
            if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
                raise TimeoutError(110, f"the agent's processes did not start within {FIRST_S:g} s")
            for number, connection in self.received():
                if number in found:
                    found[number].close()
                found[number] = connection
        return [found[number] for number in range(self._count)]

    def received(self) -> Iterator[tuple[int, socket.socket]]:
        """Children that were started: the numbers of their roles, and the connections to them, which the caller owns.
        ConnectionResetError: the starter has ended."""
        while True:
            try:
                data, fds = child.receive(self._connection, _ROLE.size, 1)
            except BlockingIOError:
                return
            except child.LostError as error:  # without its connection the child ends, and another one is started
                log.error("%s: %s; it is started again", self._names[_ROLE.unpack(error.data)[0]], error.strerror)
                continue
            if len(data) != _ROLE.size or len(fds) != 1:
                raise ConnectionResetError("the process that starts the agent's other processes has ended")
            yield _ROLE.unpack(data)[0], socket.socket(fileno=fds[0])

    def stop(self) -> None:
        """From now on nothing is started again. Harmless when repeated."""
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Waits until all children have ended: those that have a connection end with it. Harmless when repeated."""
        if self._connection.fileno() < 0:
            return
        self.stop()
        self._connection.close()
        os.waitpid(self._process, 0)


# --- in the process itself -----------------------------------------------------------------------------


@dataclass(slots=True)
class _Life:
    """The present child of a role."""

    role: Role
    pid: int = 0
    pidfd: int = -1  # -1: there is none
    started_at: float = 0.0  # by time.monotonic()
    due_at: float = 0.0  # when the next one may be started
    again_s: float = field(
        default_factory=lambda: AGAIN_S
    )  # how long to wait after the start of one that lived for less than AGAIN_S

    def wait(self) -> None:
        """The last one has failed at once."""
        self.due_at = self.started_at + self.again_s
        self.again_s = min(2 * self.again_s, AGAIN_MAX_S)


def _main(roles: Sequence[Role], agent: socket.socket) -> int:
    # what children need, and what they need to give it up: to change their user, and their bounding set
    needed = {privilege.SETUID, privilege.SETGID, privilege.SETPCAP, privilege.DAC_OVERRIDE}
    privilege.confine(*needed.union(*(role.keep for role in roles)))
    lives = [_Life(role) for role in roles]
    events = select.poll()
    events.register(agent, select.POLLIN)
    stopping = False
    while not stopping or any(life.pidfd >= 0 for life in lives):
        due = [life for life in lives if life.pidfd < 0] if not stopping else []
        for life in due:
            if life.due_at <= time.monotonic():
                stopping |= not _start(life, lives.index(life), agent, events)
        waits = [life.due_at - time.monotonic() for life in lives if life.pidfd < 0]
        ready = {fd for fd, _ in events.poll(max(0.0, min(waits)) * 1000 if waits and not stopping else None)}
        if agent.fileno() in ready and not stopping:
            events.unregister(agent)
            stopping = True
        for life in lives:
            if life.pidfd in ready:
                _note_end(life, events, quiet=stopping)
    return 0


def _start(life: _Life, number: int, agent: socket.socket, events: select.poll) -> bool:
    """Starts a child. False: the agent has ended."""
    life.started_at = time.monotonic()
    try:
        connection, life.pid = child.fork(life.role.name, life.role.main)
    except OSError as error:
        log.error("%s cannot be started: %s; trying again", life.role.name, error.strerror)
        life.wait()
        return True
    with connection:
        try:
            life.pidfd = os.pidfd_open(life.pid)
        except OSError as error:
            log.error("%s cannot be watched: %s; trying again", life.role.name, error.strerror)
            os.kill(life.pid, signal.SIGKILL)
            os.waitpid(life.pid, 0)
            life.wait()
            return True
        events.register(life.pidfd, select.POLLIN)
        try:
            child.send(agent, _ROLE.pack(number), (connection.fileno(),))
        except ConnectionError:
            return False
        except BlockingIOError:  # the agent is stopped; without the connection the child ends, and another is started
            pass
    return True


def _note_end(life: _Life, events: select.poll, *, quiet: bool) -> None:
    events.unregister(life.pidfd)
    os.close(life.pidfd)
    life.pidfd = -1
    status = os.waitstatus_to_exitcode(os.waitpid(life.pid, 0)[1])
    could_not_begin = time.monotonic() < life.started_at + AGAIN_S
    if could_not_begin:
        life.wait()
    else:
        life.again_s = AGAIN_S
    # 0: the agent has ended it. More than 0: it has told why itself, if it could not begin.
    if not quiet and (status < 0 or (status > 0 and not could_not_begin)):
        how = f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
        log.error("%s (pid %d) has ended (%s); it is started again", life.role.name, life.pid, how)
