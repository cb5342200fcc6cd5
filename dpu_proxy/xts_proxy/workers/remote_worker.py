"""A worker of the workers' process, as the supervisor sees it."""

from __future__ import annotations

import os
from typing import Any, Protocol

from xts_messages.queues.queue_kinds import QueueEnd

from xts_proxy.config.config_tenant import Identity
from xts_proxy.tenants.tenants import Account
from xts_proxy.workers.given_queue import PLAIN, Frames, Left
from xts_proxy.workers.workers import Moved, Owner, Relayed, Waits

#: For calls that ask nothing of a worker: a process that does not answer in this time is stopped, or gets no CPU time.
_PULSE_S = 1.0


class Calls(Protocol):
    """The process, whose methods are called (worker_process.py)."""

    @property
    def silent_s(self) -> float: ...

    def call(self, method: str, *arguments: Any, descriptors: list[int] | None = None, **how: Any) -> Any: ...

    def call_for_descriptors(self, method: str, *arguments: Any, **how: Any) -> tuple[Any, list[int]]: ...


class RemoteWorker:
    """A worker of that process, with the interface of workers.Worker."""

    def __init__(self, process: Calls, index: int, log_fd: int) -> None:
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

    def keys_over(self, tenant: str, keys: list[int]) -> None:
        """As workers.Worker.keys_over()."""
        self._process.call("keys_over", self.index, tenant, keys)

    def move_ask(self, queue_id: int, within_ms: int, urgency: int, records: int) -> tuple[int, Waits]:
        """As workers.Worker.move_ask()."""
        error, waits = self._process.call("move_ask", self.index, queue_id, within_ms, urgency, records)
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
        self,
        end: QueueEnd,
        queue_id: int,
        whose: tuple[Account, Owner | None],
        life_fd: int = -1,
        *,
        frames: Frames = PLAIN,
    ) -> int:
        """As resume_channel(), for a queue whose process has died. Returns how many sockets may go on."""
        tenant, owner = whose
        more = [fd for fd in (frames.secrets_fd, life_fd) if fd >= 0]
        known = tenant.name, owner, frames.secrets_fd >= 0, life_fd >= 0, frames.repeating
        arguments = self.index, end.pack(), queue_id, known
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
