"""Sockets that join, leave and filter groups in every form that there is: group_members.py INTERFACE SEED.

Each makes the calls of a random script; the kernel refuses some of them. Prints "ready", and after each line that it
reads "back", as soon as all sockets have their proxy again.
"""

from __future__ import annotations

import contextlib
import errno
import random
import socket
import struct
import sys
import time

SOCKETS, CALLS = 40, 12
GROUPS = [f"239.77.{n}.1" for n in range(3)]
SOURCES = ["192.0.2.1", "192.0.2.2"]
INDEX = 1  # of the loopback interface
(ADD, DROP, UNBLOCK, BLOCK, ADD_SOURCE, DROP_SOURCE) = range(35, 41)
(JOIN_GROUP, BLOCK_SOURCE, UNBLOCK_SOURCE, LEAVE_GROUP, JOIN_SOURCE_GROUP, LEAVE_SOURCE_GROUP) = range(42, 48)


def packed(text: str) -> bytes:
    return socket.inet_aton(text)


def storage(text: str) -> bytes:
    """struct sockaddr_storage."""
    return (struct.pack("=HH", socket.AF_INET, 0) + packed(text)).ljust(128, b"\0")


def any_call(draw: random.Random, interface: str) -> tuple[int, bytes]:
    group, source = draw.choice(GROUPS), draw.choice(SOURCES)
    by_address = packed(group) + packed(draw.choice([interface, interface, "0.0.0.0"]))
    by_index = packed(group) + packed("0.0.0.0") + struct.pack("=i", INDEX)
    with_source = packed(group) + packed(interface) + packed(source)
    group_req = struct.pack("@I4x", INDEX) + storage(group)
    return draw.choice(
        [
            (draw.choice([ADD, ADD, DROP]), draw.choice([by_address, by_index])),
            (draw.choice([ADD_SOURCE, DROP_SOURCE, BLOCK, UNBLOCK]), with_source),
            (draw.choice([JOIN_GROUP, LEAVE_GROUP]), group_req),
            (
                draw.choice([JOIN_SOURCE_GROUP, LEAVE_SOURCE_GROUP, BLOCK_SOURCE, UNBLOCK_SOURCE]),
                group_req + storage(source),
            ),
        ]
    )


def member(draw: random.Random, interface: str) -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.bind((interface, 0))
    for _ in range(CALLS):
        with contextlib.suppress(OSError):
            made.setsockopt(socket.IPPROTO_IP, *any_call(draw, interface))
    return made


def until_back(sock: socket.socket) -> None:
    deadline = time.monotonic() + 10
    while True:
        try:
            sock.getsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST)
            return
        except OSError as error:
            assert error.errno == errno.ENETDOWN, error
        assert time.monotonic() < deadline
        time.sleep(0.01)


def main() -> None:
    draw = random.Random(int(sys.argv[2]))
    sockets = [member(draw, sys.argv[1]) for _ in range(SOCKETS)]
    print("ready", flush=True)
    for _ in sys.stdin:
        for sock in sockets:
            until_back(sock)
        print("back", flush=True)


main()
