"""The agent's queues: opened ahead, handed out, closed and opened anew.

Theory of operation. A socket that a process has had is never given to another: no call resets its rings. So a queue
goes round: OPENING (closed, then opened, by a thread of its own: closing waits for RCU), READY, USED, RETURNED, and
again. Everything but the opening happens in the agent's own thread; the other tells it of a result by `_done` and a
byte in a pipe.

A queue is charged to the user it was given to (`charged()`) until it has been opened anew, not until the attachment has
ended: a descriptor cannot be revoked, and a process that passed on or kept one of the queue's still occupies it. The
kernel then answers EBUSY. It does so for some 17 ms after any close as well; a queue that is busy for longer than
KEPT_AFTER_S is *kept*, which is logged, and tried again every so often.
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

#: How long a queue may answer EBUSY before that is worth a warning (less than an endpoint lets a process wait), and how
#: often it is tried before and after that.
KEPT_AFTER_S = 0.5
STEP_S = 0.005
PATIENCE_S = 1.0
FIRST_PATIENCE_S = 0.1
AF_XDP = 44


class State(Enum):
    """Where a queue is in its round."""

    CLOSED = "closed"
    OPENING = "opening"
    READY = "ready"
    USED = "used"
    RETURNED = "returned"


@dataclass(slots=True, eq=False)
class Slot:
    """A queue of the interface. `xsk` and `last_word` are there while READY and USED."""

    queue_id: int
    state: State = State.CLOSED
    xsk: XskSocket | None = None
    last_word: LastWord | None = None
    uid: int | None = None  # whom it is charged to: from USED on, until it is open again
    retry_at: float = 0.0  # time.monotonic(), after an opening that failed
    busy_since: float | None = None  # likewise; None: it was not found busy
    kept: bool = False  # busy for longer than a close takes
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

    def take(self, uid: int) -> Slot | None:
        """A READY queue, now USED and charged to a user; None when there is none."""
        for slot in self.slots:
            if slot.state is State.READY:
                slot.state = State.USED
                slot.uid = uid
                self.refill()
                return slot
        return None

    def charged(self, uid: int) -> list[Slot]:
        """The queues that a user occupies: with an attachment, or without one."""
        return [slot for slot in self.slots if slot.uid == uid]

    def exhausted(self) -> bool:
        """All queues are held by processes: waiting for one would be in vain."""
        return all(slot.state is State.USED or slot.kept for slot in self.slots)

    def give_back(self, slot: Slot) -> None:
        """Lets a USED queue be closed and opened again."""
        slot.state = State.OPENING
        self._work.put(slot)

    def refill(self) -> None:
        """Has RETURNED queues tried again, and CLOSED ones opened until the spares are there again."""
        now = time.monotonic()
        for slot in self._waiting():
            if slot.retry_at > now or (slot.state is State.CLOSED and self._ahead() >= self.spares):
                continue
            slot.state = State.OPENING
            self._work.put(slot)

    def collect(self) -> bool:
        """Takes in what the thread has done. True: an answer that was put off may be given now."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._pipe[0], 4096)
        changed = False
        with contextlib.suppress(queue.Empty):
            while True:
                slot, error = self._done.get_nowait()
                if error is None:
                    self._opened(slot)
                    changed = True
                else:
                    changed |= self._failed(slot, error)
        self.refill()
        return changed

    def timeout_s(self) -> float | None:
        """When refill() is to be called again, in seconds; None: not before something happens."""
        waiting = [slot.retry_at for slot in self._waiting()]
        return max(0.0, min(waiting) - time.monotonic()) if waiting else None

    def close(self) -> None:
        """Closes everything, USED queues included."""
        self._work.put(None)
        self._thread.join()
        for slot in self.slots:
            slot.close()
        for fd in self._pipe:
            os.close(fd)

    def _waiting(self) -> list[Slot]:
        """The queues that refill() has to try, sooner or later."""
        wanted = {State.RETURNED} if self._ahead() >= self.spares else {State.RETURNED, State.CLOSED}
        return [slot for slot in self.slots if slot.state in wanted]

    def _opened(self, slot: Slot) -> None:
        if slot.kept:
            log.warning("queue %d of %s is free again", slot.queue_id, self.interface)
        slot.state = State.READY
        slot.uid = slot.busy_since = None
        slot.kept = slot.warned = False

    def _failed(self, slot: Slot, error: OSError) -> bool:
        """True: the queue is known to be kept from now on."""
        now = time.monotonic()
        slot.state = State.CLOSED if slot.uid is None else State.RETURNED
        if error.errno == errno.EBUSY:
            slot.busy_since = slot.busy_since or now
            if now - slot.busy_since < KEPT_AFTER_S:
                slot.retry_at = now + STEP_S
                return False
        slot.retry_at = now + PATIENCE_S
        found = not slot.kept and slot.uid is not None
        slot.kept = slot.uid is not None
        if not slot.warned:
            kept = error.errno == errno.EBUSY and slot.uid is not None
            by = f", kept by user {slot.uid} beyond its attachment" if kept else ""
            log.warning("%s%s; trying again every %g s", error.strerror, by, PATIENCE_S)
            slot.warned = True
        return found

    def _ahead(self) -> int:
        return sum(s.state in (State.READY, State.OPENING) for s in self.slots)

    def _open(self, slot: Slot, patience_s: float = 0.0) -> None:
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
                self._open(slot)
            except OSError as found:
                error = found
            self._done.put((slot, error))
            with contextlib.suppress(BlockingIOError):
                os.write(self._pipe[1], b"x")
