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

import logging
import os
import socket
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

from xts_messages.queues.queue import split_state
from xts_messages.queues.queue_kinds import PROXY, QueueEnd

from xts_proxy._native import lib
from xts_proxy.config.config import Config
from xts_proxy.config.config_tenant import Identity
from xts_proxy.supervisor import children, python_cpus, quiet_start, sandbox
from xts_proxy.tenants.tenants import Account, Tenants
from xts_proxy.tls import keys, ulp_tls
from xts_proxy.workers import calling, ulp, understudy
from xts_proxy.workers.adopted_queue import close_all, dressed, resume_dead
from xts_proxy.workers.device_clock import DeviceClock
from xts_proxy.workers.given_queue import Left
from xts_proxy.workers.name_servers import Device
from xts_proxy.workers.ulp import Material
from xts_proxy.workers.understudy import Swept
from xts_proxy.workers.workers import DeadChannel, Owner, Relayed, Worker, dead_channel, dead_relayed, dead_session

Result = tuple[Any, list[int]]
#: Of a queue that is added: see on_add_channel().
_Whose = tuple[str, "Owner | None", bool, bool, "int | None", bool]
#: How long the answer to each method may be. A listing has a row for each of a million connections or less, a few
#: hundred bytes each; and it is the operator who asks for it.
_SHORT, _ROWS, _LISTING = 64 << 10, 4 << 20, 512 << 20
ANSWER_BYTES_MAX = {
    **dict.fromkeys(("pulse", "remove_channel", "drain", "stop", "trust", "set_device", "configure"), _SHORT),
    **dict.fromkeys(("add_channel", "keys_over", "stats", "tls_counts"), _SHORT),
    **dict.fromkeys(("give_resumption", "take_resumption"), _SHORT),
    **dict.fromkeys(("start", "prepare", "tenants", "filters", "closed", "log_lines", "queue_ids"), _ROWS),
    **dict.fromkeys(("channels", "connections", "move_take"), _LISTING),
    **dict.fromkeys(
        ("move_ask", "take_in", "forget_arrived", "resume_channel", "recover_channel", "renew_keys"), _SHORT
    ),
}


def run(
    sock: socket.socket, slow: socket.socket, control: socket.socket, key_connections: list[int], clock: DeviceClock
) -> None:
    """Runs in the forked process, until the supervisor has ended. Calls of `prepare` come over `slow`; over `control`
    the supervisor speaks to the understudy."""
    keys.connect(key_connections)
    clock.be_read()
    methods = Methods(slow, control, key_connections)
    calling.serve(sock, lambda name: getattr(methods, f"on_{name}"))


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A configuration that is not in force yet, its protocols and congestion controls."""

    config: Config
    protocols: Any
    material: Material


@dataclass(slots=True)
class Methods:
    """Each gets, as its first argument, the descriptors that came with the call."""

    slow: socket.socket
    control: socket.socket
    key_connections: list[int]
    #: of the process that goes on: what the one before has left
    swept: Swept | None = None
    workers: list[Worker] = field(default_factory=list)
    tenants: Tenants | None = None
    prepared: _Prepared | None = None
    # the current configuration, its protocols and congestion controls
    in_force: tuple[Config, Any, bytes] | None = None

    def on_start(self, came: list[int], config: Config, material: Material) -> Result:
        """Drops privileges and starts the workers. Returns lines to log, the number of the understudy (0: there is
        none, or it was there), and the workers' log descriptors."""
        self.tenants = Tenants(config, material.machine)
        understudy, notes = self._try_understudy(config)
        protocols, more = self._build(came, config, material)  # this may make the kernel load modules for TLS
        notes += more
        notes += ulp_tls.open_key_memory(config.proxy.key_memory_mib << 20, swaps=material.machine.swaps)
        lib.xts_ledger_keys()
        ulp_tls.go_on(protocols)
        done = self._confine(config) if self.swept is None else [_said(self.swept)]
        quiet_start.end()  # from here on there are threads
        self._start_preparing(config.proxy.cpus)
        sandbox.restrict_calls(parsers=bool(config.ulp.parser), started=False)
        self.in_force = (config, protocols, material.congestion_controls)
        for index in range(config.proxy.workers):
            numbers, controls = self.tenants.numbers(), material.congestion_controls
            ports = self.tenants.common_ports
            self.workers.append(
                Worker(index, config, numbers, protocols, controls, device=material.device, ports=ports)
            )
            self.workers[index].stats()  # once it answers, its thread has started and needs no further system calls
        python_cpus.leave_to_workers(config.proxy.cpus)  # only this thread: handshake threads may run anywhere
        done.append(sandbox.restrict_calls(parsers=bool(config.ulp.parser), started=True))
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
        if config.proxy.crashes_max == 0 or lib.xts_calls_sanitized():
            return 0

        def confine() -> None:
            sandbox.set_name("xts-understudy")
            quiet_start.end()
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
        return [*done, sandbox.give_up_files(network=True)]

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
        if self.in_force:
            ulp_tls.come_after(new.protocols, self.in_force[1])
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
            close_all(came)

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
                queue = undo.enter_context(dressed(queue, queue_id, secrets, repeating))
                known = Owner(*owner) if owner else None
                self.workers[index].add_channel(queue, queue_id, self._account(tenant), life_fd, known)
                undo.pop_all()
        finally:
            close_all(secrets)
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

    def on_keys_over(self, came: list[int], index: int, tenant: str, keys: list[int]) -> Result:
        assert self.tenants
        if account := self.tenants.accounts.get(tenant):  # else it has gone with another configuration
            self.workers[index].keys_over(account, keys)
        return None, []

    def on_give_resumption(self, came: list[int]) -> Result:
        """What TLS sessions are resumed from, for the process that takes over, into private memory. Returns how many
        bytes it has."""
        assert self.in_force
        (private_fd,) = came
        try:
            return ulp_tls.give_resumption(self.in_force[1], private_fd), []
        finally:
            close_all(came)

    def on_take_resumption(self, came: list[int], count: int) -> Result:
        """The same, that another process has written. Returns how many keys and sessions it was."""
        assert self.in_force
        (private_fd,) = came
        try:
            return ulp_tls.take_resumption(self.in_force[1], private_fd, count), []
        finally:
            close_all(came)

    def on_move_ask(  # noqa: PLR0917
        self, came: list[int], index: int, queue_id: int, within_ms: int, urgency: int, records: int
    ) -> Result:
        return self.workers[index].move_ask(queue_id, within_ms, urgency, records), []

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
            undo.callback(close_all, came)
            life_fd = came.pop() if life_shows else -1
            if life_shows:
                undo.callback(os.close, life_fd)
            secrets = [came.pop()] if headed else []
            undo.callback(close_all, secrets)
            queue = undo.enter_context(QueueEnd.unpack(geometry, tuple(came)).resume(PROXY, below))
            came.clear()  # the queue has these now
            queue = undo.enter_context(dressed(queue, queue_id, secrets, repeating, (of_heads, session)))
            of_host = ticket, epoch, known, Owner(*owner)
            self.workers[index].resume_channel(
                queue, queue_id, self._account(tenant), of_host, life_fd, relayed=relayed
            )
            undo.pop_all()
        close_all(secrets)
        return None, []

    def on_recover_channel(
        self,
        came: list[int],
        index: int,
        geometry: bytes,
        queue_id: int,
        whose: tuple[str, tuple[int, int] | None, bool, bool, int | None],
    ) -> Result:
        """As resume_channel, for a queue whose process has died. Returns how many sockets may go on."""
        tenant, owner, headed, life_shows, repeating = whose
        dead, worker = dead_channel(queue_id), self.workers[index]
        account = self._account_of(dead, tenant)
        ticket = _new_ticket()
        with ExitStack() as undo:
            undo.callback(close_all, came)
            life_fd = came.pop() if life_shows else -1
            if life_shows:
                undo.callback(os.close, life_fd)
            secrets = [came.pop()] if headed else []
            undo.callback(close_all, secrets)
            queue = undo.enter_context(resume_dead(QueueEnd.unpack(geometry, tuple(came)), queue_id))
            came.clear()  # the queue has these now
            left = dead.heads, dead_session(queue, queue_id, dead.epoch)
            queue = undo.enter_context(dressed(queue, queue_id, secrets, repeating, left, died=True))
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
        close_all(secrets)
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
