"""Logs what tenants are refused because of limits: at most one line per tenant in LOOK_S, however many refusals there
were.

A refusal costs a worker only a counter, so a host that asks for too much a million times a second does not fill the
log. The supervisor reads the counters every LOOK_S, and logs what has been added.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress

from xts_messages.services.log_format import about

from xts_proxy.supervisor.log import LOG
from xts_proxy.supervisor.periodic import Periodic

LOOK_S = 5.0
#: Names of resources (enum xts_resource) in the configuration, where they differ.
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
    """Reads the counters every LOOK_S. `accounts` returns {} while workers do not answer."""

    def __init__(self, accounts: Callable[[], Accounts]) -> None:
        super().__init__(LOOK_S, self._look_if_they_answer)
        self._accounts = accounts
        self._before: dict[tuple[str, str], int] = {}

    def _look_if_they_answer(self) -> None:
        with suppress(OSError):  # the workers do not answer now
            self.look()

    def look(self) -> None:
        """Reads them once."""
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
        """Refusals since the last time, by their reason: a limit, or what others use of the device."""
        counts = {f"limits.{_LIMITS.get(name, name)}": 0 for name in account["refused"]}
        for name, count in account["refused"].items():
            counts[f"limits.{_LIMITS.get(name, name)}"] += count
        for pool, count in account["pool_refused"].items():
            counts[f"what others have left of the device's {pool.replace('_', ' ')}"] = count
        added = {}
        for what, count in counts.items():
            before = self._before.get((tenant, what), 0)
            self._before[tenant, what] = count
            if count > before:
                added[what] = count - before
        return added
