"""Passes the peer's group on to the host's own kernel, in the namespace of the device: what a router with PIM would do,
by one fixed route. Run as a program there: `multicast_router.py SOURCE GROUP FROM TO`, interfaces by their addresses.
It says "ready", and the route is there until it ends."""

from __future__ import annotations

import signal
import socket
import struct
import sys

#: linux/mroute.h
MRT_INIT, MRT_ADD_VIF, MRT_ADD_MFC = 200, 202, 204
_INTERFACES, _MOST_INTERFACES = 2, 32


def _vif(number: int, address: str) -> bytes:
    """struct vifctl: datagrams with a time to live of 1 or less stay out."""
    return struct.pack("=HBBI4s4s", number, 0, 1, 0, socket.inet_aton(address), bytes(4))


def _route(source: str, group: str) -> bytes:
    """struct mfcctl: from interface 0 to interface 1."""
    passes = bytes((0, 1)) + bytes(_MOST_INTERFACES - _INTERFACES)
    return struct.pack("=4s4sH32s2xIIIi", socket.inet_aton(source), socket.inet_aton(group), 0, passes, 0, 0, 0, 0)


def main() -> None:
    source, group, *interfaces = sys.argv[1:]
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_IGMP) as router:
        router.setsockopt(socket.IPPROTO_IP, MRT_INIT, 1)
        for number, address in enumerate(interfaces):
            router.setsockopt(socket.IPPROTO_IP, MRT_ADD_VIF, _vif(number, address))
        router.setsockopt(socket.IPPROTO_IP, MRT_ADD_MFC, _route(source, group))
        print("ready", flush=True)
        signal.pause()


if __name__ == "__main__":
    main()
