"""Many connections become readable, end or fail while the program makes no call; then it asks, and does not wait.

`readable_at_once.py MODULE COUNT HOST FD HERE`: MODULE is `socket`, on the kernel or under the interposer, or
`xts_socket`; FD leads to the peers, which are outside, at HOST (`many_peer.py`), and find our servers at HERE.
Every way of asking must find all of them, and each call its bytes."""

from __future__ import annotations

import array
import errno
import fcntl
import importlib
import json
import resource
import select
import socket as kernel
import sys
import termios
import time
from collections.abc import Callable
from typing import Any

#: What counts as being readable "since 10 ms": a busy machine may let the proxy wait as long as that for a processor.
SETTLED_S = 0.1
#: How often, in a whole program, that may not have been enough. A call that finds only some of what is in the queue
#: does so each time that it is tried.
LATE_MAX = 2
SELECT_MAX = 900
IN, OUT, RDHUP, HUP, ERR = select.EPOLLIN, select.EPOLLOUT, select.EPOLLRDHUP, select.EPOLLHUP, select.EPOLLERR


class Way:
    """To the peers. It is Python's own, so that no call of it looks at the queue: under the interposer a Unix socket is
    the kernel's."""

    def __init__(self, fd: int) -> None:
        self.socket = kernel.socket(fileno=fd)

    def ask(self, *words: Any) -> Any:
        self.socket.sendall(json.dumps(words).encode())
        return json.loads(self.socket.recv(4096))


def came(of: Any, bytes_max: int, flags: int = 0) -> bytes | None:
    """None: nothing has."""
    try:
        return bytes(of.recv(bytes_max, flags))
    except BlockingIOError:
        return None


class Asked:
    """COUNT connections of ours, and what the program may ask about them."""

    def __init__(self, module: Any, count: int, host: str, way: Way) -> None:
        self.module, self.way, self.host, self.late = module, way, host, 0
        self.ours: list[Any] = []
        port = way.ask("port")
        for _ in range(count):
            self.ours.append(module.create_connection((host, port)))
            way.ask("accept")
            self.ours[-1].setblocking(False)
        self.epoll = getattr(module, "epoll", select.epoll)()
        for s in self.ours:
            self.epoll.register(s, IN | RDHUP)

    def settled(self, *words: Any) -> None:
        self.way.ask(*words)
        time.sleep(SETTLED_S)

    def answer(self, question: Callable[[], Any], expected: Any) -> Any:
        """Each call looks for itself and waits for nothing. On a busy machine the proxy may be later than SETTLED_S:
        then the same call is made again, LATE_MAX times in the whole program."""
        while (found := question()) != expected and self.late < LATE_MAX:
            self.late += 1
            time.sleep(SETTLED_S)
        return found

    def read_all(self, expected: bytes) -> None:
        for n, s in enumerate(self.ours):
            got = self.answer(lambda s=s: came(s, 100), expected)
            assert got == expected, f"connection {n} of {len(self.ours)} has {got!r}"

    # --- questions: how many are ready ---

    def events(self) -> list[int]:
        return [event for _, event in self.epoll.poll(0, len(self.ours) + 1)]

    def by_epoll(self) -> int:
        return len(self.events())

    def by_poll(self) -> int:
        made = select.poll()
        for s in self.ours:
            made.register(s.fileno(), select.POLLIN)
        return len(made.poll(0))

    def by_select(self) -> int:
        return len(select.select(self.ours, [], [], 0)[0])

    def by_peek(self) -> int:
        return sum(len(came(s, 10, kernel.MSG_PEEK) or b"") for s in self.ours)

    def by_count(self) -> int:
        unread, total = array.array("i", [0]), 0
        for s in self.ours:
            fcntl.ioctl(s.fileno(), termios.FIONREAD, unread)
            total += unread[0]
        return total

    def by_reading(self) -> int:
        return len(self.ours)  # read_all() asks


def questions(asked: Asked) -> list[Callable[[], int]]:
    out = [asked.by_epoll, asked.by_reading, asked.by_peek]
    if asked.module is kernel:
        out += [asked.by_poll, asked.by_count]
        if len(asked.ours) < SELECT_MAX:
            out.append(asked.by_select)
    return out


def accepts(module: Any, count: int, here: str, way: Way) -> None:
    """Connections wait to be accepted."""
    watch = getattr(module, "epoll", select.epoll)()
    with module.create_server((here, 0), backlog=count + 10) as server:
        server.setblocking(False)
        watch.register(server, IN)
        assert not watch.poll(0)
        way.ask("connect", here, server.getsockname()[1], count)
        time.sleep(SETTLED_S)
        assert len(watch.poll(0)) == 1
        accepted = silences = 0
        while accepted < count:
            try:
                server.accept()[0].close()
                accepted += 1
            except BlockingIOError:
                # On a busy machine the proxy may get no processor for the 50 ms that a call waits for its answer. If
                # only what is in the queue were found, it would be so many times.
                silences += 1
                assert silences <= LATE_MAX, f"connection {accepted} of {count} does not wait"
                time.sleep(SETTLED_S)


def ends(asked: Asked) -> None:
    asked.settled("fin")
    expected = [IN | RDHUP] * len(asked.ours)
    events = asked.answer(asked.events, expected)
    assert events == expected, (len(events), set(events))
    asked.read_all(b"")
    asked.settled("reset")
    asked.answer(lambda: {event & (HUP | ERR) for event in asked.events()}, {HUP | ERR})
    failed = asked.events()
    assert len(failed) == len(asked.ours) and all(event & HUP and event & ERR for event in failed), set(failed)
    for s in asked.ours:
        assert s.getsockopt(kernel.SOL_SOCKET, kernel.SO_ERROR) == errno.EPIPE  # after a FIN: tcp_reset()


def fails(asked: Asked) -> None:
    """As the last part of ends(), without asking first for events."""
    asked.settled("reset")
    for s in asked.ours:
        assert s.getsockopt(kernel.SOL_SOCKET, kernel.SO_ERROR) == errno.ECONNRESET


def first_descriptor(module: Any, host: str, way: Way) -> None:
    """A descriptor shows what had come before it was there."""
    asked = Asked.__new__(Asked)
    asked.way = way
    for words, expected in ((("send", "x"), b"x"), (("fin",), b"")):
        ours = module.create_connection((host, way.ask("port")))
        way.ask("accept")
        asked.settled(*words)
        assert select.select([ours.fileno()], [], [], 0)[0], words
        assert ours.recv(10) == expected
        ours.close()


def main() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    module = importlib.import_module(sys.argv[1])
    count, host, way = int(sys.argv[2]), sys.argv[3], Way(int(sys.argv[4]))
    if module is not kernel:
        first_descriptor(module, host, way)
        way.ask("reset")
    asked = Asked(module, count, host, way)
    for text in ("x", "twenty bytes in each!"):
        for question in questions(asked):
            asked.settled("send", text)
            each = {asked.by_peek: len(text[:10]), asked.by_count: len(text)}.get(question, 1)
            found = asked.answer(question, count * each)
            assert found == count * each, (question.__name__, found, count * each)
            asked.read_all(text.encode())
    ends(asked)
    accepts(module, min(count, 300), sys.argv[5], way)
    fails(Asked(module, min(count, 300), host, way))
    print("done")


if __name__ == "__main__":
    main()
