"""The clock of time stamps: an option of datagram sockets (xts.h)."""

from __future__ import annotations

from xts_messages.wire.wire_table import SOL_XTS

#: `sock.setsockopt(SOL_XTS, SO_XTS_CLOCK, XTS_CLOCK_HOST)`: stamps of the device are converted to this host's clock.
SO_XTS_CLOCK = 0x58540001
XTS_CLOCK_DEVICE, XTS_CLOCK_HOST = 0, 1

__all__ = ["SOL_XTS", "SO_XTS_CLOCK", "XTS_CLOCK_DEVICE", "XTS_CLOCK_HOST"]
