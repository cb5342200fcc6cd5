"""Waits by epoll of several threads, and of a child."""

from __future__ import annotations

import json
import os
import select
import threading
import time
from typing import Any

from beds.scripts import script
from system.waiting.programs.wait_bed import (
    DEADLINE_S,
    IN,
    ONESHOT,
    Run,
    found,
)


@script("waits")
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


@script("waits")
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


@script("waits")
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


@script("waits")
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


@script("waits")
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


@script("waits")
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
