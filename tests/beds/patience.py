"""How long tests wait: the one factor by which all their time-outs grow on a machine that is slower than most.

Whoever starts tests on an emulated processor sets XTS_TEST_SLOWER (tests/vm/run, tests/dpu/run, tests/arm64/run); else
it is 1. Beds multiply with SLOWER each time after which they give a condition up; limits of a test and the start of a
lab grow, too (stretched_limits.py). What is itself tested stays as it is: how soon something has to be done, or how
long it may not be. The product never reads it (tests/unit/code/test_patience.py)."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping

VARIABLE = "XTS_TEST_SLOWER"


def factor(environment: Mapping[str, str]) -> float:
    """ValueError: it is no number from 1 on."""
    text = environment.get(VARIABLE) or "1"
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not 1 <= found < math.inf:
        raise ValueError(f"{VARIABLE}={text}: expected a number from 1 on")
    return found


SLOWER = factor(os.environ)
#: For what a test itself emulates, on a machine as fast as most.
EMULATED = max(5.0, SLOWER)
