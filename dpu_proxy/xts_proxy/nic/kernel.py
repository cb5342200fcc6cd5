"""The kernel of the device: its TCP, its segmentation, and the features of an interface (pyroute2, by ethtool)."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import suppress

from xts_proxy.nic.answer import Answer, Capability

_SO_MAX_PACING_RATE = 47
_UDP_SEGMENT = 103
#: ioctl SIOCETHTOOL's names of features, as pyroute2 gives them.
_TSO = ("tx-tcp-segmentation", "tx-tcp6-segmentation")
_NTUPLE = "rx-ntuple-filter"


def features(interface: str) -> dict[str, bool]:
    """Which features of an interface are on, by name. OSError: there is no such interface, or nobody says."""
    from pyroute2 import Ethtool
    from pyroute2.netlink.exceptions import NetlinkError

    try:
        with Ethtool() as ethtool:
            found = ethtool.get_features(interface)
    except NetlinkError as error:
        raise OSError(error.code, os.strerror(error.code)) from error
    return {name: bool(feature.enable) for name, feature in found.features.items()}


class Kernel:
    """What any kernel does, and what the interface's driver does for it."""

    name = "kernel"

    def answers(self, interface: str) -> Iterator[Answer]:
        try:
            on, problem = features(interface), ""
        except (OSError, ImportError) as error:
            on, problem = {}, f"features of {interface} are not known: {error}"
        yield self._pacing()
        yield self._segmentation(interface, on, problem)
        for capability in (Capability.STEER_DSCP, Capability.STEER_FLOW, Capability.STEER_VNI):
            if on.get(_NTUPLE):
                why = f"{interface} has rules for received frames (ethtool -N); the proxy does not install any for this"
            else:
                why = problem or f"the driver of {interface} has no rules for received frames"
            yield Answer(capability, False, self.name, reason=why)
        yield Answer(
            Capability.ACK_TIMEOUT, True, self.name, "in ms, by socket", "of TCP: TCP_USER_TIMEOUT, not of RDMA"
        )
        yield Answer(
            Capability.ESTABLISH, True, self.name, "in s, by listener",
            "of TCP: with TCP_DEFER_ACCEPT a listener sees a connection when its client has sent something",
        )  # fmt: skip

    def _pacing(self) -> Answer:
        try:
            with socket.socket() as tried:
                tried.setsockopt(socket.SOL_SOCKET, _SO_MAX_PACING_RATE, 1 << 20)
        except OSError as error:
            return Answer(Capability.PACING, False, self.name, reason=f"SO_MAX_PACING_RATE: {error.strerror}")
        return Answer(Capability.PACING, True, self.name, "by TCP socket", "SO_MAX_PACING_RATE, kept by TCP itself")

    def _segmentation(self, interface: str, on: dict[str, bool], problem: str) -> Answer:
        done = [name for name in _TSO if on.get(name)]
        datagrams = False
        with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as tried:
            tried.setsockopt(socket.IPPROTO_UDP, _UDP_SEGMENT, 1400)
            datagrams = True
        by = f"the driver of {interface} ({', '.join(done)})" if done else "the kernel, just before the driver (GSO)"
        what = "TCP and UDP (UDP_SEGMENT)" if datagrams else "TCP"
        return Answer(Capability.SEGMENTATION, True, self.name, f"64 KiB of {what}", problem or f"by {by}")
