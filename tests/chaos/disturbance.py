"""What a disturbance is: what it is done to, on which ways, and what programs may notice of it."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from chaos.scene import Scene
from chaos.ways import Way


def everywhere(way: Way) -> bool:
    return True


def over_ethernet(way: Way) -> bool:
    return way.over_ethernet


def relayed(way: Way) -> bool:
    return way.relayed


def where_nothing_is_lost(way: Way) -> bool:
    """While a cable is down."""
    return way.over_ethernet and (way.repeats or not way.switched)


def where_frames_are_lost(way: Way) -> bool:
    return way.switched and not way.repeats


def where_frames_are_repeated(way: Way) -> bool:
    return way.repeats


class Allows(Enum):
    NOTHING = "nothing is noticed"
    NEW_FAIL = "new connections may fail"
    SHARED_END = "connections of several processes may end"
    ENDS = "connections may end"


@dataclass(frozen=True)
class Disturbance:
    """`of`: what it is done to; two at the same time are of different parts. `apart_from`: another part that it
    needs."""

    name: str
    of: str
    allows: Allows
    do: Callable[[Scene, random.Random], None]
    on: Callable[[Way], bool] = everywhere
    apart_from: str = ""

    def goes_with(self, other: Disturbance) -> bool:
        return other.of not in (self.of, self.apart_from) and self.of != other.apart_from
