"""Whose request is next: users by turns, so that nobody waits for more than one request of each other user.

The user who was served longest ago is next; one who was never served is next at once. Requests of one user keep their
order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")

#: How many users' last turns are remembered. One that is forgotten counts as never served.
_USERS_MAX = 4096


class Turns(Generic[T]):
    """The requests that wait."""

    def __init__(self) -> None:
        self._waiting: dict[int, dict[T, None]] = {}  # by user; the dict of requests is an ordered set
        self._served: dict[int, None] = {}  # users, longest ago first

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def __iter__(self) -> Iterator[T]:
        """All that wait, in no particular order."""
        for requests in list(self._waiting.values()):
            yield from list(requests)

    def __contains__(self, request: T) -> bool:
        return any(request in requests for requests in self._waiting.values())

    def add(self, uid: int, request: T) -> None:
        """Another request, behind those of its user."""
        self._waiting.setdefault(uid, {})[request] = None

    def discard(self, uid: int, request: T) -> None:
        """The request does not wait any more. Harmless when repeated."""
        requests = self._waiting.get(uid, {})
        requests.pop(request, None)
        if not requests:
            self._waiting.pop(uid, None)

    def users(self) -> list[int]:
        """The users that wait, in the order of their turns."""
        order = {uid: place for place, uid in enumerate(self._served)}
        return sorted(self._waiting, key=lambda uid: order.get(uid, -1))

    def of(self, uid: int) -> list[T]:
        """The requests of a user, in their order."""
        return list(self._waiting.get(uid, ()))

    def served(self, uid: int) -> None:
        """The user has had a turn."""
        self._served.pop(uid, None)
        self._served[uid] = None
        if len(self._served) > _USERS_MAX:
            del self._served[next(iter(self._served))]
