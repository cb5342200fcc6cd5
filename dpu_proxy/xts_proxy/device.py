"""Channels over an interface: a fixed set of AF_XDP queues, opened at the start and spread over the workers.

The host at the other end attaches by HELLO; its death is told by its agent, or found by pings.

After the sandbox has closed, the program on the interface cannot be detached any more: it stays, drops the frames of a
host that nobody serves, and is replaced at the next start. `ip link set dev INTERFACE xdp off` removes it.
"""

from __future__ import annotations

from contextlib import suppress

from pyroute2 import Ethtool, IPRoute
from xts_bpf.device import open_device_queues

from xts_proxy.config import Config
from xts_proxy.log import LOG
from xts_proxy.workers import Worker

#: How long a queue that was closed just now (by the proxy before us) is waited for.
_PATIENCE_S = 2.0


class DeviceChannels:
    """The queues of an interface, until they are given to workers."""

    def __init__(self, config: Config) -> None:
        """Opens program and queues. OSError says which could not be had and why; nothing is then left open."""
        self.config = config
        proxy = config.proxy
        assert proxy.peer_mac.octets is not None
        self._opened = open_device_queues(
            proxy.interface,
            queue_ids(config),
            proxy.peer_mac.octets,
            frame_window=proxy.frame_window,
            single_chunk=proxy.single_chunk,
            ethertype=proxy.ethertype,
            patience_s=_PATIENCE_S,
        )
