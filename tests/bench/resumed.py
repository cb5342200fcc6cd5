"""How many sessions of TLS the peer has resumed: of its services that give out tickets (native/peer.c)."""

from __future__ import annotations

import socket
import struct
from contextlib import nullcontext
from typing import NamedTuple

from xts_lab import netns, topology

from .beds import Bed, LoopbackBed
from .subjects import COUNTS_PORT

_COUNTS = struct.Struct("=QQ")
_ANSWERS_S = 5.0


class Counts(NamedTuple):
    """Handshakes since the peer started, and those of them that have resumed."""

    handshakes: int
    resumed: int


def counts(bed: Bed) -> Counts:
    """What the peer says now."""
    place = nullcontext() if isinstance(bed, LoopbackBed) else netns.inside(topology.namespace_of(bed.name, "net"))
    with place:
        asking = socket.create_connection((bed.peer, COUNTS_PORT), _ANSWERS_S)
    with asking:
        said = asking.recv(_COUNTS.size, socket.MSG_WAITALL)
    return Counts(*_COUNTS.unpack(said))


def share(bed: Bed, before: Counts) -> float:
    """Of the handshakes since then. RuntimeError: none has resumed, so that something else was measured."""
    now = counts(bed)
    made, resumed = now.handshakes - before.handshakes, now.resumed - before.resumed
    if not resumed:
        raise RuntimeError(f"no session was resumed in {made} handshakes")
    return resumed / made
