"""Channels over RDMA: a fixed set of queues, each for the relay of one agent at a time.

Two processes look after the connection of a queue: one has the queue pair and carries the frames (rdma_carrier.py), the
other one connects it (rdma_acceptor.py). This carries the words from one to the other, and gives a worker its end of
the queue, which is shared memory. A relay attaches by HELLO, with a token where there is a key, exactly as over an
interface with AF_XDP queues. Its end shows at once: its kernel ends the connection. That a relay was cut off, or its
machine, the device notices when it has something to send and gives up repeating. If it has nothing, the queue would be
taken for ever: so a connection over which nothing comes is ended after SILENT_S. A relay that lives pings twice a
second. Where the same host asks for another connection meanwhile, as it does after it was booted, or when its device
has given up, the old one is ended as soon as it was silent for LOOK_S.

Both processes go on when the workers have died, and when another proxy takes over: that one gets the sockets to them
(rdma_handed.py). They are the program of the proxy that has started them, so when their connection has ended, they end,
and the proxy starts its own. The same when one of them has ended, or their device was removed, which waits until nobody
has it open.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Callable
from typing import Any, NoReturn

from xts_messages.attaching import attach_token
from xts_messages.queues import rdma
from xts_messages.queues.queue_kinds import QueueEnd
from xts_messages.queues.rdma_cm import SILENT_S

from xts_proxy.config.config import Config
from xts_proxy.queues import rdma_handed
from xts_proxy.queues.rdma_acceptor import (
    Acceptor,
    Answer,
    Asks,
    Connected,
    Ended,
    Fails,
    Listens,
    Refused,
    Said,
    Steps,
)
from xts_proxy.queues.rdma_carrier import Carrier
from xts_proxy.queues.rdma_place import Place
from xts_proxy.supervisor.children import Child
from xts_proxy.supervisor.heartbeat import answers
from xts_proxy.supervisor.log import LOG
from xts_proxy.tenants.tenants import Account, Tenants
from xts_proxy.upgrade.handover import Channel, Sockets, channel_of, left_of
from xts_proxy.upgrade.taking import Parts
from xts_proxy.workers.given_queue import PLAIN, Frames
from xts_proxy.workers.remote_worker import RemoteWorker
from xts_proxy.workers.workers import Moved, Owner

#: After so long the processes of a queue are started again; each time that this fails twice as long.
_AGAIN_S, _AGAIN_MAX_S = 1.0, 8.0
LOOK_S = 5.0
#: How often the log has a line about somebody who was refused, for each queue.
_TOLD_EVERY_S = 10.0


class RdmaChannels:
    """The queues of a proxy with queue = "rdma"."""

    def __init__(self, config: Config, tenants: Tenants, taken: Parts | None = None) -> None:
        """Forks the processes, which wait for agents at once; the workers are set later. `taken`: those of the proxy
        before this one go on. OSError: what is missing."""
        rdma.check_installed()
        self.unmovable = ""
        self.config, self.tenants = config, tenants
        self._key = attach_token.load_key(config.proxy.token_key) if config.proxy.token_key else b""
        self._workers: list[RemoteWorker] = []
        self._timers: set[asyncio.TimerHandle] = set()
        self._state_fd = -1
        self._answering = self._closed = False
        self._taking = taken is not None
        self._places: list[Place] = []
        try:
            self._open(rdma_handed.take(taken.maps) if taken else [])
        except OSError:
            self.close()
            raise

    def _open(self, taken: list[Place]) -> None:
        """The processes of all queues."""
        came = {place.number: place for place in taken}
        for number in range(self.config.rdma.queues):
            if place := came.pop(number, None):
                self._places.append(place)
            else:
                acceptor = Acceptor.fork(self.config, number)
                self._places.append(Place(number, acceptor, Carrier.fork(self.config, number)))
        for place in came.values():  # there are fewer now
            place.leave()

    def give_to(self, workers: list[RemoteWorker]) -> None:
        """From now on agents get queues. OSError: there is no device."""
        self._workers = workers
        for place in self._places:
            if not place.inherited:
                place.device = place.carrier.device()
        self.reconfigure(workers)

    def reconfigure(self, workers: list[RemoteWorker]) -> None:
        """Gives the workers the table that maps the identities in tokens to tenants."""
        rules = self.tenants.identity_rules(self.config.proxy.interface) if self._key else []
        for worker in workers:
            worker.trust(self._key, rules)

    def start(self, end: Callable[[str], None]) -> None:
        """From now on, in the running loop, answers those who accept. `end`: nothing needs another start."""
        self._taking = False
        self.accept(True)
        for place in self._places:
            if place.inherited and not place.worker:
                self._renew(place, "it is starting", 0.0)
        self._later(LOOK_S, self._end_silent)

    def _later(self, delay_s: float, function: Callable[..., None], *arguments: Place) -> None:
        now = asyncio.get_running_loop()
        self._timers = {timer for timer in self._timers if timer.when() > now.time()}
        self._timers.add(now.call_later(delay_s, function, *arguments))

    def _end_silent(self) -> None:
        """Ends the connections of those who have gone without a word."""
        self._later(LOOK_S, self._end_silent)
        now = asyncio.get_running_loop().time()
        for place in self._places:
            if not place.peer or (heard := self._heard(place.number)) is None:
                continue
            if heard != place.heard:
                place.heard, place.heard_at, place.asks_again = heard, now, False
            elif (silent_s := now - place.heard_at) >= (LOOK_S if place.asks_again else SILENT_S):
                place.heard_at = now
                again = ", which asks for another connection" if place.asks_again else ""
                place.acceptor.end(f"nothing has come for {silent_s:.0f} s from {place.peer}{again}")

    def _heard(self, number: int) -> int | None:
        """How many frames have come over a queue; -1: there is no channel; None: its worker does not say."""
        worker = self._worker_of(number)
        if not answers(worker):
            return None
        rows = [row for row in worker.channels() if row["queue_id"] == number and not row["relayed"]]
        return int(rows[0]["queue"]["rx_frames"]) if rows else -1

    # --- the processes of a queue ----------------------------------------------------------------------

    def _listen_to(self, place: Place, *, listens: bool) -> None:
        loop = asyncio.get_running_loop()
        if listens:
            loop.add_reader(place.acceptor.fileno(), self._on_acceptor, place)
            loop.add_reader(place.carrier.child.fileno(), self._lost, place, place.carrier.child)
        else:
            loop.remove_reader(place.acceptor.fileno())
            loop.remove_reader(place.carrier.child.fileno())

    def _on_acceptor(self, place: Place) -> None:
        acceptor = place.acceptor
        try:
            while acceptor.fileno() >= 0 and (found := acceptor.said()) is not None:
                said, fd = found
                try:
                    self._take(place, said, fd)
                finally:
                    if fd >= 0:
                        os.close(fd)
        except ConnectionError:
            acceptor.child.kill()
            self._lost(place, acceptor.child)

    def _lost(self, place: Place, child: Child) -> None:
        """A process of it has ended, and its connection with it. Others are started."""
        child.ends_within(_AGAIN_S)
        LOG.error("%s: %s; it is started again", child.name, child.ended())
        self._renew(place, "the process that accepts has ended, or the one with the queue pair")

    def _renew(self, place: Place, why: str, after_s: float = _AGAIN_S) -> None:
        """Its processes end. Others are started."""
        self._listen_to(place, listens=False)
        place.close()
        place.problem, place.peer, place.inherited = why, "", False
        self._later(after_s, self._start_again, place)

    def _start_again(self, place: Place) -> None:
        if self._closed or not self._answering:
            return
        try:
            place.acceptor = Acceptor.fork(self.config, place.number)
            place.carrier = Carrier.fork(self.config, place.number)
            place.device = place.carrier.device()
        except OSError as error:
            why = error.strerror or str(error)
            if not place.tries:
                LOG.error("queue %d: no agent can connect: %s", place.number, why)
            place.tries += 1
            place.close()
            place.problem = why
            self._later(min(_AGAIN_S * 2**place.tries, _AGAIN_MAX_S), self._start_again, place)
            return
        place.tries = 0
        self._listen_to(place, listens=True)

    def _take(self, place: Place, said: Said, fd: int) -> None:
        if isinstance(said, Listens):
            place.problem = ""
            where = self.config.rdma.address, self.config.rdma.port + place.number
            LOG.info("queue %d: waits for an agent at %s, port %d (RDMA, %s)", place.number, *where, place.device)
        elif isinstance(said, Fails):
            place.problem = said.why
            LOG.error("queue %d: no agent can connect: %s", place.number, said.why)
            if said.gone:
                self._renew(place, said.why)
        elif isinstance(said, Asks):
            place.acceptor.answer(self._offer(place))
        elif isinstance(said, Steps):
            place.acceptor.answer(self._step(place, said.step))
        elif isinstance(said, Connected):
            self._connected(place, said.peer, fd)
        elif isinstance(said, Refused):
            self._refused(place, said)
        elif isinstance(said, Ended):
            LOG.info("queue %d: the agent at %s has gone: %s", place.number, place.peer, said.why)
            place.peer = ""
            if place.inherited:
                self._renew(place, "it is starting", 0.0)

    def _worker_of(self, number: int) -> RemoteWorker:
        return self._workers[number % len(self._workers)]

    def _offer(self, place: Place) -> Answer:
        try:
            if place.worker and place.number in place.worker.queue_ids():
                place.worker.remove_channel(place.number)
                place.drop()
                return Answer(errno.EBUSY, "the worker still carries out what the last one sent")
            return Answer(number=place.offer(self.config.proxy.queue_options))
        except OSError as error:
            LOG.error("queue %d: %s", place.number, error.strerror)
            return Answer(error.errno or errno.EIO, error.strerror or str(error))

    def _step(self, place: Place, step: bytes) -> Answer:
        try:
            place.carrier.step(step)
        except OSError as error:
            return Answer(error.errno or errno.EIO, error.strerror or str(error))
        return Answer()

    def _connected(self, place: Place, peer: str, life_fd: int) -> None:
        tenant = self.tenants.of_queue(self.config.proxy.interface, place.number)
        try:
            place.give_to(self._worker_of(place.number), tenant, life_fd)
        except OSError as error:
            LOG.error("queue %d: the agent at %s is sent away: %s", place.number, peer, error.strerror)
            place.acceptor.end(error.strerror or str(error))
            return
        place.peer, place.heard, place.heard_at = peer, 0, asyncio.get_running_loop().time()
        place.asks_again = False
        place.connections += 1
        LOG.info("queue %d: connected with the agent at %s", place.number, peer)

    def _refused(self, place: Place, said: Refused) -> None:
        place.refused += 1
        place.asks_again |= said.peer == place.peer
        now = asyncio.get_running_loop().time()
        if now >= place.told_at:
            place.told_at = now + _TOLD_EVERY_S
            who = said.peer or "somebody"
            LOG.warning("queue %d: %s was refused: %s (%d so far)", place.number, who, said.why, place.refused)

    # --- what is known of them -------------------------------------------------------------------------

    def rdma(self) -> list[dict[str, Any]]:
        """For status and metrics: a row for each queue."""
        config = self.config.rdma
        return [
            {
                "queue": place.number,
                "device": place.device,
                "address": config.address,
                "port": config.port + place.number,
                "peer": place.peer,
                "problem": place.problem,
                "connected": int(bool(place.peer)),
                "connections": place.connections,
                "refused": place.refused,
            }
            for place in self._places
        ]

    def interface(self) -> dict[str, Any]:
        """There is no interface with queues."""
        return {}

    def programs(self) -> dict[int, tuple[int, str]]:
        """The processes are on another machine: nothing is known here."""
        return {}

    def counters(self) -> dict[str, int]:
        """There is no XDP program."""
        return {}

    def children(self) -> list[Child]:
        """Those who accept, and those with the queue pairs."""
        found = [child for place in self._places for child in (place.acceptor.child, place.carrier.child)]
        return [child for child in found if child.fileno() >= 0]

    def look(self) -> None:
        """The connection manager looks after the device."""

    # --- after a crash (understudy.py) --------------------------------------------------------------------

    def survives(self) -> bool:
        """Can another process of the workers go on with these queues?"""
        return True

    def recover(self) -> int:
        """Another process of the workers is there. Returns how many sockets may go on."""
        sockets = 0
        for place in self._places:
            if not (place.worker and place.end and place.life):
                continue
            tenant = self.tenants.of_queue(self.config.proxy.interface, place.number)
            try:
                whose, life_fd = (tenant, None), place.life.fileno()
                sockets += place.worker.recover_channel(place.end, place.number, whose, life_fd, frames=PLAIN)
            except BrokenPipeError:
                raise  # the workers have died again: the next ones get all channels
            except OSError as error:
                LOG.error("queue %d: its agent connects again: %s", place.number, error.strerror)
                place.acceptor.end(error.strerror or str(error))
                place.drop()
        return sockets

    # --- handing over (handover.py) -----------------------------------------------------------------------

    @property
    def listeners(self) -> list[tuple[str, socket.socket]]:
        """None is a socket."""
        return []

    def parts(self) -> tuple[int, dict[str, int]]:
        """The processes. From now on they are not answered here, unless accept(True) says so."""
        self.accept(False)
        self._close_state()
        self._state_fd = rdma_handed.state_of(self._places)
        return 0, rdma_handed.descriptors_of(self._places, self._state_fd)

    def _close_state(self) -> None:
        if self._state_fd >= 0:
            os.close(self._state_fd)
            self._state_fd = -1

    def accept(self, accepts: bool) -> None:
        """Are those who accept answered here, or by another proxy? While this one takes over it is that one, for it may
        have to go on."""
        if accepts == self._answering or self._taking:
            return
        self._answering = accepts
        for place in self._places:
            if place.acceptor.fileno() >= 0:
                self._listen_to(place, listens=accepts)
            elif accepts:
                self._start_again(place)

    def leave(self) -> None:
        """Another proxy has the processes."""
        for place in self._places:
            place.leave()

    def served(self) -> dict[int, RemoteWorker]:
        """The queues that workers have."""
        return {place.number: place.worker for place in self._places if place.worker and place.peer}

    def has_ended(self, queue_id: int) -> bool:
        """The queue is there, whether a process has it or not."""
        return False

    def stays(self, queue_id: int) -> None:
        """Workers have it again."""

    def life_fd(self, queue_id: int) -> int:
        """What hangs up when nothing is carried any more."""
        life = self._places[queue_id].life
        return life.fileno() if life else -1

    def frames(self) -> Frames:
        """As they are: nothing is lost, and nobody else can send."""
        return PLAIN

    def describe(self, queue_id: int, piece: Moved) -> tuple[Channel, list[int]]:
        """What another proxy has to know of it, and a descriptor, which stays ours."""
        end = self._places[queue_id].end
        assert end
        return channel_of(queue_id, end.pack(), piece), [self.life_fd(queue_id)]

    def gone(self, queue_id: int) -> None:
        """Another proxy has it."""
        self._places[queue_id].drop()

    def ends(self) -> dict[int, QueueEnd]:
        """The agent of a queue connects to another proxy, if its workers have ended."""
        return {}

    def take_orphan(self, queue_id: int, end: QueueEnd) -> NoReturn:
        """As `ends()`."""
        raise OSError(errno.EOPNOTSUPP, "a queue of this kind ends with its process")

    def lost(self, queue_ids: list[int], why: str) -> None:
        """As `ends()`."""

    def reserve(self, queue_ids: tuple[int, ...]) -> None:
        """Numbers are the configuration's."""

    def _account(self, tenant: str, queue_id: int) -> Account:
        """What is taken over stays charged to its tenant, if there still is one of this name."""
        return self.tenants.accounts.get(tenant) or self.tenants.of_queue(self.config.proxy.interface, queue_id)

    def take_in(self, sockets: Sockets, descriptors: list[int]) -> int:
        """Sockets of a queue that follows; returns how many were taken."""
        account = self._account(sockets.tenant, sockets.queue_id)
        return self._worker_of(sockets.queue_id).take_in(account, sockets.data, descriptors)

    def check_taken(self, channel: Channel, descriptors: list[int]) -> None:
        """OSError: take_over() cannot be. Changes nothing."""
        if channel.queue_id >= len(self._places) or not self._places[channel.queue_id].inherited:
            raise OSError(errno.EINVAL, f"queue {channel.queue_id} is not to be served")
        if self._places[channel.queue_id].worker or not descriptors:
            raise OSError(errno.EINVAL, f"queue {channel.queue_id} is served, or has no descriptors")
        QueueEnd.unpack(channel.geometry, tuple(descriptors[:-1]))

    def take_over(self, channel: Channel, descriptors: list[int]) -> None:
        """OSError: it cannot be."""
        self.check_taken(channel, descriptors)
        queue_id = channel.queue_id
        end = QueueEnd.unpack(channel.geometry, tuple(descriptors[:-1]))
        account = self._account(channel.tenant, queue_id)
        relayed = tuple(one._replace(tenant=self._account(one.tenant, queue_id).name) for one in channel.relayed)
        left = left_of(channel)._replace(relayed=relayed)
        worker = self._worker_of(queue_id)
        worker.resume_channel(end, (account, Owner(*channel.owner)), left, descriptors[-1], frames=self.frames())
        ours = QueueEnd(end.geometry, tuple(os.dup(fd) for fd in end.descriptors))
        self._places[queue_id].have(worker, ours, socket.socket(fileno=os.dup(descriptors[-1])))

    def close(self) -> None:
        """Ends the processes."""
        self._closed = True
        for timer in self._timers:
            timer.cancel()
        self._close_state()
        for place in self._places:
            place.close()
