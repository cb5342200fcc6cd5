"""A program under the interposer that waits in each way, and says how each wait has ended. Arguments: address and port
of its peer, which sends back what it gets, and how often it asks; "gaps". At last it waits until it is ended."""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import threading
import time
from types import FrameType

ECHOES = int(sys.argv[3])
SOON_S = 0.05


class StopWaiting(Exception):  # noqa: N818 - it is no error
    """Raised by a handler."""


def stop(number: int, frame: FrameType | None) -> None:
    raise StopWaiting


def echoes(sock: socket.socket) -> str:
    for number in range(ECHOES):
        sock.sendall(number.to_bytes(4))
        assert int.from_bytes(sock.recv(4, socket.MSG_WAITALL)) == number
    return "answered"


def in_time(sock: socket.socket) -> str:
    sock.settimeout(SOON_S)
    try:
        sock.recv(1)
    except TimeoutError:
        return "in time"
    finally:
        sock.settimeout(None)
    return "an answer to nothing"


def by_signal(sock: socket.socket) -> str:
    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, SOON_S)
    try:
        sock.recv(1)
    except StopWaiting:
        return "by a signal"
    return "an answer to nothing"


def by_a_kernel_descriptor(sock: socket.socket) -> str:
    read_end, write_end = os.pipe()
    threading.Timer(SOON_S, os.write, (write_end, b"x")).start()
    poll = select.poll()
    for fd in (sock.fileno(), read_end):
        poll.register(fd, select.POLLIN)
    ready = [fd for fd, _ in poll.poll(10_000)]
    return "by a pipe" if ready == [read_end] else f"by {ready}"


def by_another_thread(sock: socket.socket) -> str:
    """Two threads of a stack wait: one of them polls."""
    here, there = socket.create_connection(sock.getpeername()), []
    thread = threading.Thread(target=lambda: there.append(here.recv(1)))
    thread.start()
    for number in range(ECHOES):
        sock.sendall(bytes([number % 256]))
        sock.recv(1)
    here.sendall(b"!")
    thread.join(10)
    here.close()
    return "by another thread" if there == [b"!"] else "never"


def main() -> None:
    with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as sock:
        print("connected", flush=True)
        for wait in (echoes, in_time, by_signal, by_a_kernel_descriptor, by_another_thread):
            print(wait(sock), flush=True)
        if sys.argv[4:] == ["gaps"]:  # the peer sends a byte every millisecond
            begun, received, calls = time.monotonic(), 0, 0
            sock.sendall(b"go")
            while received < 300:
                received += len(sock.recv(300))
                calls += 1
            print(calls, time.monotonic() - begun, flush=True)
        try:
            sock.recv(1)
            print("the end", flush=True)
        except OSError as error:
            print(error.strerror, flush=True)


if __name__ == "__main__":
    main()
