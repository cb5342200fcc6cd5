"""The time of a message to the offload proxy and of its answer."""

from __future__ import annotations

import time

from ... import IPPROTO_TCP, TCP_INFO, socket


def round_trips_us(sock: socket, count: int) -> list[float]:
    """Times of `count` GETSOCKOPT messages and their answers, in microseconds. Blocks for each."""
    times = []
    for _ in range(count):
        begin_ns = time.perf_counter_ns()
        sock.getsockopt(IPPROTO_TCP, TCP_INFO, 8)
        times.append((time.perf_counter_ns() - begin_ns) / 1000)
    return times
