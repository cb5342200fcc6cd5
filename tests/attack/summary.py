"""What a measurement came to: a line of a result file, from which the tables are made again."""

from __future__ import annotations

import json
import math
import statistics
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, Self

from .measure import KINDS, Result
from .samples import Ratio, Slots, more_often, percentile, ratio

MEDIAN_GOAL, P99_GOAL = 1.5, 2.0
#: By name: the share of a slot's requests, and the goal.
SHARES = {"p50": (0.5, MEDIAN_GOAL), "p99": (0.99, P99_GOAL)}
#: How often a verdict may be wrong in one direction, over all looks together; and the range of a blank.
CHANCE = 0.05
#: A round of slots counts where other programs had at most this part of the two cores in each of them.
BUSY_MOST = 0.1
#: Beyond so many slots of each kind nobody would measure: what they cannot tell is told by something else.
SLOTS_MOST = 400
#: Where the latencies leave a verdict open, it is "bounded" if this share of the rounds took no longer, in seconds of
#: their thread's CPU time: what other programs run is not in it, and the interrupts that they cause are.
BOUNDED_S = {0.99: 0.0002, 1.0: 0.0005}
_MOST_NAMED = 3
_DIGITS = 1
_LEAST_US = 0.1  # what is left of a latency when what others took is taken off may be nothing


@dataclass(frozen=True, slots=True)
class Figure:
    """A percentile of a bystander's slots. `quiet_us`, `attacked_us`: the median of the slots. `attack`: with the
    attack divided by without it; `control`: the same of the control; `own`: with the attack divided by the control,
    which is what the proxy itself adds. `blank`: of slots without an attack, every other one divided by the one before.
    `wall`: `attack` with what other programs took. `often`, `often_control`: beyond the goal in more slots than without
    an attack, and than in the control."""

    goal: float
    slots: int
    quiet_us: float
    attacked_us: float
    attack: Ratio
    control: Ratio | None
    own: Ratio | None
    blank: Ratio
    wall: Ratio
    often: bool = False
    often_control: bool = False

    @property
    def can_tell(self) -> bool:
        """Slots without an attack do not differ from each other by as much as is asked of the attack."""
        return self.blank.high <= self.goal and self.blank.low >= 1 / self.goal

    @property
    def verdict(self) -> str:
        """As Ratio.verdict(). What is within the goal where nothing can be told is "open". What is beyond it in more
        slots than without an attack is "missed". Where the control shows the same, it is the machine's: "core"."""
        verdict = self.attack.verdict(self.goal)
        if self.often and verdict != "missed":
            return "missed" if self.often_control or self.control is None else "core"
        if verdict == "held":
            return "held" if self.can_tell else "open"
        if self.control and self.own and self.own.verdict(self.goal) == "held":
            return "core" if self.control.verdict(self.goal) != "held" else verdict
        return verdict

    def closed_by(self) -> str:
        """What would close a verdict that is open."""
        limit = math.log(self.goal)
        needed = self._needed(self.attack, abs(limit - math.log(self.attack.value)))
        if self.attack.verdict(self.goal) == "held":
            needed = self._needed(self.blank, limit)
        if needed <= SLOTS_MOST:
            return f"{max(needed, self.slots + 1)} slots of each kind"
        if self.attack.verdict(self.goal) == "held":
            return "a quieter machine: slots without an attack differ by as much"
        return "a faster proxy or another goal: it is too near to this one"

    def _needed(self, found: Ratio, margin: float) -> int:
        """With how many slots half of the range of this ratio is the margin: it shrinks by the root of their number."""
        if not found.low or math.isinf(found.high) or not margin:
            return SLOTS_MOST + 1 if not margin else 2 * self.slots
        half = (math.log(found.high) - math.log(found.low)) / 2
        return math.ceil(self.slots * (half / margin) ** 2)


@dataclass(frozen=True)
class Summary:
    """Of an attack over a kind of queue. `slots_us`: by bystander, kind and percentile, what each slot had; "wall" is
    the p99 with what other programs took. `foreign`: by kind, the part of the two cores that other programs had in each
    slot, or None where there was no trace. `rounds`: by kind, the worker's rounds by their CPU time; `waited`: the part
    of such a slot in which something else had the core. `looks`: how many times it could be decided to measure more."""

    attack: str
    queue: str
    commit: str
    measured_on: dict[str, str]
    looks: int
    slots_us: dict[str, dict[str, dict[str, list[float]]]]
    foreign: dict[str, list[float | None]]
    stolen_ms: float  # by the hypervisor, of all slots
    others: dict[str, float]  # what else ran on the two cores: names of tasks, and their milliseconds
    resets: dict[str, int]
    rounds: dict[str, dict[str, int]]
    waited: dict[str, float]
    done: dict[str, int] = field(default_factory=dict)
    account: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def of(cls, result: Result, commit: str, measured_on: dict[str, str], looks: int = 1) -> Self:
        others: Counter[str] = Counter()
        seen = [slot.machine for slots in result.slots.values() for slot in slots]
        for machine in seen:
            others.update(machine.foreign_ms)
        return cls(
            result.attack,
            result.queue,
            commit,
            measured_on,
            looks,
            {who: {kind: _slots_us(result, kind, who) for kind in result.slots} for who in result.bystanders},
            {kind: [_rounded(slot.foreign) for slot in slots] for kind, slots in result.slots.items()},
            sum(machine.stolen_ms for machine in seen),
            {name: round(ms, _DIGITS) for name, ms in others.most_common(_MOST_NAMED)},
            {who: result.resets(who) for who in result.bystanders},
            {kind: result.rounds(kind) for kind in result.slots},
            {kind: round(result.waited(kind), 3) for kind in result.slots},
            dict(result.done),
            result.account,
        )

    @classmethod
    def read(cls, line: str) -> Self:
        """From a line that kept() has made. ValueError, TypeError: it is none."""
        return cls(**json.loads(line))

    def kept(self) -> str:
        """As a line."""
        return json.dumps(asdict(self))

    @cached_property
    def counted(self) -> list[int]:
        """The rounds of slots that count, by number."""
        return list(counted(self.foreign))

    @property
    def traced(self) -> bool:
        """It is known what other programs took."""
        return all(part is not None for slots in self.foreign.values() for part in slots)

    @property
    def measured(self) -> int:
        """How many rounds of slots there are."""
        return len(self.foreign["quiet"])

    @property
    def bystanders(self) -> list[str]:
        return list(self.slots_us)

    def figures(self, who: str) -> dict[str, Figure]:
        """By percentile. None where too few slots count for a blank."""
        if len(self.counted) < 2:
            return {}
        return {name: self._figure(who, name, goal) for name, (_, goal) in SHARES.items()}

    def _figure(self, who: str, name: str, goal: float) -> Figure:
        def of(kind: str, name: str = name) -> Slots:
            return [self.slots_us[who][kind][name][number] for number in self.counted]

        chance = CHANCE / self.looks
        quiet, attacked = of("quiet"), of("attacked")
        control = of("control") if "control" in self.slots_us[who] else None
        wall = "wall" if name == "p99" else name
        bound = goal * statistics.median(quiet)
        beyond = {kind: sum(us > bound for us in of(kind)) for kind in self.slots_us[who]}
        often = [more_often(beyond["attacked"], beyond.get(kind, 0), len(quiet), chance) for kind in KINDS[::2]]
        pairs = len(quiet) // 2
        return Figure(
            goal,
            len(quiet),
            statistics.median(quiet),
            statistics.median(attacked),
            ratio(attacked, quiet, chance),
            ratio(control, quiet, chance) if control else None,
            ratio(attacked, control, chance) if control else None,
            ratio(quiet[1::2][:pairs], quiet[::2][:pairs], CHANCE),
            ratio(of("attacked", wall), of("quiet", wall), chance),
            *often,
        )

    def verdict(self, who: str) -> str:
        """ "reset"; else the worst of both percentiles' verdicts: "missed", "open", "core" or "held". What the
        latencies leave open is "bounded" where the rounds are short."""
        if self.resets[who]:
            return "reset"
        found = self._by_latency(who)
        return "bounded" if found == "open" and self.is_bounded else found

    def _by_latency(self, who: str) -> str:
        found = {figure.verdict for figure in self.figures(who).values()} or {"open"}
        return next(verdict for verdict in ("missed", "open", "core", "held") if verdict in found)

    @property
    def is_bounded(self) -> bool:
        """Every round was short by its thread's clock. A request waits for two rounds on its way to the peer and for
        two on its way back, so the attack adds at most four of them."""
        taken = {share: rounds_within(self.rounds["attacked"], share) for share in BOUNDED_S}
        return all(bound != "-" and float(bound) <= BOUNDED_S[share] for share, bound in taken.items())

    def is_told(self) -> bool:
        """By the latencies. (With more slots, what is bounded may turn out to be held, or missed.)"""
        return all(self.resets[who] or self._by_latency(who) != "open" for who in self.bystanders)

    def closed_by(self, who: str) -> str:
        """What would close the verdict, if it is open: "p99: 60 slots of each kind"."""
        if not (figures := self.figures(who)):
            return f"a quieter machine: {self.measured - len(self.counted)} of {self.measured} rounds did not count"
        return "; ".join(f"{name}: {one.closed_by()}" for name, one in figures.items() if one.verdict == "open")


def _slots_us(result: Result, kind: str, who: str) -> dict[str, list[float]]:
    net = result.net_us(kind, who)
    found = {name: [percentile(slot, share) for slot in net] for name, (share, _) in SHARES.items()}
    found["wall"] = [percentile(slot, SHARES["p99"][0]) for slot in result.us(kind, who)]
    return {name: [max(round(us, _DIGITS), _LEAST_US) for us in slots] for name, slots in found.items()}


def _rounded(part: float | None) -> float | None:
    return None if part is None else round(part, 3)


def counted(foreign: dict[str, list[float | None]]) -> Iterator[int]:
    """The numbers of the rounds in which other programs had little of the cores, whatever the bystanders had. Without a
    trace nobody knows, and all count."""
    for number, parts in enumerate(zip(*foreign.values(), strict=True)):
        if max(part or 0.0 for part in parts) <= BUSY_MOST:
            yield number


def rounds_within(counts: dict[str, int], share: float) -> str:
    """The bound, in seconds, that this share of the rounds did not exceed: "0.0002"; "-": there were none."""
    wanted, within = share * sum(counts.values()), 0
    for bound, count in counts.items():
        within += count
        if count and within >= wanted:
            return bound
    return "-"
