"""What a measurement came to: small enough to be kept in a file, from which the table is printed again."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from .measure import Result
from .samples import Ratio, percentile, ratio

MEDIAN_GOAL, P99_GOAL = 1.5, 2.0
SHARES = {"p50": (0.5, MEDIAN_GOAL), "p99": (0.99, P99_GOAL)}
_MOST_NAMED = 3


@dataclass(frozen=True, slots=True)
class Figure:
    """A percentile of a bystander's latency. `attack`: with the attack divided by without it; `control`: the same of
    the control; `own`: with the attack divided by the control, which is what the proxy itself adds. `undisturbed`:
    `attack` of those slots only in which the machine was not disturbed, None where these are too few."""

    quiet_us: float
    attacked_us: float
    attack: Ratio
    control: Ratio | None
    own: Ratio | None
    undisturbed: Ratio | None

    @classmethod
    def of(cls, result: Result, who: str, share: float) -> Self:
        us = {kind: result.us(kind, who) for kind in result.slots}
        calm = {kind: result.us(kind, who, undisturbed=True) for kind in ("quiet", "attacked")}
        control = us.get("control")
        return cls(
            percentile(us["quiet"], share),
            percentile(us["attacked"], share),
            ratio(us["attacked"], us["quiet"], share),
            ratio(control, us["quiet"], share) if control else None,
            ratio(us["attacked"], control, share) if control else None,
            ratio(calm["attacked"], calm["quiet"], share) if len(calm["quiet"]) > 2 else None,
        )

    @classmethod
    def read(cls, kept: dict[str, Any]) -> Self:
        ratios = {name: Ratio(**value) if value else None for name, value in kept.items() if not name.endswith("_us")}
        return cls(**(kept | ratios))

    def verdict(self, goal: float) -> str:
        """As Ratio.verdict(). Where the goal is missed as clearly by the control, it is the machine's: "core"."""
        verdict = self.attack.verdict(goal)
        if verdict != "held" and self.control and self.own and self.own.verdict(goal) == "held":
            return "core" if self.control.verdict(goal) != "held" else verdict
        return verdict


@dataclass(frozen=True, slots=True)
class Summary:
    """Of an attack over a kind of queue. `figures`: by bystander, and by percentile. `rounds`: by kind of slot, the
    worker's rounds by their CPU time; `waited`: the part of such a slot in which something else had the core."""

    attack: str
    queue: str
    commit: str
    slots: int
    disturbed: int
    others: dict[str, float]  # what disturbed them: names of tasks, and their milliseconds
    figures: dict[str, dict[str, Figure]]
    resets: dict[str, int]
    rounds: dict[str, dict[str, int]]
    waited: dict[str, float]
    done: dict[str, int] = field(default_factory=dict)
    account: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def of(cls, result: Result, commit: str) -> Self:
        others: Counter[str] = Counter()
        for slot in (slot for slots in result.slots.values() for slot in slots):
            others.update(slot.machine.foreign_ms)
        numbers = range(len(result.slots["quiet"]))
        return cls(
            result.attack,
            result.queue,
            commit,
            len(numbers),
            sum(result.disturbed(number) for number in numbers),
            dict(others.most_common(_MOST_NAMED)),
            {
                who: {name: Figure.of(result, who, share) for name, (share, _) in SHARES.items()}
                for who in result.bystanders
            },
            {who: result.resets(who) for who in result.bystanders},
            {kind: result.rounds(kind) for kind in result.slots},
            {kind: result.waited(kind) for kind in result.slots},
            dict(result.done),
            result.account,
        )

    @classmethod
    def read(cls, kept: dict[str, Any]) -> Self:
        """From what keep() has made."""
        figures = {
            who: {name: Figure.read(figure) for name, figure in of_one.items()}
            for who, of_one in kept["figures"].items()
        }
        return cls(**(kept | {"figures": figures}))

    def keep(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)

    def verdict(self, who: str) -> str:
        """ "reset"; else the worst of both percentiles' verdicts: "missed", "open", "core" or "held"."""
        if self.resets[who]:
            return "reset"
        found = {self.figures[who][name].verdict(goal) for name, (_, goal) in SHARES.items()}
        return next(verdict for verdict in ("missed", "open", "core", "held") if verdict in found)


def rounds_within(counts: dict[str, int], share: float) -> str:
    """The bound, in seconds, that this share of the rounds did not exceed: "0.0002"; "-": there were none."""
    wanted, within = share * sum(counts.values()), 0
    for bound, count in counts.items():
        within += count
        if count and within >= wanted:
            return bound
    return "-"
