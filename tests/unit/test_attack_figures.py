"""What tests/attack makes of what it has measured: what other programs took of a request, and what may be said."""

from __future__ import annotations

import os
import random

from attack.disturbance import seen
from attack.samples import Ratio, ratio
from attack.scheduler_trace import Run, Taken, Traced, history_of, parents_of
from attack.summary import Figure

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


def figure(attack: Ratio, blank: Ratio | None = EVEN, control: Ratio | None = None, own: Ratio | None = None) -> Figure:
    return Figure(100.0, 100.0 * attack.value, attack, control, own, blank, attack)


def test_held_is_said_only_where_a_miss_would_have_been_seen() -> None:
    inside = Ratio(1.2, 1.0, 1.4)
    assert figure(inside).verdict(2.0) == "held"
    assert figure(inside, Ratio(1.0, 0.4, 1.3)).verdict(2.0) == "open"
    assert figure(inside, Ratio(1.0, 0.9, 2.5)).verdict(2.0) == "open"
    assert figure(inside, None).verdict(2.0) == "open"


def test_what_the_control_shows_as_well_is_the_cores() -> None:
    above, even = Ratio(3.0, 2.5, 3.5), Ratio(1.0, 0.9, 1.2)
    assert figure(above).verdict(2.0) == "missed"
    assert figure(above, control=above, own=even).verdict(2.0) == "core"
    assert figure(above, control=even, own=above).verdict(2.0) == "missed"
    assert figure(Ratio(2.0, 1.5, 2.5)).verdict(2.0) == "open"


def test_a_stall_of_the_machine_in_half_of_the_slots_leaves_p99_open() -> None:
    draw = random.Random(1)
    calm = [[draw.uniform(90, 110) for _ in range(250)] for _ in range(12)]
    stalled = [slot[:-25] + [30_000.0] * 25 if number % 3 == 1 else slot for number, slot in enumerate(calm)]
    blank = ratio(stalled[1::2], stalled[::2], 0.99)
    assert figure(ratio(stalled, stalled, 0.99), blank).verdict(2.0) == "open"
