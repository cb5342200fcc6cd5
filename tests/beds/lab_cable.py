"""The cable of a lab that carries queues, taken out and put in again."""

from __future__ import annotations

from xts_bpf.interface_state import InterfaceState, read_state
from xts_lab import topology
from xts_lab.lab import Lab

ENDS = (topology.HOST_XTS, topology.DPU_XTS)


def state_of(lab: Lab, end: topology.End) -> InterfaceState | None:
    with lab.inside(end.role):
        return read_state(end.interface)


def set_link(lab: Lab, end: topology.End, **what: object) -> None:
    with topology.routing(lab.name, end.role) as route:
        route.link("set", index=topology.index_of(route, end.interface), **what)


def take_out(lab: Lab) -> dict[str, str]:
    """Removes the interfaces of both ends. Returns their addresses, for put_in()."""
    addresses = {end.role: topology.mac_address(lab.name, end) for end in ENDS}
    with topology.routing(lab.name, ENDS[0].role) as route:
        route.link("del", index=topology.index_of(route, ENDS[0].interface))
    return addresses


def put_in(lab: Lab, addresses: dict[str, str]) -> None:
    """Makes the interfaces again, as they were before."""
    (cable,) = (cable for cable in topology.CABLES if cable.a in ENDS)
    topology._connect(lab.name, cable, lab.settings.queues)
    for end in ENDS:
        set_link(lab, end, address=addresses[end.role])
        topology._configure(lab.name, end)
