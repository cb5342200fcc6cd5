"""`xts doctor` names an interface that loses frames, or whose ring is too short, and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest
from xts_messages.queues.afxdp import SMALL_CHUNKS_SAID
from xts_socket.cli.checks import wire


def statistics(folder: Path, **counts: int) -> Path:
    for name in wire.COUNTERS:
        (folder / name).write_text(f"{counts.get(name, 0)}\n")
    return folder


def test_nothing_is_said_of_an_interface_that_loses_nothing(tmp_path: Path) -> None:
    assert list(wire.wire("xts0", statistics(tmp_path))) == []
    assert list(wire.wire("xts0", tmp_path / "not there")) == []


def test_losses_and_the_setting(tmp_path: Path) -> None:
    (check,) = wire.wire("xts0", statistics(tmp_path, rx_missed_errors=3, rx_crc_errors=1))
    assert (check.level, check.name) == ("warn", "wire of xts0")
    assert check.found == "frames were lost: rx_missed_errors 3, rx_crc_errors 1"
    assert "reliable" in check.mend


ZERO_COPY, COPY_MODE = "zero copy: the driver has it", "copy mode: the driver has no zero copy"


@pytest.mark.parametrize(
    ("copying", "mtu", "buffers", "warned"),
    [
        (ZERO_COPY, 1500, 256, False),
        (ZERO_COPY, 1500, 224, False),
        (ZERO_COPY, 1500, 128, True),
        (COPY_MODE, 1500, 128, False),  # the kernel takes what the card has received
        (ZERO_COPY, 3826, 128, False),  # a message is one packet
        ("", 1500, 128, False),  # an older agent
    ],
)
def test_a_ring_that_is_shorter_than_what_may_come(copying: str, mtu: int, buffers: int, warned: bool) -> None:
    found = list(wire.ring("xts0", copying, mtu, buffers))
    assert [(check.level, check.name) for check in found] == ([("warn", "ring of xts0")] if warned else [])
    assert all("128 buffers" in check.found and "ethtool -G xts0" in check.mend for check in found)


@pytest.mark.parametrize(
    ("copying", "mtu", "warned"),
    [
        (ZERO_COPY + SMALL_CHUNKS_SAID, 1500, False),
        (ZERO_COPY + SMALL_CHUNKS_SAID, 1766, False),
        (ZERO_COPY + SMALL_CHUNKS_SAID, 1767, True),
        (COPY_MODE + SMALL_CHUNKS_SAID, 9000, False),  # only our own frames come into them
        (ZERO_COPY, 9000, False),
    ],
)
def test_an_mtu_that_has_grown_over_small_chunks(copying: str, mtu: int, warned: bool) -> None:
    found = list(wire.chunks("xts0", copying, mtu))
    assert [(check.level, check.name) for check in found] == ([("warn", "chunks of xts0")] if warned else [])


def test_an_interface_whose_driver_does_not_say() -> None:
    with pytest.raises(OSError):
        wire.buffers_of("lo")
