"""The interfaces of the endpoint's queues: do they carry anything now, and have they the XDP program that they need?

The agent says which program it has attached. What is on the interface is read at this moment, since any tool may take
the program off, or put another in its place.
"""

from __future__ import annotations

from collections.abc import Iterator

from xts_messages.attaching.attach import OfferedQueues

from . import Check
from .interfaces import attached_programs, program_fault
from .offered import queues


def checks() -> Iterator[Check]:
    try:
        offered = queues()
    except OSError:  # there is no endpoint, as another check says; or it is older
        return
    if not offered:  # shared memory
        return
    try:
        attached = attached_programs()
    except Exception:  # netlink: a sandbox forbids it, or pyroute2 is not there, as another check says
        attached = {}
    for one in offered:
        yield _queues(one, attached)


def _queues(offered: OfferedQueues, attached: dict[str, int]) -> Check:
    label, interface = f"queues of {offered.interface}", offered.interface
    if offered.problem:
        return Check(label, "fail", offered.problem, "the agent goes on by itself when that is over")
    wanted = offered.program_id
    if not wanted and offered.copying.startswith("RDMA"):  # there is no XDP
        up = offered.copying.endswith("the relay is up")
        mend = "" if up else "the agent tries again by itself; how-to/rdma.md has the reasons"
        return Check(label, "ok" if up else "fail", offered.copying, mend)
    if not wanted:
        return Check(label, "warn", "the agent does not say which XDP program it has", "a newer xts-agent")
    if interface not in attached:
        return _steering(label, offered, f"the agent has XDP program {wanted} there, which is not visible from here")
    found = attached[interface]
    if fault := program_fault(offered, attached):
        whose = f"bpftool prog show id {found}: then remove it (ip link set {interface} xdp off)"
        return Check(label, "fail", fault, whose if found else "look at the log of xts-agent")
    return _steering(label, offered, f"XDP program {found}, the agent's")


def _steering(label: str, offered: OfferedQueues, program: str) -> Check:
    """How frames find their queue, and whether the driver copies them."""
    program += f"; {offered.copying}" if offered.copying else ""
    if not offered.lacking:
        return Check(label, "ok", program + (f"; {offered.steering}" if offered.steering else ""))
    if not offered.queues and not offered.relayed:
        remedy = "a card with rules on both ends, or interfaces with one queue (explanation/steering.md)"
        return Check(label, "fail", f"{program}; {offered.steering}", remedy)
    remedy = "more processes share the relay; give agent and proxy a card with rules (how-to/bluefield.md)"
    return Check(label, "warn", f"{program}; {offered.steering}", remedy)
