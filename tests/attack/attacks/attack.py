"""What an attack is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from scripted_host import ScriptedHost
from xts_messages.attach import attach

if TYPE_CHECKING:
    from ..part import Script


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


@contextmanager
def hostile_host(script: Script) -> Iterator[ScriptedHost]:
    """A queue of the attacker's own, its link up."""
    with attach(script.place.endpoint, program="attacker") as attachment:
        yield ScriptedHost(attachment.queue, attachment.epoch, token=attachment.token).open()
