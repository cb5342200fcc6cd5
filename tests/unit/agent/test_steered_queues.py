"""What an agent knows of its queues where frames are steered (steered_queues.py): by rounds of probes."""

from __future__ import annotations

import logging
from typing import Any, cast

import pytest
from xts_agent import steered_queues
from xts_agent.steered_queues import AT_FIRST_S, SteeredQueues
from xts_bpf.steering import SOON_S, Proof

ALL = Proof(frozenset(), "", answered=True)
DOWN = Proof(frozenset({1, 2, 3}), "no probe leaves card0: Network is down")
UNANSWERED = Proof(frozenset({1, 2, 3}), "no answer")
WITHOUT_TWO = Proof(frozenset({2}), "frames for queue 2 arrive on queue 0", answered=True)


class Config:
    token_key = "/key"
    peer_mac_bytes = bytes(6)
    flow_rules, ethertype, prove_every_s = "ethtool", 0x855B, 60


class Program:
    def owner(self, _: int) -> int:
        return 0


class Interface:
    def __init__(self, *_: object, **__: object) -> None:
        pass

    def look(self) -> bool:
        return False

    def close(self) -> None:
        pass


class Rounds:
    """What probes show, round by round; the last one again and again."""

    def __init__(self, *found: Proof) -> None:
        self.found = list(found)

    def __call__(self, *_: object) -> Rounds:
        return self

    def prove(self, *_: object, **__: object) -> Proof:
        return self.found.pop(0) if len(self.found) > 1 else self.found[0]


def queues(monkeypatch: pytest.MonkeyPatch, rounds: Rounds) -> SteeredQueues:
    monkeypatch.setattr(steered_queues, "Prober", rounds)
    monkeypatch.setattr(steered_queues, "SteeredInterface", Interface)
    made = SteeredQueues(cast(Any, Config()), cast(Any, Program()), logging.getLogger("test"))
    made.begin("card0", bytes(6), 4)
    return made


@pytest.mark.parametrize("silent", [DOWN, UNANSWERED], ids=["a cable that is down", "a proxy that starts again"])
@pytest.mark.parametrize("known", [ALL, WITHOUT_TWO], ids=["all", "without one"])
def test_a_round_without_an_answer_says_nothing(monkeypatch: pytest.MonkeyPatch, silent: Proof, known: Proof) -> None:
    rounds = Rounds(known, known, silent)
    made = queues(monkeypatch, rounds)
    made.prove()
    assert not made.prove(), "nothing else is known"
    assert made.proof == known
    assert 0 < made.wait_s() <= 8 * SOON_S, "and the next round is soon"
    rounds.found = [WITHOUT_TWO]
    made.prove()
    assert made.proof == WITHOUT_TWO


def test_a_queue_that_is_not_proved_is_proved_again_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy that starts again has its rules in a moment. Later and later, if it has not; then from the beginning."""
    rounds = Rounds(ALL, WITHOUT_TWO)
    made = queues(monkeypatch, rounds)
    for _ in range(2):
        waits = []
        for _ in range(20):
            made.prove()
            waits.append(made.wait_s())
        assert waits[0] <= AT_FIRST_S < SOON_S / 10
        assert waits[1] > waits[0]
        assert sum(waits[:4]) < SOON_S
        assert waits[-1] == pytest.approx(Config.prove_every_s, abs=1.0)
        rounds.found = [ALL]
        made.prove()
        assert made.wait_s() > SOON_S
        rounds.found = [WITHOUT_TWO]


def test_a_device_that_never_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    made = queues(monkeypatch, Rounds(UNANSWERED))
    assert made.proof == UNANSWERED
    assert made.wait_s() <= SOON_S


def test_another_interface_is_another_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = Rounds(ALL)
    made = queues(monkeypatch, rounds)
    rounds.found = [UNANSWERED]
    made.begin("card1", bytes(6), 4)
    assert made.proof == UNANSWERED
