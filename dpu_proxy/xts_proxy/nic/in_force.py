"""What a running proxy has in force, and who asked for it, from its answer to `status`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from xts_proxy.nic.answer import Capability

_STEERED = {
    "dscp": (Capability.STEER_DSCP, "DSCP {}"),
    "flow_label": (Capability.STEER_FLOW, "flow label {:#x}"),
    "vni": (Capability.STEER_VNI, "VNI {}"),
}


@dataclass(frozen=True, slots=True)
class InForce:
    """`asked_by`: a tenant, or a socket by its addresses."""

    capability: str
    setting: str
    back_end: str
    asked_by: str
    frames: dict[str, int] | None = None


def in_force(status: dict[str, Any]) -> Iterator[InForce]:
    """LookupError, TypeError or ValueError: it is no such answer."""
    marks = {row["tenant"] for row in status["tenants"] if row["dscp"] is not None}
    marked = {row["queue_id"] for row in status["channels"] if row["tenant"] in marks}
    for row in status["tenants"]:
        who = f"tenant {row['tenant']}"
        if row["pacing_bytes_s"]:
            yield InForce(Capability.PACING, rate(row["pacing_bytes_s"]), "software", who)
        if row["dscp"] is not None:
            yield InForce("marking", f"DSCP {row['dscp']}", "kernel", who)
    for row in status["connections"]:
        who = f"socket {row['local']} > {row['peer']}"
        if row["pacing_bytes_s"]:
            by = "software" if row["state"] == "datagram" else "kernel"
            yield InForce(Capability.PACING, rate(row["pacing_bytes_s"]), by, who)
        if row["traffic_class"] >> 2 and row["queue_id"] not in marked:
            yield InForce("marking", f"DSCP {row['traffic_class'] >> 2}", "kernel", who)
    for row in status["steering"]:
        capability, text = _STEERED[row["match"]]
        where = f"on {row['interface']} to worker {row['worker']} (CPU {row['cpu']})"
        if not row["present"]:
            where += ": not in force, for the interface was removed; restart the proxy when it is back"
        who = f"tenant {row['tenant']}"
        yield InForce(capability, f"{text.format(row['value'])} {where}", "XDP", who, row["frames"])


def rate(bytes_s: int) -> str:
    """In Mbit/s, for people."""
    return f"{bytes_s / 125_000:g} Mbit/s"
