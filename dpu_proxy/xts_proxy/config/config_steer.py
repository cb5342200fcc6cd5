"""The table of the configuration file about frames from the network: `[[steer]]`.

A rule says by what frames are known that arrive on an interface of the device, and at the CPU of which worker the
kernel does the work on them. nic/steering.py puts it in force.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

from msgspec import Meta, Struct
from xts_messages.settings.toml_positions import Path as KeyPath

from xts_proxy.config.config_tenant import DEFAULT, DSCP_MAX, Interface, Name

#: Of one interface (xts_bpf/classes.py).
RULES_MAX, CPU_MAX = 64, 127
_KINDS = ("dscp", "flow_label", "vni")


class Steer(Struct, frozen=True, kw_only=True):
    """[[steer]]: the first of an interface's rules that a frame matches decides."""

    interface: Interface
    worker: Annotated[int, Meta(ge=0, le=255)]
    #: Exactly one of these: of IPv4 and IPv6; of IPv6; the network of VXLAN, in packets to UDP port 4789.
    dscp: Annotated[int, Meta(ge=0, le=DSCP_MAX)] | None = None
    flow_label: Annotated[int, Meta(ge=1, le=0xFFFFF)] | None = None
    vni: Annotated[int, Meta(ge=0, le=0xFFFFFF)] | None = None
    #: For whom it is, in status and `xts-proxy nic`.
    tenant: Name = DEFAULT

    @property
    def given(self) -> list[str]:
        """By what frames are known: one name, in a valid file."""
        return [kind for kind in _KINDS if getattr(self, kind) is not None]

    @property
    def match(self) -> tuple[str, int]:
        """In a valid file: the name and its value."""
        kind = self.given[0]
        return kind, int(getattr(self, kind))


def together(
    rules: Sequence[Steer], tenants: Sequence[str], cpus: Sequence[int], carries_messages: str
) -> Iterator[tuple[KeyPath, str]]:
    """Mistakes in the combination of several values. `carries_messages`: the interface of proxy.interface, or ""."""
    counts: dict[str, int] = {}
    for i, rule in enumerate(rules):
        where = ("steer", i)
        if not rule.interface:
            yield (*where, "interface"), "expected the name of an interface towards the network"
        elif rule.interface == carries_messages:
            yield (*where, "interface"), f"{rule.interface} has the messages of hosts; expected one towards the network"
        if len(rule.given) != 1:
            yield (*where, "interface"), f"expected exactly one of {', '.join(_KINDS)}"
        if rule.tenant not in (DEFAULT, *tenants):
            yield (*where, "tenant"), f"there is no tenant {rule.tenant}"
        if rule.worker >= len(cpus):
            yield (*where, "worker"), f"worker {rule.worker} has no CPU of its own; expected one that proxy.cpus has"
        elif cpus[rule.worker] > CPU_MAX:
            yield (*where, "worker"), f"its CPU is {cpus[rule.worker]}; frames can go to CPUs up to {CPU_MAX}"
        counts[rule.interface] = counts.get(rule.interface, 0) + 1
        if counts[rule.interface] == RULES_MAX + 1:
            yield (*where, "interface"), f"more than {RULES_MAX} rules for {rule.interface}"
