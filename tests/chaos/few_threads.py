"""A process of the product that can start no further thread or process for a while."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from beds.process_limits import no_more_processes

from chaos.disturbance import Allows, Disturbance, over_ethernet
from chaos.scene import Scene


def _process(name: str) -> Callable[[Scene, random.Random], None]:
    def do(scene: Scene, chance: random.Random) -> None:
        (pid,) = scene.pids_of(name)
        with no_more_processes(pid):
            scene.ask()
            time.sleep(chance.uniform(0.1, 1.0))

    return do


def _no(name: str) -> str:
    return f"no further threads for {name}"


#: Of the agent's own processes only this one becomes another user, for whom the limit holds.
TABLE = (
    Disturbance(_no("the workers"), "proxy", Allows.NOTHING, _process("xts-workers")),
    Disturbance(_no("the supervisor"), "proxy", Allows.NOTHING, _process("supervisor")),
    Disturbance(_no("the key process"), "proxy", Allows.NOTHING, _process("xts-keys")),
    Disturbance(_no("the metrics process"), "metrics", Allows.NOTHING, _process("xts-metrics")),
    Disturbance(_no("the agent"), "agent", Allows.NOTHING, _process("agent"), over_ethernet),
)
