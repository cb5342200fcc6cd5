"""The agent's queues: opened ahead, handed out, closed and opened anew.

Theory of operation. A socket that a process has had is never given to another: no call resets its rings. So a queue
goes round: OPENING (closed, then opened, by a thread of its own kind: closing waits for RCU and a queue answers EBUSY
for some 17 ms after, and for as long as a forked child keeps the rings mapped), READY, USED, and again. Everything but
the opening happens in the agent's own thread; the thread tells it of a result by `completed` and a byte in a pipe.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import queue
import socket
import threading
import time
from dataclasses import dataclass, field
from enum import Enum

from xts_messages.afxdp import LastWord, XskSocket, open_socket

log = logging.getLogger("xts-agent")

#: How long a queue may answer EBUSY before that is worth a warning, and how often it is tried after that.
PATIENCE_S = 1.0
FIRST_PATIENCE_S = 0.1
AF_XDP = 44


class State(Enum):
    """Where a queue is in its round."""

    CLOSED = "closed"
    OPENING = "opening"
    READY = "ready"
    USED = "used"


@dataclass(slots=True, eq=False)
class Slot:
    """A queue of the interface. `xsk` and `last_word` are there while READY and USED."""

    queue_id: int
    state: State = State.CLOSED
    xsk: XskSocket | None = None
    last_word: LastWord | None = None
    retry_at: float = 0.0  # time.monotonic(), after an opening that failed
    warned: bool = False

    def say(self, frame: bytes) -> None:
        """Sends what the dead owner had put into its ring, then this frame. OSError: it was not sent."""
        if self.xsk is None or self.last_word is None:
            raise OSError(errno.ENOTCONN, "the queue is not open")
        # Without a socket object Python has no sendto; this one only borrows the descriptor.
        kick = socket.socket(AF_XDP, socket.SOCK_RAW, fileno=os.dup(self.xsk.xsk_fd))
        with kick, contextlib.suppress(OSError):
            kick.send(b"", socket.MSG_DONTWAIT)
        self.last_word.send(frame)

    def close(self) -> None:
        """Closes the sockets; blocks for some milliseconds."""
        if self.last_word:
            self.last_word.close()
        if self.xsk:
            self.xsk.close()
        self.last_word = self.xsk = None


@dataclass(slots=True)
class Pool:
    """Queues 0 to count-1 of an interface, `spares` of them kept READY."""

    interface: str
    count: int
    spares: int
    frame_window: int
    single_chunk: bool
    slots: list[Slot] = field(init=False)
    _work: queue.SimpleQueue[Slot | None] = field(default_factory=queue.SimpleQueue, init=False)
    _done: queue.SimpleQueue[tuple[Slot, OSError | None]] = field(default_factory=queue.SimpleQueue, init=False)
    _pipe: tuple[int, int] = field(init=False)
    _thread: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        self.slots = [Slot(number) for number in range(self.count)]
        self._pipe = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._thread = threading.Thread(target=self._run, name="open-queues", daemon=True)
        self._thread.start()

    def fileno(self) -> int:
        """Readable when `collect()` has something to do."""
        return self._pipe[0]

    def open_first(self) -> None:
        """Opens the spares in the calling thread. A queue that is busy is left for later: a process may hold it from
        the time of an agent before us. OSError: a queue could not be had for another reason."""
        for slot in self.slots:
            if self._ahead() >= self.spares:
                return
            try:
                self._open(slot, FIRST_PATIENCE_S)
            except OSError as error:
                if error.errno != errno.EBUSY:
                    raise
                self._failed(slot, error)
            else:
                slot.state = State.READY

    def take(self) -> Slot | None:
        """A READY queue, now USED; None when there is none."""
        for slot in self.slots:
            if slot.state is State.READY:
                slot.state = State.USED
                self.refill()
                return slot
        return None

    def exhausted(self) -> bool:
        """All queues are held by processes: waiting for one would be in vain."""
        return all(slot.state is State.USED for slot in self.slots)

    def give_back(self, slot: Slot) -> None:
        """Lets a USED queue be closed, and opened again when it is needed."""
        slot.state = State.OPENING
        self._work.put(slot)

    def refill(self) -> None:
        """Has CLOSED queues opened until the spares are there again."""
        now = time.monotonic()
        ahead = self._ahead()
        for slot in self.slots:
            if ahead >= self.spares:
                break
            if slot.state is State.CLOSED and slot.retry_at <= now:
                slot.state = State.OPENING
                self._work.put(slot)
                ahead += 1

    def collect(self) -> bool:
        """Takes in what the thread has done. True: a queue has become READY."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._pipe[0], 4096)
        ready = False
        with contextlib.suppress(queue.Empty):
            while True:
                slot, error = self._done.get_nowait()
                if error is None:
                    slot.state = State.READY
                    slot.warned = False
                    ready = True
                    continue
                self._failed(slot, error)
        self.refill()
        return ready

    def timeout_s(self) -> float | None:
        """When refill() is to be called again, in seconds; None: not before something happens."""
        if self._ahead() >= self.spares:
            return None
        waiting = [s.retry_at for s in self.slots if s.state is State.CLOSED]
        return max(0.0, min(waiting) - time.monotonic()) if waiting else None

    def close(self) -> None:
        """Closes everything, USED queues included."""
        self._work.put(None)
        self._thread.join()
        for slot in self.slots:
            slot.close()
        for fd in self._pipe:
            os.close(fd)

    def _failed(self, slot: Slot, error: OSError) -> None:
        slot.state = State.CLOSED
        slot.retry_at = time.monotonic() + PATIENCE_S
        if not slot.warned:
            log.warning("%s; trying again every %g s", error.strerror, PATIENCE_S)
            slot.warned = True

    def _ahead(self) -> int:
        return sum(s.state in (State.READY, State.OPENING) for s in self.slots)

    def _open(self, slot: Slot, patience_s: float) -> None:
        xsk = open_socket(
            self.interface,
            slot.queue_id,
            frame_window=self.frame_window,
            single_chunk=self.single_chunk,
            patience_s=patience_s,
        )
        try:
            slot.last_word = LastWord(xsk)
        except OSError:
            xsk.close()
            raise
        slot.xsk = xsk

    def _run(self) -> None:
        while (slot := self._work.get()) is not None:
            error: OSError | None = None
            slot.close()
            try:
                self._open(slot, PATIENCE_S)
            except OSError as found:
                error = found
            self._done.put((slot, error))
            with contextlib.suppress(BlockingIOError):
                os.write(self._pipe[1], b"x")
