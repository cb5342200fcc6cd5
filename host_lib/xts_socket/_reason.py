"""Why a socket stays with the kernel: the numbers of native/reason.h, and how often each has occurred here."""

from __future__ import annotations

import os
from _thread import RLock
from enum import IntEnum

from . import _report


class Reason(IntEnum):
    """A socket's `reason`; the numbers are stable. host_lib/REASONS.md says what to do about each."""

    NONE = 0  # offloaded
    RULE = 1  # a rule says os, or the default rules leave loopback to the kernel
    PROTOCOL = 2  # not TCP
    FAMILY = 3  # neither AF_INET nor AF_INET6
    NO_ENDPOINT = 4  # no agent or proxy listens at the endpoint
    PROXY_DOWN = 5  # the endpoint answered, the proxy behind it did not, or the interface between them is out
    LIMIT = 6  # the proxy's or this process's limit of sockets is reached
    OPTION = 7  # an option was set before that the proxy does not accept
    ADDRESS = 8  # bound to an address that only this host's kernel has
    LOCAL = 9  # accepted on the host's own side of an offloaded wildcard listener
    RAW = 10  # used by calls that cannot be seen
    INHERITED = 11  # made from a descriptor that was a kernel socket
    REFUSED = 12  # the attach was refused: version, permission
    FASTOPEN = 13  # data before the connection is established
    ELSEWHERE = 14  # under the interposer, over fork or exec: another process has it
    LOST = 15  # under the interposer, over fork or exec: it could not be kept
    NO_QUEUE = 16  # the endpoint has no queue for this process
    VERSION = 17  # it came from a program with another version of libxts, which this one cannot read

    def __str__(self) -> str:
        return self.name

    def __format__(self, how: str) -> str:
        return format(int(self), how) if how else self.name


_lock = RLock()
#: No other thread has it in a forked child; a hook of the thread that forks may take it.
os.register_at_fork(before=_lock.acquire, after_in_child=_lock.release, after_in_parent=_lock.release)
_counts: dict[Reason, int] = {}


def count(reason: Reason) -> None:
    with _lock:
        _counts[reason] = _counts.get(reason, 0) + 1
        _report.count(reason, _counts[reason])


def reasons() -> dict[Reason, int]:
    """How many sockets of this process stayed with the kernel since install() or offload(), by reason; under
    `Reason.NONE`, how many were offloaded."""
    with _lock:
        return dict(_counts)
