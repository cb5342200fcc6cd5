"""One stream at full rate, for `python -m bench.lossy`: `flow.py sink`, `flow.py source`, and their connections to each
other `flow.py send PORT` and `flow.py receive PORT` of a lab's host. Who receives says at each line it reads how many
bytes have come, and when."""

from __future__ import annotations

import socket
import sys
import threading
import time
from typing import Any

SERVER = "198.18.0.2"
PIECE_BYTES = 1 << 18


class Counter:
    """Of one receiver."""

    def __init__(self) -> None:
        self.bytes = 0

    def tell(self) -> None:
        """At each line."""
        for _ in sys.stdin:
            print(time.monotonic(), self.bytes, flush=True)

    def receive(self, connection: socket.socket) -> None:
        buffer = bytearray(PIECE_BYTES)
        try:
            while got := connection.recv_into(buffer):
                self.bytes += got
        except OSError as error:
            print(f"flow: {error}", file=sys.stderr, flush=True)


def send(connection: socket.socket) -> None:
    piece = bytes(PIECE_BYTES)
    try:
        while True:
            connection.sendall(piece)
    except OSError as error:  # the other end has seen enough
        print(f"flow: {error}", file=sys.stderr, flush=True)


def main() -> None:
    what = sys.argv[1]
    counter = Counter()
    if what in ("sink", "source"):
        with socket.create_server((SERVER, 0)) as listener:
            print(listener.getsockname()[1], flush=True)
            connection: Any = listener.accept()[0]
    else:
        import xts_socket

        connection = xts_socket.create_connection((SERVER, int(sys.argv[2])), timeout=30)
    if what in ("sink", "receive"):
        threading.Thread(target=counter.receive, args=(connection,), daemon=True).start()
        counter.tell()
    else:
        send(connection)


if __name__ == "__main__":
    main()
