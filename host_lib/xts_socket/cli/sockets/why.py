"""What a connection waits for, as shown by `xts top`: the measurements of both ends, in one list.

The host measures post credits and frame credits (to send), its application and the peer (to receive); the proxy
measures TCP, the worker's turn, frame credits, and post credits (to pass on what has come). The device's kernel adds
figures of TCP_INFO: how long the peer's window, or the send buffer, has held TCP back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason: its name in JSON and CSV, the direction, and a description for people."""

    name: str
    end: str  # "host", "proxy", or "tcp": the end that measures it
    measured: str  # its name there
    direction: str  # "send", "receive", or "both"
    short: str
    text: str


REASONS = (
    Reason("post_credits", "host", "post_credits", "send", "post credits", "no post credits: the proxy has no room"),
    Reason("frame_credits", "host", "frame_credits", "send", "frame credits", "no frame credits: the proxy is behind"),
    Reason("tcp", "proxy", "tcp", "send", "TCP", "TCP takes no more: the rest waits in the proxy's spill buffer"),
    Reason("peer_window", "tcp", "peer_window_us", "send", "peer's window", "TCP: the peer's window is full"),
    Reason("send_buffer", "tcp", "send_buffer_us", "send", "send buffer", "TCP: its send buffer is too small"),
    Reason("application", "host", "application", "receive", "application", "the program has not read what has come"),
    Reason(
        "application_window", "proxy", "post_credits", "receive", "application",
        "the program has not read a whole window: the proxy keeps the rest",
    ),
    Reason(
        "frame_credits_back", "proxy", "frame_credits", "receive", "frame credits",
        "no frame credits: the host is behind",
    ),
    Reason("peer", "host", "peer", "receive", "peer", "the program has sent, and the peer has not answered yet"),
    Reason("turn", "proxy", "turn", "both", "worker's turn", "the proxy's worker is busy with other connections"),
)  # fmt: skip
NAMES = tuple(reason.name for reason in REASONS)
BY_NAME: Mapping[str, Reason] = MappingProxyType({reason.name: reason for reason in REASONS})

#: Which reason to name when several hold at once: the first of these, since it causes those after it. A sender without
#: post credits has none because TCP takes nothing.
_FIRST = ("tcp", "frame_credits", "post_credits", "application_window", "frame_credits_back", "application", "peer")


def cause(now: frozenset[str]) -> str:
    """One or two words about the present reasons; "": it does not wait."""
    for name in _FIRST:
        if name in now:
            return BY_NAME[name].short
    return ""
