"""The agent's loop: endpoint and pools put together, without any privilege.

A process that connects to the endpoint gets a queue as file descriptors and needs nothing more. Afterwards the agent
only notices the end of the process, by the connection or by its pidfd, and releases the queue: nothing more arrives
there, frames that are still in the process's ring are sent, followed by GOODBYE for its epoch (privileged_opener.py).
Then the queue is closed and opened again for the next process (queue_pool.py).

Each interface has its own opener and pool. A process gets a queue of the interface with the smallest share in use,
unless it is related to an attached process (related_processes.py). Connections and listeners can be handed on only
within one proxy, so parents and children get queues of one interface while it has any.

When all queues are in use, a relay can still serve a process, if the operator has configured one (relay.py).

This process decides who may have how many queues. The openers do what needs privilege; this process talks with all
others and keeps no capability (`confine()`). A process that was forked first starts these and what else there is, and
starts it again when it has ended (starter.py). SECURITY.md has a table of all processes, and of what is lost with each.

Its end ends no process's queue: queues in use go on, and the next agent finds them. After a fault nothing else is
tidied up, either.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from xts_bpf.program import Owner
from xts_messages.attaching import attach_token
from xts_messages.attaching.attach_messages import RELATIVES_OVER
from xts_messages.attaching.attachments import Adopted, Attached, Grant, NotReady, Peer, Queues
from xts_messages.attaching.endpoint import Endpoint
from xts_messages.attaching.queue_refusals import Refusals
from xts_messages.machine.low_ports import first_port
from xts_messages.native import ffi, lib
from xts_messages.queues import rdma
from xts_messages.services import landlock, privilege
from xts_messages.services.log_format import about
from xts_messages.services.served_sockets import in_use, server_of
from xts_messages.services.service_manager import passed
from xts_messages.settings.config_mistakes import ConfigError
from xts_messages.terminal.printable import printable
from xts_messages.version import __version__
from xts_messages.wire.wire_table import RELAY_SELF, RELAY_SHIFT

from xts_agent import accounts, found_relay, privileged_opener, related_processes, relay_keeper
from xts_agent.attachment_secret import secret_of, set_secret
from xts_agent.config import RELOADABLE, AgentConfig, restart_needed
from xts_agent.host_figures import HostFigures
from xts_agent.over_words import OverWords
from xts_agent.pods import PREFIX, Pod, Pods
from xts_agent.queue_pool import Pool, Slot, State
from xts_agent.rdma_pool import RdmaPool
from xts_agent.relay import Relay, Relayed
from xts_agent.starter import Starter
from xts_agent.users import find_user

if TYPE_CHECKING:
    from xts_messages.services.readiness import Readiness

    from xts_agent.metrics_process import MetricsProcess

log = logging.getLogger("xts-agent")

#: A proxy that is not there is asked again after a second, and twice as long each time, up to this.
RDMA_RETRY_MAX_S = 8.0
#: Processes wait for so long where an opener has ended: the next one is started at once, and may be slow. So they do
#: where a queue is closed and opened again for them.
OPENER_WAIT_S = 10.0


class Agent:
    """Serves its interfaces while it is open. A context manager. OSError: what could not be opened, and why."""

    def __init__(
        self, config: AgentConfig, file: str = "", read_again: Callable[[], AgentConfig] | None = None
    ) -> None:
        """Forks a process: to be called before there are threads. `read_again`: for SIGHUP, reads the configuration
        from `file` again; ConfigError: it is wrong."""
        self.config = config
        self._file, self._read_again = file, read_again
        self._user = find_user(config.user)
        self._selector = selectors.EpollSelector()
        self.relays: list[Relay] = []
        self._keeper: socket.socket | None = None
        self.metrics: MetricsProcess | None = None
        self._host = HostFigures()
        self._words = OverWords()
        self._counted = {"started_at": time.time(), "attached": 0, "refused": 0, "released": 0}
        with ExitStack() as undo:
            undo.callback(self._selector.close)
            listener = passed().listener(config.endpoint, socket.SOCK_SEQPACKET)
            if listener is None and (server := server_of(config.endpoint, socket.SOCK_SEQPACKET)):
                raise in_use(config.endpoint, server)  # before anything is done to an interface
            Path(config.endpoint).parent.mkdir(parents=True, exist_ok=True)
            self._starter, (openers, keepers, metrics) = self._start_processes(listener is not None, undo)
            self._openers = len(openers)
            self.pools = self._open_pools(openers, undo)
            if keepers:
                self.relays = self._open_relays(keepers[0], undo)
            self._pods = Pods(config.pods) if config.pods else None
            if self._pods:
                undo.callback(self._pods.close)
            if metrics:
                from xts_agent.metrics_process import MetricsProcess  # this imports prometheus_client

                self.metrics = undo.enter_context(MetricsProcess(config, metrics[0], self.figures))
            self._refusals = Refusals(log.warning)
            self._issuer = attach_token.Issuer(attach_token.load_key(config.token_key)) if config.token_key else None
            self.per_uid_max = config.per_uid_limit(self.count)
            self.endpoint = undo.enter_context(
                Endpoint(
                    config.endpoint,
                    self._allocate,
                    self._attached,
                    self._released,
                    self._refused,
                    mode=config.endpoint_mode,
                    ended_keep_s=config.ended_keep_s,
                    over=self._words.add,
                    told_by=RELATIVES_OVER,
                    adopted=self._adopted,
                    queues=self._queues,
                    listener=listener,
                    warn=log.warning,
                )
            )
            for pool in self.pools:
                pool.open_first()  # what is lost of an earlier agent's queues is the endpoint's, too
            for name, _ in passed().items:
                log.warning("systemd passes the socket %s, which the configuration does not name", name)
            self._undo = undo.pop_all()

    def _start_processes(self, endpoint_stays: bool, undo: ExitStack) -> tuple[Starter, list[list[socket.socket]]]:
        """The starter, and the connections to openers, the keeper of relays, and that of metrics servers."""
        config = self.config
        if config.queue == "rdma":
            rdma.check_installed()
        opened = config.each() if config.queue == "afxdp" else []
        kinds = [[privileged_opener.role(one, endpoint_stays) for one in opened], [], []]
        if config.may_relay:
            kinds[1].append(relay_keeper.role(self._user, config))
        if config.metrics != "off":
            from xts_agent import metrics_process

            kinds[2].append(metrics_process.role(config, self._user))
        starter = undo.enter_context(Starter([role for kind in kinds for role in kind]))
        first = starter.first()
        for connection in first:
            undo.callback(connection.close)
        undo.callback(starter.stop)  # before these end
        connections = iter(first)
        return starter, [[next(connections) for _ in kind] for kind in kinds]

    def _open_pools(self, openers: list[socket.socket], undo: ExitStack) -> list[Pool]:
        if self.config.queue == "rdma":
            return [RdmaPool.of(one) for one in self.config.each()]
        return [self._open_pool(*one, undo) for one in zip(self.config.each(), openers, strict=True)]

    def _open_pool(self, config: AgentConfig, opener: socket.socket, undo: ExitStack) -> Pool:
        pool = Pool(config.name, opener, config.spares, self._watch, self._taken)
        undo.callback(pool.close)
        undo.callback(self._starter.stop)  # before this ends the opener
        return pool

    def _open_relays(self, keeper: socket.socket, undo: ExitStack) -> list[Relay]:
        """Opens one for each interface."""
        self._keeper = keeper
        undo.callback(self._close_keeper)
        made = []
        for config, pool in zip(self.config.each(), self.pools, strict=True):
            if most := config.relayed_limit(len(pool.slots)):
                unasked = config.relayed_max is None and config.queue == "afxdp"
                relay = Relay(pool, keeper, most, self._token, self._lost, self._watch, unasked=unasked)
                if config.queue == "rdma":
                    relay.retry_max_s = RDMA_RETRY_MAX_S
                undo.callback(relay.close)
                made.append(relay)
                self._meet(relay, config)
        return made

    def _meet(self, relay: Relay, config: AgentConfig) -> None:
        """Goes on with the relay of an agent before, if there is one. Relays that this one starts wait for the next."""
        path = found_relay.path_of(config.endpoint, config.name)
        found = found_relay.find(path)
        pool = relay.pool
        ours = found and (pool.is_of(found) if isinstance(pool, RdmaPool) else found.is_of(config))
        if found and ours and relay.take_up(found):
            return
        if found:
            found.close()
        relay.listener = found_relay.listen(path)

    def _close_keeper(self) -> None:
        if self._keeper:
            self._keeper.close()

    def _renew(self, number: int, connection: socket.socket) -> None:
        """The starter has started a process again."""
        if number < self._openers:
            self.pools[number].renew(connection)
        elif self._keeper and number == self._openers:
            self._keeper.close()
            self._keeper = connection
            for relay in self.relays:
                relay.renew(connection)
        elif self.metrics:
            self.metrics.renew(connection)

    @property
    def count(self) -> int:
        """The number of queues, of all interfaces, that are for processes."""
        return sum(map(self._for_processes, self.pools))

    def _for_processes(self, pool: Pool) -> int:
        """How many queues of an interface are for processes: all but the one that its relay has, or waits for."""
        return max(0, pool.count - sum(relay.takes_queue for relay in self.relays if relay.pool is pool))

    def confine(self) -> None:
        """Drops all privileges of this process, and all file access except reading /proc and Python's own files, and
        removing the endpoint. OSError: the process must not go on."""
        privilege.confine(user=self._user)
        made = [self.config.endpoint, *([self.metrics.unix_path or ""] if self.metrics else [])]
        removes = {str(Path(path).parent) for path in made if path}
        # the directory, because the file may be replaced by another one
        again = [str(Path(self._file).absolute().parent)] if self._file else []
        done = landlock.restrict(reads=("/proc", *again, *(path for path in sys.path if path)), removes=removes)
        log.info("sandbox: %s", done)

    def __enter__(self) -> Agent:
        return self

    def __exit__(self, kind: object, error: BaseException | None, tb: object) -> None:
        """After a fault nothing is tidied up."""
        if error is None:
            self.close()

    def close(self) -> None:
        """Removes the endpoint's file. Processes keep their queues, and the program stays: the next agent takes both
        over, and `xts-agent --detach` takes the program off."""
        self._starter.stop()
        self.endpoint.close(leave=True)
        for relay in self.relays:
            if not relay.control:
                found_relay.forget(found_relay.path_of(self.config.endpoint, relay.pool.interface))
        for pool in self.pools:
            pool.close(served=True)
        self._undo.close()

    def serve(self, stop_fd: int, readiness: Readiness) -> None:
        """Serves until stop_fd has another signal's number than that of SIGHUP, which is a reload. Sends signs of life
        meanwhile. OSError: it cannot go on."""
        alive_at = 0.0
        sources: list[Endpoint | Starter | MetricsProcess | Pods | int] = [self.endpoint, self._starter, stop_fd]
        sources += [self.metrics] if self.metrics else []
        sources += [self._pods] if self._pods else []
        for source in sources:
            self._selector.register(source, selectors.EVENT_READ, source)
        for pool in self.pools:
            self._watch(pool)
        while True:
            for relay in self.relays:
                relay.refill()
            answering: list[Pool | Relay | Pods] = [*self.pools, *self.relays, *([self._pods] if self._pods else [])]
            timed: list[Endpoint | Pool | Relay | Pods | OverWords] = [self.endpoint, self._words, *answering]
            limits = [t for t in (one.timeout_s() for one in timed) if t is not None]
            if readiness.alive_every_s:
                if time.monotonic() >= alive_at:
                    readiness.alive()
                    alive_at = time.monotonic() + readiness.alive_every_s
                limits.append(max(0.0, alive_at - time.monotonic()))
            ready = [key.data for key, _ in self._selector.select(min(limits) if limits else None)]
            if stop_fd in ready:
                if set(os.read(stop_fd, 64)) != {signal.SIGHUP}:
                    return
                self.reload(readiness)
            if self._starter in ready:
                for number, connection in self._starter.received():
                    self._renew(number, connection)
            if any([one.collect() for one in answering]):
                self.per_uid_max = self.config.per_uid_limit(self.count)  # an interface may have fewer queues now
                self.endpoint.retry()
            self.endpoint.process()
            self._words.say()
            if self.metrics and self.metrics in ready:
                self.metrics.answer()

    def reload(self, readiness: Readiness) -> None:
        """Reads the configuration again, and applies the keys that may change (config.RELOADABLE). If it is wrong or
        cannot be read, nothing changes. The service's status says what has not taken effect."""
        if self._read_again is None:
            return
        try:
            config = self._read_again()
        except ConfigError as error:
            for mistake in error.mistakes:
                log.warning("not reloaded: %s", mistake)
            readiness.ready(f"serving; the file is not in force: {error.mistakes[0]}")
            return
        waiting = restart_needed(self.config, config)
        readiness.ready("serving" + (f"; a restart is needed for {', '.join(waiting)}" if waiting else ""))
        for name in waiting:
            log.warning("%s has changed, which takes effect with a restart", name)
        keep = {name: getattr(config, name) for name in RELOADABLE}
        self.config = msgspec.structs.replace(self.config, **keep)
        self.per_uid_max = self.config.per_uid_limit(self.count)
        for pool in self.pools:
            pool.spares_wanted = self.config.spares
            pool.refill()
        self.endpoint.keep_ended(self.config.ended_keep_s)
        self.endpoint.retry()
        log.warning("the configuration is read again")

    def figures(self) -> dict[str, Any]:
        """The figures that metrics are made from (metric_catalogue.py)."""
        relayed = {relay.pool.interface: len(relay.served) for relay in self.relays}
        interfaces = [
            {
                "interface": pool.interface,
                "queues": {state.value: sum(slot.state is state for slot in pool.slots) for state in State},
                "kept": sum(slot.kept for slot in pool.slots),
                "serves": int(not pool.problem),
                "reattached": pool.state.reattached,
                "renewed": pool.state.renewed,
                "lacking": len(pool.state.lacking),
                "zero_copy": pool.state.zero_copy,
                "copy_fallbacks": pool.state.fallbacks,
                "drops": asdict(pool.look().drops),
                "relayed": relayed.get(pool.interface, 0),
            }
            for pool in self.pools
        ]
        users = self._host.by_user(self.endpoint.attachments)
        return {"version": __version__, "agent": self._counted, "interfaces": interfaces, "users": users}

    def _watch(self, source: Pool | Relay) -> None:
        """The process of a pool or a relay is another one, or has ended."""
        for key in list(self._selector.get_map().values()):
            if key.data is source:
                self._selector.unregister(key.fd)
        if source.fileno() >= 0:
            self._selector.register(source.fileno(), selectors.EVENT_READ, source)

    def _taken(self, slot: Slot) -> None:
        """A queue in use receives nothing any more: its process is told, and attaches again."""
        for attached in self.endpoint.attachments:
            if attached.tag is slot:
                self.endpoint.take_back(attached)
        for relay in self.relays:
            if relay.slot is slot:
                relay.end()

    def _lost(self, relayed: Relayed) -> None:
        """A process has lost its relay: ends its attachment, at both ends, so that it attaches again."""
        for attached in self.endpoint.attachments:
            if attached.tag is relayed:
                with contextlib.suppress(OSError):
                    attached.connection.shutdown(socket.SHUT_RDWR)

    def _queues(self) -> Iterator[Queues]:
        relayed = {relay.pool.interface: relay for relay in self.relays}
        for pool in self.pools:
            relay = relayed.get(pool.interface)
            served, most = (len(relay.served), relay.channels_max if pool.count else 0) if relay else (0, 0)
            used = sum(slot.uid is not None and slot is not (relay and relay.slot) for slot in pool.slots)
            state = pool.state
            copying = f"{pool.reach}: {relay.said}" if isinstance(pool, RdmaPool) and relay else state.copying
            counts = self._for_processes(pool), most, used + served, state.program_id
            yield Queues(
                pool.interface, *counts, pool.problem, state.how, len(state.lacking), copying, pool.look().drops
            )

    def _adopted(self) -> Iterator[Adopted]:
        for pool in self.pools:
            for queue_id, owner in pool.adopted():
                yield Adopted(queue_id, owner.epoch, owner.pid, owner.uid, _name_of(owner.pid), pool.interface)
        for relay in self.relays:
            for relayed in relay.served.values():
                if (known := relayed.before_us) and relay.slot:
                    whose = known.pid, known.uid, _name_of(known.pid), relay.pool.interface
                    yield Adopted(relay.slot.queue_id, known.epoch, *whose, relayed.number)

    # --- what the endpoint asks for --------------------------------------------------------------------

    def _allocate(self, peer: Peer, epoch: int) -> Grant:
        try:
            return self._allocate_now(peer, epoch)
        except NotReady as soon:
            for pool in self.pools:
                pool.look_again()
            if all(pool.has_opener for pool in self.pools) and peer.small_chunks:
                raise
            raise NotReady(max(soon.wait_s, OPENER_WAIT_S)) from None

    def _allocate_now(self, peer: Peer, epoch: int) -> Grant:
        problems = [pool.problem for pool in self.pools]
        if all(problems):
            raise OSError(errno.ENETDOWN, problems[0])
        pod = self._pods.of_process(peer.pid) if self._pods else None
        cgroup = self._cgroup(peer.pid, pod)
        if pod:
            accounts.check_pod(self.pools, self.relays, pod)
        elif self.config.pods_only:
            raise OSError(errno.EUSERS, f"process {peer.pid} is in no pod, and queues are for pods (pods_only)")
        try:
            if not pod:
                accounts.check_user(self.pools, peer.uid, self.per_uid_max, self.config.name)
            slot = self._take(peer, pod)
        except OSError as full:
            return self._grant_relayed(peer, pod, cgroup, epoch, full)
        try:
            return self._grant(slot, peer, cgroup, epoch)
        except OSError:
            slot.pool.put_back(slot)
            raise

    def _grant_relayed(self, peer: Peer, pod: Pod | None, cgroup: str, epoch: int, full: OSError) -> Grant:
        """Gives a place at a relay to a process that gets no queue of its own because of `full`."""
        if not self.relays:
            raise full
        if not pod and self.config.per_uid_max != 0:
            accounts.check_user_relayed(self.relays, peer.uid, full)
        home = self._home(peer, pod)
        relays = sorted(self.relays, key=lambda relay: (relay.pool is not home, len(relay.served)))
        problem = full
        for relay in relays:
            try:
                return relay.grant(peer, epoch, cgroup, pod.uid if pod else "")
            except OSError as error:
                problem = error
        raise OSError(problem.errno, f"{full.strerror}; {problem.strerror}")

    def _take(self, peer: Peer, pod: Pod | None) -> Slot:
        """A queue for a process. OSError EUSERS: there is none. NotReady: there may be one in a moment."""
        pools = sorted(self.pools, key=Pool.used)
        home = self._home(peer, pod)
        if home:
            pools.remove(home)
            pools.insert(0, home)
        for pool in pools:
            if slot := pool.take(peer.uid, pod.uid if pod else "", small_chunks=peer.small_chunks):
                return slot
            pool.refill()
            if pool is home and not pool.exhausted():
                raise NotReady
        if not all(pool.exhausted() for pool in pools) or any(pool.gone_unsaid() for pool in pools):
            raise NotReady
        raise OSError(errno.EUSERS, self._all_in_use())

    def _all_in_use(self) -> str:
        serving = [pool for pool in self.pools if not pool.problem]
        count = sum(map(self._for_processes, serving))
        names = ", ".join(pool.interface for pool in serving)
        if self.config.queue == "rdma":
            return f"over RDMA at {names} processes are served by the relay alone"
        why = [*(pool.problem for pool in self.pools), *(pool.state.lacking_reason for pool in serving)]
        return "; ".join([f"all {count} queues of {names} are in use", *filter(None, why)])

    def _home(self, peer: Peer, pod: Pod | None) -> Pool | None:
        """The pool of a process that this one is related to, or shares its pod with."""
        if len(self.pools) == 1:
            return None
        if pod:
            mates = (a.tag for a in self.endpoint.attachments if isinstance(a.tag, Slot | Relayed))
            return next((_pool_of(tag) for tag in mates if tag.pod == pod.uid), None)
        homes = {a.peer.pid: _pool_of(a.tag) for a in self.endpoint.attachments}
        found = related_processes.related(peer.pid, homes)
        return homes[found] if found else None

    def _grant(self, slot: Slot, peer: Peer, cgroup: str, epoch: int) -> Grant:
        reply = ffi.new("struct xts_attach_reply *")
        ffi.memmove(reply, slot.geometry, len(slot.geometry))
        needed = int(reply.rx_chunks * reply.chunk_bytes + reply.tx_slots * reply.slot_bytes)
        if peer.umem_bytes_max and peer.umem_bytes_max < needed:
            raise OSError(errno.ENOMEM, f"a queue here takes {needed} bytes of memory, not {peer.umem_bytes_max}")
        if peer.frame_window_max:
            window = min(int(reply.frame_window), peer.frame_window_max)
            reply.frame_window = max(window, int(lib.XTS_FRAME_WINDOW_MIN))
        secret = set_secret(reply, slot.pool.headed)
        token = self._token(reply, 0, (peer.pid, peer.uid), cgroup, epoch)
        reply.token_bytes = len(token)
        ffi.memmove(reply.token, token, len(token))
        return Grant(reply, slot.pool.admit(slot, Owner(epoch, peer.uid, peer.pid), secret), tag=slot)

    def _token(self, reply: Any, whose: int, process: tuple[int, int], cgroup: str, epoch: int) -> bytes:
        """The token that a process shows the proxy; b"" without a key. whose: 0: the process that has the queue; a
        number of the relay that has the queue; or RELAY_SELF. process: its pid and its user."""
        if not self._issuer:
            return b""
        own = whose in (0, RELAY_SELF)  # the queue's frames have a head, and those behind a relay have none
        secret = secret_of(reply) if own else 0
        return self._issuer.token(
            bytes(ffi.buffer(reply.local_mac)),
            bytes(ffi.buffer(reply.peer_mac)),
            queue_id=int(reply.queue_id) | whose << RELAY_SHIFT,
            uid=process[1],
            cgroup=cgroup,
            epoch=epoch,
            FIRST_PORT=first_port(*process).to_bytes(2),
            **({"SECRET": secret.to_bytes(8)} if secret else {}),
        )

    def _cgroup(self, pid: int, pod: Pod | None) -> str:
        """The cgroup of a process for its token."""
        if pod:
            return pod.cgroup
        path = attach_token.cgroup_of(pid)
        return "" if self._pods and path.startswith(PREFIX) else path  # no process can pretend to be a pod

    def _refused(self, peer: Peer, reason: str) -> None:
        self._counted["refused"] += 1
        self._refusals.note(peer, reason)

    def _attached(self, attached: Attached) -> None:
        self._counted["attached"] += 1
        peer, tag = attached.peer, attached.tag
        queue = f"{_pool_of(tag).interface}: queue {attached.queue_id}"
        if isinstance(tag, Relayed):
            queue += f", relayed as {tag.number}"
        extra = about(client_pid=peer.pid, uid=peer.uid, interface=_pool_of(tag).interface, queue=attached.queue_id)
        log.info("%s: %s (pid %d, uid %d)", queue, printable(peer.program) or "?", peer.pid, peer.uid, extra=extra)

    def _released(self, attached: Attached) -> None:
        self._counted["released"] += 1
        self._host.ended(attached)
        slot = attached.tag
        if isinstance(slot, Relayed):
            slot.relay.remove(slot)
            extra = about(client_pid=attached.peer.pid, uid=attached.peer.uid)
            log.info("relayed %d: pid %d has gone", slot.number, attached.peer.pid, extra=extra)
            return
        assert isinstance(slot, Slot)
        slot.pool.release(slot)
        extra = about(client_pid=attached.peer.pid, uid=attached.peer.uid, queue=slot.queue_id)
        log.info("queue %d: pid %d has gone", slot.queue_id, attached.peer.pid, extra=extra)


def _name_of(pid: int) -> str:
    """The kernel's name of a process; "" when it has ended."""
    try:
        return Path(f"/proc/{pid}/comm").read_text(errors="replace").rstrip("\n")
    except OSError:
        return ""


def _pool_of(tag: object) -> Pool:
    """The pool of the tag of a grant."""
    assert isinstance(tag, Slot | Relayed)
    return tag.pool if isinstance(tag, Slot) else tag.relay.pool
