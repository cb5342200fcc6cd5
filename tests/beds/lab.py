"""A lab of a test run's own, or a skip that says what the machine lacks."""

from __future__ import annotations

import os

import pytest
from xts_lab.lab import Lab
from xts_lab.privilege import afxdp_unavailable, missing_privilege

QUEUES = 8


def raise_or_skip(
    queue: str,
    suffix: str = "",
    queues: int = QUEUES,
    tables: str = "",
    tokens: bool = True,
    *,
    relayed_max: int | None = 0,
    metrics: bool = False,
) -> Lab:
    """A lab of this run's own, up, with so many device queues, more tables for the proxy's configuration, and a key
    that agent and proxy share or none; the test is skipped where the machine or the user cannot have one."""
    if lacking := missing_privilege():
        pytest.skip(f"a lab needs root; lacking {', '.join(lacking)}")
    if queue == "afxdp" and (reason := afxdp_unavailable()):
        pytest.skip(reason)
    lab = Lab(
        f"t{os.getpid()}{queue}{suffix}",
        queue=queue,
        queues=queues,
        tables=tables,
        tokens=tokens,
        relayed_max=relayed_max,
        metrics=metrics,
    )
    lab.up()
    return lab
