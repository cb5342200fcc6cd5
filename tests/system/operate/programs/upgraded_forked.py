"""A program whose processes have connections in common, and whose proxy goes on as another process meanwhile: an
ordinary program under the interposer.

    upgraded_forked.py PEER PORT ADDRESS

PEER and PORT are an echo server's. It says the port of its own server, and, when its input ends, what each of its
processes has seen, as lines of JSON, and in the end of its input.

- parent and child use the same connections in turn; a lock says whose turn it is;
- one connection is the child's alone, since the parent has closed its copy; one the parent's, and the child never
  uses its copy;
- a server makes a process for each connection.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import random
import select
import signal
import socket
import sys
import tempfile
import threading
import time
from pathlib import Path

COMMON = 3


def receive(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count and (more := connection.recv(count - len(data))):
        data += more
    return data


class Seen:
    """What one process has seen."""

    def __init__(self, name: str) -> None:
        self.name, self.requests, self.failures = name, 0, list[str]()

    def request(self, connection: socket.socket, size: int) -> None:
        """Compares the answer of the echo server, in which bytes that went missing or came twice would show."""
        sent = random.randbytes(size)
        connection.sendall(sent)
        got = receive(connection, size)
        if got != sent:
            digests = hashlib.sha256(sent).hexdigest()[:8], hashlib.sha256(got).hexdigest()[:8]
            self.failures.append(f"{len(got)} of {size} bytes, {digests}")
        self.requests += 1

    def tell(self) -> None:
        print(json.dumps({"name": self.name, "requests": self.requests, "failures": self.failures}), flush=True)


def in_turns(seen: Seen, connections: list[socket.socket], locks: list[Path], ended: list[bool]) -> None:
    files = [os.open(path, os.O_RDWR) for path in locks]  # its own open files: so the lock is between processes
    while not ended[0]:
        for connection, lock in zip(connections, files, strict=True):
            fcntl.flock(lock, fcntl.LOCK_EX)
            try:
                seen.request(connection, random.choice((64, 3000, 40_000)))
            except OSError as error:
                seen.failures.append(repr(error))
                ended[0] = True
            finally:
                fcntl.flock(lock, fcntl.LOCK_UN)
            time.sleep(0.001)


def alone(seen: Seen, connection: socket.socket, ended: list[bool]) -> None:
    while not ended[0]:
        try:
            seen.request(connection, 1000)
        except OSError as error:
            seen.failures.append(repr(error))
            return
        time.sleep(0.001)


def serve(listener: socket.socket) -> None:
    """A process for each connection."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            with contextlib.suppress(OSError):
                while data := connection.recv(65536):
                    connection.sendall(data)
            os._exit(0)
        connection.close()


def run(seen: Seen, common: list[socket.socket], locks: list[Path], own: socket.socket, stop: int) -> None:
    ended = [False]
    parts = [
        threading.Thread(target=in_turns, args=(seen, common, locks, ended)),
        threading.Thread(target=alone, args=(seen, own, ended)),
    ]
    for part in parts:
        part.start()
    select.select([stop], [], [])
    ended[0] = True
    for part in parts:
        part.join()
    seen.tell()


def main(peer: str, port: int, address: str) -> None:
    listener = socket.create_server((address, 0), backlog=128)
    server = os.fork()
    if not server:
        serve(listener)
    listener_port = listener.getsockname()[1]
    listener.close()
    common = [socket.create_connection((peer, port)) for _ in range(COMMON)]
    of_child, of_parent = (socket.create_connection((peer, port)) for _ in range(2))
    with tempfile.TemporaryDirectory() as folder:
        locks = [Path(folder, str(number)) for number in range(COMMON)]
        for path in locks:
            path.touch()
        stopped, stop = os.pipe()
        child = os.fork()
        if not child:
            os.close(stop)
            run(Seen("child"), common, locks, of_child, stopped)
            os._exit(0)
        of_child.close()
        print(listener_port, flush=True)
        run(Seen("parent"), common, locks, of_parent, sys.stdin.fileno())
        os.close(stop)
        os.waitpid(child, 0)
    os.kill(server, signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
