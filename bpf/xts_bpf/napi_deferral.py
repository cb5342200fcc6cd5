"""Interfaces that do without interrupts while they are polled: napi_defer_hard_irqs and gro_flush_timeout, for each
NAPI of an interface, by the kernel's netlink family "netdev" (Linux 6.13).

A card's interrupt and busy polling get in each other's way. With these two the kernel leaves interrupts off after a
poll that found something, up to a time, and polls itself when that is over. They are the interface's and may delay all
its frames, so they are changed only where the configuration asks for it, and what was there before is put back.

Files in /sys are of the network namespace in which that was mounted, and their writers have to be root: hence netlink.
"""

from __future__ import annotations

import errno
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

#: How often a poll may find nothing before interrupts are on again.
_DEFER = 2
_NAPI_GET, _NAPI_SET = 11, 14


@dataclass(frozen=True, slots=True)
class Napi:
    """One of an interface's, with its settings."""

    napi_id: int
    defer_hard_irqs: int
    gro_flush_ns: int


def _ask(run: Callable[[Any, Any], Any]) -> Any:
    """Calls it with a socket of the family and the class of its messages. OSError: the kernel has none, or refuses."""
    from pyroute2.netlink import genlmsg
    from pyroute2.netlink.exceptions import NetlinkError
    from pyroute2.netlink.generic import GenericNetlinkSocket

    class napi(genlmsg):  # type: ignore[misc]  # noqa: N801 - pyroute2's way of declaring a message
        prefix = "NETDEV_A_NAPI_"
        nla_map = (
            ("NETDEV_A_NAPI_UNSPEC", "none"),
            ("NETDEV_A_NAPI_IFINDEX", "uint32"),
            ("NETDEV_A_NAPI_ID", "uint32"),
            ("NETDEV_A_NAPI_IRQ", "uint32"),
            ("NETDEV_A_NAPI_PID", "uint32"),
            ("NETDEV_A_NAPI_DEFER_HARD_IRQS", "uint32"),
            ("NETDEV_A_NAPI_GRO_FLUSH_TIMEOUT", "cdata"),
        )

    try:
        with GenericNetlinkSocket() as netlink:
            netlink.bind("netdev", napi)
            return run(netlink, napi)
    except (NetlinkError, KeyError, ImportError) as failure:
        number = getattr(failure, "code", 0) or errno.EOPNOTSUPP
        raise OSError(number, f"the kernel does not set this for each NAPI (Linux 6.13): {failure}") from None


def _outside(run: Callable[[Any, Any], Any]) -> Any:
    """The same, from a thread that may have an event loop."""
    with ThreadPoolExecutor(1) as outside:
        return outside.submit(_ask, run).result()


def napis(ifindex: int) -> list[Napi]:
    """Those of an interface of this namespace. OSError: they are not known."""

    def run(netlink: Any, napi: Any) -> list[Napi]:
        from pyroute2.netlink import NLM_F_DUMP, NLM_F_REQUEST

        question = napi()
        question["cmd"], question["version"] = _NAPI_GET, 1
        flags = NLM_F_REQUEST | NLM_F_DUMP
        answers = netlink.nlm_request(question, msg_type=netlink.prid, msg_flags=flags)
        return [_napi(answer) for answer in answers if answer.get_attr("NETDEV_A_NAPI_IFINDEX") == ifindex]

    found: list[Napi] = _outside(run)
    if any(one.gro_flush_ns < 0 for one in found):
        raise OSError(errno.EOPNOTSUPP, "the kernel does not set this for each NAPI (Linux 6.13)")
    return found


def _napi(answer: Any) -> Napi:
    """An older kernel leaves the settings out: -1."""
    flush = answer.get_attr("NETDEV_A_NAPI_GRO_FLUSH_TIMEOUT")
    flush_ns = -1 if flush is None else int.from_bytes(flush, sys.byteorder)
    return Napi(
        int(answer.get_attr("NETDEV_A_NAPI_ID")), int(answer.get_attr("NETDEV_A_NAPI_DEFER_HARD_IRQS") or 0), flush_ns
    )


def change(wanted: list[Napi]) -> None:
    """Sets them. OSError ENOENT: one is not there any more; another: the kernel refuses."""

    def run(netlink: Any, napi: Any) -> None:
        from pyroute2.netlink import NLM_F_ACK, NLM_F_REQUEST

        for one in wanted:
            message = napi()
            message["cmd"], message["version"] = _NAPI_SET, 1
            message["attrs"] = [
                ("NETDEV_A_NAPI_ID", one.napi_id),
                ("NETDEV_A_NAPI_DEFER_HARD_IRQS", one.defer_hard_irqs),
                ("NETDEV_A_NAPI_GRO_FLUSH_TIMEOUT", one.gro_flush_ns.to_bytes(8, sys.byteorder)),
            ]
            netlink.nlm_request(message, msg_type=netlink.prid, msg_flags=NLM_F_REQUEST | NLM_F_ACK)

    _outside(run)


class Deferral:
    """Of an interface, while it lasts. `problem`: why it is not in force; "": it is, or is not wanted."""

    def __init__(self, defer_us: int) -> None:
        self._defer_us = defer_us
        self._before: list[Napi] = []
        self.problem = ""

    def begin(self, ifindex: int) -> None:
        """The interface, which may have been made again: puts it in force."""
        if not self._defer_us:
            return
        try:
            before = [self._without_ours(one) for one in napis(ifindex)]
            change([self._ours(one.napi_id) for one in before])
        except OSError as failure:
            self.problem = failure.strerror or str(failure)
            return
        self._before, self.problem = before, ""

    def _ours(self, napi_id: int) -> Napi:
        return Napi(napi_id, _DEFER, self._defer_us * 1000)

    def _without_ours(self, one: Napi) -> Napi:
        """What a process before us has set, which handed over or was killed, is not what was there before it. That is
        not known: it is the kernel's default then."""
        return Napi(one.napi_id, 0, 0) if one == self._ours(one.napi_id) else one

    def end(self) -> None:
        """Puts back what was there, at NAPIs that are still there. May be called again."""
        before, self._before = self._before, []
        for one in before:
            try:
                change([one])
            except OSError:  # it has gone, and its settings with it
                continue

    @property
    def said(self) -> str:
        """For people; "": not wanted."""
        if not self._defer_us:
            return ""
        return f"interrupts not deferred: {self.problem}" if self.problem else f"deferred by {self._defer_us} us"
