"""XDP: frames by their class to the CPU of a worker (xts_bpf/classes.py), and raw frames by AF_XDP."""

from __future__ import annotations

import socket
from collections.abc import Iterator

from xts_messages.machine.xdp_features import XdpFeatures, ask

from xts_proxy.config.config_steer import CPU_MAX, RULES_MAX
from xts_proxy.nic.answer import Answer, Capability

_STEERING = {
    Capability.STEER_DSCP: "of IPv4 and IPv6",
    Capability.STEER_FLOW: "by the flow label of IPv6",
    Capability.STEER_VNI: "of VXLAN, in packets to UDP port 4789",
}


class Xdp:
    """Programs of BPF in the driver."""

    name = "XDP"

    def answers(self, interface: str) -> Iterator[Answer]:
        found, problem = _features(interface)
        if found and not found.native:
            problem = f"the driver of {interface} has no native XDP with redirection"
        able = bool(found and found.native)
        copies = "the driver may do without copies" if found and found.zero_copy else "the kernel copies each frame"
        reason = problem or f"AF_XDP, which has the messages; {copies}"
        yield Answer(Capability.RAW_PACKETS, able, self.name, "by queue" if able else "", reason)
        for capability, what in _STEERING.items():
            limit = f"{RULES_MAX} rules, to the CPUs of workers up to {CPU_MAX}"
            yield Answer(capability, able, self.name, limit if able else "", problem or f"{what} ([[steer]])")


def _features(interface: str) -> tuple[XdpFeatures | None, str]:
    """What the driver has, or why that is not known."""
    try:
        index = socket.if_nametoindex(interface)
        return ask().get(index, XdpFeatures(0)), ""
    except (OSError, ImportError) as error:
        return None, f"what the driver of {interface} can do is not known: {error}"
