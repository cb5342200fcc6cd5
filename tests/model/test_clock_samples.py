"""Another machine's clock from answers (clock_samples.h): the error that is claimed holds, whatever the way takes."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from xts_messages._native import ffi, lib

S = 10**9
EPOCH_NS = 1_700_000_000 * S
answers = st.tuples(st.integers(0, 10 * S), st.integers(0, 50_000_000), st.integers(0, 50_000_000))


def best(samples: Any, now_ns: int) -> Any:
    out = ffi.new("struct xts_clock_sample *")
    assert lib.xts_clock_best(samples, now_ns, out)
    return out


@given(st.integers(-(10**15), 10**15), st.lists(answers, min_size=1, max_size=20), st.integers(0, 3600 * S))
def test_the_error_holds(ahead_ns: int, ways: list[tuple[int, int, int]], age_ns: int) -> None:
    samples, now = ffi.new("struct xts_clock_samples *"), 5 * S
    least = None
    for pause, there, back in ways:
        then = now + pause
        now = then + there + back
        lib.xts_clock_add(samples, then, now, EPOCH_NS + ahead_ns + then + there)
        least = min(there + back, there + back if least is None else least)
    found = best(samples, now + age_ns)
    assert abs(found.ahead_ns - (EPOCH_NS + ahead_ns)) <= found.error_ns
    assert found.error_ns >= age_ns // lib.XTS_CLOCK_DRIFT
    if len(ways) <= lib.XTS_CLOCK_SAMPLES and not any(pause for pause, _, _ in ways):
        assert found.error_ns <= least // 2 + 1 + (now + age_ns) // lib.XTS_CLOCK_DRIFT


@given(st.integers(1, 10), st.integers(-(10**12), 10**12))
def test_a_clock_that_has_been_set_is_believed_at_once(before: int, step_ns: int) -> None:
    samples, now = ffi.new("struct xts_clock_samples *"), 5 * S
    for _ in range(before):
        now += S
        lib.xts_clock_add(samples, now - 1000, now, EPOCH_NS + now)
    now += S
    lib.xts_clock_add(samples, now - 40_000, now, EPOCH_NS + step_ns + now)
    found = best(samples, now)
    assert abs(found.ahead_ns - (EPOCH_NS + step_ns)) <= found.error_ns + 20_000 + 110_000


def test_without_an_answer_there_is_none() -> None:
    samples, out = ffi.new("struct xts_clock_samples *"), ffi.new("struct xts_clock_sample *")
    assert not lib.xts_clock_best(samples, S, out)
