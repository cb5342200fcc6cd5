"""Proxy and agent of another version take the place of the running ones, and those of this version again."""

from __future__ import annotations

import random

from chaos.disturbance import Allows, Disturbance, over_ethernet
from chaos.scene import Scene


def _proxy(scene: Scene, chance: random.Random) -> None:
    """N to N-1 and back, by an upgrade."""
    scene.proxy_version = scene.other(scene.proxy_version)
    scene.upgrade()


def _restarted_proxy(scene: Scene, chance: random.Random) -> None:
    scene.proxy_version = scene.other(scene.proxy_version)
    scene.restart()


def _agent(scene: Scene, chance: random.Random) -> None:
    scene.agent_version = scene.other(scene.agent_version)
    scene.restart_agent()


#: Only in a run that has another version.
TABLE = (
    Disturbance("upgrade of the proxy to another version", "proxy", Allows.SHARED_END, _proxy),
    Disturbance("restart of the proxy as another version", "proxy", Allows.ENDS, _restarted_proxy),
    Disturbance("restart of the agent as another version", "agent", Allows.NOTHING, _agent, over_ethernet),
)
