"""What a run is asked to do: the command line, and how it reaches the two programs and the proxy."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, fields
from typing import Any

#: The longest streams, where nobody says how long, in windows: one window takes one round trip.
STREAM_MAX = 1 << 20
STREAM_WINDOWS = 4096

QUEUES = ("afxdp", "cards", "shm", "shm-loopback", "shm-checked", "shm-races", "kernel")


@dataclass(frozen=True, slots=True)
class Settings:
    """Sizes in bytes, shares per thousand of connections. Both ends' scripts follow from these and the seed."""

    queue: str = "shm-loopback"
    seed: int = 1
    duration_s: float = 10.0
    connections: int = 64
    accepted: int = 32
    threads: int = 2
    stream_max: int = 0
    message_min: int = 1
    message_max: int = 65536
    slow_host: int = 100
    slow_peer: int = 100
    slow_pause_us: int = 5000
    abort: int = 50
    buffer_min: int = 0
    buffer_max: int = 0
    window_bytes: int = 0
    frame_window: int = 0
    proxy_window_kib: int = 0
    spill_mib: int = 1024
    stall_s: float = 15.0
    once: bool = False

    def __post_init__(self) -> None:
        if self.queue not in QUEUES:
            raise ValueError(f"queue {self.queue!r}: expected one of {', '.join(QUEUES)}")
        if not 0 < self.message_min <= self.message_max:
            raise ValueError(f"messages of {self.message_min} to {self.message_max} bytes: expected 1 <= least <= most")
        if self.frame_window and not 4 <= self.frame_window <= 128:
            raise ValueError(f"frame window {self.frame_window}: expected 4 to 128, or 0 for the default")
        if self.window_bytes == 1 or self.window_bytes < 0:
            raise ValueError(f"window of {self.window_bytes} bytes: expected 2 or more, or 0 for the default")
        if self.proxy_window_kib < 0 or self.spill_mib < 1:
            raise ValueError("proxy-window-kib: expected 0 or more; spill-mib: expected 1 or more")
        if self.buffer_max and not 0 < self.buffer_min <= self.buffer_max:
            raise ValueError(f"buffers of {self.buffer_min} to {self.buffer_max} bytes: expected 1 <= least <= most")
        if self.stream_max < 0:
            raise ValueError(f"streams of {self.stream_max} bytes: expected 1 or more, or 0 to choose by the window")
        if self.connections + self.accepted < 1 or self.threads < 1:
            raise ValueError("expected at least one connection and one thread")

    @property
    def longest_stream(self) -> int:
        """What was asked for, or as much as small windows carry in seconds."""
        return self.stream_max or min(STREAM_MAX, STREAM_WINDOWS * (self.window_bytes or STREAM_MAX))

    def script_arguments(self) -> list[str]:
        """What both ends must agree on."""
        return [
            *("--seed", str(self.seed), "--stream-max", str(self.longest_stream)),
            *("--message-min", str(self.message_min), "--message-max", str(self.message_max)),
            *("--slow-host", str(self.slow_host), "--slow-peer", str(self.slow_peer)),
            *("--slow-pause-us", str(self.slow_pause_us), "--abort", str(self.abort)),
            *("--buffer-min", str(self.buffer_min), "--buffer-max", str(self.buffer_max)),
            *("--host-window", str(self.window_bytes)),
            *("--stall-ms", str(int(self.stall_s * 1000))),
            *(["--once"] if self.once else []),
        ]

    def host_environment(self) -> dict[str, str]:
        """The library's settings by environment variables."""
        out: dict[str, str] = {}
        if self.window_bytes:
            out |= {
                "XTS_WINDOW_BYTES": str(self.window_bytes),
                "XTS_WINDOW_BYTES_MAX": str(self.window_bytes),
            }
        if self.frame_window:
            out["XTS_FRAME_WINDOW"] = str(self.frame_window)
        return out


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One option a field of Settings."""
    default = Settings()
    helps: dict[str, str] = {
        "queue": "afxdp and shm need root (a lab), cards the machine of tests/vm/run --nics; shm-loopback does not; "
        "shm-checked neither, with the law and other invariants checked at every step, ASan and UBSan; shm-races "
        "likewise, with the thread sanitizer; kernel is plain TCP, a test of the test",
        "seed": "of all scripts: the same seed and options do the same again, except for timing",
        "duration_s": "how long new connections are opened; then those left may finish",
        "connections": "that the host keeps open at a time",
        "accepted": "that the host accepts at a time",
        "threads": "of the host's program, each with its connections and epoll set",
        "stream_max": "longest stream each way, bytes; 0: a mebibyte, or 4096 windows if they are that small",
        "message_min": "shortest message, bytes",
        "message_max": "longest message, bytes; also of one receive",
        "slow_host": "per thousand of connections that the host reads slowly",
        "slow_peer": "per thousand of connections that the TCP peer reads slowly",
        "slow_pause_us": "longest pause of a slow reader between two receives, microseconds",
        "abort": "per thousand of connections that one end aborts at a random point",
        "buffer_min": "least SO_SNDBUF and SO_RCVBUF, set on half of the connections; with buffer-max",
        "buffer_max": "most SO_SNDBUF and SO_RCVBUF, bytes; 0: left alone",
        "window_bytes": "receive window of the library, bytes (XTS_WINDOW_BYTES), 2 or more; 0: default",
        "frame_window": "frames on their way, 4 to 128 (XTS_FRAME_WINDOW); 0: default",
        "proxy_window_kib": "window the proxy grants a connection, KiB, 1 or more; 0: default",
        "spill_mib": "limit of the proxy for the sum of windows, and so of spill buffers, MiB",
        "stall_s": "a connection without any progress for so long is a deadlock",
        "once": "open each connection once instead of for the whole duration",
    }
    for field in fields(Settings):
        option: dict[str, Any] = {"help": f"{helps[field.name]} (default: {getattr(default, field.name)})"}
        if field.name == "queue":
            option |= {"choices": QUEUES}
        elif field.name == "once":
            option |= {"action": "store_true"}
        else:
            option |= {"type": type(getattr(default, field.name)), "metavar": "N"}
        parser.add_argument(f"--{field.name.replace('_', '-')}", default=getattr(default, field.name), **option)


def from_arguments(arguments: argparse.Namespace) -> Settings:
    """ValueError: a value out of range, with what is expected."""
    return Settings(**{field.name: getattr(arguments, field.name) for field in fields(Settings)})
