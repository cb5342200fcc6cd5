"""What an attack is."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from beds.scripted_host import ScriptedHost
from xts_messages.attaching.attach import attach
from xts_messages.wire import wire_table as table

if TYPE_CHECKING:
    from ..part import Script


_NEVER_READ_BYTES = 2048


@dataclass(frozen=True, slots=True)
class Part:
    """A process of an attack: "host" is one that may attach to the proxy, "net" one that reaches it by TCP."""

    role: str
    run: Callable[[Script], None]


def nothing_more(folder: Path, peer_address: str) -> str:
    """Tables of the configuration for an attack that needs none."""
    del folder, peer_address
    return ""


@dataclass(frozen=True, slots=True)
class Attack:
    """`tries`: what it is, in a line. `tables`: what the proxy's configuration has for it. `parts` start one after the
    other, each when the one before is under way."""

    name: str
    tries: str
    parts: tuple[Part, ...]
    tables: Callable[[Path, str], str] = nothing_more
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
def hostile_host(script: Script, *features: str) -> Iterator[ScriptedHost]:
    """A queue of the attacker's own, its link up, with these features."""
    with attach(script.place.endpoint, program="attacker") as attachment:
        wanted = {"features": sum(table.FEATURES[name][0] for name in features)}
        yield ScriptedHost(attachment.queue, attachment.epoch, wanted, token=attachment.token).open()
