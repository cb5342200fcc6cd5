"""Transmit slots of a queue, for tests that fill it."""

from __future__ import annotations

import time
from contextlib import suppress

from xts_messages.queues.queue import Queue

from beds.patience import SLOWER

#: For a frame that has arrived to be one that has left.
COMES_BACK_S = 10.0 * SLOWER


def submit_when_free(queue: Queue, frame: bytes) -> None:
    """A slot comes back when the device says that its frame has left, some time after its peer has it."""
    until_s = time.monotonic() + COMES_BACK_S
    while True:
        with suppress(BlockingIOError):
            return queue.submit(frame)
        assert time.monotonic() < until_s, "no slot comes back"
        queue.kick()
