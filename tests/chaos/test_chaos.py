"""Short runs by one seed. `./tests/chaos/run` takes another seed each time, and as long as it is told."""

from __future__ import annotations

from pathlib import Path

import pytest
from beds.lab import skip_without_lab

from chaos.disturbances import of_kind
from chaos.plan import Step, steps
from chaos.session import Outcome, Wanted, run

KINDS = [
    pytest.param("shm", marks=[pytest.mark.root]),
    pytest.param("afxdp", marks=[pytest.mark.root, pytest.mark.afxdp]),
]


def chaos(wanted: Wanted, folder: Path) -> Outcome:
    skip_without_lab(wanted.queue)
    folder.chmod(0o755)
    return run(wanted, folder, print)


@pytest.mark.parametrize("queue", KINDS)
def test_programs_notice_what_they_may(queue: str, tmp_path: Path) -> None:
    outcome = chaos(Wanted(queue, seed=1, steps=5, pause_s=0.03), tmp_path)  # other tests run at the same time
    assert not outcome.failures
    assert outcome.steps == 5


@pytest.mark.long
@pytest.mark.parametrize("queue", KINDS)
def test_for_two_minutes(queue: str, tmp_path: Path) -> None:
    assert not chaos(Wanted(queue, seed=2, seconds=120), tmp_path).failures


def first(seed: int, count: int) -> list[Step]:
    plan = steps(seed, of_kind("afxdp"))
    return [next(plan) for _ in range(count)]


def test_a_plan_depends_on_its_seed_only() -> None:
    assert first(3, 100) == first(3, 100) != first(4, 100)


def test_each_disturbance_has_a_turn_before_one_has_a_second() -> None:
    table = of_kind("afxdp")
    names = [disturbance.name for step in first(5, len(table)) for disturbance, _ in step.parts]
    assert set(names[: len(table)]) == {disturbance.name for disturbance in table}


def test_two_at_the_same_time_are_done_to_different_parts() -> None:
    for step in first(6, 200):
        parts = [disturbance.of for disturbance, _ in step.parts]
        assert len(set(parts)) == len(parts)
