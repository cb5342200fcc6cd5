"""Accepts RDMA connections for queue pairs of another process: the connection manager alone, which has none itself.

Argument: the number of a Unix socket to that process, of packets; then address and service. It is told the number of a
queue pair, says each step, and hears when that was done; "established", or "refused" with the reason; later "ended".
"""

from __future__ import annotations

import os
import select
import socket
import sys

from xts_messages.queues.rdma_cm import Listener


def main(fd: int, address: str, service: int) -> None:
    parent = socket.socket(fileno=fd)

    def step(data: bytes) -> None:
        parent.send(b"step" + data)
        assert parent.recv(64) == b"done"

    with Listener(address, service) as listener:
        parent.send(b"listening")
        while number := parent.recv(64):
            try:
                connection = listener.request(60).accept(int(number), step)
            except OSError as error:
                parent.send(b"refused " + str(error).encode())
                continue
            with connection:
                socket.send_fds(parent, [b"established"], [connection.life.fileno()])
                connection.life.close()
                ready = select.poll()
                for one in (*connection.filenos(), parent.fileno()):
                    ready.register(one, select.POLLIN)
                while True:
                    if parent.fileno() in dict(ready.poll()):  # the other end wants to end it
                        parent.recv(64)
                        break
                    if connection.look():
                        break
                parent.send(b"ended")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
    os._exit(0)  # what pyverbs has left is the kernel's
