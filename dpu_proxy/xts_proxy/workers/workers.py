"""Worker threads, from Python: native/worker/worker.h for the rest of it. Figures are dicts of its structs' fields."""

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from xts_messages.native import ffi as messages_ffi
from xts_messages.queues.queue import Queue
from xts_messages.wire import ulps
from xts_messages.wire.wire_table import RELAYED_MAX

from xts_proxy._native import ffi, lib
from xts_proxy.config.config import Config
from xts_proxy.config.config_tenant import Identity
from xts_proxy.device import interfaces
from xts_proxy.status.connection_rows import endpoint_text, rows_of
from xts_proxy.tenants.tenants import Account
from xts_proxy.workers import name_servers, policy_table

LINK_STATES = ("opening", "up", "down")
_LOG_LINE_BYTES = 512
_CLOSED_MAX = 512
_Rows = TypeVar("_Rows")
_NO_DEVICE = name_servers.Device()


#: What hosts may choose with TCP_CONGESTION: read together with the configuration, because workers open no files.
_CONGESTION_CONTROLS = Path("/proc/sys/net/ipv4")


def allowed_congestion_controls() -> bytes:
    """The names that hosts may give, and behind a semicolon those that exist: sockopt.h."""
    try:
        allowed, available = (
            (_CONGESTION_CONTROLS / f"tcp_{which}_congestion_control").read_bytes()
            for which in ("allowed", "available")
        )
    except OSError:
        return b""
    return allowed + b";" + available


#: enum xts_worker_phase
_PHASES = (
    "asleep",
    "messages of queue {queue}",
    "events of queue {queue}",
    "sending to queue {queue}",
    "a request of the supervisor",
    "timers and orphans",
)


def _check(result: int, what: str) -> int:
    if result < 0:
        raise OSError(-result, f"{what}: {os.strerror(-result)}")
    return result


def _bounds() -> dict[int, str]:
    """The bounds of histograms, in seconds, as text: "0.0001" and so on, the last one "+Inf"."""
    bounds_us = itertools.takewhile(bool, map(lib.xts_histogram_bound_us, itertools.count()))
    return dict(enumerate([*(f"{bound_us / 1e6:g}" for bound_us in bounds_us), "+Inf"]))


#: Arrays of counters: the names of their indices.
_ARRAYS: dict[str, dict[int, str]] = {
    "counts": _bounds(),
    "ulp_pushed": {ulp.number: ulp.name.lower() for ulp in ulps.ULPS},
    "ulp_faults": {number: name.lower() for name, (number, _, _) in ulps.FAULTS.items()},
}


def _figures(struct: Any) -> dict[str, Any]:
    """A struct of integers, of such structs, of counters by name, and of texts, as a dict."""
    return {name: _figure(name, field.type.kind, getattr(struct, name)) for name, field in ffi.typeof(struct).fields}


def _figure(name: str, kind: str, value: Any) -> Any:
    if kind == "struct":
        return _figures(value)
    if kind != "array":
        return int(value)
    if name in _ARRAYS:
        return {label: int(value[index]) for index, label in _ARRAYS[name].items()}
    return ffi.string(value).decode()


class Owner(NamedTuple):
    """Of a process: its user, and the first port that it may bind to (struct xts_owner)."""

    uid: int
    first_port: int


class Relayed(NamedTuple):
    """A channel behind a relay, which goes with the relay's queue: struct xts_relayed."""

    number: int
    tenant: str
    ticket: int
    epoch: int
    owner: tuple[int, int]


class Moved(NamedTuple):
    """A piece of what a channel hands over: struct xts_moved."""

    tenant: str
    data: bytes  # records; of the last piece, the state of the queue
    session: bytes  # of the last piece: of a queue that repeats lost frames
    sockets: int
    reset: int
    last: bool
    ticket: int
    epoch: int
    known: bytes  # of the last piece: what the channel knows of its host
    owner: tuple[int, int]
    private: bool  # the descriptor that came with the request has what only workers read, and goes behind the others
    relayed: tuple[Relayed, ...] = ()  # of the last piece of a relay's queue


#: How urgent it is to hand a channel over, at most: its epoch ends.
ENDS = int(lib.XTS_MOVE_END)

#: What a channel waits for that cannot move yet: reasons, and of how many sockets.
Waits = dict[str, int]


class DeadChannel(NamedTuple):
    """What the ledger says of a channel whose process has died: struct xts_dead_channel. `epoch` 0: its host had none,
    or cannot go on."""

    epoch: int
    tenant: str
    owner: tuple[int, int]
    known: bytes
    number: int
    heads: bytes  # of its frames


def _dead(out: Any) -> DeadChannel:
    tenant = ffi.string(out.tenant).decode(errors="replace")
    known = bytes(ffi.buffer(out.known, out.known_bytes))
    owner, heads = (int(out.owner.uid), int(out.owner.first_port)), bytes(out.heads)
    return DeadChannel(int(out.epoch), tenant, owner, known, int(out.number), heads)


def dead_channel(queue_id: int) -> DeadChannel:
    """In the process that goes on."""
    out = ffi.new("struct xts_dead_channel *")
    lib.xts_ledger_channel(queue_id, out)
    return _dead(out)


def dead_relayed(queue_id: int) -> list[DeadChannel]:
    """The same of the channels behind a relay, each number once."""
    out, at = ffi.new("struct xts_dead_channel *"), 0
    found: dict[int, DeadChannel] = {}
    while len(found) < RELAYED_MAX and (at := int(lib.xts_ledger_relayed(queue_id, at, out))):
        found.setdefault(int(out.number), _dead(out))
    return list(found.values())


def dead_queue(queue_id: int) -> tuple[int, int]:
    """Where the struct of its queue is, and how long that may be: for QueueEnd.resume_dead()."""
    return int(ffi.cast("uintptr_t", lib.xts_ledger_queue(queue_id))), int(lib.xts_ledger_queue_bytes())


def dead_session(queue: Queue, queue_id: int, epoch: int) -> bytes:
    """What repeated its lost frames, where something did. `queue`: that goes on for it."""
    of_queue = int(ffi.cast("uintptr_t", lib.xts_ledger_queue(queue_id)))
    session = int(ffi.cast("uintptr_t", lib.xts_ledger_session(queue_id)))
    if not of_queue or not session:
        return b""
    return queue.dead_session(of_queue, session, int(lib.xts_ledger_session_bytes()), epoch)


class Worker:
    """One worker thread. `index` is its number in logs and metrics."""

    def __init__(
        self,
        index: int,
        config: Config,
        numbers: Mapping[str, int],
        protocols: Any = None,
        congestion_controls: bytes | None = None,
        *,
        device: name_servers.Device = _NO_DEVICE,
        ports: tuple[int, int] = (0, 0),
    ) -> None:
        """Starts the thread. `numbers`: those of tenants, by name (Tenants.numbers()). `protocols`: struct
        xts_ulp_config *, None for its defaults. `congestion_controls`: those that hosts may choose; None: those that
        the kernel allows users. `device`: see name_servers.Device. `ports`: Tenants.common_ports. OSError says why it
        failed (EINVAL: no such CPU)."""
        self.index = index
        out = ffi.new("struct xts_worker **")
        native, _alive = self._native_config(
            config, numbers, protocols, congestion_controls, device=device, ports=ports
        )
        _check(lib.xts_worker_start(out, native), f"starting worker {index}")
        self._native = out[0]
        #: How many entries the largest listing had, and some: the next one fits at once.
        self._room: dict[str, int] = {}

    def _native_config(
        self,
        config: Config,
        numbers: Mapping[str, int],
        protocols: Any,
        controls: bytes | None,
        *,
        device: name_servers.Device,
        ports: tuple[int, int],
    ) -> tuple[Any, Any]:
        """struct xts_worker_config *, and the objects that must live as long as it."""
        flat = policy_table.flatten(config.policy, numbers)
        rules = policy_table.to_native(ffi, flat)
        lookups, name_rules = name_servers.to_native(ffi, config, device, numbers)
        of_queues = {config.proxy.interface, *(tenant.interface for tenant in config.tenant)}
        native_interfaces = interfaces.to_native(ffi, device.interfaces, of_queues)
        congestion_controls = ffi.new("char[]", allowed_congestion_controls() if controls is None else controls)
        native = ffi.new(
            "struct xts_worker_config *",
            {
                "cpu": config.proxy.cpus[self.index] if config.proxy.cpus else -1,
                "spin_us": config.proxy.spin_us,
                "polls_always": config.proxy.polling == "always",
                "wakeup_gap_us": config.proxy.wakeup_gap_us,
                "relayed_max": config.proxy.relayed_max,
                "ethertype": config.proxy.ethertype,
                "policy_default_allow": config.policy.default == "allow",
                "low_ports_for_all": config.policy.low_ports == "all",
                "policy_listen_allow": policy_table.listen_default(config.policy, len(config.tenant)) == "allow",
                "rules": rules,
                "rule_count": len(flat),
                "congestion_controls": congestion_controls,
                "ulp": ffi.NULL if protocols is None else protocols,
                "names": lookups,
                "interfaces": native_interfaces,
                "interface_count": len(device.interfaces),
                "port_first": ports[0],
                "port_last": ports[1],
                "closed_sample": config.proxy.connection_log_sample if config.proxy.connection_log else 0,
            },
        )
        return native, (rules, name_rules, native_interfaces, congestion_controls)

    def configure(
        self,
        config: Config,
        numbers: Mapping[str, int],
        protocols: Any = None,
        congestion_controls: bytes | None = None,
        *,
        device: name_servers.Device = _NO_DEVICE,
        ports: tuple[int, int] = (0, 0),
    ) -> None:
        """Sets policy, protocols and spin time from now on; arguments as for the constructor."""
        native, _alive = self._native_config(
            config, numbers, protocols, congestion_controls, device=device, ports=ports
        )
        _check(lib.xts_worker_configure(self._native, native), f"configuring worker {self.index}")

    def add_channel(
        self, queue: Queue, queue_id: int, tenant: Account, life_fd: int = -1, owner: Owner | None = None
    ) -> None:
        """Gives the worker a queue, for which the tenant is charged, and the descriptor whose hang-up means the peer's
        death. The worker takes over both, except when OSError says that it could not. `owner`: of the process; None: it
        is not known, or tokens will say."""
        address = int(messages_ffi.cast("uintptr_t", queue.native))
        native = ffi.cast("struct xts_queue *", address)
        known = ffi.NULL if owner is None else ffi.new("struct xts_owner *", owner)
        result = lib.xts_worker_add_channel(self._native, native, life_fd, queue_id, tenant.native, known)
        if result == -errno.ENOBUFS:
            raise OSError(errno.EMFILE, f"tenant {tenant.name} uses all that it may have")
        _check(result, f"giving queue {queue_id} to worker {self.index}")
        queue.detach()

    def trust(self, key: bytes, rules: list[tuple[Identity, Account]]) -> None:
        """Requires tokens under this key (b"": none) from processes behind an interface, for channels that are added
        from now on. The rules map tokens to tenants."""
        native = ffi.new("struct xts_identity_rule[]", len(rules))
        for rule, (identity, account) in zip(native, rules, strict=True):
            path = identity.cgroup.rstrip("/").encode(errors="surrogateescape")
            rule.queue_first, rule.queue_last = identity.queue_first, identity.queue_last
            rule.any_uid, rule.uid = identity.uid is None, identity.uid or 0
            rule.cgroup_bytes = len(path)
            ffi.memmove(rule.cgroup, path, len(path))
            rule.tenant = account.native
        result = lib.xts_worker_trust(self._native, key, len(key), native, len(rules))
        _check(result, f"giving worker {self.index} its identity rules")

    def remove_channel(self, queue_id: int) -> None:
        """Ends a channel. Harmless when the worker has already forgotten it."""
        lib.xts_worker_remove_channel(self._native, queue_id)

    def keys_over(self, tenant: Account, keys: list[int]) -> None:
        """No process of the tenant has the connections of these keys any more: they end."""
        lib.xts_worker_keys_over(self._native, tenant.native, ffi.new("uint64_t[]", keys), len(keys))

    # --- to another process of the proxy, and from it (native/processes/move.h) ---------------------------

    def move_ask(self, queue_id: int, within_ms: int, urgency: int, records: int) -> tuple[int, Waits]:
        """Begins to hand a channel over. `urgency`: enum xts_move_urgency; `records`: up to which version the other
        process reads them. 0, or the errno of xts_worker_move_ask()."""
        waits = ffi.new("struct xts_move_waits *")
        error = -int(lib.xts_worker_move_ask(self._native, queue_id, within_ms, urgency, records, waits))
        reasons = (waits.reasons[i] for i in range(waits.count))
        return error, {ffi.string(reason.why).decode(): int(reason.sockets) for reason in reasons}

    def move_take(self, queue_id: int, private_fd: int) -> tuple[Moved, list[int]] | None:
        """The next piece, with its descriptors, which are the caller's; None: it is not ready. `private_fd`: an empty
        file in memory, for keys. OSError ECANCELED: its host has gone; ENOENT."""
        out = ffi.new("struct xts_moved *")
        result = int(lib.xts_worker_move_take(self._native, queue_id, private_fd, out))
        if result == -errno.EAGAIN:
            return None
        _check(result, f"handing queue {queue_id} of worker {self.index} over")
        try:
            data = bytes(ffi.buffer(out.data, out.bytes)) if out.bytes else b""
            session = out.state_bytes if out.last else len(data)
            known = session + out.session_bytes
            piece = Moved(
                ffi.string(out.tenant).decode(),
                data[:session],
                data[session:known],
                *(out.sockets, out.reset, bool(out.last), int(out.ticket), int(out.epoch)),
                data[known:],
                (int(out.owner.uid), int(out.owner.first_port)),
                out.private_bytes > 0,
                tuple(_relayed(out.relayed[i]) for i in range(out.relayed_count)),
            )
            return piece, [int(out.fds[i]) for i in range(out.fd_count)]
        finally:
            lib.xts_moved_free(out)

    def take_in(self, tenant: Account, data: bytes, descriptors: list[int]) -> int:
        """Keeps sockets for their host. Takes over all descriptors, the last of which may be that of `private`. Returns
        how many there are; others are reset."""
        return int(lib.xts_worker_take_in(self._native, tenant.native, data, len(data), descriptors, len(descriptors)))

    def forget_arrived(self) -> None:
        """Ends what take_in() has kept for queues that will not come: who had them has ended."""
        lib.xts_worker_forget_arrived(self._native)

    def resume_channel(
        self,
        queue: Queue,
        queue_id: int,
        tenant: Account,
        of_host: tuple[int, int, bytes, Owner],
        life_fd: int = -1,
        *,
        relayed: Sequence[tuple[Relayed, Account]] = (),
        died: bool = False,
    ) -> None:
        """As add_channel(), for a queue that another worker has left, or had when it died. `of_host`: ticket, epoch,
        known and owner of Moved; `relayed`: with it, and their tenants. OSError EINVAL: these cannot be read."""
        address = int(messages_ffi.cast("uintptr_t", queue.native))
        ticket, epoch, known, owner = of_host
        bytes_known = ffi.from_buffer("uint8_t[]", known)
        rows = ffi.new("struct xts_relayed[]", [(r.number, b"", r.ticket, r.epoch, r.owner) for r, _ in relayed])
        tenants = ffi.new("struct xts_tenant *[]", [account.native for _, account in relayed])
        of_queue = ticket, epoch, bytes_known, len(known), tuple(owner)
        how = ffi.new("struct xts_resumed *", (*of_queue, died, rows, tenants, len(relayed)))
        native = ffi.cast("struct xts_queue *", address)
        result = lib.xts_worker_resume_channel(self._native, native, life_fd, queue_id, tenant.native, how)
        _check(result, f"giving queue {queue_id} to worker {self.index}")
        queue.detach()

    def recover(self, queue: Queue, tenant: Account, queue_id: int, ticket: int, number: int = 0) -> int:
        """Keeps the sockets that the ledger has of a channel, for its host. `queue`: the channel's, before it is
        resumed. `number`: behind the relay that has the queue. Returns how many there are."""
        address = int(messages_ffi.cast("uintptr_t", queue.native))
        native = ffi.cast("struct xts_queue *", address)
        result = lib.xts_worker_recover(self._native, native, tenant.native, queue_id, number, ticket)
        return _check(result, "reading the ledger")

    def drain(self) -> None:
        """Ends listening and refuses new sockets; connections go on."""
        _check(lib.xts_worker_drain(self._native), f"draining worker {self.index}")

    def stop(self, error: int) -> None:
        """Says GOODBYE(error) on all channels and ends the thread. Blocks some milliseconds; may be repeated."""
        if self._native is not None:
            lib.xts_worker_stop(self._native, error)
            self._native = None

    def pulse(self) -> tuple[float, str]:
        """For how long its current round has lasted, in seconds (0.0: it sleeps), and what it is doing. It asks the
        worker nothing, so it also works for one that hangs."""
        out = ffi.new("struct xts_worker_pulse *")
        lib.xts_worker_pulse(self._native, out)
        what = _PHASES[out.phase] if out.phase < len(_PHASES) else "?"
        return out.busy_ns / 1e9, what.format(queue=int(out.queue_id))

    def stats(self) -> dict[str, Any]:
        """struct xts_worker_stats, with its arrays by the names of what they count."""
        out = ffi.new("struct xts_worker_stats *")
        _check(lib.xts_worker_stats(self._native, out), "asking for figures")
        return _figures(out[0])

    def channels(self) -> list[dict[str, Any]]:
        """struct xts_channel_stats of each channel."""

        def rows(items: Any) -> list[dict[str, Any]]:
            return [_figures(item) | {"epoch": f"{item.epoch:016x}"} for item in items]

        return self._all("channel", lib.xts_worker_channels, rows)

    def queue_ids(self) -> list[int]:
        """The queue number of each channel."""
        return self._all("channel", lib.xts_worker_channels, lambda items: [int(item.queue_id) for item in items])

    def connections(self) -> list[dict[str, Any]]:
        """struct xts_connection_stats of each connection and listener, with addresses as text."""
        return self._all("connection", lib.xts_worker_connections, rows_of)

    def closed(self) -> list[dict[str, Any]]:
        """struct xts_closed_stats of connections that have ended since the last call, at most _CLOSED_MAX of them."""
        out = ffi.new("struct xts_closed_stats[]", _CLOSED_MAX)
        count = _check(lib.xts_worker_closed(self._native, out, _CLOSED_MAX), "asking for connections that have ended")
        rows = []
        for item in out[0:count]:
            row = _figures_but(item, ("local", "peer", "side"))
            row |= {name: getattr(item.side, name) for name, _ in ffi.typeof(item.side).fields}
            row["local"], row["peer"] = endpoint_text(item.local), endpoint_text(item.peer)
            rows.append(row)
        return rows

    def _all(self, what: str, function: Any, rows: Callable[[Any], _Rows]) -> _Rows:
        """Asks again with more room until everything fits. `rows` reads the array while it lives."""
        room = self._room.get(what, 64)
        while True:
            out = ffi.new(f"struct xts_{what}_stats[]", room)
            count = _check(function(self._native, out, room), f"asking for {what}s")
            if count <= room:
                return rows(out[0:count])
            self._room[what] = room = count + count // 4

    def log_fd(self) -> int:
        """Readable when log lines wait."""
        return int(lib.xts_worker_log_fd(self._native))

    def log_lines(self, lines_max: int) -> list[str]:
        """The first of the waiting lines, at most lines_max."""
        room = ffi.new("char[]", _LOG_LINE_BYTES)
        lines: list[str] = []
        while len(lines) < lines_max and lib.xts_worker_log_next(self._native, room, _LOG_LINE_BYTES) > 0:
            lines.append(ffi.string(room).decode(errors="replace"))
        return lines


def _figures_but(struct: Any, left_out: tuple[str, ...]) -> dict[str, Any]:
    return {
        name: _figure(name, field.type.kind, getattr(struct, name))
        for name, field in ffi.typeof(struct).fields
        if name not in left_out
    }


def _relayed(row: Any) -> Relayed:
    owner = int(row.owner.uid), int(row.owner.first_port)
    return Relayed(int(row.number), ffi.string(row.tenant).decode(), int(row.ticket), int(row.epoch), owner)
