"""What latencies of many slots say: percentiles of all together, their ratios, and how sure those are.

A slot is a quarter of a second, and slots without the attack, with it, and of the control alternate. So what the
machine does meanwhile is spread over all of them. A ratio is that of the percentiles of all requests together; its
range is found by drawing the slots again, with replacement, many times (bootstrap). Requests of one slot belong
together: what stalls one of them stalls those around it, and drawing requests instead of slots would show a range that
is far too narrow.
"""

from __future__ import annotations

import operator
import random
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

_DRAWS = 400
_SEED = 1  # the same figures give the same range

#: The latencies of each slot.
Slots = Sequence[Sequence[float]]


@dataclass(frozen=True, slots=True)
class Ratio:
    """With the attack divided by without it; nine of ten draws are from `low` to `high`."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.2f} ({self.low:.2f} to {self.high:.2f})"

    def verdict(self, goal: float) -> str:
        """ "held" or "missed" where the whole range is on one side of the goal, else "open"."""
        return "held" if self.high <= goal else "missed" if self.low > goal else "open"


def percentile(slots: Slots, share: float) -> float:
    """Of all samples together."""
    samples = sorted(sample for slot in slots for sample in slot)
    return samples[min(len(samples) - 1, int(len(samples) * share))]


class _Drawn:
    """The samples of slots, sorted once for all draws."""

    def __init__(self, slots: Slots) -> None:
        together = sorted((sample, number) for number, slot in enumerate(slots) for sample in slot)
        self._samples = [sample for sample, _ in together]
        self._numbers = [number for _, number in together]
        self._counts = [len(slot) for slot in slots]

    def percentile(self, times: Sequence[int], share: float) -> float:
        """Of all samples of the slots, each slot as many times as it was drawn."""
        count = sum(map(operator.mul, self._counts, times))
        upto = list(accumulate(map(times.__getitem__, self._numbers)))
        return self._samples[bisect_right(upto, min(count - 1, int(count * share)))]


def ratio(with_it: Slots, without: Slots, share: float) -> Ratio:
    """Of a percentile. Slots of one number were measured one after the other, and are drawn together."""
    draw = random.Random(_SEED)
    above, below = _Drawn(with_it), _Drawn(without)
    ratios = []
    for _ in range(_DRAWS):
        picked = Counter(draw.choices(range(len(without)), k=len(without)))
        times = [picked[number] for number in range(len(without))]
        ratios.append(above.percentile(times, share) / below.percentile(times, share))
    ratios.sort()
    value = percentile(with_it, share) / percentile(without, share)
    return Ratio(value, ratios[_DRAWS // 20], ratios[-1 - _DRAWS // 20])
