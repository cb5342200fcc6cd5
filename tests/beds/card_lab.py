"""Labs whose hosts and device have network cards: the two virtio cards of `tests/vm/run --nics`, on one hub.

From a queue with zero copy virtio_net sends no answer of an XDP program, so that no probe proves a queue at both ends
(explanation/zero-copy.md). An interface with one queue needs no address for it, and so no probe: a CardLab without
addresses has zero copy at both ends. A ZeroCopyLab has it at one, with addresses, probes and secrets.
"""

from __future__ import annotations

import os
import re
import time
from typing import Any

from pyroute2 import IPRoute
from xts_lab import netns, topology
from xts_lab.lab import Lab, Left
from xts_lab.privilege import RUN_DIRECTORY
from xts_messages.attaching.attach import list_queues
from xts_proxy.status import control_socket

from beds import card_queues
from beds.patience import SLOWER

#: In TESTS_WIRE (beds/lab.py).
CARDS = "cards"
ZERO_COPY = "zero copy: "
#: Up to which a packet fits into one buffer, as virtio_net's zero copy needs it.
ZERO_COPY_MTU = 3804
#: Names of labs that tests make.
LEFT = re.compile(r"(t|stress)\d+[a-z0-9-]*")

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

    def copied(self) -> str:
        """What is said of the queues of an end that are in copy mode; "": at both ends they have zero copy. The agent
        knows nothing for a moment, when a process has just given its queue back."""
        deadline = time.monotonic() + card_queues.BACK_S
        while not (host := self._host_copying()):
            assert time.monotonic() < deadline, "the agent opens no queue"
            time.sleep(0.1)
        interface = control_socket.ask(str(self.control), control_socket.Question("status", False))["interface"]
        said = {"host": host, "device": str(interface["copying"])}
        return "; ".join(f"{end}: {how}" for end, how in said.items() if not how.startswith(ZERO_COPY))

    def _host_copying(self) -> str:
        (offered,) = list_queues(str(self.endpoint), int(5000 * SLOWER))
        return offered.copying

    def _tear_down(self) -> list[Left]:
        for end in MACS:
            if not netns.exists(topology.namespace_of(self.name, end.role)):
                continue
            with topology.routing(self.name, end.role) as route:
                for index in route.link_lookup(ifname=end.interface):
                    route.link("set", index=index, net_ns_pid=1)
        return super()._tear_down()


class ZeroCopyLab(CardLab):
    """With zero copy at one end, and in copy mode at the other, which answers probes or gets their answers."""

    def __init__(self, name: str, end: topology.End, **settings: Any) -> None:
        super().__init__(name, **settings)
        self.end = end

    def proxy_configuration(self) -> str:
        text = super().proxy_configuration()
        return text.replace("[proxy]\n", '[proxy]\nzero_copy = "off"\n', 1) if self.end is topology.HOST_XTS else text


def take_back() -> None:
    """In the virtual machine, between programs of tests: labs and namespaces that one has left when it was ended are
    taken down, and the cards are waited for, which come back a moment after their namespaces have gone."""
    for folder in RUN_DIRECTORY.glob("*"):
        if LEFT.fullmatch(folder.name):
            CardLab(folder.name).down()
    for namespace in card_queues.ENDS:
        netns.remove(namespace)
    deadline = time.monotonic() + card_queues.BACK_S
    while not set(MACS.values()) <= found().keys():
        assert time.monotonic() < deadline, "the network cards do not come back"
        time.sleep(0.1)
