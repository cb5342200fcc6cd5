"""Queues on the two network cards of a virtual machine, each in a network namespace of its own, without agent and
proxy."""

from __future__ import annotations

import logging
import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from xts_bpf.device import DeviceQueues, open_device_queues
from xts_bpf.zero_copy import QueueBinder
from xts_lab import netns
from xts_messages.machine import mac_address, xdp_features
from xts_messages.queues.queue import Queue
from xts_messages.queues.queue_kinds import QueueOptions

from beds.patience import SLOWER

ENDS = ("host", "dpu")
WAIT_MS = int(4000 * SLOWER)


def macs(kind: str) -> dict[str, str]:
    """Of the cards that tests/vm/run gives the machine: "virtio" or "igb"."""
    group = {"virtio": "aa", "igb": "bb"}[kind]
    return {end: f"52:54:00:{group}:00:0{number}" for number, end in enumerate(ENDS, start=1)}


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


@dataclass(frozen=True)
class Cards:
    """`names`: their interfaces."""

    macs: dict[str, str]
    names: dict[str, str]

    def set_mtu(self, mtu: int) -> None:
        for end, name in self.names.items():
            ip("-n", end, "link", "set", name, "mtu", str(mtu))

    def opened(self, end: str, stack: ExitStack, wanted: str, zero_copy: bool) -> Queue:
        """A queue of this end. `wanted`: as the setting zero_copy; `zero_copy`: what it has to be by the kernel."""
        peer = mac_address.station(self.macs[next(other for other in ENDS if other != end)])
        binder = QueueBinder(wanted, "ethtool", logging.getLogger("test"))
        with netns.inside(end):
            made: DeviceQueues = stack.enter_context(
                open_device_queues(self.names[end], 1, peer, options=QueueOptions(frame_window=16), binder=binder)
            )
        assert binder.mode.zero_copy == zero_copy, binder.mode.reason
        return made.queues[0]


def interfaces(kind: str) -> dict[str, str]:
    """By their ends; empty where the machine does not have both."""
    found = {(folder / "address").read_text().strip(): folder.name for folder in Path("/sys/class/net").glob("e*")}
    wanted = macs(kind)
    return {end: found[mac] for end, mac in wanted.items()} if set(wanted.values()) <= found.keys() else {}


def missing(kind: str) -> str:
    """Why there are no cards of this kind, or ""."""
    if os.environ.get("XTS_VM") and interfaces(kind):
        return ""
    return "this is not the virtual machine with network cards (tests/vm/run --nics)"


@contextmanager
def in_namespaces(kind: str) -> Iterator[Cards]:
    """Up, each in its own. Their driver says that it has zero copy."""
    names, features = interfaces(kind), xdp_features.ask()
    for end, name in names.items():
        assert features[int(Path(f"/sys/class/net/{name}/ifindex").read_text())].zero_copy
        ip("netns", "add", end)
        ip("link", "set", name, "netns", end)
        ip("-n", end, "link", "set", name, "up")
    try:
        yield Cards(macs(kind), names)
    finally:
        for end in names:
            ip("netns", "del", end)


def cross(host: Queue, device: Queue, sizes: tuple[int, ...]) -> None:
    """Frames of these sizes, by turns from either end, arrive as they were sent."""
    for number, size in enumerate(sizes):
        source, sink = (host, device) if number % 2 else (device, host)
        frame = source.peer_mac + source.local_mac + b"\x85\x5b" + bytes([7, number % 256]) + os.urandom(size - 16)
        source.send(frame)
        received = sink.wait(WAIT_MS)
        assert bytes(received) == frame
        received.recycle()
