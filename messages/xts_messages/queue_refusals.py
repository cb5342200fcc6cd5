"""What a log says of processes that got no queue: a program asks again with each socket, and would fill the disk."""

from __future__ import annotations

import time
from collections.abc import Callable

from xts_messages.endpoint import Peer
from xts_messages.printable import printable

PERIOD_S = 10.0  # one line in it for a user and a cause
CAUSES_MAX = 256  # beyond them the oldest is forgotten


class Refusals:
    """Writes a line for a refusal, unless the same user had one for the same cause a moment ago: then it is counted."""

    def __init__(self, say: Callable[[str], None], now: Callable[[], float] = time.monotonic) -> None:
        self._say = say
        self._now = now
        self._said: dict[tuple[int, str], tuple[float, int]] = {}  # when, and how many were not said since

    def note(self, peer: Peer, reason: str) -> None:
        """`reason` is the sentence that the process received."""
        key, now = (peer.uid, reason), self._now()
        at, more = self._said.get(key, (-PERIOD_S, 0))
        if now - at < PERIOD_S:
            self._said[key] = (at, more + 1)
            return
        while len(self._said) >= CAUSES_MAX and key not in self._said:
            del self._said[next(iter(self._said))]
        self._said.pop(key, None)
        self._said[key] = (now, 0)
        program = printable(peer.program) or "?"
        line = f"process {peer.pid} ({program}) of user {peer.uid} refused: {printable(reason)}"
        self._say(f"{line} (and {more} times before)" if more else line)
