"""Files of relatives, which processes that are attached have sent: they say who has a connection that several have.

Theory of operation. host_lib/native/processes/relatives.h describes such a file: an entry for each connection, with a
bit for each process that has it, and a slot for each process, on which it holds a record lock as long as it lives. A
relative that lives looks there, and ends what nobody else has. When none is left that would look, the server does: it
has a descriptor of the file, and the keys of the connections are in it.

It looks for a minute after the end of a process, first every few milliseconds, later twice a second: in this time its
connections are kept for others. It asks the locks as relatives do, and reads the rest. A process without a lock that
has not run yet (after fork), or runs another program (exec), counts as alive for some seconds. A connection is over
when two looks find it with the same key, and nobody has it or keeps it for others. What was passed to other programs is
left alone, since they are not in the file.

Several processes of a file send it. What is found is said with the one that sent it last of those that live, or else
with the one that died last: an agent has to name a process that the proxy still knows.

A process can write to all of a file of its own, and send any descriptor. So only sealed memory is read, which cannot
become shorter, and never waits for anybody. What a wrong file can achieve is that connections end whose keys its
process knows, and it could end these anyway. Files are limited in number, and looks in their share of the time.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import time
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

FILES_MAX, FILES_OF_A_USER_MAX = 1024, 128
#: For so long after the end of a process its connections may be kept for others, and some more.
LOOKS_S = 61.0
FIRST_S, LAST_S = 0.01, 0.5
#: A slot without a lock, whose process has not run since it was reserved, is of a living process for so long.
STARTS_S = 10.0
#: One call of look() ends after this time, and the next one is so many times later.
_TURN_S, _SHARE = 0.005, 20

#: relatives_file.h: where things are.
_LAYOUT = struct.Struct("=7I")
_MAGIC, _COMPATIBLE, _SLOTS, _ENTRIES_MAX = 0x58545246, 1, 512, 16384
_SLOTS_AT, _ENTRY_BYTES_MIN, _ENTRY_BYTES_MAX = 32, 176, 4096
_ENTRY = struct.Struct("=II80xQIII4x8Q")  # used, keeper, key, left, passed, received, has
_RUNS = 1
_LOCK = struct.Struct("=hh4xqqi4x")  # struct flock
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW

_Owner = TypeVar("_Owner", bound=Hashable)


@dataclass(slots=True, eq=False)
class _File(Generic[_Owner]):
    fd: int
    owners: list[_Owner]  # those that live, in the order in which they have sent it
    last: _Owner  # that is to be named if none of these lives
    uid: int
    entries: int
    entries_at: int
    entry_bytes: int
    over: set[tuple[int, int]] = field(default_factory=set)  # index and key, as the last look has found it
    told: set[tuple[int, int]] = field(default_factory=set)  # those that were over in the look before, too
    starting: dict[int, tuple[int, float]] = field(default_factory=dict)  # slots: what is in it, and since when
    empty: bool = False  # the last look has found no connection

    @property
    def owner(self) -> _Owner:
        return self.owners[-1] if self.owners else self.last


class RelativesFiles(Generic[_Owner]):
    """The files that an endpoint has. Who owns it calls look() when timeout_s() is over."""

    def __init__(self, over: Callable[[_Owner, list[int]], None], now: Callable[[], float] = time.monotonic) -> None:
        """over(owner, keys): no process has these connections any more; owner is one that has sent the file."""
        self._over = over
        self._now = now
        self._files: dict[tuple[int, int], _File[_Owner]] = {}  # by device and inode, oldest first
        self._until = 0.0  # when the looks end
        self._pause = LAST_S
        self._at = float("inf")  # when the next one is
        self._left: list[tuple[int, int]] = []  # files that this look has not seen yet

    @property
    def count(self) -> int:
        """How many files there are."""
        return len(self._files)

    def add(self, fd: int, owner: _Owner, uid: int) -> None:
        """Takes over the descriptor, whatever it is of. A file too many takes the place of the user's oldest one."""
        try:
            key, file = _opened(fd, owner, uid)
        except OSError:
            os.close(fd)
            return
        if (known := self._files.get(key)) and known.uid == uid:
            os.close(fd)
            if owner in known.owners:
                known.owners.remove(owner)
            known.owners.append(owner)
            return
        self._forget(key)
        of_user = [number for number, one in self._files.items() if one.uid == uid]
        if len(of_user) >= FILES_OF_A_USER_MAX:
            self._forget(of_user[0])
        elif len(self._files) >= FILES_MAX:
            self._forget(next(iter(self._files)))
        self._files[key] = file

    def died(self, owner: _Owner) -> None:
        """A process has ended that was attached, whether it has sent a file or not."""
        for file in self._files.values():
            if owner in file.owners:
                file.owners.remove(owner)
                file.last = owner
        now = self._now()
        self._until, self._pause = now + LOOKS_S, FIRST_S
        if self._files:
            self._at = min(self._at, now + FIRST_S)

    def timeout_s(self) -> float | None:
        """None: there is nothing to look at."""
        return None if self._at == float("inf") else max(0.0, self._at - self._now())

    def look(self) -> None:
        """Looks at some files, if it is time."""
        began = self._now()
        if began < self._at:
            return
        self._left = self._left or list(self._files)
        while self._left and self._now() < began + _TURN_S:
            key = self._left.pop()
            if key not in self._files:
                continue
            try:
                self._look_at(key, self._files[key])
            except OSError:  # no memory for what its processes have swapped out
                self._forget(key)
        now = self._now()
        pause = (now - began) * _SHARE
        if not self._left:
            pause = max(pause, self._pause)
            self._pause = min(2 * self._pause, LAST_S)
        self._at = now + pause if self._files and (self._left or now < self._until) else float("inf")

    def close(self) -> None:
        """Forgets all. May be called again."""
        for key in list(self._files):
            self._forget(key)
        self._at = float("inf")

    def _forget(self, key: tuple[int, int]) -> None:
        if file := self._files.pop(key, None):
            os.close(file.fd)

    def _look_at(self, key: tuple[int, int], file: _File[_Owner]) -> None:
        found = list(_connections(file))
        if not found:
            if file.empty:
                self._forget(key)
            file.empty = True
            return
        alive = _Alive(file, self._now())
        over = {(index, of) for index, of, slots in found if not any(map(alive, slots))}
        sure = over & file.over
        keys = [of for index, of in sorted(sure - file.told) if of]
        file.empty, file.over = False, over
        file.told = sure
        if len(sure) == len(found):
            self._forget(key)
        if keys:
            self._over(file.owner, keys)


class _Alive:
    """Which processes of a file live, each looked at only once."""

    def __init__(self, file: _File[_Owner], now: float) -> None:
        self._file = file
        self._now = now
        self._known: dict[int, bool] = {}

    def __call__(self, slot: int) -> bool:
        if slot not in self._known:
            self._known[slot] = self._is_locked(slot) or self._is_starting(slot)
        return self._known[slot]

    def _is_locked(self, slot: int) -> bool:
        asked = _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, slot, 1, 0)
        try:
            return bool(_LOCK.unpack(fcntl.fcntl(self._file.fd, fcntl.F_GETLK, asked))[0] != fcntl.F_UNLCK)
        except OSError:
            return True

    def _is_starting(self, slot: int) -> bool:
        (value,) = struct.unpack("=Q", os.pread(self._file.fd, 8, _SLOTS_AT + 8 * slot))
        if value & _RUNS or not value:
            return False
        before, since = self._file.starting.get(slot, (0, 0.0))
        if before != value:
            self._file.starting[slot] = value, self._now
            return True
        return self._now < since + STARTS_S


def _opened(fd: int, owner: _Owner, uid: int) -> tuple[tuple[int, int], _File[_Owner]]:
    """OSError: it is no such file, or one of a version that cannot be read."""
    if fcntl.fcntl(fd, fcntl.F_GET_SEALS) & _SEALS != _SEALS:  # EINVAL: not even memory
        raise OSError(errno.EINVAL, "not sealed")
    status = os.fstat(fd)
    head = os.pread(fd, _LAYOUT.size, 0).ljust(_LAYOUT.size, b"\0")
    magic, version, compatible, slots, entries, entries_at, entry_bytes = _LAYOUT.unpack(head)
    if magic != _MAGIC or compatible > min(version, _COMPATIBLE) or slots != _SLOTS:
        raise OSError(errno.EPROTONOSUPPORT, "of another version")
    is_sound = (
        0 < entries <= _ENTRIES_MAX
        and _ENTRY_BYTES_MIN <= entry_bytes <= _ENTRY_BYTES_MAX
        and entry_bytes % 8 == 0
        and entries_at >= _SLOTS_AT + 8 * _SLOTS
        and entries_at + entries * entry_bytes <= status.st_size
    )
    if not is_sound:
        raise OSError(errno.EINVAL, "not sound")
    return (status.st_dev, status.st_ino), _File(fd, [owner], owner, uid, entries, entries_at, entry_bytes)


def _written(file: _File[_Owner]) -> Iterator[range]:
    """Which entries may not be empty: those in memory that was ever written."""
    at, end = file.entries_at, file.entries_at + file.entries * file.entry_bytes
    while at < end:
        try:
            at = max(at, os.lseek(file.fd, at, os.SEEK_DATA))
            hole = min(end, os.lseek(file.fd, at, os.SEEK_HOLE))
        except OSError:  # ENXIO: nothing more
            return
        first = (at - file.entries_at) // file.entry_bytes
        last = -(-(hole - file.entries_at) // file.entry_bytes)
        if first < last:
            yield range(first, last)
        at = max(hole, file.entries_at + last * file.entry_bytes, at + 1)


def _connections(file: _File[_Owner]) -> Iterator[tuple[int, int, list[int]]]:
    """Index and key of each connection, and the slots of the processes that have it, or keep it for others. Key 0: it
    is not to be ended from here."""
    for indexes in _written(file):
        size = len(indexes) * file.entry_bytes
        data = os.pread(file.fd, size, file.entries_at + indexes.start * file.entry_bytes)
        words = memoryview(data[: len(data) & ~3]).cast("I")[:: file.entry_bytes // 4]
        for number, used in enumerate(words):
            if used and (number + 1) * file.entry_bytes <= len(data):
                yield _connection(indexes.start + number, data, number * file.entry_bytes)


def _connection(index: int, data: bytes, at: int) -> tuple[int, int, list[int]]:
    _, keeper, key, _, passed, received, *has = _ENTRY.unpack_from(data, at)
    slots = [64 * number + bit for number, word in enumerate(has) if word for bit in range(64) if word >> bit & 1]
    if 0 < keeper <= _SLOTS:
        slots.append(keeper - 1)
    return index, 0 if passed or received else key, slots
