"""Logs what tenants are refused because of limits: one line a tenant in LOOK_S at most, however many there were.

A refusal costs a worker a counter and no more, so a host that asks for too much a million times a second fills no log.
The supervisor looks at the counters every LOOK_S, and says what has been added.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress

from xts_messages.log_format import about

from xts_proxy.log import LOG
from xts_proxy.periodic import Periodic

LOOK_S = 5.0
#: What a resource (enum xts_resource) is called in the configuration, where it is called otherwise.
_LIMITS = {
    "spill_bytes": "spill_mib",
    "ulp_bytes": "ulp_mib",
    "kept": "connections",
    "kept_bytes": "spill_mib",
    "orphan_bytes": "orphan_mib",
    "names": "listeners",
}

#: Account.figures() of each tenant.
Accounts = Mapping[str, Mapping[str, Mapping[str, int]]]


class RefusalLog(Periodic):
    """Looks every LOOK_S. `accounts` returns {} while workers do not answer."""

    def __init__(self, accounts: Callable[[], Accounts]) -> None:
        super().__init__(LOOK_S, self._look_if_they_answer)
        self._accounts = accounts
        self._before: dict[tuple[str, str], int] = {}

    def _look_if_they_answer(self) -> None:
        with suppress(OSError):  # the workers do not answer now
            self.look()

    def look(self) -> None:
        """Once."""
        for tenant, account in self._accounts().items():
            added = dict(self._added(tenant, account))
            if not added:
                continue
            total = sum(added.values())
            what = ", ".join(f"{count} by {limit}" for limit, count in sorted(added.items()))
            LOG.warning(
                "tenant %s: refused %d times because of limits: %s",
                *(tenant, total, what),
                extra=about(tenant=tenant, count=total, resource=", ".join(sorted(added))),
            )

    def _added(self, tenant: str, account: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
        """Since the last look, by what was in the way: a limit, or what others have of the device."""
        counts = {f"limits.{_LIMITS.get(name, name)}": 0 for name in account["refused"]}
        for name, count in account["refused"].items():
            counts[f"limits.{_LIMITS.get(name, name)}"] += count
        for pool, count in account["pool_refused"].items():
            counts[f"what others have left of the device's {pool}"] = count
        added = {}
        for what, count in counts.items():
            before = self._before.get((tenant, what), 0)
            self._before[tenant, what] = count
            if count > before:
                added[what] = count - before
        return added
