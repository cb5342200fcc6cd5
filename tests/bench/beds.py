"""Test beds: one lab per kind of queue, and a network of the same shape without queues for the kernel-TCP baselines.
Without privilege, one bed for all: a proxy on a shared-memory queue, and everybody on the loopback of this machine."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

from beds import process_tree
from xts_lab import netns, placement, topology
from xts_lab.lab import Lab
from xts_lab.places import LoopbackPlace
from xts_lab.wire import Wire
from xts_proxy.status import control_socket

#: Two benches that take turns have one each (in_turn.py).
_NAME = os.environ.get("BENCH_NAME", "xtsb")
#: Of the lab with more processes than queues; one of them is the relay's.
CROWDED_QUEUES = 4
_PIPES: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}


@dataclass(frozen=True, slots=True)
class Bed:
    """Namespaces of a lab by name; what every bed can do."""

    name: str
    endpoint: str = ""
    proxy_pid: int = 0
    #: Of the process with the private keys.
    keys_pid: int = 0
    #: Of the lab's programs.
    pids: tuple[int, ...] = ()
    #: Of a lab with a relay: that, and the agent with its other children.
    relay_pid: int = 0
    agent_pids: tuple[int, ...] = ()
    #: The peer, and the device as the kernel-TCP host sees it.
    peer: str = "198.18.0.2"
    device: str = "198.18.1.1"

    def member(self, offloaded: bool) -> str:
        """The address of the interface by which a group is received."""
        return "198.18.0.1" if offloaded else "198.18.1.2"

    def spawn(
        self, role: str, command: Sequence[str], environment: Mapping[str, str] | None = None, **streams: Any
    ) -> subprocess.Popen[str]:
        """Starts a command in the namespace of a role; it inherits this process's core, and leads a session of its own:
        the kernel shares a core between sessions first (autogroup), so two programs of one would have half of what a
        third has."""
        with netns.inside(topology.namespace_of(self.name, role)):
            process: subprocess.Popen[str] = subprocess.Popen(
                command, text=True, env={**os.environ, **(environment or {})}, start_new_session=True, **streams
            )
        return process

    def place(self, wanted: str) -> dict[str, str]:
        """Puts a placement in force and reads it back. RuntimeError when it is not in force."""
        if wanted in ("r0", "r1"):
            kernel = placement.KernelPlacement(wanted)
            placement.set_kernel_placement(self.name, kernel)
            placement.verify_kernel_placement(self.name, kernel)
            return {"placement": wanted, "verified": "rps_cpus"}
        if wanted in ("thr", "soft"):
            queue = placement.QueuePlacement(wanted)
            placement.set_queue_placement(self.name, queue)
            placement.verify_queue_placement(self.name, queue)
            return {"placement": wanted, "verified": "threaded, affinity of the NAPI threads"}
        return {}

    def congestion_controls(self) -> dict[str, str]:
        """TCP congestion control of each namespace."""
        found = {}
        for role in topology.ROLES:
            with netns.inside(topology.namespace_of(self.name, role)):
                found[role] = netns.sysctl("ipv4/tcp_congestion_control")
        return found


@dataclass(frozen=True, slots=True)
class LoopbackBed(Bed):
    """Without namespaces. Addresses of the loopback that few programs listen on; the kernel places work as it likes."""

    peer: str = "127.18.0.2"
    device: str = "127.18.1.1"

    def member(self, offloaded: bool) -> str:
        return "127.0.0.1"

    def spawn(
        self, role: str, command: Sequence[str], environment: Mapping[str, str] | None = None, **streams: Any
    ) -> subprocess.Popen[str]:
        everything = {**os.environ, **(environment or {})}
        return subprocess.Popen(command, text=True, env=everything, start_new_session=True, **streams)

    def place(self, wanted: str) -> dict[str, str]:
        return {"placement": "loopback"}

    def congestion_controls(self) -> dict[str, str]:
        return {"loopback": netns.sysctl("ipv4/tcp_congestion_control")}


@contextmanager
def _alone() -> Iterator[None]:
    """Two benches of a name at a time would measure each other: waits for the other's end. The lock is a name
    without a file, so a crash leaves none."""
    reported = False
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as lock:
        while True:
            try:
                lock.bind(f"\0xts-bench-{_NAME}")
                break
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
                if not reported:
                    print("another bench is running on this machine: waiting for its end", file=sys.stderr)
                reported = True
                time.sleep(0.1)
        yield


#: Occupies a queue.
_HOLDER = """
import os, sys
from xts_messages.attaching.attach import attach
with attach(os.environ["XTS_ENDPOINT"]):
    print("held", flush=True)
    sys.stdin.read()
"""
_SETTINGS: dict[str, dict[str, Any]] = {
    "shm": {"queue": "shm", "queues": 1},
    "afxdp": {"queue": "afxdp", "queues": 1},
    "polled": {"queue": "afxdp", "queues": 1, "busy_poll_us": 20, "napi_defer_us": 0},
    "deferred": {"queue": "afxdp", "queues": 1, "busy_poll_us": 20, "napi_defer_us": 50},
    "several": {"queue": "afxdp", "queues": 4},
    "relay": {"queue": "afxdp", "queues": 2, "relayed_max": 16},
    "crowded": {"queue": "afxdp", "queues": CROWDED_QUEUES, "relayed_max": 256},
}


def _with_relay(bed: Bed, agent: int) -> Bed:
    """Its relay is put on the host's core, for its work is the host's."""
    relay = process_tree.one(agent, "xts-relay")
    others = (pid for name, pid in process_tree.below(agent) if name != "xts-relay")
    os.sched_setaffinity(relay, {placement.HOST_CORE})
    return replace(bed, pids=(*bed.pids, relay), relay_pid=relay, agent_pids=(agent, *others))


@contextmanager
def _only_the_relay(bed: Bed, agent: int) -> Iterator[Bed]:
    """No queue is free: whoever attaches is served by the relay."""
    held = bed.spawn("host", [sys.executable, "-c", _HOLDER], {"XTS_ENDPOINT": bed.endpoint}, **_PIPES)
    try:
        assert held.stdout is not None
        if held.stdout.readline() != "held\n":
            raise RuntimeError(f"lab {bed.name}: its queue could not be occupied")
        yield _with_relay(bed, agent)
    finally:
        held.kill()
        held.communicate()


def _wire(kind: str) -> dict[str, Any]:
    """What is between the queues, where the environment names something else than a cable, and how frames find their
    queue there: for bench.compare."""
    if _SETTINGS[kind]["queue"] != "afxdp":
        return {}
    return {"wire": Wire(os.environ.get("BENCH_WIRE", Wire.CABLE)), "steering": os.environ.get("BENCH_STEERING", "")}


@contextmanager
def raised(kinds: Sequence[str], tables: str) -> Iterator[tuple[Bed, dict[str, Bed]]]:
    """The baseline's bed and a lab for each kind (of `_SETTINGS`), with these tables in its proxy's configuration. They
    are taken down at the end."""
    with ExitStack() as stack:
        stack.enter_context(_alone())
        base = f"{_NAME}-base"
        topology.remove_network(base)
        stack.callback(topology.remove_network, base)
        topology.raise_network(base, 1)
        beds = {}
        for kind in kinds:
            settings = {"relayed_max": 0} | _SETTINGS[kind] | _wire(kind)
            lab = stack.enter_context(Lab(f"{_NAME}-{kind}", tables=tables, **settings))
            pids = {name: record.pid for name, record in lab.records().items()}
            workers = control_socket.workers_pid(str(lab.directory / "proxy.sock"))
            keys = process_tree.one(pids["proxy"], "xts-keys")
            bed = Bed(lab.name, str(lab.endpoint), workers, keys, (*pids.values(), workers, keys))
            if kind == "relay":
                bed = stack.enter_context(_only_the_relay(bed, pids["agent"]))
            elif kind == "crowded":
                bed = _with_relay(bed, pids["agent"])
            beds[kind] = bed
        yield Bed(base), beds


@contextmanager
def loopback(tables: str) -> Iterator[tuple[Bed, dict[str, Bed]]]:
    """The same without privilege: one bed, for kernel TCP and for shared memory."""
    with _alone(), LoopbackPlace(tables) as place:
        workers = control_socket.workers_pid(str(place.directory / "proxy.sock"))
        endpoint = str(place.directory / "endpoint.sock")
        keys = process_tree.one(place.proxy_pid, "xts-keys")
        bed = LoopbackBed("loopback", endpoint, workers, keys, (place.proxy_pid, workers, keys))
        yield bed, {"shm": bed}
