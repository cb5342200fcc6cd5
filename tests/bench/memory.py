"""Memory and idle CPU: 10,000 idle connections, and what attaching costs a Python process.

The kernel's own share is kept apart from the processes': it shows in slab caches (sockets, inodes,
dentries, epoll items), which are read before and after for the whole machine; nothing else allocates
meanwhile. A connection through a proxy has two kernel sockets (XTS) or four (HAProxy, counting the
application's own), a direct one two.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from .pyclient import Cores
from .session import Session
from .subjects import PEER_PORT, SERVICES, Subject, Workload
from .subjects import Path as Way

WATCHES = 5
IDLE = Workload("idle", "idle connections", "idle", ())


def _status_bytes(pid: int, key: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/{pid}/status has no {key}")


def _meminfo_bytes(key: str) -> int:
    for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/meminfo has no {key}")


def _cpu_s(pid: int) -> float:
    """User and system time of a process, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class _Moment:
    """Memory at one time."""

    client: int
    server: int
    slab: int

    @classmethod
    def take(cls, client_pid: int, server_pid: int | None) -> _Moment:
        server = _status_bytes(server_pid, "VmRSS") if server_pid else 0
        return cls(_status_bytes(client_pid, "VmRSS"), server, _meminfo_bytes("Slab"))


def _settled_moment(client_pid: int, server_pid: int | None) -> _Moment:
    """When slab has stopped moving: frees of earlier connections arrive late (RCU)."""
    before = _Moment.take(client_pid, server_pid)
    for _ in range(20):
        time.sleep(0.1)
        now = _Moment.take(client_pid, server_pid)
        if abs(now.slab - before.slab) < 64 * 1024:
            return now
        before = now
    return before


def _watch(client_pid: int, server_pid: int | None, watch_s: float) -> dict[str, float]:
    """CPU of the cores and of the processes, as shares of a core."""
    pids = {"client_process_cpu": client_pid} | ({"proxy_process_cpu": server_pid} if server_pid else {})
    before, cores, begin = {key: _cpu_s(pid) for key, pid in pids.items()}, Cores.now(), time.monotonic()
    time.sleep(watch_s)
    after, cores_after, seconds = {key: _cpu_s(pid) for key, pid in pids.items()}, Cores.now(), time.monotonic() - begin
    return {
        "host_cpu": cores_after.busy_s(cores, 0, seconds) / seconds,
        "device_cpu": cores_after.busy_s(cores, 1, seconds) / seconds,
    } | {key: (after[key] - before[key]) / seconds for key in pids}


def idle_connections(session: Session, subject: Subject, count: int, watch_s: float, tls: str = "") -> dict[str, float]:
    """Opens `count` connections (tls: over TLS, to a certificate of this kind), leaves them alone for WATCHES times
    `watch_s` seconds, and asks each for an answer at the end.

    Bytes are resident memory beyond the same processes with one connection, per connection; CPU is a share
    of a core, of the time in which core 0 did the least: what is done for connections is done in all of them, and
    what other programs do (2 % of either core, with kernel TCP as well) may not be.
    """
    session.bed(subject).place(subject.placement)
    command = session.client(subject, Workload("idle", "", "idle", (), connections=count, tls=tls))
    server_pid = {
        Way.XTS: session.bed(subject).proxy_pid,
        Way.HAPROXY: session.haproxy_pid,
        Way.DIRECT: None,
    }[subject.path]
    client = session.spawn(subject, command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        _expect(client, "attached")
        empty = _settled_moment(client.pid, server_pid)
        started = time.monotonic()
        _go_on(client)
        _expect(client, "ready")
        setup_s = time.monotonic() - started
        full = _settled_moment(client.pid, server_pid)
        idle = min((_watch(client.pid, server_pid, watch_s) for _ in range(WATCHES)), key=lambda seen: seen["host_cpu"])
        _go_on(client)
        _expect(client, "answered")
        if client.wait(30) != 0:
            raise RuntimeError(f"{subject.label}: idle connections: exit status {client.returncode}")
    finally:
        client.kill()
        client.wait()
    out = {
        "connections": count,
        "setup_s": setup_s,
        "host_bytes_each": (full.client - empty.client) / count,
        "kernel_bytes_each": (full.slab - empty.slab) / count,
    }
    if server_pid:
        out["proxy_bytes_each"] = (full.server - empty.server) / count
    return out | idle


def attached_process(session: Session, subject: Subject) -> dict[str, float]:
    """Resident memory of a Python process that imported the module and connected, and after 64 MB of bulk
    sending, beyond a Python that did nothing."""
    bare = session.spawn(
        subject,
        [sys.executable, "-c", "print(flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    module = "xts_socket" if subject.path is Way.XTS else "socket"
    command = [
        sys.executable,
        str(Path(__file__).with_name("pyclient.py")),
        "hold",
        "--module",
        module,
        "--address",
        session.bed(subject).peer,
        "--port",
        str(PEER_PORT + SERVICES["request"]),
    ]
    process = session.spawn(subject, command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert bare.stdout is not None
        bare.stdout.readline()
        bare_bytes = _status_bytes(bare.pid, "VmRSS")
        _expect(process, "attached")
        attached = _status_bytes(process.pid, "VmRSS")
        _go_on(process)
        _expect(process, "used")
        used = _status_bytes(process.pid, "VmRSS")
        anonymous = _status_bytes(process.pid, "RssAnon")
        _go_on(process)
    finally:
        for each in (bare, process):
            each.kill()
            each.wait()
    return {
        "bare_bytes": bare_bytes,
        "attached_bytes": attached - bare_bytes,
        "beyond_bare_bytes": used - bare_bytes,
        "anonymous_bytes": anonymous,
    }


def _expect(client: subprocess.Popen[str], state: str) -> None:
    assert client.stdout is not None
    line = client.stdout.readline()
    if f'"{state}"' not in line:
        raise RuntimeError(f"idle client: expected state {state!r}, got {line!r} (exit status {client.poll()})")


def _go_on(client: subprocess.Popen[str]) -> None:
    assert client.stdin is not None
    client.stdin.write("\n")
    client.stdin.flush()
