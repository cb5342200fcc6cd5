"""A lab whose hosts and device have network cards: the two virtio cards of `tests/vm/run --nics`, on one hub."""

from __future__ import annotations

import os
from typing import Any

from pyroute2 import IPRoute
from xts_lab import netns, topology
from xts_lab.lab import Lab, Left

#: In TESTS_WIRE (beds/lab.py).
CARDS = "cards"
MACS = {topology.HOST_XTS: "52:54:00:aa:00:01", topology.DPU_XTS: "52:54:00:aa:00:02"}


def found() -> dict[str, int]:
    """Hardware address -> number of the interfaces that nobody has taken yet. Others may rename them at any time."""
    with IPRoute() as here:
        return {link.get_attr("IFLA_ADDRESS"): int(link["index"]) for link in here.get_links()}


def missing() -> str:
    """Why there are no cards here, or ""."""
    if os.environ.get("XTS_VM") and set(MACS.values()) <= found().keys():
        return ""
    return "this is not the virtual machine with network cards (tests/vm/run --nics)"


class CardLab(Lab):
    """Its cards have one queue each, and go back to where they came from when it is taken down."""

    def __init__(self, name: str, **settings: Any) -> None:
        super().__init__(name, **(settings | {"queues": 1}))

    def _raise_network(self) -> None:
        topology.raise_network(self.name, self.settings.queues, cables=topology.NETWORK_CABLES)
        for end in MACS:
            self.put_card(end)

    def put_card(self, end: topology.End) -> None:
        """The card of this end is put where it belongs: at first, and when its driver was bound again."""
        index = found()[MACS[end]]
        with IPRoute() as here:
            here.link("set", index=index, state="down")
            here.link("set", index=index, ifname=end.interface, mtu=self.settings.mtu)
            with netns.path_of(topology.namespace_of(self.name, end.role)).open() as namespace:
                here.link("set", index=index, net_ns_fd=namespace.fileno())
        topology._configure(self.name, end)

    def _tear_down(self) -> list[Left]:
        for end in MACS:
            if not netns.exists(topology.namespace_of(self.name, end.role)):
                continue
            with topology.routing(self.name, end.role) as route:
                for index in route.link_lookup(ifname=end.interface):
                    route.link("set", index=index, net_ns_pid=1)
        return super()._tear_down()
