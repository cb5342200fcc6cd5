"""What is between the host's queues and the device's: the lab's wire.

    cable    a veth pair: queue N of one end is queue N of the other
    bridge   a bridge with a veth pair to each end: the receiving end chooses a queue by its own rule
    switch   the same, and the ports do what a card does with a frame that is not IP: it arrives on queue 0, unless a
             rule says otherwise (card.py)

On a cable a frame cannot arrive on another queue than it was sent for. On a card it does, and on a bridge.
"""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from pathlib import Path

from . import card, netns, topology
from .slow_cable import Pace
from .topology import Cable, End

BRIDGE = "bridge0"
HOST_PORT = End(topology.SWITCH_ROLE, "port0")
DPU_PORT = End(topology.SWITCH_ROLE, "port1")
#: The port of each end.
PORTS = {topology.HOST_XTS: HOST_PORT, topology.DPU_XTS: DPU_PORT}


class Wire(StrEnum):
    """The kinds of wire."""

    CABLE = "cable"
    BRIDGE = "bridge"
    SWITCH = "switch"

    @property
    def says(self) -> str:
        """For people."""
        return {
            Wire.CABLE: "a cable: queue N of one end is queue N of the other",
            Wire.BRIDGE: "a plain bridge: the receiving end chooses the queue of a frame",
            Wire.SWITCH: "a switch with cards: frames arrive on queue 0 unless a rule says otherwise",
        }[self]

    def roles(self) -> tuple[str, ...]:
        """The namespaces of a lab with this wire."""
        return topology.ROLES if self is Wire.CABLE else topology.EVERY_ROLE

    def cables(self, mtu: int = topology.XTS_MTU) -> tuple[Cable, ...]:
        """The veth pairs of a lab with this wire, of this MTU."""
        if self is Wire.CABLE:
            return tuple(replace(cable, mtu=mtu) if cable.queues is None else cable for cable in topology.CABLES)
        ports = (Cable(end, port, mtu, None) for end, port in PORTS.items())
        return (*ports, *topology.NETWORK_CABLES)


def raise_network(lab: str, device_queues: int, wire: Wire, mtu: int = topology.XTS_MTU) -> None:
    """Makes a lab's namespaces and everything in them."""
    topology.raise_network(lab, device_queues, wire.roles(), wire.cables(mtu))
    if wire is not Wire.CABLE:
        _join_ports(lab, mtu)
    if wire is Wire.BRIDGE:
        with netns.inside(topology.namespace_of(lab, topology.SWITCH_ROLE)):
            for port in PORTS.values():
                card.let_answers_through(port.interface)


def _join_ports(lab: str, mtu: int) -> None:
    """Makes the bridge, with the ports in it. It forwards at once, and sends nothing itself."""
    role = topology.SWITCH_ROLE
    with topology.routing(lab, role) as route:
        route.link("add", ifname=BRIDGE, kind="bridge", br_stp_state=0, br_mcast_snooping=0)
        bridge = topology.index_of(route, BRIDGE)
        for port in PORTS.values():
            route.link("set", index=topology.index_of(route, port.interface), master=bridge)
        with netns.inside(topology.namespace_of(lab, role)):
            netns.set_sysctl(f"ipv6/conf/{BRIDGE}/disable_ipv6", 1)
        route.link("set", index=bridge, mtu=mtu, state="up")


def set_cables(path: Path, cable: card.Cable) -> None:
    """From now on the cables between a switch and both ends are like this. `path`: where its cards answer."""
    for end in PORTS:
        card.set_cable(path, end.interface, cable)


def set_paces(path: Path, pace: Pace) -> None:
    """From now on both ways through a switch are like this."""
    for end in PORTS:
        card.set_pace(path, end.interface, pace)
