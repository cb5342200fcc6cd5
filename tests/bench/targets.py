"""The figures this project is held to, with what a throw-away prototype of the data path reached on the
same machine.

Each is a ratio of two paths in the same run, or an absolute of memory or CPU. A missed one is shown, not
hidden.
"""

from __future__ import annotations

from dataclasses import dataclass

from .analysis import Figures, Spread, ratio


@dataclass(frozen=True, slots=True)
class Target:
    """`subject`'s metric over `baseline`'s has to be at least (or at most) `aim`."""

    label: str
    workload: str
    metric: str
    subject: str
    baseline: str
    at_least: bool
    aim: float
    prototype: float | None

    def met(self, measured: float) -> bool:
        return measured >= self.aim if self.at_least else measured <= self.aim


@dataclass(frozen=True, slots=True)
class Verdict:
    """A target and what was measured; `measured` is None when the run did not include it."""

    label: str
    subject: str
    aim: str
    prototype: float | None
    measured: Spread | None
    met: bool | None


def _both(
    label: str,
    workload: str,
    metric: str,
    baseline: str,
    at_least: bool,
    *rows: tuple[str, float, float | None],
) -> list[Target]:
    return [
        Target(label, workload, metric, subject, baseline, at_least, aim, prototype) for subject, aim, prototype in rows
    ]


TARGETS: tuple[Target, ...] = (
    *_both(
        "bulk send ÷ HAProxy",
        "send",
        "gbit_s",
        "haproxy",
        True,
        ("afxdp-thr", 1.8, 2.1),
        ("afxdp-soft", 2.3, 2.7),
        ("shm", 3.5, 5.0),
    ),
    *_both(
        "bulk send ÷ HAProxy splice",
        "send",
        "gbit_s",
        "haproxy-splice",
        True,
        ("afxdp-thr", 0.7, 0.82),
        ("shm", 1.3, 1.86),
    ),
    *_both(
        "bulk receive ÷ HAProxy",
        "receive",
        "gbit_s",
        "haproxy",
        True,
        ("afxdp-thr", 1.15, 1.18),
        ("shm", 2.8, 3.2),
    ),
    *_both(
        "bulk receive ÷ HAProxy splice",
        "receive",
        "gbit_s",
        "haproxy-splice",
        True,
        ("afxdp-thr", 0.5, 0.56),
        ("shm", 1.3, 1.54),
    ),
    *_both(
        "host CPU per GB, send ÷ direct r0",
        "send",
        "host_s_per_gb",
        "direct-r0",
        False,
        ("afxdp-thr", 1.3, 1.14),
        ("shm", 0.4, 0.24),
    ),
    *_both(
        "host CPU per GB, receive ÷ direct r1",
        "receive",
        "host_s_per_gb",
        "direct-r1",
        False,
        ("afxdp-thr", 1.2, 1.05),
        ("shm", 0.5, 0.39),
    ),
    *_both(
        "64-byte p50, 1 connection, spin ÷ HAProxy",
        "request-spin",
        "p50_us",
        "haproxy",
        False,
        ("afxdp-soft", 0.55, 0.46),
        ("shm", 0.5, 0.40),
    ),
    *_both(
        "host CPU per request, 32 connections ÷ direct r1",
        "requests-32",
        "host_us_per_op",
        "direct-r1",
        False,
        ("afxdp-thr", 0.4, 0.33),
        ("shm", 0.2, 0.13),
    ),
    *_both(
        "requests/s, 32 connections ÷ HAProxy",
        "requests-32",
        "rate",
        "haproxy",
        True,
        ("afxdp-thr", 1.15, 1.19),
        ("afxdp-soft", 1.3, 1.38),
        ("shm", 1.5, 1.69),
    ),
    *_both(
        "connect+close/s, 32 at a time ÷ HAProxy",
        "connect-32",
        "rate",
        "haproxy",
        True,
        ("afxdp-thr", 1.1, 1.19),
        ("afxdp-soft", 1.1, 1.28),
        ("shm", 1.4, 1.54),
    ),
    *_both(
        "host CPU per connect+close ÷ direct r0",
        "connect-32",
        "host_us_per_op",
        "direct-r0",
        False,
        ("afxdp-thr", 0.35, 0.28),
        ("shm", 0.2, 0.12),
    ),
    *_both(
        "TLS: host CPU per GB, send ÷ OpenSSL on direct r0",
        "tls-send",
        "host_s_per_gb",
        "direct-r0",
        False,
        ("afxdp-thr", 0.5, None),
        ("shm", 0.1, None),
    ),
    *_both(
        "TLS: host CPU per GB, receive ÷ OpenSSL on direct r1",
        "tls-receive",
        "host_s_per_gb",
        "direct-r1",
        False,
        ("afxdp-thr", 0.5, None),
        ("shm", 0.1, None),
    ),
    *(
        target
        for name, what in (("64", "64-byte"), ("1k", "1 KB"))
        for target in _both(
            f"TLS: host CPU per {what} request ÷ OpenSSL on direct r1",
            f"tls-requests-{name}",
            "host_us_per_op",
            "direct-r1",
            False,
            ("afxdp-thr", 0.4, None),
            ("shm", 0.4, None),
        )
    ),
    *(
        target
        for kind, what in (("rsa", "RSA-2048"), ("ecdsa", "ECDSA P-256"))
        for target in _both(
            f"TLS: host CPU per handshake, {what} ÷ OpenSSL on direct r0",
            f"tls-connect-{kind}",
            "host_us_per_op",
            "direct-r0",
            False,
            ("afxdp-thr", 0.1, None),
            ("shm", 0.1, None),
        )
    ),
    *(
        target
        for workload, what in (("redis-get-50", "redis GET, 50 connections"), ("wrk-keepalive", "wrk, kept"))
        for target in (
            *_both(
                f"{what}: requests/s ÷ HAProxy",
                workload,
                "rate",
                "haproxy",
                True,
                ("afxdp-thr", 1.3, None),
                ("afxdp-soft", 1.3, None),
                ("shm", 1.3, None),
            ),
            *_both(
                f"{what}: host CPU per request ÷ direct r1",
                workload,
                "host_us_per_op",
                "direct-r1",
                False,
                ("afxdp-thr", 0.7, None),
                ("afxdp-soft", 0.7, None),
                ("shm", 0.4, None),
            ),
        )
    ),
    *(
        target
        for connections in (1, 32)
        for target in _both(
            f"asyncio echo/s, {connections} connection{'s'[: connections > 1]} ÷ uvloop through HAProxy",
            f"asyncio-{connections}",
            "rate",
            "haproxy-uvloop",
            True,
            ("afxdp-thr", 1.0, None),
            ("afxdp-soft", 1.0, None),
            ("shm", 1.0, None),
        )
    ),
    *(
        target
        for workload, what in (
            ("udp-send-1", "sent, 1 socket"),
            ("udp-send-1-mmsg", "sent, 1 socket, 32 a call"),
            ("udp-send-32-mmsg", "sent, 32 sockets, 32 a call"),
            ("udp-paced", "received"),
            ("udp-paced-mmsg", "received, 32 a call"),
        )
        for target in _both(
            f"UDP: host CPU per datagram {what} ÷ direct r1",
            workload,
            "host_us_per_op",
            "direct-r1",
            False,
            ("afxdp-thr", 0.4, None),
            ("shm", 0.2, None),
        )
    ),
    *_both(
        "UDP: 64-byte p50, spin ÷ nginx's UDP proxy",
        "udp-request-spin",
        "p50_us",
        "udp-proxy",
        False,
        ("afxdp-soft", 0.5, None),
        ("shm", 0.5, None),
    ),
    *_both(
        "UDP: received a second without loss ÷ direct r1",
        "udp-lossless",
        "lossless_rate",
        "direct-r1",
        True,
        ("afxdp-thr", 0.8, None),
        ("shm", 0.8, None),
    ),
    *(
        target
        for workload, metric, what in (
            ("udp-send-1-mmsg", "delivered_rate", "sent and arrived"),
            ("udp-receive-1-mmsg", "rate", "received"),
        )
        for target in _both(
            f"UDP: datagrams/s {what} ÷ nginx's UDP proxy",
            workload,
            metric,
            "udp-proxy",
            True,
            ("afxdp-thr", 1.5, None),
            ("shm", 1.5, None),
        )
    ),
    *(
        target
        for workload, what in (("pass-redis", "redis GET"), ("pass-wrk", "wrk"))
        for at_least, aim in ((True, 0.98), (False, 1.02))
        for target in _both(
            f"pass-through, {what}: requests/s ÷ without interposer",
            workload,
            "rate",
            "direct-r1",
            at_least,
            ("passed-r1", aim, None),
        )
    ),
)

#: Absolutes: label, key of the idle or memory result, unit, the most allowed.
HOST_BYTES_PER_IDLE = 1024
PROXY_BYTES_PER_IDLE = 8192
PROXY_BYTES_PER_IDLE_TLS = 3072
IDLE_HOST_CPU = 0.005  # of a core: below what two ticks in four seconds can show
ATTACHED_BYTES = 24 << 20


def judge(figures: Figures, idle: dict[str, dict[str, float]], memory: dict[str, dict[str, float]]) -> list[Verdict]:
    """All targets, in the order of the table, with the measured ratio (median of repetitions) where there
    is one."""
    verdicts = []
    for target in TARGETS:
        measured = ratio(figures, target.workload, target.metric, target.subject, target.baseline)
        verdicts.append(
            Verdict(
                target.label,
                target.subject,
                f"{'≥' if target.at_least else '≤'} {target.aim:g}",
                target.prototype,
                measured,
                None if measured is None else target.met(measured.median),
            )
        )
    for queue in ("afxdp", "shm"):
        held, secured = idle.get(queue), idle.get(f"{queue}, TLS")
        verdicts += [
            _absolute("host memory per idle connection, bytes", queue, held, "host_bytes_each", HOST_BYTES_PER_IDLE),
            _absolute(
                "proxy memory per idle connection, bytes",
                queue,
                held,
                "proxy_bytes_each",
                PROXY_BYTES_PER_IDLE,
            ),
            _absolute(
                "proxy memory per idle TLS connection, bytes",
                queue,
                secured,
                "proxy_bytes_each",
                PROXY_BYTES_PER_IDLE_TLS,
            ),
            _absolute("host CPU with idle connections, of a core", queue, held, "host_cpu", IDLE_HOST_CPU),
            _absolute(
                "attached process beyond bare Python, bytes",
                queue,
                memory.get(queue),
                "beyond_bare_bytes",
                ATTACHED_BYTES,
            ),
        ]
    return verdicts


def _absolute(label: str, subject: str, result: dict[str, float] | None, key: str, limit: float) -> Verdict:
    if result is None or key not in result:
        return Verdict(label, subject, f"≤ {limit:,.10g}", None, None, None)
    value = result[key]
    return Verdict(label, subject, f"≤ {limit:,.10g}", None, Spread(value, value, value), value <= limit)
