"""A bystander: requests at a steady pace over an offloaded socket. `python -m attack.bystander ADDRESS PORT [USER]`

For each line on its standard input, a duration in seconds, it works that long and prints as JSON how often its
connection ended, and the latency of each request in microseconds. A connection that ends is made again.
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import asdict, dataclass

import xts_socket

from .scene import go_first

PACE_NS = 1_000_000
REQUEST = b"x" * 64
LIMIT_S = 10.0


@dataclass(frozen=True, slots=True)
class Latencies:
    """Of one slot. `resets`: how often the connection ended or said nothing for LIMIT_S; `begun_ns`: when each request
    began, by the monotonic clock."""

    resets: int
    us: list[float]
    begun_ns: list[int]


class Bystander:
    """One connection to the echo server."""

    def __init__(self, address: str, port: int) -> None:
        self.target = (address, port)
        self.socket = self._connect()

    def _connect(self) -> xts_socket.socket:
        made = xts_socket.create_connection(self.target, timeout=LIMIT_S)
        made.setsockopt(xts_socket.IPPROTO_TCP, xts_socket.TCP_NODELAY, 1)
        return made

    def _ask(self) -> None:
        self.socket.sendall(REQUEST)
        left = len(REQUEST)
        while left:
            if not (data := self.socket.recv(left)):
                raise ConnectionResetError("the connection has ended")
            left -= len(data)

    def work(self, duration_s: float) -> Latencies:
        """A request each PACE_NS; one that begins late because others took long counts from when it was due."""
        samples: list[float] = []
        begun_ns: list[int] = []
        resets = 0
        due = time.monotonic_ns()
        end = due + int(duration_s * 1e9)
        while due < end:
            now = time.monotonic_ns()
            if now < due:
                time.sleep((due - now) / 1e9)
                begin = time.monotonic_ns()
            else:
                begin = due
            try:
                self._ask()
            except OSError:
                resets += 1
                self.socket.close()
                self.socket = self._connect()
            samples.append((time.monotonic_ns() - begin) / 1000)
            begun_ns.append(begin)
            due += PACE_NS
        return Latencies(resets, samples, begun_ns)


def _become(user: int) -> None:
    """Of another tenant, as far as proxy and agent know."""
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)


def main() -> int:
    go_first()
    if len(sys.argv) > 3:
        _become(int(sys.argv[3]))
    bystander = Bystander(sys.argv[1], int(sys.argv[2]))
    bystander.work(0.2)
    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps(asdict(bystander.work(float(line)))), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
