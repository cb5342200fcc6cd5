"""What one proxy hands to another of its queues over RDMA, besides the channels: the processes that look after them.

They stay what they are, and the other proxy gets the sockets to them (rdma_channels.py). What is known of their
connections is in memory, whose descriptor it gets, too.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import TypeVar

import msgspec

from xts_proxy.queues.rdma_acceptor import Acceptor
from xts_proxy.queues.rdma_carrier import Carrier
from xts_proxy.queues.rdma_place import Place
from xts_proxy.supervisor.children import Child, Inherited

_STATE, _STATE_BYTES_MAX = "rdma", 1 << 20
#: Of each queue: the sockets to its processes, and descriptors of these.
_ACCEPTOR, _CARRIER, _ITS_PROCESS = "accepts", "carries", "process"
_Made = TypeVar("_Made", Acceptor, Carrier)


class Known(msgspec.Struct, frozen=True):
    """What is known of a queue. Fields may be added, with defaults."""

    number: int
    device: str = ""
    peer: str = ""
    connections: int = 0
    refused: int = 0


def state_of(places: Iterable[Place]) -> int:
    """A descriptor of memory with what is known of them, which is the caller's."""
    known = [Known(p.number, p.device, p.peer, p.connections, p.refused) for p in places]
    made = os.memfd_create("xts-rdma-places", os.MFD_CLOEXEC)
    os.pwrite(made, msgspec.msgpack.encode(known), 0)
    return made


def descriptors_of(places: Iterable[Place], state_fd: int) -> dict[str, int]:
    """By name, for Granted. They stay the caller's."""
    found = {_STATE: state_fd}
    for place in places:
        for what, sock, child in (
            (_ACCEPTOR, place.acceptor.sock, place.acceptor.child),
            (_CARRIER, place.carrier.sock, place.carrier.child),
        ):
            found[f"{what} {place.number}"] = sock.fileno()
            found[f"{what} {place.number} {_ITS_PROCESS}"] = child.fileno()
    return found


def take(came: dict[str, int]) -> list[Place]:
    """The queues of the proxy that hands over. All descriptors are ours from now on. OSError: they make no sense."""
    places: list[Place] = []
    with ExitStack() as undo:
        left = dict(came)
        came.clear()
        undo.callback(_close_all, left)
        try:
            known = msgspec.msgpack.decode(os.pread(left[_STATE], _STATE_BYTES_MAX, 0), type=list[Known])
            for one in known:
                acceptor = _process(left, _ACCEPTOR, one.number, Acceptor, undo)
                carrier = _process(left, _CARRIER, one.number, Carrier, undo)
                place = Place(one.number, acceptor, carrier, problem="", inherited=True, device=one.device)
                place.peer, place.connections, place.refused = one.peer, one.connections, one.refused
                places.append(place)
        except (KeyError, msgspec.MsgspecError) as error:
            raise OSError(
                errno.EPROTO, f"what the running proxy says of its queues makes no sense: {error!r}"
            ) from None
        undo.pop_all()
        _close_all(left)
    return places


def _process(
    left: dict[str, int], what: str, number: int, make: Callable[[socket.socket, Child], _Made], undo: ExitStack
) -> _Made:
    name = f"{what} {number}"
    sock = undo.enter_context(socket.socket(fileno=left.pop(name)))
    made = make(sock, Inherited.of(left.pop(f"{name} {_ITS_PROCESS}")))
    undo.callback(made.child.leave)
    return made


def _close_all(left: dict[str, int]) -> None:
    while left:
        os.close(left.popitem()[1])
