"""Joins a group by an address of the device, binds, and receives a datagram: `python group_member.py HOW`.

With HOW `install` under `xts_socket.install()`, else under whatever is preloaded.
"""

from __future__ import annotations

import errno
import json
import socket
import sys

import xts_socket
from beds.calls import DEADLINE_S
from beds.groups import GROUP, MC0, OTHER, index_or_zero, inet, mreq


def main() -> None:
    if sys.argv[1] == "install":
        xts_socket.install()
    assert not index_or_zero("mc0"), "the interface is here"
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.settimeout(DEADLINE_S)
    s.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, mreq(OTHER, MC0))
    s.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, mreq(GROUP, MC0))
    s.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, inet(MC0))
    s.setsockopt(socket.IPPROTO_IP, socket.IP_DROP_MEMBERSHIP, mreq(OTHER, MC0))
    try:
        s.bind(("0.0.0.0", 0 if sys.argv[1] != "kernel" else 9))
    except OSError as failure:
        print(json.dumps({"received": None, "bind": errno.errorcode[failure.errno or 0]}), flush=True)
        return
    assert s.getsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, 4) == inet(MC0)
    print("port", s.getsockname()[1], flush=True)
    print(json.dumps({"received": s.recv(100).decode(), "bind": None}), flush=True)


if __name__ == "__main__":
    main()
