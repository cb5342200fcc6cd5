"""Each wait of the library without a deadline is in the list at the head of core/wait.c, which says what ends it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

NATIVE = Path(__file__).resolve().parents[3] / "host_lib" / "native"
FUNCTION = re.compile(r"^[a-z][\w \*]*?(\w+)\(", re.MULTILINE)
WAIT = re.compile(r"\bwait_(?:for|interruptibly|watching)\([^;{]*\bFOREVER\b")


def waits() -> Iterator[tuple[Path, str]]:
    """Files, and functions in them that wait so."""
    for path in sorted(NATIVE.rglob("*.c")):
        text = path.read_text()
        begins = [(match.start(), match[1]) for match in FUNCTION.finditer(text)]
        for wait in WAIT.finditer(text):
            yield path, [name for at, name in begins if at < wait.start()][-1]


def test_waits_without_a_deadline_are_listed() -> None:
    head = (NATIVE / "core" / "wait.c").read_text().partition("*/")[0]
    found = list(waits())
    assert len(found) > 8, "the pattern finds no waits any more"
    assert [(path.name, name) for path, name in found if f"{name}()" not in head] == []
