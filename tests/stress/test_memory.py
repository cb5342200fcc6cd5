"""What connections took of the proxy is given back when they have ended, and a round keeps no more than the last."""

from __future__ import annotations

import os

import pytest
from xts_lab.privilege import afxdp_unavailable, missing_privilege

from .memory import GROWTH_BYTES, Sample, bed, growth

ROUNDS = 2
#: Python's own growth, and blocks of malloc's of which a few bytes are still in use.
KEPT_BYTES = 3 << 20
MB = 1 << 20


@pytest.mark.parametrize(
    "flat", [[], [9], [9, 10], [9, 20, 20, 20], [9, 20, 30, 20.5], [9, 20, 20, 25], [30, 20, 19, 18]]
)
def test_what_comes_back_is_no_growth(flat: list[float]) -> None:
    assert not growth([int(amount * MB) for amount in flat])


@pytest.mark.parametrize("grown", [[9, 20, 22, 24], [9, 20, 20, 23, 23], [9, 9, 9, 12, 11]])
def test_growth_is_said(grown: list[float]) -> None:
    assert "MB more after round" in growth([int(amount * MB) for amount in grown])


@pytest.mark.long
@pytest.mark.root
@pytest.mark.parametrize("queue", ["shm", pytest.param("afxdp", marks=pytest.mark.afxdp)])
def test_memory_comes_back(queue: str) -> None:
    if lacking := missing_privilege():
        pytest.skip(f"a lab needs root; lacking {', '.join(lacking)}")
    if queue == "afxdp" and (reason := afxdp_unavailable()):
        pytest.skip(reason)
    with bed(queue, f"m{os.getpid()}{queue}") as made:
        start = Sample.take(made.pid)
        after: list[Sample] = []
        for _ in range(ROUNDS):
            made.round(at_once=2)
            limit = after[0].own + GROWTH_BYTES if after else start.own + KEPT_BYTES
            after.append(made.sample(start.descriptors, limit))
            figures = "\n".join(map(str, [start, *after]))
            assert after[-1].descriptors <= start.descriptors, figures
            assert after[-1].own <= limit, figures
            # Pages of a queue are there from the beginning, or go with the process that had it.
            assert after[-1].queues <= start.queues, figures
