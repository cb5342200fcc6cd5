"""A program that knows nothing of us: sends to an echo, and compares. Arguments: the port, how many bytes, and whether
it holds its connection until it is told (a line at standard input), and sends them once more."""

from __future__ import annotations

import hashlib
import random
import socket
import sys
import threading

port, size, holds = (int(word) for word in sys.argv[1:])
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


with socket.create_connection(("127.0.0.1", port), 300) as stream:
    print(exchange(stream, size), flush=True)
    if holds:
        sys.stdin.readline()
        print(exchange(stream, size + 1), flush=True)
