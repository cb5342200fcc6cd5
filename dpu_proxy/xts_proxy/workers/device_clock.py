"""The maximum error of the device's clock: the supervisor asks the kernel, and the workers' process reads the result
from memory that both share (native/worker/device_clock.h)."""

from __future__ import annotations

import mmap

from xts_proxy._native import ffi, lib
from xts_proxy.supervisor.periodic import Periodic

LOOK_S = 0.5


class DeviceClock(Periodic):
    """Asks the kernel every LOOK_S, and once before anything is forked."""

    def __init__(self) -> None:
        super().__init__(LOOK_S, self.look)
        self._memory = mmap.mmap(-1, mmap.PAGESIZE)
        self._native = ffi.from_buffer("struct xts_device_clock *", self._memory)
        self.look()

    def look(self) -> None:
        """Asks the kernel once."""
        lib.xts_device_clock_look(self._native)

    def be_read(self) -> None:
        """From now on the workers of this process read it. Valid for the life of the process, because they keep the
        address."""
        lib.xts_device_clock_is(self._native)
