"""Which versions of a proxy take over from which: by what each of them says (handover.py)."""

from __future__ import annotations

import msgspec
import pytest
from xts_messages.wire import record_table
from xts_proxy.upgrade import handover
from xts_proxy.upgrade.handover import Granted, Ready, Said, Versions

RECORDS = Versions(record_table.VERSION, record_table.COMPATIBLE)


def granted(version: int, compatible: int, records: Versions = RECORDS) -> Granted:
    return Granted(version, "shm", (), 0, compatible, records)


@pytest.mark.parametrize(
    ("ours", "theirs", "understood"),
    [
        ((2, 2), (2, 2), True),
        ((3, 2), (2, 2), True),  # N to N+1
        ((2, 2), (3, 2), True),  # and back
        ((2, 2), (2, 0), True),  # as those say that knew no compatible version
        ((3, 2), (2, 0), True),
        ((3, 3), (2, 2), False),
        ((2, 2), (3, 3), False),
        ((2, 2), (3, 0), False),
        ((5, 3), (4, 4), True),
    ],
)
def test_versions_of_the_talk(
    monkeypatch: pytest.MonkeyPatch, ours: tuple[int, int], theirs: tuple[int, int], understood: bool
) -> None:
    """Both ends come to the same result."""
    monkeypatch.setattr(handover, "VERSION", ours[0])
    monkeypatch.setattr(handover, "COMPATIBLE", ours[1])
    problem = handover.not_understood(granted(*theirs))
    assert bool(problem) is not understood
    assert bool(handover.not_answered(Ready(*theirs))) is not understood
    if not understood:
        assert f"version {ours[0]}" in problem and f"version {theirs[0]}" in problem


def test_records_of_a_later_version_that_this_one_may_read() -> None:
    version = record_table.VERSION
    assert handover.not_understood(granted(handover.VERSION, 0, Versions(version + 1, version))) == ""


def test_records_that_this_one_cannot_read() -> None:
    version = record_table.VERSION + 1
    said = handover.not_understood(granted(handover.VERSION, 0, Versions(version, version)))
    assert f"it writes records of version {version}" in said


def test_a_message_with_more_in_it_is_understood() -> None:
    """A later build of the same version has added a field."""
    more = msgspec.msgpack.encode({"type": "ready", "version": 2, "weather": "fine"})
    assert msgspec.msgpack.decode(more, type=Said) == Ready(2)


def test_what_the_first_version_said_can_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is refused by its version, or understood by one that may be compatible."""
    first = msgspec.msgpack.encode({"type": "granted", "version": 2, "queue": "shm", "sockets": (), "program": 7})
    said = msgspec.msgpack.decode(first, type=Said)
    assert isinstance(said, Granted) and said.who is None
    assert "by version 2 of the talk between proxies, this one by version" in handover.not_understood(said)
    monkeypatch.setattr(handover, "COMPATIBLE", 2)
    assert handover.not_understood(said) == ""
    assert msgspec.msgpack.decode(msgspec.msgpack.encode({"type": "ready"}), type=Said) == Ready()
