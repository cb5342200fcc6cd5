"""A process of the product, or a program, that gets a little more memory or no further thread, for a while."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from beds.process_limits import little_memory

from chaos.disturbance import Allows, Disturbance, over_ethernet, relayed
from chaos.scene import Scene

#: How much more address space there may be, in KiB.
MORE = (0, 64, 256, 1024, 4096)


def _of(*pids: Callable[[Scene], int]) -> Callable[[Scene, random.Random], None]:
    def do(scene: Scene, chance: random.Random) -> None:
        with little_memory(chance.choice(pids)(scene), chance.choice(MORE)):
            scene.ask()
            time.sleep(chance.uniform(0.2, 1.5))

    return do


def _process(name: str) -> Callable[[Scene, random.Random], None]:
    return _of(lambda scene: scene.pids_of(name)[0])


def _agents_child(name: str) -> Callable[[Scene, random.Random], None]:
    return _of(lambda scene: scene.agents_child(name))


def _little(name: str) -> str:
    return f"little memory for {name}"


TABLE = (
    Disturbance(_little("the workers"), "proxy", Allows.ENDS, _process("xts-workers")),
    Disturbance(_little("the supervisor"), "proxy", Allows.NEW_FAIL, _process("supervisor")),
    Disturbance(_little("the key process"), "proxy", Allows.NEW_FAIL, _process("xts-keys")),
    Disturbance(_little("the metrics process"), "metrics", Allows.NOTHING, _process("xts-metrics")),
    Disturbance(_little("the agent"), "agent", Allows.NEW_FAIL, _process("agent"), over_ethernet),
    Disturbance(_little("the agent's opener"), "agent", Allows.NEW_FAIL, _agents_child("xts-opener"), over_ethernet),
    Disturbance(_little("the relay"), "agent", Allows.ENDS, _agents_child("xts-relay"), relayed),
)
