"""Busy polling of AF_XDP sockets: the kernel polls the card when it is asked for frames, instead of waiting for the
card's interrupt.

What was asked for (QueueOptions) and what is in force are two things. The kernel may refuse the options, and it knows
what to poll only when a frame has come whose driver has said which NAPI brought it: its identifier. The socket tells
all that, except how many frames a poll may handle.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass

from xts_messages.queues.queue_kinds import QueueOptions

_AF_XDP = 44
SO_BUSY_POLL, SO_INCOMING_NAPI_ID, SO_PREFER_BUSY_POLL = 46, 56, 69


@dataclass(frozen=True, slots=True)
class InForce:
    """As a socket says. `napi_id`: what is polled; 0: the kernel does not know (yet)."""

    us: int = 0
    preferred: bool = False
    napi_id: int = 0


def in_force(xsk_fd: int) -> InForce:
    """What it is now. Nothing, where the kernel does not say."""
    try:
        with socket.socket(_AF_XDP, socket.SOCK_RAW, fileno=os.dup(xsk_fd)) as asked:
            return InForce(
                asked.getsockopt(socket.SOL_SOCKET, SO_BUSY_POLL),
                bool(asked.getsockopt(socket.SOL_SOCKET, SO_PREFER_BUSY_POLL)),
                asked.getsockopt(socket.SOL_SOCKET, SO_INCOMING_NAPI_ID),
            )
    except OSError:
        return InForce()


def said(xsk_fd: int, asked: QueueOptions) -> str:
    """What of it is in force, for people; "": nobody has asked for it."""
    return describe(in_force(xsk_fd), asked) if asked.busy_poll_us else ""


def describe(found: InForce, asked: QueueOptions) -> str:
    """As said()."""
    if not found.us:
        return "no busy polling: this kernel refuses it"
    how = f"{found.us} us" + (", preferred" if found.preferred else ", not preferred: Linux 5.11 has that")
    if asked.busy_poll_frames:
        how += f", {asked.busy_poll_frames} frames"
    if not found.napi_id:
        return f"busy polling ({how}): nothing to poll, for no frame has named a NAPI"
    return f"busy polling ({how}) of NAPI {found.napi_id}"
