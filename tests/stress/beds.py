"""Where a run happens: a lab (root), loopback with a proxy of our own on shared memory (nobody special), or kernel TCP."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from .settings import Settings


def resident_bytes(pid: int) -> int:
    """Resident memory of a process."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0


class Bed(Protocol):
    """What a run needs to know of its surroundings."""

    listen_address: str
    peer_address: str
    proxy_pid: int
    has_law: bool
    #: Configured limits, for the memory bound.
    spill_bytes: int
    window_bytes_max: int
    umem_bytes: int

    def spawn(
        self, role: str, command: list[str], environment: Mapping[str, str], **streams: Any
    ) -> subprocess.Popen[str]:
        """Starts a command at the host's or the net's end."""

    def host_status(self) -> list[dict[str, Any]]:
        """Sockets of the host's processes as `xts status` has them."""

    def proxy_status(self) -> dict[str, Any]:
        """The proxy's answer to `xts-proxy status`, with connections."""

    def dump(self) -> str:
        """Tables of both sides, for a failure."""


class KernelBed:
    """Plain TCP over loopback: what is tested is the test."""

    listen_address = peer_address = "127.0.0.1"
    proxy_pid = 0
    has_law = False
    spill_bytes = window_bytes_max = umem_bytes = 1 << 30

    def spawn(
        self, role: str, command: list[str], environment: Mapping[str, str], **streams: Any
    ) -> subprocess.Popen[str]:
        del role
        return subprocess.Popen(command, text=True, env={**os.environ, **environment}, **streams)

    def host_status(self) -> list[dict[str, Any]]:
        return []

    def proxy_status(self) -> dict[str, Any]:
        return {}

    def dump(self) -> str:
        return ""


@contextmanager
def raised(settings: Settings) -> Iterator[Bed]:
    """The bed for these settings; taken down at the end."""
    yield KernelBed()
