"""The metrics of the agent: of itself, of its interfaces, and of the processes of this host by user."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from xts_messages.metrics.metric import Family, counter, counter_by, counter_each, families, gauge, gauge_each
from xts_messages.metrics.metric_list import Parts

INFO = (gauge("xts_agent_info", "Always 1. Label: the agent's version.", "one"),)
AGENT = (
    gauge("xts_agent_start_time_seconds", "When the agent started, in seconds of Unix time.", "started_at"),
    counter_by(
        "xts_agent_attaches",
        "Requests of processes for a queue, by result.",
        "result",
        ok="attached",
        refused="refused",
    ),
    counter("xts_agent_releases", "Queues that the agent has taken back from processes.", "released"),
)
INTERFACE = (
    gauge_each(
        "xts_agent_queues",
        "Queues of an interface by state: ready for a process, used by a process, returned by a process but "
        "not closed yet, closed, or being opened.",
        "state",
        "queues",
    ),
    gauge(
        "xts_agent_kept_queues",
        "Queues that their process has returned, but that cannot be opened again, because some process still "
        "has their descriptors open.",
        "kept",
    ),
    gauge(
        "xts_agent_interface_serves",
        "1 while the queues of an interface carry messages. 0: the interface is not there, its MTU is too small, or "
        "another XDP program is there in place of the agent's program; the log says which.",
        "serves",
    ),
    gauge(
        "xts_agent_lacking_queues",
        "Queues that no process gets, because the last probe has shown that frames do not find them.",
        "lacking",
    ),
    gauge(
        "xts_agent_zero_copy_queues",
        "Open queues whose memory the driver uses itself, as the kernel says. For the others it copies each frame; "
        "`xts status` says why.",
        "zero_copy",
    ),
    counter(
        "xts_agent_copy_fallbacks",
        "How often a queue was bound again in copy mode, because zero copy was refused or moved no frame.",
        "copy_fallbacks",
    ),
    counter_each(
        "xts_agent_dropped_frames",
        "What the kernel has dropped at the queues of an interface, by reason. rx_ring_full: the process was too slow. "
        "rx_no_buffers: it gave no buffers back. rx_dropped: another reason. rx_invalid, tx_invalid: descriptors that "
        "are none, which a library of ours does not make.",
        "reason",
        "drops",
    ),
    counter(
        "xts_agent_program_attaches",
        "How often the XDP program was attached again, because another tool had taken it off.",
        "reattached",
    ),
    counter(
        "xts_agent_interface_renewals",
        "How often all queues of an interface were opened again, because it was made again or its MTU was lowered.",
        "renewed",
    ),
    gauge("xts_agent_relayed_processes", "Processes that share a queue through the agent's relay.", "relayed"),
)
#: What processes report about themselves (HostFigures.by_user()).
USER = (
    gauge("xts_host_processes", "Processes of a user that have a queue.", "processes"),
    gauge("xts_host_sockets", "Offloaded sockets of a user's processes.", "sockets"),
    counter("xts_host_sent_bytes", "Bytes that a user's processes have sent by offloaded sockets.", "sent_bytes"),
    counter(
        "xts_host_received_bytes", "Bytes that a user's processes have received by offloaded sockets.", "received_bytes"
    ),
    counter("xts_host_sleeps", "How often a user's processes slept to wait for the device.", "sleeps"),
    counter("xts_host_spins", "Waits of a user's processes that polling has ended: none of them slept.", "spins"),
    counter(
        "xts_host_spin_misses",
        "Waits of a user's processes that have polled in vain, and slept or failed after that.",
        "spin_misses",
    ),
    counter("xts_host_spin_seconds", "Processor time that a user's processes have polled for.", "spin_ns", ns=True),
)

#: Title of a part of the reference -> its labels and metrics.
PARTS: Parts = {
    "The version of the agent": (("version",), INFO),
    "The agent": ((), AGENT),
    "Interfaces of the host": (("interface",), INTERFACE),
    "Processes of the host": (("uid",), USER),
}


def metrics(figures: dict[str, Any]) -> Iterator[Family]:
    """The metrics for Agent.figures()."""
    yield from families(INFO, [({"version": figures["version"]}, {"one": 1})])
    yield from families(AGENT, [({}, figures["agent"])])
    yield from families(INTERFACE, [({"interface": row["interface"]}, row) for row in figures["interfaces"]])
    yield from families(USER, [({"uid": uid}, row) for uid, row in figures["users"].items()])
