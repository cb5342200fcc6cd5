"""`Poller`: events of XTS sockets for an event loop.

Theory of operation

A loop has one polling context of the library for all of its XTS sockets: none of them needs a kernel descriptor, or a
system call. Sockets are in the context edge-triggered and for all events, from their first wait to their close:
pausing, resuming and waiting for room need no call. So a handler of an edge reads until nothing is left, or remembers
that something is.

Our own `EventLoop` waits in the library itself (_selector.py), which passes the events on. Any other loop watches the
context's single descriptor with `loop.add_reader`. When it is ready, the poller collects events and calls the handlers
directly: that begins a *turn*, in which data is sent without waking the proxy, and nothing wakes us (XTS_EPOLL_BATCH,
XTS_EPOLL_TURN). The turn ends with one doorbell for all: at once if handlers have sent something themselves, otherwise
in the loop's next round, after the tasks that they have woken.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextvars import Context
from select import EPOLLERR, EPOLLET, EPOLLHUP, EPOLLIN, EPOLLOUT, EPOLLRDHUP
from typing import Any
from weakref import WeakKeyDictionary, ref

from .._errors import check, error
from .._native import ffi, lib
from ._selector import Selector
from ._wakeup import Wakeup

#: Called with the events of an edge.
Handler = Callable[[int], None]

_EVERYTHING = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET
_CTL_ADD, _CTL_DEL = 1, 2
_collect = lib.xts_py_epoll_now
_unpack = ffi.unpack

#: Room for the data of one read, as in asyncio.
RECEIVE_BYTES = 256 * 1024

_pollers: WeakKeyDictionary[asyncio.AbstractEventLoop, Poller] = WeakKeyDictionary()


def poller_of(loop: asyncio.AbstractEventLoop) -> Poller:
    """The loop's poller, made on first use."""
    try:
        return _pollers[loop]
    except KeyError:
        for other in [other for other in _pollers if other.is_closed()]:
            forget(other)
        poller = _pollers[loop] = Poller(loop)
        return poller


def forget(loop: asyncio.AbstractEventLoop) -> None:
    """Ends the poller of a loop that closes."""
    poller = _pollers.pop(loop, None)
    if poller is not None:
        poller.close()


def _forget_in_child() -> None:
    """The sockets belong to the parent, not to the child."""
    for poller in _pollers.values():
        poller.handlers.clear()
        poller.leave_selector()
    _pollers.clear()


os.register_at_fork(after_in_child=_forget_in_child)


class Poller:
    """One for each event loop: use `poller_of`."""

    __slots__ = (
        "__weakref__", "_events", "_loop", "_turn", "buffer", "ctx", "handlers", "pairs", "selector", "sent", "wakeup"
    )  # fmt: skip

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        #: The loop's selector, if it is ours.
        self.selector: Selector | None = getattr(loop, "xts_selector", None)
        kind = lib.XTS_EPOLL_TURN if self.selector is None else lib.XTS_EPOLL_PATIENT
        ctx = lib.xts_epoll_ctx_create_flags(lib.XTS_EPOLL_BATCH | kind)
        if not ctx:
            raise error(ffi.errno)
        self.ctx: Any = ctx
        self._loop = ref(loop)
        self.pairs = ffi.new("int32_t[]", 2 * lib.XTS_PY_EVENTS_MAX)
        #: Collected and not yet handled: number, events, number, events, ...
        self._events: list[int] = []
        self._turn = False
        self.handlers: dict[int, Handler] = {}
        #: The buffer into which transports receive; nothing in it outlives the call.
        self.buffer = ffi.new_allocator(should_clear_after_alloc=False)("char[]", RECEIVE_BYTES)
        #: Set by a transport that has sent something.
        self.sent = False
        self.wakeup: Wakeup | None = None
        if self.selector is not None:
            self.wakeup = Wakeup(loop)
            self.selector.poller = self
        else:  # in a new context, or it would run in that of the first caller
            Context().run(loop.add_reader, check(lib.xts_epoll_fd(ctx)), self._readable)

    def close(self) -> None:
        """Releases the library's context; the sockets stay open."""
        ctx, self.ctx = self.ctx, None
        self.handlers.clear()
        self.leave_selector()
        if ctx is not None:
            lib.xts_epoll_ctx_destroy(ctx)

    def leave_selector(self) -> None:
        wakeup, self.wakeup = self.wakeup, None
        if wakeup is not None:
            wakeup.close()
        if self.selector is not None and self.selector.poller is self:
            self.selector.poller = None

    def __del__(self) -> None:
        if getattr(self, "wakeup", None) is not None:
            self.leave_selector()
        if getattr(self, "ctx", None) is not None:
            lib.xts_epoll_ctx_destroy(self.ctx)

    def add(self, number: int, handler: Handler) -> None:
        """From now on calls `handler` for all events of a socket, first for its present state."""
        add = lib.xts_py_epoll_ctl_mixed if self.selector is not None else lib.xts_py_epoll_ctl
        check(add(self.ctx, _CTL_ADD, number, _EVERYTHING))
        self.handlers[number] = handler

    def remove(self, number: int) -> None:
        """Does nothing if the socket is not watched, or is gone."""
        if self.handlers.pop(number, None) is not None and self.ctx is not None:
            lib.xts_py_epoll_ctl(self.ctx, _CTL_DEL, number, 0)

    def _readable(self) -> None:
        if self.ctx is None:
            return
        count = _collect(self.ctx, self.pairs, lib.XTS_PY_EVENTS_MAX)
        if count <= 0:
            check(count)
            return
        self._events += _unpack(self.pairs, 2 * count)
        self.sent = False
        self._handle()
        if self.sent:
            lib.xts_flush()
        elif not self._turn and (loop := self._loop()) is not None:
            self._turn = True
            loop.call_soon(self._end_turn)

    def take(self, events: list[int]) -> None:
        """Handles the events that the selector has collected."""
        self._events += events
        loop = self._loop()
        if loop is not None and loop.get_debug():
            loop.call_soon(self._handle)  # the loop's debug mode then shows slow callbacks
            return
        try:
            self._handle()
        except Exception as failure:  # handled as the loop handles exceptions of its callbacks
            if loop is not None:
                loop.call_exception_handler({"message": f"Exception in callback {self!r}", "exception": failure})

    def _handle(self) -> None:
        """Passes the collected events on. Events that are left after an exception are handled in the next round."""
        events, self._events = self._events, []
        handlers = self.handlers
        at = 0
        try:
            for at in range(0, len(events), 2):
                handler = handlers.get(events[at])
                if handler is not None:
                    handler(events[at + 1])
        except BaseException:
            self._events = events[at + 2 :] + self._events
            if (loop := self._loop()) is not None:
                if self._events:
                    loop.call_soon(self._handle)
                loop.call_soon(self._end_turn)
            raise

    def _end_turn(self) -> None:
        self._turn = False
        lib.xts_flush()


class Waits:
    """Tasks that wait for a socket without a transport; it is watched while there are any."""

    __slots__ = ("_number", "_poller", "_waiting")

    def __init__(self, poller: Poller, number: int) -> None:
        self._poller = poller
        self._number = number
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []

    async def wait(self, events: int, future: asyncio.Future[None]) -> None:
        waiter = (events | EPOLLERR | EPOLLHUP, future)
        self._waiting.append(waiter)
        try:
            await future
        finally:
            self._waiting.remove(waiter)
            if not self._waiting and self._poller.handlers.get(self._number) == self.notify:
                self._poller.remove(self._number)

    def notify(self, events: int) -> None:
        for mask, future in self._waiting:
            if events & mask and not future.done():
                future.set_result(None)


async def wait_for(loop: asyncio.AbstractEventLoop, number: int, events: int) -> None:
    """Waits until the socket has one of the events, or an error. RuntimeError if a transport has the socket."""
    poller = poller_of(loop)
    handler = poller.handlers.get(number)
    if handler is None:
        waits = Waits(poller, number)
        poller.add(number, waits.notify)
    else:
        waits = getattr(handler, "__self__", None)  # type: ignore[assignment]
        if not isinstance(waits, Waits):
            raise RuntimeError(f"XTS socket {number} is used by transport {waits!r}")
    await waits.wait(events, loop.create_future())
