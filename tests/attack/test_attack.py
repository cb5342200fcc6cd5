"""A short, small version of every attack: the bystander keeps its connection, no round of the worker takes long by the
clock of its thread, and the attack did something."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from .attacks import ATTACKS, Attack
from .measure import Settings, Stage, stage
from .summary import rounds_within

QUEUES = [
    pytest.param("shm-loopback"),
    pytest.param("afxdp", marks=[pytest.mark.root, pytest.mark.afxdp, pytest.mark.long]),
]
#: All of them take half a minute: some are tried each time, and all, over AF_XDP too, with `long`.
EACH_TIME = {"datagrams-refused", "datagram-flood", "full-backlogs", "name-garbage", "parked", "returns"}
TRIED = [
    pytest.param(attack, id=attack.name, marks=[] if attack.name in EACH_TIME else pytest.mark.long)
    for attack in ATTACKS
]
SHORT = Settings(slots=1, slots_most=1, seconds=0.1, scale=0.02, control=False)
#: Of CPU time: a turn and what it may overrun by, and what interrupts the thread meanwhile and is counted with it.
ROUND_S = 0.005


@pytest.fixture(scope="module", params=QUEUES)
def prepared(request: pytest.FixtureRequest) -> Iterator[Stage]:
    """One proxy for all attacks: to start it takes longer than they do."""
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("an attack needs a second core, next to the proxy's")
    with stage(request.param, SHORT, ATTACKS) as made:
        yield made


@pytest.mark.parametrize("attack", TRIED)
def test_the_bystander_is_served(attack: Attack, prepared: Stage) -> None:
    if prepared.queue not in attack.queues:
        pytest.skip(f"{attack.name} is not for {prepared.queue}")
    result = prepared.measure(attack)
    assert result.bystanders == (["own", "other"] if os.geteuid() == 0 else ["own"])
    assert all(result.resets(who) == 0 for who in result.bystanders)
    assert all(len(result.us("attacked", who)[0]) >= 100 for who in result.bystanders)
    if os.geteuid() == 0:
        assert {row["tenant"] for row in result.account if row["used"]["connections"]} >= {"default", "other"}
    assert sum(result.done.values()) > 0, "the attack did nothing"
    longest = rounds_within(result.rounds("attacked"), 1.0)
    assert longest != "-" and float(longest) <= ROUND_S, result.rounds("attacked")
