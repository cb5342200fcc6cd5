"""The other ends of `readable_at_once.py`, on the kernel: `many_peer.py ADDRESS FD`, FD a Unix socket with requests.

What was sent has been acknowledged by the proxy's TCP before it is reported as done, so it is readable there."""

from __future__ import annotations

import array
import fcntl
import json
import select
import socket
import struct
import sys
import termios

RESETS = struct.pack("ii", 1, 0)


def unacknowledged(s: socket.socket) -> int:
    count = array.array("i", [0])
    fcntl.ioctl(s, termios.TIOCOUTQ, count)
    return count[0]


class Peers:
    def __init__(self, address: str) -> None:
        self.listener = socket.create_server((address, 0), backlog=1024)
        self.ends: list[socket.socket] = []

    def port(self) -> int:
        return int(self.listener.getsockname()[1])

    def accept(self) -> None:
        self.ends.append(self.listener.accept()[0])

    def connect(self, host: str, port: int, count: int) -> None:
        self.ends += [socket.create_connection((host, port)) for _ in range(count)]

    def send(self, text: str) -> None:
        for s in self.ends:
            s.sendall(text.encode())
        self._wait()

    def fin(self) -> None:
        for s in self.ends:
            s.shutdown(socket.SHUT_WR)
        self._wait()

    def reset(self) -> None:
        for s in self.ends:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESETS)
            s.close()
        self.ends.clear()

    def _wait(self) -> None:
        for s in self.ends:
            while unacknowledged(s):
                select.select([], [], [], 0.001)


def main() -> None:
    peers = Peers(sys.argv[1])
    with socket.socket(fileno=int(sys.argv[2])) as way:
        while request := way.recv(4096):
            name, *arguments = json.loads(request)
            way.sendall(json.dumps(getattr(peers, name)(*arguments)).encode())


if __name__ == "__main__":
    main()
