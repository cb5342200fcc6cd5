"""Servers of several processes that come from one another by fork and exec, for a test that kills them. They are one
process group. Each prints its port when it accepts. What a process has read it answers with its number.

    killed_group.py all        a chain of four, each with 20 connections more than its parent; the last one by exec
    killed_group.py closer     a parent, which closes its copies of 20 connections and has one of its own; a child
    killed_group.py survivor   a parent and two children, all with the same 20 connections
"""

from __future__ import annotations

import os
import signal
import socket
import sys

CONNECTIONS = 20
#: Of those that came from its ancestors, the last one of "all" takes so many.
TAKEN = 10


def answer(connection: socket.socket) -> None:
    if connection.recv(1):
        connection.send(b"%d\n" % os.getpid())


def serve(count: int = CONNECTIONS) -> list[socket.socket]:
    """At a port of its own, which it prints."""
    accepted = []
    with socket.create_server((os.environ["LISTEN_AT"], 0), backlog=4 * CONNECTIONS) as listener:
        print(listener.getsockname()[1], flush=True)
        for _ in range(count):
            connection, _ = listener.accept()
            answer(connection)
            accepted.append(connection)
    return accepted


def stay() -> None:
    while True:
        signal.pause()


def of_all() -> None:
    has = serve()
    for _ in range(2):
        if os.fork():
            stay()
        has += serve()
    if os.fork():
        stay()
    for one in has:
        one.set_inheritable(True)
    os.execv(sys.executable, [sys.executable, __file__, "last", *(str(one.fileno()) for one in has)])


def last(inherited: list[int]) -> None:
    has = [socket.socket(fileno=number) for number in inherited] + serve()
    for connection in has[:TAKEN]:
        answer(connection)
    stay()


def closer() -> None:
    *has, own = serve(CONNECTIONS + 1)
    if not os.fork():
        own.close()
        for connection in has:
            answer(connection)
        stay()
    answer(own)  # when the child has answered on all
    for connection in has:
        connection.close()
    own.send(b"closed\n")
    while True:
        answer(own)


def survivor() -> None:
    has = serve()
    for _ in range(2):
        if not os.fork():
            stay()
    while True:
        for connection in has:
            answer(connection)


def main() -> None:
    if sys.argv[1] == "last":
        last([int(number) for number in sys.argv[2:]])
    os.setpgid(0, 0)
    {"all": of_all, "closer": closer, "survivor": survivor}[sys.argv[1]]()


if __name__ == "__main__":
    main()
