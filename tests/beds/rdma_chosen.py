"""TESTS_WIRE=rdma: suites that were written for other queues have one over RDMA, in the virtual machine.

What they are about is behind the queue: sockets, programs, names, TLS. So an agent and a proxy over RDMA stand in for
a proxy with shared memory (proxy_queue.py), and for a lab's (rdma_lab.py). The device is software RoCE, or what
TESTS_RDMA names. Both ends are in the first network namespace, as in rdma_wire.py. They share one wire, and each proxy
has a port of its own.
"""

from __future__ import annotations

import itertools
import os
from functools import cache
from pathlib import Path

from beds.rdma import DEVICES, Device, unlimited_memory
from beds.rdma_wire import Wire

DEVICE_VARIABLE = "TESTS_RDMA"
#: Those of a lab between host and device.
HOST_INTERFACE, DPU_INTERFACE = "xts0", "xtsd0"
_HOST_ADDRESS, _DPU_ADDRESS = "10.9.4.1", "10.9.4.2"
_TABLE = 930
_PORTS = itertools.count(8700)


class SharedWire(Wire):
    """One for all kinds of devices, of which it has one at a time: what labs and others look for has these names."""

    def __init__(self, kind: str) -> None:
        self.kind, self.bridge, self.table = kind, "brxts", _TABLE
        self.host = Device(kind, name=f"{kind}0", interface=HOST_INTERFACE, address=_HOST_ADDRESS)
        self.dpu = Device(kind, name=f"{kind}1", interface=DPU_INTERFACE, address=_DPU_ADDRESS)

    def ensure(self) -> None:
        """Makes what is not there yet. Devices of another kind go, which waits until nobody has them."""
        unlimited_memory()
        if not Path("/sys/class/net", self.bridge).exists():
            self._make_interfaces()
        for other in sorted(DEVICES.keys() - {self.kind}):
            for device in (self.host, self.dpu):
                if Path("/sys/class/infiniband", device.name.replace(self.kind, other)).exists():
                    Device(other, name=device.name.replace(self.kind, other)).delete()
        for device in (self.host, self.dpu):
            if not Path("/sys/class/infiniband", device.name).exists():
                device.add()


def missing() -> str:
    """Why there is nothing over RDMA here, or ""."""
    if not os.environ.get("XTS_VM"):
        return "this is not the virtual machine (tests/vm/run)"
    return wire_named().missing()


def wire_named() -> SharedWire:
    """The one that TESTS_RDMA names; nothing is made."""
    return SharedWire(os.environ.get(DEVICE_VARIABLE, "rxe"))


@cache
def wire() -> SharedWire:
    """The same, which is there."""
    made = wire_named()
    made.ensure()
    return made


def next_port() -> int:
    """Of a proxy's queue."""
    return next(_PORTS)
