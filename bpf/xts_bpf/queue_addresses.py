"""The destination address that a frame has for each queue, where a card or a switch decides where it arrives.

Queue 0 has the address of the interface, so it works without any rule. The others have addresses that are made from it:
administered locally, with the number of the queue in the second octet, where addresses of one maker do not differ.
So both ends know all of each other's addresses from one.
"""

from __future__ import annotations

import errno
import socket
from contextlib import suppress

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError
from xts_messages.native import ffi, lib

#: The bits of an address of a queue that are the interface's own: all but "administered locally" and the queue's.
MASK = bytes.fromhex("fd00ffffffff")
_LOCAL = 0x02
_NUD_PERMANENT, _NTF_SELF = 0x80, 0x02
#: A group that bridges do not forward: they learn where the sender is, and no third port sees the frame.
_NEAREST_BRIDGE = bytes.fromhex("0180c200000e")
#: A queue that no interface has.
_NO_QUEUE = 0xFFFFFFFF


def of_queue(base: bytes, queue_id: int) -> bytes:
    """The address of a queue of the interface whose own address is `base`."""
    if not queue_id:
        return base
    return bytes((base[0] | _LOCAL, base[1] ^ queue_id)) + base[2:]


def probe_frame(destination: bytes, source: bytes, ethertype: int, queue_id: int, **fields: int) -> bytes:
    """XTS_LINK_PROBE for a queue of the receiver. `fields`: of struct xts_probe."""
    frame = ffi.new("uint8_t[]", int(lib.XTS_ETH_MIN_BYTES))
    ffi.memmove(frame, destination + source + ethertype.to_bytes(2, "big"), 14)
    lib.xts_head_encode(frame, lib.XTS_LINK_PROBE, 0, 0, queue_id)
    lib.xts_probe_encode(frame, ffi.new("struct xts_probe *", fields))
    return bytes(ffi.buffer(frame))


class QueueAddresses:
    """The addresses of an interface's queues, which it accepts while this object is open. Needs CAP_NET_ADMIN."""

    def __init__(self, interface: str, base: bytes, queues: int) -> None:
        """OSError: the interface does not take another address."""
        self._interface = interface
        self._addresses = [of_queue(base, number) for number in range(queues)]
        self._set("add")

    def _set(self, what: str) -> None:
        with IPRoute() as route:
            index = socket.if_nametoindex(self._interface)
            for address in self._addresses[1:]:
                try:
                    entry = {"lladdr": address.hex(":"), "state": _NUD_PERMANENT, "flags": _NTF_SELF}
                    route.fdb(what, ifindex=index, **entry)
                except NetlinkError as error:
                    if error.code not in (errno.EEXIST, errno.ENOENT):
                        raise OSError(error.code, f"another address for {self._interface}: {error}") from error

    def announce(self, ethertype: int) -> None:
        """Tells the switch in front of the interface where these addresses are, so that it floods no frame for them.
        Needs CAP_NET_RAW. Where there is no switch the other end gets the frame. It drops what is for a group; an older
        one drops it as the answer to a probe for a queue that it has not."""
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as sender:
            sender.bind((self._interface, 0))
            for address in self._addresses:
                sender.send(probe_frame(_NEAREST_BRIDGE, address, ethertype, _NO_QUEUE, back=1))

    def close(self) -> None:
        """Takes them away. May be called again, and when the interface has gone."""
        with suppress(OSError, NetlinkError):
            self._set("del")
