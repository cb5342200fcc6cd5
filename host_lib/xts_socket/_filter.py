"""A filter of the operator's: an option of datagram sockets (xts.h)."""

from __future__ import annotations

from xts_messages.wire.wire_table import OPTION_FILTER

#: `sock.setsockopt(SOL_XTS, SO_XTS_FILTER, b"name")`: the device drops the datagrams that the operator's program of
#: that name rejects.
SO_XTS_FILTER = OPTION_FILTER

__all__ = ["SO_XTS_FILTER"]
