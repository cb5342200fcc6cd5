"""Keeping a descriptor's registrations in the epoll sets of this process, while the file behind its number changes.

Registrations belong to the file: they would vanish with it, and an event loop that has the descriptor would never get
an event for it again. /proc lists them (proc_pid_fdinfo(5)). The data that a set reports for a descriptor is the
program's choice. By convention it is the descriptor's number, and registrations with other data cannot be repeated
through Python's module.
"""

from __future__ import annotations

import os
import select
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def kept_in_epoll_sets(fd: int) -> Iterator[None]:
    """In the block, `fd` gets another file."""
    found = list(_registrations(fd))
    for number, _ in found:
        with suppress(OSError), _opened(number) as epoll:
            epoll.unregister(fd)
    try:
        yield
    finally:
        for number, events in found:
            with suppress(OSError), _opened(number) as epoll:
                epoll.register(fd, events)


@contextmanager
def _opened(number: int) -> Iterator[select.epoll]:
    """The epoll set with that descriptor, under another one."""
    with select.epoll.fromfd(os.dup(number)) as epoll:
        yield epoll


def _registrations(fd: int) -> Iterator[tuple[int, int]]:
    """Descriptors of epoll sets that contain it, and for which events."""
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # closed meanwhile
            if str(entry.readlink()) != "anon_inode:[eventpoll]":
                continue
            for line in Path("/proc/self/fdinfo", entry.name).read_text().splitlines():
                words = line.split()  # tfd: 5 events: 19 data: 5 pos:0 ino:8 sdev:8
                if words[:2] == ["tfd:", str(fd)] and int(words[5], 16) & 0xFFFFFFFF == fd:
                    yield int(entry.name), int(words[3], 16)
