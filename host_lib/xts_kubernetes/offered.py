"""The devices that the plug-in offers: places for processes at the endpoint, asked of it every so often.

A device is a right to one attachment. Which queue a process gets is the agent's business, so that the number in an
identifier only counts: "xts0-3" is the fourth place at the interface xts0. While the endpoint does not answer, what was
there last is there, and unhealthy: the kubelet gives nothing of it to new pods, and pods that have some keep it. It is
the same for an interface whose queues carry nothing at the moment, as the agent says.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from xts_messages.attaching.attach import OfferedQueues, list_queues
from xts_messages.terminal.printable import printable

log = logging.getLogger("xts-device-plugin")

#: More than any endpoint has; what says more is no agent.
DEVICES_MAX = 4096
ASK_TIMEOUT_MS = 2000


@dataclass(frozen=True, slots=True)
class Offered:
    """A device. `numa_node`: of its interface; None: not known."""

    id: str
    interface: str
    healthy: bool
    numa_node: int | None = None


def numa_node(interface: str, sysfs: Path = Path("/sys/class/net")) -> int | None:
    """Of the card behind an interface; None: there is none, or the machine has no such nodes."""
    try:
        node = int((sysfs / interface / "device" / "numa_node").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
    return node if node >= 0 else None


def devices_of(found: Iterable[OfferedQueues], relayed: bool, queues: int) -> tuple[Offered, ...]:
    """The devices of an endpoint's interfaces. `relayed`: places behind a relay are offered, too. `queues`: how many to
    offer where the endpoint does not say, as a proxy's does not. ValueError: it says what cannot be."""
    listed = list(found) or [OfferedQueues("shm", queues, 0, 0)]
    counts: dict[str, int] = {}
    problems = {printable(one.interface): one.problem for one in listed}
    for one in listed:
        name = printable(one.interface)
        if not name or "/" in name or name in counts:
            raise ValueError(f"the endpoint names an interface {name!r}")
        counts[name] = one.queues + (one.relayed if relayed else 0)
    if sum(counts.values()) > DEVICES_MAX:
        raise ValueError(f"the endpoint says that it has {sum(counts.values())} queues; {DEVICES_MAX} are the most")
    return tuple(
        Offered(f"{name}-{number}", name, not problems[name], numa_node(name))
        for name, count in counts.items()
        for number in range(count)
    )


class OfferedDevices:
    """What is offered now. `watch()` keeps it true; `changed()` waits for the next change."""

    def __init__(self, ask: Callable[[], tuple[Offered, ...]], period_s: float) -> None:
        """ask: the devices now; OSError or ValueError: the endpoint does not say."""
        self.devices: tuple[Offered, ...] = ()
        self.problem = "the endpoint has not been asked yet"
        self._ask, self._period_s = ask, period_s
        self._next: asyncio.Event = asyncio.Event()

    async def changed(self) -> None:
        """Returns after the next change."""
        await self._next.wait()

    async def watch(self) -> None:
        """Asks every so often, until it is cancelled."""
        while True:
            await self.ask()
            await asyncio.sleep(self._period_s)

    async def ask(self) -> None:
        """Asks once."""
        try:
            found = await asyncio.to_thread(self._ask)
            problem = ""
        except (OSError, ValueError) as error:
            found = tuple(replace(device, healthy=False) for device in self.devices)
            problem = getattr(error, "strerror", None) or str(error)
        if problem != self.problem:
            if problem:
                log.warning("%s; nothing is given to pods until it answers", problem)
            else:
                log.info("%d devices are offered", len(found))
        self.problem = problem
        if found != self.devices:
            self.devices = found
            self._next.set()
            self._next = asyncio.Event()


def asking(endpoint: str, relayed: bool, queues: int) -> Callable[[], tuple[Offered, ...]]:
    """Asks this endpoint. Blocks for ASK_TIMEOUT_MS at most."""

    def ask() -> tuple[Offered, ...]:
        try:
            found = list(list_queues(endpoint, ASK_TIMEOUT_MS))
        except OSError as error:
            raise OSError(error.errno, f"{endpoint}: {error.strerror or error}") from error
        return devices_of(found, relayed, queues)

    return ask
