"""The privileged part of the agent. It only opens and closes AF_XDP sockets, and admits them to the XDP program.

Theory of operation. This process keeps CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF. The agent's first one, which talks with
all processes of the host, keeps no capability and sends requests to this one (opener_protocol.py). A request names a
queue and at most the process it is for; sockets, frames and addresses are made here. So an attacker in the first
process can only give queues away, and have connections ended of which it knows keys and epoch (OVER): it can send no
other frames, and gets no descriptor of the program's map.

This process also looks after the interface (xts_bpf.kept_interface): when the kernel reports a change, it attaches the
program again if that was taken off, and tells the agent which queues are lost, and why none carries anything.

Closing and opening wait for the kernel, so a thread does it; everything else is done at once. When the other process
ends, this one ends, too, and leaves the program attached: processes that hold queues go on, and the next agent finds in
the program's map which process has which queue. When that agent can open such a queue, the process has
ended, and it sends the proxy GOODBYE. It is the same when this process ends, and is started again (starter.py): the
next one has no descriptor of the queues that are in use.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import queue
import select
import socket
import struct
import threading
import time
from collections import deque
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from xts_bpf.device import raise_receive_queues, receive_queues
from xts_bpf.interface_state import any_unbound
from xts_bpf.kept_interface import KeptInterface
from xts_bpf.napi_deferral import Deferral
from xts_bpf.program import QUEUES_MAX, Owner, SteerProgram, interface_index
from xts_bpf.steering import Steering
from xts_bpf.zero_copy import Answers, QueueBinder
from xts_messages.machine.netlink_changes import LINKS, Changes
from xts_messages.native import ffi, lib
from xts_messages.queues import busy_poll
from xts_messages.queues.afxdp import CHUNK, NO_DROPS, Drops, LastWord, XskSocket, drops_of, has_small_chunks, is_busy
from xts_messages.services import privilege
from xts_messages.services.served_sockets import server_of

from xts_agent.config import AgentConfig
from xts_agent.opener_protocol import REQUEST_BYTES_MAX, Answer, Ask, InterfaceReport, Request, Say, send_ready
from xts_agent.starter import Role
from xts_agent.steered_queues import SteeredQueues

log = logging.getLogger("xts-agent")

#: How long a queue that was found free may still answer EBUSY. The socket that was opened to find that out was bound to
#: the queue, and the kernel takes some 17 ms, or more when it is busy, to release a queue after its socket was closed.
PROBED_S = 1.0
STEP_S = 0.005
#: How often we look at the interface at most, however much the kernel reports.
LOOK_EVERY_S = 0.1
#: Where a switch may lose frames, GOODBYE is sent this often.
GOODBYES = 3
#: Messages OVER that wait until a queue is open.
WORDS_MAX = 256
#: The last word on a queue was not sent: its interface has gone, or did not take it.
UNSAID = (errno.ENXIO, errno.ENODEV, errno.ENETDOWN, errno.EBUSY)

KEPT = (privilege.NET_ADMIN, privilege.NET_RAW, privilege.BPF, privilege.PERFMON, privilege.IPC_LOCK)
#: Finding the programs that are attached needs CAP_SYS_ADMIN; those of a dispatcher are pinned in files of root.
IF_SHARED = (privilege.SYS_ADMIN, privilege.DAC_OVERRIDE)
BEGINS_WITH = (*KEPT, *IF_SHARED)


def goodbye_frame(
    local_mac: bytes, peer_mac: bytes, ethertype: int, epoch: int, *, secret: int = 0, queue_id: int = 0
) -> bytes:
    """The GOODBYE that ends an epoch on behalf of its process: without an error, as when the kernel closes the sockets
    of a process that ends. With a secret it has a head."""
    frame = ffi.new("uint8_t[]", int(lib.XTS_ETH_MIN_BYTES))
    lib.xts_head_encode(frame, lib.XTS_LINK_GOODBYE, 0, 0, 0)
    lib.xts_goodbye_encode(frame, ffi.new("struct xts_goodbye *", {"epoch": epoch}))
    return _addressed(bytes(ffi.buffer(frame)), (local_mac, peer_mac), ethertype, secret, queue_id)


def over_frame(
    addresses: tuple[bytes, bytes], ethertype: int, epoch: int, keys: tuple[int, ...], *, secret: int, queue_id: int
) -> bytes:
    """OVER: no process has the connections of these keys. Addresses: ours, and the proxy's."""
    head_bytes, payload = int(lib.XTS_OVER_BYTES), struct.pack(f">{len(keys)}Q", *keys)
    frame = ffi.new("uint8_t[]", max(head_bytes + len(payload), int(lib.XTS_ETH_MIN_BYTES)))
    lib.xts_head_encode(frame, lib.XTS_LINK_OVER, 0, 0, 0)
    lib.xts_over_encode(frame, ffi.new("struct xts_over *", {"epoch": epoch, "length": len(payload)}))
    ffi.memmove(frame + head_bytes, payload, len(payload))
    return _addressed(bytes(ffi.buffer(frame)), addresses, ethertype, secret, queue_id)


def _addressed(frame: bytes, addresses: tuple[bytes, bytes], ethertype: int, secret: int, queue_id: int) -> bytes:
    """The frame with its Ethernet header, and with a head if there is a secret."""
    local_mac, peer_mac = addresses
    ethernet = peer_mac + local_mac + ethertype.to_bytes(2, "big")
    inner = frame[len(ethernet) :]
    if not secret:
        return ethernet + inner
    head = ffi.new("uint8_t[]", int(lib.XTS_HEADED_BYTES))
    lib.xts_head_encode(head, lib.XTS_LINK_HEADED, 0, 0, queue_id)
    lib.xts_headed_encode(head, ffi.new("struct xts_headed *", {"secret": secret, "parts": lib.XTS_HEAD_SECRET}))
    return ethernet + bytes(ffi.buffer(head))[len(ethernet) :] + inner


@dataclass(slots=True, eq=False)
class _Queue:
    """`xsk` and `last_word` are set while it is open. While `opening`, only the thread uses it."""

    number: int
    xsk: XskSocket | None = None
    last_word: LastWord | None = None
    admitted: Owner | None = None
    before: Owner | None = None  # got the queue from an earlier opener; its socket is not ours
    goodbye_epoch: int = 0  # the last epoch for which the proxy was sent GOODBYE
    goodbye: bytes = b""  # that one, if frames are steered: said once more before the next process says HELLO
    opening: bool = False
    large: bool = False  # is opened with chunks that each library knows
    words: deque[tuple[int, tuple[int, ...]]] = field(default_factory=partial(deque, maxlen=WORDS_MAX))  # OVER to say
    asked: int = 0  # the number of the request to open it
    released: bool = False  # since it was opened
    dropped: Drops = NO_DROPS  # at its sockets that are closed
    busy: bool = False  # the result of the last attempt to open it

    def drops(self) -> Drops:
        """At its sockets until now."""
        xsk = self.xsk
        return self.dropped + drops_of(xsk.xsk_fd) if xsk and not self.opening else self.dropped

    def close(self) -> None:
        """Closes the queue. Blocks for some milliseconds."""
        if self.xsk:
            self.dropped += drops_of(self.xsk.xsk_fd)
        if self.last_word:
            self.last_word.close()
        if self.xsk:
            self.xsk.close()
        self.last_word = self.xsk = None


class Opener:
    """Serves one connection."""

    def __init__(self, config: AgentConfig, endpoint_stays: bool, connection: socket.socket) -> None:
        """Attaches the program. OSError: it cannot serve this interface, and why."""
        self.config = config
        self._endpoint_stays = endpoint_stays
        self._connection = connection
        self._work: queue.SimpleQueue[_Queue | None] = queue.SimpleQueue()
        self._saying = threading.Lock()  # the thread, too, when it has opened a queue
        self._changes = Changes(LINKS)
        self._changed, self._looked_at = False, 0.0  # by time.monotonic()
        self._copies_told = (0, 0, "")
        self._deferral = Deferral(config.napi_defer_us)
        self._steering = Steering(config.steering).on(config.name)
        self._program = SteerProgram(
            config.name,
            config.peer_mac_bytes,
            ethertype=config.ethertype,
            exclusive=config.exclusive,
            peer_mask=self._steering.peer_mask,
        )
        try:
            self._kept = KeptInterface(config.name, self._program, self._program.attached_id, log)
            self._local_mac = self._kept.state.mac
            self._queues = [_Queue(n, before=self._program.owner(n)) for n in range(self._count())]
            self._available = len(self._queues)  # of these, how many the interface has now
            self._steered = SteeredQueues(config, self._program, log) if self._steering is Steering.ADDRESS else None
            self._binder = QueueBinder(config.zero_copy, config.flow_rules, log, waits=True)
            self._binder.begin(self._kept.name)
            if self._steered:
                self._steered.begin(self._kept.name, self._local_mac, self._available)
            self._deferral.begin(interface_index(self._kept.name))
        except OSError:
            in_use = any(self._program.owner(number) for number in range(QUEUES_MAX))
            (self._program.leave if in_use else self._program.close)()
            raise

    @property
    def shared(self) -> bool:
        """The interface has other XDP programs next to ours."""
        return self._program.is_shared

    def _count(self) -> int:
        """How many queues to serve. OSError EINVAL: the interface has fewer than asked for."""
        config = self.config
        available = receive_queues(config.name)
        if config.raise_queues and available < (config.queues or QUEUES_MAX):
            available = self._raise(available)
        count = config.queues or min(available, QUEUES_MAX)
        if count > available:
            raise OSError(errno.EINVAL, f"{config.name} has {available} queues, not {count}: ask for fewer")
        return count

    def _raise(self, available: int) -> int:
        """Raises the number of queues; returns how many the interface has now. Does nothing while a process of an
        earlier agent uses one: a driver may stop all queues, and lose frames, while it changes their number."""
        name = self._kept.name
        if any(self._program.owner(n) and is_busy(name, n) for n in range(min(available, QUEUES_MAX))):
            log.warning("%s keeps its %d queues: some are in use", name, available)
            return available
        try:
            return raise_receive_queues(name, self.config.queues or QUEUES_MAX)
        except OSError as error:
            log.warning("%s keeps its %d queues: %s", name, available, error.strerror)
            return available

    def run(self) -> None:
        """Serves until the other process ends, or has said FINISH or LEAVE. ValueError: it broke the protocol."""
        thread = threading.Thread(target=self._open_queues, name="open-queues", daemon=True)
        send_ready(self._connection, [q.before for q in self._queues])
        self._tell_state()
        thread.start()
        while data := self._next_request():
            request = Request.unpack(data, len(self._queues))
            if request.ask in (Ask.FINISH, Ask.LEAVE):
                self._work.put(None)
                thread.join()
                self._finish(leave=request.ask is Ask.LEAVE)
                return
            if request.ask is Ask.LOOK:
                self._tell_state()
                Answer(Say.DONE, request.queue_id, request.number).send(self._connection)
                continue
            if request.ask is Ask.OVER and request.owner:
                q = self._queues[request.queue_id]
                q.words.append((request.owner.epoch, request.keys))
                self._say_over(q)
                Answer(Say.DONE, request.queue_id, request.number).send(self._connection)
                continue
            self._execute(request, self._queues[request.queue_id])

    # --- the interface ---------------------------------------------------------------------------------

    def _next_request(self) -> bytes:
        """Waits for it, and looks after the interface meanwhile. b"": the other process has ended."""
        events = select.poll()
        for source in (self._connection, self._changes):
            events.register(source, select.POLLIN)
        while True:
            waits = [self._kept.wait_s(), self._steered.wait_s() if self._steered else None]
            wait_ms = min((wait_s * 1000 for wait_s in waits if wait_s is not None), default=None)
            if self._changed:
                wait_ms = max(0.0, self._looked_at + LOOK_EVERY_S - time.monotonic()) * 1000
            ready = {fd for fd, _ in events.poll(wait_ms)}
            if self._changes.fileno() in ready:
                self._changes.take()
                self._changed = True
            due = self._changed and time.monotonic() >= self._looked_at + LOOK_EVERY_S
            if due or self._kept.wait_s() == 0.0:
                self._look()
            if self._steered and self._steered.wait_s() == 0.0:
                self._prove(self._steered)
            if self._connection.fileno() in ready:
                return self._connection.recv(REQUEST_BYTES_MAX + 1)

    def _prove(self, steered: SteeredQueues) -> None:
        answered = steered.proof.answered
        if not steered.prove():
            return
        if self._binder.postponed and steered.proof.answered and not answered:
            self._binder.postponed = False
            self._kept.renew("probes are answered now: zero copy is tried")
        self._tell_state()

    def _look(self, *, unbound: bool = False) -> None:
        """Looks what has become of the interface, mends what it can, and tells the agent what is new. `unbound`: a
        queue has lost it, we know that already."""
        self._changed, self._looked_at = False, time.monotonic()
        generation = self._kept.generation
        opened = [q.xsk.xsk_fd for q in self._queues if q.xsk and not q.opening]
        if not self._kept.look(unbound=any_unbound(opened) or unbound):
            return
        if not self._kept.problem:
            self._kept.served()
        try:
            if self._kept.generation != generation:
                self._available = self._queues_now()
                for q in self._queues[self._available :]:
                    if not q.opening:
                        q.close()
                self._binder.begin(self._kept.name)
                if self._steered:
                    self._steered.begin(self._kept.name, self._local_mac, self._available)
                self._deferral.begin(interface_index(self._kept.name))
        except OSError as error:  # it has gone again
            self._kept.postpone(error.strerror or str(error))
        self._tell_state()

    def _queues_now(self) -> int:
        """How many queues the interface has that has returned, of those that are served."""
        state, served = self._kept.state, len(self._queues)
        self._local_mac = state.mac
        available = receive_queues(state.name)
        if self.config.raise_queues and available < served:
            available = self._raise(available)
        if available < served:
            log.warning(
                "%s has %d queues now, and had %d: there are fewer for processes", state.name, available, served
            )
        return min(available, served)

    def _tell_state(self) -> None:
        kept = self._kept
        counts = kept.program_id, kept.reattached, kept.renewed
        told = InterfaceReport(kept.generation, self._available, *counts, kept.problem)
        if self._steered:
            proof = self._steered.proof
            told = replace(
                told, steered=True, headed=self._steered.headed, lacking=proof.lacking, lacking_reason=proof.reason
            )
        self._copies_told = zero_copy, fallbacks, copying = self._copies()
        told = replace(told, zero_copy=zero_copy, fallbacks=fallbacks, copying=copying, drops=self._drops())
        with contextlib.suppress(OSError):  # the other process has ended, and we will end, too
            told.send(self._connection)

    def _copies(self) -> tuple[int, int, str]:
        """How many queues are bound with zero copy, how often one was bound again, and why they are as they are."""
        opened = [q.xsk for q in self._queues if q.xsk and not q.opening]
        copied = [xsk for xsk in opened if not xsk.zero_copy]
        # A queue with large chunks may be for an older library: the others tell what is chosen.
        shown = sorted(copied or opened, key=lambda xsk: not has_small_chunks(xsk.geometry))[:1]
        parts = [part for xsk in shown for part in (xsk.copying, busy_poll.said(xsk.xsk_fd, self.config.queue_options))]
        said = "; ".join(filter(None, (*parts, self._deferral.said)))
        return len(opened) - len(copied), self._binder.fallbacks, said

    def _drops(self) -> Drops:
        """What the kernel has dropped at the sockets, of closed ones, too."""
        return sum((q.drops() for q in self._queues), NO_DROPS)

    # --- requests --------------------------------------------------------------------------------------

    def _execute(self, request: Request, q: _Queue) -> None:
        legal = {
            Ask.OPEN: q.admitted is None,
            Ask.OPEN_LARGE: q.admitted is None,
            Ask.ADMIT: q.admitted is None and q.xsk is not None,
            Ask.RELEASE: True,
        }[request.ask]
        if q.opening or not legal:
            raise ValueError(f"{request.ask.name} of queue {q.number} at a wrong time")
        if request.ask in (Ask.OPEN, Ask.OPEN_LARGE):
            q.opening, q.asked, q.large = True, request.number, request.ask is Ask.OPEN_LARGE
            self._work.put(q)
            return
        answer = Answer(Say.DONE, q.number, request.number)
        try:
            if request.ask is Ask.ADMIT and q.xsk:
                if any_unbound((q.xsk.xsk_fd,)):
                    self._look(unbound=True)
                    raise OSError(errno.ENETDOWN, f"{self.config.name} is not there any more")
                if q.goodbye and q.last_word:
                    q.last_word.send(q.goodbye)
                self._program.admit(q.number, q.xsk.xsk_fd, request.owner, request.secret)
                q.admitted = request.owner
            else:
                self._release(q)
        except OSError as error:
            answer = Answer(Say.DONE, q.number, request.number, error.errno or errno.EIO, error.strerror or str(error))
        answer.send(self._connection)

    def _release(self, q: _Queue) -> None:
        self._program.withdraw(q.number)
        owner, q.admitted = q.admitted, None
        if owner:
            try:
                self._say_goodbye(q, owner.epoch)
            except OSError as error:
                q.goodbye_epoch = 0  # it follows when the queue is open again (_settle())
                if error.errno not in UNSAID:
                    q.released = True
                    raise
        q.released = True  # without a socket of ours GOODBYE follows when the queue is free (_settle())

    def _say_goodbye(self, q: _Queue, epoch: int) -> None:
        """Sends the frames that are still in the process's ring, and then GOODBYE."""
        if q.last_word is None:
            raise OSError(errno.ENOTCONN, f"queue {q.number} is not open")
        q.goodbye_epoch = epoch
        q.last_word.flush()
        secret = self._program.secret(q.number)
        frame = goodbye_frame(*self._addresses(q), self.config.ethertype, epoch, secret=secret, queue_id=q.number)
        q.goodbye = frame if secret else b""
        for _ in range(GOODBYES if secret else 1):
            q.last_word.send(frame)

    def _say_over(self, q: _Queue) -> None:
        """Says what waits, if the queue is open; else it waits until then. What cannot be sent, as while the interface
        is down, is said before the next word, or when the queue is open again."""
        with self._saying:
            while q.words and q.last_word and not q.opening:
                epoch, keys = q.words[0]
                secret = self._program.secret(q.number)
                addresses = self._addresses(q)
                said = over_frame(addresses, self.config.ethertype, epoch, keys, secret=secret, queue_id=q.number)
                try:
                    for _ in range(GOODBYES if secret else 1):
                        q.last_word.send(said)
                except OSError:
                    return
                q.words.popleft()

    def _addresses(self, q: _Queue) -> tuple[bytes, bytes]:
        """The queue's own address, and that of the proxy's queue."""
        peer = self.config.peer_mac_bytes
        return self._steering.address(self._local_mac, q.number), self._steering.address(peer, q.number)

    # --- the thread ------------------------------------------------------------------------------------

    def _open_queues(self) -> None:
        while (q := self._work.get()) is not None:
            try:
                answer = self._open(q)
            except OSError as error:
                q.busy = error.errno == errno.EBUSY
                answer = Answer(Say.OPENED, q.number, q.asked, error.errno or errno.EIO, error.strerror or str(error))
            q.opening = False
            self._say_over(q)
            with contextlib.suppress(OSError):  # the other process has ended, and we will end, too
                answer.send(self._connection)
            if self._copies() != self._copies_told:
                self._tell_state()

    def _open(self, q: _Queue) -> Answer:
        config, generation = self.config, self._kept.generation
        q.close()
        xsk = self._open_socket(q)
        try:
            q.last_word = LastWord(xsk)
        except OSError:
            xsk.close()
            raise
        q.xsk, q.busy = xsk, False
        q.before, q.released = None, False
        self._settle(q)
        xsk.geometry.ethertype = config.ethertype
        xsk.geometry.queue_id = q.number
        xsk.geometry.reliable = config.reliable == "on"
        xsk.set_addresses(*self._addresses(q))
        geometry = bytes(ffi.buffer(xsk.geometry))
        descriptors = (xsk.xsk_fd, xsk.umem_fd)
        return Answer(Say.OPENED, q.number, q.asked, geometry=geometry, descriptors=descriptors, generation=generation)

    def _open_socket(self, q: _Queue) -> XskSocket:
        """OSError EBUSY: another socket has the queue."""
        name, options = self._kept.name, self.config.queue_options
        if q.large:
            options = replace(options, chunk_bytes=CHUNK)
        until = 0.0
        if q.busy:
            if is_busy(name, q.number):
                raise OSError(errno.EBUSY, f"queue {q.number} of {name} has a socket already")
            until = time.monotonic() + PROBED_S
        while True:
            try:
                return self._binder.open(name, q.number, options, answers=self._answers())
            except OSError as error:
                if error.errno != errno.EBUSY or time.monotonic() >= until:
                    raise
            time.sleep(STEP_S)

    def _answers(self) -> Answers | None:
        """Sends probes to a queue, where frames have an address for each."""
        if self._steered is None:
            return None
        return partial(self._steered.answers, self._kept.name, self._local_mac)

    def _settle(self, q: _Queue) -> None:
        """The process that had the queue has released it."""
        owner = self._program.owner(q.number)
        if owner is None:
            return
        if owner.epoch != q.goodbye_epoch:  # it got the queue from an earlier agent
            try:
                self._say_goodbye(q, owner.epoch)
            except OSError as failure:
                log.warning("queue %d: GOODBYE for pid %d: %s", q.number, owner.pid, failure.strerror)
        self._program.forget(q.number)

    # --- the end ---------------------------------------------------------------------------------------

    def _finish(self, *, leave: bool) -> None:
        """`leave`: what frames need to find their queues stays, also while nobody has one. Attaching a program may
        reset a card, so that an agent that is started again would disturb others."""
        leave = leave or any(self._in_use(q) for q in self._queues)
        if self._steered and not leave:
            self._steered.close()
        self._deferral.end()
        for q in self._queues:
            q.close()
        (self._program.leave if leave else self._program.close)()
        if self._endpoint_stays:  # checking whether it is served would start an agent
            return
        endpoint = Path(self.config.endpoint)
        if endpoint.is_socket() and not server_of(endpoint, socket.SOCK_SEQPACKET):
            endpoint.unlink()

    def _in_use(self, q: _Queue) -> bool:
        """Is the queue in use by a process that got it from an earlier agent?"""
        owner = self._program.owner(q.number)
        if owner is None or owner.epoch == q.goodbye_epoch or self._kept.problem:
            return False
        return is_busy(self._kept.name, q.number)


def role(config: AgentConfig, endpoint_stays: bool = False) -> Role:
    """The opener of an interface. Without endpoint_stays it removes the endpoint of an agent that was killed, whose
    file may belong to another user."""
    return Role("xts-opener", partial(_main, config, endpoint_stays), BEGINS_WITH)


def _main(config: AgentConfig, endpoint_stays: bool, connection: socket.socket) -> int:
    try:
        try:
            opener = Opener(config, endpoint_stays, connection)
            privilege.confine(*KEPT, *(IF_SHARED if opener.shared else ()))
        except OSError as error:
            Answer(Say.READY, error=error.errno or errno.EIO, text=error.strerror or str(error)).send(connection)
        else:
            opener.run()
            return 0
    except ValueError as error:
        log.error("the unprivileged process broke the protocol: %s", error)
    except OSError as error:
        log.error("the privileged process ends: %s", error.strerror or error)
    return 1
