"""The conservation law of post credits, over both sides' figures of each connection."""

from __future__ import annotations

from .beds import Bed


def check(bed: Bed) -> int:
    return 0
