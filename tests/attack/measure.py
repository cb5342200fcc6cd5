"""Slots without an attack, with it, and with it on another proxy of the core, in turns."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from beds.patience import SLOWER
from xts_lab.demo import everything_on

from . import disturbance
from .attacks import Attack
from .bystander import PACE_NS, Latencies
from .disturbance import Machine
from .programs import Attackers, Program, carried_out
from .scene import ECHO_PORT, OTHER_USER, Scene, cores, module, raised
from .scheduler_trace import NOTHING, scheduler_trace

_END_S = 60.0 * SLOWER
_SETTLE_S = 0.5
#: For what ends with an attack outside of the proxy: processes, and queues that the agent opens again.
_CALM_S = 0.3
KINDS = ("quiet", "attacked", "control")

Say = Callable[[str], None]
#: The latencies of each slot.
Latency = list[list[float]]


@dataclass(frozen=True, slots=True)
class Settings:
    """`slots`: of each kind; `slots_most`: so many where that does not tell enough; `seconds`: of a slot; `scale`: how
    much of an attack to make, 1 for all of it; `control`: the same attack on another proxy of the same core, too."""

    slots: int = 12
    slots_most: int = 12
    seconds: float = 0.25
    scale: float = 1.0
    control: bool = True

    @property
    def kinds(self) -> tuple[str, ...]:
        return KINDS if self.control else KINDS[:2]

    @property
    def looks(self) -> list[int]:
        """After how many slots of each kind it is decided whether that is enough: each time twice as many."""
        found = [self.slots]
        while found[-1] * 2 <= self.slots_most:
            found.append(found[-1] * 2)
        return found


@dataclass(frozen=True, slots=True)
class Slot:
    """What was seen in one: by the bystanders, of the machine, and of the worker. `net_us`: the latencies without what
    programs that are no part of this took of them; `waited`: the part of the slot in which the worker could have run
    and something else had its core; `rounds`: its rounds, by their CPU time; `foreign`: the part of the two cores that
    programs had which are no part of this; None where there is no trace."""

    latencies: dict[str, Latencies]
    net_us: dict[str, list[float]]
    machine: Machine
    waited: float
    rounds: dict[str, int]
    foreign: float | None


@dataclass(slots=True)
class Result:
    """What an attack did to the bystanders. `done`: what the attack's parts counted; `account`: the tenants of the
    proxy, while the attack was on."""

    attack: str
    queue: str
    slots: dict[str, list[Slot]] = field(default_factory=dict)
    done: dict[str, int] = field(default_factory=dict)
    account: list[dict[str, Any]] = field(default_factory=list)

    @property
    def bystanders(self) -> list[str]:
        return list(self.slots["quiet"][0].latencies)

    def resets(self, who: str) -> int:
        return sum(slot.latencies[who].resets for slot in self.slots["attacked"])

    def us(self, kind: str, who: str) -> Latency:
        """The latencies of each slot, as the bystander had them."""
        return [slot.latencies[who].us for slot in self.slots[kind]]

    def net_us(self, kind: str, who: str) -> Latency:
        """The same without what other programs of the machine took of them."""
        return [slot.net_us[who] for slot in self.slots[kind]]

    def rounds(self, kind: str) -> dict[str, int]:
        """Of all slots of this kind together."""
        first = self.slots[kind][0].rounds
        return {bound: sum(slot.rounds[bound] for slot in self.slots[kind]) for bound in first}

    def waited(self, kind: str) -> float:
        return statistics.median(slot.waited for slot in self.slots[kind])


Enough = Callable[[Result], bool]


class Stage:
    """A proxy to attack, another one on the same core for the control, the bystanders, and a trace of the cores.
    Attacks are measured on it one after the other."""

    def __init__(self, queue: str, how: Settings, stack: ExitStack, attacks: Iterable[Attack]) -> None:
        self.queue, self.how = queue, how
        self.cores = self.host_core, self.device_core = cores()
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="xts-attack-")))
        folder.chmod(0o755)
        tables = list(dict.fromkeys(attack.tables for attack in attacks))

        def scene(name: str) -> Scene:
            own = folder / name
            own.mkdir(mode=0o755)
            return stack.enter_context(raised(queue, own, tables, how.scale))

        self.scene = scene("first")
        self.other = scene("second") if how.control else None
        stack.enter_context(everything_on(self.host_core))
        self.attackers = stack.enter_context(Attackers(self.scene))
        self.other_attackers = stack.enter_context(Attackers(self.other)) if self.other else None
        self.bystanders = self._start_bystanders(stack)
        self.trace = stack.enter_context(scheduler_trace(self.cores))

    def _start_bystanders(self, stack: ExitStack) -> dict[str, Program]:
        """Without privilege there is none of another tenant."""
        where = (self.scene.place.peer_address, str(ECHO_PORT))
        commands = {"own": module("bystander", *where)}
        if os.geteuid() == 0:
            commands["other"] = module("bystander", *where, str(OTHER_USER))
        stack.enter_context(Program(self.scene, "net", module("echo", *where)))
        return {who: stack.enter_context(Program(self.scene, "host", command)) for who, command in commands.items()}

    # --- an attack ----------------------------------------------------------------------------------------------

    def measure(self, attack: Attack, say: Say = lambda text: None, enough: Enough = lambda result: True) -> Result:
        """Until it is `enough` at one of the looks. OSError, RuntimeError: it could not be measured, and the stage is
        of no use any more."""
        result = Result(attack.name, self.queue, {kind: [] for kind in self.how.kinds})
        own = {os.getpid(), *self.scene.processes, *(self.other.processes if self.other else ())}
        for number in range(1, self.how.looks[-1] + 1):
            say(f"{attack.name} over {self.queue}: slot {number} of {self.how.slots} to {self.how.looks[-1]}")
            self._round(attack, result, own)
            if number in self.how.looks and enough(result):
                break
        return result

    def _round(self, attack: Attack, result: Result, own: set[int]) -> None:
        """A slot of each kind."""
        result.slots["quiet"].append(self._slot(own))
        with self._attacking(self.scene, self.attackers, attack, result.done):
            result.slots["attacked"].append(self._slot(own))
            result.account = self.scene.status()["tenants"]
        if self.other and self.other_attackers:
            with self._attacking(self.other, self.other_attackers, attack, {}):
                result.slots["control"].append(self._slot(own))

    @contextmanager
    def _attacking(self, scene: Scene, attackers: Attackers, attack: Attack, done: dict[str, int]) -> Iterator[None]:
        """All parts, each begun when the one before is under way; until the proxy has got over it."""
        kept = scene.kept()
        used = {"host": 0, "net": 0}
        with ExitStack() as stack:
            for number, part in enumerate(attack.parts):
                program = attackers.at(part.role, used[part.role])
                used[part.role] += 1
                stack.enter_context(carried_out(program, attack.name, number, done))
            yield
        deadline = time.monotonic() + _SETTLE_S
        while scene.kept() > kept and time.monotonic() < deadline:
            time.sleep(0.02)
        time.sleep(_CALM_S)

    # --- a slot -------------------------------------------------------------------------------------------------

    def _slot(self, own: set[int]) -> Slot:
        rounds = self.scene.rounds()
        begun_ns, waited_ns = time.monotonic_ns(), self.scene.worker_waited_ns()
        stolen_ms = disturbance.stolen_ms(self.cores)
        if self.trace:
            self.trace.forget()
        for program in self.bystanders.values():
            program.tell(self.how.seconds)
            time.sleep(PACE_NS / len(self.bystanders) / 1e9)  # their requests do not meet
        latencies = {who: Latencies(**one.answer(_END_S)) for who, one in self.bystanders.items()}
        lasted_ns = time.monotonic_ns() - begun_ns
        waited = (self.scene.worker_waited_ns() - waited_ns) / lasted_ns
        stolen_ms = disturbance.stolen_ms(self.cores) - stolen_ms
        after = self.scene.rounds()  # at once: an attacker that is alone has longer rounds
        seen = disturbance.seen(self.trace.read() if self.trace else NOTHING, disturbance.family(own), stolen_ms)
        taken = {bound: after[bound] - count for bound, count in rounds.items()}
        net_us = {who: _net_us(of_one, seen) for who, of_one in latencies.items()}
        foreign = sum(seen.foreign_ms.values()) * 1e6 / (len(self.cores) * lasted_ns) if self.trace else None
        return Slot(latencies, net_us, seen, waited, taken, foreign)


def _net_us(latencies: Latencies, seen: Machine) -> list[float]:
    return [
        us - seen.taken.within_ns(begun_ns, begun_ns + int(us * 1000)) / 1000
        for begun_ns, us in zip(latencies.begun_ns, latencies.us, strict=True)
    ]


@contextmanager
def stage(queue: str, how: Settings, attacks: Iterable[Attack]) -> Iterator[Stage]:
    """Raised for these attacks, taken down at the end."""
    with ExitStack() as stack:
        yield Stage(queue, how, stack, attacks)
