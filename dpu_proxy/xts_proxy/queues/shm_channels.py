"""Channels over shared memory: processes attach at the endpoint and get one each.

A new queue gets the lowest free number, so that there are few numbers (and metrics), and goes to the worker with the
fewest queues. The worker watches a duplicate of the process's connection and ends the channel itself, after carrying
out what the process sent last. The number is in use until then; `reap()` frees it, and removes a channel whose end the
worker cannot see (because a forked child has inherited the connection of a dead process).
"""

from __future__ import annotations

import errno
import itertools
import logging
import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import msgspec
from xts_messages.attaching.attach_token import cgroup_of
from xts_messages.attaching.attachments import Attached, Grant, Peer
from xts_messages.attaching.endpoint import Endpoint
from xts_messages.attaching.queue_refusals import Refusals
from xts_messages.machine.low_ports import first_port
from xts_messages.queues.queue_kinds import PROXY, QueueEnd
from xts_messages.queues.shm import ShmArea, create_shm
from xts_messages.services.service_manager import passed
from xts_messages.terminal.printable import printable
from xts_messages.wire.wire_table import FRAME_WINDOW_MIN

from xts_proxy.config.config import Config
from xts_proxy.queues.over_words import OverWords
from xts_proxy.supervisor.children import Child
from xts_proxy.supervisor.heartbeat import answers
from xts_proxy.supervisor.log import LOG, Budget
from xts_proxy.tenants.tenants import Account, Tenants
from xts_proxy.upgrade.handover import Attachment, Channel, Sockets, channel_of, left_of
from xts_proxy.upgrade.taking import Parts
from xts_proxy.workers.given_queue import PLAIN, Frames
from xts_proxy.workers.remote_worker import RemoteWorker
from xts_proxy.workers.workers import Moved, Owner

_REMOVE_AFTER_S = 0.5
#: How often, at most, workers are asked which channels they still have, however many processes come and go.
_REAP_S = 0.05
_KEYS = 1000  # of connections that end, in one request


@dataclass(slots=True)
class _Client:
    """What is kept for a grant: the proxy's side, for the worker, and for the one that goes on when that has died."""

    queue_id: int
    area: ShmArea  # we own its descriptors of the shared memory and of the proxy's bell
    tenant: Account
    owner: Owner
    worker: RemoteWorker | None = None
    remove_at: float = 0.0  # by time.monotonic(), once released; 0: attached
    leaves: bool = False  # workers have it no more, and another proxy may get it, or it comes back

    def close(self) -> None:
        """Closes what we have of its queue."""
        os.close(self.area.memfd)
        os.close(self.area.proxy_bell)


class ShmChannels:
    """The endpoint of shm, and the channels of the processes attached to it."""

    def __init__(self, config: Config, tenants: Tenants, taken: Parts | None = None) -> None:
        """Listens at once, so that the socket is made with the initial privileges; workers are set later. `taken`:
        another proxy hands over, and serves the endpoint until it begins."""
        self.config = config
        self.tenants = tenants
        self.unmovable = ""
        self.workers: list[RemoteWorker] = []
        self.stopping = False
        self._told_of_namespaces = False
        self._budgets: dict[str, Budget] = {}
        self.attaches = 0
        self.refusals = 0
        self.clients: dict[int, _Client] = {}  # by queue_id
        self._reserved: frozenset[int] = frozenset()  # numbers of queues that another proxy is about to hand over
        self._over_words = OverWords()
        self._reap_at = 0.0  # by time.monotonic(): when workers may be asked again
        self.endpoint = Endpoint(
            config.proxy.endpoint,
            self._allocate,
            self._attached,
            self._released,
            Refusals(LOG.warning).note,
            granted=self._granted,
            over=self._over,
            mode=config.proxy.endpoint_mode,
            ended_keep_s=config.proxy.ended_keep_s,
            listener=passed().listener(config.proxy.endpoint, socket.SOCK_SEQPACKET),
            warn=LOG.warning,
        )
        if taken:
            self.endpoint.own_file()
            self.endpoint.pause()

    def give_to(self, workers: list[RemoteWorker]) -> None:
        """From now on processes can attach."""
        self.workers = workers

    def reconfigure(self, workers: list[RemoteWorker]) -> None:
        """Does nothing: the tenant of a process is determined when it attaches."""

    def counters(self) -> dict[str, int]:
        """For metrics."""
        return {"attaches": self.attaches, "attaches_refused": self.refusals}

    def start(self, end: Callable[[str], None]) -> None:
        """There is no interface to look after."""

    def look(self) -> None:
        """As start()."""

    def interface(self) -> dict[str, Any]:
        """As start()."""
        return {}

    def rdma(self) -> list[dict[str, Any]]:
        """There is no RDMA."""
        return []

    def programs(self) -> dict[int, tuple[int, str]]:
        """Process and program of each queue."""
        return {a.queue_id: (a.peer.pid, printable(a.peer.program)) for a in self.endpoint.attachments}

    def children(self) -> list[Child]:
        """No process of their own."""
        return []

    def close(self) -> None:
        self.endpoint.close()
        for client in list(self.clients.values()):
            self._forget(client)

    def _allocate(self, peer: Peer, epoch: int) -> Grant:
        try:
            return self._grant(peer)
        except OSError:
            self.refusals += 1
            raise

    def _grant(self, peer: Peer) -> Grant:
        if self.stopping or not self.workers:
            raise OSError(errno.ESHUTDOWN, "the proxy is stopping")
        tenant = self.tenants.of_process(peer.uid, self._cgroup(peer))
        self._make_room(peer, tenant)
        window = self.config.proxy.frame_window
        if peer.frame_window_max:
            window = max(FRAME_WINDOW_MIN, min(window, peer.frame_window_max))
        queue_id = next(number for number in itertools.count() if self._is_free(number))
        area = create_shm(window)
        area.geometry.ethertype = self.config.proxy.ethertype
        area.geometry.queue_id = queue_id
        try:
            ours = replace(area, memfd=os.dup(area.memfd), host_bell=-1)
        except OSError:
            area.close()
            raise
        owner = Owner(peer.uid, first_port(peer.pid, peer.uid))
        self.clients[queue_id] = client = _Client(queue_id, ours, tenant, owner)
        return Grant(area.geometry, (area.memfd, area.host_bell), client)

    def _is_free(self, number: int) -> bool:
        return number not in self.clients and number not in self._reserved

    # --- handing over (handover.py) -----------------------------------------------------------------------

    @property
    def listeners(self) -> list[tuple[str, socket.socket]]:
        """What listens, by name."""
        return [(str(self.endpoint.path), self.endpoint.listener)]

    def parts(self) -> tuple[int, dict[str, int]]:
        """There is no interface."""
        return 0, {}

    def accept(self, accepts: bool) -> None:
        """Are new processes served here, or by another proxy?"""
        self.endpoint.pause()
        if accepts:
            self.endpoint.resume()

    def leave(self) -> None:
        """Another proxy has the endpoint."""
        self.endpoint.leave()

    def served(self) -> dict[int, RemoteWorker]:
        """The queues that workers have."""
        return {number: one.worker for number, one in self.clients.items() if one.worker and not one.remove_at}

    def _attachment(self, queue_id: int) -> Attached | None:
        return next((a for a in self.endpoint.attachments if a.tag is self.clients[queue_id]), None)

    def has_ended(self, queue_id: int) -> bool:
        """Has its process? Then no other proxy takes it."""
        return self._attachment(queue_id) is None

    def stays(self, queue_id: int) -> None:
        """Workers have it again."""
        self.clients[queue_id].leaves = False

    def life_fd(self, queue_id: int) -> int:
        """The connection of its process; -1: it has ended."""
        attached = self._attachment(queue_id)
        return attached.connection.fileno() if attached else -1

    def frames(self) -> Frames:
        """As they are: this is memory."""
        return PLAIN

    def describe(self, queue_id: int, piece: Moved) -> tuple[Channel, list[int]]:
        """What another proxy has to know of it, and descriptors, which stay ours."""
        client, attached = self.clients[queue_id], self._attachment(queue_id)
        client.leaves = True
        geometry = client.area.end(PROXY).pack()
        channel = channel_of(queue_id, geometry, piece)
        if not attached:
            return channel, []
        peer = attached.peer
        who = Attachment(peer.pid, peer.uid, peer.gid, peer.program, attached.kind)
        return msgspec.structs.replace(channel, attachment=who), [attached.connection.fileno(), attached.status_fd]

    def gone(self, queue_id: int) -> None:
        """Another proxy has it."""
        if attached := self._attachment(queue_id):
            self.endpoint.give_away(attached)
        self._forget(self.clients[queue_id])

    def _forget(self, client: _Client) -> None:
        """Its number is free again."""
        del self.clients[client.queue_id]
        client.close()

    # --- after a crash (understudy.py) --------------------------------------------------------------------

    def survives(self) -> bool:
        """Can another process of the workers go on with these queues?"""
        return True

    def recover(self) -> int:
        """Another process of the workers is there. Returns how many sockets may go on."""
        sockets = 0
        for client in [client for client in self.clients.values() if client.worker]:
            attached = self._attachment(client.queue_id)
            try:
                sockets += self._recover(client, attached)
            except BrokenPipeError:
                raise  # the workers have died again: the next ones get all channels
            except OSError as error:
                if attached:
                    LOG.error("queue %d: its process attaches again: %s", client.queue_id, error.strerror)
                    self.endpoint.take_back(attached)
                else:
                    self._forget(client)
        for tenant, keys in self._over_words.recent():  # the dead ones have heard it, or were not asked
            self._say_over(self.workers, tenant, keys)
        return sockets

    def _recover(self, client: _Client, attached: Attached | None) -> int:
        """`attached` None: its process has ended meanwhile. What that had sent is carried out all the same."""
        assert client.worker
        ended, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        other.close()
        with ended:
            life_fd = attached.connection.fileno() if attached else ended.fileno()
            whose = client.tenant, client.owner
            sockets = client.worker.recover_channel(client.area.end(PROXY), client.queue_id, whose, life_fd)
        if client.remove_at:
            client.remove_at = time.monotonic() + _REMOVE_AFTER_S
        return sockets

    def ends(self) -> dict[int, QueueEnd]:
        """A process that has lost its proxy attaches to another one."""
        return {}

    def take_orphan(self, queue_id: int, end: QueueEnd) -> NoReturn:
        """As `ends()`."""
        raise OSError(errno.EOPNOTSUPP, "a queue of this kind ends with its process")

    def lost(self, queue_ids: list[int], why: str) -> None:
        """As `ends()`."""

    def reserve(self, queue_ids: tuple[int, ...]) -> None:
        """These are another proxy's, which hands them over."""
        self._reserved = frozenset(queue_ids)

    def take_in(self, sockets: Sockets, descriptors: list[int]) -> int:
        """Sockets of a queue that follows; returns how many were taken."""
        return self._worker_of(sockets.queue_id).take_in(self._account(sockets.tenant), sockets.data, descriptors)

    def _worker_of(self, queue_id: int) -> RemoteWorker:
        return self.workers[queue_id % len(self.workers)]

    def _account(self, tenant: str) -> Account:
        """What is taken over stays charged to its tenant, if there still is one of this name."""
        return self.tenants.accounts.get(tenant) or next(iter(self.tenants.accounts.values()))

    def check_taken(self, channel: Channel, descriptors: list[int]) -> None:
        """OSError: take_over() cannot be. Changes nothing."""
        if not channel.attachment or len(descriptors) < 2 or channel.queue_id in self.clients:
            raise OSError(errno.ESRCH, "its process has ended")
        QueueEnd.unpack(channel.geometry, tuple(descriptors[:-2]))

    def take_over(self, channel: Channel, descriptors: list[int]) -> None:
        """OSError: it cannot be."""
        self.check_taken(channel, descriptors)
        who = channel.attachment
        assert who
        connection = socket.socket(fileno=os.dup(descriptors[-2]))
        end = QueueEnd.unpack(channel.geometry, tuple(descriptors[:-2]))
        owner, account = Owner(*channel.owner), self._account(channel.tenant)
        worker = self._worker_of(channel.queue_id)
        memfd, bell = (os.dup(fd) for fd in end.descriptors)
        area = ShmArea(memfd, -1, bell, end.geometry)
        client = _Client(channel.queue_id, area, account, owner, worker)
        peer = Peer(who.pid, who.uid, who.gid, who.program, 0, 0)
        epoch, status_fd = int(end.geometry.epoch), os.dup(descriptors[-1])
        attached = Attached(peer, epoch, who.kind, channel.queue_id, client, status_fd, connection)
        try:
            left = left_of(channel)
            worker.resume_channel(end, (account, owner), left, connection.fileno())
        except OSError:
            connection.close()
            client.close()
            os.close(status_fd)
            raise
        self.clients[channel.queue_id] = client
        self.endpoint.take_over(attached)

    def _cgroup(self, peer: Peer) -> str:
        """The cgroup of a process; "" if it has no number in our PID namespace, by which its cgroup could be found."""
        if peer.pid == 0 and not self._told_of_namespaces and any(t.cgroups for t in self.config.tenant):
            self._told_of_namespaces = True
            LOG.warning(
                "%s of user %d is in another PID namespace, where its cgroup cannot be read: "
                "it and others like it belong to tenants by user only",
                printable(peer.program) or "a process",
                peer.uid,
            )
        return cgroup_of(peer.pid)

    def _make_room(self, peer: Peer, tenant: Account) -> None:
        """OSError EUSERS: there is no room, even without the processes that have just ended."""
        try:
            self._check_room(peer, tenant)
        except OSError:
            self._reap()
            self._check_room(peer, tenant)

    def _check_room(self, peer: Peer, tenant: Account) -> None:
        """OSError EUSERS: the tenant, or the user within it, has as many queues as it may."""
        limits = self.tenants.limits(tenant.name)
        of_tenant = [client.owner.uid for client in self.clients.values() if client.tenant is tenant]
        if len(of_tenant) >= limits.clients:
            problem = (
                f"tenant {tenant.name} has {len(of_tenant)} processes attached, the most that limits.clients allows"
            )
            raise OSError(errno.EUSERS, problem)
        per_user = limits.clients_per_user or max(1, limits.clients - max(1, limits.clients // 4))
        if peer.uid and of_tenant.count(peer.uid) >= per_user:
            problem = f"user {peer.uid} has {per_user} processes attached, the most that limits.clients_per_user allows"
            raise OSError(errno.EUSERS, problem)

    def _granted(self, attached: Attached) -> None:
        """A worker has the channel before the process hears of it. So if none can take it, the process hears why. If
        the workers have died, another process goes on, which does not know the channel: recover() has its host attach
        again. Else the proxy ends, which the host sees, too."""
        client = attached.tag
        assert isinstance(client, _Client)
        counts = {worker: 0 for worker in self.workers}
        for other in self.clients.values():
            if other.worker is not None:
                counts[other.worker] += 1
        worker = min(self.workers, key=lambda candidate: counts[candidate])
        life_fd = attached.connection.fileno()
        try:
            worker.add_channel(client.area.end(PROXY), client.queue_id, client.tenant, life_fd, client.owner)
        except BrokenPipeError:
            LOG.debug("queue %d: its worker has died before it had it", client.queue_id)
        except OSError:
            self.refusals += 1
            raise
        client.worker = worker

    def _attached(self, attached: Attached) -> None:
        client = attached.tag
        assert isinstance(client, _Client)
        assert client.worker is not None
        self.attaches += 1
        worker = client.worker
        peer = attached.peer
        name = client.tenant.name
        process = f"process {peer.pid}" if peer.pid else "a process of another PID namespace"
        message = (
            f"worker {worker.index}: tenant {name}: queue {client.queue_id}: "
            f"attached by {process} ({printable(peer.program)}) of user {peer.uid}"
        )
        self._budget(name).log(logging.INFO, name, message)

    def _budget(self, tenant: str) -> Budget:
        """The log budget of a tenant."""
        return self._budgets.setdefault(tenant, Budget())

    def _released(self, attached: Attached) -> None:
        client = attached.tag
        assert isinstance(client, _Client)
        if client.worker is None:
            self._forget(client)
        else:
            client.remove_at = time.monotonic() + _REMOVE_AFTER_S

    def _over(self, attached: Attached, keys: list[int]) -> None:
        """No process has the connections of these keys any more (relatives_files.py)."""
        client = attached.tag
        assert isinstance(client, _Client)
        self._over_words.note(client.tenant.name, keys)
        self._say_over(list(filter(answers, self.workers)), client.tenant.name, keys)

    def _say_over(self, workers: list[RemoteWorker], tenant: str, keys: list[int]) -> None:
        for worker in workers:
            for at in range(0, len(keys), _KEYS):
                with suppress(OSError):  # it ends, or is late: they are kept until their time is over
                    worker.keys_over(tenant, keys[at : at + _KEYS])

    def reap(self) -> float | None:
        """Frees the numbers of ended channels, if it is time. Returns in how many seconds to call it again; None: all
        are free."""
        if time.monotonic() >= self._reap_at:
            self._reap()
        if not any(client.remove_at for client in self.clients.values()):
            return None
        return max(0.0, self._reap_at - time.monotonic())

    def _reap(self) -> None:
        released = [client for client in self.clients.values() if client.remove_at]
        for worker in {client.worker for client in released if client.worker and answers(client.worker)}:
            with suppress(BrokenPipeError):  # it has died: recover() forgets those that have ended
                self._reap_of(worker, [client for client in released if client.worker is worker])
        self._reap_at = time.monotonic() + _REAP_S

    def _reap_of(self, worker: RemoteWorker, released: list[_Client]) -> None:
        alive = set(worker.queue_ids())
        for client in released:
            if client.leaves:
                continue
            if client.queue_id not in alive:
                self._forget(client)
            elif client.remove_at <= time.monotonic():
                worker.remove_channel(client.queue_id)
