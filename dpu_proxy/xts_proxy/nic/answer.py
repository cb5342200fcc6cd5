"""The interface of this package: capabilities, and what a back end says of each.

A capability is what a chapter of the verbs manual is about. Each back end answers for those that it knows. Of several
that can, the first in the order of BACK_ENDS is what a user would choose; what the proxy *does* is said by in_force.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


class Capability(StrEnum):
    """What may be asked for."""

    RAW_PACKETS = "raw packets"
    PACING = "pacing"
    SEGMENTATION = "segmentation"
    STEER_DSCP = "steering by DSCP"
    STEER_FLOW = "steering by flow"
    STEER_VNI = "steering by VNI"
    DEVICE_MEMORY = "device memory"
    ACK_TIMEOUT = "time-out of acknowledgements"
    ESTABLISH = "establishing by the application"


@dataclass(frozen=True, slots=True)
class Answer:
    """What one back end says of one capability. `limit`: how far it goes; `reason`: why not, or what to know."""

    capability: Capability
    available: bool
    back_end: str
    limit: str = ""
    reason: str = ""


class BackEnd(Protocol):
    """A way to do things."""

    name: str

    def answers(self, interface: str) -> Iterator[Answer]:
        """For an interface of this network namespace. Needs no privilege, and changes nothing."""
        ...
