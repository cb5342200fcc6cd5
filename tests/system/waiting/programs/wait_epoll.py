"""Waits by epoll: modes, errors, several sets and nested ones."""

from __future__ import annotations

import ctypes
import errno
import os
import select
import signal
import socket
import time

from beds.scripts import script
from system.waiting.programs.wait_bed import (
    DEADLINE_S,
    ET,
    IN,
    LIBC,
    ONESHOT,
    Run,
    arrived,
    error_of,
    found,
)


@script("waits")
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


@script("waits")
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


@script("waits")
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


@script("waits")
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


@script("waits")
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


@script("waits")
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


@script("waits")
def epoll_nested_edges(c: Run) -> None:
    """What arrives is an edge for an outer set, also while the inner one is ready; and there is no other."""
    for mode in (IN, IN | ET):
        (s, end), (other, other_end) = c.connected(), c.connected()
        inner, outer = c.epoll(), c.epoll()
        outer.register(inner, IN | ET)
        inner.register(s, mode)
        inner.register(other, mode)
        c.note("nothing", outer.poll(0))
        for each in (end, end, other_end, end):
            c.later(each)
            c.note("edge", found(outer.poll(DEADLINE_S), inner=inner))
            c.note("no other", outer.poll(0.02))
        c.note("inner", found(inner.poll(0), s=s, other=other))
        c.note("collected", outer.poll(0.02))
        c.later(other_end)
        c.note("edge", found(outer.poll(DEADLINE_S), inner=inner))
        s.recv(10)
        other.recv(10)
        c.note("read", [inner.poll(0), outer.poll(0.02)])
        c.later(end)
        c.note("edge", found(outer.poll(DEADLINE_S), inner=inner))
        outer.modify(inner, IN | ET)
        c.note("armed again", found(outer.poll(0), inner=inner))
        c.note("no other", outer.poll(0.02))


@script("waits")
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


@script("waits")
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
