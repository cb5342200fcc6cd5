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
    """A percentile of a bystander's latency, without what other programs of the machine took of it. `attack`: with the
    attack divided by without it; `control`: the same of the control; `own`: with the attack divided by the control,
    which is what the proxy itself adds. `blank`: of slots without an attack, every other one divided by the rest: 1,
    as far as the machine and so few slots can tell. `wall`: `attack` with what other programs took."""

    quiet_us: float
    attacked_us: float
    attack: Ratio
    control: Ratio | None
    own: Ratio | None
    blank: Ratio | None
    wall: Ratio

    @classmethod
    def of(cls, result: Result, who: str, share: float) -> Self:
        us = {kind: result.net_us(kind, who) for kind in result.slots}
        quiet, attacked, control = us["quiet"], us["attacked"], us.get("control")
        half = len(quiet) // 2
        return cls(
            percentile(quiet, share),
            percentile(attacked, share),
            ratio(attacked, quiet, share),
            ratio(control, quiet, share) if control else None,
            ratio(attacked, control, share) if control else None,
            ratio(quiet[1::2][:half], quiet[::2][:half], share) if half > 1 else None,
            ratio(result.us("attacked", who), result.us("quiet", who), share),
        )

    @classmethod
    def read(cls, kept: dict[str, Any]) -> Self:
        ratios = {name: Ratio(**value) if value else None for name, value in kept.items() if not name.endswith("_us")}
        return cls(**(kept | ratios))

    def can_tell(self, goal: float) -> bool:
        """Slots without an attack do not differ from each other by as much as is asked of the attack."""
        return self.blank is not None and self.blank.high <= goal and self.blank.low >= 1 / goal

    def verdict(self, goal: float) -> str:
        """As Ratio.verdict(). What is within the goal where nothing can be told is "open". Where the goal is missed as
        clearly by the control, it is the machine's: "core"."""
        verdict = self.attack.verdict(goal)
        if verdict == "held":
            return "held" if self.can_tell(goal) else "open"
        if self.control and self.own and self.own.verdict(goal) == "held":
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
    stolen_ms: float  # by the hypervisor, of all slots
    others: dict[str, float]  # what else ran on the two cores: names of tasks, and their milliseconds
    figures: dict[str, dict[str, Figure]]
    resets: dict[str, int]
    rounds: dict[str, dict[str, int]]
    waited: dict[str, float]
    done: dict[str, int] = field(default_factory=dict)
    account: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def of(cls, result: Result, commit: str) -> Self:
        others: Counter[str] = Counter()
        seen = [slot.machine for slots in result.slots.values() for slot in slots]
        for machine in seen:
            others.update(machine.foreign_ms)
        return cls(
            result.attack,
            result.queue,
            commit,
            len(result.slots["quiet"]),
            sum(machine.stolen_ms for machine in seen),
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
