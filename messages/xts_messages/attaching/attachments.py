"""Who attaches to an endpoint, what it is granted, and what an endpoint lists: plain data (endpoint.py)."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from typing import Any

from xts_messages.queues.afxdp import NO_DROPS, Drops


class NotReady(Exception):  # noqa: N818  (not an error: the grant is on its way)
    """Raised by `allocate`: there is nothing to grant now; it is asked again at the next :meth:`Endpoint.retry`.
    `wait_s`: for so long after it has come the request is worth waiting for, whatever the endpoint's patience is."""

    def __init__(self, wait_s: float = 0.0) -> None:
        super().__init__(wait_s)
        self.wait_s = wait_s


@dataclass(frozen=True, slots=True)
class Peer:
    """The process that asks."""

    pid: int  # 0: it is in a PID namespace that is not visible here, such as another container's
    uid: int
    gid: int
    program: str  # the name that it gives itself: only for people
    frame_window_max: int  # 0: the server's default
    umem_bytes_max: int  # 0: the server's default
    small_chunks: bool = False  # its library knows queues with such (xts_messages/queues/afxdp.py)


@dataclass(frozen=True, slots=True)
class Grant:
    """The result of `allocate`. `reply` is a `struct xts_attach_reply *` with the geometry; the endpoint fills in the
    epoch. The two `descriptors` are sent and then closed here: pass duplicates of what is to be kept."""

    reply: Any
    descriptors: tuple[int, ...]
    tag: object = None  # for the owner, which finds it again in Attached.tag


@dataclass(slots=True, eq=False)
class Attached:
    """A process that holds a grant."""

    peer: Peer
    epoch: int
    kind: int  # XTS_QUEUE_*
    queue_id: int
    tag: object
    status_fd: int  # the endpoint's duplicate of the status page
    connection: socket.socket
    interface: str = ""  # interface of the queue; over shm: ""
    relayed: int = 0  # number of the channel, if there is a relay; 0: the queue is its own

    def life_fd(self) -> int:
        """A duplicate of the connection: readable when the process has detached or died. The caller has to close it."""
        return os.dup(self.connection.fileno())


@dataclass(frozen=True, slots=True)
class Adopted:
    """A process with a queue from an earlier server: it has no connection here."""

    queue_id: int
    epoch: int
    pid: int
    uid: int
    program: str
    interface: str
    relayed: int = 0


@dataclass(frozen=True, slots=True)
class Queues:
    """What an interface offers to processes: queues of their own, places at a relay; how many of both are in use. The
    number of its XDP program (0: not known), and why no queue carries anything at the moment ("": they do)."""

    interface: str
    queues: int
    relayed: int
    used: int
    program_id: int = 0
    problem: str = ""
    steering: str = ""  # how frames find their queue
    lacking: int = 0  # queues that they do not find
    copying: str = ""  # whether the driver copies, and why
    drops: Drops = NO_DROPS
