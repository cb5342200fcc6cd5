"""What limits a path: the core that has no time left, or that both wait for each other.

Both cores are measured as wholes. Where the device's core is full, part of what it does is the peer's work, which on a
network would be another machine's: as much as it does for direct TCP, each byte or operation. Where neither is full,
each waits for the other's wake-ups. Bulk data is copied; how often, decides what a full core gets through.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .analysis import Figures, spread
from .rows import PEER_ALONE
from .subjects import WORKLOADS, Workload

FULL = 0.9
#: How often a byte of bulk data is copied between the application and the device's socket to the peer, that socket's
#: own copy included. The peer's are left out: a sink copies nothing.
_COPIES = {
    "direct": "1 copy",
    "haproxy": "3 copies",
    "haproxy-splice": "1 copy",
    "afxdp": "4 copies",
    "relay": "5 copies",
    "shm": "2 copies",
}
#: Of datagrams, which nobody answers.
_STREAMS = ("udp-send", "udp-receive", "udp-lossless", "udp-group")


@dataclass(frozen=True, slots=True)
class Limit:
    """One path of one workload."""

    workload: str
    path: str
    host_share: float
    device_share: float
    #: Of what the device's core did, 0 to 1; None where direct TCP was not measured.
    peer_share: float | None
    reason: str


def _peer_share(figures: Figures, workload: Workload, path: str) -> float | None:
    metric = "device_s_per_gb" if workload.bulk else "device_us_per_op"
    found = figures[workload.key]
    alone, all_of_it = found.get(PEER_ALONE, {}).get(metric), found[path].get(metric)
    if not alone or not all_of_it:
        return None
    total = spread(all_of_it).median
    return min(1.0, spread(alone).median / total) if total else None


def _copies(path: str) -> str:
    for key in ("haproxy-splice", "haproxy", "direct", "afxdp", "relay", "shm"):
        if path.startswith(key):
            return _COPIES[key]
    return ""


def _reason(workload: Workload, path: str, host: float, device: float, peer: float | None) -> str:
    spinning = workload.spin_us and not path.startswith("haproxy")
    if workload.name == "processes-request" and workload.rate_per_s and host < FULL and device < FULL:
        return "the rate that was asked for"
    if workload.connections == 1 and not workload.bulk and workload.name not in _STREAMS:
        return "the round trip" + (": the host spins, so its core is full" if spinning and host > FULL else "")
    if host > FULL and device > FULL:
        reason = "both cores are full"
    elif device > FULL:
        reason = "the device's core" + (", most of it the peer's work" if peer is not None and peer > 0.5 else "")
    elif host > FULL:
        reason = "the host's core"
    else:
        reason = "wake-ups: each waits for the other"
    copies = _copies(path) if workload.bulk and not workload.tls else ""
    return f"{reason}; {copies}" if copies else reason


def of(figures: Figures) -> Iterator[Limit]:
    """All paths, in the order of the workloads."""
    for workload in WORKLOADS:
        for path, metrics in figures.get(workload.key, {}).items():
            host, device = spread(metrics["host_share"]).median, spread(metrics["device_share"]).median
            peer = None if workload.served else _peer_share(figures, workload, path)
            yield Limit(workload.key, path, host, device, peer, _reason(workload, path, host, device, peer))
