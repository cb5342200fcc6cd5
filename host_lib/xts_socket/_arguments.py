"""Arguments as CPython's C code takes them, before it makes a system call.

The methods of the standard `socket.socket` are written in C, and its argument parser is a part of the interface: any
object with `__index__` is an integer (numpy's, for example), one with only `__int__` is not, a value that does not fit
is an OverflowError, and time-outs are rounded up to whole nanoseconds. Each function here is one of that parser's
formats. tests/system/python/test_python_arguments.py holds the methods against the standard module's.
"""

from __future__ import annotations

import math
from operator import index
from typing import Any

_INT_MAX = 2**31 - 1
_SSIZE_MAX = 2**63 - 1
_NS_MAX = 2**63 - 1  # _PyTime_t


def c_int(value: Any) -> int:
    """Format "i"."""
    number = int(index(value))  # no longer an enumeration's member
    if number > _INT_MAX:
        raise OverflowError("signed integer is greater than maximum")
    if number < -_INT_MAX - 1:
        raise OverflowError("signed integer is less than minimum")
    return number


def c_unsigned(value: Any) -> int:
    """Format "I", which takes the lowest 32 bits of any integer."""
    return index(value) & 0xFFFFFFFF


def c_ssize(value: Any) -> int:
    """Format "n": a size."""
    number = index(value)
    if not -_SSIZE_MAX - 1 <= number <= _SSIZE_MAX:
        raise OverflowError("Python int too large to convert to C ssize_t")
    return number


def flag_of(value: Any) -> bool:
    """The argument of setblocking()."""
    number = index(value)
    if not -_SSIZE_MAX - 1 <= number <= _SSIZE_MAX:
        raise OverflowError("Python int too large to convert to C long")
    return number != 0


def timeout_of(value: Any) -> tuple[float | None, int]:
    """The argument of settimeout(): (seconds as gettimeout() returns them, milliseconds to wait or -1). A time-out is
    rounded up: it is never shorter than asked for."""
    if value is None:
        return None, -1
    if isinstance(value, float):
        if math.isnan(value):
            raise ValueError("Invalid value NaN (not a number)")
        exact = value * 1e9
        ns = 2**64 if math.isinf(exact) else math.ceil(exact) if exact >= 0 else math.floor(exact)
        if value < 0 and math.isinf(exact):
            ns = -ns
    else:
        ns = index(value) * 1_000_000_000
    if not -_NS_MAX - 1 <= ns <= _NS_MAX:
        raise OverflowError("timestamp too large to convert to C _PyTime_t")
    if ns < 0:
        raise ValueError("Timeout value out of range")
    return ns / 1_000_000_000, -(-ns // 1_000_000)
