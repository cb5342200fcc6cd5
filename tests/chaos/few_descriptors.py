"""A process of the product, or a program, that can open a few more descriptors, and no further one for a while."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from beds.few_descriptors import few_descriptors

from chaos.disturbance import Allows, Disturbance, over_ethernet, relayed
from chaos.scene import Scene

MORE_MAX = 6
POLLED = 8


def _process(name: str) -> Callable[[Scene, random.Random], None]:
    def do(scene: Scene, chance: random.Random) -> None:
        (pid,) = scene.pids_of(name)
        with few_descriptors(pid, chance.randrange(MORE_MAX), POLLED):
            scene.ask()
            time.sleep(chance.uniform(0.2, 1.5))

    return do


def _agents_child(name: str) -> Callable[[Scene, random.Random], None]:
    def do(scene: Scene, chance: random.Random) -> None:
        with few_descriptors(scene.agents_child(name), chance.randrange(MORE_MAX), POLLED):
            time.sleep(chance.uniform(0.2, 1.5))

    return do


def _program(scene: Scene, chance: random.Random) -> None:
    load = chance.choice([load for load in scene.loads if load.kind.role == "host" and not load.kind.serves])
    with few_descriptors(load.process.pid, chance.randrange(MORE_MAX), POLLED):
        time.sleep(chance.uniform(0.2, 1.5))


def _upgrade(scene: Scene, chance: random.Random) -> None:
    """It may fail. Then the running proxy goes on, and the next one is as ever."""
    with few_descriptors(scene.proxy().pid, chance.randrange(30), POLLED):
        scene.try_upgrade()
    scene.upgrade()


def _of(name: str) -> str:
    return f"few descriptors for {name}"


TABLE = (
    Disturbance(_of("the workers"), "proxy", Allows.NEW_FAIL, _process("xts-workers")),
    Disturbance(_of("the supervisor"), "proxy", Allows.NEW_FAIL, _process("supervisor")),
    Disturbance(_of("an upgrade"), "proxy", Allows.SHARED_END, _upgrade),
    Disturbance(_of("the key process"), "proxy", Allows.NEW_FAIL, _process("xts-keys")),
    Disturbance(_of("the metrics process"), "metrics", Allows.NOTHING, _process("xts-metrics")),
    Disturbance(_of("the proxy's opener"), "proxy", Allows.NOTHING, _process("xts-opener"), over_ethernet),
    Disturbance(_of("the agent"), "agent", Allows.NEW_FAIL, _process("agent"), over_ethernet),
    Disturbance(_of("the agent's opener"), "agent", Allows.NEW_FAIL, _agents_child("xts-opener"), over_ethernet),
    Disturbance(_of("the agent's keeper"), "agent", Allows.NEW_FAIL, _agents_child("xts-keeper"), relayed),
    Disturbance(_of("the relay"), "agent", Allows.NEW_FAIL, _agents_child("xts-relay"), relayed),
    Disturbance(_of("a program"), "program", Allows.NEW_FAIL, _program, apart_from="agent"),
)
