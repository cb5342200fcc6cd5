"""How far the device's clock may be from the one that it follows (dpu_proxy/native/worker/device_clock.h)."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterator
from typing import Any

import pytest
from xts_proxy._native import ffi, lib
from xts_proxy.workers.device_clock import DeviceClock

NOBODY_KNOWS = (1 << 64) - 1
NONE = -(1 << 63)
NOW_NS = 10**15
#: struct timex begins so; adjtimex(2) fills all of it.
TIMEX_BYTES, MAX_ERROR, STATUS = 208, slice(24, 32), slice(40, 44)
TIME_ERROR, STA_UNSYNC = 5, 0x40


@pytest.fixture
def clock() -> Iterator[Any]:
    """What the workers of this process read."""
    made = ffi.new("struct xts_device_clock *", {"bound_ns": NONE})
    lib.xts_device_clock_is(made)
    yield made
    lib.xts_device_clock_is(ffi.NULL)


def test_the_bound_grows_as_the_kernel_lets_it(clock: Any) -> None:
    clock.bound_ns = 3_000_000 - NOW_NS // 2000
    for age_s in (0, 1, 10):
        error_ns = lib.xts_device_clock_error_ns(NOW_NS + age_s * 10**9)
        assert error_ns == 3_000_000 + age_s * 500_000


def test_a_clock_that_follows_none(clock: Any) -> None:
    assert lib.xts_device_clock_error_ns(NOW_NS) == NOBODY_KNOWS
    clock.bound_ns = 16 * 10**9 - NOW_NS // 2000
    assert lib.xts_device_clock_error_ns(NOW_NS) == 16 * 10**9
    assert lib.xts_device_clock_error_ns(NOW_NS + 2000) == NOBODY_KNOWS
    lib.xts_device_clock_is(ffi.NULL)
    assert lib.xts_device_clock_error_ns(NOW_NS) == NOBODY_KNOWS


def kernels_bound_ns() -> int:
    raw = ctypes.create_string_buffer(TIMEX_BYTES)
    state = ctypes.CDLL(None).adjtimex(raw)
    follows = state not in (-1, TIME_ERROR) and not int.from_bytes(raw.raw[STATUS], "little") & STA_UNSYNC
    return int.from_bytes(raw.raw[MAX_ERROR], "little") * 1000 if follows else NOBODY_KNOWS


def test_it_is_what_the_kernel_says() -> None:
    looked = DeviceClock()
    looked.be_read()
    try:
        before, found = kernels_bound_ns(), lib.xts_device_clock_error_ns(time.monotonic_ns())
        assert (found == NOBODY_KNOWS) == (before == NOBODY_KNOWS)
        assert found == NOBODY_KNOWS or abs(found - before) <= 2_000_000  # the kernel adds to it once a second
    finally:
        lib.xts_device_clock_is(ffi.NULL)
