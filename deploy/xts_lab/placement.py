"""Which core does the device's work. This decides what a figure measured on one machine means.

On veth the receiver's work runs on the sender's core, so by default the host's core does what a NIC or DPU would do.
The lab can move this work to the device's core. For the XTS queues (`QueuePlacement`):

    soft   veth's default: the host's kick runs the device's receive, half the latency, more host CPU
    thr    the device's NAPI runs in kernel threads pinned to the device core, as a DMA engine's work would

and for kernel TCP, the baseline, which threaded NAPI does not move (`KernelPlacement`):

    r0     veth's default
    r1     RPS hands received packets to the core of the machine they are for: device core for dpu and net,
           host core for kern

Threads can be asked for only while an XDP program is attached (veth has no NAPI before), and each attach
makes new ones: set the placement after the proxy has opened its queues, and again after it was restarted.
`verify()` reads back what is in force; a benchmark calls it in every run.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from socket import if_nametoindex

from pyroute2.netlink import NLM_F_DUMP, NLM_F_REQUEST, genlmsg
from pyroute2.netlink.exceptions import NetlinkError
from pyroute2.netlink.generic import GenericNetlinkSocket

from . import netns, topology

HOST_CORE = 0
DEVICE_CORE = 1

_NETDEV_CMD_NAPI_GET = 11
#: The parent of the kernel's threads, where they can be seen.
_SECOND_TASK = Path("/proc/2/comm")


class QueuePlacement(StrEnum):
    """Where the device's receive work for the XTS queues runs."""

    SOFT = "soft"
    THR = "thr"


class KernelPlacement(StrEnum):
    """Where packets received by kernel TCP are processed."""

    R0 = "r0"
    R1 = "r1"


@dataclass(frozen=True)
class Cores:
    """The host's core and the device's (proxy, servers, the world)."""

    host: int = HOST_CORE
    device: int = DEVICE_CORE


_DEFAULT_CORES = Cores()


class _NapiMessage(genlmsg):  # type: ignore[misc]
    """A message of the kernel's netdev family (include/uapi/linux/netdev.h)."""

    prefix = "NETDEV_A_NAPI_"
    nla_map = (
        ("NETDEV_A_NAPI_UNSPEC", "none"),
        ("NETDEV_A_NAPI_IFINDEX", "uint32"),
        ("NETDEV_A_NAPI_ID", "uint32"),
        ("NETDEV_A_NAPI_IRQ", "uint32"),
        ("NETDEV_A_NAPI_PID", "uint32"),
    )


def napi_threads(namespace: str, interface: str) -> list[int]:
    """Process ids of an interface's NAPI threads, one a queue; none when NAPI is not threaded.

    OSError EOPNOTSUPP on kernels before 6.8, which do not report it."""
    with netns.inside(namespace):
        index = if_nametoindex(interface)
        socket = GenericNetlinkSocket()
    with socket:
        try:
            socket.bind("netdev", _NapiMessage)
        except NetlinkError as error:
            raise OSError(errno.EOPNOTSUPP, "the kernel does not list NAPI threads (Linux 6.8 does)") from error
        request = _NapiMessage()
        request["cmd"], request["version"] = _NETDEV_CMD_NAPI_GET, 1
        found = list(socket.nlm_request(request, msg_type=socket.prid, msg_flags=NLM_F_REQUEST | NLM_F_DUMP))
    return sorted(
        message.get_attr("NETDEV_A_NAPI_PID")
        for message in found
        if message.get_attr("NETDEV_A_NAPI_IFINDEX") == index and message.get_attr("NETDEV_A_NAPI_PID")
    )


def unavailable() -> str | None:
    """Why the device's work cannot be given a core here; None if it can. A PID namespace of its own, as a container
    has, hides the kernel's threads: the kernel names none, and none can be pinned."""
    try:
        seen = _SECOND_TASK.read_text().strip() == "kthreadd"
    except OSError:
        seen = False
    return None if seen else "the kernel's threads cannot be seen here; a container needs --pid=host"


# --- the XTS queues ----------------------------------------------------------------


def set_queue_placement(lab: str, placement: QueuePlacement, cores: Cores = _DEFAULT_CORES) -> None:
    """Puts the device's receive work for the XTS queues in its place, and verifies it.

    For `thr` the proxy must have attached its XDP program: OSError EOPNOTSUPP or EIO otherwise."""
    namespace, interface = _end_of(topology.DPU_XTS, lab)
    with netns.sysfs(namespace) as top:
        wanted = "1" if placement is QueuePlacement.THR else "0"
        setting = f"class/net/{interface}/threaded"
        if netns.read_sysfs(top, setting) != wanted:
            netns.write_sysfs(top, setting, wanted)
    if placement is QueuePlacement.THR:
        for thread in napi_threads(namespace, interface):
            os.sched_setaffinity(thread, {cores.device})
    verify_queue_placement(lab, placement, cores)


def verify_queue_placement(lab: str, placement: QueuePlacement, cores: Cores = _DEFAULT_CORES) -> None:
    """RuntimeError when another placement is in force than the one named."""
    namespace, interface = _end_of(topology.DPU_XTS, lab)
    with netns.sysfs(namespace) as top:
        threaded = netns.read_sysfs(top, f"class/net/{interface}/threaded") == "1"
    if threaded != (placement is QueuePlacement.THR):
        raise RuntimeError(
            f"{interface} in {namespace}: NAPI is {'' if threaded else 'not '}threaded, "
            f"which is not placement {placement}"
        )
    if not threaded:
        return
    threads = napi_threads(namespace, interface)
    if not threads:
        why = unavailable() or "is the proxy's XDP program attached?"
        raise RuntimeError(f"{interface} in {namespace} has no NAPI thread: {why}")
    for thread in threads:
        if (where := os.sched_getaffinity(thread)) != {cores.device}:
            raise RuntimeError(
                f"NAPI thread {thread} of {interface} may run on cores {sorted(where)}, not on {cores.device} alone"
            )


# --- kernel TCP ----------------------------------------------------------------


def _receive_masks(placement: KernelPlacement, cores: Cores) -> dict[topology.End, int]:
    """Interface -> RPS mask: the cores that process its packets; 0 is veth's default."""
    device, host = 1 << cores.device, 1 << cores.host
    masks = {topology.KERN: host, topology.DPU_KERN: device, topology.DPU_NET: device, topology.NET: device}
    return {end: mask if placement is KernelPlacement.R1 else 0 for end, mask in masks.items()}


def set_kernel_placement(lab: str, placement: KernelPlacement, cores: Cores = _DEFAULT_CORES) -> None:
    """Puts the receive work of kernel TCP (kern and net cables) in its place, and verifies it."""
    for end, mask in _receive_masks(placement, cores).items():
        namespace, interface = _end_of(end, lab)
        with netns.sysfs(namespace) as top:
            for setting in _receive_settings(top, interface):
                netns.write_sysfs(top, setting, f"{mask:x}")
    verify_kernel_placement(lab, placement, cores)


def verify_kernel_placement(lab: str, placement: KernelPlacement, cores: Cores = _DEFAULT_CORES) -> None:
    """RuntimeError when another placement is in force than the one named."""
    for end, mask in _receive_masks(placement, cores).items():
        namespace, interface = _end_of(end, lab)
        with netns.sysfs(namespace) as top:
            for setting in _receive_settings(top, interface):
                found = int(netns.read_sysfs(top, setting).replace(",", ""), 16)
                if found != mask:
                    raise RuntimeError(
                        f"{setting} in {namespace} is {found:x}, not {mask:x}: not placement {placement}"
                    )


def _receive_settings(top: int, interface: str) -> list[str]:
    directory = f"class/net/{interface}/queues"
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=top)
    try:
        queues = os.listdir(descriptor)  # noqa: PTH208 (a descriptor, not a path)
        return [f"{directory}/{queue}/rps_cpus" for queue in queues if queue.startswith("rx-")]
    finally:
        os.close(descriptor)


def _end_of(end: topology.End, lab: str) -> tuple[str, str]:
    return topology.namespace_of(lab, end.role), end.interface
