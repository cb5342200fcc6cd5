"""Queues on the two network cards of a virtual machine, each in a network namespace of its own, without agent and
proxy."""

from __future__ import annotations

import logging
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from xts_bpf.device import DeviceQueues, open_device_queues
from xts_bpf.zero_copy import QueueBinder
from xts_lab import netns
from xts_messages.machine import mac_address, xdp_features
from xts_messages.queues.queue import Queue
from xts_messages.queues.queue_kinds import AFXDP, QueueOptions
from xts_messages.wire import wire_table as table

from beds.patience import SLOWER
from beds.queued_links import DistantLinks

ENDS = ("host", "dpu")
WAIT_MS = int(4000 * SLOWER)
BACK_S = 10.0 * SLOWER
WINDOW_16 = QueueOptions(frame_window=16)
#: Of messages that are one packet each, at an MTU of 1,500.
PACKET_BYTES = 1300


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

    def opened(
        self, end: str, stack: ExitStack, wanted: str, zero_copy: bool, options: QueueOptions = WINDOW_16
    ) -> Queue:
        """A queue of this end. `wanted`: as the setting zero_copy; `zero_copy`: what it has to be by the kernel."""
        peer = mac_address.station(self.macs[next(other for other in ENDS if other != end)])
        binder = QueueBinder(wanted, "ethtool", logging.getLogger("test"))
        with netns.inside(end):
            made: DeviceQueues = stack.enter_context(
                open_device_queues(self.names[end], 1, peer, options=options, binder=binder)
            )
        assert binder.mode.zero_copy == zero_copy, binder.mode.reason
        return made.queues[0]


class CardLinks(DistantLinks):
    """Two links over new queues of the cards, with zero copy at both ends. Their packets are short, as for parts, but
    each frame is one."""

    features = table.FEATURES["PARTS"][0]

    def __init__(self, cards: Cards, options: QueueOptions) -> None:
        self._opened = ExitStack()
        with ExitStack() as undo:
            undo.callback(self._opened.close)
            self._pair = tuple(cards.opened(end, self._opened, "on", True, options) for end in ENDS)
            super().__init__(AFXDP, replace(options, frame_window=self._pair[0].frame_window))
            undo.pop_all()
        for end in self.ends:
            end.longest = PACKET_BYTES

    def pair(self, kind: int, options: QueueOptions) -> tuple[Queue, Queue]:
        host, device = self._pair
        return host, device

    def close(self) -> None:
        for end in self.ends:
            end.forget()
        self._opened.close()


def interfaces(kind: str) -> dict[str, str]:
    """By their ends, whatever a lab has called them; empty where the machine does not have both."""
    found = {file.read_text().strip(): file.parent.name for file in Path("/sys/class/net").glob("*/address")}
    wanted = macs(kind)
    return {end: found[mac] for end, mac in wanted.items()} if set(wanted.values()) <= found.keys() else {}


def missing(kind: str) -> str:
    """Why there are no cards of this kind, or ""."""
    if os.environ.get("XTS_VM") and interfaces(kind):
        return ""
    return "this is not the virtual machine with network cards (tests/vm/run --nics)"


@contextmanager
def in_namespaces(kind: str) -> Iterator[Cards]:
    """Up, each in its own. Their driver says that it has zero copy. At the end they are back, for the next."""
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
        deadline = time.monotonic() + BACK_S
        while interfaces(kind) != names:  # the kernel takes a moment
            assert time.monotonic() < deadline, "the network cards do not come back"
            time.sleep(0.05)


def cross(host: Queue, device: Queue, sizes: tuple[int, ...]) -> None:
    """Frames of these sizes, by turns from either end, arrive as they were sent."""
    for number, size in enumerate(sizes):
        source, sink = (host, device) if number % 2 else (device, host)
        frame = source.peer_mac + source.local_mac + b"\x85\x5b" + bytes([7, number % 256]) + os.urandom(size - 16)
        source.send(frame)
        received = sink.wait(WAIT_MS)
        assert bytes(received) == frame
        received.recycle()
