"""Waits of a program that knows nothing of XTS: `python wait_scripts.py` prints JSON, script name -> what happened.

Run twice, on the kernel's sockets and under the interposer, with equal results. The peer is a process of its own on
the kernel: of this one, every TCP socket that connects or listens is offloaded when it is under the interposer.
"""

from __future__ import annotations

import ctypes
import errno
import faulthandler
import fcntl
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

DEADLINE_S = 10.0
IN, OUT, ET, ONESHOT, HUP, RDHUP = (
    select.EPOLLIN, select.EPOLLOUT, select.EPOLLET, select.EPOLLONESHOT, select.EPOLLHUP, select.EPOLLRDHUP,
)  # fmt: skip
Script = Callable[["Run"], None]
SCRIPTS: dict[str, Script] = {}
LIBC = ctypes.CDLL(None, use_errno=True)


def script(function: Script) -> Script:
    SCRIPTS[function.__name__] = function
    return function


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

    def epoll(self) -> select.epoll:
        return self.kept.enter_context(select.epoll())

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
def alarm_after(delay_s: float, restart: bool) -> Iterator[list[int]]:
    seen: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda number, _: seen.append(number))
    signal.siginterrupt(signal.SIGALRM, not restart)
    signal.setitimer(signal.ITIMER_REAL, delay_s)
    try:
        yield seen
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# --- poll, select ------------------------------------------------------------------------------------


@script
def poll_both_kinds(c: Run) -> None:
    s, end = c.connected()
    r, w = c.pipe()
    p = select.poll()
    p.register(s, IN)
    p.register(r, IN)
    c.note("nothing", p.poll(20))
    os.write(w, b"x")
    c.note("pipe", found(p.poll(), s=s, r=r))
    c.say(end)
    arrived(s)
    c.note("both", found(p.poll(), s=s, r=r))
    os.read(r, 1)
    c.note("socket", found(p.poll(), s=s, r=r))
    s.recv(1)
    c.later(end)
    c.note("socket later", found(p.poll(DEADLINE_S * 1000), s=s, r=r))
    s.recv(1)
    p.modify(s, IN | OUT | RDHUP)
    c.note("writable", found(p.poll(), s=s, r=r))
    c.peer.ask("close", end)
    arrived(s)
    c.note("closed", found(p.poll(), s=s, r=r))
    p.register(999, IN)
    c.note("invalid", found(p.poll(), s=s, r=r))


@script
def poll_many(c: Run) -> None:
    pairs = [c.connected() for _ in range(20)]
    pipes = [c.pipe() for _ in range(30)]
    p = select.poll()
    for s, _ in pairs:
        p.register(s, IN)
    for r, _ in pipes:
        p.register(r, IN)
    for i in (3, 17):
        c.say(pairs[i][1])
        arrived(pairs[i][0])
        os.write(pipes[i][1], b"x")
    names = {f"s{i}": s for i, (s, _) in enumerate(pairs)} | {f"r{i}": r for i, (r, _) in enumerate(pipes)}
    c.note("ready", found(p.poll(), **names))


@script
def select_both_kinds(c: Run) -> None:
    s, end = c.connected()
    r, w = c.pipe()
    names = {s: "s", r: "r", w: "w"}

    def one(readable: Any, writable: Any, exceptional: Any, timeout_s: float | None) -> list[list[str]]:
        return [[names[x] for x in part] for part in select.select(readable, writable, exceptional, timeout_s)]

    c.note("nothing", one([s, r], [], [s], 0.01))
    c.note("writable", one([s, r], [s, w], [s, r], None))
    c.later(end)
    c.note("readable", one([s, r], [], [], DEADLINE_S))
    os.write(w, b"x")
    c.note("both", one([s, r], [s], [], 0))
    closed = os.dup(r)
    os.close(closed)
    c.note("bad", error_of(lambda: select.select([s, closed], [], [], 0)))
    c.note("negative", error_of(lambda: one([s], [], [], 0)))
    s.recv(1)
    os.read(r, 1)
    c.peer.ask("close", end)
    arrived(s)
    c.note("closed", one([s, r], [s], [s], DEADLINE_S))


@script
def select_beyond_fd_set(c: Run) -> None:
    """Sets of 2048 bits: a descriptor above 1024 is found."""
    s, end = c.connected()
    high = fcntl.fcntl(s, fcntl.F_DUPFD_CLOEXEC, 1500)
    c.kept.callback(os.close, high)
    bits = (ctypes.c_ulong * 32)()
    bits[high // 64] |= 1 << high % 64
    zero = (ctypes.c_long * 2)(0, 0)
    c.note("nothing", [LIBC.select(high + 1, bits, None, None, zero), bits[high // 64]])
    bits[high // 64] |= 1 << high % 64
    c.say(end)
    arrived(s)
    limit = (ctypes.c_long * 2)(5, 1_500_000)
    c.note("readable", [LIBC.select(high + 1, bits, None, None, limit), bits[high // 64] == 1 << high % 64])
    c.note("time left", 4 <= limit[0] <= 6)


@script
def listeners(c: Run) -> None:
    server = c.listening()
    p = select.poll()
    p.register(server, IN)
    e = c.epoll()
    e.register(server, IN)
    c.note("nothing", [p.poll(0), e.poll(0), select.select([server], [], [], 0)[0]])
    c.peer.ask("connect", server.getsockname()[1])
    c.note("poll", found(p.poll(DEADLINE_S * 1000), server=server))
    c.note("epoll", found(e.poll(DEADLINE_S), server=server))
    c.note("select", len(select.select([server], [], [], DEADLINE_S)[0]))
    server.accept()[0].close()
    c.note("nothing", [p.poll(0), e.poll(0)])


@script
def connecting(c: Run) -> None:
    """Registered before connect(), as nginx does: undecided, then offloaded."""
    e = c.epoll()
    r, w = c.pipe()
    e.register(r, IN)
    s = c.kept.enter_context(socket.socket())
    s.setblocking(False)
    e.register(s, IN | OUT | RDHUP | ET)
    c.note("connect", s.connect_ex(("127.0.0.1", c.peer.ask("port"))))
    for _ in range(100):
        events = e.poll(DEADLINE_S)
        if found(events, s=s, r=r) == [["s", int(OUT)]]:
            break
    c.note("error", s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
    c.note("connected", found(events, s=s, r=r))
    end = c.peer.ask("accept")
    c.note("edge is gone", e.poll(0))
    c.later(end)
    c.note("readable", found(e.poll(DEADLINE_S), s=s, r=r))
    os.write(w, b"x")
    c.note("pipe", found(e.poll(DEADLINE_S), s=s, r=r))
    c.note("again", error_of(lambda: e.register(s, IN)))
    e.modify(s, IN)
    c.note("level", found(e.poll(), s=s, r=r))
    e.unregister(s)
    c.note("unregistered", [found(e.poll(), s=s, r=r), error_of(lambda: e.unregister(s))])


# --- epoll -------------------------------------------------------------------------------------------


@script
def epoll_modes(c: Run) -> None:
    s, end = c.connected()
    r, w = c.pipe()
    e = c.epoll()
    for mode in (0, ET, ONESHOT, ET | ONESHOT):
        e.register(s, IN | mode)
        e.register(r, IN | mode)
        c.say(end)
        arrived(s)
        os.write(w, b"x")
        c.note("first", [mode, found(e.poll(DEADLINE_S), s=s, r=r)])
        c.note("second", found(e.poll(0), s=s, r=r))
        c.say(end)
        time.sleep(0.05)
        os.write(w, b"y")
        c.note("more", found(e.poll(0), s=s, r=r))
        e.modify(s, IN | mode)
        e.modify(r, IN | mode)
        c.note("modified", found(e.poll(0), s=s, r=r))
        s.recv(10)
        os.read(r, 10)
        c.note("read", found(e.poll(0), s=s, r=r))
        e.unregister(s)
        e.unregister(r)


@script
def epoll_errors(c: Run) -> None:
    s, _ = c.connected()
    e, r = c.epoll(), c.pipe()[0]
    c.note("modify", error_of(lambda: e.modify(s, IN)))
    c.note("unregister", error_of(lambda: e.unregister(s)))
    e.register(s, IN)
    c.note("again", error_of(lambda: e.register(s, IN)))
    c.note("not a set", error_of(lambda: select.epoll.fromfd(os.dup(r)).register(s, IN)))
    c.note("socket as a set", error_of(lambda: select.epoll.fromfd(os.dup(s.fileno())).register(s, IN)))
    c.note("in itself", error_of(lambda: e.register(e, IN)))
    c.note("closed", error_of(lambda: e.register(999, IN)))
    event = (ctypes.c_uint8 * 12)(1)
    for arguments in (
        (e.fileno(), 9, s.fileno(), event),
        (999, 1, s.fileno(), event),
        (e.fileno(), 1, s.fileno(), None),
    ):
        r = LIBC.epoll_ctl(*arguments)
        c.note("epoll_ctl", [r, errno.errorcode[ctypes.get_errno()]])
    for most in (0, -1):
        r = LIBC.epoll_wait(e.fileno(), event, most, 0)
        c.note("epoll_wait", [r, errno.errorcode[ctypes.get_errno()]])
    exclusive = select.EPOLLEXCLUSIVE
    other, _ = c.connected()
    c.note("exclusive", error_of(lambda: e.register(other, IN | exclusive)))
    c.note("exclusive modify", error_of(lambda: e.modify(other, IN)))
    c.note("exclusive one-shot", error_of(lambda: c.epoll().register(other, IN | ONESHOT | exclusive)))
    c.note("closed set", error_of(lambda: LIBC.epoll_wait(999, event, 1, 0)))


@script
def epoll_several_sets(c: Run) -> None:
    s, end = c.connected()
    a, b = c.epoll(), c.epoll()
    a.register(s, IN)
    b.register(s, IN | ET)
    c.later(end)
    c.note("a", found(a.poll(DEADLINE_S), s=s))
    c.note("b", found(b.poll(DEADLINE_S), s=s))
    c.note("again", [found(a.poll(0), s=s), found(b.poll(0), s=s)])
    copy = os.dup(a.fileno())
    c.note("dup of a set", found(select.epoll.fromfd(copy).poll(0), s=s))


@script
def epoll_dup(c: Run) -> None:
    """The kernel registers a file with a descriptor, and forgets it when the file's last one closes."""
    s, end = c.connected()
    e = c.epoll()
    e.register(s, IN)
    copy = os.dup(s.fileno())
    e.register(copy, IN)
    c.say(end)
    arrived(s)
    c.note("twice", len(e.poll(0)))
    number = s.fileno()
    s.close()
    c.note("one is closed", len(e.poll(0)))
    c.note("cannot be removed", error_of(lambda: e.unregister(number)))
    os.close(copy)
    c.note("both are closed", e.poll(0))
    other, other_end = c.connected()
    c.note("same number", other.fileno() in (number, copy))
    e.register(other, IN)
    c.say(other_end)
    c.note("of the new one", found(e.poll(DEADLINE_S), other=other))


@script
def epoll_close(c: Run) -> None:
    e = c.epoll()
    pairs = [c.connected() for _ in range(3)]
    for s, end in pairs:
        e.register(s, IN)
        c.say(end)
        arrived(s)
    pairs[1][0].close()
    c.note("left", len(e.poll(0)))
    os.dup2(pairs[0][0].fileno(), pairs[2][0].fileno())
    c.note("replaced", found(e.poll(0), s=pairs[0][0]))


@script
def epoll_nested(c: Run) -> None:
    s, end = c.connected()
    r, w = c.pipe()
    inner, outer, p = c.epoll(), c.epoll(), select.poll()
    outer.register(inner, IN)
    inner.register(r, IN)
    inner.register(s, IN)
    p.register(inner, IN)
    c.note("nothing", [outer.poll(0), p.poll(0), select.select([inner], [], [], 0)[0]])
    c.later(end)
    c.note("socket", found(outer.poll(DEADLINE_S), inner=inner))
    c.note("poll", found(p.poll(0), inner=inner))
    c.note("select", len(select.select([inner, outer], [], [], 0)[0]))
    os.write(w, b"x")
    c.note("both once", found(outer.poll(0), inner=inner))
    c.note("inner", found(inner.poll(0), s=s, r=r))
    s.recv(1)
    c.note("pipe", found(outer.poll(0), inner=inner))
    os.read(r, 1)
    c.note("nothing", [outer.poll(0), p.poll(0)])
    outermost = c.epoll()
    outermost.register(outer, IN | ET)
    c.later(end)
    c.note("outermost", found(outermost.poll(DEADLINE_S), outer=outer))
    s.recv(1)
    c.later(end)
    c.note("poll later", found(p.poll(DEADLINE_S * 1000), inner=inner))
    c.note("loop", error_of(lambda: inner.register(outermost, IN)))
    outer.unregister(inner)
    c.note("removed", outer.poll(0))
    outer.register(inner, IN)
    c.note("back", found(outer.poll(0), inner=inner))
    inner.close()
    c.note("closed", outer.poll(0))


@script
def epoll_kinds_of_descriptors(c: Run) -> None:
    s, end = c.connected()
    e = c.epoll()
    r, w = c.pipe()
    event = LIBC.eventfd(0, os.O_NONBLOCK)
    timer = LIBC.timerfd_create(1, os.O_NONBLOCK)
    mask = (ctypes.c_ulong * 16)(1 << (signal.SIGUSR1 - 1))
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    signals = LIBC.signalfd(-1, mask, os.O_NONBLOCK)
    unix, unix_end = socket.socketpair()
    for fd in (event, timer, signals):
        c.kept.callback(os.close, fd)
    names = {"s": s, "r": r, "event": event, "timer": timer, "signals": signals, "unix": unix}
    for fd in names.values():
        e.register(fd, IN)
    c.note("file", error_of(lambda: e.register(os.open(__file__, os.O_RDONLY), IN)))
    c.note("nothing", e.poll(0.01))
    LIBC.timerfd_settime(timer, 0, (ctypes.c_long * 4)(0, 0, 0, 1_000_000), None)
    c.note("timer", found(e.poll(DEADLINE_S), **names))
    os.read(timer, 8)
    os.write(event, (1).to_bytes(8, "little"))
    os.kill(os.getpid(), signal.SIGUSR1)
    os.write(w, b"x")
    unix_end.send(b"x")
    c.say(end)
    arrived(s)
    c.note("all", found(e.poll(DEADLINE_S), **names))
    c.note("few", len(e.poll(0, 2)))
    seen: set[int] = set()
    for _ in range(40):
        seen |= {fd for fd, _ in e.poll(0, 2)}
    c.note("in turns", len(seen))
    os.read(signals, 128)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1})
    unix.close()
    unix_end.close()


@script
def first_socket_while_a_thread_waits(c: Run) -> None:
    """The set has no socket of ours when a thread begins to wait in it."""
    for timeout_s in (None, DEADLINE_S):
        e = c.epoll()
        r, _ = c.pipe()
        e.register(r, IN)
        got: list[Any] = []
        thread = threading.Thread(target=lambda e=e, got=got, t=timeout_s: got.extend(e.poll(t)))
        thread.start()
        time.sleep(0.05)
        s, end = c.connected()
        e.register(s, IN)
        time.sleep(0.02)
        c.note("still waits", thread.is_alive())
        c.say(end)
        thread.join(DEADLINE_S)
        c.note("woken", found(got, s=s, r=r))
        c.note("no bell", found(e.poll(0), s=s, r=r))
        s.recv(1)
        p = select.poll()
        p.register(e, IN)
        c.note("nothing", [e.poll(0), p.poll(0)])


@script
def first_socket_while_a_thread_polls_the_set(c: Run) -> None:
    """The same, where it waits for the set's own descriptor; and for a set with that set in it."""
    for how in ("poll", "select", "outer", "time"):
        e, outer = c.epoll(), c.epoll()
        outer.register(e, IN)
        s, end = c.connected()
        got: list[Any] = []

        def wait(how: str = how, e: Any = e, outer: Any = outer, got: list[Any] = got) -> None:
            if how == "select":
                got.append(len(select.select([e], [], [], DEADLINE_S)[0]))
            elif how == "outer":
                got.extend(events for _, events in outer.poll(DEADLINE_S))
            else:
                p = select.poll()
                p.register(e, IN)
                got.extend(events for _, events in p.poll(200 if how == "time" else DEADLINE_S * 1000))

        begun = time.monotonic()
        thread = threading.Thread(target=wait)
        thread.start()
        thread.join(0.05)
        e.register(s, IN)
        thread.join(0.05)
        c.note("still waits", thread.is_alive())
        if how != "time":
            c.say(end)
        thread.join(DEADLINE_S)
        c.note(how, [got, time.monotonic() - begun < 1.0])
        c.note("the set", found(e.poll(0), s=s))


@script
def a_wait_ends_in_time_though_the_set_got_its_first_socket(c: Run) -> None:
    e = c.epoll()
    s, _ = c.connected()
    took: list[float] = []

    def wait() -> None:
        begun = time.monotonic()
        assert e.poll(1.0) == []
        took.append(time.monotonic() - begun)

    thread = threading.Thread(target=wait)
    thread.start()
    thread.join(0.8)
    e.register(s, IN)
    thread.join(DEADLINE_S)
    c.note("a second, not two", 0.99 < took[0] < 1.5)


@script
def threads_wait_in_one_set(c: Run) -> None:
    """Every byte is reported to somebody, and a one-shot event to one only."""
    e = c.epoll()
    pairs = {}
    for _ in range(8):
        s, end = c.connected()
        s.setblocking(False)
        pairs[s.fileno()] = (s, end)
        e.register(s, IN | ONESHOT)
    got: dict[int, int] = dict.fromkeys(pairs, 0)
    stop = threading.Event()
    both = []

    def work() -> None:
        while not stop.is_set():
            for fd, _ in e.poll(0.05):
                s = pairs[fd][0]
                try:
                    got[fd] += len(s.recv(100))
                except BlockingIOError:
                    both.append(fd)
                e.modify(s, IN | ONESHOT)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(40):
        for _, end in pairs.values():
            c.say(end)
    until = time.monotonic() + DEADLINE_S
    while sum(got.values()) < 320 and time.monotonic() < until:
        time.sleep(0.005)
    stop.set()
    for thread in threads:
        thread.join(DEADLINE_S)
    c.note("bytes", sorted(got.values()))
    c.note("reported to two", both)


@script
def exclusive_and_shared_wakeups(c: Run) -> None:
    """A level-triggered event ends the wait of a thread in each of several sets."""
    s, end = c.connected()
    sets = [c.epoll() for _ in range(3)]
    for e in sets:
        e.register(s, IN)
    got: list[int] = []
    threads = [threading.Thread(target=lambda e=e: got.append(len(e.poll(DEADLINE_S)))) for e in sets]
    for thread in threads:
        thread.start()
    time.sleep(0.03)
    c.say(end)
    for thread in threads:
        thread.join(DEADLINE_S)
    c.note("each", got)


@script
def local_listener(c: Run) -> None:
    """On the wildcard address, and shared: connections come to either half of it, and are reported once."""
    server = c.kept.enter_context(socket.socket())
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    server.bind(("0.0.0.0", 0))
    e, p = c.epoll(), select.poll()
    e.register(server, IN)
    server.listen(64)
    port = server.getsockname()[1]
    e.register(c.pipe()[0], IN)
    p.register(server, IN)
    for mode in (0, ET, ONESHOT):
        if mode:  # the first is as it was before listen()
            e.modify(server, IN | mode)
        for _ in range(12):
            c.peer.ask("connect", port)
            c.note("one", [mode, found(e.poll(DEADLINE_S), server=server)])
            c.note("poll", found(p.poll(DEADLINE_S * 1000), server=server))
            c.note("again", found(e.poll(0), server=server))
            server.accept()[0].close()
            c.note("accepted", [e.poll(0), p.poll(0)])
            if mode == ONESHOT:
                e.modify(server, IN | mode)
    server.close()
    c.note("closed", e.poll(0))


@script
def epoll_over_fork(c: Run) -> None:
    """A child goes on with the set it was born with, and its parent is not disturbed."""
    s, end = c.connected()
    e = c.epoll()
    e.register(s, IN)
    e.register(c.pipe()[0], IN)
    c.note("before", e.poll(0))
    told, tell = os.pipe()
    child = os.fork()
    if not child:
        try:
            mine, my_end = c.connected()
            e.register(mine, IN)
            c.say(my_end)
            os.write(tell, json.dumps(found(e.poll(DEADLINE_S), s=s, mine=mine)).encode())
            e.unregister(mine)
        finally:
            os._exit(0)
    os.close(tell)
    c.note("child", os.read(told, 100).decode())
    c.note("exit", os.waitpid(child, 0)[1])
    os.close(told)
    c.later(end)
    c.note("parent", found(e.poll(DEADLINE_S), s=s))


# --- signals, time -----------------------------------------------------------------------------------


class Timespec(ctypes.Structure):
    _fields_ = (("sec", ctypes.c_long), ("nsec", ctypes.c_long))


@script
def signals_interrupt(c: Run) -> None:
    s, _ = c.connected()
    r, _ = c.pipe()
    e = c.epoll()
    e.register(s, IN)
    e.register(r, IN)
    fds = (ctypes.c_uint64 * 2)(s.fileno() | 1 << 32, r | 1 << 32)
    bits = (ctypes.c_ulong * 16)()
    event = (ctypes.c_uint8 * 24)()
    empty = (ctypes.c_ulong * 16)()
    full = (ctypes.c_ulong * 16)(1 << (signal.SIGALRM - 1))
    limit = Timespec(2, 0)

    def with_bits(call: Callable[[], int]) -> int:
        bits[s.fileno() // 64] |= 1 << s.fileno() % 64
        return call()

    waits: dict[str, Callable[[Any], int]] = {
        "poll": lambda _: LIBC.poll(fds, 2, 2000),
        "ppoll": lambda mask: LIBC.ppoll(fds, 2, ctypes.byref(limit), mask),
        "select": lambda _: with_bits(lambda: LIBC.select(s.fileno() + 1, bits, None, None, None)),
        "pselect": lambda mask: with_bits(
            lambda: LIBC.pselect(s.fileno() + 1, bits, None, None, ctypes.byref(limit), mask)
        ),
        "epoll_wait": lambda _: LIBC.epoll_wait(e.fileno(), event, 2, -1),
        "epoll_pwait": lambda mask: LIBC.epoll_pwait(e.fileno(), event, 2, 2000, mask),
        "epoll_pwait2": lambda mask: LIBC.epoll_pwait2(e.fileno(), event, 2, ctypes.byref(limit), mask),
    }
    for name, wait in waits.items():
        for restart in (False, True):
            with alarm_after(0.03, restart) as seen:
                c.note(name, [wait(None), errno.errorcode[ctypes.get_errno()], len(seen)])
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
    for name in ("ppoll", "pselect", "epoll_pwait", "epoll_pwait2"):
        with alarm_after(0.03, True) as seen:
            c.note(name + " unblocks", [waits[name](empty), errno.errorcode[ctypes.get_errno()], len(seen)])
        limit.sec, limit.nsec = 0, 50_000_000
        if name != "epoll_pwait":
            with alarm_after(0.01, True) as seen:
                c.note(name + " blocks", [waits[name](full), len(seen)])
                signal.sigtimedwait({signal.SIGALRM}, 1)
        limit.sec, limit.nsec = 2, 0
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})


@script
def timeouts(c: Run) -> None:
    s, _ = c.connected()
    e = c.epoll()
    e.register(s, IN)
    fds = (ctypes.c_uint64 * 1)(s.fileno() | 1 << 32)
    event = (ctypes.c_uint8 * 12)()
    for sec, nsec in ((0, 300_000), (0, 20_000_000), (-1, 0), (0, 1_000_000_000), (0, -1), (0, 0)):
        limit = Timespec(sec, nsec)
        reference = ctypes.byref(limit)
        waits: dict[str, Callable[[], int]] = {
            "ppoll": partial(LIBC.ppoll, fds, 1, reference, None),
            "epoll_pwait2": partial(LIBC.epoll_pwait2, e.fileno(), event, 1, reference, None),
        }
        for name, wait in waits.items():
            ctypes.set_errno(0)
            begin = time.monotonic()
            r = wait()
            took = time.monotonic() - begin
            c.note(name, [sec, nsec, r, ctypes.get_errno(), took >= sec + nsec / 1e9 or r < 0, took < 1])


# --- by number ---------------------------------------------------------------------------------------


@script
def system_calls_by_number(c: Run) -> None:
    if os.uname().machine != "x86_64":
        c.note("numbers", "of another machine")
        return
    s, end = c.connected()
    e = LIBC.syscall(291, 0)
    c.kept.callback(os.close, e)
    event = (ctypes.c_uint8 * 12)(1)
    c.note("epoll_ctl", LIBC.syscall(233, e, 1, s.fileno(), event))
    c.note("nothing", LIBC.syscall(232, e, event, 1, 0))
    c.later(end, "hello")
    c.note("epoll_wait", LIBC.syscall(232, e, event, 1, 5000))
    buffer = ctypes.create_string_buffer(10)
    c.note("read", [LIBC.syscall(0, s.fileno(), buffer, 10), buffer.raw[:5].decode()])
    c.note("write", LIBC.syscall(1, s.fileno(), b"abc", 3))
    c.note("peer", c.peer.ask("recv", end, 3))
    copy = LIBC.syscall(32, s.fileno())
    c.note("sendto", LIBC.syscall(44, copy, b"def", 3, 0, None, 0))
    c.note("peer", c.peer.ask("recv", end, 3))
    c.note("close", [LIBC.syscall(3, copy), LIBC.syscall(3, copy), ctypes.get_errno()])
    new = LIBC.syscall(41, socket.AF_INET, socket.SOCK_STREAM, 0)
    where = (
        socket.AF_INET.to_bytes(2, "little") + c.peer.ask("port").to_bytes(2, "big") + bytes([127, 0, 0, 1]) + bytes(8)
    )
    c.note("connect", LIBC.syscall(42, new, where, 16))
    c.note("write", LIBC.syscall(1, new, b"xyz", 3))
    c.note("peer", c.peer.ask("recv", c.peer.ask("accept"), 3))
    os.close(new)


def main() -> None:
    faulthandler.dump_traceback_later(80, exit=True)
    wanted = sys.argv[1:] or list(SCRIPTS)
    traces: dict[str, Any] = {}
    peer = Peer()
    for name in wanted:
        run = Run(peer)
        try:
            with run.kept:
                SCRIPTS[name](run)
        except Exception as error:
            run.note("failed", f"{type(error).__name__}: {error} at lines {lines_of(error)}")
        traces[name] = run.notes
    peer.process.kill()
    peer.process.wait()
    json.dump(traces, sys.stdout)


def lines_of(error: BaseException) -> list[int]:
    lines: list[int] = []
    at = error.__traceback__
    while at:
        lines.append(at.tb_lineno)
        at = at.tb_next
    return lines


if __name__ == "__main__":
    main()
