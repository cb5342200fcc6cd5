"""A program that knows nothing of us: sends to an echo, and compares.

Arguments: the port, how many bytes, and what then. "end": it ends. "keep": it sends once
more for each line at standard input. "lose": after a line its connection is lost, and another one works.
"""

from __future__ import annotations

import hashlib
import random
import socket
import sys
import threading
import time

port, size, then = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
PIECE = 1 << 16


def exchange(stream: socket.socket, seed: int) -> str:
    """Sends while it receives; the hash of what came back, which is that of what was sent."""
    sent, came, left = hashlib.sha256(), hashlib.sha256(), size

    def send() -> None:
        numbers, rest = random.Random(seed), size
        while rest:
            piece = numbers.randbytes(min(PIECE, rest))
            sent.update(piece)
            stream.sendall(piece)
            rest -= len(piece)

    sending = threading.Thread(target=send)
    sending.start()
    while left:
        piece = stream.recv(PIECE)
        assert piece, "the echo has ended"
        came.update(piece)
        left -= len(piece)
    sending.join()
    assert came.digest() == sent.digest(), "the echo is another"
    return came.hexdigest()


def connected() -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), 300)


def until_connected() -> socket.socket:
    """Nothing that this program has done is in the way: it tries until somebody serves it again."""
    deadline = time.monotonic() + 120
    while True:
        try:
            return connected()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


with connected() as stream:
    print(exchange(stream, size), flush=True)
    while then == "keep" and sys.stdin.readline():
        print(exchange(stream, size + 1), flush=True)
    if then == "lose":
        sys.stdin.readline()
        try:
            lost = repr(stream.recv(1))
        except OSError as error:
            lost = error.__class__.__name__
        print(lost, flush=True)
if then == "lose":
    with until_connected() as stream:
        print(exchange(stream, size + 1), flush=True)
