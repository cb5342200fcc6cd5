"""What workers have been told of connections that no process has any more (relatives_files.py of xts_messages).

It is found once, and said once. What workers have heard ends with them, or they were dead when it was said;
the next ones have the same connections, and are told again. As long as such connections are kept for others.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator

KEPT_S = 70.0
#: Keys of so many words are kept, the newest.
WORDS_MAX = 1024


class OverWords:
    """Words of the last KEPT_S."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._words: deque[tuple[float, str, list[int]]] = deque(maxlen=WORDS_MAX)

    def note(self, tenant: str, keys: list[int]) -> None:
        """No process of this tenant has the connections of these keys."""
        self._forget()
        self._words.append((self._now(), tenant, keys))

    def recent(self) -> Iterator[tuple[str, list[int]]]:
        """Tenants, and keys: the oldest first."""
        self._forget()
        yield from [(tenant, keys) for _, tenant, keys in self._words]

    def _forget(self) -> None:
        while self._words and self._words[0][0] < self._now() - KEPT_S:
            self._words.popleft()
