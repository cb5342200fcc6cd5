"""Log lines about processes that got no queue. A program asks again with each socket, and could fill the disk."""

from __future__ import annotations

import time
from collections.abc import Callable

from xts_messages.attaching.attachments import Peer
from xts_messages.terminal.printable import printable

PERIOD_S = 10.0  # one line in this time for each user and cause
CAUSES_MAX = 256  # with more causes, the oldest is forgotten


class Refusals:
    """Writes a line for a refusal, unless there was one for the same user and cause a moment ago: then it is only
    counted."""

    def __init__(self, say: Callable[[str], None], now: Callable[[], float] = time.monotonic) -> None:
        self._say = say
        self._now = now
        # when the last line was written, and how many refusals were counted since
        self._said: dict[tuple[int, str], tuple[float, int]] = {}

    def note(self, peer: Peer, reason: str) -> None:
        """`reason` is the sentence that the process has received."""
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
