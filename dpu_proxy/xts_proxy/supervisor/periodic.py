"""Tasks that the supervisor repeats while its loop runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Periodic:
    """Calls a function at start(), and then every period_s until stop(). One call that fails, as for lack of memory or
    descriptors, is not the last one."""

    def __init__(self, period_s: float, call: Callable[[], None]) -> None:
        self._period_s = period_s
        self._call = call
        self._handle: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """In the running loop."""
        self._handle = asyncio.get_running_loop().call_later(self._period_s, self.start)
        self._call()

    def stop(self) -> None:
        """Harmless when repeated, or before start()."""
        if self._handle:
            self._handle.cancel()
