"""Waits by poll and select."""

from __future__ import annotations

import ctypes
import fcntl
import os
import select
import socket
from typing import Any

from beds.scripts import script
from system.waiting.programs.wait_bed import (
    DEADLINE_S,
    ET,
    HUP,
    IN,
    LIBC,
    OUT,
    RDHUP,
    Run,
    arrived,
    error_of,
    found,
)


@script("waits")
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


@script("waits")
def a_reset_right_behind_the_end(c: Run) -> None:
    """By each way of waiting; of edges, all that came until the socket has hung up."""
    for data in ("", "x"):
        s, end = c.connected()
        levels, edges, poller = c.epoll(), c.epoll(), select.poll()
        for way, mask in ((levels, 0), (edges, ET)):
            way.register(s, IN | OUT | RDHUP | mask)
        poller.register(s, IN | OUT | RDHUP)
        if data:
            c.say(end, data)
        c.peer.ask("end and reset", end)
        seen = 0
        while not seen & HUP and (came := edges.poll(DEADLINE_S)):
            seen |= came[0][1]
        c.note("edges", seen)
        c.note("levels", found(levels.poll(DEADLINE_S), s=s))
        c.note("poll", found(poller.poll(DEADLINE_S * 1000), s=s))
        c.note("select", [len(ready) for ready in select.select([s], [s], [s], DEADLINE_S)])
        c.note("data", s.recv(10).decode())
        c.note("send", error_of(lambda s=s: s.send(b"x")))  # type: ignore[misc]
        c.note("error", s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
        c.note("after", found(poller.poll(DEADLINE_S * 1000), s=s))


@script("waits")
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


@script("waits")
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


@script("waits")
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


@script("waits")
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


@script("waits")
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
