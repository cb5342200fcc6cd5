"""The ways of a run: what is between the programs of the host and the device, as a lab has it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from xts_lab.wire import Wire


@dataclass(frozen=True)
class Way:
    """`queue`: of the lab. `settings`: others of the lab (xts_lab/lab.py)."""

    name: str
    queue: str
    says: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def over_ethernet(self) -> bool:
        return self.queue == "afxdp"

    @property
    def relayed(self) -> bool:
        """Are most programs behind the agent's relay?"""
        return bool(self.settings.get("relayed_max"))

    @property
    def switched(self) -> bool:
        """Does an end not see that the other one's cable is down, so that what it sends then is lost?"""
        return "wire" in self.settings

    @property
    def repeats(self) -> bool:
        """Are frames that the wire loses sent again?"""
        return bool(self.settings.get("reliable"))


#: Enough for each program, and for the processes that some of them make.
_EACH = {"queues": 16, "relayed_max": 0}
_FEW = {"queues": 3, "relayed_max": 64}
_SWITCH = _EACH | {"wire": Wire.SWITCH}

_ALL = (
    Way("shm", "shm", "shared memory", _EACH),
    Way("afxdp", "afxdp", "a queue of AF_XDP for each process", _EACH),
    Way("relay", "afxdp", "three queues, and the agent's relay for the others", _FEW),
    Way("switch", "afxdp", "a switch: frames have heads and find their queue by rules", _SWITCH),
    Way("lossy", "afxdp", "a switch that may lose frames", _SWITCH | {"reliable": True}),
)
WAYS: Mapping[str, Way] = MappingProxyType({way.name: way for way in _ALL})
