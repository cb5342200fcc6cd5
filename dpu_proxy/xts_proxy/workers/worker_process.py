"""The workers' process. It reads what hosts and peers send, so it has hardly anything else: no files, no private keys,
no privilege except to bind to low ports, and only the system calls that it needs
(messages/native/common/allowed_syscalls.h).

Theory of operation. The supervisor forks it when queues are open, and from then on calls its methods (calling.py). The
first, `start`, drops all privileges and then starts the workers. The main thread carries out calls, one by one; the
workers' threads do not depend on it. Anything from a file comes with the call that needs it.

What takes long, because it grows with the number of certificates, is `prepare`. It has a connection and a thread of its
own, so that all other calls are answered meanwhile. It changes nothing; `configure` puts in force what it has made.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from xts_messages.native import lib as messages_lib
from xts_messages.queues import rdma
from xts_messages.queues.queue import Queue, split_state
from xts_messages.queues.queue_kinds import PROXY, QueueEnd

from xts_proxy._native import lib
from xts_proxy.config.config import Config
from xts_proxy.config.config_tenant import Identity
from xts_proxy.supervisor import children, python_cpus, sandbox
from xts_proxy.supervisor.children import Child
from xts_proxy.tenants.tenants import Account, Tenants
from xts_proxy.tls import keys, ulp_tls
from xts_proxy.workers import calling, ulp, understudy
from xts_proxy.workers.device_clock import DeviceClock
from xts_proxy.workers.name_servers import Device
from xts_proxy.workers.rdma_ends import RdmaEnds
from xts_proxy.workers.ulp import Material
from xts_proxy.workers.understudy import Swept
from xts_proxy.workers.workers import (
    DeadChannel,
    Moved,
    Owner,
    Relayed,
    Waits,
    Worker,
    dead_channel,
    dead_queue,
    dead_relayed,
)

Result = tuple[Any, list[int]]
#: Of a queue that is added: see on_add_channel().
_Whose = tuple[str, "Owner | None", bool, bool, "int | None", bool]


class Left(NamedTuple):
    """A queue that another process has left: its number, its state, the session of what repeats lost frames, and of its
    host the ticket, the epoch, and what is known of it (Moved)."""

    queue_id: int
    state: bytes
    session: bytes
    ticket: int
    epoch: int
    known: bytes
    relayed: tuple[Relayed, ...] = ()


class Frames(NamedTuple):
    """What frames have on the way to a queue's host. `secrets_fd`: the XDP program's map, where they have heads.
    `repeating`: XTS_ARQ_*, where some may be lost."""

    secrets_fd: int = -1
    repeating: int | None = None

    @property
    def repeats(self) -> bool:
        """Are lost frames sent again?"""
        return self.repeating == int(messages_lib.XTS_ARQ_PROXY)


PLAIN = Frames()
#: For calls that ask nothing of a worker: a process that does not answer in this time is stopped, or gets no CPU time.
_PULSE_S = 1.0

#: How long the answer to each method may be. A listing has a row for each of a million connections or less, a few
#: hundred bytes each; and it is the operator who asks for it.
_SHORT, _ROWS, _LISTING = 64 << 10, 4 << 20, 512 << 20
ANSWER_BYTES_MAX = {
    **dict.fromkeys(("pulse", "remove_channel", "drain", "stop", "trust", "set_device", "configure"), _SHORT),
    **dict.fromkeys(("add_channel", "stats", "tls_counts"), _SHORT),
    **dict.fromkeys(("rdma_device", "rdma_offer", "rdma_step", "rdma_adopt"), _SHORT),
    **dict.fromkeys(("start", "prepare", "tenants", "filters", "closed", "log_lines", "queue_ids"), _ROWS),
    **dict.fromkeys(("channels", "connections", "move_take"), _LISTING),
    **dict.fromkeys(
        ("move_ask", "take_in", "forget_arrived", "resume_channel", "recover_channel", "renew_keys"), _SHORT
    ),
}
#: A queue whose frames are on their way when its process dies: how often it is tried, and how long between.
_TRIES, _BETWEEN_S = 50, 0.001


def run(
    sock: socket.socket, slow: socket.socket, control: socket.socket, key_connections: list[int], clock: DeviceClock
) -> None:
    """Runs in the forked process, until the supervisor has ended. Calls of `prepare` come over `slow`; over `control`
    the supervisor speaks to the understudy."""
    keys.connect(key_connections)
    clock.be_read()
    host = _Host(slow, control, key_connections)
    calling.serve(sock, lambda name: getattr(host, f"on_{name}"))


def _dressed(
    queue: Queue, queue_id: int, secrets: list[int], repeating: int | None, left: tuple[bytes, bytes] = (b"", b"")
) -> Queue:
    """The queue with heads, if there is a map of secrets, and with XTS_ARQ_*, if lost frames may be repeated. `left`:
    state of the heads, and session of what repeats, where another process has left it. OSError: the queue is
    closed."""
    state, session = left
    with ExitStack() as undo:
        undo.enter_context(queue)
        if secrets:
            queue = undo.enter_context(queue.headed(number=queue_id, secrets_fd=secrets[0], state=state))
        if repeating is not None:
            queue = undo.enter_context(queue.repeating(repeating, session=session))
        undo.pop_all()
    return queue


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A configuration that is not in force yet, its protocols and congestion controls."""

    config: Config
    protocols: Any
    material: Material


@dataclass(slots=True)
class _Host:
    """The methods. Each gets, as its first argument, the descriptors that came with the call."""

    slow: socket.socket
    control: socket.socket
    key_connections: list[int]
    #: of the process that goes on: what the one before has left
    swept: Swept | None = None
    workers: list[Worker] = field(default_factory=list)
    tenants: Tenants | None = None
    prepared: _Prepared | None = None
    rdma: RdmaEnds = field(default_factory=RdmaEnds)
    # the current configuration, its protocols and congestion controls
    in_force: tuple[Config, Any, bytes] | None = None

    def on_start(self, came: list[int], config: Config, material: Material) -> Result:
        """Drops privileges and starts the workers. Returns lines to log, the number of the understudy (0: there is
        none, or it was there), and the workers' log descriptors."""
        self.tenants = Tenants(config, material.machine)
        understudy, notes = self._try_understudy(config)
        protocols, more = self._build(came, config, material)  # this may make the kernel load modules for TLS
        notes += more
        notes += ulp_tls.open_key_memory(config.proxy.key_memory_mib << 20)
        lib.xts_ledger_keys()
        over_rdma = config.proxy.queue == "rdma"
        if over_rdma:
            rdma.load()
        done = self._confine(config) if self.swept is None else [_said(self.swept)]
        self.rdma.open(config)  # after the last change of credentials
        self._start_preparing(config.proxy.cpus)
        sandbox.restrict_calls(parsers=bool(config.ulp.parser), started=False, over_rdma=over_rdma)
        self.in_force = (config, protocols, material.congestion_controls)
        for index in range(config.proxy.workers):
            numbers, controls = self.tenants.numbers(), material.congestion_controls
            ports = self.tenants.common_ports
            self.workers.append(
                Worker(index, config, numbers, protocols, controls, device=material.device, ports=ports)
            )
            self.workers[index].stats()  # once it answers, its thread has started and needs no further system calls
        python_cpus.leave_to_workers(config.proxy.cpus)  # only this thread: handshake threads may run anywhere
        done.append(sandbox.restrict_calls(parsers=bool(config.ulp.parser), started=True, over_rdma=over_rdma))
        return (done, notes, understudy), [worker.log_fd() for worker in self.workers]

    def _try_understudy(self, config: Config) -> tuple[int, list[tuple[int, str]]]:
        """Its number (0: there is none), and what to log."""
        try:
            return self._make_understudy(config), []
        except OSError as error:
            why = error.strerror or str(error)
            return 0, [(logging.WARNING, f"the proxy ends when its workers do (xts-understudy: {why})")]

    def _make_understudy(self, config: Config) -> int:
        """Before this process has read anything. Once: the process that it makes has it already. OSError: it cannot be
        made."""
        if self.swept is not None:
            return 0
        sandbox.reserve_descriptors()
        if config.proxy.crashes_max == 0 or lib.xts_calls_sanitized() or config.proxy.queue == "rdma":
            return 0  # RDMA: rdma_channels.py, survives()

        def confine() -> None:
            sandbox.set_name("xts-understudy")
            self._confine(config)
            sandbox.restrict_calls(parsers=bool(config.ulp.parser), started=False, understudy=True)

        ulp.look_at_machine(config)
        return understudy.make(self.control, confine, self._go_on)

    def _go_on(self, sock: socket.socket, slow: socket.socket) -> None:
        """Runs in the process that the understudy makes."""
        sandbox.set_name("xts-workers")
        children.bound_to_parent()
        keys.go_on()
        ours = [2, self.control.fileno(), sock.fileno(), slow.fileno(), *self.key_connections]
        self.swept = understudy.sweep(ours)
        self.slow = slow
        calling.serve(sock, lambda name: getattr(self, f"on_{name}"))

    def _confine(self, config: Config) -> list[str]:
        done = sandbox.confine(config.proxy.user, sandbox.of_workers(), config.proxy.core_dumps)
        children.bound_to_parent()
        return [*done, sandbox.give_up_files(network=True, over_rdma=config.proxy.queue == "rdma")]

    def _start_preparing(self, cpus: Sequence[int]) -> None:
        """Starts the thread of `prepare`: it has the restrictions of this one, and those that come. Python begins a
        thread with system calls that are forbidden soon."""
        has_begun = threading.Event()

        def run() -> None:
            python_cpus.leave_to_workers(cpus)
            has_begun.set()
            calling.serve(self.slow, {"prepare": self.on_prepare}.__getitem__)

        threading.Thread(target=run, daemon=True).start()
        has_begun.wait()

    def on_prepare(self, came: list[int], config: Config, material: Material) -> Result:
        """Builds what `configure` takes. In a thread of its own. Returns lines to log. OSError: there is a mistake."""
        self.prepared = None
        protocols, notes = self._build(came, config, material)
        self.prepared = _Prepared(config, protocols, material)
        return notes, []

    def on_configure(self, came: list[int], device: Device) -> Result:
        """Puts what was prepared in force, with the device as it is now. OSError: nothing has changed."""
        new, self.prepared = self.prepared, None
        assert self.tenants and new
        self.tenants.configure(new.config, new.material.machine)
        self.in_force = (new.config, new.protocols, new.material.congestion_controls)
        return self.on_set_device(came, device)

    def on_set_device(self, came: list[int], device: Device) -> Result:
        assert self.tenants and self.in_force
        config, protocols, controls = self.in_force
        for worker in self.workers:
            numbers, ports = self.tenants.numbers(), self.tenants.common_ports
            worker.configure(config, numbers, protocols, controls, device=device, ports=ports)
        return None, []

    def _build(self, came: list[int], config: Config, material: Material) -> tuple[Any, list[tuple[int, str]]]:
        assert self.tenants
        tls = replace(material.tls, numbers=self.tenants.numbers(config))
        try:
            return ulp.build(config, replace(material, programs=came, tls=tls))
        finally:
            _close(came)

    def on_add_channel(
        self,
        came: list[int],
        index: int,
        geometry: bytes,
        queue_id: int,
        whose: _Whose,
    ) -> Result:
        """Behind the descriptors of the queue: the map of secrets, if whose[2], and the one that tells of the peer's
        death, if whose[3]. whose[4]: XTS_ARQ_*, whether lost frames are repeated, where they may be. whose[5]: its
        process has ended."""
        tenant, owner, headed, life_shows, repeating, is_orphan = whose
        life_fd = came.pop() if life_shows else -1
        secrets = [came.pop()] if headed else []
        try:
            with ExitStack() as undo:
                if life_shows:
                    undo.callback(os.close, life_fd)
                queue = undo.enter_context(QueueEnd.unpack(geometry, tuple(came)).adopt_or_close(PROXY, is_orphan))
                queue = undo.enter_context(_dressed(queue, queue_id, secrets, repeating))
                known = Owner(*owner) if owner else None
                self.workers[index].add_channel(queue, queue_id, self._account(tenant), life_fd, known)
                undo.pop_all()
        finally:
            _close(secrets)
        return None, []

    def on_rdma_device(self, came: list[int]) -> Result:
        return self.rdma.device, []

    def on_rdma_offer(self, came: list[int], number: int) -> Result:
        return self.rdma.offer(number), []

    def on_rdma_step(self, came: list[int], number: int, step: bytes) -> Result:
        self.rdma.step(number, step)
        return None, []

    def on_rdma_adopt(self, came: list[int], index: int, number: int, tenant: str) -> Result:
        """The descriptor is the life of the connection, for the queue and for the worker."""
        with ExitStack() as undo:
            undo.callback(_close, came)
            queue = undo.enter_context(self.rdma.adopt(number, came[0]))
            self.workers[index].add_channel(queue, number, self._account(tenant), came[0])
            undo.pop_all()
        return None, []

    def _account(self, tenant: str) -> Account:
        assert self.tenants
        return self.tenants.accounts[tenant]

    def on_tenants(self, came: list[int]) -> Result:
        assert self.tenants
        return {name: account.figures() for name, account in self.tenants.accounts.items()}, []

    def on_trust(self, came: list[int], index: int, key: bytes, rules: list[tuple[Identity, str]]) -> Result:
        self.workers[index].trust(key, [(identity, self._account(tenant)) for identity, tenant in rules])
        return None, []

    def on_pulse(self, came: list[int], index: int) -> Result:
        return self.workers[index].pulse(), []

    def on_remove_channel(self, came: list[int], index: int, queue_id: int) -> Result:
        self.workers[index].remove_channel(queue_id)
        return None, []

    def on_move_ask(self, came: list[int], index: int, queue_id: int, within_ms: int, urgency: int) -> Result:
        return self.workers[index].move_ask(queue_id, within_ms, urgency), []

    def on_move_take(self, came: list[int], index: int, queue_id: int) -> Result:
        (private_fd,) = came
        found = self.workers[index].move_take(queue_id, private_fd)
        return (tuple(found[0]), calling.Handed(found[1])) if found else (None, [])

    def on_take_in(self, came: list[int], index: int, tenant: str, data: bytes) -> Result:
        taken = self.workers[index].take_in(self._account(tenant), data, came)
        came.clear()
        return taken, []

    def on_forget_arrived(self, came: list[int], index: int) -> Result:
        self.workers[index].forget_arrived()
        return None, []

    def on_resume_channel(
        self, came: list[int], index: int, geometry: bytes, whose: tuple[str, Owner, bool, bool, int | None], left: Left
    ) -> Result:
        """As add_channel, for a queue that another process has left."""
        tenant, owner, headed, life_shows, repeating = whose
        queue_id, state, session, ticket, epoch, known, rows = left
        relayed = [(row, self._account(row.tenant)) for row in (Relayed(*row) for row in rows)]
        below, of_heads = split_state(state) if headed else (state, b"")
        with ExitStack() as undo:
            undo.callback(_close, came)
            life_fd = came.pop() if life_shows else -1
            if life_shows:
                undo.callback(os.close, life_fd)
            secrets = [came.pop()] if headed else []
            undo.callback(_close, secrets)
            queue = undo.enter_context(QueueEnd.unpack(geometry, tuple(came)).resume(PROXY, below))
            came.clear()  # the queue has these now
            queue = undo.enter_context(_dressed(queue, queue_id, secrets, repeating, (of_heads, session)))
            of_host = ticket, epoch, known, Owner(*owner)
            self.workers[index].resume_channel(
                queue, queue_id, self._account(tenant), of_host, life_fd, relayed=relayed
            )
            undo.pop_all()
        _close(secrets)
        return None, []

    def on_recover_channel(
        self,
        came: list[int],
        index: int,
        geometry: bytes,
        queue_id: int,
        whose: tuple[str, tuple[int, int] | None, bool],
    ) -> Result:
        """As resume_channel, for a queue whose process has died. Returns how many sockets may go on."""
        tenant, owner, life_shows = whose
        ends = QueueEnd.unpack(geometry, tuple(came[: len(came) - life_shows]))
        dead, worker = dead_channel(queue_id), self.workers[index]
        account = self._account_of(dead, tenant)
        ticket = _new_ticket()
        with ExitStack() as undo:
            undo.callback(_close, came)
            queue = undo.enter_context(_resume_dead(ends, queue_id))
            life_fd = came.pop() if life_shows else -1
            undo.pop_all()
        with ExitStack() as undo:
            if life_shows:
                undo.callback(os.close, life_fd)
            undo.enter_context(queue)
            sockets = worker.recover(queue, account, queue_id, ticket) if dead.epoch else 0
            known, relayed = dead.known, []
            for one in dead_relayed(queue_id) if dead.epoch else []:
                row = Relayed(one.number, "", _new_ticket(), one.epoch, one.owner)
                relayed.append((row, self._account_of(one, tenant)))
                known += one.known
                sockets += worker.recover(queue, relayed[-1][1], queue_id, row.ticket, one.number)
            of_host = ticket, dead.epoch, known, Owner(*(owner or dead.owner))
            worker.resume_channel(queue, queue_id, account, of_host, life_fd, relayed=relayed, died=True)
            undo.pop_all()
        return sockets, []

    def _account_of(self, dead: DeadChannel, tenant: str) -> Account:
        """Its tenant's, or, if there is none of this name any more, the queue's."""
        assert self.tenants
        return self.tenants.accounts.get(dead.tenant) or self._account(tenant)

    def on_renew_keys(self, came: list[int]) -> Result:
        """There is another key process: these are the connections to it."""
        keys.renew(came)
        return None, []

    def on_drain(self, came: list[int], index: int) -> Result:
        self.workers[index].drain()
        return None, []

    def on_stop(self, came: list[int], index: int, error: int) -> Result:
        self.workers[index].stop(error)
        return None, []

    def on_stats(self, came: list[int], index: int) -> Result:
        return self.workers[index].stats(), []

    def on_channels(self, came: list[int], index: int) -> Result:
        return self.workers[index].channels(), []

    def on_queue_ids(self, came: list[int], index: int) -> Result:
        return self.workers[index].queue_ids(), []

    def on_connections(self, came: list[int], index: int) -> Result:
        return self.workers[index].connections(), []

    def on_closed(self, came: list[int], index: int) -> Result:
        return self.workers[index].closed(), []

    def on_log_lines(self, came: list[int], index: int, lines_max: int) -> Result:
        return self.workers[index].log_lines(lines_max), []

    def on_filters(self, came: list[int]) -> Result:
        return ulp.filter_totals(), []

    def on_tls_counts(self, came: list[int]) -> Result:
        return ulp_tls.counts(), []


def _said(swept: Swept) -> str:
    return f"{swept.kept} sockets of the process before may go on, {swept.reset} connections were reset"


def _new_ticket() -> int:
    return int.from_bytes(os.urandom(8), "little") | 1 << 63  # no key is 0


def _resume_dead(ends: QueueEnd, queue_id: int) -> Queue:
    for left in reversed(range(_TRIES)):
        try:
            return ends.resume_dead(PROXY, *dead_queue(queue_id))
        except BlockingIOError:
            if not left:
                raise
            threading.Event().wait(_BETWEEN_S)  # no time.sleep(): its system call is forbidden here
    raise AssertionError


def _close(descriptors: list[int]) -> None:
    while descriptors:
        os.close(descriptors.pop())


class WorkerProcess:
    """The process, as the supervisor sees it. `close()` ends it."""

    def __init__(self, key_connections: list[int], clock: DeviceClock) -> None:
        """Forks it, with connections to the key process."""
        self._control, its_control = socket.socketpair()
        its, its_slow = self._make_sockets()
        with its, its_slow, its_control:
            kept = [its.fileno(), its_slow.fileno(), its_control.fileno(), *key_connections]
            self.child = children.fork(
                "xts-workers", kept, lambda: run(its, its_slow, its_control, key_connections, clock)
            )
        self._make_callers()
        self.workers: list[RemoteWorker] = []
        self.understudy: Child | None = None

    def _make_sockets(self) -> tuple[socket.socket, socket.socket]:
        """The ends of the process that is about to be made."""
        self._sock, its = socket.socketpair()
        self._slow, its_slow = socket.socketpair()
        return its, its_slow

    def _make_callers(self) -> None:
        self._caller = calling.Caller(self._sock, ANSWER_BYTES_MAX, self.child.fileno())
        self._slow_caller = calling.Caller(self._slow, ANSWER_BYTES_MAX, self.child.fileno())

    def close(self) -> None:
        """Harmless when repeated."""
        for worker in self.workers:
            worker.close()
        self._sock.close()
        self.child.close()
        if self.understudy:
            self.understudy.close()
        self._slow.close()
        self._control.close()

    def succeed(self, config: Config, material: Material) -> tuple[list[str], list[tuple[int, str]]]:
        """The process has ended, and another one goes on, made by the understudy; the RemoteWorkers are those of that
        one from now on. As start(). OSError: there is none."""
        if not self.understudy or self.understudy.ended():
            raise OSError(errno.ESRCH, "there is no understudy")
        self._sock.close()
        self._slow.close()
        its, its_slow = self._make_sockets()
        with its, its_slow:
            pid = understudy.ask(self._control, (its, its_slow))
        self.child.close()
        self.child = children.adopt("xts-workers", pid)
        self._make_callers()
        before = self.workers
        said = self.start(config, material)
        for worker, made in zip(before, self.workers, strict=True):
            worker.becomes(made)
        self.workers = before
        return said

    @property
    def silent_s(self) -> float:
        """For how long the last call has been unanswered; 0.0: it was answered."""
        return time.monotonic() - self._caller.silent_since if self._caller.silent_since else 0.0

    def call(self, method: str, *arguments: Any, descriptors: list[int] | None = None, **how: Any) -> Any:
        result, came = self._ask(self._caller, method, *arguments, descriptors=descriptors or [], **how)
        _close(came)
        return result

    def call_for_descriptors(self, method: str, *arguments: Any, **how: Any) -> tuple[Any, list[int]]:
        """As call(), with the descriptors that the method hands over."""
        return self._ask(self._caller, method, *arguments, **how)

    def _ask(self, caller: calling.Caller, method: str, *arguments: Any, **how: Any) -> tuple[Any, list[int]]:
        try:
            return caller.call(method, *arguments, **how)
        except OSError:
            if caller.broken:
                self.child.kill()  # which ends the proxy, in order
            raise

    def start(self, config: Config, material: Material) -> tuple[list[str], list[tuple[int, str]]]:
        """Starts the workers. Returns which privileges were dropped, and other lines to log. OSError: why it failed."""
        (done, notes, pid), came = self._ask(
            self._caller,
            "start",
            config,
            replace(material, programs=[]),
            descriptors=material.programs,
            patience_s=None,
        )
        if len(came) != config.proxy.workers:
            _close(came)
            raise OSError(errno.EPROTO, "the workers' process did not start all of them")
        self.workers = [RemoteWorker(self, index, log_fd) for index, log_fd in enumerate(came)]
        if pid:
            self.understudy = children.adopt("xts-understudy", int(pid))
        return done, notes

    def renew_keys(self, connections: Sequence[socket.socket]) -> None:
        """There is another key process."""
        self.call("renew_keys", descriptors=[connection.fileno() for connection in connections])

    def prepare(self, config: Config, material: Material) -> list[tuple[int, str]]:
        """Builds a configuration that `configure()` will put in force. Returns lines to log. OSError: there is a
        mistake. May be called from another thread, and takes as long as it takes."""
        (notes), came = self._ask(
            self._slow_caller,
            "prepare",
            *(config, replace(material, programs=[])),
            descriptors=material.programs,
            patience_s=None,
        )
        _close(came)
        return [(int(level), str(text)) for level, text in notes]

    def configure(self, device: Device) -> None:
        """Puts what was prepared in force, in all workers. OSError: they do not answer."""
        self.call("configure", device)

    def set_device(self, device: Device) -> None:
        """Gives all workers the new device, with the current configuration. OSError: they do not answer."""
        self.call("set_device", device)

    def tenants(self) -> dict[str, dict[str, dict[str, int]]]:
        """Account.figures() of each tenant, by its name."""
        return dict(self.call("tenants"))

    def filters(self) -> dict[str, dict[str, int]]:
        """ulp.filter_totals()."""
        return dict(self.call("filters"))

    def tls_counts(self) -> dict[str, int]:
        """struct xts_tls_counts."""
        return dict(self.call("tls_counts"))


class RemoteWorker:
    """A worker of that process, with the interface of workers.Worker."""

    def __init__(self, process: WorkerProcess, index: int, log_fd: int) -> None:
        self.index = index
        self._process = process
        self._log_fd = log_fd

    def becomes(self, other: RemoteWorker) -> None:
        """Its process has died, and it is this one of the next process from now on."""
        self.close()
        self._log_fd, other._log_fd = other._log_fd, -1

    def close(self) -> None:
        """Closes its log descriptor."""
        if self._log_fd >= 0:
            os.close(self._log_fd)
            self._log_fd = -1

    def add_channel(
        self,
        end: QueueEnd,
        queue_id: int,
        tenant: Account,
        life_fd: int = -1,
        owner: Owner | None = None,
        *,
        frames: Frames = PLAIN,
        is_orphan: bool = False,
    ) -> None:
        """Gives the worker the proxy's end of a queue of any kind, and the descriptor whose hang-up means the peer's
        death, where one does; the caller still has to close all of them. `owner`: as for workers.Worker. `is_orphan`:
        its process has ended (QueueEnd.adopt_orphan())."""
        more = [fd for fd in (frames.secrets_fd, life_fd) if fd >= 0]
        whose = tenant.name, owner, frames.secrets_fd >= 0, life_fd >= 0, frames.repeating, is_orphan
        arguments = self.index, end.pack(), queue_id, whose
        self._process.call("add_channel", *arguments, descriptors=[*end.descriptors, *more])

    def rdma_device(self) -> str:
        """The name of the device of queues over RDMA; "": there is none."""
        return str(self._process.call("rdma_device"))

    def rdma_offer(self, number: int) -> int:
        """The number of a queue pair for the next connection of a queue. OSError EBUSY: the last is not over."""
        return int(self._process.call("rdma_offer", number))

    def rdma_step(self, number: int, step: bytes) -> None:
        """Takes it to a state (queues/rdma_cm.py)."""
        self._process.call("rdma_step", number, step)

    def rdma_adopt(self, number: int, tenant: Account, life_fd: int) -> None:
        """Gives the worker the queue, which is connected. `life_fd`, which hangs up at its end, stays the caller's."""
        self._process.call("rdma_adopt", self.index, number, tenant.name, descriptors=[life_fd])

    def trust(self, key: bytes, rules: list[tuple[Identity, Account]]) -> None:
        """Sets the key for tokens, and the rules that map them to tenants (workers.Worker.trust())."""
        named = [(identity, account.name) for identity, account in rules]
        self._process.call("trust", self.index, key, named)

    def pulse(self) -> tuple[float, str]:
        """For how long its current round has lasted, in seconds, and what it is doing. This works also for a worker
        that hangs."""
        try:
            busy_s, what = self._process.call("pulse", self.index, patience_s=_PULSE_S)
        except TimeoutError:
            return self._process.silent_s, "its process does not answer"
        return float(busy_s), str(what)

    def remove_channel(self, queue_id: int) -> None:
        self._process.call("remove_channel", self.index, queue_id)

    def move_ask(self, queue_id: int, within_ms: int, urgency: int) -> tuple[int, Waits]:
        """As workers.Worker.move_ask()."""
        error, waits = self._process.call("move_ask", self.index, queue_id, within_ms, urgency)
        return int(error), dict(waits)

    def move_take(self, queue_id: int, private_fd: int) -> tuple[Moved, list[int]] | None:
        """As workers.Worker.move_take()."""
        result, came = self._process.call_for_descriptors("move_take", self.index, queue_id, descriptors=[private_fd])
        if result is None:
            return None
        relayed = tuple(Relayed(*row) for row in result[-1])
        return Moved(*result[:-1])._replace(relayed=relayed), came

    def take_in(self, tenant: Account, data: bytes, descriptors: list[int]) -> int:
        """As workers.Worker.take_in(), with descriptors that stay the caller's."""
        return int(self._process.call("take_in", self.index, tenant.name, data, descriptors=descriptors))

    def forget_arrived(self) -> None:
        """As workers.Worker.forget_arrived()."""
        self._process.call("forget_arrived", self.index)

    def resume_channel(
        self,
        end: QueueEnd,
        whose: tuple[Account, Owner],
        left: Left,
        life_fd: int = -1,
        *,
        frames: Frames = PLAIN,
    ) -> None:
        """As add_channel(), for a queue that another process has left."""
        tenant, owner = whose
        more = [fd for fd in (frames.secrets_fd, life_fd) if fd >= 0]
        known = tenant.name, owner, frames.secrets_fd >= 0, life_fd >= 0, frames.repeating
        arguments = self.index, end.pack(), known, left
        self._process.call("resume_channel", *arguments, descriptors=[*end.descriptors, *more])

    def recover_channel(
        self, end: QueueEnd, queue_id: int, whose: tuple[Account, Owner | None], life_fd: int = -1
    ) -> int:
        """As resume_channel(), for a queue whose process has died. Returns how many sockets may go on."""
        tenant, owner = whose
        more = [life_fd] if life_fd >= 0 else []
        arguments = self.index, end.pack(), queue_id, (tenant.name, owner, life_fd >= 0)
        return int(self._process.call("recover_channel", *arguments, descriptors=[*end.descriptors, *more]))

    def drain(self) -> None:
        self._process.call("drain", self.index)

    def stop(self, error: int) -> None:
        self._process.call("stop", self.index, error)

    def stats(self) -> dict[str, Any]:
        return dict(self._process.call("stats", self.index))

    def channels(self) -> list[dict[str, Any]]:
        return list(self._process.call("channels", self.index))

    def queue_ids(self) -> list[int]:
        return [int(number) for number in self._process.call("queue_ids", self.index)]

    def connections(self) -> list[dict[str, Any]]:
        return list(self._process.call("connections", self.index))

    def closed(self) -> list[dict[str, Any]]:
        return list(self._process.call("closed", self.index))

    def log_fd(self) -> int:
        return self._log_fd

    def log_lines(self, lines_max: int) -> list[str]:
        return [str(line) for line in self._process.call("log_lines", self.index, lines_max)]
