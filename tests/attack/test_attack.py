"""A short, small version of every attack: the bystander keeps its connection, and the attack did something."""

from __future__ import annotations

import os

import pytest

from .attacks import ATTACKS, Attack
from .measure import Settings, run

#: A lab for each attack takes minutes: all of them are tried over shared memory, and with `long` over AF_XDP.
QUEUES = [
    pytest.param("shm-loopback"),
    pytest.param("afxdp", marks=[pytest.mark.root, pytest.mark.afxdp, pytest.mark.long]),
]


@pytest.mark.parametrize("queue", QUEUES)
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_the_bystander_is_served(attack: Attack, queue: str) -> None:
    if queue not in attack.queues:
        pytest.skip(f"{attack.name} is not for {queue}")
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("an attack needs a core beside the proxy's")
    result = run(attack, queue, Settings(rounds=1, seconds=0.3, scale=0.02))
    assert result.resets == 0
    assert result.attacked[0].requests >= 300
    assert sum(result.done.values()) > 0, "the attack did nothing"
