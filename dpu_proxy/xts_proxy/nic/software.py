"""The proxy's own means: the worker's pacer (native/tenants/pacer.h)."""

from __future__ import annotations

from collections.abc import Iterator

from xts_proxy.config.config_tenant import PACING_MBIT_S_MAX
from xts_proxy.nic.answer import Answer, Capability


class Software:
    """The worker."""

    name = "software"

    def answers(self, _interface: str) -> Iterator[Answer]:
        yield Answer(
            Capability.PACING,
            True,
            self.name,
            f"1 to {PACING_MBIT_S_MAX} Mbit/s a tenant",
            "all sockets of a tenant together, and UDP sockets by SO_MAX_PACING_RATE",
        )
