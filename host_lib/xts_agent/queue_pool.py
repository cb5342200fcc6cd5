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
now, and so may the earlier opener, which has the queues' descriptors too: so a process that asks waits as usual. Nor do
we know of all such processes: their names went with the XDP program's map if somebody has taken the program off.

Nobody is refused for what was found some time ago: a kept queue is tried again when a process asks (look_again()).

The opener may end, and is started again (starter.py). Queues in use go on: their processes have them, and the XDP
program stays. The queues that were ready are lost with it, since only their opener can admit frames to them; they are
opened again. Until then processes wait. An opener that is late is not given up; while an answer is due from it, it is
asked for no queue.

So may the interface, or its XDP program. The opener says so (InterfaceReport). While there is a *problem*, no queue is
given away or opened, and processes that have one are told that it has ended. In a new *generation* of the interface all
queues are lost, and are opened again; it may have fewer of them, and only these are `usable`. Frames may not find a
queue that it has (xts_bpf/steering.py): such a queue is not given away, and a process that has it is told.

A library of before does not know queues with small chunks (xts_messages/queues/afxdp.py). Where those that are ready
have such, one is opened again for its process, which waits.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import select
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import zip_longest

from xts_bpf.program import Owner
from xts_messages.attaching.attachments import NotReady
from xts_messages.native import ffi
from xts_messages.queues.afxdp import has_small_chunks

from xts_agent.opener_protocol import Answer, Ask, InterfaceReport, Request, Say, receive_answer, receive_ready
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
#: How long the opener may take to notice that the interface is gone.
GONE_S = 1.0
#: How long the opener may take for a request that it carries out at once, and at the beginning and the end.
ANSWER_S = 1.0
BEGIN_S = 20.0
FINISH_S = 5.0
#: How often the opener is asked how its interface is, at most.
LOOK_EVERY_S = 1.0
#: The interface of a queue has gone.
_GONE = (errno.ENXIO, errno.ENODEV, errno.ENETDOWN)


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
    released: bool = False  # while RETURNED: the opener is not to admit frames any more
    large: bool = False  # is opened, or was, with chunks that each library knows
    before_us: Owner | None = None  # the process that got it from an earlier agent

    def say_over(self, epoch: int, keys: list[int]) -> bool:
        """No process has the connections of these keys, says the agent for the process that has, or had, this epoch.
        False: it has to be said later. The opener takes each."""
        self.pool.say_over(self, epoch, keys)
        return True

    @property
    def is_spare(self) -> bool:
        """Would it be opened for nobody yet?"""
        return self.state is State.CLOSED and not self.large

    @property
    def has_small_chunks(self) -> bool:
        """While it is READY: has its memory such?"""
        return has_small_chunks(ffi.from_buffer("struct xts_attach_reply *", self.geometry))

    def is_held(self) -> bool:
        """Is waiting for it pointless? False also if that was found too long ago."""
        return self.state is State.USED or (self.kept and time.monotonic() - self.found_at < FOUND_S)


@dataclass(slots=True, eq=False)
class Pool:
    """The queues that the opener serves, `spares` of them kept READY."""

    interface: str
    opener: socket.socket | None  # None: it has ended
    spares_wanted: int  # 0: all
    changed: Callable[[Pool], None] = lambda _: None  # fileno() is another one, or there is none any more
    taken: Callable[[Slot], None] = lambda _: None  # a USED queue receives nothing any more
    slots: list[Slot] = field(init=False)
    state: InterfaceReport = field(default_factory=InterfaceReport, init=False)
    usable: int = field(default=0, init=False)  # how many of the slots the interface has
    reserved: int = field(default=0, init=False)  # queues that are not for processes: 1 while a relay waits for its own
    _looked_at: float = field(default=-LOOK_EVERY_S, init=False)
    _begun: bool = field(default=True, init=False)  # False: a new opener has not said that it is ready
    _asked: int = field(default=0, init=False)  # the number of the last request
    _late: set[int] = field(default_factory=set, init=False)  # requests whose answers were due
    _begin_problem: str = field(default="", init=False)  # why the last opener could not begin
    _gone_at: float = field(default=0.0, init=False)  # since when the interface is not there; 0: it is
    _arrived: deque[Answer] = field(default_factory=deque, init=False)

    def __post_init__(self) -> None:
        """OSError: the opener could not begin, and why."""
        assert self.opener
        self.slots = []
        if not _readable(self.opener, BEGIN_S):
            raise TimeoutError(errno.ETIMEDOUT, f"the opener of {self.interface} is not ready after {BEGIN_S:g} s")
        for number, owner in enumerate(receive_ready(self.opener)):
            slot = Slot(self, number, before_us=owner)
            if owner:
                slot.state, slot.uid = State.RETURNED, owner.uid
                slot.pod = pod_of(owner.pid)
            self.slots.append(slot)
        self.usable = len(self.slots)

    @property
    def count(self) -> int:
        return len(self._carrying())

    @property
    def has_opener(self) -> bool:
        """False: the last one has ended, and the next is not ready yet."""
        return self.opener is not None and self._begun

    @property
    def steered(self) -> bool:
        """Have frames an address for each queue?"""
        return self.state.steered

    @property
    def headed(self) -> bool:
        """Have they a head with the secret of their attachment, too?"""
        return self.state.headed

    def _carrying(self) -> list[Slot]:
        """The queues that frames find."""
        return [slot for slot in self.slots[: self.usable] if slot.queue_id not in self.state.lacking]

    @property
    def problem(self) -> str:
        """Why no queue carries anything at the moment; "": they do."""
        return self._begin_problem or self.state.problem

    @property
    def spares(self) -> int:
        return min(self.spares_wanted or self.count, self.count)

    def fileno(self) -> int:
        """Readable when `collect()` has something to do; -1: there is no opener now."""
        return self.opener.fileno() if self.opener else -1

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
            assert self.opener
            if not _readable(self.opener, BEGIN_S):
                raise TimeoutError(errno.ETIMEDOUT, f"the opener of {self.interface} does not answer")
            answer = receive_answer(self.opener)
            if answer.error not in (0, errno.EBUSY):
                raise OSError(answer.error, answer.text)
            self._take_in(answer)

    def take(self, uid: int, pod: str = "", *, relay: bool = False, small_chunks: bool = True) -> Slot | None:
        """A READY queue, now USED and charged to a user, and a pod; None when there is none. Where frames need rules
        for the others, queue 0 is a relay's if it can be: it goes on when the rules are lost. `small_chunks`: it may
        have such; if not, one without is on its way when there is none."""
        ready = [slot for slot in self._carrying() if slot.state is State.READY]
        ready.sort(key=lambda slot: (self.steered and not relay and slot.queue_id == 0, slot.large))
        if len(ready) <= self.reserved or self._late or self.problem:
            return None
        found = ready if small_chunks else [slot for slot in ready if not slot.has_small_chunks]
        if not found:
            self._open_larger(ready[0])
            return None
        slot = found[0]
        slot.state = State.USED
        slot.uid, slot.pod = uid, pod
        self.refill()
        return slot

    def _open_larger(self, slot: Slot) -> None:
        """Opens a READY queue again, with chunks that each library knows, unless one is on its way."""
        if any(other.large and other.state in (State.OPENING, State.CLOSED) and not other.kept for other in self.slots):
            return
        self._drop_descriptors(slot)
        slot.state, slot.large, slot.retry_at = State.CLOSED, True, 0.0
        self.refill()

    def left(self, epoch: int, queue_id: int) -> Slot | None:
        """The queue that a relay of an earlier agent has; None: it is none of this pool."""
        slot = next((one for one in self.slots if one.before_us and one.before_us.epoch == epoch), None)
        return slot if slot and slot.queue_id == queue_id else None

    def keep(self, slot: Slot, uid: int) -> None:
        """A queue that was given away by an earlier agent is USED again: whoever has it is known."""
        slot.state, slot.uid, slot.pod, slot.before_us = State.USED, uid, "", None

    def put_back(self, slot: Slot) -> None:
        """Makes a USED queue that was not given to a process after all READY again."""
        slot.state = State.READY
        slot.uid, slot.pod = None, ""

    def admit(self, slot: Slot, owner: Owner, secret: int = 0) -> tuple[int, ...]:
        """Admits frames of a USED queue, with this secret if it is not 0; the caller owns its descriptors from now on.
        OSError: it failed. NotReady: the
                opener has ended or is late, or the interface has gone, and the queue has to be opened again."""
        try:
            self._ask(Request(Ask.ADMIT, slot.queue_id, owner, secret=secret))
        except TimeoutError:
            log.warning("the opener of %s is late", self.interface)
            self._drop_descriptors(slot)
            self.release(slot)
            raise NotReady from None
        except ConnectionError:
            self._lost()
            self._drop_descriptors(slot)
            slot.state, slot.uid, slot.pod = State.CLOSED, None, ""
            raise NotReady from None
        except OSError as error:
            if error.errno not in _GONE:
                raise
            self._drop_descriptors(slot)
            slot.state, slot.uid, slot.pod = State.CLOSED, None, ""
            raise NotReady from None
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
        return sum(slot.uid is not None for slot in self.slots) / max(self.usable, 1)

    def exhausted(self) -> bool:
        """Are all queues held by processes, or useless, so that waiting for one is pointless?"""
        return bool(self.problem) or sum(not slot.is_held() for slot in self._carrying()) <= self.reserved

    def gone_unsaid(self) -> bool:
        """Is the interface gone, and the opener has yet to say so? That takes a moment; what lasts longer is a name."""
        try:
            socket.if_nametoindex(self.interface)
        except OSError:
            self._gone_at = self._gone_at or time.monotonic()
            return not self.problem and time.monotonic() < self._gone_at + GONE_S
        self._gone_at = 0.0
        return False

    def release(self, slot: Slot) -> None:
        """Stops admitting frames on a USED queue that was given to a process, and sends the proxy GOODBYE for it."""
        slot.state, slot.released, slot.large = State.RETURNED, True, False
        self._send(Request(Ask.RELEASE, slot.queue_id))
        if slot.queue_id >= self.usable:
            self._forget(slot)

    def say_over(self, slot: Slot, epoch: int, keys: list[int]) -> None:
        """Has the opener say OVER on a queue, when that is open."""
        if self._begun and slot.queue_id < self.usable:
            self._send(Request(Ask.OVER, slot.queue_id, Owner(epoch, 0, 0), keys=tuple(keys)))

    def refill(self) -> None:
        """Tries RETURNED queues, and opens CLOSED ones until there are enough spares."""
        now = time.monotonic()
        for slot in self._waiting() if self._begun and not self.state.problem else ():
            if slot.retry_at > now or (slot.is_spare and self._ahead() >= self.spares):
                continue
            if self._send(Request(Ask.OPEN_LARGE if slot.large else Ask.OPEN, slot.queue_id)):
                slot.state = State.OPENING

    def look(self) -> InterfaceReport:
        """How the interface is now, as the opener says when it is asked; not more often than once in LOOK_EVERY_S.
        What follows from it collect() does."""
        now = time.monotonic()
        if now >= self._looked_at + LOOK_EVERY_S and self.opener and self._begun and not self._late:
            self._looked_at = now
            with contextlib.suppress(OSError):
                self._ask(Request(Ask.LOOK))
        reports = [answer.state for answer in self._arrived if answer.state]
        return reports[-1] if reports else self.state

    def look_again(self) -> None:
        """Tries the kept queues that is_held() does not know about. collect() tells what comes of it."""
        for slot in self.slots:
            if slot.kept and not slot.is_held():
                slot.retry_at = 0.0
        self.refill()

    def collect(self) -> bool:
        """Handles answers of the opener. True: a request that had to wait may be answered now. OSError: a new opener
        serves other queues than the one before."""
        changed = False
        try:
            while self.opener and (self._begun or self._begin()):
                answer = self._arrived.popleft() if self._arrived else receive_answer(self.opener, socket.MSG_DONTWAIT)
                changed |= self._take_in(answer)
        except BlockingIOError:
            pass
        except ConnectionError:
            self._lost()
        self.refill()
        return changed

    # --- another opener --------------------------------------------------------------------------------

    def renew(self, opener: socket.socket) -> None:
        """Another opener was started, at this connection."""
        self._lost()
        self.opener, self._begun = opener, False
        self.changed(self)

    def _lost(self) -> None:
        """The opener has ended, and with it everything that it had open."""
        if not self.opener:
            return
        while self._arrived:
            self._close_descriptors(self._arrived.popleft().descriptors)
        opener, self.opener = self.opener, None
        self.changed(self)
        opener.close()
        self._begun = True
        self._late.clear()
        for slot in self.slots:
            if slot.state in (State.READY, State.OPENING):
                self._drop_descriptors(slot)
                slot.state = State.CLOSED if slot.uid is None else State.RETURNED

    def _begin(self) -> bool:
        """Takes up what a new opener has found. False: it could not begin; there will be another."""
        assert self.opener
        try:
            owners = receive_ready(self.opener, socket.MSG_DONTWAIT)
        except (BlockingIOError, ConnectionError):
            raise
        except OSError as error:
            if (problem := error.strerror or str(error)) != self._begin_problem:
                log.error("no queue of %s can be opened: %s; trying again", self.interface, problem)
            self._begin_problem = problem
            self._lost()
            return False
        if len(owners) != len(self.slots):
            log.warning("%s has %d queues now, and had %d", self.interface, len(owners), len(self.slots))
        self.usable = min(len(owners), len(self.slots))
        log.warning("another opener serves the queues of %s", self.interface)
        self._begun, self._begin_problem = True, ""
        self.state = replace(self.state, generation=1)
        for slot, owner in zip_longest(self.slots, owners[: len(self.slots)]):
            if slot.state is State.RETURNED and slot.released:
                self._send(Request(Ask.RELEASE, slot.queue_id))
            if slot.state is State.USED and owner is None:
                self.taken(slot)
        return True

    # --- the interface ---------------------------------------------------------------------------------

    def _take_state(self, state: InterfaceReport) -> None:
        """The interface, or its program, is another one, or there is a problem with it."""
        before, self.state = self.state, state
        self.usable = min(state.queues, len(self.slots))
        again = state.generation != before.generation
        # What is used has no secret then, and others could write to it. What an earlier agent has given has one:
        # nothing is known of the interface before the first report.
        headless = state.headed and not before.headed and before.queues > 0
        for slot in self.slots if not (again or state.problem) else ():
            if slot.state is State.USED and (headless or slot.queue_id in state.lacking - before.lacking):
                self.taken(slot)
        for slot in self.slots if again or state.problem else ():
            if slot.state is State.USED:
                self.taken(slot)
            elif slot.state is State.READY and again:
                self._drop_descriptors(slot)
                slot.state, slot.large = State.CLOSED, False
            slot.retry_at = 0.0
        for slot in self.slots[self.usable :]:  # the interface has fewer queues now, and the opener has closed these
            if slot.state is State.RETURNED:
                self._forget(slot)

    def _forget(self, slot: Slot) -> None:
        """The interface has this queue no more."""
        slot.state, slot.uid, slot.pod, slot.before_us = State.CLOSED, None, "", None
        slot.kept = slot.warned = slot.released = slot.large = False

    def timeout_s(self) -> float | None:
        """When collect() is to be called again, in seconds; None: not before something happens."""
        if self._arrived:
            return 0.0
        if not self.opener or not self._begun or self.state.problem:
            return None
        waiting = [slot.retry_at for slot in self._waiting()]
        return max(0.0, min(waiting) - time.monotonic()) if waiting else None

    def close(self, *, served: bool = False) -> None:
        """Ends the opener, and waits for it. Queues in use stay with their processes, and the program, too, if this
        pool has `served`. Harmless when repeated."""
        for slot in self.slots:
            self._drop_descriptors(slot)
        self._send(Request(Ask.LEAVE if served else Ask.FINISH))
        until = time.monotonic() + FINISH_S
        with contextlib.suppress(OSError):
            while self.opener and _readable(self.opener, until - time.monotonic()):
                self._close_descriptors(receive_answer(self.opener).descriptors)
        if self.opener:
            self.opener.close()
            self.opener = None

    def _send(self, request: Request) -> bool:
        """False: the opener has ended."""
        self._asked = (self._asked + 1) % (1 << 32)
        try:
            if self.opener:
                self.opener.send(replace(request, number=self._asked).pack(), socket.MSG_NOSIGNAL)
        except ConnectionError:
            self._lost()
        return self.opener is not None

    def _ask(self, request: Request) -> None:
        """Sends a request that is carried out at once. OSError: the opener's error. TimeoutError: its answer is late,
        and collect() will take it in. ConnectionError: it has ended."""
        if not self._send(request):
            raise ConnectionResetError("the opener has ended")
        until = time.monotonic() + ANSWER_S
        while self.opener and _readable(self.opener, until - time.monotonic()):
            answer = receive_answer(self.opener)
            if (answer.say, answer.number) != (Say.DONE, self._asked):
                self._arrived.append(answer)
            elif answer.error:
                raise OSError(answer.error, answer.text)
            else:
                return
        self._late.add(self._asked)
        raise TimeoutError(errno.ETIMEDOUT, f"the opener of {self.interface} is late")

    def _waiting(self) -> list[Slot]:
        """The queues that refill() still has to try."""
        found = [slot for slot in self.slots[: self.usable] if slot.state in (State.RETURNED, State.CLOSED)]
        enough = self._ahead() >= self.spares
        return sorted((slot for slot in found if not (slot.is_spare and enough)), key=lambda slot: not slot.large)

    def _take_in(self, answer: Answer) -> bool:
        """Handles an answer. True: it has changed what is known about a queue."""
        if answer.state:
            self._take_state(answer.state)
            return True
        slot = self.slots[answer.queue_id]
        if answer.say is Say.DONE:
            if answer.error:
                log.warning("queue %d of %s: %s", slot.queue_id, self.interface, answer.text)
            return self._is_punctual_again(answer.number)
        if answer.error:
            return self._failed(slot, answer)
        if answer.generation != self.state.generation:  # its interface has gone meanwhile
            self._close_descriptors(answer.descriptors)
            slot.state = State.CLOSED if slot.uid is None else State.RETURNED
            return False
        if slot.before_us:
            log.info("queue %d: pid %d, of an agent before us, has gone", slot.queue_id, slot.before_us.pid)
        elif slot.kept:
            log.warning("queue %d of %s is free again", slot.queue_id, self.interface)
        slot.state = State.READY
        slot.geometry, slot.descriptors = answer.geometry, answer.descriptors
        slot.uid = slot.busy_since = slot.before_us = None
        slot.pod = ""
        slot.kept = slot.warned = slot.released = False
        return True

    def _is_punctual_again(self, number: int) -> bool:
        """An answer without descriptors has come. True: it was late, and no other one is."""
        if number not in self._late:
            return False
        self._late.remove(number)
        return not self._late

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
        if answer.error in _GONE:  # the opener says more, when it has looked
            return False
        slot.kept = slot.uid is not None or answer.error == errno.EBUSY
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


def _readable(connection: socket.socket, seconds: float) -> bool:
    """Waits for something to receive, for at most so long."""
    events = select.poll()
    events.register(connection, select.POLLIN)
    return bool(events.poll(max(0.0, seconds) * 1000))


def pod_of(pid: int) -> str:
    """The identifier of the pod of a process that was attached by an earlier agent; "": it is in none, or unknown."""
    with contextlib.suppress(OSError, ValueError):
        return pod_of_process(pid) or ""
    return ""
