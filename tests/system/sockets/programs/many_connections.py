"""Makes many connections and leaves them alone: `many_connections.py LIBRARY PORT COUNT...`

Opens the first COUNT connections to that port of this host through libxts, prints how many there are and waits for a
line; the same for the further COUNTs. It uses as little memory of its own for them as it can.
"""

from __future__ import annotations

import ctypes
import socket
import struct
import sys


def main() -> None:
    library, port, *counts = sys.argv[1:]
    xts = ctypes.CDLL(library, use_errno=True)
    address = struct.pack("=HHI8x", socket.AF_INET, socket.htons(int(port)), socket.htonl(socket.INADDR_LOOPBACK))
    made = 0
    for count in map(int, counts):
        for _ in range(count):
            s = xts.xts_socket(socket.AF_INET, socket.SOCK_STREAM, 0)
            if s < 0 or xts.xts_connect(s, address, len(address)) != 0:
                sys.exit(f"connection {made}: errno {ctypes.get_errno()}")
            made += 1
        print(made, flush=True)
        sys.stdin.readline()


if __name__ == "__main__":
    main()
