"""Test beds: one lab per kind of queue, and a network of the same shape without queues for the kernel-TCP
baselines."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from xts_lab import netns, placement, topology

_NAME = "xtsb"


@dataclass(frozen=True, slots=True)
class Bed:
    """Namespaces of a lab by name; what every bed can do."""

    name: str
    queue: str = ""
    endpoint: str = ""
    proxy_pid: int = 0

    def spawn(
        self, role: str, command: Sequence[str], environment: Mapping[str, str] | None = None, **streams: Any
    ) -> subprocess.Popen[str]:
        """Starts a command in the namespace of a role; it inherits this process's core."""
        with netns.inside(topology.namespace_of(self.name, role)):
            process: subprocess.Popen[str] = subprocess.Popen(
                command, text=True, env={**os.environ, **(environment or {})}, **streams
            )
        return process

    def place(self, wanted: str) -> dict[str, str]:
        """Puts a placement in force and verifies it; RuntimeError when it is not in force."""
        if wanted in ("r0", "r1"):
            placement.set_kernel_placement(self.name, placement.KernelPlacement(wanted))
            placement.verify_kernel_placement(self.name, placement.KernelPlacement(wanted))
            return {"kernel": wanted, "verified": "rps_cpus"}
        if wanted in ("thr", "soft"):
            placement.set_queue_placement(self.name, placement.QueuePlacement(wanted))
            placement.verify_queue_placement(self.name, placement.QueuePlacement(wanted))
            return {"queue": wanted, "verified": "threaded, affinity of NAPI threads"}
        return {}

    def congestion_controls(self) -> dict[str, str]:
        """TCP congestion control of each namespace."""
        found = {}
        for role in topology.ROLES:
            with netns.inside(topology.namespace_of(self.name, role)):
                found[role] = netns.sysctl("ipv4/tcp_congestion_control")
        return found


@contextmanager
def raised(queues: Sequence[str]) -> Iterator[tuple[Bed, dict[str, Bed]]]:
    """The baseline's bed and a lab per queue, taken down at the end."""
    with ExitStack() as stack:
        base = f"{_NAME}-base"
        topology.remove_network(base)
        stack.callback(topology.remove_network, base)
        topology.raise_network(base, 1)
        yield Bed(base), {}
