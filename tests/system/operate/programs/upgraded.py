"""A program whose proxy is upgraded while it runs: connections of each sort to a peer in the network, and a listener.
It says the listener's port, then what each part has seen, as a line of JSON, when its input ends.

    upgraded.py PEER PORT ADDRESS IDLE [VERSION]

VERSION: all of them with TLS of this version in the proxy, 772 or 771.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import xts_socket as socket
from xts_socket import Tls

PIECE = bytes(range(256)) * 256
DIALOGUES = 4


def receive(connection: Any, count: int) -> bytes:
    data = b""
    while len(data) < count and (more := connection.recv(count - len(data))):
        data += more
    return data


class Program:
    """Runs until its input ends. `peer`: an echo server."""

    def __init__(self, address: str, port: int, idle: int, version: int = 0) -> None:
        self.how = (
            {"tls": Tls(server_hostname="localhost", min_version=version, max_version=version)} if version else {}
        )
        self.accepted_with = [Tls(identity="own", role="server")] if version else []
        self.peer = (address, port)
        # handshakes have only the time that nobody else wants (native/ulp/handshake_pool.h)
        self.pause_s = 0.002 if version else 0
        self.ended = threading.Event()
        self.result: dict[str, Any] = {"failures": []}
        self.idle = [self.connection() for _ in range(idle)]

    def connection(self) -> Any:
        return socket.create_connection(self.peer, **self.how)

    def guarded(self, part: Callable[[], None]) -> None:
        try:
            part()
        except Exception as error:
            self.result["failures"].append(f"{part.__name__}: {error!r}")

    def dialogue(self) -> None:
        """Short requests, one after the other; each answer is compared."""
        worst = count = 0.0
        with self.connection() as connection:
            while not self.ended.is_set():
                request, begun = os.urandom(64) * 8, time.monotonic()
                connection.sendall(request)
                if receive(connection, len(request)) != request:
                    raise ValueError("another answer")
                worst, count = max(worst, time.monotonic() - begun), count + 1
                self.ended.wait(self.pause_s)
        self.result["slowest_s"] = max(worst, self.result.get("slowest_s", 0))
        self.result["requests"] = self.result.get("requests", 0) + count

    def transfer(self) -> None:
        """A stream at full rate, there and back."""
        sent, received = hashlib.sha256(), hashlib.sha256()
        with self.connection() as connection:

            def send() -> None:
                while not self.ended.is_set():
                    connection.sendall(PIECE)
                    sent.update(PIECE)
                    self.ended.wait(self.pause_s)
                connection.shutdown(socket.SHUT_WR)

            sender = threading.Thread(target=send)
            sender.start()
            while data := connection.recv(1 << 18):
                received.update(data)
                self.result["transferred"] = self.result.get("transferred", 0) + len(data)
            sender.join()
        if sent.digest() != received.digest():
            raise ValueError("bytes are missing, or wrong")

    def connect(self) -> None:
        """New connections, one after the other."""
        while not self.ended.is_set():
            with self.connection() as connection:
                connection.sendall(b"new")
                if receive(connection, 3) != b"new":
                    raise ValueError("another answer")
            self.result["connects"] = self.result.get("connects", 0) + 1

    def datagrams(self) -> None:
        """A socket that stays, and a new one each time. A datagram may be lost; no call fails."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stays:
            stays.connect(self.peer)
            stays.settimeout(0.2)
            while not self.ended.is_set():
                with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as new:
                    new.connect(self.peer)
                    new.send(b"new")
                    stays.send(b"stays")
                    try:
                        if stays.recv(16) != b"stays":
                            raise ValueError("another answer")
                        self.result["datagrams"] = self.result.get("datagrams", 0) + 1
                    except TimeoutError:
                        continue

    def datagrams_without_waiting(self) -> None:
        """A program that asks when it can send."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.connect(self.peer)
            sock.setblocking(False)
            while not self.ended.is_set():
                with contextlib.suppress(BlockingIOError):
                    sock.send(b"datagram")
                with contextlib.suppress(BlockingIOError):
                    if sock.recv(16) != b"datagram":
                        raise ValueError("another answer")

    def listen(self, listener: Any) -> None:
        while not self.ended.is_set():
            connection, _ = listener.accept()
            with connection:
                if self.accepted_with:
                    connection.push(*self.accepted_with)
                connection.sendall(receive(connection, 4))

    def run(self) -> None:
        listener = socket.create_server((sys.argv[3], 0), backlog=128)
        print(listener.getsockname()[1], flush=True)
        parts: list[Callable[[], None]] = [self.dialogue] * DIALOGUES + [self.transfer, self.connect]
        parts += [self.datagrams, self.datagrams_without_waiting]
        threads = [threading.Thread(target=self.guarded, args=(part,)) for part in parts]
        threads.append(threading.Thread(target=self.guarded, args=(lambda: self.listen(listener),), daemon=True))
        for thread in threads:
            thread.start()
        sys.stdin.read()
        self.ended.set()
        for thread in threads[:-1]:
            thread.join()
        self.guarded(self.all_idle_answer)
        print(json.dumps(self.result), flush=True)
        os._exit(0)

    def all_idle_answer(self) -> None:
        """Those that said nothing meanwhile."""
        for number, connection in enumerate(self.idle):
            connection.sendall(b"%8d" % number)
            if receive(connection, 8) != b"%8d" % number:
                raise ValueError(f"idle connection {number}")


if __name__ == "__main__":
    Program(sys.argv[1], *map(int, sys.argv[2:3] + sys.argv[4:])).run()
