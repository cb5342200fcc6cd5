"""Interfaces that have no queues of a card, because they are made of others: what to use instead, in words.

The kernel refuses an XDP program on most of them, in words that do not say why. A bond may have one, but its frames
arrive as those of its ports, and an AF_XDP socket takes only frames of the interface that it is bound to
(xsk_rcv_check() in the kernel's net/xdp/xsk.c).
"""

from __future__ import annotations

import errno

from xts_bpf.interface_driver import driver_of

#: What the driver is called (ethtool -i) -> what is said.
_SENTENCES = {
    "802.1Q VLAN Support": "{name} is a VLAN device, and an XDP program sees frames before their tag is taken off: use "
    "the interface below it (ip -d link show {name}), with untagged frames",
    "bonding": "{name} is a bond, whose frames arrive on the queues of its ports: use one of these, outside of the "
    "bond, or two interfaces of the agent",
    "team": "{name} is a team, whose frames arrive on the queues of its ports: use one of these, outside of the team",
    "bridge": "{name} is a bridge, which has no queues: use one of its ports, outside of the bridge",
    "macvlan": "{name} is a macvlan device, which has no queues: use the interface below it (ip -d link show {name})",
    "ipvlan": "{name} is an ipvlan device, which has no queues: use the interface below it (ip -d link show {name})",
}


def why_no_queues(driver: str, name: str) -> str:
    """Why an interface with this driver cannot carry queues, and what can; "": nothing speaks against it."""
    sentence = _SENTENCES.get(driver)
    return sentence.format(name=name) if sentence else ""


def refuse_stacked(name: str) -> None:
    """OSError EOPNOTSUPP: the interface is made of others."""
    if why := why_no_queues(driver_of(name), name):
        raise OSError(errno.EOPNOTSUPP, why)
