"""The simulated card of xts-bluefield, which a test interrupts, boots and compares."""

from __future__ import annotations

import copy
import errno
import re
from typing import Any

from xts_bluefield import simulated
from xts_bluefield.machine import CommandError
from xts_bluefield.simulated import PCI

__all__ = ["PCI", "PowerLostError", "SimulatedCard"]


class PowerLostError(BaseException):
    """The machine has gone off in the middle of what it did."""


class SimulatedCard(simulated.SimulatedCard):
    #: So many changes from now the next one fails: "power" or "command".
    fails_after: tuple[int, str] | None = None

    def _change(self) -> None:
        super()._change()
        if self.fails_after is not None and self.changes > self.fails_after[0]:
            what = self.fails_after[1]
            self.fails_after = None
            raise PowerLostError if what == "power" else CommandError(errno.EIO, "a command that failed")

    def state(self) -> dict[str, Any]:
        """All that a person could see, to compare."""
        names = ("firmware", "eswitch", "functions", "interfaces", "bridges", "filters", "tables", "files", "grub")
        found = {name: copy.deepcopy(getattr(self, name)) for name in names}
        for function in found["functions"].values():
            function.pop("number")
        for interface in found["interfaces"].values():
            interface.pop("irq", None)
        found["files"] = {path: text for path, text in found["files"].items() if not path.startswith("/proc/irq/")}
        return found | {"enabled": set(self.enabled)}

    def power_cycle(self) -> None:
        """What does not outlive one is gone, and the firmware has started with its new values."""
        self.firmware["current"] = dict(self.firmware["next"])
        self.eswitch, self.functions, self.interfaces, self.filters, self.tables = "legacy", {}, {}, {}, []
        for bridge in self.bridges.values():
            bridge["flows"], bridge["no_flood"] = [], []
        isolated = re.search(r"isolcpus=managed_irq,domain,(\S+)", self.grub)
        self.files["/sys/devices/system/cpu/isolated"] = f"{isolated[1] if isolated else ''}\n"
        self.files["/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"] = "0\n"
