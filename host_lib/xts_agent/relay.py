"""A relay, as the agent sees it: one queue of an interface that carries the frames of many processes.

Theory of operation. The queue is taken from the pool when the agent starts, and the relay's process is started on it
(relay_keeper.py, messages/native/relay/relay_loop.h). A relay that the operator has not asked for is started when the
first process needs it; the last queue is reserved for it, and is given to a process when the proxy serves no relay. A
process that finds no queue free gets shared memory whose other end is the relay. When the relay ends (the proxy is gone
or refuses it, or it was killed), its processes have lost the proxy, as if the proxy had ended: they are told, and
attach again. The agent opens the queue again and starts another relay on it, at once, or after RETRY_S if the last one
never worked. A relay goes on when the keeper has ended; the next one is started by another keeper.

Where the proxy was silent, or not there, it may be there by now: it is started again, or slow. So a process that asks
while there is no relay is refused only after a try that it has waited for, as one with a queue waits for an answer to
its HELLO. Such a relay keeps its queue. One that the proxy has refused does not, and nobody waits for it.

A relay with processes also goes on when the agent has ended, in order or not (messages/native/relay/relay_agents.c).
The next agent connects to it, hears whom it serves, and goes on with it as if it had started it. It sees nothing of
these processes themselves; the relay tells when one has ended.
"""

from __future__ import annotations

import errno
import logging
import os
import secrets
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from xts_bpf.program import Owner
from xts_messages.attaching.attach_token import cgroup_of
from xts_messages.attaching.attachments import Grant, NotReady, Peer
from xts_messages.native import ffi, lib
from xts_messages.queues.shm import ShmArea, create_shm
from xts_messages.wire.wire_table import RELAY_SELF, RELAYED_WINDOW

from xts_agent.attachment_secret import set_secret
from xts_agent.found_relay import FoundRelay
from xts_agent.queue_pool import Pool, Slot, pod_of
from xts_agent.relay_keeper import Start

log = logging.getLogger("xts-agent")

RETRY_S = 1.0
#: A try takes 2 s at most (relay_loop.c), and its start, or the end of the one before, some time.
TRY_S = 5.0
#: Nobody has answered, or, over RDMA, nobody takes connections there (yet).
_NOBODY_THERE = (errno.ETIMEDOUT, errno.ECONNREFUSED)
#: A process that asks has the next try begin so soon after the last one.
AGAIN_S = 0.1
#: The largest message of a process behind a relay; its memory is some 100 times that.
LARGEST_MESSAGE = 16384
SPIN_US = 20
#: The relay's own queue is charged to no user.
_NO_UID = -1
_REPORT_BYTES = int(ffi.sizeof("struct xts_relay_report"))
_TEXT_BYTES_MAX = 400

#: The function that makes a token for a queue. Arguments: geometry, whose (a number behind the relay, or RELAY_SELF),
#: pid and uid, cgroup, epoch.
TokenOf = Callable[[Any, int, tuple[int, int], str, int], bytes]


def _frame_bytes(geometry: Any) -> int:
    """The largest frame over a queue, whether its frames have heads or not."""
    room = int(geometry.largest_message) - int(lib.XTS_HEADED_BYTES) - int(lib.XTS_ARQ_BYTES)
    return int(lib.xts_parts_frame_bytes(room)) if lib.xts_parts_needed(geometry.largest_message) else room


@dataclass(slots=True, eq=False)
class Relayed:
    """A process behind the relay: the tag of its grant."""

    relay: Relay
    number: int
    uid: int
    control: socket.socket  # the socket of the relay's process that serves it
    pod: str  # the pod's identifier; "": none
    before_us: Owner | None = None  # it got its place from an earlier agent

    def say_over(self, epoch: int, keys: list[int]) -> bool:
        """As Slot.say_over()."""
        return self.control is not self.relay.control or self.relay.say_over(epoch, keys)


@dataclass(slots=True, eq=False)
class Relay:
    """The relay of a pool. Its process is started by `refill()`, which has to be called often."""

    pool: Pool
    keeper: socket.socket | None  # None: it has ended
    channels_max: int
    token_of: TokenOf
    ended: Callable[[Relayed], None]  # a process has lost the relay
    changed: Callable[[Relay], None]  # the socket to the relay's process has changed, or is gone
    unasked: bool = False  # started when it is needed
    listener: socket.socket | None = None  # where relays wait for the next agent; None: they end with this one
    retry_max_s: float = RETRY_S  # one that fails again and again is tried after RETRY_S, and twice as long each time
    slot: Slot | None = field(default=None, init=False)
    control: socket.socket | None = field(default=None, init=False)
    up: bool = field(default=False, init=False)
    problem: str = field(default="it has not started yet", init=False)
    served: dict[int, Relayed] = field(default_factory=dict, init=False)
    largest_message: int = field(default=LARGEST_MESSAGE, init=False)
    _geometry: Any = field(default=None, init=False)
    _next: int = field(default=1, init=False)
    _retry_at: float = field(default=0.0, init=False)
    _wait_s: float = field(default=RETRY_S, init=False)
    _wanted: bool = field(default=False, init=False)  # a process has needed it
    _failed: bool = field(default=False, init=False)  # the last relay never came up, so waiting may be pointless
    _silent: bool = field(default=False, init=False)  # for the proxy did not answer
    _reason: str = field(default="", init=False)  # why this relay ends, as it has said
    _told: str = field(default="", init=False)  # why the last one could not begin, as the log has it
    _tries: int = field(default=0, init=False)  # that have failed
    _waiting: dict[Peer, int] = field(default_factory=dict, init=False)  # how many had failed when they asked first

    def __post_init__(self) -> None:
        self.pool.reserved = 1
        self._wanted = not self.unasked

    @property
    def takes_queue(self) -> bool:
        """Does it use a queue, or is one reserved for it?"""
        return self.slot is not None or self.pool.reserved > 0

    def fileno(self) -> int:
        """The socket to the relay's process; readable when `collect()` has something to do. -1: there is none."""
        return self.control.fileno() if self.control else -1

    def timeout_s(self) -> float | None:
        """When `refill()` is to be called again, in seconds; None: not before something happens."""
        if self.control or not self.keeper or not self._wanted or self.pool.problem:
            return None
        return max(0.0, self._retry_at - time.monotonic())

    @property
    def said(self) -> str:
        """Whether it is up, for people, and why not."""
        return "the relay is up" if self.up else f"no relay: {self.problem or 'it is starting'}"

    def refill(self) -> None:
        """Starts the relay's process if there is none and a queue is available."""
        if self.control or not self.keeper or not self._wanted or time.monotonic() < self._retry_at:
            return
        if self.pool.problem:
            return
        self.pool.reserved = 0
        slot = self.pool.take(_NO_UID, relay=True)
        self.pool.reserved = int(slot is None)
        if slot is None:
            self.pool.refill()
            self._retry_at = time.monotonic() + 0.01
            return
        try:
            self._start(slot, self.keeper)
        except NotReady:  # the queue has to be opened again
            self.pool.reserved = self._reserves()
            self._retry_at = time.monotonic() + 0.01
        except OSError as error:
            self._fail(error.strerror or str(error))
            if self.slot is None:
                self.pool.put_back(slot)
                self.pool.reserved = self._reserves()
            else:
                self._leave_queue()

    def renew(self, keeper: socket.socket) -> None:
        """Another keeper was started, at this connection."""
        self.keeper = keeper

    def _start(self, slot: Slot, keeper: socket.socket) -> None:
        geometry = ffi.new("struct xts_attach_reply *")
        ffi.memmove(geometry, slot.geometry, len(slot.geometry))
        self.largest_message = min(LARGEST_MESSAGE, _frame_bytes(geometry) - int(lib.XTS_CARRIED_BYTES))
        if self.largest_message < lib.XTS_FRAME_BYTES_SINGLE:
            raise OSError(errno.EOPNOTSUPP, "a relay needs frames of several buffers (single_chunk, Linux before 6.6)")
        geometry.epoch = secrets.randbits(64) or 1
        secret = set_secret(geometry, slot.pool.headed)
        process = os.getpid(), os.geteuid()
        token = self.token_of(geometry, RELAY_SELF, process, cgroup_of(process[0]), int(geometry.epoch))
        geometry.token_bytes = len(token)
        ffi.memmove(geometry.token, token, len(token))
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        with theirs:
            descriptors = slot.pool.admit(slot, Owner(int(geometry.epoch), os.geteuid(), os.getpid()), secret)
            self.slot = slot
            try:
                start = Start(bytes(ffi.buffer(geometry)), self.channels_max, SPIN_US)
                listening = (self.listener.fileno(),) if self.listener else ()
                start.send(keeper, (*descriptors, theirs.fileno(), *listening))
            except OSError:
                ours.close()
                raise
            finally:
                for fd in descriptors:
                    os.close(fd)
        self.control, self._geometry, self._next = ours, geometry, 1
        self.changed(self)

    def _fail(self, problem: str) -> None:
        if problem != self._told:
            often = (
                f"every {self.retry_max_s:g} s"
                if self.retry_max_s == RETRY_S
                else f"at least every {self.retry_max_s:g} s"
            )
            again = "when it is needed" if self.unasked else often
            log.warning("no relay on %s: %s; trying again %s", self.pool.interface, problem, again)
        self.problem, self._told, self._failed = problem, problem, True
        self._tries += 1
        self._waiting = {peer: since for peer, since in self._waiting.items() if since >= self._tries - 1}
        self._retry_at = time.monotonic() + self._wait_s
        self._wait_s = min(2 * self._wait_s, self.retry_max_s)
        self._wanted = not self.unasked

    def _reserves(self) -> int:
        """How many queues wait for a relay: none for one that was not asked for, and that has failed."""
        return int(self._wanted or not self._failed or self._silent)

    def _leave_queue(self) -> None:
        slot, self.slot = self.slot, None
        if slot is None:
            return
        self.pool.reserved = self._reserves()
        self.pool.release(slot)

    # --- a relay of the agent before -------------------------------------------------------------------

    def take_up(self, found: FoundRelay) -> bool:
        """Goes on with a relay that an earlier agent has started. To be called before anything is taken from the pool.
        False: it is not one of this pool."""
        slot = self.pool.left(int(found.geometry.epoch), int(found.geometry.queue_id))
        if slot is None:
            return False
        self.pool.keep(slot, _NO_UID)
        self.pool.reserved = 0
        self.slot, self.control, self._geometry, self._next = slot, found.control, found.geometry, found.next
        self.listener, self.up, self.problem, self._wanted = found.listener, True, "", True
        for number, owner in found.members.items():
            self.served[number] = Relayed(self, number, owner.uid, found.control, pod_of(owner.pid), owner)
        self.changed(self)
        where = self.pool.interface, slot.queue_id
        log.info("%s: queue %d: the relay goes on, with %d processes", *where, len(self.served))
        return True

    # --- processes -------------------------------------------------------------------------------------

    def grant(self, peer: Peer, epoch: int, cgroup: str, pod: str) -> Grant:
        """Serves one more process, in a pod (its identifier) or not (""). NotReady: there may be a place in a moment.
        OSError: it is not possible, and why."""
        if self.pool.problem:
            raise OSError(errno.ENETDOWN, self.pool.problem)
        self.collect()  # who has lost it asks again at once, maybe before we have looked
        if not self.up:
            if self._may_come_up(peer):
                raise NotReady(TRY_S)
            raise OSError(errno.EUSERS, f"there is no relay ({self.problem})")
        if len(self.served) >= self.channels_max or self._next >= RELAY_SELF:
            raise OSError(
                errno.EUSERS, f"the relay serves {len(self.served)} processes, the most allowed (--relayed-max)"
            )
        window = min(RELAYED_WINDOW, peer.frame_window_max or RELAYED_WINDOW)
        area = create_shm(max(window, int(lib.XTS_FRAME_WINDOW_MIN)), self.largest_message)
        try:
            return self._grant(area, peer, epoch, cgroup, pod)
        except (OSError, NotReady):
            os.close(area.memfd)
            os.close(area.host_bell)
            raise
        finally:
            os.close(area.proxy_bell)

    def _may_come_up(self, peer: Peer) -> bool:
        """Is it worth waiting for? Asks for one that nobody has needed so far. One that has failed is tried again where
        a queue is free, which is given to processes meanwhile."""
        since = self._waiting.setdefault(peer, self._tries)
        if self._failed and self._silent:
            if self._tries > since:
                del self._waiting[peer]
                return False
            self._wanted = True
            self._retry_at = min(self._retry_at, time.monotonic() + AGAIN_S)
            return True
        if self.unasked and not self._wanted:
            past = time.monotonic() >= self._retry_at and not self.pool.exhausted()
            self._wanted = not self._failed or past
        return self._wanted if self.unasked else not self._failed

    def _grant(self, area: ShmArea, peer: Peer, epoch: int, cgroup: str, pod: str) -> Grant:
        reply, of_queue = area.geometry, self._geometry
        needed = int(2 * reply.shm_slots * reply.slot_bytes)
        if peer.umem_bytes_max and peer.umem_bytes_max < needed:
            raise OSError(
                errno.ENOMEM, f"a place at the relay takes {needed} bytes of memory, not {peer.umem_bytes_max}"
            )
        number, self._next = self._next, self._next + 1
        reply.epoch, reply.relayed = epoch, number
        for name in ("ethertype", "queue_id", "local_mac", "peer_mac", "interface"):
            setattr(reply, name, getattr(of_queue, name))
        token = self.token_of(of_queue, number, (peer.pid, peer.uid), cgroup, epoch)
        reply.token_bytes = len(token)
        ffi.memmove(reply.token, token, len(token))
        self._order(lib.XTS_RELAY_ADD, number, reply, (area.memfd, area.proxy_bell), peer)
        assert self.control is not None
        relayed = Relayed(self, number, peer.uid, self.control, pod)
        self.served[number] = relayed
        return Grant(reply, (area.memfd, area.host_bell), tag=relayed)

    def _order(
        self,
        what: int,
        number: int,
        geometry: Any = None,
        descriptors: tuple[int, ...] = (),
        peer: Peer | None = None,
        *,
        keeps_token: bool = False,
    ) -> None:
        owner = {"uid": peer.uid, "pid": peer.pid} if peer else {}
        order = ffi.new("struct xts_relay_order *", {"what": what, "number": number, **owner})
        if geometry is not None:
            order.geometry = geometry[0]
            if not keeps_token:  # the relay's own token is not for it
                ffi.memmove(order.geometry.token, bytes(len(geometry.token)), len(geometry.token))
                order.geometry.token_bytes = 0
        assert self.control is not None
        try:
            socket.send_fds(self.control, [bytes(ffi.buffer(order))], descriptors)
        except BlockingIOError:
            raise NotReady from None
        except ConnectionError:  # collect() will see that it has ended
            raise NotReady from None

    def remove(self, relayed: Relayed) -> None:
        """The process is gone: sends the proxy GOODBYE, behind what the process had sent."""
        if self.served.get(relayed.number) is not relayed:
            return
        del self.served[relayed.number]
        if self.control is relayed.control:
            try:
                self._order(lib.XTS_RELAY_REMOVE, relayed.number)
            except (OSError, NotReady):  # the relay sees that the process's eventfd is closed, or has ended itself
                return

    def say_over(self, epoch: int, keys: list[int]) -> bool:
        """Has the relay say OVER, in place of a process that it has served. False: it takes no orders now."""
        words = ffi.new("struct xts_attach_reply *", {"epoch": epoch, "token_bytes": 8 * len(keys)})
        ffi.memmove(words.token, struct.pack(f">{len(keys)}Q", *keys), 8 * len(keys))
        try:
            self._order(lib.XTS_RELAY_OVER, 0, words, keeps_token=True)
        except NotReady:
            return False
        except OSError:  # it has ended
            return True
        return True

    # --- what the relay's process says -----------------------------------------------------------------

    def collect(self) -> bool:
        """Handles reports of the relay. True: a request that had to wait may be answered now."""
        changed = False
        while self.control:
            try:
                data = self.control.recv(_REPORT_BYTES + _TEXT_BYTES_MAX)
            except BlockingIOError:
                break
            except ConnectionError:
                data = b""
            if len(data) < _REPORT_BYTES:
                self._lost()
                return True
            report = ffi.from_buffer("struct xts_relay_report *", data[:_REPORT_BYTES])
            changed |= self._take(report, data[_REPORT_BYTES:].decode(errors="replace"))
            if report.what == lib.XTS_RELAY_DOWN:  # its processes know already, and ask for another
                self._lost()
                return True
        return changed

    def _take(self, report: Any, text: str) -> bool:
        """`text`: why a relay could not begin, where its process says more than a number."""
        if report.what == lib.XTS_RELAY_UP:
            self.up, self.problem, self._told, self._failed, self._wait_s = True, "", "", False, RETRY_S
            self._waiting.clear()
            log.info("%s: queue %d: the relay is up", self.pool.interface, self.slot.queue_id if self.slot else -1)
            return True
        if report.what == lib.XTS_RELAY_DOWN:
            self.problem = self._reason = text or _meaning(int(report.error), self.up)
            self._silent = int(report.error) in _NOBODY_THERE
        if report.what == lib.XTS_RELAY_ENDED:
            relayed = self.served.get(int(report.number))
            if report.error or report.dropped:
                why = f"{os.strerror(report.error)}; " if report.error else ""
                log.warning("relayed process %d: %sdropped frames: %d", report.number, why, report.dropped)
            if relayed and relayed.before_us:
                del self.served[relayed.number]
                return True
            if relayed:
                self.ended(relayed)
        return False

    def _lost(self) -> None:
        """The relay's process has ended."""
        control, self.control = self.control, None
        self.changed(self)
        if control:
            control.close()
        was_up, self.up = self.up, False
        served, self.served = self.served, {}
        for relayed in served.values():
            if not relayed.before_us:
                self.ended(relayed)
        reason, self._reason = self._reason, ""
        if was_up:
            reason = reason or "it was killed"
            log.warning("the relay on %s has ended (%s): %d processes", self.pool.interface, reason, len(served))
            self._retry_at = 0.0
        else:
            self._fail(reason or "its process has ended")
        self._leave_queue()

    def end(self) -> None:
        """Ends the relay's process, whose queue receives nothing any more."""
        if self.control:
            self.control.shutdown(socket.SHUT_RDWR)

    def charged(self, uid: int) -> int:
        """How many processes of a user it serves."""
        return sum(relayed.uid == uid for relayed in self.served.values())

    def charged_to_pod(self, pod: str) -> int:
        """How many processes of a pod it serves."""
        return sum(relayed.pod == pod for relayed in self.served.values())

    def close(self) -> None:
        """Leaves the relay to the processes that it has. Harmless when repeated."""
        for ours in (self.control, self.listener):
            if ours:
                ours.close()
        self.control = self.listener = None


def _meaning(error: int, was_up: bool) -> str:
    """Why a relay has ended, for people."""
    if not was_up and error == errno.EOPNOTSUPP:
        return "the proxy does not serve relays: it is older, or has relayed_max = 0"
    if error == errno.ETIMEDOUT:
        return "the proxy does not answer any more" if was_up else "the proxy does not answer"
    return os.strerror(error) if error else "it was told to end"
