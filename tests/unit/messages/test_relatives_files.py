"""Files of relatives, as a server reads them: which connections nobody has any more, and what is no such file."""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from xts_messages.attaching import relatives_files
from xts_messages.attaching.relatives_files import RelativesFiles

MAGIC, SLOTS, ENTRIES, ENTRY_BYTES = 0x58545246, 512, 8, 208
SLOTS_AT, ENTRIES_AT = 32, 4136
SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
HAS_RUN = 0x1001
RESERVED = 0x2000
KEY = 0x1234567890ABCDEF


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Server:
    """Has files, and is told of a death at its start."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.told: list[tuple[str, list[int]]] = []
        self.files: RelativesFiles[str] = RelativesFiles(lambda *said: self.told.append(said), self.clock)

    def add(self, file: File, owner: str = "one", uid: int = 7) -> None:
        self.files.add(os.dup(file.fd), owner, uid)
        self.files.died("nobody")

    def looks(self, times: int = 2) -> list[tuple[str, list[int]]]:
        for _ in range(times):
            self.clock.now += relatives_files.LAST_S
            self.files.look()
        told, self.told = self.told, []
        return told


class File:
    def __init__(self, *, seals: int = SEALS, layout: dict[str, int] | None = None) -> None:
        known = {"magic": MAGIC, "version": 1, "compatible": 1, "slots": SLOTS, "entries": ENTRIES}
        values = {**known, "entries_at": ENTRIES_AT, "entry_bytes": ENTRY_BYTES, **(layout or {})}
        self.fd = os.memfd_create("relatives", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.fd, ENTRIES_AT + ENTRIES * ENTRY_BYTES)
        fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, seals)
        os.pwrite(self.fd, struct.pack("=7I", *values.values()), 0)

    def entry(self, number: int, *slots: int, key: int = KEY, keeper: int = 0, passed: int = 0) -> None:
        has = [sum(1 << slot % 64 for slot in slots if slot // 64 == word) for word in range(8)]
        entry = struct.pack("=II80xQIII4x8Q", 1, keeper, key, 0, passed, 0, *has)
        os.pwrite(self.fd, entry, ENTRIES_AT + number * ENTRY_BYTES)

    def free(self, number: int) -> None:
        os.pwrite(self.fd, bytes(4), ENTRIES_AT + number * ENTRY_BYTES)

    def slot(self, number: int, value: int = HAS_RUN) -> None:
        os.pwrite(self.fd, struct.pack("=Q", value), SLOTS_AT + 8 * number)


Locked = Callable[[File, int], None]


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.files.close()


@pytest.fixture
def file() -> Iterator[File]:
    made = File()
    yield made
    os.close(made.fd)


@pytest.fixture
def locked() -> Iterator[Locked]:
    """Has a process lock a slot, until the test ends."""
    with ExitStack() as undo:

        def lock(file: File, slot: int) -> None:
            reads, writes = os.pipe()
            ready, says = os.pipe()
            if not (child := os.fork()):
                os.close(writes)
                fcntl.lockf(file.fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, slot)
                os.write(says, b".")
                os.read(reads, 1)
                os._exit(0)
            undo.callback(os.waitpid, child, 0)
            undo.callback(os.close, writes)
            for fd in (reads, says):
                os.close(fd)
            assert os.read(ready, 1) == b"."
            os.close(ready)

        yield lock


def test_what_nobody_has_is_told_once(server: Server, file: File) -> None:
    file.slot(3)
    file.slot(200)
    file.entry(0, 3, 200)
    file.entry(5, 200, key=9)
    server.add(file)
    assert server.looks(1) == []
    assert server.looks(1) == [("one", [KEY, 9])]
    assert server.looks(5) == []
    assert server.files.count == 0


@pytest.mark.parametrize(
    ("senders", "dead", "named"),
    [
        ("abc", "", "c"),
        ("abca", "", "a"),
        ("abc", "c", "b"),
        ("abc", "cb", "a"),
        ("abc", "acb", "b"),
        ("abc", "cbaxy", "a"),
        ("ab", "ba", "a"),
        ("a", "a", "a"),
    ],
)
def test_who_is_named_of_those_that_have_sent_it(
    server: Server, file: File, senders: str, dead: str, named: str
) -> None:
    """The last of those that live, or else the one that died last; x and y have sent nothing."""
    file.slot(0)
    file.entry(0, 0)
    for sender in senders:
        server.add(file, sender)
    assert server.files.count == 1
    for one in dead:
        server.files.died(one)
    assert server.looks() == [(named, [KEY])]


def test_another_user_sends_it(server: Server, file: File) -> None:
    """It is the sender's from then on, and there is one file of it."""
    file.slot(0)
    file.entry(0, 0)
    server.add(file, "one", uid=7)
    server.add(file, "two", uid=8)
    server.files.died("two")
    assert server.files.count == 1 and server.looks() == [("two", [KEY])]


def test_one_that_lives_keeps_what_it_has(server: Server, file: File, locked: Locked) -> None:
    for slot in (0, 1):
        file.slot(slot)
    file.entry(0, 0, 1)
    file.entry(1, 0, key=9)
    locked(file, 1)
    server.add(file)
    assert server.looks(4) == [("one", [9])]
    assert server.files.count == 1


def test_one_that_has_closed_it_may_keep_it_for_others(server: Server, file: File, locked: Locked) -> None:
    for slot in (0, 1):
        file.slot(slot)
    file.entry(0, 0, keeper=2)
    locked(file, 1)
    server.add(file)
    assert server.looks(4) == []


def test_what_was_passed_to_others_is_left_alone(server: Server, file: File) -> None:
    file.slot(0)
    file.entry(0, 0, passed=1)
    server.add(file)
    assert server.looks(4) == []


def test_a_process_that_starts_is_waited_for(server: Server, file: File) -> None:
    file.slot(0, RESERVED)
    file.entry(0, 0)
    server.add(file)
    assert server.looks(4) == []
    server.clock.now += relatives_files.STARTS_S
    server.files.died("nobody")
    assert server.looks(2) == [("one", [KEY])]


def test_one_look_is_not_enough(server: Server, file: File) -> None:
    """The key has changed meanwhile: some process has it."""
    file.slot(0)
    file.entry(0, 0)
    server.add(file)
    assert server.looks(1) == []
    file.entry(0, 0, key=9)
    assert server.looks(1) == []
    assert server.looks(1) == [("one", [9])]


def test_looks_end(server: Server, file: File, locked: Locked) -> None:
    file.slot(0)
    file.entry(0, 0)
    locked(file, 0)
    server.add(file)
    assert server.files.timeout_s() == pytest.approx(relatives_files.FIRST_S)
    server.looks(round(relatives_files.LOOKS_S / relatives_files.LAST_S) + 1)
    assert server.files.timeout_s() is None
    server.files.died("nobody")
    assert server.files.timeout_s() == pytest.approx(relatives_files.FIRST_S)


def test_a_file_without_connections_is_forgotten(server: Server, file: File) -> None:
    file.entry(0, 0)
    file.free(0)
    server.add(file)
    server.looks(2)
    assert server.files.count == 0


def test_a_user_has_so_many_files(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relatives_files, "FILES_OF_A_USER_MAX", 2)
    made = [File() for _ in range(4)]
    for number, file in enumerate(made):
        file.slot(0)
        file.entry(0, 0, key=number + 1)
        server.add(file, uid=7 if number else 8)
        server.add(file, uid=7 if number else 8)  # the same once more
        os.close(file.fd)
    assert server.files.count == 3
    assert sorted(key for _, keys in server.looks() for key in keys) == [1, 3, 4]


@pytest.mark.parametrize(
    "layout",
    [
        {"magic": 1},
        {"compatible": 2},
        {"version": 0},
        {"slots": 513},
        {"entries": 0},
        {"entries": 16385},
        {"entries": ENTRIES + 1},
        {"entries_at": 8},
        {"entry_bytes": 8},
        {"entry_bytes": 210},
        {"entry_bytes": 0xFFFFFFF8},
    ],
)
def test_what_is_wrong_is_not_taken(layout: dict[str, int], server: Server) -> None:
    file = File(layout=layout)
    server.add(file)
    os.close(file.fd)
    assert server.files.count == 0


def test_other_descriptors_are_not_taken(server: Server) -> None:
    """Nor read: reading might wait."""
    unsealed = File(seals=fcntl.F_SEAL_GROW)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for fd in (*os.pipe(), os.open("/dev/null", os.O_RDONLY), os.dup(unsealed.fd)):
        server.files.add(fd, "one", 7)
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    assert server.files.count == 0
    os.close(unsealed.fd)


def test_any_content_is_survived(server: Server, file: File) -> None:
    end = ENTRIES_AT + ENTRIES * ENTRY_BYTES
    os.pwrite(file.fd, b"\xff" * (end - SLOTS_AT), SLOTS_AT)
    server.add(file)
    server.looks(4)
    for _ in range(50):
        os.pwrite(file.fd, os.urandom(end - SLOTS_AT), SLOTS_AT)
        server.files.died("nobody")
        server.looks(2)
    with suppress(OSError):
        os.pwrite(file.fd, b"\xff" * SLOTS_AT, 0)  # what was read of it at first stays
    server.files.died("nobody")
    server.looks(2)
