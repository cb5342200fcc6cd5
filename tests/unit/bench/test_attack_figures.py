"""What tests/attack makes of what it has measured: what other programs took of a request, and what may be said."""

from __future__ import annotations

import dataclasses
import os
import random
from pathlib import Path

import pytest
from attack import page
from attack.disturbance import seen
from attack.measure import KINDS
from attack.samples import Ratio, more_often, ratio
from attack.scheduler_trace import Run, Taken, Traced, history_of, parents_of
from attack.summary import Figure, Summary

TRACE = """\
# tracer: nop
          <idle>-0       [001] d..2. 10.000100: sched_switch: prev_comm=swapper/1 prev_pid=0 prev_prio=120 \
prev_state=R ==> next_comm=a b next_pid=7 next_prio=120
             a b-7       [001] d..2. 10.000350: sched_switch: prev_comm=a b prev_pid=7 prev_prio=120 \
prev_state=S ==> next_comm=kdamond.0 next_pid=9 next_prio=120
       kdamond.0-9       [001] d..2. 11.000000: sched_switch: prev_comm=kdamond.0 prev_pid=9 prev_prio=120 \
prev_state=R ==> next_comm=swapper/1 next_pid=0 next_prio=120
"""
EVEN = Ratio(1.0, 0.8, 1.2)


def test_a_trace_is_read() -> None:
    assert history_of(TRACE.splitlines()) == (
        [Run(10_000_100_000, 10_000_350_000, 7, "a b"), Run(10_000_350_000, 11_000_000_000, 9, "kdamond.0")],
        [],
    )


def ran(time: str, task: int, ns: int) -> str:
    return f"   a b-7   [001] d.h1. {time}: sched_stat_runtime: comm=a b pid={task} runtime={ns} [ns]"


def test_what_the_hypervisor_took_is_what_a_task_did_not_run() -> None:
    """The account leaves it out, and the clock does not: here 150 of 250 us. 10 us may be between two clocks."""
    first, *rest = TRACE.splitlines()[1:]
    assert history_of([first, ran("10.000349", 7, 99_000), *rest])[1] == [(10_000_199_000, 10_000_349_000)]
    assert history_of([first, ran("10.000349", 7, 239_000), *rest])[1] == []


def test_a_task_whose_switch_is_not_in_the_trace_is_known_by_its_account() -> None:
    """8 has run for 100 us before 10.000300: 7 had the core until then, and neither was anything stolen."""
    first, _, last = TRACE.splitlines()[1:]
    assert history_of([first, ran("10.000300", 8, 100_000), last]) == (
        [
            Run(10_000_100_000, 10_000_200_000, 7, "a b"),
            Run(10_000_200_000, 10_000_300_000, 8, "a b"),
            Run(10_000_300_000, 11_000_000_000, 9, "kdamond.0"),
        ],
        [],
    )


def test_what_was_taken_of_a_time() -> None:
    taken = Taken([(10, 20), (40, 50), (15, 25)])
    assert [taken.within_ns(*time) for time in [(0, 10), (0, 12), (12, 14), (0, 100), (24, 41), (25, 40)]] == [
        0,
        2,
        2,
        25,
        2,
        0,
    ]


def test_who_has_ended_is_what_its_parent_is() -> None:
    gone, started = 2**30, 2**30 + 1
    fork = f"  sh-{gone} [000] d.... 1.000000: sched_process_fork: comm=sh pid={gone} child_comm=sh child_pid={started}"
    assert parents_of([*TRACE.splitlines(), fork]) == {started: gone}
    runs = {0: [Run(0, 1000, started, "sleep")], 1: []}
    ours, theirs = Traced(runs, {started: gone, gone: os.getpid()}), Traced(runs, {started: gone})
    assert seen(ours, {os.getpid()}, 0.0).taken.within_ns(0, 1000) == 0
    assert seen(ours, set(), 0.0).taken.within_ns(0, 1000) == 1000
    assert seen(theirs, set(), 0.0).taken.within_ns(0, 1000) == 0


# --- what may be said -------------------------------------------------------------------------------------------


def figure(attack: Ratio, blank: Ratio = EVEN, control: Ratio | None = None, own: Ratio | None = None) -> Figure:
    return Figure(2.0, 12, 100.0, 100.0 * attack.value, attack, control, own, blank, attack)


def test_held_is_said_only_where_a_miss_would_have_been_seen() -> None:
    inside = Ratio(1.2, 1.0, 1.4)
    assert figure(inside).verdict == "held"
    assert figure(inside, Ratio(1.0, 0.4, 1.3)).verdict == "open"
    assert figure(inside, Ratio(1.0, 0.9, 2.5)).verdict == "open"


def test_what_the_control_shows_as_well_is_the_cores() -> None:
    above, even = Ratio(3.0, 2.5, 3.5), Ratio(1.0, 0.9, 1.2)
    assert figure(above).verdict == "missed"
    assert figure(above, control=above, own=even).verdict == "core"
    assert figure(above, control=even, own=above).verdict == "missed"
    assert figure(Ratio(2.0, 1.5, 2.5)).verdict == "open"


def test_what_would_close_an_open_verdict_is_said() -> None:
    wide = figure(Ratio(1.0, 0.4, 2.5))
    assert (wide.verdict, wide.closed_by()) == ("open", "21 slots of each kind")
    near = figure(Ratio(1.99, 1.6, 2.4))
    assert (near.verdict, near.closed_by()[:14]) == ("open", "a faster proxy")
    noisy = figure(Ratio(1.2, 1.0, 1.4), blank=Ratio(1.0, 0.01, 100.0))
    assert (noisy.verdict, noisy.closed_by()[:17]) == ("open", "a quieter machine")


def test_a_range_is_that_of_the_signed_rank_test() -> None:
    """Of five pairs with the differences 1 to 5 the means of all two of them are 15; one in 32 has none below."""
    found = ratio([2.0**number for number in range(1, 6)], [1.0] * 5, 1 / 32)
    assert (found.value, found.low, found.high) == pytest.approx((8.0, 2.0, 32.0))
    assert ratio([2.0], [1.0], 0.05).verdict(3.0) == "open", "one pair tells nothing"


def test_a_range_has_the_true_ratio_as_often_as_it_says() -> None:
    """Slots with stalls: a third of them ten times as long, with the attack and without."""
    draw = random.Random(1)

    def slots() -> list[float]:
        return [draw.uniform(0.8, 1.2) * (10 if draw.random() < 1 / 3 else 1) for _ in range(24)]

    ranges = [ratio([1.5 * us for us in slots()], slots(), 0.05) for _ in range(300)]
    too_low, too_high = sum(one.high < 1.5 for one in ranges), sum(one.low > 1.5 for one in ranges)
    assert too_low <= 25 and too_high <= 25  # of 300, 15 each are expected


def test_a_stall_in_few_slots_is_seen_by_how_often_it_is_there() -> None:
    assert more_often(8, 0, 24, 0.0125) and not more_often(3, 0, 24, 0.0125) and not more_often(8, 6, 24, 0.0125)
    quiet = [100.0 + number for number in range(24)]
    stalled = [us * 50 if number % 4 == 1 else us for number, us in enumerate(quiet)]
    assert summary(quiet=quiet, attacked=stalled, control=quiet).verdict("own") == "missed"
    assert summary(quiet=quiet, attacked=stalled, control=stalled).verdict("own") == "core"


# --- the page ---------------------------------------------------------------------------------------------------


def summary(
    queue: str = "shm", foreign: float = 0.0, resets: int = 0, attack: str = "takes", **p99_us: list[float]
) -> Summary:
    """With a median of 50 us in all slots."""
    us = {kind: p99_us.get(kind, [100.0 + number for number in range(24)]) for kind in KINDS}
    slots = {kind: {"p50": [50.0] * len(us[kind]), "p99": us[kind], "wall": us[kind]} for kind in KINDS}
    return Summary(
        attack=attack,
        queue=queue,
        commit="abc1234",
        measured_on={"date": "2026-11-26", "cpu": "a CPU", "cores": "2", "kernel": "6.18.5"},
        looks=4,
        slots_us={"own": slots, "other": slots},
        foreign={kind: [foreign] * len(us[kind]) for kind in KINDS},
        stolen_ms=0.0,
        others={},
        resets={"own": resets, "other": 0},
        rounds={kind: {"0.0002": 990, "0.0005": 10} for kind in KINDS},
        waited=dict.fromkeys(KINDS, 0.1),
    )


def test_a_summary_is_kept_and_read() -> None:
    made = summary()
    assert Summary.read(made.kept()) == made and made.verdict("own") == "held"
    assert summary(resets=1).verdict("own") == "reset"


def test_slots_of_a_busy_machine_do_not_count() -> None:
    busy = summary(foreign=0.5)
    assert (busy.counted, busy.is_told()) == ([], False)
    assert busy.closed_by("own") == "a quieter machine: 24 of 24 rounds did not count"
    some = dataclasses.replace(summary(), foreign={"quiet": [0.0] * 24, "attacked": [0.0, 0.5] * 12})
    assert some.counted == list(range(0, 24, 2))


@pytest.mark.parametrize(
    ("rounds", "verdict"),
    [
        ({"0.0002": 990, "0.0005": 10}, "bounded"),
        ({"0.0002": 989, "0.0005": 11}, "open"),
        ({"0.0002": 990, "0.0005": 9, "0.001": 1}, "open"),
        ({"0.0002": 0, "0.0005": 0}, "open"),
    ],
)
def test_what_latencies_leave_open_is_bounded_by_short_rounds(rounds: dict[str, int], verdict: str) -> None:
    wide = [100.0 * 8 ** (number % 3 - 1) for number in range(24)]
    found = dataclasses.replace(summary(attacked=wide[::-1], quiet=wide), rounds=dict.fromkeys(KINDS, rounds))
    assert found.verdict("own") == verdict and not found.is_told()
    missed = dataclasses.replace(summary(attacked=[900.0] * 24), rounds=dict.fromkeys(KINDS, rounds))
    assert missed.verdict("own") == "missed" and missed.is_told()


def test_results_without_a_trace_do_not_go_into_the_page(tmp_path: Path) -> None:
    untraced = dataclasses.replace(summary(), foreign={kind: [None] * 24 for kind in KINDS})
    assert len(untraced.counted) == 24 and not untraced.traced
    with pytest.raises(ValueError, match="takes root"):
        page.put_into(tmp_path / "attacks.md", [untraced])


def test_the_page_is_made_from_results(tmp_path: Path) -> None:
    results, copy = tmp_path / "some.jsonl", tmp_path / "attacks.md"
    wide = [100.0 * 8 ** (number % 3 - 1) for number in range(24)]
    long = {kind: {"0.0002": 990, "0.0005": 9, "0.002": 1} for kind in KINDS}
    for one in (summary(), dataclasses.replace(summary("afxdp", attacked=wide[::-1], quiet=wide), rounds=long)):
        with results.open("a") as file:
            file.write(f"{one.kept()}\n")
    copy.write_text(page.PAGE.read_text())
    page.put_into(copy, page.read([tmp_path]))
    text = copy.read_text()
    assert "- No connection of a bystander was reset." in text
    assert "- Verdicts: 2 *held*, 0 *bounded*, 0 *core*, 0 *missed*, 2 *open*." in text
    assert text.index("### Over AF_XDP") < text.index("### Over shared memory") < text.index("### What is open")
    one = "1.0 (1.0-1.0)"
    assert f"| `takes` | 1.00 (1.00-1.00) | 1.00 | {one} | {one} | {one} | 50, 112 | 24 | 200 / 500 | held |" in text
    assert "| `takes` | AF_XDP | another tenant | p99: " in text
    results.write_text("[]\n")
    with pytest.raises(ValueError, match=r"some\.jsonl, line 1: not a line of a result file"):
        page.read([results])
    with pytest.raises(FileNotFoundError, match="no result file"):
        page.read([tmp_path / "none"])


@pytest.mark.skipif(not any(page.RESULTS.glob("*.jsonl")), reason="no results are in the repository")
def test_the_page_has_the_results_of_the_repository(tmp_path: Path) -> None:
    copy = tmp_path / "attacks.md"
    copy.write_text(page.PAGE.read_text())
    page.put_into(copy, page.read([page.RESULTS]))
    assert copy.read_text() == page.PAGE.read_text(), "run tests/attack/run --into deploy/docs/attacks.md"
