"""Channels over an interface: a fixed set of AF_XDP queues, opened at the start and spread over the workers.

The process at the other end attaches by HELLO. Its end is reported by the host's agent, or found by pings.

The host's processes hold descriptors with which they can send any frame. On an interface that carries only messages
(`exclusive`), the XDP program drops everything else, before this machine's network stack sees it.

After the sandbox has closed, the program on the interface is not detached any more: it stays, drops the host's frames
while no proxy runs, and is replaced at the next start. `ip link set dev INTERFACE xdp off` removes it.

The interface may leave and return, or lose the program, while the proxy runs. A process that has the rights opens the
queues again (queue_opener.py). So it is after an upgrade by root, where the program comes from the proxy before. Queues
that were opened ahead come without these rights: the proxy then ends when it would need them, and whoever starts it
again opens them again. Until that would help, it waits, and says for what.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from ipaddress import ip_address
from typing import Any

from msgspec import structs
from pyroute2 import IPRoute
from xts_bpf.adopted_program import AdoptedProgram
from xts_bpf.device import DeviceSockets, receive_queues
from xts_bpf.interface_state import any_unbound
from xts_bpf.kept_interface import KeptInterface
from xts_bpf.program import interface_index
from xts_bpf.steering import Steering
from xts_messages.attaching import attach_token
from xts_messages.native import lib
from xts_messages.queues import busy_poll
from xts_messages.queues.afxdp import SMALL_CHUNKS_SAID, XskSocket, has_small_chunks, is_zero_copy
from xts_messages.queues.queue_kinds import QueueEnd

from xts_proxy.config.config import Config
from xts_proxy.config.config_values import ALL, Queues
from xts_proxy.queues.kept_ends import KeptEnds
from xts_proxy.queues.queue_opener import TO_LOOK_AFTER, Copies, QueueOpener, Told, copies_of
from xts_proxy.queues.stored_queues import Settings, StoredQueues, store, store_failure, take
from xts_proxy.supervisor import sandbox
from xts_proxy.supervisor.children import Child
from xts_proxy.supervisor.log import LOG
from xts_proxy.tenants.tenants import Account, Tenants
from xts_proxy.upgrade.handover import Channel, Sockets, channel_of, left_of
from xts_proxy.upgrade.taking import Parts
from xts_proxy.workers.given_queue import Frames
from xts_proxy.workers.remote_worker import RemoteWorker
from xts_proxy.workers.workers import Moved, Owner

#: How long we wait for a queue that the proxy before us has just closed.
_PATIENCE_S = 2.0


class DeviceChannels:
    """The queues of an interface, until they are given to workers."""

    def __init__(self, config: Config, tenants: Tenants, taken: Parts | None = None) -> None:
        """Opens program and queues, or takes those that were opened for us. `taken`: another proxy hands them over.
        OSError says which one could not be opened and why; nothing is left open then."""
        self.config = config
        self.tenants = tenants
        self.unmovable = ""
        proxy = config.proxy
        self._told = False
        if proxy.exclusive and (found := _addresses(proxy.interface)):
            LOG.warning(
                "%s has the addresses %s: what is sent to them over it is dropped (proxy.exclusive)",
                proxy.interface,
                ", ".join(found),
            )
        settings = _settings(config)
        self._steered = settings.steering is Steering.ADDRESS
        self.queue_ids = list(settings.queue_ids)
        self._taken = taken is not None
        self._opened = _taken(taken, proxy.interface) if taken else take(settings) or settings.open(_PATIENCE_S)
        #: Who has the rights to mend the interface; or else what we see of it ourselves, and a descriptor for that.
        self.opener: QueueOpener | None = None
        self._kept: KeptInterface | None = None
        self._first = self._asked = -1
        self._timer: asyncio.TimerHandle | None = None
        self._end: Callable[[str], None] = lambda _: None
        self._state = Told("", 0, 0, **asdict(copies_of(self._opened.sockets)))
        self._workers: list[RemoteWorker] = []
        self._given: list[tuple[RemoteWorker, int]] = []  # the queues that workers have
        self._kept_ends = KeptEnds()  # of those, and of what was handed over
        self._arrived: list[XskSocket] = []  # of those that are being opened again
        try:
            if isinstance(self._opened, DeviceSockets):
                program = self._opened.program
                steered = None if taken else _in_thread(settings.steered)
                self.opener = QueueOpener(
                    self._opened,
                    settings.steered if taken else lambda: steered,
                    lambda name: _settings(config, name).open_again(program, name, _PATIENCE_S),
                    proxy.user,
                    core_dumps=proxy.core_dumps,
                    napi_defer_us=settings.napi_defer_us,
                )
            else:
                if self._opened.sockets:
                    self._first = os.dup(self._opened.sockets[0].xsk_fd)
                self._kept = KeptInterface(
                    proxy.interface, None, self._opened.program_id, LOG, shared=self._opened.shared
                )
            # after the fork: the process that opens queues does not have it
            self._key = attach_token.load_key(proxy.token_key) if proxy.token_key else b""
        except OSError:
            self.close()
            raise

    def give_to(self, workers: list[RemoteWorker]) -> None:
        """Gives the queues to the workers in turn."""
        self._workers = workers
        self.reconfigure(workers)
        self._give(self._opened.sockets)

    def _give(self, sockets: list[XskSocket]) -> None:
        for i, xsk in enumerate(sockets):
            tenant = self.tenants.of_queue(self.config.proxy.interface, xsk.queue_id)
            worker = self._workers[i % len(self._workers)]
            worker.add_channel(xsk.end, xsk.queue_id, tenant, frames=self.frames())
            self._given.append((worker, xsk.queue_id))
            self._kept_ends.keep(xsk.queue_id, xsk.end)
            self._ask_of(xsk.xsk_fd)
            xsk.close()

    def frames(self) -> Frames:
        """What frames have here."""
        repeating = lib.XTS_ARQ_PROXY if self.config.proxy.reliable == "on" else lib.XTS_ARQ_PROXY_OFF
        return Frames(self._opened.secrets_fd if self._steered else -1, int(repeating))

    # --- after a crash (understudy.py) --------------------------------------------------------------------

    def survives(self) -> bool:
        """Can another process of the workers go on with these queues?"""
        return all(queue_id in self._kept_ends.ends for _, queue_id in self._given)

    def recover(self) -> int:
        """Another process of the workers is there. Returns how many sockets may go on."""
        sockets = 0
        for worker, queue_id in self._given:
            tenant = self.tenants.of_queue(self.config.proxy.interface, queue_id)
            end = self._kept_ends.ends[queue_id]
            sockets += worker.recover_channel(end, queue_id, (tenant, None), frames=self.frames())
        return sockets

    # --- handing over (handover.py) -----------------------------------------------------------------------

    @property
    def listeners(self) -> list[tuple[str, socket.socket]]:
        """Nobody attaches here."""
        return []

    def parts(self) -> tuple[int, dict[str, int]]:
        """The number of the XDP program, and its maps."""
        opened = self._opened
        if isinstance(opened, DeviceSockets):
            return opened.program.program_id, opened.program.handed()
        return opened.program_id, {"counters": opened.counters_fd, "secrets": opened.secrets_fd}

    def accept(self, accepts: bool) -> None:
        """As listeners."""

    def leave(self) -> None:
        """Another proxy has the queues: program, rules and addresses stay."""
        if self.opener:
            asyncio.get_running_loop().remove_reader(self.opener.child.fileno())
            self.opener.leave()
        if isinstance(self._opened, DeviceSockets):
            self._opened.program.leave()

    def served(self) -> dict[int, RemoteWorker]:
        """The queues that workers have."""
        return {queue_id: worker for worker, queue_id in self._given}

    def has_ended(self, queue_id: int) -> bool:
        """The queue is there, whether a process has it or not."""
        return False

    def stays(self, queue_id: int) -> None:
        """Workers have it again."""

    def life_fd(self, queue_id: int) -> int:
        """Pings tell of the end of a process."""
        return -1

    def describe(self, queue_id: int, piece: Moved) -> tuple[Channel, list[int]]:
        """What another proxy has to know of it."""
        return channel_of(queue_id, self._kept_ends.ends[queue_id].pack(), piece), []

    def gone(self, queue_id: int) -> None:
        """Another proxy has it."""
        self._given = [given for given in self._given if given[1] != queue_id]

    def ends(self) -> dict[int, QueueEnd]:
        """By which a queue can be served when the process has ended that had it."""
        return self._kept_ends.ends

    def take_orphan(self, queue_id: int, end: QueueEnd) -> None:
        """Serves a queue again whose process has ended. The descriptors stay the caller's. OSError EAGAIN: not yet."""
        if queue_id not in self.queue_ids or queue_id in self.served():
            raise OSError(errno.EINVAL, f"queue {queue_id} is not to be served")
        worker = self._worker_of(queue_id)
        tenant = self.tenants.of_queue(self.config.proxy.interface, queue_id)
        worker.add_channel(end, queue_id, tenant, frames=self.frames(), is_orphan=True)
        self._have(queue_id, worker, end)

    def lost(self, queue_ids: list[int], why: str) -> None:
        """They have to be opened again."""
        if not self.opener:
            self._end(f"queues {queue_ids} have to be opened again: {why}")

    def _have(self, queue_id: int, worker: RemoteWorker, end: QueueEnd) -> None:
        """A worker has it now."""
        xsk_fd = end.descriptors[0]
        if self._first < 0 and (self._taken or not self.opener):
            self._first = os.dup(xsk_fd)
        self._given.append((worker, queue_id))
        if end is not self._kept_ends.ends.get(queue_id):
            self._count_taken(xsk_fd, SMALL_CHUNKS_SAID if has_small_chunks(end.geometry) else "")
            self._kept_ends.keep(queue_id, end)
        self._ask_of(xsk_fd)

    def reserve(self, queue_ids: tuple[int, ...]) -> None:
        """Nobody attaches here."""

    def take_in(self, sockets: Sockets, descriptors: list[int]) -> int:
        """Sockets of a queue that follows; returns how many were taken."""
        account = self._account(sockets.tenant, sockets.queue_id)
        return self._worker_of(sockets.queue_id).take_in(account, sockets.data, descriptors)

    def _account(self, tenant: str, queue_id: int) -> Account:
        """What is taken over stays charged to its tenant, if there still is one of this name."""
        return self.tenants.accounts.get(tenant) or self.tenants.of_queue(self.config.proxy.interface, queue_id)

    def _worker_of(self, queue_id: int) -> RemoteWorker:
        return self._workers[queue_id % len(self._workers)]

    def check_taken(self, channel: Channel, descriptors: list[int]) -> None:
        """OSError: take_over() cannot be. Changes nothing."""
        if channel.queue_id not in self.queue_ids or channel.queue_id in self.served():
            raise OSError(errno.EINVAL, f"queue {channel.queue_id} is not to be served")
        QueueEnd.unpack(channel.geometry, tuple(descriptors))

    def take_over(self, channel: Channel, descriptors: list[int]) -> None:
        """OSError: it cannot be."""
        self.check_taken(channel, descriptors)
        end = QueueEnd.unpack(channel.geometry, tuple(descriptors))
        worker = self._worker_of(channel.queue_id)
        account = self._account(channel.tenant, channel.queue_id)
        relayed = tuple(
            one._replace(tenant=self._account(one.tenant, channel.queue_id).name) for one in channel.relayed
        )
        left = left_of(channel)._replace(relayed=relayed)
        worker.resume_channel(end, (account, Owner(*channel.owner)), left, frames=self.frames())
        self._have(channel.queue_id, worker, end)

    def _count_taken(self, xsk_fd: int, chunks: str) -> None:
        """A queue that the proxy before us has opened."""
        zero_copy = self._state.zero_copy + is_zero_copy(xsk_fd)
        words = "zero copy" if zero_copy else "copy mode"
        copying = f"{words}: as the proxy before this one has opened the queues{chunks}"
        self._state = structs.replace(self._state, copying=copying, zero_copy=zero_copy)

    def reconfigure(self, workers: list[RemoteWorker]) -> None:
        """Gives the workers the table that maps the identities in tokens to tenants."""
        rules = self.tenants.identity_rules(self.config.proxy.interface) if self._key else []
        for worker in workers:
            worker.trust(self._key, rules)

    # --- the interface ---------------------------------------------------------------------------------

    def start(self, end: Callable[[str], None]) -> None:
        """From now on, in the running loop, looks after the interface. `end`: called with the reason when only another
        start of the proxy helps."""
        self._end = end
        if self.opener:
            if self._taken:
                self._begin_of(self.opener)
            loop = asyncio.get_running_loop()
            loop.add_reader(self.opener.fileno(), self._on_opener, self.opener)
            loop.add_reader(self.opener.child.fileno(), self._on_end_of, self.opener)
        self.look()

    def _begin_of(self, opener: QueueOpener) -> None:
        """All that the proxy before us had is ours."""
        opener.begin(self._first, Copies(self._state.copying, self._state.zero_copy, self._state.fallbacks))
        if self._first >= 0:  # the queue is busy as long as somebody has its socket
            os.close(self._first)
            self._first = -1

    def look(self) -> None:
        """Something has changed at an interface of this machine."""
        kept = self._kept
        if not kept:
            return
        kept.look(unbound=self._first >= 0 and any_unbound((self._first,)))
        self._state = structs.replace(self._state, problem=kept.problem)
        if kept.mends:
            self._end(kept.problem)
        elif kept.lost:
            self._take_back()
        if not kept.problem:
            kept.served()
        self._stop_timer()
        if (wait_s := kept.wait_s()) is not None:
            self._timer = asyncio.get_running_loop().call_later(wait_s, self.look)

    def interface(self) -> dict[str, Any]:
        """The interface, for status and metrics. `problem`: why no queue carries anything; "": they do."""
        return {
            "interface": self.config.proxy.interface,
            "problem": self._state.problem,
            "serves": int(not self._state.problem),
            "reattached": self._state.reattached,
            "renewed": self._state.renewed,
            "unsteered": self._state.unsteered,
            "steered": int(not self._state.unsteered),
            "copying": self._bound(),
            "zero_copy": self._state.zero_copy,
            "copy_fallbacks": self._state.fallbacks,
        }

    def rdma(self) -> list[dict[str, Any]]:
        """There is no RDMA."""
        return []

    def _bound(self) -> str:
        """How the queues are bound and polled, for people."""
        polling = busy_poll.said(self._asked, self.config.proxy.queue_options) if self._asked >= 0 else ""
        deferred = self._state.deferral
        if self.config.proxy.napi_defer_us and not self.opener:
            deferred = "interrupts not deferred: the proxy has no right to"
        return "; ".join(filter(None, (self._state.copying, polling, deferred)))

    def _ask_of(self, xsk_fd: int) -> None:
        """Keeps the socket of a queue, to say what of busy polling is in force; not without a need, for a queue is busy
        as long as somebody has its socket."""
        if self.config.proxy.busy_poll_us and self._asked < 0:
            self._asked = os.dup(xsk_fd)

    def _ask_no_more(self) -> None:
        if self._asked >= 0:
            os.close(self._asked)
            self._asked = -1

    def _on_opener(self, opener: QueueOpener) -> None:
        try:
            while (found := opener.told()) is not None:
                self._take(*found)
        except ConnectionError:
            asyncio.get_running_loop().remove_reader(opener.fileno())
            opener.child.kill()
        except OSError as error:  # a worker does not answer
            LOG.error("queues of %s: %s", self.config.proxy.interface, error.strerror)

    def _on_end_of(self, opener: QueueOpener) -> None:
        """From here on we look after the interface ourselves, without the rights to mend it."""
        asyncio.get_running_loop().remove_reader(opener.child.fileno())
        LOG.error("xts-opener: %s; the proxy ends when the interface has to be opened again", opener.child.ended())
        assert isinstance(self._opened, DeviceSockets)
        try:
            program = self._opened.program
            name, number = self.config.proxy.interface, program.attached_id
            self._kept = KeptInterface(name, None, number, LOG, shared=program.is_shared)
        except OSError as error:
            self._end(f"{error.strerror}, and nobody can open its queues when it returns")
        else:
            self.look()

    def _take(self, told: Told, xsk: XskSocket | None) -> None:
        self._state = told
        if told.close:
            self._take_back()
        if xsk:
            self._arrived.append(xsk)
        if told.last:
            arrived, self._arrived = self._arrived, []
            if not self._workers:  # the proxy is stopping
                for one in arrived:
                    one.close()
                return
            self.queue_ids = [xsk.queue_id for xsk in arrived]
            self._give(arrived)
            LOG.info("%d queues of %s were opened again", len(arrived), self.config.proxy.interface)

    def _take_back(self) -> None:
        """The workers close all queues: their processes of the host are gone, or hear GOODBYE."""
        given, self._given = self._given, []
        self._ask_no_more()
        self._kept_ends.close()
        for worker, queue_id in given:
            try:
                worker.remove_channel(queue_id)
            except OSError as error:
                LOG.error("queue %d: worker %d does not close it: %s", queue_id, worker.index, error.strerror)
        for xsk in self._arrived:
            xsk.close()
        self._arrived = []

    def _stop_timer(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None

    def programs(self) -> dict[int, tuple[int, str]]:
        """The processes are on another machine: nothing is known here."""
        return {}

    def counters(self) -> dict[str, int]:
        """For metrics."""
        try:
            found = self._opened.counters()
        except OSError as error:
            if not self._told:
                LOG.warning("no metrics of the XDP program: %s", error)
            self._told = True
            return {}
        return {name: getattr(found, name) for name in found.__slots__}

    def children(self) -> list[Child]:
        """The process that opens queues, where there is one."""
        return [self.opener.child] if self.opener else []

    def close(self) -> None:
        self._stop_timer()
        self._ask_no_more()
        self._kept_ends.close()
        if self.opener:
            self.opener.close()
        if self._first >= 0:
            os.close(self._first)
            self._first = -1
        self._opened.close()


def _taken(parts: Parts, interface: str) -> StoredQueues | DeviceSockets:
    """What came of the interface: its queues follow one by one. Whoever has the rights looks after it from then on.
    OSError: what came is not its program."""
    came, parts.maps = parts.maps, {}
    if "program" in came and sandbox.holds(*TO_LOOK_AFTER):
        return DeviceSockets(AdoptedProgram(interface, parts.program, came), [])
    stored = StoredQueues([], came.pop("counters"), came.pop("secrets"), parts.program)
    for fd in came.values():
        os.close(fd)
    return stored


def open_ahead(config: Config) -> None:
    """Opens the queues for the service that systemd starts next, which ends with the reason if that cannot be. OSError
    says what could not be opened, if there is no systemd."""
    try:
        store(_settings(config), _PATIENCE_S)
    except OSError as error:
        store_failure(error)


def _settings(config: Config, name: str = "") -> Settings:
    """`name`: what the interface is called now, if it was renamed."""
    proxy = config.proxy
    assert proxy.peer_mac.octets is not None
    return Settings(
        proxy.interface,
        tuple(queue_ids(config, name or proxy.interface)),
        proxy.peer_mac.octets,
        proxy.queue_options,
        proxy.ethertype,
        proxy.exclusive,
        Steering(proxy.steering).on(name or proxy.interface),
        proxy.flow_rules,
        proxy.zero_copy,
        proxy.napi_defer_us,
    )


def queue_ids(config: Config, interface: str) -> list[int]:
    """The queues to open. OSError ENODEV: no such interface; EINVAL: it does not have all that were requested."""
    count = receive_queues(interface)
    if config.proxy.queues == Queues.parse(ALL):
        return list(range(count))
    highest = max(last for _, last in config.proxy.queues.pairs)
    if highest >= count:
        problem = f"{interface} has queues 0-{count - 1}, not {config.proxy.queues} (see ethtool -l {interface})"
        raise OSError(errno.EINVAL, problem)
    return [number for number in range(count) if number in config.proxy.queues]


def _in_thread(what: Callable[..., Any], *arguments: Any) -> Any:
    """Runs what uses pyroute2 outside our event loop, because pyroute2 runs its own."""
    with ThreadPoolExecutor(1) as outside:
        return outside.submit(what, *arguments).result()


def _addresses(interface: str) -> list[str]:
    """The addresses assigned to an interface, without the link-local one that every interface gives itself."""
    return [found for found in _in_thread(_all_addresses, interface) if not ip_address(found).is_link_local]


def _all_addresses(interface: str) -> list[str]:
    with IPRoute() as route:
        return [str(a.get_attr("IFA_ADDRESS")) for a in route.get_addr(index=interface_index(interface))]
