"""How far the device's clock may be from the time that it follows: the supervisor asks the kernel, and the workers'
process reads what it has learned in memory that both have (native/device_clock.h)."""

from __future__ import annotations

import mmap

from xts_proxy._native import ffi, lib
from xts_proxy.periodic import Periodic

LOOK_S = 0.5


class DeviceClock(Periodic):
    """Looks every LOOK_S, and once before anything is forked."""

    def __init__(self) -> None:
        super().__init__(LOOK_S, self.look)
        self._memory = mmap.mmap(-1, mmap.PAGESIZE)
        self._native = ffi.from_buffer("struct xts_device_clock *", self._memory)
        self.look()

    def look(self) -> None:
        """Once."""
        lib.xts_device_clock_look(self._native)

    def be_read(self) -> None:
        """By the workers of this process, from now on. For all its life: they keep the address."""
        lib.xts_device_clock_is(self._native)
