"""What the drivers of this machine's interfaces can do for AF_XDP: the kernel's netlink family "netdev" (Linux 6.3).

A driver says which of XDP's parts it has, and to how many buffers a frame may extend when it does not copy. No
privilege is needed. pyroute2 has its own event loop, so whoever runs one asks in another thread (`ask_outside()`).
"""

from __future__ import annotations

import errno
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

#: enum netdev_xdp_act of linux/netdev.h
BASIC, REDIRECT, ZERO_COPY, RX_SEVERAL = 1, 2, 8, 32
_CMD_DEV_GET = 1


@dataclass(frozen=True, slots=True)
class XdpFeatures:
    """Of one interface. `buffers`: how many a frame may have with zero copy; 1: it has to fit into one."""

    bits: int
    buffers: int = 1

    @property
    def native(self) -> bool:
        """Can queues be on this interface at all?"""
        return bool(self.bits & BASIC and self.bits & REDIRECT)

    @property
    def zero_copy(self) -> bool:
        return bool(self.bits & ZERO_COPY)

    @property
    def several_buffers(self) -> bool:
        """Frames over several buffers, where the driver copies."""
        return bool(self.bits & RX_SEVERAL)


def ask() -> dict[int, XdpFeatures]:
    """What the drivers of this namespace's interfaces have, by the interface's number. OSError EOPNOTSUPP: the kernel
    does not say (it is older than 6.3). ImportError: there is no pyroute2."""
    from pyroute2.netlink import NLM_F_DUMP, NLM_F_REQUEST, genlmsg
    from pyroute2.netlink.exceptions import NetlinkError
    from pyroute2.netlink.generic import GenericNetlinkSocket

    class netdev(genlmsg):  # type: ignore[misc]  # noqa: N801 - pyroute2's way of declaring a message
        prefix = "NETDEV_A_DEV_"
        nla_map = (
            ("NETDEV_A_DEV_UNSPEC", "none"),
            ("NETDEV_A_DEV_IFINDEX", "uint32"),
            ("NETDEV_A_DEV_PAD", "none"),
            ("NETDEV_A_DEV_XDP_FEATURES", "uint64"),
            ("NETDEV_A_DEV_XDP_ZC_MAX_SEGS", "uint32"),
            ("NETDEV_A_DEV_XDP_RX_METADATA_FEATURES", "uint64"),
            ("NETDEV_A_DEV_XSK_FEATURES", "uint64"),
        )

    try:
        with GenericNetlinkSocket() as netlink:
            netlink.bind("netdev", netdev)
            question = netdev()
            question["cmd"], question["version"] = _CMD_DEV_GET, 1
            flags = NLM_F_REQUEST | NLM_F_DUMP
            answers = list(netlink.nlm_request(question, msg_type=netlink.prid, msg_flags=flags))
    except (NetlinkError, KeyError) as failure:
        raise OSError(errno.EOPNOTSUPP, f"the kernel does not report XDP features: {failure}") from None
    return {int(answer.get_attr("NETDEV_A_DEV_IFINDEX")): _features(answer) for answer in answers}


def _features(answer: Any) -> XdpFeatures:
    """The kernel leaves the number of buffers out where there is no zero copy."""
    bits = int(answer.get_attr("NETDEV_A_DEV_XDP_FEATURES") or 0)
    return XdpFeatures(bits, max(1, int(answer.get_attr("NETDEV_A_DEV_XDP_ZC_MAX_SEGS") or 1)))


def ask_outside() -> dict[int, XdpFeatures]:
    """The same, from a thread that may have an event loop."""
    with ThreadPoolExecutor(1) as outside:
        return outside.submit(ask).result()
