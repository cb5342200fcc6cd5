"""opens_sockets.py PORT CODE: runs the code, which has names for sockets that the rules of test_strict_outcome.py
refuse, keep and (at PORT) offload. What fails is passed over, as a careless program does."""

import ctypes
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress


def go(port: int) -> None:
    with socket.socket() as s, suppress(OSError):
        s.connect(("127.0.0.1", port))


def refused() -> None:
    go(7001)


def kept() -> None:
    go(7002)


def offloaded() -> None:
    go(int(sys.argv[1]))


def child(what: Callable[[], object]) -> None:
    if not (pid := os.fork()):
        what()
        sys.exit(0)
    os.waitpid(pid, 0)


def execute(code: str) -> None:
    os.execv(sys.executable, [sys.executable, __file__, sys.argv[1], code])


names = (ctypes, os, signal, socket, sys, time, refused, kept, offloaded, child, execute)
exec(sys.argv[2])
