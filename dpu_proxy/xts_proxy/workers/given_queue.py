"""What a worker is told of a queue besides its descriptors."""

from __future__ import annotations

from typing import NamedTuple

from xts_messages.native import lib as messages_lib

from xts_proxy.workers.workers import Relayed


class Left(NamedTuple):
    """A queue that another process has left: its number, its state, the session of what repeats lost frames, and of its
    host the ticket, the epoch, and what is known of it (Moved)."""

    queue_id: int
    state: bytes
    session: bytes
    ticket: int
    epoch: int
    known: bytes
    relayed: tuple[Relayed, ...] = ()


class Frames(NamedTuple):
    """What frames have on the way to a queue's host. `secrets_fd`: the XDP program's map, where they have heads.
    `repeating`: XTS_ARQ_*, where some may be lost."""

    secrets_fd: int = -1
    repeating: int | None = None

    @property
    def repeats(self) -> bool:
        """Are lost frames sent again?"""
        return self.repeating == int(messages_lib.XTS_ARQ_PROXY)


PLAIN = Frames()
