"""What is compared, and doing what.

Placements. veth runs the receiver on the sender's core, so a figure without its placement says little:

- afxdp *thr*: the proxy's side of the queue has its NAPI thread on the device core, as a DMA engine would
  have it; *soft*: veth's default, the host core runs the proxy's receive.
- kernel TCP and HAProxy *r0*: veth's default, the host core runs the device's forwarding and the peer's
  receive; *r1*: receive packet steering moves device work to the device core and the host's receive to the
  host core, as a NIC.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

#: Services of the peer, on consecutive ports from the first (native/peer.c).
PEER_PORT = 9001
SERVICES = {"send": 0, "receive": 1, "request": 2, "requests": 2, "idle": 2, "connect": 3, "check": 4}
SERVICES |= {"threads-send": SERVICES["send"], "threads-request": SERVICES["request"]}
SERVICES |= {"processes-request": SERVICES["request"]}
SERVICES |= {"nvme-digest": 6, "nvme-plain": 7, "http2": 8}
#: UDP services of the peer (native/datagram_peer.c, and QUIC), and where nginx's UDP proxy has them.
UDP_PORT = 9021
UDP_SERVICES = 5
NAME_SERVICE = 3
#: As native/datagrams.h has it.
GROUP = "239.18.0.1"
UDP_PROXY_SHIFT = 100
#: HAProxy serves the same ports, shifted; with splice in the second range.
HAPROXY_SHIFT = 100
HAPROXY_SPLICE_SHIFT = 200
#: And the peer itself over TLS, by the kind of its certificate.
TLS_SHIFT = {"rsa": 300, "ecdsa": 600, "rsa-resumed": 900, "ecdsa-resumed": 1200}
#: The peer's last plain service: how many handshakes of those with tickets there were, and how many have resumed.
COUNTS_PORT = PEER_PORT + 9
#: HAProxy, which takes plain TCP from the application there and speaks TLS with the peer.
HAPROXY_TLS_SHIFT = {"rsa": 1000, "ecdsa": 1100, "rsa-resumed": 1200, "ecdsa-resumed": 1300}


class Path(Enum):
    """How the application reaches the peer."""

    XTS = "xts"
    DIRECT = "direct"
    HAPROXY = "haproxy"
    UDP_PROXY = "udp-proxy"


@dataclass(frozen=True, slots=True)
class Subject:
    """One path with its placement."""

    key: str
    label: str
    path: Path
    placement: str
    queue: str | None = None
    splice: bool = False
    #: The event loop of an asyncio application.
    loop: str = "asyncio"
    #: The application is Python: the standard `socket` and `ssl` modules.
    python: bool = False
    #: XTS_STACKS of the application: whether its threads share a lock and a queue.
    stacks: str = "process"
    #: A kernel path whose server has the interposer loaded, with rules that leave everything to the kernel.
    preloaded: bool = False
    #: Settings of the application's library, as variables of its environment.
    settings: tuple[tuple[str, str], ...] = ()

    def port(self, workload: str, tls: str = "") -> int:
        """Where the application connects for this workload."""
        if workload.startswith("udp-"):
            return UDP_PORT + (UDP_PROXY_SHIFT if self.path is Path.UDP_PROXY else 0)
        if self.path is Path.HAPROXY:
            shift = HAPROXY_SPLICE_SHIFT if self.splice else HAPROXY_TLS_SHIFT[tls] if tls else HAPROXY_SHIFT
        else:
            shift = TLS_SHIFT[tls] if tls else 0
        return PEER_PORT + SERVICES[workload] + shift


AFXDP_THR = Subject("afxdp-thr", "XTS afxdp thr", Path.XTS, "thr", "afxdp")
AFXDP_SOFT = Subject("afxdp-soft", "XTS afxdp soft", Path.XTS, "soft", "afxdp")
SHM = Subject("shm", "XTS shm", Path.XTS, "", "shm")
DIRECT_R0 = Subject("direct-r0", "direct r0", Path.DIRECT, "r0")
DIRECT_R1 = Subject("direct-r1", "direct r1", Path.DIRECT, "r1")
HAPROXY = Subject("haproxy", "HAProxy r0", Path.HAPROXY, "r0")
#: All of the device's work on the device's core, as XTS thr has it: for the device's own CPU.
HAPROXY_R1 = Subject("haproxy-r1", "HAProxy r1", Path.HAPROXY, "r1")
PYTHON_R0 = Subject("python-r0", "Python ssl r0", Path.DIRECT, "r0", python=True)
HAPROXY_SPLICE = Subject("haproxy-splice", "HAProxy splice r0", Path.HAPROXY, "r0", splice=True)


UDP_PROXY = Subject("udp-proxy", "nginx UDP proxy r0", Path.UDP_PROXY, "r0")
UDP_PROXY_R1 = Subject("udp-proxy-r1", "nginx UDP proxy r1", Path.UDP_PROXY, "r1")
PASSED_R1 = Subject("passed-r1", "direct TCP r1, interposer loaded", Path.DIRECT, "r1", preloaded=True)

#: A queue for each thread takes several; a relay takes one, and the process's own queue must be in use.
_SEVERAL = (replace(AFXDP_THR, queue="several"), replace(AFXDP_SOFT, queue="several"), SHM)
_STACKS = tuple(
    replace(subject, key=f"{subject.key}-{stacks}", label=f"{subject.label}, one stack {title}", stacks=stacks)
    for subject in _SEVERAL
    for stacks, title in (("process", "in all"), ("thread", "a thread"))
)
RELAY_THR = Subject("relay-thr", "XTS afxdp thr, by the relay", Path.XTS, "thr", "relay")
RELAY_SOFT = Subject("relay-soft", "XTS afxdp soft, by the relay", Path.XTS, "soft", "relay")

#: More processes than queues: some have one of their own, the others the relay.
_CROWDED = tuple(
    replace(subject, key=subject.key.replace("afxdp", "crowded"), queue="crowded")
    for subject in (AFXDP_THR, AFXDP_SOFT)
)

SUBJECTS = (DIRECT_R0, DIRECT_R1, HAPROXY, HAPROXY_R1, HAPROXY_SPLICE, AFXDP_THR, AFXDP_SOFT, SHM)
_NO_SPLICE = tuple(subject for subject in SUBJECTS if not subject.splice)
#: Where a program of others is the server.
_SERVED = (DIRECT_R1, HAPROXY, AFXDP_THR, AFXDP_SOFT, SHM)
#: TLS: OpenSSL in the application's process over kernel TCP; by HAProxy; or pushed, in the proxy.
_TLS = (DIRECT_R0, DIRECT_R1, HAPROXY, HAPROXY_R1, AFXDP_THR, AFXDP_SOFT, SHM)
#: Where a program of ours in Python does HTTP/2: h2 over ssl, or frames that the proxy gives.
_HTTP2 = (PYTHON_R0, AFXDP_THR, SHM)
_UVLOOP = tuple(
    replace(subject, key=f"{subject.key}-uvloop", label=f"{subject.label}, uvloop", loop="uvloop")
    for subject in (DIRECT_R0, HAPROXY, AFXDP_THR, AFXDP_SOFT, SHM)
)
_ASYNCIO = (DIRECT_R0, HAPROXY, AFXDP_THR, AFXDP_SOFT, SHM, *_UVLOOP)
_UDP = (DIRECT_R0, DIRECT_R1, UDP_PROXY, UDP_PROXY_R1, AFXDP_THR, AFXDP_SOFT, SHM)
_GROUP = tuple(subject for subject in _UDP if subject.path is not Path.UDP_PROXY)  # which passes no groups on
#: All that tables and pictures may name.
LABELS = {
    subject.key: subject.label
    for subject in (
        *(*SUBJECTS, UDP_PROXY, UDP_PROXY_R1, PASSED_R1, PYTHON_R0, *_UVLOOP, *_STACKS, RELAY_THR, RELAY_SOFT),
        *_CROWDED,
    )
}
_RELAYED = (AFXDP_THR, AFXDP_SOFT, RELAY_THR, RELAY_SOFT)


@dataclass(frozen=True, slots=True)
class Workload:
    """What the application does. `name` is the native client's workload."""

    key: str
    title: str
    name: str
    subjects: tuple[Subject, ...]
    connections: int = 1
    #: Longest spin before sleeping, in microseconds; None: XTS as it comes, kernel sockets sleep at once.
    spin_us: int | None = None
    #: Windows are stretched where the host core is busy so little that /proc/stat's ticks would show.
    stretch: float = 1.0
    #: The application is Python: the standard `socket` module or `xts_socket`.
    python: bool = False
    #: The application is asyncio's streams, or those of `xts_socket.aio`.
    aio: bool = False
    #: The stream is TLS, with a certificate of this kind: "rsa" (2048 bits) or "ecdsa" (P-256).
    tls: str = ""
    #: Its sessions are resumed: of clients by tickets, from the second connection on.
    resumed: bool = False
    #: Length of a request and of its response.
    request_bytes: int = 64
    #: Of datagrams: how many a call sends or takes, how many are segments of a train (GSO, GRO), and how many the peer
    #: sends a second (0: as many as it can). Of processes: how many requests all of them send a second.
    batch: int = 1
    segments: int = 1
    rate_per_s: int = 0
    #: Multicast: groups that it is a member of besides, and to which nothing is sent.
    idle_groups: int = 0
    #: The application is an unmodified server, loaded from the network: a key of `served.PROGRAMS`.
    served: str = ""
    #: What its load generator is asked for.
    load: tuple[str, ...] = ()

    @property
    def group(self) -> str:
        """What `--only` may say for this workload and those like it."""
        return self.key.partition("-")[0]

    @property
    def secured(self) -> str:
        """The services of the peer's over TLS (TLS_SHIFT); "": plain ones."""
        return f"{self.tls}-resumed" if self.resumed else self.tls

    @property
    def bulk(self) -> bool:
        return self.name in ("send", "receive", "threads-send", "nvme-digest", "nvme-plain", "udp-quic")


WORKLOADS = (
    Workload("send", "bulk send, 1 connection", "send", SUBJECTS),
    Workload("receive", "bulk receive, 1 connection", "receive", SUBJECTS),
    Workload(
        "request-spin",
        "64-byte request/response, 1 connection, spinning 50 µs",
        "request",
        _NO_SPLICE,
        spin_us=50,
    ),
    Workload("request-sleep", "64-byte request/response, 1 connection, sleeping", "request", _NO_SPLICE, spin_us=0),
    Workload("requests-32", "64-byte request/response, 32 connections", "requests", _NO_SPLICE, 32, stretch=1.5),
    Workload(
        "requests-32-1k",
        "1 KB request/response, 32 connections",
        "requests",
        _NO_SPLICE,
        32,
        stretch=1.5,
        request_bytes=1024,
    ),
    Workload("connect-32", "connect and close, 32 at a time", "connect", _NO_SPLICE, 32, stretch=1.5),
    Workload("tls-send", "TLS: bulk send, 1 connection", "send", (*_TLS, PYTHON_R0), tls="rsa"),
    Workload("tls-receive", "TLS: bulk receive, 1 connection", "receive", (*_TLS, PYTHON_R0), tls="rsa"),
    Workload("tls-request", "TLS: 64-byte request/response, 1 connection", "request", (*_TLS, PYTHON_R0), tls="rsa"),
    Workload(
        "tls-request-1k",
        "TLS: 1 KB request/response, 1 connection",
        "request",
        (*_TLS, PYTHON_R0),
        tls="rsa",
        request_bytes=1024,
    ),
    *(
        Workload(
            f"tls-requests-{name}",
            f"TLS: {title} request/response, 32 connections",
            "requests",
            _TLS,
            32,
            stretch=1.5,
            tls="rsa",
            request_bytes=size,
        )
        for name, title, size in (("64", "64-byte", 64), ("1k", "1 KB", 1024))
    ),
    *(
        Workload(
            f"tls-connect-{kind}",
            f"TLS handshakes, {title}, 16 at a time (Python: 1)",
            "connect",
            (*_TLS, PYTHON_R0),
            16,
            stretch=2,
            tls=kind,
        )
        for kind, title in (("rsa", "RSA-2048"), ("ecdsa", "ECDSA P-256"))
    ),
    *(
        Workload(
            f"tls-connect-{kind}-resumed",
            f"TLS handshakes, {title}, 16 at a time, resumed by tickets",
            "connect",
            _TLS,
            16,
            stretch=2,
            tls=kind,
            resumed=True,
        )
        for kind, title in (("rsa", "RSA-2048"), ("ecdsa", "ECDSA P-256"))
    ),
    *(
        Workload(
            f"tls-accept-{kind}" + (f"-{load}" if load == "resumed" else ""),
            f"TLS handshakes as a server, {title}, 16 at a time, {how}",
            "accept",
            _TLS,
            16,
            stretch=2,
            tls=kind,
            load=(load,),
        )
        for kind, title in (("rsa", "RSA-2048"), ("ecdsa", "ECDSA P-256"))
        for load, how in (("full", "clients without a session"), ("resumed", "resumed by tickets"))
    ),
    *(
        Workload(f"nvme-{name}", f"NVMe/TCP: 32 KB C2HData, {title}", f"nvme-{name}", (DIRECT_R1, AFXDP_THR, SHM))
        for name, title in (("digest", "header and data digests"), ("plain", "no digests"))
    ),
    Workload(
        "http2",
        "HTTP/2 over TLS, Python: DATA frames of 1 KB (h2 over ssl, or frames of the proxy)",
        "http2",
        _HTTP2,
        python=True,
        tls="rsa",
    ),
    Workload("python-send", "Python: bulk send", "send", (DIRECT_R0, AFXDP_THR, SHM), python=True),
    Workload("python-receive", "Python: bulk receive", "receive", (DIRECT_R0, AFXDP_THR, SHM), python=True),
    Workload(
        "python-request",
        "Python: 64-byte request/response, 1 connection",
        "request",
        (DIRECT_R0, AFXDP_THR, SHM),
        python=True,
    ),
    *(
        Workload(
            f"redis-{test}-{connections}" + (f"-p{pipeline}" if pipeline > 1 else ""),
            f"redis-benchmark: {test.upper()}, {connections} connection{'s'[: connections > 1]}, pipeline {pipeline}",
            "served",
            _SERVED,
            connections,
            served="redis",
            load=("-t", test, "-P", str(pipeline)),
        )
        for test in ("get", "set")
        for connections in (1, 50)
        for pipeline in (1, 16)
    ),
    Workload("wrk-keepalive", "wrk on nginx: 50 connections, kept", "served", _SERVED, 50, served="nginx"),
    Workload(
        "wrk-close",
        "wrk on nginx: 50 connections, closed after each request",
        "served",
        _SERVED,
        50,
        served="nginx",
        load=("-H", "Connection: close"),
    ),
    Workload("sockperf-ping", "sockperf: ping-pong, TCP, 64 bytes", "served", _SERVED, served="sockperf", load=("pp",)),
    Workload(
        "sockperf-throughput",
        "sockperf: throughput, TCP, 1472 bytes",
        "served",
        _SERVED,
        served="sockperf",
        load=("tp",),
    ),
    Workload(
        "pass-redis",
        "pass-through: redis-benchmark GET, 50 connections",
        "served",
        (DIRECT_R1, PASSED_R1),
        50,
        served="redis",
        load=("-t", "get", "-P", "1"),
        stretch=2,
    ),
    Workload(
        "pass-wrk",
        "pass-through: wrk on nginx, 50 connections, kept",
        "served",
        (DIRECT_R1, PASSED_R1),
        50,
        served="nginx",
        stretch=2,
    ),
    *(
        Workload(
            f"stacks-{kind}-{threads}",
            f"{title}, {threads} thread{'s'[: threads > 1]}, one connection each",
            f"threads-{kind}",
            (DIRECT_R0, *_STACKS),
            threads,
        )
        for kind, title in (("request", "64-byte request/response"), ("send", "bulk send"))
        for threads in (1, 2, 4)
    ),
    *(
        Workload(f"relay-{key}", f"relay: {title}", name, _RELAYED, connections)
        for key, title, name, connections in (
            ("request", "64-byte request/response, 1 connection", "request", 1),
            ("requests", "64-byte request/response, 32 connections", "requests", 32),
            ("connect", "connect and close, 32 at a time", "connect", 32),
            ("send", "bulk send, 1 connection", "send", 1),
            ("receive", "bulk receive, 1 connection", "receive", 1),
        )
    ),
    *(
        Workload(
            f"processes-{processes}{suffix}",
            f"64-byte request/response, {processes} processes with a connection each, {title}",
            "processes-request",
            (DIRECT_R0, *_CROWDED),
            processes,
            spin_us=0,
            stretch=2,
            rate_per_s=rate,
        )
        for processes in (3, 200)
        for suffix, title, rate in (("", "2,000 a second in all", 2000), ("-full", "as many as they can", 0))
    ),
    Workload("udp-request-spin", "UDP: 64-byte ping-pong, spinning 50 µs", "udp-request", _UDP, spin_us=50),
    Workload("udp-request-sleep", "UDP: 64-byte ping-pong, sleeping", "udp-request", _UDP, spin_us=0),
    *(
        Workload(
            f"udp-{way}-{sockets}" + ("-mmsg" if batch > 1 else ""),
            f"UDP: 64-byte datagrams {title}, {sockets} socket{'s'[: sockets > 1]}"
            + (f", {batch} a call" if batch > 1 else ""),
            f"udp-{way}",
            _UDP,
            sockets,
            stretch=3,
            batch=batch,
        )
        for way, title in (("send", "sent"), ("receive", "received"))
        for sockets in (1, 32)
        for batch in (1, 32)
    ),
    *(
        Workload(
            f"udp-{way}-{kind}",
            f"UDP: 64-byte datagrams {title} in trains of 64 ({kind.upper()})",
            f"udp-{way}",
            _UDP,
            stretch=3,
            segments=64,
        )
        for way, title, kind in (("send", "sent", "gso"), ("receive", "received", "gro"))
    ),
    *(
        Workload(
            "udp-paced" + ("-mmsg" if batch > 1 else ""),
            "UDP: 100,000 64-byte datagrams a second received" + (f", {batch} a call" if batch > 1 else ""),
            "udp-receive",
            _UDP,
            stretch=3,
            batch=batch,
            rate_per_s=100_000,
        )
        for batch in (1, 32)
    ),
    *(
        Workload(
            f"udp-group-{members}" + ("-idle" if idle else ""),
            f"UDP: 20,000 64-byte datagrams a second to a group, {members} member{'s'[: members > 1]}"
            + (f", {idle:,} idle groups" if idle else ""),
            "udp-group",
            _GROUP,
            members,
            stretch=2,
            rate_per_s=20_000,
            idle_groups=idle,
        )
        for members, idle in ((1, 0), (8, 0), (1, 1000))
    ),
    Workload("udp-names", "names looked up, one after the other", "udp-names", _UDP, spin_us=0),
    Workload("udp-quic", "QUIC by aioquic, bulk receive", "udp-quic", _UDP, stretch=2),
    Workload("udp-lossless", "UDP: 64-byte datagrams received without loss", "udp-lossless", _UDP),
    Workload("asyncio-1", "asyncio: 64-byte echo, 1 connection", "requests", _ASYNCIO, 1, aio=True),
    Workload("asyncio-32", "asyncio: 64-byte echo, 32 connections", "requests", _ASYNCIO, 32, aio=True),
)
