"""What the figures were measured on: without it they mean nothing."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

from . import haproxy, served
from .beds import Bed
from .native_programs import TOP
from .pyclient import Cores
from .resultfile import FORMAT


def _first(path: str, key: str) -> str:
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        if line.startswith(key):
            return line.partition(":")[2].strip()
    return "unknown"


def _kernel() -> str:
    """Its version, without what a distribution or a provider of machines has added."""
    return platform.release().partition("-")[0]


def _commit() -> str:
    command = ["git", "-C", str(TOP), "describe", "--always", "--dirty", "--abbrev=12"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    return found.stdout.strip() or "unknown"


def foreign_load(seconds: float = 1.0) -> float:
    """Busy share of core 0 while nothing of ours runs: what others take from the figures."""
    before, begin = Cores.now(), time.monotonic()
    time.sleep(seconds)
    elapsed = time.monotonic() - begin
    return Cores.now().busy_s(before, 0, elapsed) / elapsed


def record(beds: Sequence[Bed], command: list[str]) -> dict[str, object]:
    """As one JSON object."""
    system = platform.freedesktop_os_release()
    return {
        "format": FORMAT,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": " ".join(["tests/bench/run", *(Path(word).name if "/" in word else word for word in command[1:])]),
        "version": metadata.version("xts-offload"),
        "commit": _commit(),
        "kernel": _kernel(),
        "system": system.get("PRETTY_NAME", "unknown"),
        "cpu": _first("/proc/cpuinfo", "model name"),
        "cores": os.cpu_count(),
        "memory_mb": int(_first("/proc/meminfo", "MemTotal").split()[0]) // 1024,
        "python": platform.python_version(),
        "haproxy": haproxy.version(),
        "served": served.versions(),
        "cores_used": "core 0: the application; core 1: proxy, HAProxy, peer, load generators, this program",
        "congestion_control": {bed.name: bed.congestion_controls() for bed in beds},
    }
