"""Profiles: groups of settings, named after what a program does, each declared once.
native/settings/environment_table.c is generated from them.

A profile sets only what has been measured to be better than the default for such a program.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Profile:
    """One profile."""

    name: str
    meaning: str  # what it does
    sets: dict[str, str]  # variables, in the form that the environment would have


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
