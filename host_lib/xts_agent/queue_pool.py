"""The agent's queues: opened ahead, handed out, closed and opened again.

Theory of operation. A socket that a process has had is never given to another process, because no system call resets
its rings. So a queue goes through a cycle: OPENING (closed, then opened, by privileged_opener.py), READY, USED,
RETURNED, and again. The agent has the descriptors while the queue is READY; after that only the process and the opener
have them.

A queue is charged to the user it was given to (`charged()`) until it has been opened again, not only until the
attachment has ended: a descriptor cannot be revoked, and a process that passed on or kept one still occupies the queue.
The kernel then answers EBUSY. It also does so for some 17 ms after any close; a queue that is busy for longer than
KEPT_AFTER_S is *kept*, which is logged, and is tried again from time to time. The same holds for a queue that a process
got from an earlier agent. We do not see that process end, only that the queue can be opened. It may have ended just
now, and so may the earlier opener, which has the queues' descriptors too: so a process that asks waits as usual.

Nobody is refused for what was found some time ago: a kept queue is tried again when a process asks (look_again()).
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import socket
import struct
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

from xts_bpf.program import Owner

from xts_agent.opener_protocol import Answer, Ask, Request, Say, receive_answer, receive_ready
from xts_agent.pod_cgroup import pod_of_process

log = logging.getLogger("xts-agent")

#: How long opening a queue may fail with EBUSY before that is worth a warning (less than an endpoint lets a process
#: wait), and how often it is tried before and after that.
KEPT_AFTER_S = 0.5
STEP_S = 0.005
PATIENCE_S = 1.0
FIRST_PATIENCE_S = 0.1
#: For how long it counts that a kept queue was found busy.
FOUND_S = 0.2
#: How long the opener may take for a request that it carries out at once.
ANSWER_S = 5


class State(Enum):
    """Where a queue is in its cycle."""

    CLOSED = "closed"
    OPENING = "opening"
    READY = "ready"
    USED = "used"
    RETURNED = "returned"


@dataclass(slots=True, eq=False)
class Slot:
    """A queue of the interface."""

    pool: Pool = field(repr=False)
    queue_id: int
    state: State = State.CLOSED
    geometry: bytes = b""  # struct xts_attach_reply, while READY and USED
    descriptors: tuple[int, ...] = ()  # while READY
    uid: int | None = None  # the user it is charged to: from USED on, until it is open again
    pod: str = ""  # the pod it is charged to (its identifier); "": none
    retry_at: float = 0.0  # by time.monotonic(), after an opening that failed
    busy_since: float | None = None  # by time.monotonic(); None: it was not found busy
    found_at: float = 0.0  # when it was last found busy, while kept
    kept: bool = False  # busy for longer than a close takes
    warned: bool = False
    before_us: Owner | None = None  # the process that got it from an earlier agent

    def is_held(self) -> bool:
        """Is waiting for it pointless? False also if that was found too long ago."""
        return self.state is State.USED or (self.kept and time.monotonic() - self.found_at < FOUND_S)


@dataclass(slots=True, eq=False)
class Pool:
    """The queues that the opener serves, `spares` of them kept READY."""

    interface: str
    opener: socket.socket
    spares_wanted: int  # 0: all
    slots: list[Slot] = field(init=False)
    reserved: int = field(default=0, init=False)  # queues that are not for processes: 1 while a relay waits for its own
    _arrived: deque[Answer] = field(default_factory=deque, init=False)

    def __post_init__(self) -> None:
        """OSError: the opener could not begin, and why."""
        self.slots = []
        for number, owner in enumerate(receive_ready(self.opener)):
            slot = Slot(self, number, before_us=owner)
            if owner:
                slot.state, slot.uid = State.RETURNED, owner.uid
                with contextlib.suppress(OSError, ValueError):
                    slot.pod = pod_of_process(owner.pid) or ""
            self.slots.append(slot)
        # Not settimeout(), with which Python waits even where MSG_DONTWAIT is given.
        self.opener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", ANSWER_S, 0))

    @property
    def count(self) -> int:
        return len(self.slots)

    @property
    def spares(self) -> int:
        return min(self.spares_wanted or self.count, self.count)

    def fileno(self) -> int:
        """Readable when `collect()` has something to do."""
        return self.opener.fileno()

    def open_first(self) -> None:
        """Opens the spares. A queue that is busy is left for later, because a process holds it. OSError: a queue could
        not be opened for another reason."""
        deadline = time.monotonic() + FIRST_PATIENCE_S
        self.refill()
        while any(slot.state is State.OPENING for slot in self.slots) or (
            self._ahead() < self.spares and time.monotonic() < deadline
        ):
            if not any(slot.state is State.OPENING for slot in self.slots):
                if not any(slot.state is State.CLOSED for slot in self.slots):
                    return
                time.sleep(STEP_S)
                self.refill()
                continue
            answer = receive_answer(self.opener)
            if answer.error not in (0, errno.EBUSY):
                raise OSError(answer.error, answer.text)
            self._take_in(answer)

    def take(self, uid: int, pod: str = "") -> Slot | None:
        """A READY queue, now USED and charged to a user, and a pod; None when there is none."""
        ready = [slot for slot in self.slots if slot.state is State.READY]
        if len(ready) <= self.reserved:
            return None
        slot = ready[0]
        slot.state = State.USED
        slot.uid, slot.pod = uid, pod
        self.refill()
        return slot

    def put_back(self, slot: Slot) -> None:
        """Makes a USED queue that was not given to a process after all READY again."""
        slot.state = State.READY
        slot.uid, slot.pod = None, ""

    def admit(self, slot: Slot, owner: Owner) -> tuple[int, ...]:
        """Admits frames of a USED queue; the caller owns its descriptors from now on. OSError: it failed."""
        self._ask(Request(Ask.ADMIT, slot.queue_id, owner))
        descriptors, slot.descriptors = slot.descriptors, ()
        return descriptors

    def charged(self, uid: int) -> list[Slot]:
        """The queues that a user occupies: with an attachment, or without one."""
        return [slot for slot in self.slots if slot.uid == uid]

    def charged_to_pod(self, pod: str) -> list[Slot]:
        """As charged(), for a pod."""
        return [slot for slot in self.slots if slot.pod == pod]

    def adopted(self) -> Iterator[tuple[int, Owner]]:
        """The queues that processes got from an earlier agent, by their numbers."""
        return ((slot.queue_id, slot.before_us) for slot in self.slots if slot.before_us)

    def used(self) -> float:
        """The share of the queues that processes hold."""
        return sum(slot.uid is not None for slot in self.slots) / self.count

    def exhausted(self) -> bool:
        """Are all queues held by processes, so that waiting for one is pointless?"""
        return sum(not slot.is_held() for slot in self.slots) <= self.reserved

    def release(self, slot: Slot) -> None:
        """Stops admitting frames on a USED queue that was given to a process, and sends the proxy GOODBYE for it.
        OSError: GOODBYE was not sent."""
        slot.state = State.RETURNED
        self._ask(Request(Ask.RELEASE, slot.queue_id))

    def refill(self) -> None:
        """Tries RETURNED queues, and opens CLOSED ones until there are enough spares."""
        now = time.monotonic()
        for slot in self._waiting():
            if slot.retry_at > now or (slot.state is State.CLOSED and self._ahead() >= self.spares):
                continue
            slot.state = State.OPENING
            self.opener.send(Request(Ask.OPEN, slot.queue_id).pack())

    def look_again(self) -> None:
        """Tries the kept queues that is_held() does not know about. collect() tells what comes of it."""
        for slot in self.slots:
            if slot.state is State.RETURNED and slot.kept and not slot.is_held():
                slot.retry_at = 0.0
        self.refill()

    def collect(self) -> bool:
        """Handles answers of the opener. True: a request that had to wait may be answered now. ConnectionResetError:
        the opener has ended."""
        changed = False
        with contextlib.suppress(BlockingIOError):
            while True:
                answer = self._arrived.popleft() if self._arrived else receive_answer(self.opener, socket.MSG_DONTWAIT)
                changed |= self._take_in(answer)
        self.refill()
        return changed

    def timeout_s(self) -> float | None:
        """When collect() is to be called again, in seconds; None: not before something happens."""
        if self._arrived:
            return 0.0
        waiting = [slot.retry_at for slot in self._waiting()]
        return max(0.0, min(waiting) - time.monotonic()) if waiting else None

    def close(self) -> None:
        """Ends the opener, which closes everything, USED queues included, and waits for it. Harmless when repeated."""
        if self.opener.fileno() < 0:
            return
        for slot in self.slots:
            self._drop_descriptors(slot)
        with contextlib.suppress(OSError):
            self.opener.send(Request(Ask.FINISH).pack())
            while True:
                self._close_descriptors(receive_answer(self.opener).descriptors)
        self.opener.close()

    def _ask(self, request: Request) -> None:
        """Sends a request that is carried out at once. OSError: the error of the opener, or that it has ended."""
        self.opener.send(request.pack())
        while (answer := receive_answer(self.opener)).say is not Say.DONE:
            self._arrived.append(answer)
        if answer.error:
            raise OSError(answer.error, answer.text)

    def _waiting(self) -> list[Slot]:
        """The queues that refill() still has to try."""
        wanted = {State.RETURNED} if self._ahead() >= self.spares else {State.RETURNED, State.CLOSED}
        return [slot for slot in self.slots if slot.state in wanted]

    def _take_in(self, answer: Answer) -> bool:
        """Handles an answer. True: it has changed what is known about a queue."""
        slot = self.slots[answer.queue_id]
        if answer.error:
            return self._failed(slot, answer)
        if slot.before_us:
            log.info("queue %d: pid %d, of an agent before us, has gone", slot.queue_id, slot.before_us.pid)
        elif slot.kept:
            log.warning("queue %d of %s is free again", slot.queue_id, self.interface)
        slot.state = State.READY
        slot.geometry, slot.descriptors = answer.geometry, answer.descriptors
        slot.uid = slot.busy_since = slot.before_us = None
        slot.pod = ""
        slot.kept = slot.warned = False
        return True

    def _failed(self, slot: Slot, answer: Answer) -> bool:
        """Handles a failed opening. True: the queue is kept."""
        now = time.monotonic()
        slot.state = State.CLOSED if slot.uid is None else State.RETURNED
        slot.retry_at = now + PATIENCE_S
        if answer.error == errno.EBUSY and not slot.kept:
            slot.busy_since = slot.busy_since or now
            if now - slot.busy_since < KEPT_AFTER_S:
                slot.retry_at = now + STEP_S
                return False
        slot.kept = slot.uid is not None
        slot.found_at = now
        if not slot.warned and not slot.before_us:
            kept = answer.error == errno.EBUSY and slot.uid is not None
            by = f", kept by user {slot.uid} beyond its attachment" if kept else ""
            log.warning("%s%s; trying again every %g s", answer.text, by, PATIENCE_S)
            slot.warned = True
        return slot.kept

    def _ahead(self) -> int:
        """Those that are READY, or will be: a queue of an earlier agent is most likely in use."""
        return sum(s.state in (State.READY, State.OPENING) and not s.kept and not s.before_us for s in self.slots)

    def _drop_descriptors(self, slot: Slot) -> None:
        self._close_descriptors(slot.descriptors)
        slot.descriptors = ()

    @staticmethod
    def _close_descriptors(descriptors: tuple[int, ...]) -> None:
        for fd in descriptors:
            os.close(fd)
