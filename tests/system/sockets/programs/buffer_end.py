"""One end of connections whose buffers are filled: carries out the JSON commands of its standard input, a line each, on
plain sockets (of the kernel, or offloaded under the interposer), and prints what each came to."""

from __future__ import annotations

import fcntl
import json
import select
import socket
import struct
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

SIOCOUTQ = 0x5411
STILL_S = 0.25
DEADLINE_S = 20.0
SOCKETS: list[socket.socket] = []


def number(s: socket.socket) -> int:
    s.setblocking(False)
    SOCKETS.append(s)
    return len(SOCKETS) - 1


def options(s: socket.socket, send: int, receive: int) -> None:
    if send:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send)
    if receive:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive)


def listen(host: str, send: int, receive: int) -> list[int]:
    """A listener, and its port."""
    s = socket.socket()
    options(s, send, receive)
    s.bind((host, 0))
    s.listen(16)
    return [number(s), s.getsockname()[1]]


def connect(host: str, port: int, send: int, receive: int) -> int:
    s = socket.socket()
    options(s, send, receive)
    s.connect((host, port))
    return number(s)


def accept(which: int) -> int:
    ready(which, select.POLLIN, DEADLINE_S)
    return number(SOCKETS[which].accept()[0])


def ready(which: int, events: int, timeout_s: float) -> bool:
    poll = select.poll()
    poll.register(SOCKETS[which], events)
    return bool(poll.poll(timeout_s * 1000))


def outq(which: int) -> int:
    return int(struct.unpack("i", fcntl.ioctl(SOCKETS[which], SIOCOUTQ, bytes(4)))[0])


def fill(which: int, chunk_bytes: int) -> dict[str, int]:
    """Writes until nothing goes any more: bytes before the first EAGAIN, in all, and of those, not acknowledged."""
    s, chunk = SOCKETS[which], bytes(chunk_bytes)
    first = sent = 0
    end = time.monotonic() + DEADLINE_S
    while time.monotonic() < end:
        try:
            sent += s.send(chunk)
        except BlockingIOError:
            first = first or sent
            if not ready(which, select.POLLOUT, STILL_S):
                break
    with suppress(BlockingIOError):
        while True:
            sent += s.send(chunk)  # beyond what poll tells
    return {"first": first, "all": sent, "outq": outq(which)}


def send(which: int, amount: int) -> int:
    """All of so many bytes, waiting as it must."""
    s, left = SOCKETS[which], amount
    while left:
        assert ready(which, select.POLLOUT, DEADLINE_S)
        try:
            left -= s.send(bytes(min(left, 65536)))
        except BlockingIOError:
            continue
    return amount


def take(which: int, amount: int) -> int:
    s, got = SOCKETS[which], 0
    while got < amount and ready(which, select.POLLIN, DEADLINE_S):
        part = s.recv(min(amount - got, 262144))
        if not part:
            break
        got += len(part)
    return got


def sizes(which: int) -> list[int]:
    return [SOCKETS[which].getsockopt(socket.SOL_SOCKET, option) for option in (socket.SO_SNDBUF, socket.SO_RCVBUF)]


def resize(which: int, send: int) -> None:
    options(SOCKETS[which], send, 0)


def close(which: int) -> None:
    SOCKETS[which].close()


COMMANDS: dict[str, Callable[..., Any]] = {
    each.__name__: each for each in (listen, connect, accept, fill, send, take, sizes, outq, close, resize)
}


def main() -> None:
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        print(json.dumps(COMMANDS[name](*arguments)), flush=True)


if __name__ == "__main__":
    main()
