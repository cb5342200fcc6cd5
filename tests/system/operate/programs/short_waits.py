"""A program that never waits long: says what its call said when its connection ended. Arguments: the way, the
address and the port of its peer."""

from __future__ import annotations

import errno
import select
import socket
import sys
import time
from collections.abc import Callable

WAIT_S = 0.1  # less than the silence after which a proxy is asked whether it is there
PATIENCE_S = 30.0


def by_poll(connection: socket.socket, timeout_s: float) -> Callable[[], object]:
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return lambda: poll.poll(timeout_s * 1000)


def by_epoll(connection: socket.socket, timeout_s: float) -> Callable[[], object]:
    epoll = select.epoll()
    epoll.register(connection, select.EPOLLIN)
    return lambda: epoll.poll(timeout_s)


def by_select(connection: socket.socket, timeout_s: float) -> Callable[[], object]:
    return lambda: select.select([connection], [], [], timeout_s)[0]


def by_receive(connection: socket.socket, timeout_s: float) -> Callable[[], object]:
    return lambda: True


#: How the program waits, and how long. 0: it asks again at once, and never sleeps.
WAYS: dict[str, tuple[Callable[[socket.socket, float], Callable[[], object]], float]] = {
    "poll": (by_poll, WAIT_S),
    "epoll": (by_epoll, WAIT_S),
    "select": (by_select, WAIT_S),
    "poll at once": (by_poll, 0),
    "epoll at once": (by_epoll, 0),
    "receive at once": (by_receive, 0),
}


def main() -> None:
    way, address, port = sys.argv[1:]
    make, timeout_s = WAYS[way]
    with socket.create_connection((address, int(port))) as connection:
        connection.setblocking(False)
        is_ready = make(connection, timeout_s)
        print("connected", flush=True)
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            if not is_ready():
                continue
            try:
                print("end of the stream" if not connection.recv(100) else "data", flush=True)
                return
            except BlockingIOError:
                continue
            except OSError as error:
                print(errno.errorcode[error.errno or 0], flush=True)
                return
        print("nothing", flush=True)


if __name__ == "__main__":
    main()
