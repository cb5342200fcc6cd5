"""Results of the native calls as Python's: raising errors, and making interrupted calls again."""

from __future__ import annotations

import os
from collections.abc import Callable
from errno import EAGAIN
from time import monotonic_ns
from typing import Any

from xts_messages.terminal.printable import printable

from ._native import ffi, lib

#: python_waits.h: a call that is interrupted by a signal returns this minus the milliseconds left.
INTERRUPTED = -8192
#: python_waits.h: the same for a receive call for which the socket's callback has to be asked first.
_PACKET_ASKS = lib.XTS_PY_PACKET_ASKS
_UNDECIDED_MAX = _PACKET_ASKS + 1  # -1 ms are left: it waits forever
_ERRNO_MIN = -4095


class UlpError(OSError):
    """A pushed protocol ended the connection, or a push was refused: `strerror` is the proxy's reason.

    `fault` names the fault (ULPS.md, "Faults"): "record", "length", "certificate", "push", ...
    """

    __module__ = "xts_socket"

    def __init__(self, code: int, text: str, fault: str) -> None:
        super().__init__(code, text)
        self.fault = fault
        if not hasattr(type(self), "reason"):  # errors of ssl have one of their own
            self.reason = text

    def __reduce__(self) -> tuple[Any, ...]:
        """For pickling and copying: BaseException would call the class with `args`, which are two."""
        return type(self), (self.errno, self.strerror, self.fault), self.__dict__


def error(code: int, reason: str = "") -> OSError:
    """The OSError (of the subclass for its errno) for a positive errno that the last call has returned.

    Its attribute `reason` is a sentence with the cause, or the errno's text if no more is known.
    """
    if not reason and (found := lib.xts_py_reason_of(code)):
        reason = printable(ffi.string(found).decode(errors="replace"))
    text = os.strerror(code)
    return explained(OSError(code, f"{text}: {reason}" if reason else text), reason or text)


def explained(failure: OSError, reason: str) -> OSError:
    """The same error with its `reason` (WithReason)."""
    failure.reason = reason  # type: ignore[attr-defined]
    return failure


def check(result: int) -> int:
    """Raises OSError for a result below 0, else returns it."""
    if result < 0:
        raise error(-result)
    return result


def again(result: int, function: Callable[..., int], *arguments: Any) -> int:
    """Repeats an interrupted call, with the time left, until it has a result or a signal handler raises.

    The signal handlers have run when this is reached: Python runs them on return from the native call.
    """
    while result < _ERRNO_MIN:
        if result <= _UNDECIDED_MAX:
            return _after_callback(result, function, *arguments)
        result = function(*arguments, INTERRUPTED - result)
    return result


def _after_callback(result: int, function: Callable[..., int], *arguments: Any) -> int:
    """again(), with the socket's callback. Datagrams that the callback drops do not prolong the call."""
    from ._receive_callback import decide

    deadline_ns = None
    while result < _ERRNO_MIN:
        if result <= _UNDECIDED_MAX:
            decide(arguments[0])
            left_ms = _PACKET_ASKS - result
        else:
            left_ms = INTERRUPTED - result
        if left_ms > 0 and deadline_ns is None:
            deadline_ns = monotonic_ns() + left_ms * 1_000_000
        elif deadline_ns is not None:
            left_ms = -((monotonic_ns() - deadline_ns) // 1_000_000)  # rounded up, so that it never ends too early
            if left_ms <= 0:
                return -EAGAIN
        result = function(*arguments, left_ms)
    return result


def waiting(function: Callable[..., int], *arguments: Any) -> int:
    """Calls a function that may wait; its last argument is the timeout in ms. Raises OSError, but never EINTR."""
    result = function(*arguments)
    if result < 0:
        result = again(result, function, *arguments[:-1])
        if result < 0:
            raise error(-result)
    return result
