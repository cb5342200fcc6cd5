"""What processes have: to see whether it grows from one upgrade to the next."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass
from pathlib import Path

from beds import process_tree


@dataclass(frozen=True, slots=True)
class Footprint:
    """Of several processes together."""

    processes: int = 0
    threads: int = 0
    descriptors: int = 0
    maps: int = 0
    namespaces: int = 0  # those that they are in
    memory_kib: int = 0  # that is theirs alone (RssAnon)

    def __str__(self) -> str:
        return (
            f"{self.processes} processes, {self.threads} threads, {self.descriptors:,} descriptors, "
            f"{self.maps:,} maps, {self.namespaces} namespaces, {self.memory_kib / 1024:,.1f} MiB"
        )


def of_tree(pid: int) -> Footprint:
    """A process, and those that descend from it."""
    return of([pid, *(child for _, child in process_tree.below(pid))])


def of(pids: Iterable[int]) -> Footprint:
    """Those of them that live."""
    rows, namespaces = [], set()
    for pid in pids:
        directory = Path(f"/proc/{pid}")
        with suppress(OSError):
            rows.append(
                (
                    1,
                    sum(1 for _ in (directory / "task").iterdir()),
                    sum(1 for _ in (directory / "fd").iterdir()),
                    (directory / "maps").read_text().count("\n"),
                    _anonymous_kib(directory),
                )
            )
            namespaces |= {str(link.readlink()) for link in (directory / "ns").iterdir()}
    count, threads, descriptors, maps, memory = (
        (sum(column) for column in zip(*rows, strict=True)) if rows else (0,) * 5
    )
    return Footprint(count, threads, descriptors, maps, len(namespaces), memory)


def growth(found: Sequence[Footprint]) -> str:
    """From the first to the last ones: the medians of a tenth of them each. "": there are too few."""
    part = len(found) // 10
    if not part:
        return ""
    first, last = _median(found[:part]), _median(found[-part:])
    return f"first {part}: {first}; last {part}: {last}"


def _median(some: Sequence[Footprint]) -> Footprint:
    return Footprint(*(sorted(column)[len(column) // 2] for column in zip(*map(astuple, some), strict=True)))


def _anonymous_kib(directory: Path) -> int:
    lines = (directory / "status").read_text().splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith("RssAnon:")), 0)
