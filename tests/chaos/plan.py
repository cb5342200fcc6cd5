"""What is done in a run: it depends on the seed only."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from chaos.disturbance import Disturbance

#: How often two are done at the same time, to different parts.
TWO_OF_TEN = 3


@dataclass(frozen=True)
class Step:
    """Disturbances that begin together, each with the numbers that it draws."""

    number: int
    parts: tuple[tuple[Disturbance, int], ...]
    pause_s: float  # before it

    def __str__(self) -> str:
        return " and ".join(disturbance.name for disturbance, _ in self.parts)


def steps(seed: int, table: Sequence[Disturbance]) -> Iterator[Step]:
    """Without an end: who runs them decides when it is enough. Each disturbance has had a turn before one has a
    second."""
    chance = random.Random(seed)
    number = 0
    while True:
        left = list(table)
        chance.shuffle(left)
        while left:
            first = left.pop()
            chosen = [first]
            others = [one for one in left if one.goes_with(first)]
            if others and chance.randrange(10) < TWO_OF_TEN:
                chosen.append(others[0])
                left.remove(others[0])
            number += 1
            parts = tuple((one, chance.getrandbits(32)) for one in chosen)
            yield Step(number, parts, chance.uniform(0.0, 0.4))
