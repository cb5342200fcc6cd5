"""The rows that README and the page of figures show: what is measured, and against what.

Each is a ratio within one repetition: to HAProxy (for UDP nginx's proxy), which one would run instead for the same
topology, and to kernel sockets without anything between ("direct"), with OpenSSL in the application where the workload
is TLS.

The *device's own* CPU is what remains of the device core's busy time when that of direct TCP is taken off: there the
core does the peer's work alone. For that, all of the device's work is on its core (thr, r1).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .analysis import WATCHED, Figures, Spread, ratio, spread

_BULK_PATHS = ("afxdp-thr", "shm")
_PATHS = ("afxdp-thr", "afxdp-soft", "shm")
#: What the device's core does for the peer alone.
PEER_ALONE = "direct-r1"


@dataclass(frozen=True, slots=True)
class Row:
    """One row. `haproxy` and `direct`: keys of the paths it is divided by."""

    section: str
    label: str
    workload: str
    metric: str
    haproxy: str | None
    direct: str | None
    paths: tuple[str, ...] = _BULK_PATHS
    #: Of the device's CPU, what the peer does not need.
    own: bool = False
    #: A workload whose own CPU is taken off: what is left is what this one costs more.
    less: str = ""

    def paths_needed(self) -> set[str]:
        """Keys of all that must be measured for this row."""
        compared = {key for key in (self.haproxy, self.direct) if key}
        return {*self.paths, *compared, *([PEER_ALONE] if self.own else [])}

    def ratio(self, data: Figures, path: str, baseline: str | None) -> Spread | None:
        """The path's metric over the baseline's; None when this run has not both."""
        if baseline is None:
            return None
        if self.own:
            return _own_ratio(data, self, path, baseline)
        return ratio(data, self.workload, self.metric, path, baseline)

    def value(self, data: Figures, path: str) -> float | None:
        """The metric itself, median of the repetitions."""
        values = _own_cpu(data, self, path) if self.own else data.get(self.workload, {}).get(path, {}).get(self.metric)
        return spread(values).median if values else None


def _own_cpu(data: Figures, row: Row, path: str) -> dict[int, float]:
    """In each repetition that has all of it: the path's less the peer's, and less that of the other workload."""
    found = _without_peer(data, row.workload, row.metric, path)
    if not row.less:
        return found
    other = _without_peer(data, row.less, row.metric, path)
    return {number: value - other[number] for number, value in found.items() if number in other}


def _without_peer(data: Figures, workload: str, metric: str, path: str) -> dict[int, float]:
    whole, alone = (data.get(workload, {}).get(key, {}).get(metric, {}) for key in (path, PEER_ALONE))
    return {number: value - alone[number] for number, value in whole.items() if number in alone}


def _own_ratio(data: Figures, row: Row, path: str, baseline: str) -> Spread | None:
    over, under = (_own_cpu(data, row, key) for key in (path, baseline))
    ratios = {number: over[number] / under[number] for number in over if under.get(number, 0.0) > 0}
    return spread(ratios) if ratios else None


def _plain() -> Iterator[Row]:
    rate, host = "Throughput and latency", "Host CPU"
    yield Row(rate, "bulk send, Gbit/s", "send", "gbit_s", "haproxy", "direct-r0", _PATHS)
    yield Row(rate, "the same, against HAProxy with splice", "send", "gbit_s", "haproxy-splice", None)
    yield Row(rate, "bulk receive, Gbit/s", "receive", "gbit_s", "haproxy", "direct-r0")
    yield Row(rate, "the same, against HAProxy with splice", "receive", "gbit_s", "haproxy-splice", None)
    spinning = ("request-spin", "p50_us", "haproxy", "direct-r0", ("afxdp-soft", "shm"))
    yield Row(rate, "64-byte request, median latency in µs, spinning", *spinning)
    yield Row(rate, "requests per second, 32 connections", "requests-32", "rate", "haproxy", "direct-r0", _PATHS)
    yield Row(rate, "connections per second, 32 at a time", "connect-32", "rate", "haproxy", "direct-r0", _PATHS)
    yield Row(host, "s per GB sent", "send", "host_s_per_gb", "haproxy", "direct-r0")
    yield Row(host, "s per GB received", "receive", "host_s_per_gb", "haproxy", "direct-r1")
    yield Row(host, "µs per request, 32 connections", "requests-32", "host_us_per_op", "haproxy", "direct-r1")
    yield Row(host, "µs per connection", "connect-32", "host_us_per_op", "haproxy", "direct-r0")


_TLS = (
    ("sent", "tls-send", "direct-r0"),
    ("received", "tls-receive", "direct-r1"),
    ("64-byte request, 32 connections", "tls-requests-64", "direct-r1"),
    ("1 KB request, 32 connections", "tls-requests-1k", "direct-r1"),
    ("handshake, RSA-2048", "tls-connect-rsa", "direct-r0"),
    ("handshake, ECDSA P-256", "tls-connect-ecdsa", "direct-r0"),
    ("handshake, RSA-2048, resumed by a ticket", "tls-connect-rsa-resumed", "direct-r0"),
    ("handshake, ECDSA P-256, resumed by a ticket", "tls-connect-ecdsa-resumed", "direct-r0"),
    ("handshake as a server, RSA-2048", "tls-accept-rsa", "direct-r0"),
    ("handshake as a server, ECDSA P-256", "tls-accept-ecdsa", "direct-r0"),
    ("handshake as a server, RSA-2048, resumed by a ticket", "tls-accept-rsa-resumed", "direct-r0"),
    ("handshake as a server, ECDSA P-256, resumed by a ticket", "tls-accept-ecdsa-resumed", "direct-r0"),
)


def _tls() -> Iterator[Row]:
    for label, workload, direct in _TLS:
        bulk = label in ("sent", "received")
        rate, unit = ("gbit_s", "Gbit/s") if bulk else ("rate", "per second")
        yield Row("TLS, throughput", f"{label}, {unit}", workload, rate, "haproxy", direct)
    for label, workload, direct in _TLS:
        bulk = label in ("sent", "received")
        metric, unit = ("host_s_per_gb", "s per GB") if bulk else ("host_us_per_op", "µs per")
        yield Row("TLS, host CPU", f"{unit} {label}", workload, metric, "haproxy", direct)


def _sessions() -> Iterator[Row]:
    for label, workload, _ in _TLS:
        if workload.startswith("tls-connect") and workload.endswith("-resumed"):
            of = f"{label}: how many were"
            yield Row("TLS, sessions and keys", of, workload, "resumed_share", "haproxy", "direct-r0")
    for label, workload, _ in _TLS:
        if workload.startswith("tls-accept"):
            of = f"{label}: µs of the process with the keys"
            yield Row("TLS, sessions and keys", of, workload, "keys_us_per_op", None, None)
            of = f"{label}: its share of the device's CPU"
            yield Row("TLS, sessions and keys", of, workload, "keys_share", None, None)


def _own() -> Iterator[Row]:
    works = (
        ("s per GB sent", "send"),
        ("s per GB received", "receive"),
        ("µs per request, 32 connections", "requests-32"),
        ("µs per connection", "connect-32"),
        *(
            (f"TLS: {'s per GB' if workload in ('tls-send', 'tls-receive') else 'µs per'} {label}", workload)
            for label, workload, _ in _TLS
        ),
    )
    for label, workload in works:
        metric = "device_s_per_gb" if label.startswith(("s per", "TLS: s per")) else "device_us_per_op"
        yield Row("The device's own CPU", label, workload, metric, "haproxy-r1", None, own=True)
    for size, workload, plain in (
        ("64-byte", "tls-requests-64", "requests-32"),
        ("1 KB", "tls-requests-1k", "requests-32-1k"),
    ):
        label = f"µs per {size} request, 32 connections: what TLS costs more"
        yield Row("The device's own CPU", label, workload, "device_us_per_op", "haproxy-r1", None, own=True, less=plain)


def _programs() -> Iterator[Row]:
    section = "Unmodified servers, asyncio, protocols"
    for label, workload in (("redis GET, 50 connections", "redis-get-50"), ("nginx under wrk, kept", "wrk-keepalive")):
        yield Row(section, f"{label}: requests per second", workload, "rate", "haproxy", "direct-r1", _PATHS)
        host = f"{label}: host µs per request"
        yield Row(section, host, workload, "host_us_per_op", "haproxy", "direct-r1", _PATHS)
    for connections in (1, 32):
        label = f"asyncio echo, {connections} connection{'s'[: connections > 1]}, against uvloop"
        workload, uvloop = f"asyncio-{connections}", ("haproxy-uvloop", "direct-r0-uvloop", _PATHS)
        yield Row(section, f"{label}: per second", workload, "rate", *uvloop)
        yield Row(section, f"{label}: host µs each", workload, "host_us_per_op", *uvloop)
    yield Row(section, "HTTP/2 frames of 1 KB over TLS in Python, per second", "http2", "rate", None, "python-r0")
    for name in ("digest", "plain"):
        label = f"NVMe/TCP, host s per GB, {'with' if name == 'digest' else 'no'} digests"
        yield Row(section, label, f"nvme-{name}", "host_s_per_gb", None, "direct-r1")
    for workload, what in (("pass-redis", "redis GET"), ("pass-wrk", "nginx")):
        label = f"{what}, all left to the kernel: requests per second"
        yield Row(section, label, workload, "rate", None, "direct-r1", ("passed-r1",))


def _stacks() -> Iterator[Row]:
    section = "A queue and a lock for each thread"
    paths = tuple(f"{path}-{stacks}" for path in _BULK_PATHS for stacks in ("process", "thread"))
    for threads in (1, 2, 4):
        of = f"{threads} thread{'s'[: threads > 1]}"
        yield Row(
            section, f"64-byte requests, {of}: per second", f"stacks-request-{threads}", "rate", None, None, paths
        )
        yield Row(section, f"bulk send, {of}: Gbit/s", f"stacks-send-{threads}", "gbit_s", None, None, paths)
    for kind, of in (("request", "requests"), ("send", "MB")):
        label = f"lock waits per 1,000 {of}, 4 threads, {'64-byte requests' if kind == 'request' else 'bulk send'}"
        yield Row(section, label, f"stacks-{kind}-4", "lock_waits", None, None, paths)


def _relay() -> Iterator[Row]:
    section = "By the agent's relay, and with a queue of one's own"
    paths = ("afxdp-thr", "relay-thr", "afxdp-soft", "relay-soft")
    for label, workload, metric in (
        ("64-byte request, median latency in µs", "relay-request", "p50_us"),
        ("requests per second, 32 connections", "relay-requests", "rate"),
        ("connections per second, 32 at a time", "relay-connect", "rate"),
        ("bulk send, Gbit/s", "relay-send", "gbit_s"),
        ("bulk receive, Gbit/s", "relay-receive", "gbit_s"),
        ("host µs per request, 32 connections", "relay-requests", "host_us_per_op"),
        ("host s per GB sent", "relay-send", "host_s_per_gb"),
        ("host s per GB received", "relay-receive", "host_s_per_gb"),
    ):
        yield Row(section, label, workload, metric, None, None, paths)


def _processes() -> Iterator[Row]:
    section = "200 processes on 4 queues: 64-byte requests"
    paths = ("crowded-thr", "crowded-soft")
    for title, percentile in (("median latency", "p50"), ("99th percentile", "p99")):
        for label, workload, metric, direct in (
            (f"{title} in µs, all 200", "processes-200", f"{percentile}_us", "direct-r0"),
            (f"{title} in µs, the 197 by the relay", "processes-200", f"relayed_{percentile}_us", None),
            (f"{title} in µs, the 3 with a queue of their own", "processes-200", f"own_{percentile}_us", None),
            (f"{title}: by the relay ÷ with a queue", "processes-200", f"relayed_to_own_{percentile}", None),
            (f"{title} in µs, 3 processes alone, with queues", "processes-3", f"{percentile}_us", "direct-r0"),
        ):
            yield Row(section, label, workload, metric, None, direct, paths)
    for suffix, of in (("", ""), ("-full", ", as many as they can")):
        for workload, who in (("processes-200", "200 processes"), ("processes-3", "3 processes with queues")):
            key = workload + suffix
            if suffix:
                yield Row(section, f"{who}{of}: per second", key, "rate", None, "direct-r0", paths)
            label = f"{who}{of}: host µs per request"
            yield Row(section, label, key, "host_us_per_op", None, "direct-r0", paths)
            # Where all have a queue of their own, relay and agent have nothing to do.
            for kind in WATCHED if workload == "processes-200" else ("proxy",):
                yield Row(section, f"{who}{of}: µs of the {kind}", key, f"{kind}_us_per_op", None, None, paths)


_STREAMS = (
    ("1 socket", "1"),
    ("1 socket, 32 a call", "1-mmsg"),
    ("32 sockets", "32"),
    ("32 sockets, 32 a call", "32-mmsg"),
)


def _udp() -> Iterator[Row]:
    rate, host = "UDP, 64-byte datagrams", "UDP, host CPU"
    for label, workload, paths in (
        ("spinning", "udp-request-spin", ("afxdp-soft", "shm")),
        ("asleep", "udp-request-sleep", ("afxdp-soft", "shm")),
    ):
        yield Row(
            rate, f"ping-pong, median latency in µs, {label}", workload, "p50_us", "udp-proxy", "direct-r0", paths
        )
    for label, key in (*_STREAMS, ("trains of 64 (GSO)", "gso")):
        yield Row(
            rate, f"sent and arrived a second, {label}", f"udp-send-{key}", "delivered_rate", "udp-proxy", "direct-r1"
        )
    for label, key in (*_STREAMS, ("trains of 64 (GRO)", "gro")):
        yield Row(rate, f"received a second, {label}", f"udp-receive-{key}", "rate", "udp-proxy", "direct-r1")
    yield Row(rate, "received a second without loss", "udp-lossless", "lossless_rate", "udp-proxy", "direct-r1")
    yield Row(rate, "QUIC bulk receive by aioquic, Gbit/s", "udp-quic", "gbit_s", "udp-proxy", "direct-r1")
    yield Row(rate, "names looked up a second, one after the other", "udp-names", "rate", "udp-proxy", "direct-r1")
    for label, key in (*_STREAMS, ("trains of 64 (GSO)", "gso")):
        yield Row(host, f"µs per datagram sent, {label}", f"udp-send-{key}", "host_us_per_op", "udp-proxy", "direct-r1")
    for label, key in (("1 socket", "udp-paced"), ("1 socket, 32 a call", "udp-paced-mmsg")):
        of = f"µs per datagram received, 100,000 a second, {label}"
        yield Row(host, of, key, "host_us_per_op", "udp-proxy", "direct-r1")
    yield Row(host, "s per GB received by QUIC (aioquic)", "udp-quic", "host_s_per_gb", "udp-proxy", "direct-r1")
    yield Row(host, "µs per name looked up", "udp-names", "host_us_per_op", "udp-proxy", "direct-r1")
    for label, key in (("1 member", "1"), ("8 members", "8"), ("1 member, 1,000 idle groups", "1-idle")):
        of = f"µs per datagram of a group and member, 20,000 a second, {label}"
        yield Row(host, of, f"udp-group-{key}", "host_us_per_op", None, "direct-r1")


ROWS: tuple[Row, ...] = (
    *_plain(),
    *_tls(),
    *_sessions(),
    *_own(),
    *_programs(),
    *_stacks(),
    *_relay(),
    *_processes(),
    *_udp(),
)


def needed() -> set[tuple[str, str]]:
    """Workload and path of every run that the rows want."""
    return {
        (workload, path)
        for row in ROWS
        for workload in (row.workload, *([row.less] if row.less else []))
        for path in row.paths_needed()
    }
