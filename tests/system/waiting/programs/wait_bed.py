"""What the scripts of waits (wait_scripts.py) have in common. Each notes what happened, and has a peer, a process of
its own on the kernel; of ours, a TCP socket that connects or listens is offloaded when it is under the interposer."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from beds.stack_modes import put_elsewhere

DEADLINE_S = 10.0
IN, OUT, ET, ONESHOT, HUP, RDHUP = (
    select.EPOLLIN, select.EPOLLOUT, select.EPOLLET, select.EPOLLONESHOT, select.EPOLLHUP, select.EPOLLRDHUP,
)  # fmt: skip
LIBC = ctypes.CDLL(None, use_errno=True)


class Peer:
    """The other end, in a process of its own that does as it is told: `wait_peer.py`."""

    def __init__(self) -> None:
        plain = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("wait_peer.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=plain,
        )

    def ask(self, *words: Any) -> Any:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(json.dumps(words).encode() + b"\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


class Run:
    """What a script notes, and the peer it has."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.notes: list[Any] = []
        self.kept = ExitStack()

    def note(self, label: str, value: Any) -> None:
        self.notes.append([label, value])

    def connected(self) -> tuple[socket.socket, int]:
        """A socket of ours, connected; and the number by which the peer knows its end."""
        s = self.kept.enter_context(socket.socket())
        s.connect(("127.0.0.1", self.peer.ask("port")))
        return s, self.peer.ask("accept")

    def listening(self, host: str = "127.0.0.1") -> socket.socket:
        s = self.kept.enter_context(socket.socket())
        s.bind((host, 0))
        s.listen(8)
        return s

    def say(self, end: int, data: str = "x") -> None:
        self.peer.ask("send", end, data)

    def later(self, end: int, data: str = "x", delay_s: float = 0.03) -> None:
        self.peer.ask("later", end, data, delay_s)

    def behind_a_signal(self, what: str, *arguments: Any) -> None:
        """The peer sends this process SIGALRM when it sleeps, and then sends data, connects or reads."""
        self.peer.ask("behind a signal", os.getpid(), what, *arguments)

    def epoll(self) -> select.epoll:
        return put_elsewhere(self.kept.enter_context(select.epoll()))

    def pipe(self) -> tuple[int, int]:
        r, w = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self.kept.callback(os.close, r)
        self.kept.callback(quiet_close, w)
        return r, w


def quiet_close(fd: int) -> None:
    with suppress(OSError):
        os.close(fd)


def error_of(action: Callable[[], Any]) -> str:
    try:
        action()
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    return "none"


def arrived(fd: Any, wanted: int = IN) -> None:
    """Until it is ready, with a deadline."""
    p = select.poll()
    p.register(fd, wanted)
    assert p.poll(DEADLINE_S * 1000), "nothing came"


def found(events: list[tuple[int, int]], **names: Any) -> list[list[Any]]:
    """Events by the names of their descriptors."""
    by_number = {n if isinstance(n, int) else n.fileno(): name for name, n in names.items()}
    return sorted([by_number.get(fd, "?"), mask] for fd, mask in events)


@contextmanager
def handling_alarms(restart: bool) -> Iterator[list[int]]:
    seen: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda number, _: seen.append(number))
    signal.siginterrupt(signal.SIGALRM, not restart)
    try:
        yield seen
    finally:
        signal.signal(signal.SIGALRM, before)


@contextmanager
def alarm_after(delay_s: float, restart: bool) -> Iterator[list[int]]:
    with handling_alarms(restart) as seen:
        signal.setitimer(signal.ITIMER_REAL, delay_s)
        try:
            yield seen
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
