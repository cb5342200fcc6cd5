"""What an attack is."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from beds.scripted_host import ScriptedHost
from xts_messages.attach import attach

if TYPE_CHECKING:
    from ..part import Script


_NEVER_READ_BYTES = 2048


@dataclass(frozen=True, slots=True)
class Part:
    """A process of an attack: "host" is one that may attach to the proxy, "net" one that reaches it by TCP."""

    role: str
    run: Callable[[Script], None]


@dataclass(frozen=True, slots=True)
class Attack:
    """`tries`: what it is, in a line. `tables`: the proxy's configuration for it, given a folder for its files.
    `parts` start one after the other, each when the one before is under way."""

    name: str
    tries: str
    parts: tuple[Part, ...]
    tables: Callable[[Path], str] = field(default=lambda folder: "")
    queues: frozenset[str] = frozenset({"afxdp", "shm", "shm-loopback"})


def deaf_peer(port: int) -> Part:
    """Accepts connections and never reads: with so small a buffer what was sent stays unacknowledged."""

    def run(script: Script) -> None:
        accepted: list[socket.socket] = []
        with socket.socket() as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _NEVER_READ_BYTES)
            listener.bind((script.place.peer_address, port))
            listener.listen(4096)
            listener.settimeout(0.1)
            script.under_way()
            while not script.stopped:
                with suppress(TimeoutError):
                    accepted.append(listener.accept()[0])
        for connection in accepted:
            connection.close()

    return Part("net", run)


@contextmanager
def hostile_host(script: Script) -> Iterator[ScriptedHost]:
    """A queue of the attacker's own, its link up."""
    with attach(script.place.endpoint, program="attacker") as attachment:
        yield ScriptedHost(attachment.queue, attachment.epoch, token=attachment.token).open()
