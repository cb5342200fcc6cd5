"""What a program sees whose queue delays frames: `slow_queue.py HOST PORT` sends, and prints a line for each finding.

The server sends back what it gets.
"""

from __future__ import annotations

import hashlib
import random
import sys
import time

import xts_socket

LATE_S = 0.01  # of the XTS_FAULTS that the test sets


def bulk(address: tuple[str, int]) -> None:
    """A megabyte each way, however late."""
    data = random.Random(1).randbytes(1 << 20)
    with xts_socket.create_connection(address) as sock:
        sent, got = 0, hashlib.sha256()
        while sent < len(data):
            part = data[sent : sent + 70_000]
            sock.sendall(part)
            left = len(part)
            while left:
                back = sock.recv(left)
                assert back, "the connection has ended"
                got.update(back)
                left -= len(back)
            sent += len(part)
        assert got.digest() == hashlib.sha256(data).digest()
    print("bulk")


def alone(address: tuple[str, int]) -> None:
    """A message that waits for its time leaves though the program makes no further call."""
    with xts_socket.create_connection(address) as one, xts_socket.create_connection(address) as other:
        for number in range(8):
            one.sendall(b"%d" % number)
            time.sleep(LATE_S * 12)  # not in a call
        other.sendall(b"x")
        assert other.recv(1) == b"x"
        received = b""
        while len(received) < 8:
            received += one.recv(100)
        assert received == b"01234567"
    print("alone")


def main() -> None:
    address = (sys.argv[1], int(sys.argv[2]))
    bulk(address)
    alone(address)


if __name__ == "__main__":
    main()
