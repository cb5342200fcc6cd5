"""Queues on virtio network cards, whose driver says that it has zero copy: in the machine of `tests/vm/run --nics`."""

from __future__ import annotations

import logging
import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from xts_bpf.device import DeviceQueues, open_device_queues
from xts_bpf.zero_copy import QueueBinder
from xts_lab import netns
from xts_messages.machine import mac_address, xdp_features
from xts_messages.queues.queue_kinds import QueueOptions

ENDS = ("host", "dpu")
#: MTU -> whether virtio-net has zero copy with it (Linux 7.3): a packet has to fit into a buffer.
MTUS = {1280: True, 1500: True, 3804: True, 3826: False}
MACS = {end: f"52:54:00:aa:00:0{number}" for number, end in enumerate(ENDS, start=1)}


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


@pytest.fixture(scope="module")
def cards() -> Iterator[dict[str, str]]:
    """Their interfaces, each in a namespace of its own."""
    found = {(folder / "address").read_text().strip(): folder.name for folder in Path("/sys/class/net").glob("e*")}
    if not os.environ.get("XTS_VM") or not set(MACS.values()) <= found.keys():
        pytest.skip("this is not the virtual machine with network cards (tests/vm/run --nics)")
    names = {end: found[MACS[end]] for end in ENDS}
    features = xdp_features.ask()
    for end, name in names.items():
        assert features[int(Path(f"/sys/class/net/{name}/ifindex").read_text())].zero_copy
        ip("netns", "add", end)
        ip("link", "set", name, "netns", end)
        ip("-n", end, "link", "set", name, "up")
    yield names
    for end in ENDS:
        ip("netns", "del", end)


def opened(cards: dict[str, str], end: str, stack: ExitStack, zero_copy: bool) -> DeviceQueues:
    peer = mac_address.station(MACS[next(other for other in ENDS if other != end)])
    binder = QueueBinder("auto", "ethtool", logging.getLogger("test"))
    with netns.inside(end):
        queues = stack.enter_context(
            open_device_queues(cards[end], 1, peer, options=QueueOptions(frame_window=16), binder=binder)
        )
    assert binder.mode.zero_copy == zero_copy, binder.mode.reason
    return queues


@pytest.mark.parametrize("mtu", MTUS)
def test_frames_cross_whatever_the_driver_does(cards: dict[str, str], mtu: int) -> None:
    """With zero copy, or in copy mode after the driver has refused it."""
    for end, name in cards.items():
        ip("-n", end, "link", "set", name, "mtu", str(mtu))
    with ExitStack() as stack:
        host, device = (opened(cards, end, stack, MTUS[mtu]).queues[0] for end in ENDS)
        for number, size in enumerate((60, 600, 1000, mtu + 14) * 8):
            source, sink = (host, device) if number % 2 else (device, host)
            frame = source.peer_mac + source.local_mac + b"\x85\x5b" + bytes([7, number]) + os.urandom(size - 16)
            source.send(frame)
            received = sink.wait(20_000)
            assert bytes(received) == frame
            received.recycle()
