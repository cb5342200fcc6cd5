"""`Selector`: with it, `EventLoop` waits for kernel descriptors and XTS sockets together.

One call of the library sends what has been written since the last one, with one doorbell for all, and handles what has
come. If nothing has come, it spins as a blocking call does (for up to four times XTS_SPIN_US), then sleeps on all of
it. The events of XTS sockets are handled before select() returns, so that the tasks they wake run in the same turn of
the loop. For a loop without XTS sockets, this is only the standard library's selector.
"""

from __future__ import annotations

from select import EPOLLIN, EPOLLOUT
from selectors import EVENT_READ, EVENT_WRITE, EpollSelector, SelectorKey
from typing import TYPE_CHECKING

from .._errors import check
from .._native import ffi, lib

if TYPE_CHECKING:
    from ._poller import Poller

_wait = lib.xts_py_epoll_wait_mixed
_unpack = ffi.unpack
_KERNEL = lib.XTS_PY_KERNEL


class Selector(EpollSelector):
    """The standard library's selector, and the XTS sockets of a loop."""

    def __init__(self) -> None:
        super().__init__()
        #: Set with the first XTS socket.
        self.poller: Poller | None = None
        self._set = self.fileno()

    def select(self, timeout: float | None = None) -> list[tuple[SelectorKey, int]]:
        poller = self.poller
        if poller is None:
            return super().select(timeout)
        timeout_ns = -1 if timeout is None else max(int(timeout * 1e9), 0)
        got = _wait(poller.ctx, self._set, poller.pairs, timeout_ns)
        if got <= 0:
            check(got)
            return []
        if got < _KERNEL:
            poller.take(_unpack(poller.pairs, 2 * got))
            return []
        descriptors, sockets = divmod(got, _KERNEL)
        pairs = _unpack(poller.pairs, 2 * (sockets + descriptors))
        if sockets:
            poller.take(pairs[: 2 * sockets])
        return self._ready(pairs[2 * sockets :])

    def _ready(self, pairs: list[int]) -> list[tuple[SelectorKey, int]]:
        keys = self.get_map()
        ready = []
        for descriptor, events in zip(pairs[::2], pairs[1::2], strict=True):
            key = keys.get(descriptor)
            if key is not None:
                mask = (EVENT_WRITE if events & ~EPOLLIN else 0) | (EVENT_READ if events & ~EPOLLOUT else 0)
                ready.append((key, mask & key.events))
        return ready
