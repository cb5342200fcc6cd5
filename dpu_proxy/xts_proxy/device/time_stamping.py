"""The time stamps that an interface of the device can make, and those that its card makes now, as shown by `ethtool
-T`.

Only the operator switches a card's stamps on (`hwstamp_ctl`, ptp4l, chronyd). Hosts are told, but cannot change it.
"""

from __future__ import annotations

import array
import fcntl
import socket
import struct
from dataclasses import dataclass
from typing import Self

#: linux/sockios.h, linux/ethtool.h
_SIOCETHTOOL, _SIOCGHWTSTAMP = 0x8946, 0x89B1
_ETHTOOL_GET_TS_INFO = 0x41
_TS_INFO = struct.Struct("=IIiI12xI")  # struct ethtool_ts_info up to rx_filters, without the reserved fields
_TS_INFO_BYTES = 44
_CONFIG = struct.Struct("=iii")  # struct hwtstamp_config


@dataclass(frozen=True, slots=True)
class Stamping:
    """`flags`: the SOF_TIMESTAMPING_* that it supports. `clock`: the number of its card's clock (/dev/ptpN); -1: none.
    `tx_types`, `rx_filters`: what the card can be switched to, bits by HWTSTAMP_TX_* and HWTSTAMP_FILTER_*. `tx_type`,
    `rx_filter`: what it is switched to; 0: it stamps nothing."""

    flags: int
    clock: int
    tx_types: int
    rx_filters: int
    tx_type: int
    rx_filter: int

    @classmethod
    def read(cls, sock: socket.socket, name: str) -> Self | None:
        """For the interface of that name; None: it does not report this."""
        try:
            data = _request(sock, _SIOCETHTOOL, name, struct.pack("=I", _ETHTOOL_GET_TS_INFO), _TS_INFO_BYTES)
        except OSError:
            return None
        _, flags, clock, tx_types, rx_filters = _TS_INFO.unpack_from(data)
        try:
            _, tx_type, rx_filter = _CONFIG.unpack(_request(sock, _SIOCGHWTSTAMP, name, b"", _CONFIG.size))
        except OSError:
            tx_type = rx_filter = 0  # it has no hardware stamps
        return cls(flags, clock, tx_types, rx_filters, tx_type, rx_filter)

    def line(self, index: int) -> bytes:
        """The line for hosts (PROTOCOL.md)."""
        numbers = (index, self.clock, self.flags, self.tx_types, self.rx_filters, self.tx_type, self.rx_filter)
        return (" ".join(map(str, numbers)) + "\n").encode()


def _request(sock: socket.socket, request: int, name: str, value: bytes, size: int) -> bytes:
    """Makes an ioctl that reads and writes memory to which a struct ifreq points."""
    memory = array.array("B", value.ljust(size, b"\0"))
    where, _ = memory.buffer_info()
    fcntl.ioctl(sock, request, struct.pack("16sP16x", name.encode(), where))
    return memory.tobytes()
