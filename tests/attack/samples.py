"""What the latencies of many slots say: the ratio of two kinds of slots, and how sure it is.

Slots without the attack, with it, and of the control alternate. So slots of one number were measured within two
seconds, and what the machine does meanwhile is spread over all kinds. Each slot gives one number, a percentile of its
requests. Requests of one slot are not independent of each other: what stalls one stalls those around it. Slots are,
nearly.

A ratio is taken pair by pair. Its value is the Hodges-Lehmann estimate of the logarithms: the median of the means of
all two pairs. Its range is that of the Wilcoxon signed-rank test: exact for any distribution, if pairs differ upwards
as often and as far as downwards where there is no effect. A stall of the machine in a few slots moves neither much. So
a stall that an attack causes in a few slots would not show in them: more_often() looks for these.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import comb

#: A percentile of each slot, in microseconds.
Slots = Sequence[float]


@dataclass(frozen=True, slots=True)
class Ratio:
    """With the attack divided by without it. The true one is below `low`, or above `high`, as seldom as was asked."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.2f} ({self.low:.2f} to {self.high:.2f})"

    def verdict(self, goal: float) -> str:
        """ "held" or "missed" where the whole range is on one side of the goal, else "open"."""
        return "held" if self.high <= goal else "missed" if self.low > goal else "open"


def percentile(samples: Sequence[float], share: float) -> float:
    """Of the requests of one slot."""
    return sorted(samples)[min(len(samples) - 1, int(len(samples) * share))]


@cache
def _cut(pairs: int, chance: float) -> int:
    """Which of the means, counted from either end, is the end of the range: by chance, the sum of the ranks of so many
    pairs is below that with at most this probability. 0: there are too few pairs for a range."""
    ways = [1] + [0] * (pairs * (pairs + 1) // 2)
    for rank in range(1, pairs + 1):
        for total in range(len(ways) - 1, rank - 1, -1):
            ways[total] += ways[total - rank]
    within, allowed = 0, chance * 2**pairs
    for total, count in enumerate(ways):
        within += count
        if within > allowed:
            return total
    return len(ways)


def ratio(with_it: Slots, without: Slots, chance: float) -> Ratio:
    """Of slots of the same numbers. `chance`: that the range is too low, and that it is too high."""
    logs = [math.log(above / below) for above, below in zip(with_it, without, strict=True)]
    means = sorted((one + other) / 2 for number, one in enumerate(logs) for other in logs[number:])
    middle = len(means) // 2
    value = means[middle] if len(means) % 2 else (means[middle - 1] + means[middle]) / 2
    if not (cut := _cut(len(logs), chance)):
        return Ratio(math.exp(value), 0.0, math.inf)
    return Ratio(math.exp(value), math.exp(means[cut - 1]), math.exp(means[-cut]))


def more_often(with_it: int, without: int, slots: int, chance: float) -> bool:
    """Did it happen in more slots with the attack than without? Of `slots` of either kind (Fisher's exact test)."""
    both = with_it + without
    at_least = sum(comb(slots, count) * comb(slots, both - count) for count in range(with_it, min(both, slots) + 1))
    return at_least <= chance * comb(2 * slots, both)
