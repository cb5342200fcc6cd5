"""`epoll`: polling of many XTS sockets with the interface of `select.epoll`, without a kernel descriptor for each."""

from __future__ import annotations

import math
import os
from _weakrefset import WeakSet
from select import EPOLLIN, EPOLLOUT, EPOLLPRI
from typing import Any, Self

from ._base import SocketBase
from ._descriptor import receive_callbacks
from ._errors import again, check, error
from ._misuse import wanted
from ._native import ffi, lib

_CTL_ADD, _CTL_DEL, _CTL_MOD = 1, 2, 3  # EPOLL_CTL_* of <sys/epoll.h>; the select module does not have them

_DEFAULT_EVENTS = EPOLLIN | EPOLLOUT | EPOLLPRI

_live: WeakSet[epoll] = WeakSet()


_parents: list[epoll] = []  # during fork()


def _forget_in_child() -> None:
    for context in _parents:
        context._ctx = None
        _live.discard(context)
    _parents.clear()


os.register_at_fork(
    before=lambda: _parents.extend(_live), after_in_child=_forget_in_child, after_in_parent=_parents.clear
)


class epoll:  # noqa: N801 - named as the class it stands in for
    """A set of XTS sockets to wait for: level-triggered, or with EPOLLET and EPOLLONESHOT as in epoll(7).

    Sockets are named by object or number; poll() returns numbers. With `batch`, data that is sent between two polls
    leaves at the second one (or at `flush()`), with one doorbell for all: faster, for event loops that always come back
    soon. With `turn`, the descriptor is not updated between a poll(0) that has found something and `flush()`, which has
    to be called before the program sleeps on the descriptor: this saves two system calls per turn. A socket's receive
    callback is called before poll() reports it.
    """

    __slots__ = ("__weakref__", "_ctx", "_pairs")

    def __init__(self, sizehint: int = -1, flags: int = 0, *, batch: bool = False, turn: bool = False) -> None:
        del sizehint, flags  # ignored, as select.epoll has done for long
        ctx = lib.xts_epoll_ctx_create_flags(
            (lib.XTS_EPOLL_BATCH if batch else 0) | (lib.XTS_EPOLL_TURN if turn else 0)
        )
        if not ctx:
            raise error(ffi.errno)
        self._ctx: Any = ctx
        self._pairs = ffi.new("int32_t[]", 2 * lib.XTS_PY_EVENTS_MAX)
        _live.add(self)

    @property
    def closed(self) -> bool:
        return self._ctx is None

    def close(self) -> None:
        """Ends the set; the sockets in it stay open."""
        ctx, self._ctx = self._ctx, None
        if ctx is not None:
            _live.discard(self)
            lib.xts_epoll_ctx_destroy(ctx)

    def __enter__(self) -> Self:
        self._open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_ctx", None) is not None:
            lib.xts_epoll_ctx_destroy(self._ctx)

    def fileno(self) -> int:
        """A kernel descriptor that is readable when poll(0) would return something."""
        return check(lib.xts_epoll_fd(self._open()))

    def register(self, sock: SocketBase | int, eventmask: int = _DEFAULT_EVENTS) -> None:
        """FileExistsError if it is in the set already."""
        check(lib.xts_py_epoll_ctl(self._open(), _CTL_ADD, _number(sock), eventmask))

    def modify(self, sock: SocketBase | int, eventmask: int) -> None:
        """FileNotFoundError if it is not in the set."""
        check(lib.xts_py_epoll_ctl(self._open(), _CTL_MOD, _number(sock), eventmask))

    def unregister(self, sock: SocketBase | int) -> None:
        """Removes a socket from the set. OSError (ENOENT) if it is not in it."""
        check(lib.xts_py_epoll_ctl(self._open(), _CTL_DEL, _number(sock), 0))

    def poll(self, timeout: float | None = None, maxevents: int = -1) -> list[tuple[int, int]]:
        """Waits for events, for at most `timeout` seconds (None or negative: forever). Returns (socket number, events)
        for each, of at most `maxevents` (-1: 1024)."""
        ctx = self._open()
        timeout_ms = -1 if timeout is None or timeout < 0 else math.ceil(timeout * 1000)
        if maxevents == -1:
            maxevents = lib.XTS_PY_EVENTS_MAX
        elif maxevents <= 0:
            raise ValueError(f"maxevents must be greater than 0, got {maxevents}")
        # Taken while in use, so that threads that poll the same set do not share it.
        pairs, self._pairs = self._pairs, None
        if pairs is None or len(pairs) < 2 * maxevents:
            pairs = ffi.new("int32_t[]", 2 * max(maxevents, lib.XTS_PY_EVENTS_MAX))
        if timeout_ms:
            count = lib.xts_py_epoll_wait(ctx, pairs, maxevents, timeout_ms)
        else:  # the call that allows the descriptor to become unreadable again
            count = lib.xts_py_epoll_now(ctx, pairs, maxevents)
        if count < 0:
            count = check(again(count, lib.xts_py_epoll_wait, ctx, pairs, maxevents))
        flat = ffi.unpack(pairs, 2 * count)
        self._pairs = pairs
        found = list(zip(flat[::2], flat[1::2], strict=True))
        if receive_callbacks:
            self._run_callbacks(found)
        return found

    @staticmethod
    def _run_callbacks(found: list[tuple[int, int]]) -> None:
        from ._receive_callback import decide

        for number, _ in found:
            if number in receive_callbacks:
                decide(number)

    def flush(self) -> None:
        """Sends at once what a program with `batch` has gathered, and ends the turn of a program with `turn`."""
        lib.xts_flush()

    def _open(self) -> Any:
        if self._ctx is None:
            raise ValueError("I/O operation on closed epoll object")
        return self._ctx


def _number(sock: SocketBase | int) -> int:
    if isinstance(sock, SocketBase):
        return sock.number
    if not isinstance(sock, int):
        raise wanted("epoll", "a socket of xts_socket, or its number,", sock)
    return sock
