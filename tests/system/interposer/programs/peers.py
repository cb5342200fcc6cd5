"""Peers outside, for scripts on the host of a lab: `peers.py FD DEVICE`, FD a Unix socket that listens.

Who connects to it sends a request, and is sent a socket of the kernel (SCM_RIGHTS): "accept", the port of a listener
here, and when the host has connected to it the other end; "connect PORT", a client of the host's server."""

from __future__ import annotations

import socket
import sys


def answer(way: socket.socket, device: str) -> None:
    words = way.recv(100).decode().split()
    if words[0] == "connect":
        made = socket.create_connection((device, int(words[1])))
    else:
        with socket.create_server(("", 0)) as listener:
            way.sendall(b"%5d" % listener.getsockname()[1])
            made = listener.accept()[0]
    with made:
        socket.send_fds(way, [b"x"], [made.fileno()])


def main() -> None:
    with socket.socket(fileno=int(sys.argv[1])) as at:
        while True:
            with at.accept()[0] as way:
                answer(way, sys.argv[2])


if __name__ == "__main__":
    main()
