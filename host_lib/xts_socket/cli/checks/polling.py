"""Interfaces of the endpoint's queues: does busy polling do anything there, and do frames wait for a timer?"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from . import Check
from .offered import queues


def checks() -> Iterator[Check]:
    try:
        offered = queues()
    except OSError:  # there is no endpoint, as another check says; or it is older
        return
    for one in offered:
        if found := judge(one.interface, one.copying, flush_ns(one.interface)):
            yield found


def flush_ns(interface: str, sysfs: Path = Path("/sys/class/net")) -> int:
    """For how long the kernel may hold frames of an interface back; 0: it does not, or that is not visible here."""
    try:
        return int((sysfs / interface / "gro_flush_timeout").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return 0


def judge(interface: str, bound: str, held_ns: int) -> Check | None:
    """`bound`: what the agent says of its queues there. None: nothing to say."""
    label = f"polling of {interface}"
    if "no busy polling" in bound:
        return Check(
            label, "warn", "the kernel refuses it", "Linux 5.11 with CONFIG_NET_RX_BUSY_POLL, or no busy_poll_us"
        )
    if "busy polling" in bound:
        if "nothing to poll" in bound:
            return Check(
                label, "warn", "set, and there is nothing to poll", "after some traffic: leave busy_poll_us out"
            )
        if "deferred by" in bound or held_ns:
            return Check(label, "ok", "busy polling, with interrupts deferred")
        return Check(label, "warn", "interrupts get in the way of busy polling", "napi_defer_us = 200 of xts-agent")
    if not held_ns or "deferred by" in bound:
        return None
    found = f"frames may wait {held_ns / 1000:.0f} us for a timer, and nobody polls"
    return Check(label, "warn", found, f"echo 0 > /sys/class/net/{interface}/gro_flush_timeout")
