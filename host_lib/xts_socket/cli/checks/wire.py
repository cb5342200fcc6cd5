"""Do the interfaces of the endpoint's queues lose frames? What the kernel has counted of each says so."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from . import Check
from .offered import queues

#: Frames that a card had no room for, or found damaged (Documentation/networking/statistics.rst). What an XDP program
#: drops is not in them.
COUNTERS = ("rx_missed_errors", "rx_fifo_errors", "rx_crc_errors", "rx_frame_errors", "rx_length_errors")
STATISTICS = "/sys/class/net/{interface}/statistics"


def checks() -> Iterator[Check]:
    try:
        interfaces = [one.interface for one in queues()]
    except OSError:  # there is no endpoint, as another check says; or it is older
        return
    for interface in interfaces:
        yield from wire(interface, Path(STATISTICS.format(interface=interface)))


def wire(interface: str, statistics: Path) -> Iterator[Check]:
    """Nothing for an interface that has lost nothing, or that is not visible from here."""
    counted = {}
    for name in COUNTERS:
        with suppress(OSError, ValueError):
            counted[name] = int((statistics / name).read_text())
    lost = {name: count for name, count in counted.items() if count}
    if lost:
        found = "frames were lost: " + ", ".join(f"{name} {count}" for name, count in lost.items())
        remedy = 'reliable = "on" in xts-agent.toml and in xts-proxy.toml, where it is not: lost frames are sent again'
        yield Check(f"wire of {interface}", "warn", found, remedy)
