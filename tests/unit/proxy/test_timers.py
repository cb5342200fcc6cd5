"""The worker's timers (dpu_proxy/native/worker/timer.c) against an oracle: a dict of deadlines."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from beds.native_core import TOP, compiler
from cffi import FFI
from hypothesis import given
from hypothesis import strategies as st

NATIVE = TOP / "dpu_proxy" / "native"
COUNT = 24
NEVER = 2**64 - 1

#: What expires is written down, and does what the test has told it to do then.
SHIM = """
#include <stddef.h>
#include "worker/timer.h"
static struct timers all;
static struct timer timers[24];
unsigned expired[4096], expired_count;
static int then_set[24], then_cancel[24];
static uint64_t then_ns[24];
static void run(struct timer *t)
{
    unsigned i = (unsigned)(t - timers);
    expired[expired_count++ % 4096] = i;
    if (then_cancel[i] >= 0)
        timer_cancel(&timers[then_cancel[i]]);
    if (then_set[i] >= 0)
        timer_set(&all, &timers[then_set[i]], then_ns[i]);
}
void start(void)
{
    all = (struct timers){ NULL };
    expired_count = 0;
    for (int i = 0; i < 24; i++) {
        timers[i] = (struct timer){ .expired = run };
        then_set[i] = then_cancel[i] = -1;
    }
}
void set(int i, uint64_t ns) { timer_set(&all, &timers[i], ns); }
void cancel(int i) { timer_cancel(&timers[i]); }
void then(int i, int other_set, uint64_t ns, int other_cancel)
{
    then_set[i] = other_set;
    then_ns[i] = ns;
    then_cancel[i] = other_cancel;
}
uint64_t next_ns(void) { return timers_next_ns(&all); }
unsigned go(uint64_t now_ns, unsigned max) { return timers_run(&all, now_ns, max); }
int is_set(int i) { return timer_is_set(&timers[i]); }
"""
CDEF = """
extern unsigned expired[4096], expired_count;
void start(void); void set(int i, uint64_t ns); void cancel(int i);
void then(int i, int other_set, uint64_t ns, int other_cancel);
uint64_t next_ns(void); unsigned go(uint64_t now_ns, unsigned max); int is_set(int i);
"""


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> Any:
    if shutil.which(compiler()) is None:
        pytest.skip("no C compiler is installed")
    directory: Path = tmp_path_factory.mktemp("timers")
    (directory / "shim.c").write_text(SHIM)
    sources = [f"-I{NATIVE}", "-o", "shim.so", "shim.c", NATIVE / "worker" / "timer.c"]
    subprocess.run([compiler(), "-O1", "-g", "-shared", "-fPIC", *sources], cwd=directory, check=True, timeout=60)
    ffi = FFI()
    ffi.cdef(CDEF)
    return ffi.dlopen(str(directory / "shim.so"))


NUMBERS = st.integers(0, COUNT - 1)
DEADLINES = st.integers(0, 40)
STEPS = st.one_of(
    st.tuples(st.just("set"), NUMBERS, DEADLINES),
    st.tuples(st.just("cancel"), NUMBERS),
    st.tuples(st.just("run"), DEADLINES, st.integers(0, 5)),
)


@given(steps=st.lists(STEPS, max_size=120))
def test_timers_run_when_they_are_due_and_no_more_at_once_than_asked_for(native: Any, steps: list[Any]) -> None:
    native.start()
    oracle: dict[int, int] = {}
    for step in steps:
        if step[0] == "set":
            native.set(step[1], step[2])
            oracle[step[1]] = step[2]
        elif step[0] == "cancel":
            native.cancel(step[1])
            oracle.pop(step[1], None)
        else:
            _, now, most = step
            before = native.expired_count
            due = sorted(deadline for deadline in oracle.values() if deadline <= now)[:most]
            assert native.go(now, most) == len(due)
            ran = [native.expired[i] for i in range(before, native.expired_count)]
            assert [oracle.pop(number) for number in ran] == due
        assert native.next_ns() == min(oracle.values(), default=NEVER)
        assert [number for number in range(COUNT) if native.is_set(number)] == sorted(oracle)


def test_what_is_cancelled_by_one_that_runs_with_it_does_not_run(native: Any) -> None:
    native.start()
    for number in range(3):
        native.set(number, 10 + number)
    native.then(0, -1, 0, 2)
    assert native.go(20, 10) == 2
    assert not native.is_set(2) and native.next_ns() == NEVER


def test_what_is_set_meanwhile_runs_the_next_time(native: Any) -> None:
    native.start()
    native.set(0, 1)
    native.set(1, 2)
    native.then(0, 0, 0, -1)  # itself, for at once
    native.then(1, 5, 0, -1)
    assert native.go(10, 10) == 2
    assert native.is_set(0) and native.is_set(5) and native.next_ns() == 0
    assert native.go(10, 10) == 2
