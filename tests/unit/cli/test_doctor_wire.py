"""`xts doctor` names an interface that loses frames, and what to do."""

from __future__ import annotations

from pathlib import Path

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
