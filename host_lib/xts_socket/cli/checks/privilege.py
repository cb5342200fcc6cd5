"""Memory locking, BPF and bcc, which xts-agent and the observability tools need. Applications need none of these."""

from __future__ import annotations

import ctypes.util
import os
import resource
from collections.abc import Iterator
from pathlib import Path

from xts_messages.machine import trace_needs

from . import Check, capabilities, read_text

_CAP_NET_ADMIN, _CAP_IPC_LOCK, _CAP_SYS_ADMIN, _CAP_BPF = 12, 14, 21, 39

#: UMEM of one process by default (design: 16 MB, bounded).
_UMEM_BYTES = 16 << 20


def checks() -> Iterator[Check]:
    yield _memory_locking()
    yield _bpf()
    yield _library("libxdp", "xdp", "apt install libxdp1")
    yield _library("libbpf", "bpf", "apt install libbpf1")
    yield _bcc()


def _has(capability: int) -> bool:
    return bool(capabilities() >> capability & 1)


def _memory_locking() -> Check:
    soft, hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if _has(_CAP_IPC_LOCK):
        return Check("memory locking", "ok", "unlimited (CAP_IPC_LOCK)")
    shown = "unlimited" if soft == resource.RLIM_INFINITY else f"{soft >> 10} KiB"
    if soft == resource.RLIM_INFINITY or soft >= _UMEM_BYTES:
        return Check("memory locking", "ok", f"RLIMIT_MEMLOCK {shown}")
    hint = "" if hard == soft else " (the hard limit is higher)"
    return Check(
        "memory locking",
        "warn",
        f"RLIMIT_MEMLOCK {shown}{hint}: too little to open an AF_XDP queue of {_UMEM_BYTES >> 20} MiB here",
        "nothing, if xts-agent opens queues; else LimitMEMLOCK= or CAP_IPC_LOCK",
    )


def _bpf() -> Check:
    disabled = read_text("/proc/sys/kernel/unprivileged_bpf_disabled")
    shown = "" if disabled is None else f", unprivileged_bpf_disabled={disabled}"
    if _has(_CAP_SYS_ADMIN) or (_has(_CAP_BPF) and _has(_CAP_NET_ADMIN)):
        return Check("BPF", "ok", f"this user may load XDP programs{shown}")
    return Check(
        "BPF",
        "warn",
        f"this user (uid {os.getuid()}) may not load XDP programs{shown}",
        "nothing, if xts-agent runs; it needs CAP_BPF and CAP_NET_ADMIN",
    )


def _library(name: str, stem: str, mend: str) -> Check:
    """Named by the file that the loader would use, which contains the version. A wheel brings its own."""
    for path in (Path(__file__).parents[3] / "xts_offload.libs").glob(f"{name}-*.so*"):
        return Check(name, "ok", f"of the wheel: {path.name}")
    soname = ctypes.util.find_library(stem)
    if soname is None:
        return Check(name, "warn", "not installed: xts-agent cannot run here", mend)
    for line in Path("/proc/self/maps").read_text().splitlines():
        if f"/{soname}" in line:
            return Check(name, "ok", Path(line.split()[-1]).resolve().name)
    for folder in _library_folders():
        path = folder / soname
        if path.exists():
            return Check(name, "ok", path.resolve().name)
    return Check(name, "ok", soname)


def _library_folders() -> list[Path]:
    multiarch = f"{os.uname().machine}-linux-gnu"
    return [
        Path(base) / sub for base in ("/usr/local/lib", "/lib", "/usr/lib", "/usr/lib64") for sub in (multiarch, "")
    ]


def _bcc() -> Check:
    """What `xts-trace` would say; it needs root besides."""
    if lacking := trace_needs.lacks_bcc() or trace_needs.lacks_headers():
        return Check("bcc", "warn", f"the tracing tools do not run: {lacking}", "nothing, if nobody uses xts-trace")
    root = not os.geteuid()
    if root and (lacking := trace_needs.lacks_tracefs()):
        return Check("bcc", "warn", f"the tracing tools do not run: {lacking}", "nothing, if nobody uses xts-trace")
    return Check("bcc", "ok", "the tracing tools run" + ("" if root else " for root"))
