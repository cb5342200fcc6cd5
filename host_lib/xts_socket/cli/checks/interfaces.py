"""Interfaces: the XDP features of each driver, as reported by the kernel's netlink family "netdev" (from Linux 6.3)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from xts_messages.attaching.attach import OfferedQueues
from xts_messages.machine import xdp_features
from xts_messages.machine.xdp_features import BASIC, REDIRECT, RX_SEVERAL, ZERO_COPY, XdpFeatures

from . import Check
from .offered import queues

_LOOPBACK = 0x8  # IFF_LOOPBACK


def checks() -> Iterator[Check]:
    try:
        links = list(_links())
        features = xdp_features.ask()
    except ImportError as failure:
        yield Check("interfaces", "warn", f"not looked at: {failure}", "pip install pyroute2")
        return
    except Exception as failure:  # netlink: the kernel is too old, or a sandbox forbids it
        yield Check("interfaces", "warn", f"the kernel does not report XDP features: {failure}", "Linux 6.3")
        return
    if not links:
        yield Check("interfaces", "warn", "none but loopback in this namespace", "for AF_XDP: one with native XDP")
    wanted = _wanted_programs()
    for index, name, mode in links:
        yield interface(name, mode, features.get(index), wanted.get(name, ""))


def interface(name: str, mode: str, features: XdpFeatures | None, fault: str = "") -> Check:
    """What its driver has. `fault`: what is wrong with the program that an agent needs there."""
    label = f"interface {name}"
    if features is None:
        return Check(label, "warn", "unknown to the netdev family")
    bits = features.bits
    named = (BASIC, "native XDP"), (REDIRECT, "redirect"), (RX_SEVERAL, "multi-buffer"), (ZERO_COPY, _zero(features))
    has = [text for bit, text in named if bits & bit]
    found = ", ".join(has) + ("; no multi-buffer" if has and not features.several_buffers else "") + mode
    if not features.native:
        found = found if has else "no native XDP" + mode
        return Check(label, "warn", found, "cannot carry AF_XDP queues; use another, or shm")
    if fault:
        return Check(label, "fail", f"{found}; {fault}", f"see: queues of {name}")
    if not features.several_buffers:
        return Check(label, "warn", found, "works with single-chunk messages; bulk is slower")
    return Check(label, "ok", found)


def _zero(features: XdpFeatures) -> str:
    return "zero-copy" + ("" if features.buffers == 1 else f" of up to {features.buffers} buffers")


def _wanted_programs() -> dict[str, str]:
    """What is wrong with the program of each interface on which the endpoint's agent has queues, by its name."""
    try:
        offered = queues()
        attached = attached_programs()
    except Exception:  # no agent, or no netlink, as other checks say
        return {}
    return {one.interface: program_fault(one, attached) for one in offered}


def program_fault(offered: OfferedQueues, attached: dict[str, int]) -> str:
    """What is wrong with the XDP program on an interface with queues; "": nothing, or it is not known."""
    wanted, found = offered.program_id, attached.get(offered.interface)
    if not wanted or found is None or found == wanted:
        return ""
    return (
        f"XDP program {found}, and the agent's is {wanted}" if found else f"no XDP program, and the agent's is {wanted}"
    )


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
