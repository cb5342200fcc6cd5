"""The memory of another process, for tests that look in it for what must not be there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

#: Larger than all that a program of ours has; of the terabytes of shadow that ASan reserves nothing is the program's.
_MAP_BYTES_MAX = 4 << 30


def memory_of(pid: int) -> Iterator[tuple[str, bytes]]:
    """What a process can write to, map by map, with the map's line. OSError: it cannot be read."""
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            span, mode, *rest = line.split()
            if "w" not in mode or rest[-1] in {"[vvar]", "[vsyscall]"}:
                continue
            begin, end = (int(number, 16) for number in span.split("-"))
            if end - begin > _MAP_BYTES_MAX:
                continue
            with suppress(OSError):  # part of it may be out of reach
                memory.seek(begin)
                yield line, memory.read(end - begin)
