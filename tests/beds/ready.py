"""Whether a descriptor is readable or writable, by poll(); and whether somebody listens at a port.

select() refuses descriptors of 1,024 and above, and a process that runs tests may have that many for a while.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Iterable
from typing import Protocol


class HasFileno(Protocol):
    def fileno(self) -> int: ...


def readable(of: int | HasFileno | None, timeout_s: float = 0.0) -> bool:
    """Waits for data, an end or an error, at most `timeout_s`."""
    return _polled(of, select.POLLIN, timeout_s)


def any_readable(of: Iterable[int | HasFileno], timeout_s: float = 0.0) -> set[int]:
    """The descriptors of those that have data, an end or an error; waits at most `timeout_s` for the first."""
    ready = select.poll()
    for one in of:
        ready.register(one, select.POLLIN)
    return {fd for fd, _ in ready.poll(timeout_s * 1000)}


def writable(of: int | HasFileno, timeout_s: float = 0.0) -> bool:
    """Waits for room, or an error, at most `timeout_s`."""
    return _polled(of, select.POLLOUT, timeout_s)


def listens(port: int, address: str = "127.0.0.1") -> bool:
    """Makes a connection, which ends at once."""
    with socket.socket() as probe:
        return probe.connect_ex((address, port)) == 0


def _polled(of: int | HasFileno | None, events: int, timeout_s: float) -> bool:
    assert of is not None, "a process without that pipe"
    poll = select.poll()
    poll.register(of, events)
    return bool(poll.poll(max(0.0, timeout_s) * 1000))
