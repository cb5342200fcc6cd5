"""A wire between two queues under a virtual clock: it delays, loses, repeats, reorders and damages frames, and has a
rate and a room of its own, all by a seed. Each end is a queue over shared memory whose other end the wire has.

:class:`RepeatedLinks` is a host's and a proxy's link over such a wire, with lost frames repeated
(native/decorators/arq.h).
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from xts_messages._native import lib
from xts_messages.queues.queue import Queue
from xts_messages.queues.shm import open_shm_pair

from beds.queued_links import EPOCH, MS, START_NS, End, Links

NEVER = 2**64 - 1
LARGEST = int(lib.XTS_FRAME_BYTES_MAX)


@dataclass(frozen=True)
class Conditions:
    """What a wire does to the frames of one direction; shares are parts of one."""

    delay_us: float = 50
    jitter_us: float = 0  # later by up to so much, so that frames overtake each other
    loss: float = 0
    duplicate: float = 0
    corrupt: float = 0
    burst: int = 1  # so many frames in a row are lost
    frames_per_s: float = 0  # 0: any number
    room: int = 1000  # frames that wait at that rate; more are lost


@dataclass
class Port:
    """What has a rate: several wires may share one."""

    frames_per_s: float
    room: int
    free_ns: float = 0  # when the last frame that waits has left

    def wait_ns(self, now_ns: int) -> float | None:
        """How long one more frame takes; None: there is no room for it."""
        if not self.frames_per_s:
            return 0
        gap_ns = 1e9 / self.frames_per_s
        if (self.free_ns - now_ns) / gap_ns > self.room:
            return None
        self.free_ns = max(self.free_ns, now_ns) + gap_ns
        return self.free_ns - now_ns


@dataclass
class Direction:
    """One direction of a wire."""

    source: Queue
    sink: Queue
    conditions: Conditions
    random: random.Random
    port: Port
    flying: list[tuple[int, int, bytes]] = field(default_factory=list)
    count: int = 0
    lost: int = 0
    burst_left: int = 0
    cut: bool = False  # everything is lost

    def _loses(self) -> bool:
        c = self.conditions
        if not self.burst_left and self.random.random() < c.loss / c.burst:
            self.burst_left = c.burst
        self.burst_left -= (lost := self.burst_left > 0)
        return lost or self.cut

    def _send(self, data: bytes, now_ns: int) -> None:
        c = self.conditions
        at_ns = now_ns + c.delay_us * 1000 + self.random.random() * c.jitter_us * 1000
        wait_ns = self.port.wait_ns(now_ns)
        if wait_ns is None:
            self.lost += 1
            return
        at_ns += wait_ns
        self.count += 1
        heapq.heappush(self.flying, (int(at_ns), self.count, data))

    def take(self, now_ns: int) -> bool:
        """Everything that was sent is on its way, or lost. Was there anything?"""
        taken = False
        while (frame := self.source.receive()) is not None:
            taken = True
            data = bytes(frame)
            frame.recycle()
            if self._loses():
                self.lost += 1
                continue
            if self.random.random() < self.conditions.corrupt:
                at = self.random.randrange(14, len(data))
                data = data[:at] + bytes([data[at] ^ 1 << self.random.randrange(8)]) + data[at + 1 :]
            self._send(data, now_ns)
            if self.random.random() < self.conditions.duplicate:
                self._send(data, now_ns)
        if taken:
            self.source.kick()
        return taken

    def deliver(self, now_ns: int) -> bool:
        """What is due arrives; without a buffer for it, it is lost. Did anything?"""
        arrived = False
        while self.flying and self.flying[0][0] <= now_ns:
            _, _, data = heapq.heappop(self.flying)
            try:
                self.sink.submit(data)
            except BlockingIOError:
                self.lost += 1
            arrived = True
        if arrived:
            self.sink.kick()
        return arrived

    @property
    def next_ns(self) -> int | None:
        return self.flying[0][0] if self.flying else None


def _port_of(conditions: Conditions) -> Port:
    return Port(conditions.frames_per_s, conditions.room)


class RepeatedLinks(Links):
    """Two links over a wire. A context manager that closes the queues."""

    def __init__(
        self,
        seed: int,
        there: Conditions,
        back: Conditions | None = None,
        *,
        window: int = 128,
        roles: tuple[int, int] | None = None,
        above: Callable[[Queue], Queue] = lambda queue: queue,
        port: Port | None = None,
    ) -> None:
        self.recycling = True  # what has come is read at once
        self.work: Callable[[End], object] = lambda end: None  # what an end does before it kicks
        self.random = random.Random(seed)
        host, host_wire = open_shm_pair(window, LARGEST)
        proxy_wire, proxy = open_shm_pair(window, LARGEST)
        self._wires = (host_wire, proxy_wire)
        host_role, proxy_role = roles or (int(lib.XTS_ARQ_HOST), int(lib.XTS_ARQ_PROXY))
        queues = [
            host if host_role < 0 else host.repeating(host_role, EPOCH),
            proxy if proxy_role < 0 else proxy.repeating(proxy_role),
        ]
        for queue in queues:
            queue.tick(START_NS)
        super().__init__(map(above, queues), window)
        self.directions = (
            Direction(host_wire, proxy_wire, there, self.random, port or _port_of(there)),
            Direction(proxy_wire, host_wire, back or there, self.random, _port_of(back or there)),
        )

    def close(self) -> None:
        super().close()
        for wire in self._wires:
            wire.close()

    def act(self) -> int:
        """Everybody does what there is to do now. Returns when there is more to do."""
        for end in self.ends:
            end.tick(self.now_ns)
            while end.receive(self.now_ns):
                pass
            if self.recycling:
                end.recycle(len(end.held))
            self.work(end)
            end.pump(self.now_ns)
        for direction in self.directions:
            direction.take(self.now_ns)
        if any([direction.deliver(self.now_ns) for direction in self.directions]):
            return self.now_ns
        times = [d.next_ns for d in self.directions] + [end.queue.deadline_ns for end in self.ends]
        times += [int(lib.xts_link_deadline_ns(end.link)) for end in self.ends]
        return min((t for t in times if t is not None and t < NEVER), default=self.now_ns + MS)

    def step(self, until_ns: int | None = None) -> None:
        """Does all that; then time goes on to what comes next."""
        next_ns = self.act()
        self.now_ns = max(self.now_ns, min(next_ns, until_ns or next_ns))

    def run(self, done: Callable[[], bool], limit_ms: float = 60_000) -> None:
        """Until it is done. AssertionError: not in that time, or nothing happens any more."""
        end_ns = self.now_ns + int(limit_ms * MS)
        still = 0
        while not done():
            before = self.now_ns
            self.step()
            still = still + 1 if self.now_ns == before else 0
            assert still < 1000, f"time stands still at {self.now_ns}"
            assert self.now_ns < end_ns, f"not in {limit_ms} ms"

    def open(self, limit_ms: float = 60_000) -> RepeatedLinks:
        self.run(lambda: self.host.up and self.proxy.up, limit_ms)
        return self
