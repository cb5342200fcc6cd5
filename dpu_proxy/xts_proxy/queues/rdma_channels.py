"""Channels over RDMA: a fixed set of queues, each for the relay of one agent at a time.

The workers have the queue pairs (workers/rdma_ends.py), a process for each queue connects it (rdma_acceptor.py), and
this carries the words from one to the other. A relay attaches by HELLO, with a token where there is a key, exactly as
over an interface with AF_XDP queues. Its end shows at once: its kernel ends the connection. That a relay was cut
off, or its machine, the device notices when it has something to send and gives up repeating. If it has nothing, the
queue would be taken for ever: so a connection over which nothing comes is ended after SILENT_S. A relay that lives
pings twice a second. Where the same host asks for another connection meanwhile, as it does after it was booted, or when
its device has given up, the old one is ended as soon as it was silent for LOOK_S.

Queues over RDMA cannot be handed to another proxy. After a restart agents connect again.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

from xts_messages.attaching import attach_token
from xts_messages.queues import rdma
from xts_messages.queues.queue_kinds import QueueEnd
from xts_messages.queues.rdma_cm import SILENT_S

from xts_proxy.config.config import Config
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
from xts_proxy.supervisor.children import Child
from xts_proxy.supervisor.heartbeat import answers
from xts_proxy.supervisor.log import LOG
from xts_proxy.tenants.tenants import Tenants
from xts_proxy.upgrade.handover import Channel, Sockets
from xts_proxy.upgrade.taking import Parts
from xts_proxy.workers.given_queue import PLAIN, Frames
from xts_proxy.workers.remote_worker import RemoteWorker
from xts_proxy.workers.workers import Moved

UNMOVABLE = "queues over RDMA cannot be handed to another proxy: restart it, and agents connect again"
_AGAIN_S = 1.0
LOOK_S = 5.0
#: How often the log has a line about somebody who was refused, for each queue.
_TOLD_EVERY_S = 10.0


@dataclass(slots=True)
class _Place:
    """A queue, and the agent that has it."""

    number: int
    acceptor: Acceptor
    problem: str = "it is starting"  # why no agent can connect; "": one can
    peer: str = ""  # the address of the agent that is connected
    connections: int = 0
    refused: int = 0
    told_at: float = 0.0  # by the loop's clock
    heard: int = 0  # frames of its relay so far
    heard_at: float = 0.0  # by the loop's clock, when there were more
    asks_again: bool = False  # since then, the same host


class RdmaChannels:
    """The queues of a proxy with queue = "rdma"."""

    def __init__(self, config: Config, tenants: Tenants, taken: Parts | None = None) -> None:
        """Forks the processes that accept. They wait for agents at once; the workers are set later. OSError: what is
        missing."""
        if taken:
            raise OSError(errno.EOPNOTSUPP, UNMOVABLE)
        rdma.check_installed()
        self.unmovable = UNMOVABLE
        self.config, self.tenants = config, tenants
        self._key = attach_token.load_key(config.proxy.token_key) if config.proxy.token_key else b""
        self._workers: list[RemoteWorker] = []
        self._device = ""
        self._end: Callable[[str], None] = lambda _: None
        self._timers: set[asyncio.TimerHandle] = set()
        self._closed = False
        self._places: list[_Place] = []
        try:
            for number in range(config.rdma.queues):
                self._places.append(_Place(number, Acceptor(config, number)))
        except OSError:
            self.close()
            raise

    def give_to(self, workers: list[RemoteWorker]) -> None:
        """From now on agents get queues."""
        self._workers = workers
        self._device = workers[0].rdma_device()
        self.reconfigure(workers)

    def reconfigure(self, workers: list[RemoteWorker]) -> None:
        """Gives the workers the table that maps the identities in tokens to tenants."""
        rules = self.tenants.identity_rules(self.config.proxy.interface) if self._key else []
        for worker in workers:
            worker.trust(self._key, rules)

    def start(self, end: Callable[[str], None]) -> None:
        """From now on, in the running loop, answers those who accept. `end`: called with the reason when only another
        start of the proxy helps."""
        self._end = end
        for place in self._places:
            self._listen_to(place)
        self._later(LOOK_S, self._end_silent)

    def _later(self, delay_s: float, function: Callable[..., None], *arguments: _Place) -> None:
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

    def _listen_to(self, place: _Place) -> None:
        loop = asyncio.get_running_loop()
        loop.add_reader(place.acceptor.fileno(), self._on_acceptor, place)

    # --- those who accept ------------------------------------------------------------------------------

    def _on_acceptor(self, place: _Place) -> None:
        try:
            while (found := place.acceptor.said()) is not None:
                said, fd = found
                try:
                    self._take(place, said, fd)
                finally:
                    if fd >= 0:
                        os.close(fd)
        except ConnectionError:
            self._lost(place)

    def _lost(self, place: _Place) -> None:
        """The process has ended, and its connection with it. Another is started."""
        loop = asyncio.get_running_loop()
        loop.remove_reader(place.acceptor.fileno())
        place.acceptor.child.kill()
        place.acceptor.close()
        LOG.error("%s: %s; it is started again", place.acceptor.child.name, place.acceptor.child.ended())
        place.problem, place.peer = "the process that accepts has ended", ""
        self._later(_AGAIN_S, self._start_again, place)

    def _start_again(self, place: _Place) -> None:
        if self._closed:
            return
        try:
            place.acceptor = Acceptor(self.config, place.number)
        except OSError as error:
            LOG.error("xts-rdma-cm cannot be started: %s", error.strerror)
            self._later(_AGAIN_S, self._start_again, place)
            return
        self._listen_to(place)

    def _take(self, place: _Place, said: Said, fd: int) -> None:
        if isinstance(said, Listens):
            place.problem = ""
            where = self.config.rdma.address, self.config.rdma.port + place.number
            LOG.info("queue %d: waits for an agent at %s, port %d (RDMA, %s)", place.number, *where, self._device)
        elif isinstance(said, Fails):
            place.problem = said.why
            LOG.error("queue %d: no agent can connect: %s", place.number, said.why)
            if said.gone:
                self._end(f"{said.why}, and waits until nobody uses it; the proxy ends")
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

    def _worker_of(self, number: int) -> RemoteWorker:
        return self._workers[number % len(self._workers)]

    def _offer(self, place: _Place) -> Answer:
        worker = self._worker_of(place.number)
        try:
            return Answer(number=worker.rdma_offer(place.number))
        except OSError as error:
            if error.errno == errno.EBUSY:  # the worker still carries out what the last one sent
                worker.remove_channel(place.number)
            else:
                LOG.error("queue %d: %s", place.number, error.strerror)
            return Answer(error.errno or errno.EIO, error.strerror or str(error))

    def _step(self, place: _Place, step: bytes) -> Answer:
        try:
            self._worker_of(place.number).rdma_step(place.number, step)
        except OSError as error:
            return Answer(error.errno or errno.EIO, error.strerror or str(error))
        return Answer()

    def _connected(self, place: _Place, peer: str, life_fd: int) -> None:
        tenant = self.tenants.of_queue(self.config.proxy.interface, place.number)
        try:
            self._worker_of(place.number).rdma_adopt(place.number, tenant, life_fd)
        except OSError as error:
            LOG.error("queue %d: the agent at %s is sent away: %s", place.number, peer, error.strerror)
            place.acceptor.end(error.strerror or str(error))
            return
        place.peer, place.heard, place.heard_at = peer, 0, asyncio.get_running_loop().time()
        place.asks_again = False
        place.connections += 1
        LOG.info("queue %d: connected with the agent at %s", place.number, peer)

    def _refused(self, place: _Place, said: Refused) -> None:
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
                "device": self._device,
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
        """Those who accept."""
        return [place.acceptor.child for place in self._places]

    def look(self) -> None:
        """The connection manager looks after the device."""

    # --- handing over: not possible --------------------------------------------------------------------

    @property
    def listeners(self) -> list[tuple[str, socket.socket]]:
        """None is a socket."""
        return []

    def parts(self) -> tuple[int, dict[str, int]]:
        """There is no interface."""
        return 0, {}

    def accept(self, accepts: bool) -> None:
        """As `parts()`."""

    def leave(self) -> None:
        """As `parts()`."""

    def served(self) -> dict[int, RemoteWorker]:
        """None can be handed over."""
        return {}

    def life_fd(self, queue_id: int) -> int:
        """As `served()`."""
        return -1

    def frames(self) -> Frames:
        """As they are: nothing is lost, and nobody else can send."""
        return PLAIN

    def describe(self, queue_id: int, piece: Moved) -> NoReturn:
        """As `served()`."""
        raise OSError(errno.EOPNOTSUPP, self.unmovable)

    def gone(self, queue_id: int) -> None:
        """As `served()`."""

    def ends(self) -> dict[int, QueueEnd]:
        """None can be handed over."""
        return {}

    def take_orphan(self, queue_id: int, end: QueueEnd) -> NoReturn:
        """As `ends()`."""
        raise OSError(errno.EOPNOTSUPP, "a queue of this kind ends with its process")

    def lost(self, queue_ids: list[int], why: str) -> None:
        """As `ends()`."""

    def survives(self) -> bool:
        """The kernel takes what is written to an RDMA device only from the process that has opened it: no other process
        can go on with these queues."""
        return False

    def recover(self) -> NoReturn:
        """As `survives()`."""
        raise OSError(errno.EOPNOTSUPP, "queues over RDMA end with the process that has opened them")

    def reserve(self, queue_ids: tuple[int, ...]) -> None:
        """As `served()`."""

    def take_in(self, sockets: Sockets, descriptors: list[int]) -> NoReturn:
        """As `served()`."""
        raise OSError(errno.EOPNOTSUPP, self.unmovable)

    def take_over(self, channel: Channel, descriptors: list[int]) -> NoReturn:
        """As `served()`."""
        raise OSError(errno.EOPNOTSUPP, self.unmovable)

    def check_taken(self, channel: Channel, descriptors: list[int]) -> NoReturn:
        """As `served()`."""
        raise OSError(errno.EOPNOTSUPP, self.unmovable)

    def close(self) -> None:
        """Ends those who accept."""
        self._closed = True
        for timer in self._timers:
            timer.cancel()
        for place in self._places:
            place.acceptor.close()
