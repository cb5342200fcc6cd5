"""What the network sees of a proxy's sockets: how fast data arrives at a peer, and what is in the packets."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

#: What comes first is a burst, and a program that starts.
SETTLE_S = 0.4
#: How often a rate is measured that is too low.
TRIES = 4
#: A peer must not be what limits the rate.
BUFFER_BYTES = 1 << 24
IPV4, IPV6 = 0x0800, 0x86DD
ETH_P_ALL = 3


class Meters:
    """Counts what arrives at several peers in the same time: for `seconds`, from SETTLE_S after all have begun."""

    def __init__(self, peers: int, seconds: float) -> None:
        self.seconds = seconds
        self.all_begun = 0.0
        self.each = [Meter(self) for _ in range(peers)]

    def begins(self) -> None:
        """A peer has had its first bytes."""
        if all(meter.begun for meter in self.each):
            self.all_begun = time.monotonic()

    def mbit_s(self, timeout_s: float) -> list[float]:
        """Waits until the time is over, and says how fast it was at each."""
        for meter in self.each:
            assert meter.done.wait(timeout_s), [m.begun for m in self.each]
        return [meter.bytes * 8 / 1e6 / self.seconds for meter in self.each]


@dataclass
class Meter:
    """What arrives at one peer."""

    of: Meters
    begun: bool = False
    bytes: int = 0
    done: threading.Event = field(default_factory=threading.Event)

    def arrived(self, count: int) -> bool:
        """False: it has seen enough."""
        if not self.begun:
            self.begun = True
            self.of.begins()
        since_s = time.monotonic() - self.of.all_begun - SETTLE_S if self.of.all_begun else -1.0
        if since_s > self.of.seconds:
            self.done.set()
            return False
        self.bytes += count if since_s >= 0 else 0
        return True


def at_rate(mbit_s: float, measure: Callable[[], list[float]], each_min: float = 0) -> list[float]:
    """What is measured, whose sum is within 5 % of the rate, and of which each is at least `each_min`. More is never
    right. Less may be the fault of the machine, which has other things to do than to run tests: then it is measured
    again."""
    each: list[float] = []
    for _ in range(TRIES):
        each = measure()
        assert sum(each) < mbit_s * 1.05, each
        if sum(each) > mbit_s * 0.95 and min(each) >= each_min:
            return each
    raise AssertionError(f"{each} instead of {mbit_s} Mbit/s, and {each_min} each, in {TRIES} measurements")


def read_stream(server: socket.socket, meter: Meter, to_end: bool = False) -> None:
    """Accepts one connection and reads it while the meter wants more, or to its end."""
    connection, _ = server.accept()
    with connection:
        while (data := connection.recv(1 << 16)) and (meter.arrived(len(data)) or to_end):
            pass


def read_datagrams(bound: socket.socket, meter: Meter) -> None:
    """Reads datagrams while the meter wants more; their headers count, as they do for the proxy."""
    headers = 28 if bound.family == socket.AF_INET else 48
    with suppress(OSError):  # no more comes
        while meter.arrived(len(bound.recv(1 << 16)) + headers):
            pass


def in_background(function: Callable[..., None], *arguments: object) -> threading.Thread:
    thread = threading.Thread(target=function, args=arguments, daemon=True)
    thread.start()
    return thread


@dataclass(frozen=True, slots=True)
class Seen:
    """An IP packet."""

    version: int
    protocol: int
    traffic_class: int
    bytes: int
    to_port: int

    @property
    def dscp(self) -> int:
        return self.traffic_class >> 2


def parse(frame: bytes) -> Seen | None:
    """None: a frame without IP, or without ports."""
    kind = struct.unpack_from(">H", frame, 12)[0]
    if kind == IPV4 and len(frame) >= 38:
        head = (frame[14] & 15) * 4
        protocol, traffic_class, version = frame[23], frame[15], 4
    elif kind == IPV6 and len(frame) >= 58:
        head, protocol, version = 40, frame[20], 6
        traffic_class = struct.unpack_from(">H", frame, 14)[0] >> 4 & 0xFF
    else:
        return None
    if protocol not in (socket.IPPROTO_TCP, socket.IPPROTO_UDP):
        return None
    to_port = struct.unpack_from(">H", frame, 14 + head + 2)[0]
    return Seen(version, protocol, traffic_class, len(frame) - 14, to_port)


@contextmanager
def packets_in(interface: str) -> Iterator[Callable[[], list[Seen]]]:
    """Captures what arrives on an interface of this network namespace. Gives a function that returns what came so
    far."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL)) as raw:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
        raw.bind((interface, ETH_P_ALL))
        raw.setblocking(False)
        seen: list[Seen] = []

        def read() -> list[Seen]:
            while True:
                try:
                    frame, (_, _, kind, _, _) = raw.recvfrom(1 << 17)
                except BlockingIOError:
                    return seen
                packet = None if kind == socket.PACKET_OUTGOING else parse(frame)
                if packet:
                    seen.append(packet)

        yield read
