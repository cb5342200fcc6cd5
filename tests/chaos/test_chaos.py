"""Short runs by one seed. `./tests/chaos/run` takes another seed each time, and as long as it is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from beds.lab import skip_without_lab

from chaos.disturbances import of_way
from chaos.plan import Step, steps
from chaos.session import Outcome, Wanted, run
from chaos.ways import WAYS


def marked(*names: str) -> list[Any]:
    marks = {"shm": [pytest.mark.root], "afxdp": [pytest.mark.root, pytest.mark.afxdp]}
    return [pytest.param(name, marks=marks[WAYS[name].queue]) for name in names]


def chaos(wanted: Wanted, folder: Path) -> Outcome:
    skip_without_lab(WAYS[wanted.way].queue)
    folder.chmod(0o755)
    return run(wanted, folder, print)


@pytest.mark.parametrize("way", marked("shm", "afxdp"))
def test_programs_notice_what_they_may(way: str, tmp_path: Path) -> None:
    outcome = chaos(Wanted(way, seed=1, steps=5, pause_s=0.03), tmp_path)  # other tests run at the same time
    assert not outcome.failures
    assert outcome.steps == 5


@pytest.mark.long
@pytest.mark.parametrize("way", marked(*WAYS))
def test_for_two_minutes(way: str, tmp_path: Path) -> None:
    assert not chaos(Wanted(way, seed=2, seconds=120), tmp_path).failures


def first(seed: int, count: int) -> list[Step]:
    plan = steps(seed, of_way(WAYS["afxdp"]))
    return [next(plan) for _ in range(count)]


def test_a_plan_depends_on_its_seed_only() -> None:
    assert first(3, 100) == first(3, 100) != first(4, 100)


def test_each_disturbance_has_a_turn_before_one_has_a_second() -> None:
    table = of_way(WAYS["afxdp"])
    names = [disturbance.name for step in first(5, len(table)) for disturbance, _ in step.parts]
    assert set(names[: len(table)]) == {disturbance.name for disturbance in table}


def test_two_at_the_same_time_are_done_to_different_parts() -> None:
    for step in first(6, 200):
        chosen = [disturbance for disturbance, _ in step.parts]
        assert all(one.goes_with(other) for one in chosen for other in chosen if one is not other)
        assert len({one.of for one in chosen}) == len(chosen)
