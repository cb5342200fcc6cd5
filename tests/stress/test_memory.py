"""What connections took of the proxy is given back when they have ended, and a round keeps no more than the last."""

from __future__ import annotations

import os

import pytest
from xts_lab.access import afxdp_unavailable, missing_privilege

from .memory import Sample, bed

ROUNDS = 2
#: Python's own growth, and blocks of malloc's of which a few bytes are still in use.
KEPT_BYTES = 3 << 20
GROWTH_BYTES = 1 << 20


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
