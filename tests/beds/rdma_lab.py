"""Labs whose host and device reach each other by RDMA (rdma_chosen.py), for suites that were written for AF_XDP.

The lab's device is the first network namespace, for software RoCE is in no other; so there is one such lab at a time.
Its agent is there, too: it has the device of the host's end. Programs of the host are in a namespace of their own, as
in any lab, with nothing but the agent's socket. All share one queue, each behind the agent's relay.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from xts_lab import netns, topology
from xts_lab.lab import Lab, Left
from xts_lab.loopback import ALLOW_LOOPBACK
from xts_lab.placement import KernelPlacement, QueuePlacement
from xts_lab.privilege import RUN_DIRECTORY
from xts_lab.running_programs import Record

from beds import rdma_chosen
from beds.patience import SLOWER

#: Names of labs that tests make.
LEFT = re.compile(r"t\d+[a-z0-9-]*")
PORT = 8690


class RdmaLab(Lab):
    """Its settings are those of a lab with AF_XDP; what only AF_XDP has, has no meaning."""

    def __init__(self, name: str, **settings: Any) -> None:
        super().__init__(name, **(settings | {"queues": 1}))

    def _raise_network(self) -> None:
        rdma_chosen.wire()
        device = topology.namespace_of(self.name, "dpu")
        subprocess.run(["ip", "netns", "attach", device, "1"], check=True, timeout=12 * SLOWER)
        for name, value in (topology.SYSCTLS | topology.FORWARDING).items():
            netns.set_sysctl(name, value)
        others = [role for role in topology.ROLES if role != "dpu"]
        topology.raise_network(self.name, 1, others, topology.NETWORK_CABLES)

    def start_agent(self, environment: Mapping[str, str] | None = None, python: str = sys.executable) -> Record:
        wire = rdma_chosen.wire()
        command = [python, "-m", "xts_agent", "--queue", "rdma", "--interface", wire.host.interface]
        command += ["--rdma-peer", wire.dpu.address, "--rdma-port", str(PORT), "--endpoint", str(self.endpoint)]
        if self.settings.tokens:
            command += ["--token-key", str(self.token_key)]
        if self.settings.relayed_max:
            command += ["--relayed-max", str(self.settings.relayed_max)]
        if self.settings.metrics:
            command += ["--metrics", f"unix:{self.metrics_path('agent')}"]
        return self.spawn("dpu", command, name="agent", ready=True, environment=environment)

    def proxy_configuration(self) -> str:
        wire, settings = rdma_chosen.wire(), self.settings
        values: dict[str, Any] = {
            "queue": "rdma",
            "interface": wire.dpu.interface,
            "control": str(self.control),
            "metrics": f"unix:{self.metrics_path('proxy')}" if settings.metrics else "off",
            "token_key": str(self.token_key) if settings.tokens else "",
        }
        if settings.cpus:
            values |= {"workers": len(settings.cpus), "cpus": list(settings.cpus)}
        over = {"address": wire.dpu.address, "port": PORT, "hosts": [wire.host.address]}
        lines = ["[proxy]", *(f"{key} = {json.dumps(value)}" for key, value in values.items())]
        lines += ["[policy]", 'default = "allow"', settings.tables, ALLOW_LOOPBACK if settings.loopback else ""]
        return "\n".join([*lines, "[rdma]", *(f"{key} = {json.dumps(value)}" for key, value in over.items()), ""])

    def place(self, queues: QueuePlacement, kernel: KernelPlacement) -> None:
        """There are no queues whose work could be anywhere else."""
        self.settings = replace(self.settings, placement=queues, kern_placement=kernel)
        self._store_settings()

    def _tear_down(self) -> list[Left]:
        """The first namespace stays, and what else is in it."""
        left = self._stop_programs()
        if netns.exists(topology.namespace_of(self.name, "dpu")):
            with topology.routing(self.name, "dpu") as route:
                for cable in topology.NETWORK_CABLES:
                    for index in route.link_lookup(ifname=cable.a.interface):
                        route.link("del", index=index)
        netns.remove(topology.namespace_of(self.name, "dpu"))
        return left + super()._tear_down()


def take_back() -> None:
    """In the virtual machine, between programs of tests: labs that one has left when it was ended are taken down."""
    for folder in RUN_DIRECTORY.glob("*"):
        if LEFT.fullmatch(folder.name):
            RdmaLab(folder.name).down()
