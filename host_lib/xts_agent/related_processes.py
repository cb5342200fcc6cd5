"""Finds a process that another one is related to: an ancestor, or one of the same session.

Children inherit sockets, so if there are several proxies, related processes should be served by the same one. What is
read in /proc is only a hint: a process that cannot be read, or is in another container, is related to none.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from pathlib import Path

_GENERATIONS_MAX = 64


def parent_and_session(pid: int) -> tuple[int, int]:
    """The parent and session of a process; (0, 0) when they are not known."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
        fields = text.rpartition(")")[2].split()  # behind the name, which may contain anything
        return int(fields[1]), int(fields[3])
    except (OSError, IndexError, ValueError):
        return 0, 0


def related(pid: int, others: Iterable[int]) -> int | None:
    """The nearest ancestor among others; else one of the session of the process; else None."""
    known = set(others)
    return _ancestor(pid, known) or _of_session(pid, known)


def _ancestor(pid: int, known: Container[int]) -> int | None:
    for _ in range(_GENERATIONS_MAX):
        pid, _ = parent_and_session(pid)
        if pid <= 1:
            return None
        if pid in known:
            return pid
    return None


def _of_session(pid: int, known: Iterable[int]) -> int | None:
    _, session = parent_and_session(pid)
    if not session:
        return None
    return next((other for other in known if parent_and_session(other)[1] == session), None)
