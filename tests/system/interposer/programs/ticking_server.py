"""A server that looks at its socket once in a while and never waits, as games do. Another process has the socket, too,
and does nothing.

    python ticking_server.py stream|datagrams take|poll|select|epoll|edges

Prints for each of its clients after how many looks it was found.
"""

from __future__ import annotations

import os
import select
import socket
import sys
import time
from collections.abc import Callable

CLIENTS, LOOKS, TICK_S = 5, 10, 0.02


def look_by(how: str, server: socket.socket) -> Callable[[], bool]:
    """Whether somebody is there, as far as this call tells."""
    if how == "select":
        return lambda: bool(select.select([server], [], [], 0)[0])
    if how == "poll":
        polled = select.poll()
        polled.register(server, select.POLLIN)
        return lambda: bool(polled.poll(0))
    if how in ("epoll", "edges"):
        watched = select.epoll()
        watched.register(server, select.EPOLLIN | (select.EPOLLET if how == "edges" else 0))
        return lambda: bool(watched.poll(0))
    assert how == "take"
    return lambda: True


def take(server: socket.socket) -> None:
    if server.type == socket.SOCK_STREAM:
        server.accept()[0].close()
    else:
        server.sendto(b"answer", server.recvfrom(9)[1])


def find(look: Callable[[], bool], server: socket.socket) -> int:
    """After how many looks. 0: after none."""
    for i in range(1, LOOKS + 1):
        time.sleep(TICK_S)  # the tick of a program that has other work
        if look():
            try:
                take(server)
            except BlockingIOError:
                continue
            return i
    return 0


def main() -> None:
    kind = {"stream": socket.SOCK_STREAM, "datagrams": socket.SOCK_DGRAM}[sys.argv[1]]
    server = socket.socket(socket.AF_INET, kind)
    server.bind(("127.0.0.1", 0))
    if kind == socket.SOCK_STREAM:
        server.listen()
    server.setblocking(False)
    ends, end = os.pipe()
    if not os.fork():
        os.close(end)
        os.read(ends, 1)
        os._exit(0)
    look = look_by(sys.argv[2], server)
    for _ in range(CLIENTS):
        orders, order = os.pipe()
        if not os.fork():
            os.close(order)
            server.close()
            with socket.socket(socket.AF_INET, kind) as client:
                client.connect(("127.0.0.1", int(os.read(orders, 9))))
                client.send(b"question")
                client.recv(9)
            os._exit(0)
        os.write(order, b"%d" % server.getsockname()[1])
        print(find(look, server), flush=True)
        os.close(order)
        os.close(orders)
    os.close(end)


if __name__ == "__main__":
    main()
