"""The other end of wait_bed.py, on the kernel: does what its standard input asks for, one JSON line each."""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple


def drain(end: socket.socket, count: int) -> None:
    while count:
        count -= len(end.recv(min(count, 1 << 20)))


def behind_a_signal(pid: int, act: Callable[..., object], *arguments: Any) -> None:
    """Interrupts the process in the call in which it sleeps, and acts when it has had the signal. By the clock, what
    comes behind it may be there before it, where the machine has much else to do."""
    asleep = 0
    while asleep < 5:
        time.sleep(0.01)
        asleep = asleep + 1 if state(pid).state == "S" else 0
    os.kill(pid, signal.SIGALRM)
    while state(pid).has_alarm:
        time.sleep(0.001)
    time.sleep(0.02)
    act(*arguments)


class State(NamedTuple):
    state: str
    has_alarm: bool  # a signal that no thread has taken


def state(pid: int) -> State:
    lines = Path("/proc", str(pid), "status").read_text().splitlines()
    fields = dict(line.split(":\t", 1) for line in lines)
    return State(fields["State"][0], bool(int(fields["ShdPnd"], 16) >> signal.SIGALRM - 1 & 1))


def main() -> None:
    server = socket.create_server(("127.0.0.1", 0), backlog=64)
    ends: list[socket.socket] = []
    for line in sys.stdin:
        word, *arguments = json.loads(line)
        answer: Any = None
        if word == "port":
            answer = server.getsockname()[1]
        elif word == "accept":
            ends.append(server.accept()[0])
            answer = len(ends) - 1
        elif word == "connect":
            ends.append(socket.create_connection(("127.0.0.1", arguments[0])))
            answer = len(ends) - 1
        elif word == "send":
            ends[arguments[0]].sendall(arguments[1].encode())
        elif word == "recv":
            answer = ends[arguments[0]].recv(arguments[1], socket.MSG_WAITALL).decode()
        elif word == "later":
            threading.Timer(arguments[2], ends[arguments[0]].sendall, (arguments[1].encode(),)).start()
        elif word == "behind a signal":
            pid, what, *arguments = arguments
            act = {
                "send": lambda end, data: ends[end].sendall(data.encode()),
                "connect": lambda port: socket.create_connection(("127.0.0.1", port)),
                "drain": lambda end, count: drain(ends[end], count),
            }[what]
            threading.Thread(target=behind_a_signal, args=(pid, act, *arguments)).start()
        elif word == "end and reset":
            ends[arguments[0]].shutdown(socket.SHUT_WR)
            ends[arguments[0]].setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            ends[arguments[0]].close()
        elif word == "close":
            ends[arguments[0]].close()
        else:
            raise ValueError(word)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
