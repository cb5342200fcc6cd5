"""Two network namespaces joined by a veth pair with eight queues and a large MTU: the wire of the link tests."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from pyroute2 import NetNS, netns
from xts_lab.privilege import afxdp_unavailable, missing_privilege

_numbers = itertools.count()


@dataclass(frozen=True)
class Wire:
    """Interfaces `host_if` in namespace `host`, `device_if` in `device`."""

    host: str
    device: str
    host_if: str = "xts0"
    device_if: str = "xts1"
    host_mac: bytes = bytes.fromhex("020000000001")
    device_mac: bytes = bytes.fromhex("020000000002")

    @contextlib.contextmanager
    def inside(self, name: str) -> Iterator[None]:
        """This thread works in a namespace."""
        netns.pushns(name)
        try:
            yield
        finally:
            netns.popns()


def join(wire: Wire, mtu: int, queues: int = 8) -> None:
    """Makes the pair of interfaces of a wire, in namespaces that are there."""
    with NetNS(wire.host) as host, NetNS(wire.device) as device:
        host.link(
            "add",
            ifname=wire.host_if,
            kind="veth",
            address=wire.host_mac.hex(":"),
            mtu=mtu,
            num_tx_queues=queues,
            num_rx_queues=queues,
            peer={
                "ifname": wire.device_if,
                "address": wire.device_mac.hex(":"),
                "mtu": mtu,
                "num_tx_queues": queues,
                "num_rx_queues": queues,
                "net_ns_fd": wire.device,
            },
        )
        for ns, name in ((host, wire.host_if), (device, wire.device_if)):
            ns.link("set", index=ns.link_lookup(ifname=name)[0], state="up")


def make_wire(mtu: int) -> Iterator[Wire]:
    if lacking := missing_privilege():
        pytest.skip(f"network namespaces need root; lacking {', '.join(lacking)}")
    if reason := afxdp_unavailable():
        pytest.skip(reason)
    stem = f"xtslink{os.getpid()}-{next(_numbers)}"
    wire = Wire(f"{stem}h", f"{stem}d")
    try:
        netns.create(wire.host)
        netns.create(wire.device)
        join(wire, mtu)
        yield wire
    finally:
        for name in (wire.host, wire.device):
            with contextlib.suppress(OSError):
                netns.remove(name)
