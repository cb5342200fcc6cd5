"""Tells the proxy which connections no process has any more: OVER, on the queue of a process that had told of them.

Theory of operation. Processes with connections in common send the agent files about them (relatives_files.py). What is
found there is said by whoever holds the queue: its opener, or the relay. A message has some keys, and takes no frame
credit; so a few are sent, then there is a pause, in which the proxy takes them. Whoever holds the queue keeps what
cannot leave now, as while the relay's trunk is not up. What a relay that is stopped does not take waits here. Too many
take the places of the oldest: the proxy then keeps these connections until their time is over.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator

from xts_messages.attaching.attachments import Attached
from xts_messages.native import lib

from xts_agent.queue_pool import Slot
from xts_agent.relay import Relayed

BURST, PAUSE_S = 8, 0.005
#: As long as somebody does not take a word.
REFUSED_S = 0.1
_WORDS_MAX = 4096

#: What says a word: to be called with the epoch and the keys. False: it has to be said later.
Word = tuple[Callable[[int, list[int]], bool], int, list[int]]


class OverWords:
    """The words that are still to be said."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._words: deque[Word] = deque(maxlen=_WORDS_MAX)
        self._at = 0.0  # by now()

    def add(self, attached: Attached, keys: list[int]) -> None:
        """No process has the connections of these keys, of which this one has told."""
        self._words.extend(_words(attached, keys))
        self.say()

    def timeout_s(self) -> float | None:
        """When say() is to be called again; None: there is nothing to say."""
        return max(0.0, self._at - self._now()) if self._words else None

    def say(self) -> None:
        """Says some, if it is time."""
        if not self._words or self._now() < self._at:
            return
        some = [self._words.popleft() for _ in range(min(BURST, len(self._words)))]
        later = [(say, epoch, keys) for say, epoch, keys in some if not say(epoch, keys)]
        self._words.extend(later)
        self._at = self._now() + (REFUSED_S if later else PAUSE_S)


def _words(attached: Attached, keys: list[int]) -> Iterator[Word]:
    tag = attached.tag
    assert isinstance(tag, Slot | Relayed)
    most = (lib.XTS_OVER_BYTES_MAX if isinstance(tag, Slot) else lib.XTS_RELAY_OVER_BYTES_MAX) // 8
    for at in range(0, len(keys), most):
        yield tag.say_over, attached.epoch, keys[at : at + most]
