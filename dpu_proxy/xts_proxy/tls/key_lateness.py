"""Logs that the process with the private keys does not answer, or late: at most one line in LOOK_S.

Handshakes wait for it as long as they may (native/keys/key_client.c), so without a line in the log nobody would know
what they wait for. The supervisor reads the counters, as it does for refusals (limit_refusals.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress

from xts_messages.services.log_format import about

from xts_proxy.supervisor.log import LOG
from xts_proxy.supervisor.periodic import Periodic

LOOK_S = 5.0


class KeyLog(Periodic):
    """Reads the counters every LOOK_S. `counts` returns struct xts_tls_counts, or {} while workers do not answer."""

    def __init__(self, counts: Callable[[], Mapping[str, int]]) -> None:
        super().__init__(LOOK_S, self._look_if_they_answer)
        self._counts = counts
        self._late = 0
        self._waited = False

    def _look_if_they_answer(self) -> None:
        with suppress(OSError):  # the workers do not answer now
            self.look()

    def look(self) -> None:
        """Reads them once."""
        counts = self._counts()
        if not counts:
            return
        late, waiting = counts["keys_late"] - self._late, counts["keys_late_now"]
        self._late = counts["keys_late"]
        if late or waiting:
            LOG.warning(
                "xts-keys is slow, and TLS handshakes wait for it: %d requests not answered within a second, "
                "of all %d that still wait; it is stopped, or gets no CPU time",
                *(late, waiting),
                extra=about(count=late, resource="xts-keys"),
            )
        elif self._waited:
            LOG.info("xts-keys answers in time again")
        self._waited = bool(late or waiting)
