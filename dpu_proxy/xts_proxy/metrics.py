"""Metrics in Prometheus' text format, over HTTP on a Unix socket or a loopback port.

Names come from the fields of the native structs: a counter `accepts` of a worker is `xts_accepts_total{worker="0"}`,
`sent_frames` of a channel's link `xts_link_sent_frames_total{queue="3"}`. There are no labels per connection, so
the number of series is bounded by workers, queues and tenants. What is counted by protocol or kind of fault has a
label: `xts_ulp_faults_total{worker="0",fault="digest"}`. The CPU time of rounds is a histogram.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from xts_proxy.metric_help import HELP

#: Fields that go up and down; all others count.
WORKER_GAUGES = frozenset(
    {
        "channels",
        "channels_up",
        "datagram_sockets",
        "orphans",
        "connections",
        "listeners",
        "shared_listeners",
        "kept_listeners",
        "parked_connections",
        "spill_bytes",
        "window_bytes",
        "relayed",
        "ulp_bytes",
        "ulp_handshakes",
    }
)
_REQUEST_TIMEOUT_S = 5.0


@dataclass(slots=True)
class Family:
    """One metric: its samples are (labels, value, what stands behind the name)."""

    name: str
    kind: str
    help: str
    samples: list[tuple[dict[str, str], float, str]] = field(default_factory=list)

    def lines(self) -> Iterator[str]:
        yield f"# HELP {self.name} {self.help}"
        yield f"# TYPE {self.name} {self.kind}"
        for labels, value, behind in self.samples:
            text = ",".join(f'{key}="{_escape(label)}"' for key, label in labels.items())
            yield f"{self.name}{behind}{{{text}}} {value}" if text else f"{self.name}{behind} {value}"


class Families:
    """Gathers samples; those of one name stand together, as the format demands."""

    def __init__(self) -> None:
        self.by_name: dict[str, Family] = {}

    def add(self, name: str, value: float, labels: dict[str, str], *, gauge: bool = False) -> None:
        """A sample. metric_help.py has what the metric means; KeyError: nobody has said it."""
        help_text = HELP[name]
        name = name if gauge else f"{name}_total"
        kind = "gauge" if gauge else "counter"
        family = self.by_name.setdefault(name, Family(name, kind, help_text))
        family.samples.append((labels, value, ""))

    def add_histogram(self, name: str, counts: dict[str, int], total: float, labels: dict[str, str]) -> None:
        """`counts`: how many there were within each bound and not within the one before, the last one "+Inf"."""
        family = self.by_name.setdefault(name, Family(name, "histogram", HELP[name]))
        within = 0
        for bound, count in counts.items():
            within += count
            family.samples.append((labels | {"le": bound}, within, "_bucket"))
        family.samples.append((labels, total, "_sum"))
        family.samples.append((labels, within, "_count"))

    def text(self) -> str:
        return "".join(f"{line}\n" for family in self.by_name.values() for line in family.lines())


#: Of these the histogram xts_round_cpu_seconds is made.
ROUND_CPU = frozenset({"round_cpu", "round_cpu_ns"})
#: Figures that are several: the label that distinguishes them.
WORKER_LABELS = {"ulp_pushed": "ulp", "ulp_faults": "fault"}


def add_worker(families: Families, index: int, stats: dict[str, Any]) -> None:
    """The figures of a worker (Worker.stats())."""
    counts, total_s = stats["round_cpu"], stats["round_cpu_ns"] / 1e9
    families.add_histogram("xts_round_cpu_seconds", counts, total_s, {"worker": str(index)})
    for name, value in stats.items():
        if name in ROUND_CPU:
            continue
        each = value.items() if isinstance(value, dict) else [(None, value)]
        for which, number in each:
            labels = {"worker": str(index)} | ({WORKER_LABELS[name]: which} if which else {})
            families.add(f"xts_{name}", number, labels, gauge=name in WORKER_GAUGES)


def add_progress(families: Families, index: int, stands_s: float, reports: int) -> None:
    """Whether a worker makes progress: for how long it has not, and how often that was reported."""
    labels = {"worker": str(index)}
    families.add("xts_worker_no_progress_seconds", stands_s, labels, gauge=True)
    families.add("xts_worker_no_progress", reports, labels)


def add_channel(families: Families, index: int, stats: dict[str, object]) -> None:
    """The figures of a channel (Worker.channels()), with those of its link and queue. They start at 0 when another
    process attaches to the queue, as counters may."""
    relayed = f".{stats['relayed']}" if stats["relayed"] else ""  # its number behind the relay that has the queue
    labels = {"queue": f"{stats['queue_id']}{relayed}", "worker": str(index)}
    up = int(stats["link_state"] == 1)
    families.add("xts_channel_up", up, labels, gauge=True)
    for name in ("connections", "listeners", "frame_credits", "window_bytes", "spill_bytes", "ulp_bytes"):
        value = stats[name]
        assert isinstance(value, int)
        families.add(f"xts_channel_{name}", value, labels, gauge=True)
    for part in ("link", "queue"):
        figures = stats[part]
        assert isinstance(figures, dict)
        for name, value in figures.items():
            families.add(f"xts_{part}_{name}", value, labels)


def add_tenant(families: Families, name: str, figures: dict[str, dict[str, int]]) -> None:
    """The account of a tenant (Account.figures())."""
    labels = {"tenant": name}
    for resource, number in figures["used"].items():
        if resource == "cpu_ns":
            families.add("xts_tenant_cpu_ns", number, labels)
        else:
            families.add("xts_tenant_used", number, labels | {"resource": resource}, gauge=True)
    for resource, number in figures["refused"].items():
        families.add("xts_tenant_refused", number, labels | {"resource": resource})
    for pool in figures["pool_used"]:
        of_pool = labels | {"pool": pool}
        families.add("xts_tenant_pool_used", figures["pool_used"][pool], of_pool, gauge=True)
        families.add("xts_tenant_pool_guaranteed", figures["pool_guaranteed"][pool], of_pool, gauge=True)
        families.add("xts_tenant_pool_refused", figures["pool_refused"][pool], of_pool)


def _escape(label: str) -> str:
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


# --- HTTP ------------------------------------------------------------------------------------------------


def handler(
    collect: Callable[[], str],
) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], object]:
    """What answers a connection of a metrics socket: GET /metrics, one request a connection."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), _REQUEST_TIMEOUT_S)
            writer.writelines(respond(head, collect))
            await asyncio.wait_for(writer.drain(), _REQUEST_TIMEOUT_S)
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError, ConnectionError):
            pass  # the asker's loss: there is nothing to answer
        finally:
            writer.close()

    return serve


def respond(head: bytes, collect: Callable[[], str]) -> Iterable[bytes]:
    """The response to a request's head."""
    method, _, rest = head.partition(b" ")
    target = rest.partition(b" ")[0].partition(b"?")[0]
    if method not in (b"GET", b"HEAD"):
        return _response("405 Method Not Allowed", "only GET is known here\n")
    if target != b"/metrics":
        return _response("404 Not Found", "metrics are at /metrics\n")
    body = collect()
    return _response("200 OK", body, with_body=method == b"GET")


def _response(status: str, body: str, *, with_body: bool = True) -> list[bytes]:
    data = body.encode()
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
        f"Content-Length: {len(data)}\r\nConnection: close\r\n\r\n"
    )
    return [head.encode(), data] if with_body else [head.encode()]
