"""A run: steps of a plan, one after the other, each judged."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from beds.versions import TODAY, Version

from chaos.disturbance import Disturbance
from chaos.disturbances import of_way
from chaos.oracle import Failure, Oracle
from chaos.plan import Step, steps
from chaos.scene import Scene, scene
from chaos.ways import WAYS

#: What a run is ended after: the rest would tell of the same.
FAILURES_MAX = 5


@dataclass
class Outcome:
    steps: int = 0
    slowest_s: float = 0.0
    failures: list[Failure] = field(default_factory=list)


def _do(scene: Scene, disturbance: Disturbance, number: int, complaints: list[str]) -> None:
    try:
        disturbance.do(scene, random.Random(number))
    except Exception as error:
        complaints.append(f"{disturbance.name} could not be done: {error!r}")


def _carry_out(scene: Scene, step: Step, oracle: Oracle) -> None:
    time.sleep(step.pause_s)
    begun = time.monotonic()
    complaints: list[str] = []
    threads = [threading.Thread(target=_do, args=(scene, *part, complaints)) for part in step.parts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    oracle.failures += [Failure(step, why) for why in complaints]
    oracle.all_got_on(step, time.monotonic())
    oracle.judge(step, begun)


@dataclass(frozen=True)
class Wanted:
    """`only`: disturbances whose names have this. `steps`: at most so many. `pause_s`: of loads, between an answer and
    the next request. Without one they take all of a small machine, and a worker that did not run for a while comes to
    its turns so late that hosts give it up."""

    way: str  # a name of ways.py
    seed: int
    seconds: float = 1e9
    only: str = ""
    steps: int = 1 << 30
    pause_s: float = 0.01
    other: Version | None = None  # which proxy and agent may become


def run(wanted: Wanted, folder: Path, say: Callable[[str], None]) -> Outcome:
    """`folder`: where what programs say is kept. ValueError: there is no such disturbance."""
    way = WAYS[wanted.way]
    every = of_way(way, has_other_version=wanted.other is not None)
    table = [one for one in every if wanted.only in one.name]
    if not table:
        names = ", ".join(one.name for one in every)
        raise ValueError(f"no disturbance of {wanted.way} has {wanted.only!r} in its name: {names}")
    outcome = Outcome()
    with scene(way, folder, wanted.pause_s, (TODAY, wanted.other) if wanted.other else (TODAY,)) as made:
        oracle = Oracle(made)
        oracle.all_got_on(None, time.monotonic())
        oracle.judge(None, time.monotonic())
        before = made.descriptors()
        deadline = time.monotonic() + wanted.seconds
        for step in steps(wanted.seed, table):
            if time.monotonic() > deadline or outcome.steps >= wanted.steps or len(oracle.failures) > FAILURES_MAX:
                break
            known, begun = len(oracle.failures), time.monotonic()
            _carry_out(made, step, oracle)
            outcome.steps += 1
            say(f"{step.number:4} {time.monotonic() - begun:5.1f} s  {step}")
            for failure in oracle.failures[known:]:
                say(f"     FAILED {failure.why}")
        oracle.flat(before, made.descriptors())
    outcome.failures, outcome.slowest_s = oracle.failures, oracle.slowest_s
    return outcome
