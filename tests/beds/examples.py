"""How many examples a property test takes: the same few in each run, so that a change is judged by what it changes.

`XTS_SEARCH=50 tests/run tests/unit` takes 50 times as many and others each time. What that finds becomes an @example.
"""

from __future__ import annotations

import os
from typing import Any

from hypothesis import HealthCheck, settings

SEARCH = int(os.environ.get("XTS_SEARCH", "0"))

# A shared machine pauses for seconds: how long an example takes says nothing about the code.
settings.register_profile(
    "xts",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=not SEARCH,
    print_blob=True,
    max_examples=50 * max(1, SEARCH),
)
settings.load_profile("xts")


def examples(count: int, **more: Any) -> settings:
    """As many as are worth their time in each run."""
    return settings(max_examples=count * max(1, SEARCH), **more)
