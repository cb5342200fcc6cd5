"""Signal handlers that may raise, and what must not be interrupted by them."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType


@contextmanager
def handlers_later() -> Iterator[None]:
    """Signal handlers of Python run at the end of the block. They may raise (KeyboardInterrupt), and within Popen()
    nobody would know the process that it has just made: it could not be ended.

    A signal mask would not do, because the child would inherit it. Only the main thread runs handlers.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    arrived: list[int] = []
    handlers: dict[int, Callable[[int, FrameType | None], object]] = {
        number: handler for number in signal.valid_signals() if callable(handler := signal.getsignal(number))
    }
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:
        for number in handlers:
            signal.signal(number, lambda number, _: arrived.append(number))
        yield
    finally:
        try:
            signal.pthread_sigmask(signal.SIG_BLOCK, handlers)  # else the first of them could end the loop
            for number, handler in handlers.items():
                signal.signal(number, handler)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        with ExitStack() as calls:
            for late in reversed(arrived):
                calls.callback(handlers[late], late, None)
