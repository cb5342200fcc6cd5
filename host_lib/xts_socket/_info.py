"""`info` and `configure`: the state and the settings of this process's attachment to the offload proxy."""

from __future__ import annotations

import os
from dataclasses import dataclass

from . import _report
from ._errors import check
from ._misuse import named, wanted
from ._native import ffi, lib

_LINK_STATES = ("opening", "up", "down")

#: spin_us for configure(): never spin, always sleep.
SPIN_NEVER = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class Info:
    """The attachment of this process, as `info()` found it. Frames are messages that take a frame credit."""

    queue_kind: str  # "afxdp", "shm", or "relay": shared memory to a relay of the agent
    interface: str
    queue_id: int
    link_state: str  # "opening", "up" or "down"
    link_error: int  # errno: why the link is down
    frame_window: int  # limit of frames on their way, in each direction
    frame_credits: int  # frames that may be sent now
    largest_message: int  # size in bytes
    sockets: int  # number of sockets that exist
    features: int  # feature bits in force
    epoch: int  # a random number that identifies the attachment
    sent_frames: int
    received_frames: int
    sent_acks: int
    received_acks: int
    kicks: int  # doorbells rung
    sleeps: int  # waits that slept
    spins: int  # waits that a spin ended
    malformed: int  # frames dropped as malformed
    sent_packets: int  # packets that carried frames and acknowledgements; small ones share a packet (afxdp)
    received_packets: int
    attach_error: str  # why the last attempt to attach this process has failed; empty: it succeeded
    sent_bytes: int  # for all sockets, including closed ones
    received_bytes: int
    lock_waits: int  # how often a call found the lock of this thread's stack taken
    stack: int  # the stack described here: the calling thread's


def info() -> Info:
    """The attachment of this process. OSError (ENOTCONN) before its first socket. Does not block."""
    raw = ffi.new("struct xts_info *")
    check(lib.xts_py_get_info(raw))
    values = {name: getattr(raw, name) for name in Info.__slots__}
    for name in ("queue_kind", "interface", "attach_error"):
        values[name] = ffi.string(values[name]).decode("ascii", "replace")
    state = raw.link_state
    values["link_state"] = _LINK_STATES[state] if state < len(_LINK_STATES) else str(state)
    return Info(**values)


@named
def configure(
    *,
    endpoint: str | os.PathLike[str] | None = None,
    spin_us: int = 0,
    window_bytes: int = 0,
    window_bytes_max: int = 0,
    frame_window: int = 0,
    pcap: str | os.PathLike[str] | None = None,
    dead_ms: int = 0,
    stacks: str | int | None = None,
) -> None:
    """Settings of this process, to be called before its first socket (OSError EBUSY while it is attached); they
    override the environment.

    endpoint: path of the agent's or proxy's socket (XTS_ENDPOINT). spin_us: longest spin before a wait sleeps
    (XTS_SPIN_US; SPIN_NEVER: none). window_bytes, window_bytes_max: receive window of a new socket, and the size to
    which a busy one grows. frame_window: limit of frames on their way. pcap: write all frames to this file. dead_ms:
    how long the device may be silent before it is given up and sockets end (XTS_DEAD_MS). stacks: "process", "thread"
    or a number: which threads have a queue and a lock of their own (XTS_STACKS). 0 or None leaves a default.
    """
    options = ffi.new("struct xts_options *")
    keep = []
    for name, path in (("endpoint", endpoint), ("pcap", pcap)):
        if path is not None:
            if not isinstance(path, str | bytes | os.PathLike):
                raise wanted(f"configure({name}=…)", "a path", path)
            keep.append(ffi.new("char[]", os.fsencode(path)))
            setattr(options, name, keep[-1])
    if stacks is not None:
        keep.append(ffi.new("char[]", str(stacks).encode()))
        options.stacks = keep[-1]
    options.size = ffi.sizeof("struct xts_options")
    for name, number in (
        ("spin_us", spin_us), ("window_bytes", window_bytes), ("window_bytes_max", window_bytes_max),
        ("frame_window", frame_window), ("dead_ms", dead_ms),
    ):  # fmt: skip
        if not isinstance(number, int) or not 0 <= number <= SPIN_NEVER:
            raise wanted(f"configure({name}=…)", f"a number from 0 to {SPIN_NEVER}", number)
        setattr(options, name, number)
    check(lib.xts_py_configure(options))
    if endpoint is not None:
        _report.attached_at(os.fsdecode(endpoint))
