"""Ports for programs that are told theirs: nobody has them, and nobody is given them by the kernel meanwhile.

A port that bind() has chosen, and that is closed so that a program can have it, may be another's before the program
has started: each connect() takes one of the same range, and on a machine with much to do some of thousands of programs
find theirs in use. Below that range are only ports that somebody has named.
"""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack
from pathlib import Path

_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")  # of the caller's network namespace
_UNPRIVILEGED = 1024
_TRIES = 1000


def _candidates() -> range:
    lowest, highest = map(int, _RANGE.read_text().split())
    below = range(_UNPRIVILEGED, lowest)
    return below if len(below) > _TRIES else range(lowest, highest + 1)


def free_ports(count: int, address: str = "127.0.0.1") -> list[int]:
    """Different ones, free for streams and for datagrams, at an address of IPv4 or IPv6."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    found: list[int] = []
    for port in random.sample(_candidates(), _TRIES):
        with ExitStack() as stack:
            try:
                for kind in socket.SOCK_STREAM, socket.SOCK_DGRAM:
                    stack.enter_context(socket.socket(family, kind)).bind((address, port))
            except OSError:  # somebody has it
                continue
        found.append(port)
        if len(found) == count:
            return found
    raise OSError(f"{count} ports of {address} that are free were not found in {_TRIES} tries")


def free_port(address: str = "127.0.0.1") -> int:
    """One of them."""
    return free_ports(1, address)[0]
