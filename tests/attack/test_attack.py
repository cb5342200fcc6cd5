"""A short, small version of every attack: the bystander keeps its connection, and the attack did something."""

from __future__ import annotations

import os

import pytest

from .attacks import ATTACKS, Attack
from .measure import Settings, run

#: A proxy for each takes minutes in all: one is tried each time, and all of them, over AF_XDP too, with `long`.
EACH_TIME = {"full-backlogs"}
QUEUES = [
    pytest.param("shm-loopback"),
    pytest.param("afxdp", marks=[pytest.mark.root, pytest.mark.afxdp, pytest.mark.long]),
]
TRIED = [
    pytest.param(attack, id=attack.name, marks=[] if attack.name in EACH_TIME else pytest.mark.long)
    for attack in ATTACKS
]


@pytest.mark.parametrize("queue", QUEUES)
@pytest.mark.parametrize("attack", TRIED)
def test_the_bystander_is_served(attack: Attack, queue: str) -> None:
    if queue not in attack.queues:
        pytest.skip(f"{attack.name} is not for {queue}")
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("an attack needs a second core, next to the proxy's")
    result = run(attack, queue, Settings(rounds=1, seconds=0.3, scale=0.02, control=False))
    assert result.bystanders == (["own", "other"] if os.geteuid() == 0 else ["own"])
    assert all(result.resets(who) == 0 for who in result.bystanders)
    assert all(latencies.requests >= 300 for latencies in result.attacked[0].values())
    if os.geteuid() == 0:
        assert {row["tenant"] for row in result.account if row["used"]["connections"]} >= {"default", "other"}
    assert sum(result.done.values()) > 0, "the attack did nothing"
