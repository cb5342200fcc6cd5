"""What is slow about the wire through a lab's switch: frames arrive later, in another order, or wait for a slow port.

Theory of operation. A bridge cannot hold frames back, and a kernel without netem has no other part that can. So while
anything is slow, the two ports are taken out of the bridge, and a thread passes the frames from one to the other, by a
packet socket on each. A frame leaves through the port as from the bridge: what the card there does with it, and what
its cable loses (card.py), comes after.

Each direction has a `Pace` of its own. A frame is due when it has waited for its turn at a slow port and for the delay.
One that is overtaken is held until so many later ones have left, or HOLD_NS after it was due: nothing is held for ever.
"""

from __future__ import annotations

import heapq
import random
import select
import socket
import threading
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from pyroute2 import IPRoute

from .topology import index_of

MILLION = 1_000_000
#: How long a frame is held at most, for later ones to overtake it.
HOLD_NS = 20_000_000
#: Bytes that may wait in a packet socket: windows of several queues.
_ROOM_BYTES = 128 << 20
_AT_A_TIME = 32
_FRAME_BYTES_MAX = 1 << 16
_ETH_P_ALL = 3
_SOL_PACKET, _PACKET_IGNORE_OUTGOING = 263, 23  # linux/socket.h, linux/if_packet.h
_SO_SNDBUFFORCE, _SO_RCVBUFFORCE = 32, 33  # asm-generic/socket.h


@dataclass(frozen=True)
class Pace:
    """How a direction is slow. `reorder_ppm`: of a million frames, so many are overtaken by `reorder_by` later ones.
    `rate_mbit` 0: any rate; else `room` frames wait for it, and more are lost."""

    delay_us: int = 0
    reorder_ppm: int = 0
    reorder_by: int = 100
    rate_mbit: int = 0
    room: int = 256

    def __post_init__(self) -> None:
        if min(self.delay_us, self.reorder_ppm, self.reorder_by, self.rate_mbit, self.room) < 0:
            raise ValueError("a wire has no negative delay, rate or room")

    @property
    def slow(self) -> bool:
        """Is anything?"""
        return self != Pace(reorder_by=self.reorder_by, room=self.room)


@dataclass
class Direction:
    """The frames that leave through one port."""

    pace: Pace = Pace()
    chance: random.Random = field(default_factory=random.Random)
    passed: int = 0
    lost: int = 0
    _waiting: list[tuple[int, int, bytes]] = field(default_factory=list)  # a heap: when due, its number, the frame
    _held: list[tuple[int, int, bytes]] = field(default_factory=list)  # after how many have left, or when at the latest
    _turns: deque[int] = field(default_factory=deque)  # when each frame has left that waits for the slow port
    _count: int = 0

    def take(self, frame: bytes, now_ns: int) -> None:
        """A frame has come."""
        due_ns = now_ns
        if self.pace.rate_mbit:
            while self._turns and self._turns[0] <= now_ns:
                self._turns.popleft()
            if len(self._turns) >= self.pace.room:
                self.lost += 1
                return
            due_ns = max(now_ns, self._turns[-1] if self._turns else 0) + len(frame) * 8000 // self.pace.rate_mbit
            self._turns.append(due_ns)
        self._count += 1
        heapq.heappush(self._waiting, (due_ns + self.pace.delay_us * 1000, self._count, frame))

    def due(self, now_ns: int) -> bytes | None:
        """The frame that leaves next, if one is due."""
        if self._held and (self._held[0][0] <= self.passed or self._held[0][1] <= now_ns):
            return self._leaves(self._held.pop(0)[2])
        while self._waiting and self._waiting[0][0] <= now_ns:
            due_ns, _, frame = heapq.heappop(self._waiting)
            if self.chance.random() * MILLION >= self.pace.reorder_ppm:
                return self._leaves(frame)
            self._held.append((self.passed + self.pace.reorder_by, due_ns + HOLD_NS, frame))
        return None

    def _leaves(self, frame: bytes) -> bytes:
        self.passed += 1
        return frame

    def next_ns(self) -> int | None:
        """When the next frame is due; None: there is none."""
        due_ns = [self._waiting[0][0]] if self._waiting else []
        latest_ns = [self._held[0][1]] if self._held else []
        return min(due_ns + latest_ns, default=None)


class SlowWire:
    """The wire between two ports of a bridge, as slow as each direction's pace says. A context manager."""

    def __init__(self, ports: tuple[str, str], bridge: str) -> None:
        self._ports, self._bridge = ports, bridge
        self._directions = {port: Direction() for port in ports}
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()

    def __enter__(self) -> SlowWire:
        return self

    def __exit__(self, *raised: object) -> None:
        self._end()

    def set_pace(self, port: str, pace: Pace) -> None:
        """From now on frames leave through the port like this. What was waiting leaves at once when nothing is slow any
        more. OSError: it cannot be."""
        self._directions[port].pace = pace
        slow = any(direction.pace.slow for direction in self._directions.values())
        if slow and not self._thread:
            self._begin()
        elif not slow:
            self._end()

    def counted(self, port: str) -> dict[str, int]:
        """Frames that left through the port since it was slow first, and that found no room."""
        direction = self._directions[port]
        return {"passed": direction.passed, "no_room": direction.lost}

    def _join(self, joined: bool) -> None:
        with IPRoute() as route:
            master = index_of(route, self._bridge) if joined else 0
            for port in self._ports:
                route.link("set", index=index_of(route, port), master=master)

    def _begin(self) -> None:
        sockets = [_packet_socket(port) for port in self._ports]
        self._join(False)
        self._stop.clear()
        self._thread = threading.Thread(target=self._pass_frames, args=(sockets,), name="slow-wire", daemon=True)
        self._thread.start()

    def _end(self) -> None:
        if self._thread:
            self._stop.set()
            self._thread.join()
            self._thread = None
            self._join(True)

    def _pass_frames(self, sockets: list[socket.socket]) -> None:
        there, back = sockets
        ways = [(there, back, self._directions[self._ports[1]]), (back, there, self._directions[self._ports[0]])]
        while not self._stop.is_set():
            for source, sink, direction in ways:
                _take_in(source, direction)
                _let_out(sink, direction, time.monotonic_ns())
            times = [at for _, _, direction in ways if (at := direction.next_ns()) is not None]
            wait_s = min([0.05, *((at - time.monotonic_ns()) / 1e9 for at in times)])
            select.select(sockets, (), (), max(0.0, wait_s))
        for _, sink, direction in ways:
            _let_out(sink, direction, 1 << 63)
        for one in sockets:
            one.close()


def _packet_socket(port: str) -> socket.socket:
    """All that comes in at a port, which also sends."""
    made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 0)
    try:
        made.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
        for option in (_SO_SNDBUFFORCE, _SO_RCVBUFFORCE):
            made.setsockopt(socket.SOL_SOCKET, option, _ROOM_BYTES)
        made.bind((port, _ETH_P_ALL))
    except OSError:
        made.close()
        raise
    return made


def _take_in(source: socket.socket, direction: Direction) -> None:
    with suppress(BlockingIOError):
        for _ in range(_AT_A_TIME):
            direction.take(source.recv(_FRAME_BYTES_MAX), time.monotonic_ns())


def _let_out(sink: socket.socket, direction: Direction, now_ns: int) -> None:
    while (frame := direction.due(now_ns)) is not None:
        with suppress(OSError):  # the cable has lost it, or the other end is down
            sink.send(frame)


def sharpen_timers() -> None:
    """Threads that start from now on wake up in time, not some 50 us later."""
    with suppress(OSError):
        Path("/proc/self/timerslack_ns").write_text("1000", encoding="ascii")
