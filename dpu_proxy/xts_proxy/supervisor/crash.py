"""The workers' process has died, or the one with the private keys: another one goes on, unless that happens too often
(PROTOCOL.md, "Crash"; dpu_proxy/SECURITY.md).

The next process has the same address layout, so a host that can crash workers could find out addresses, step by step.
After so many crashes in so short a time the proxy ends, with everything that is open. Who started it starts it again,
as another program with other addresses.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from xts_proxy.config.config import Config
from xts_proxy.queues.channels import Channels
from xts_proxy.supervisor import sandbox
from xts_proxy.supervisor.log import LOG, WorkerLog, log_notes
from xts_proxy.tls.keys import KeyProcess
from xts_proxy.tls.tls_files import open_key
from xts_proxy.workers.ulp import Material
from xts_proxy.workers.worker_process import WorkerProcess

WITHIN_S = 600.0
#: A process that is killed ends in this time.
_ENDS_S = 1.0


class CrashRule:
    """Counts crashes. The clock is the caller's."""

    def __init__(self, most: int) -> None:
        """The `most`-th crash within WITHIN_S is one too many. 0: each is."""
        self._most = most
        self._times: deque[float] = deque(maxlen=max(most, 1))
        self.count = 0

    def may_go_on(self, now: float) -> bool:
        """A process has died. May another one go on for it?"""
        self.count += 1
        self._times.append(now)
        recent = sum(now - then < WITHIN_S for then in self._times)
        return recent < self._most


def too_often(most: int) -> str:
    """Why the proxy ends."""
    return (
        f"that is {most} in {WITHIN_S / 60:.0f} minutes (proxy.crashes_max), and the proxy ends with all connections, "
        "to be started again with other addresses in memory"
    )


def _hand_over(keys: KeyProcess, process: WorkerProcess) -> None:
    """Gives the workers the connections to another key process."""
    process.renew_keys(keys.connections)
    keys.handed_over()


class KeyCrashes:
    """Those of the key process."""

    def __init__(self, crashes_max: int) -> None:
        self._most = crashes_max
        self._rule = CrashRule(crashes_max)

    def go_on(self, keys: KeyProcess, process: WorkerProcess) -> str:
        """It has ended. Returns "" when another one has its keys, or why the proxy has to end. Handshakes wait
        meanwhile."""
        if not self._most:
            return "the proxy ends"
        if not self._rule.may_go_on(time.monotonic()):
            return too_often(self._most)
        how = keys.child.ended()
        try:
            with sandbox.reading():
                problems = keys.start_again(open_key)
            _hand_over(keys, process)
        except BrokenPipeError:
            LOG.debug("the workers have died as well: the next process gets the connections to the keys")
        except OSError as error:
            return f"no other process has the keys: {error.strerror or error}; the proxy ends"
        LOG.error("%s: %s; another process has its keys", keys.child.name, how)
        for problem in problems:
            LOG.error("%s", problem)
        return ""


class Crashes:
    """Those of the workers of one proxy. `recovered`: sockets that the next processes were given."""

    def __init__(self, crashes_max: int, logs: list[WorkerLog]) -> None:
        self._most = crashes_max
        self._rule = CrashRule(crashes_max)
        self._logs = logs
        self._said: set[str] = set()
        self.recovered = 0

    @property
    def count(self) -> int:
        return self._rule.count

    def noted(self, notes: list[tuple[int, str]]) -> None:
        """Workers have had this said (log_notes()): the next ones, which find the same, do not repeat it."""
        self._said.update(text for _, text in notes)

    def go_on(
        self,
        config: Config,
        gather: Callable[[], Material],
        process: WorkerProcess,
        channels: Channels,
        keys: KeyProcess,
    ) -> str:
        """The workers' process has ended. Returns "" when another one has everything, or why the proxy has to end."""
        if not process.understudy or not channels.survives():
            return "the proxy ends"
        while self._rule.may_go_on(time.monotonic()):
            child, began = process.child, time.monotonic()
            name, how = child.name, child.ended()
            try:
                recovered, made_s = self._recover(config, gather, process, channels, keys)
            except OSError as error:
                why = error.strerror or str(error)
                if not process.child.ends_within(_ENDS_S):
                    return f"no other process can go on: {why}; the proxy ends"
                LOG.error("%s: it should have gone on: %s (%s)", name, process.child.ended(), why)
                continue
            took_ms = (time.monotonic() - began) * 1000
            said = "%s: %s; another process goes on, with %d sockets, after %.0f ms (%.0f ms for queues and sockets)"
            LOG.error(said, name, how, recovered, took_ms, took_ms - made_s * 1000)
            self.recovered += recovered
            return ""
        return too_often(self._most)

    def _recover(
        self,
        config: Config,
        gather: Callable[[], Material],
        process: WorkerProcess,
        channels: Channels,
        keys: KeyProcess,
    ) -> tuple[int, float]:
        """Returns how many sockets, and how long it took to have the next process."""
        began = time.monotonic()
        for relay in self._logs:
            relay.pause()
        done, notes = process.succeed(config, gather())
        if keys.connections:  # that process has died, too
            _hand_over(keys, process)
        for line in done:
            LOG.info("sandbox of workers: %s", line)
        log_notes([note for note in notes if note[1] not in self._said])
        self.noted(notes)
        made_s = time.monotonic() - began
        recovered = channels.recover()
        for relay in self._logs:
            relay.go_on()
        return recovered, made_s
