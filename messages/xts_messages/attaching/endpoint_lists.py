"""The lists for which a client asks an endpoint: processes that are attached, that were killed, queues that there are.

A user sees its own processes, root sees all. Each entry is a message (attach_messages.py), and for a process that is
attached also its status page.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator

from xts_messages._native import lib
from xts_messages.attaching import attach_messages
from xts_messages.attaching.attachments import Adopted, Attached, Queues
from xts_messages.attaching.killed_processes import EndedProcesses
from xts_messages.attaching.status_page import create_status_page

#: A message, and descriptors that are the caller's.
Entry = tuple[bytes, tuple[int, ...]]


class Lists:
    """Of one endpoint."""

    def __init__(
        self,
        attachments: Callable[[], Iterable[Attached]],
        adopted: Callable[[], Iterable[Adopted]],
        queues: Callable[[], Iterable[Queues]],
        killed: EndedProcesses,
    ) -> None:
        self._attachments, self._adopted, self._queues, self._killed = attachments, adopted, queues, killed

    def of(self, magic: int, uid: int) -> Iterable[Entry] | None:
        """The messages that answer a request of this user; None: it is not for a list."""
        if magic == lib.XTS_ATTACH_STATUS_MAGIC:
            return self._processes(uid)
        if magic == lib.XTS_ATTACH_ENDED_MAGIC:
            return ((ended, ()) for ended in self._killed.listing(uid))
        if magic == lib.XTS_ATTACH_QUEUES_MAGIC:
            return ((attach_messages.queues(found), ()) for found in self._queues())
        return None

    def _processes(self, uid: int) -> Iterator[Entry]:
        for attached in sorted(self._attachments(), key=lambda a: (a.interface, a.queue_id, a.relayed)):
            peer = attached.peer
            if uid in (0, peer.uid):
                listed = Adopted(
                    *(attached.queue_id, attached.epoch, peer.pid, peer.uid, peer.program),
                    *(attached.interface, attached.relayed),
                )
                yield attach_messages.listing(listed, attached.kind), (os.dup(attached.status_fd),)
        for adopted in self._adopted():
            if uid in (0, adopted.uid):
                page = create_status_page(int(lib.XTS_STATUS_ADOPTED))
                yield attach_messages.listing(adopted, int(lib.XTS_QUEUE_AFXDP)), (page,)
