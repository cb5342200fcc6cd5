"""The pacer (dpu_proxy/native/tenants/pacer.c): which time each reservation gets."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from beds.native_core import PROXY_INCLUDES, TOP, compiler
from cffi import FFI
from hypothesis import given
from hypothesis import strategies as st

NATIVE = TOP / "dpu_proxy" / "native"
MS, S = 1_000_000, 1_000_000_000
CATCH_UP_NS = 20 * MS
SHIM = """
#include "tenants/pacer.h"
static struct pacer pacer;
void configure(uint64_t bytes_s) { pacer_configure(&pacer, bytes_s); }
uint64_t reserve(uint64_t bytes, uint64_t now_ns) { return pacer_reserve(&pacer, bytes, now_ns); }
uint32_t chunk(uint64_t bytes_s) { return pacer_chunk(bytes_s); }
"""
CDEF = """
void configure(uint64_t bytes_s);
uint64_t reserve(uint64_t bytes, uint64_t now_ns);
uint32_t chunk(uint64_t bytes_s);
"""


@pytest.fixture(scope="module")
def lib(tmp_path_factory: pytest.TempPathFactory) -> Any:
    if not shutil.which(compiler()):
        pytest.skip("no C compiler")
    directory = tmp_path_factory.mktemp("pacer")
    shim, built = Path(directory, "shim.c"), Path(directory, "pacer.so")
    shim.write_text(SHIM)
    command = [compiler(), "-std=gnu11", "-O1", "-shared", "-fPIC", *PROXY_INCLUDES, "-o", built, shim]
    subprocess.run([*command, NATIVE / "tenants/pacer.c"], check=True, timeout=60)
    ffi = FFI()
    ffi.cdef(CDEF)
    return ffi.dlopen(str(built))


def fresh(lib: Any, bytes_s: int) -> None:
    lib.configure(0)
    lib.configure(bytes_s)


def test_without_a_rate_all_may_leave_at_once(lib: Any) -> None:
    lib.configure(0)
    assert [lib.reserve(1 << 40, S) for _ in range(3)] == [0, 0, 0]


def test_each_leaves_when_those_before_have_had_their_time(lib: Any) -> None:
    fresh(lib, 1_000_000)
    begun = lib.reserve(1000, 5 * S)
    assert begun == 5 * S - CATCH_UP_NS  # after a pause: at once, and what follows within the burst
    assert [lib.reserve(1000, 5 * S) for _ in range(3)] == [begun + MS, begun + 2 * MS, begun + 3 * MS]


def test_a_low_rate_makes_nobody_wait_longer_than_a_second(lib: Any) -> None:
    fresh(lib, 1)
    first = lib.reserve(1 << 62, S)
    assert lib.reserve(1, S) == first + S
    assert lib.reserve(1, S) == first + 2 * S


def test_another_rate_forgets_what_was_reserved(lib: Any) -> None:
    fresh(lib, 1)
    for _ in range(100):
        lib.reserve(1, S)
    lib.configure(1_000_000)
    assert lib.reserve(1, S) <= S


@pytest.mark.parametrize(("bytes_s", "bytes"), [(1, 1448), (125_000, 1448), (12_500_000, 12_500), (1 << 50, 65_536)])
def test_chunks(lib: Any, bytes_s: int, bytes: int) -> None:
    assert lib.chunk(bytes_s) == bytes


@given(
    bytes_s=st.integers(100_000, 1 << 34),
    asks=st.lists(st.tuples(st.integers(1, 65_536), st.integers(0, 50 * MS)), min_size=1, max_size=60),
)
def test_never_more_than_the_rate_and_a_burst(lib: Any, bytes_s: int, asks: list[tuple[int, int]]) -> None:
    """In every stretch of time; and whoever asks is not served before those who asked earlier."""
    fresh(lib, bytes_s)
    now, left = S, list[tuple[int, int]]()
    for count, pause in asks:
        now += pause
        may_ns = int(lib.reserve(count, now))
        left.append((max(may_ns, now), count))
    times = [time for time, _ in left]
    assert times == sorted(times)
    for i, (begin, _) in enumerate(left):
        for j in range(i, len(left)):
            sent = sum(count for _, count in left[i:j])  # the last one only begins to leave
            assert sent <= (left[j][0] - begin + CATCH_UP_NS) * bytes_s / S + (j - i)
