"""Profiles: settings by the name of what a program does, declared once. native/environment_table.c has them from here.

A profile sets what has been measured to differ from the default for such a program, and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Profile:
    """One profile."""

    name: str
    meaning: str  # what it does
    sets: dict[str, str]  # variables, as the environment would have them


PROFILES = (
    Profile(
        "low-latency",
        "waits for an answer on the processor for a millisecond before it sleeps",
        {"XTS_SPIN_US": "1000"},
    ),
    Profile(
        "throughput", "receive windows begin at a mebibyte instead of growing to it", {"XTS_WINDOW_BYTES": "1048576"}
    ),
    Profile("low-cpu", "sleeps at once, and never waits on the processor", {"XTS_SPIN_US": "0"}),
)

NAMES = tuple(profile.name for profile in PROFILES)
