"""Lists of CPUs as the kernel writes them: "0-3,8"."""

from __future__ import annotations

from collections.abc import Iterable


def cpu_list(text: str) -> list[int]:
    """The CPUs of a list, in order, each once. ValueError: it is none."""
    found: set[int] = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        if part:
            found |= set(range(int(first), int(last or first) + 1))
    return sorted(found)


def cpu_text(cpus: Iterable[int]) -> str:
    """The shortest list of these CPUs."""
    ranges: list[list[int]] = []
    for cpu in sorted(set(cpus)):
        if ranges and cpu == ranges[-1][1] + 1:
            ranges[-1][1] = cpu
        else:
            ranges.append([cpu, cpu])
    return ",".join(f"{first}" if first == last else f"{first}-{last}" for first, last in ranges)
