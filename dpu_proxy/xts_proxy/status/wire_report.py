"""What a status says of the wire between hosts and proxy: what was repeated, or that frames are lost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any


def wire_lines(channels: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Lines for people, from struct xts_channel_stats of each channel; none where a wire has lost nothing."""
    channels = [row for row in channels if "window_frames" in row.get("queue", {})]  # the version before has none
    repeating = [row["queue"] for row in channels if row["queue"]["window_frames"]]
    if repeating:
        yield (
            f"lost frames are repeated: {sum(q['tx_repeated'] for q in repeating)} of "
            f"{sum(q['tx_frames'] for q in repeating)} sent again, "
            f"{sum(q['rx_duplicates'] for q in repeating)} came twice and "
            f"{sum(q['rx_early'] for q in repeating)} early, round trip up to "
            f"{max(q['rtt_ns'] for q in repeating) / 1000:.0f} µs"
        )
    if wrong := sum(row["queue"]["violations"] for row in channels):
        yield f"ACKNOWLEDGEMENTS OF WHAT WAS NEVER SENT: {wrong}, each ended a link: who else writes to this wire?"
    gaps = sum(row["link"]["sequence_errors"] for row in channels if not row["queue"]["window_frames"])
    if gaps:
        yield (
            f"FRAMES WERE LOST: {gaps} links ended by it. Where the wire loses frames, set `reliable` in "
            "xts-proxy.toml and in xts-agent.toml"
        )
