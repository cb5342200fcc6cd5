"""The memory of another process, for tests that look in it for what must not be there."""

from __future__ import annotations

import mmap
from array import array
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

#: Larger than all that a program of ours has; of the terabytes of shadow that ASan reserves nothing is the program's.
_MAP_BYTES_MAX = 4 << 30
#: Of a page's entry in pagemap: it is there, or swapped out.
_HAS_PAGE = 3 << 62


def memory_of(pid: int) -> Iterator[tuple[str, bytes]]:
    """What a process can write to, and has, with the line of its map. OSError: it cannot be read.

    Pages that it has never touched are left out. They are most of what is mapped: with them it took a minute of a core.
    """
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            span, mode, *rest = line.split()
            if "w" not in mode or rest[-1] in {"[vvar]", "[vsyscall]"}:
                continue
            begin, end = (int(number, 16) for number in span.split("-"))
            if end - begin > _MAP_BYTES_MAX:
                continue
            for first, bytes_there in _there(pid, begin, end):
                with suppress(OSError):  # part of it may be out of reach
                    memory.seek(first)
                    yield line, memory.read(bytes_there)


def _there(pid: int, begin: int, end: int) -> Iterator[tuple[int, int]]:
    """Where pages are, one next to the other, and how many bytes that is."""
    with Path(f"/proc/{pid}/pagemap").open("rb", buffering=0) as file:
        file.seek(begin // mmap.PAGESIZE * 8)
        entries = array("Q", file.read((end - begin) // mmap.PAGESIZE * 8))
    first = None
    for page, entry in enumerate(entries):
        at = begin + page * mmap.PAGESIZE
        if entry & _HAS_PAGE and first is None:
            first = at
        elif not entry & _HAS_PAGE and first is not None:
            yield first, at - first
            first = None
    if first is not None:
        yield first, end - first
