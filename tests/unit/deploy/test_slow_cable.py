"""What is slow about the wire through a lab's switch (xts_lab/slow_cable.py), frame by frame."""

from __future__ import annotations

import random

import pytest
from xts_lab.slow_cable import HOLD_NS, Direction, Pace

US = 1000
FRAME = bytes(1250)  # 10,000 bits


def left(direction: Direction, now_ns: int) -> list[bytes]:
    """All that is due."""
    found = []
    while (frame := direction.due(now_ns)) is not None:
        found.append(frame)
    return found


def test_what_is_delayed_leaves_in_time_and_in_order() -> None:
    direction = Direction(Pace(delay_us=500))
    for number in range(3):
        direction.take(bytes([number]), number * 10 * US)
    assert direction.next_ns() == 500 * US
    assert left(direction, 500 * US - 1) == []
    assert left(direction, 510 * US) == [b"\0", b"\1"]
    assert (direction.next_ns(), left(direction, 520 * US)) == (520 * US, [b"\2"])
    assert direction.next_ns() is None


def test_a_frame_is_overtaken_by_so_many() -> None:
    direction = Direction(Pace(reorder_ppm=1_000_000, reorder_by=3))
    direction.take(b"late", 0)
    assert left(direction, 0) == []
    direction.pace = Pace()
    for number in range(5):
        direction.take(bytes([number]), 0)
    assert left(direction, 0) == [b"\0", b"\1", b"\2", b"late", b"\3", b"\4"]


def test_nothing_is_held_for_ever() -> None:
    direction = Direction(Pace(reorder_ppm=1_000_000))
    direction.take(b"last", 0)
    assert (left(direction, HOLD_NS - 1), direction.next_ns()) == ([], HOLD_NS)
    assert left(direction, HOLD_NS) == [b"last"]


def test_such_a_share_is_overtaken() -> None:
    direction = Direction(Pace(reorder_ppm=100_000, reorder_by=5), random.Random(1))
    frames = [number.to_bytes(2, "big") for number in range(5000)]
    for frame in frames:
        direction.take(frame, 0)
    found = left(direction, 0)
    assert sorted([*found, *left(direction, HOLD_NS)]) == frames
    late = sum(frame != frames[at] and int.from_bytes(frame, "big") < at for at, frame in enumerate(found))
    assert 400 < late < 600


def test_a_slow_port_has_a_rate_and_no_more_room_than_that() -> None:
    direction = Direction(Pace(rate_mbit=10, room=4))  # a millisecond each
    for _ in range(6):
        direction.take(FRAME, 0)
    assert direction.lost == 2
    assert [len(left(direction, at * 1000 * US)) for at in range(1, 6)] == [1, 1, 1, 1, 0]
    direction.take(FRAME, 10_000 * US)
    assert (left(direction, 11_000 * US - 1), left(direction, 11_000 * US)) == ([], [FRAME])


def test_what_is_no_pace() -> None:
    assert not Pace().slow and not Pace(room=1).slow and Pace(delay_us=1).slow
    with pytest.raises(ValueError, match="no negative delay"):
        Pace(delay_us=-1)
