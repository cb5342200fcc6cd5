"""Two links over the two ends of a real queue, of any kind and under any decorator, with a virtual clock.

Each end does what the owner of a channel does: it seals and submits, receives, recycles or keeps, and before it kicks
it tells its queue the time. beds.link_pair has links without queues.
"""

from __future__ import annotations

import os
import select
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Self

from xts_messages._native import ffi, lib
from xts_messages.queues.queue import Frame, Queue
from xts_messages.queues.queue_kinds import HOST, PROXY, QueueOptions
from xts_messages.wire import codec

from beds.patience import SLOWER
from beds.third_kind import open_pair

MS = 1_000_000
EPOCH = 0x1122334455667788
HEAD_BYTES = 128
#: For a frame that is on its way.
ARRIVES_S = 10.0 * SLOWER
LOOK_MS = 20


def payload_of(number: int) -> bytes:
    """What message `number` carries: of a length of its own, and some longer than one buffer."""
    return number.to_bytes(4, "big") * (1 + number * 37 % 90 * (30 if number % 11 == 0 else 1))


@dataclass
class End:
    """One end: its queue, its link, and what a test knows about it."""

    role: int
    queue: Queue
    link: Any
    sent: list[int] = field(default_factory=list)
    delivered: list[int] = field(default_factory=list)
    held: deque[tuple[int, Frame]] = field(default_factory=deque)  # their credit is out
    kept: list[tuple[int, Frame]] = field(default_factory=list)  # their credit is back
    no_slot: int = 0
    longest: int | None = None  # payload

    @property
    def up(self) -> bool:
        return bool(self.link.state == lib.XTS_LINK_UP)

    @property
    def credits(self) -> int:
        return int(lib.xts_link_credits(self.link))

    def payload_of(self, number: int) -> bytes:
        return payload_of(number)[: self.longest]

    def send(self, number: int) -> bool:
        """False: no frame credit, or no slot."""
        if not self.credits:
            return False
        name = "XTS_CMD_SEND" if self.role == HOST else "XTS_REPLY_RECV"
        frame = bytearray(codec.encode(codec.Frame(name, payload=self.payload_of(number), id=number)))
        slot = ffi.new("struct xts_tx_slot *")
        if lib.xts_queue_acquire(self.queue.native, slot):
            self.no_slot += 1
            return False
        lib.xts_link_seal(self.link, ffi.from_buffer(frame))
        ffi.memmove(slot.data, frame, len(frame))
        lib.xts_queue_submit(self.queue.native, slot, len(frame))
        self.sent.append(number)
        return True

    def _next(self, now_ns: int) -> tuple[Frame, bytes, int, int] | None:
        """The next frame, its bytes, the number in its head, and the link's verdict. None: there is none, or the other
        end is gone."""
        try:
            frame = self.queue.receive()
        except BrokenPipeError:
            return None
        if frame is None:
            return None
        data = bytes(frame)
        memory, head = ffi.new("uint8_t[]", data[:HEAD_BYTES]), ffi.new("struct xts_head *")
        verdict = lib.xts_link_receive(self.link, memory, min(len(data), HEAD_BYTES), len(data), now_ns, head)
        return frame, data, int(head.id), int(verdict)

    def receive(self, now_ns: int) -> bool:
        """Takes one frame; false: there is none, or the other end is gone."""
        if not (found := self._next(now_ns)):
            return False
        frame, data, number, verdict = found
        if verdict != lib.XTS_LINK_DELIVER:
            frame.recycle()
            if verdict in (lib.XTS_LINK_OPENED, lib.XTS_LINK_CLOSED):
                self.forget()
            return True
        self.delivered.append(number)
        assert codec.decode(data).payload == self.payload_of(number)
        self.held.append((number, frame))
        return True

    def recycle(self, count: int) -> None:
        """The oldest frames go back with their credit."""
        for _ in range(min(count, len(self.held))):
            self.held.popleft()[1].recycle()
            lib.xts_link_recycled(self.link)

    def keep(self) -> bool:
        """Keeps the newest frame longer than its credit. False: there is no frame, or no room."""
        if not self.held or not self.held[-1][1].keep():
            return False
        self.kept.append(self.held.pop())
        lib.xts_link_recycled(self.link)
        return True

    def let_go(self, at: int) -> None:
        """A kept frame goes back; it is what it was."""
        number, frame = self.kept.pop(at % len(self.kept))
        assert codec.decode(bytes(frame)).payload == self.payload_of(number)
        frame.recycle()

    def forget(self) -> None:
        """An epoch has ended: its frames go back without credits."""
        for _, frame in (*self.held, *self.kept):
            frame.recycle()
        self.held.clear()
        self.kept.clear()

    def pump(self, now_ns: int) -> bool:
        """Control frames, the time, and a kick. Was there any control frame?"""
        any_sent = False
        slot, room = ffi.new("struct xts_tx_slot *"), ffi.new("uint8_t[128]")
        while lib.xts_link_control_due(self.link):
            if lib.xts_queue_acquire(self.queue.native, slot):
                self.no_slot += 1
                break
            length = int(lib.xts_link_control(self.link, room, now_ns))
            if not length:
                lib.xts_queue_abandon(self.queue.native, slot)
                break
            ffi.memmove(slot.data, room, length)
            lib.xts_queue_submit(self.queue.native, slot, length)
            any_sent = True
        self.queue.tick(now_ns)
        lib.xts_queue_kick(self.queue.native)
        return any_sent

    def tick(self, now_ns: int) -> None:
        if lib.xts_link_tick(self.link, now_ns) == lib.XTS_LINK_CLOSED:
            self.forget()


def link_of(role: int, queue: Queue, window: int, now_ns: int, features: int = 0) -> Any:
    """A link for this end of a queue."""
    config = ffi.new("struct xts_link_config *")
    config.role = lib.XTS_LINK_HOST if role == HOST else lib.XTS_LINK_PROXY
    config.local_mac, config.peer_mac = queue.local_mac, queue.peer_mac
    config.frame_window, config.largest_message = window, queue.largest_message
    config.head_bytes = queue.native.head_bytes
    config.epoch, config.pid = (EPOCH if role == HOST else 0), os.getpid()
    config.sockets_max, config.features = 100, features
    config.ping_ms, config.dead_ms = 20, 3_600_000
    link = ffi.new("struct xts_link *")
    assert lib.xts_link_init(link, config, now_ns) == 0
    lib.xts_link_watch(link, True, now_ns)
    return link


#: The time when both ends begin.
START_NS = 5 * MS


class Links(AbstractContextManager["Links"]):
    """Both ends, over these queues. A context manager that closes the queues."""

    #: That both ends have.
    features = 0

    def __init__(self, queues: Iterable[Queue], window: int) -> None:
        self.now_ns, self.window = START_NS, window
        self.ends = tuple(
            End(role, queue, link_of(role, queue, window, self.now_ns, self.features))
            for role, queue in zip((HOST, PROXY), queues, strict=True)
        )
        self.host, self.proxy = self.ends

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for end in self.ends:
            end.forget()
            end.queue.close()


class QueuedLinks(Links):
    """Over queues of a kind, one opened for each end."""

    def __init__(self, kind: int, options: QueueOptions, decorate: Callable[[Queue], Queue] = lambda q: q) -> None:
        super().__init__((decorate(queue) for queue in self.pair(kind, options)), options.frame_window)

    def pair(self, kind: int, options: QueueOptions) -> tuple[Queue, Queue]:
        """Both ends of a new queue."""
        return open_pair(kind, options)

    def advance(self, ms: float) -> None:
        self.now_ns += int(ms * MS)
        for end in self.ends:
            end.tick(self.now_ns)

    def on_their_way(self) -> bool:
        """Are there frames that arrive later by themselves, as hardware's do?"""
        return False

    def settle(self) -> None:
        """Moves frames, and time where a queue waits for it, until nothing moves; nothing is recycled."""
        for _ in range(20_000):
            moved = False
            for end in self.ends:
                moved |= end.pump(self.now_ns)
                moved |= end.receive(self.now_ns)
            deadlines = [end.queue.deadline_ns for end in self.ends if end.queue.deadline_ns is not None]
            if not moved and not deadlines:
                if not self.on_their_way():
                    return
                continue
            if not moved:
                self.now_ns = max(self.now_ns, min(deadlines))
        raise AssertionError("the links never come to rest")


class DistantLinks(QueuedLinks):
    """Frames are on their way for a time, which is a device's."""

    def on_their_way(self) -> bool:
        for end, other in (self.ends, self.ends[::-1]):
            if other.queue.stats.tx_frames > end.queue.stats.rx_frames:
                self._sleep_until_it_arrives(end)
                return True
        return False

    def _sleep_until_it_arrives(self, end: End) -> None:
        """As the owners of both queues do: what could not be sent at once is sent again."""
        ready, deadline = select.poll(), time.monotonic() + ARRIVES_S
        ready.register(end.queue.fileno(), select.POLLIN)
        while not end.queue.arm():
            assert time.monotonic() < deadline, "a frame that was sent does not arrive"
            ready.poll(LOOK_MS)
            end.queue.disarm()
            for one in self.ends:
                lib.xts_queue_kick(one.queue.native)
