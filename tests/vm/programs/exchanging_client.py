"""A program that knows nothing of us: for each line at standard input it has so many bytes echoed, whatever happens.

Arguments: the port, how many bytes. It says "begun" when the first piece has come back, then, where its connection is
lost, "lost" and the error, begins again with another one, and at last says "whole". A wrong byte ends it.
"""

from __future__ import annotations

import random
import socket
import sys
import threading
import time
from contextlib import suppress

port, size = int(sys.argv[1]), int(sys.argv[2])
PIECE = 1 << 14
PATIENCE_S = 600


def say(text: str) -> None:
    print(text, flush=True)


def exchange(stream: socket.socket, data: bytes) -> None:
    """OSError: the connection is lost."""

    def send() -> None:
        with suppress(OSError):  # the other direction says so, too
            stream.sendall(data)

    sending, came = threading.Thread(target=send), 0
    sending.start()
    try:
        while came < size:
            piece = stream.recv(PIECE)
            if not piece:
                raise ConnectionResetError("the echo has ended")
            if piece != data[came : came + len(piece)]:
                sys.exit(f"wrong bytes behind {came}")
            if not came:
                say("begun")
            came += len(piece)
    finally:
        if came < size:
            with suppress(OSError):
                stream.shutdown(socket.SHUT_RDWR)
        sending.join()


def connected() -> socket.socket:
    """Tries until somebody serves it."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), PATIENCE_S)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


stream = connected()
for turn, _ in enumerate(sys.stdin):
    data = random.Random(turn).randbytes(size)
    while True:
        try:
            exchange(stream, data)
            break
        except OSError as error:
            say(f"lost {error.__class__.__name__}")
            stream.close()
            stream = connected()
    say("whole")
