"""Interfaces: the XDP features of each driver, as reported by the kernel's netlink family "netdev" (from Linux 6.3)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from . import Check

# enum netdev_xdp_act of <linux/netdev.h>
_BASIC, _REDIRECT, _ZERO_COPY, _RX_SG = 1, 2, 8, 32
_CMD_DEV_GET = 1
_LOOPBACK = 0x8  # IFF_LOOPBACK


def checks() -> Iterator[Check]:
    try:
        links = list(_links())
        features = _features()
    except ImportError as failure:
        yield Check("interfaces", "warn", f"not looked at: {failure}", "pip install pyroute2")
        return
    except Exception as failure:  # netlink: the kernel is too old, or a sandbox forbids it
        yield Check("interfaces", "warn", f"the kernel does not report XDP features: {failure}", "Linux 6.3")
        return
    if not links:
        yield Check("interfaces", "warn", "none but loopback in this namespace", "for AF_XDP: one with native XDP")
    for index, name, mode in links:
        yield _interface(name, mode, features.get(index))


def _interface(name: str, mode: str, bits: int | None) -> Check:
    label = f"interface {name}"
    if bits is None:
        return Check(label, "warn", "unknown to the netdev family")
    has = [
        text
        for bit, text in (
            (_BASIC, "native XDP"),
            (_REDIRECT, "redirect"),
            (_RX_SG, "multi-buffer"),
            (_ZERO_COPY, "zero-copy"),
        )
        if bits & bit
    ]
    found = ", ".join(has) + ("; no multi-buffer" if has and not bits & _RX_SG else "") + mode
    if not bits & _BASIC or not bits & _REDIRECT:
        found = found if has else "no native XDP" + mode
        return Check(label, "warn", found, "cannot carry AF_XDP queues; use another, or shm")
    if not bits & _RX_SG:
        return Check(label, "warn", found, "works with single-chunk messages; bulk is slower")
    return Check(label, "ok", found)


def _links() -> Iterator[tuple[int, str, str]]:
    """(index, name, how XDP is attached) of each interface that is not loopback."""
    from pyroute2 import IPRoute

    with IPRoute() as route:
        for link in route.get_links():
            if not link["flags"] & _LOOPBACK:
                xdp: Any = link.get_attr("IFLA_XDP")
                attached = xdp.get_attr("IFLA_XDP_ATTACHED") if xdp else None
                mode = f"; attached: {attached}" if attached else ""
                yield link["index"], link.get_attr("IFLA_IFNAME"), mode


def attached_programs() -> dict[str, int]:
    """The number of the XDP program of each interface of this namespace, by its name; 0: it has none."""
    from pyroute2 import IPRoute

    with IPRoute() as route:
        return {link.get_attr("IFLA_IFNAME"): _program(link.get_attr("IFLA_XDP")) for link in route.get_links()}


def _program(xdp: Any) -> int:
    numbers = (f"IFLA_XDP_{mode}PROG_ID" for mode in ("DRV_", "HW_", "SKB_", ""))
    return next((found for number in numbers if xdp and (found := int(xdp.get_attr(number) or 0))), 0)


def _features() -> dict[int, int]:
    """xdp-features by interface index."""
    from pyroute2.netlink import NLM_F_DUMP, NLM_F_REQUEST, genlmsg
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

    with GenericNetlinkSocket() as netlink:
        netlink.bind("netdev", netdev)
        question = netdev()
        question["cmd"] = _CMD_DEV_GET
        question["version"] = 1
        answers = netlink.nlm_request(question, msg_type=netlink.prid, msg_flags=NLM_F_REQUEST | NLM_F_DUMP)
        return {
            answer.get_attr("NETDEV_A_DEV_IFINDEX"): answer.get_attr("NETDEV_A_DEV_XDP_FEATURES") or 0
            for answer in answers
        }
