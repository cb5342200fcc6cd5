"""What a proxy's status says of the wire."""

from __future__ import annotations

from typing import Any

from xts_proxy.status.wire_report import wire_lines


def channel(window: int = 0, repeated: int = 0, violations: int = 0, gaps: int = 0) -> dict[str, Any]:
    queue = {"tx_repeated": repeated, "tx_frames": 100, "rx_duplicates": 2, "rx_early": 3, "rtt_ns": 450_000}
    return {
        "queue": {**queue, "window_frames": window, "violations": violations},
        "link": {"sequence_errors": gaps},
    }


def test_nothing_is_said_where_nothing_was_lost() -> None:
    assert list(wire_lines([])) == list(wire_lines([channel(), channel()])) == []


def test_what_was_repeated() -> None:
    (line,) = wire_lines([channel(128, 5), channel(16, 2), channel()])
    assert line == ("lost frames are repeated: 7 of 200 sent again, 4 came twice and 6 early, round trip up to 450 µs")


def test_losses_that_ended_links_and_who_else_writes() -> None:
    assert "FRAMES WERE LOST: 3 links" in next(wire_lines([channel(gaps=3)]))
    assert [line.split(":")[0] for line in wire_lines([channel(128, violations=1, gaps=9)])] == [
        "lost frames are repeated",
        "ACKNOWLEDGEMENTS OF WHAT WAS NEVER SENT",
    ]
