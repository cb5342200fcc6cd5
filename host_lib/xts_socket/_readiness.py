"""Waits of many tasks for many sockets, over one `epoll`: shared by the trio and anyio modules.

Theory of operation

A socket is in the set only after a task has waited for it, and is armed (EPOLLONESHOT) for exactly the awaited events:
nothing wakes the event loop for a socket that no task waits for. The event loop watches one kernel descriptor, the
set's, and calls `collect()` when it is readable; that reports the outcome of each wait through a callback. A wait ends
in one of three ways: the event comes, `cancel()` withdraws it, or `forget()` (the socket is about to be closed) ends it
as closed.

Callbacks only make a task runnable. So while `collect()` goes through its events, no socket can be closed, and no
number reused for another socket.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from select import EPOLLERR, EPOLLHUP, EPOLLIN, EPOLLONESHOT, EPOLLOUT, POLLIN, POLLOUT
from typing import TypeVar

from ._epoll import epoll
from ._native import lib
from ._socket import socket

Result = TypeVar("Result")

#: Called once, when a wait ends by itself, with True if the socket was closed meanwhile.
Wake = Callable[[bool], None]

READABLE, WRITABLE = EPOLLIN, EPOLLOUT
_ENDED = EPOLLERR | EPOLLHUP


class Readiness:
    """The waits of one event loop. Not thread-safe: all calls come from the loop's thread."""

    def __init__(self) -> None:
        self._epoll = epoll(turn=True)
        self._waits: dict[int, dict[int, Wake]] = {}  # socket number -> READABLE or WRITABLE -> its wait

    def fileno(self) -> int:
        """The descriptor that is readable when `collect()` has something to do."""
        return self._epoll.fileno()

    def wait(self, sock: socket, event: int, wake: Wake) -> bool:
        """Begins a wait for READABLE or WRITABLE. False: another task waits for the same event already."""
        waits = self._waits.get(sock.number)
        if waits is None:
            self._epoll.register(sock, event | EPOLLONESHOT)
            self._waits[sock.number] = {event: wake}
            return True
        if event in waits:
            return False
        waits[event] = wake
        self._arm(sock.number, waits)
        return True

    def cancel(self, sock: socket, event: int) -> None:
        """Withdraws a wait. If an event for it was on its way, `collect()` drops it."""
        waits = self._waits.get(sock.number)
        if waits is not None:
            waits.pop(event, None)

    def forget(self, sock: socket) -> None:
        """To be called before the socket is closed: its waits end as closed."""
        waits = self._waits.pop(sock.number, None)
        if waits is None:
            return
        if not self._epoll.closed:
            self._epoll.unregister(sock)
        for wake in waits.values():
            wake(True)

    def collect(self) -> None:
        """Ends the waits whose events have come. Does not block."""
        for number, events in self._epoll.poll(0):
            self._ended(number, events)
        self._epoll.flush()  # ends the turn: the descriptor shows again what is ready

    def _ended(self, number: int, events: int) -> None:
        waits = self._waits.get(number)
        if waits is None:
            return
        for event in (READABLE, WRITABLE):
            if events & (event | _ENDED) and event in waits:
                waits.pop(event)(False)
        if waits:
            self._arm(number, waits)

    def close(self) -> None:
        """Closes the set. Waits that are left never end."""
        self._epoll.close()

    def _arm(self, number: int, waits: dict[int, Wake]) -> None:
        self._epoll.modify(number, sum(waits) | EPOLLONESHOT)


def is_readable(sock: socket) -> bool:
    """Is the socket readable, at its end, or failed now? Does not block."""
    return int(lib.xts_py_poll(sock.number, POLLIN, 0)) > 0


def is_writable(sock: socket) -> bool:
    """Is the socket writable, or failed now? Does not block."""
    return int(lib.xts_py_poll(sock.number, POLLOUT, 0)) > 0


@dataclass(frozen=True, slots=True)
class Tasks:
    """What an asynchronous library does for the calling task."""

    wait: Callable[[socket, int], Awaitable[None]]  # for READABLE or WRITABLE
    checkpoint_if_cancelled: Callable[[], Awaitable[None]]
    cancel_shielded_checkpoint: Callable[[], Awaitable[None]]

    async def until(self, sock: socket, event: int, call: Callable[..., Result], *arguments: object) -> Result:
        """Makes a non-blocking call; while it would block, waits before each further try. Always a checkpoint;
        cancelled only if the call has done nothing. OSError as the call."""
        await self.checkpoint_if_cancelled()
        try:
            result = call(*arguments)
        except BlockingIOError:
            pass
        else:
            await self.cancel_shielded_checkpoint()
            return result
        while True:
            await self.wait(sock, event)
            try:
                return call(*arguments)
            except BlockingIOError:
                continue
