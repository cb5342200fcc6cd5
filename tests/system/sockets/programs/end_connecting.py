"""Ends an attempt at a connection: `python end_connecting.py WAY ADDRESS PORT GOOD_PORT`, under the interposer.

The listener at PORT answers nobody, that at GOOD_PORT accepts. The program starts to connect, says so in a line, reads
one, and ends the attempt in this way. It says so, too, and goes on until its input ends, if that is not how it ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path

WAIT_S = 60.0
PEER = ("", 0)
GOOD = ("", 0)


def heard() -> None:
    """Waits for a line."""
    sys.stdin.readline()


def say(text: str) -> None:
    print(text, flush=True)


def connecting(timeout: float = 0.0) -> socket.socket:
    s = socket.socket()
    s.settimeout(timeout)
    with contextlib.suppress(BlockingIOError, TimeoutError):
        s.connect(PEER)
        raise AssertionError("it connects")
    say("connecting")
    heard()
    return s


def close() -> None:
    connecting().close()


def close_after_an_option() -> None:
    """The socket's identifier comes with an option's answer, and does not count."""
    s = connecting()
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    s.close()


def close_after_bind() -> None:
    """The identifier is known before."""
    s = socket.socket()
    s.bind((PEER[0] if PEER[0] == "127.0.0.1" else "", 0))
    s.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        s.connect(PEER)
    say("connecting")
    heard()
    s.close()


def close_after_time_out() -> None:
    connecting(0.05).close()


def shutdown() -> None:
    """It does not wait for the attempt's end either, and the socket can be used again."""
    s = connecting()
    s.shutdown(socket.SHUT_RDWR)
    s.settimeout(WAIT_S)
    s.connect(GOOD)
    assert s.recv(2) == b"hi"


def disconnect() -> None:
    """connect() to AF_UNSPEC."""
    s = connecting()
    nowhere = ctypes.create_string_buffer(16)
    assert ctypes.CDLL(None, use_errno=True).connect(s.fileno(), nowhere, 16) == 0, ctypes.get_errno()
    s.settimeout(WAIT_S)
    s.connect(GOOD)
    assert s.recv(2) == b"hi"


def dup2() -> None:
    s = connecting()
    with Path(os.devnull).open("rb") as null:
        os.dup2(null.fileno(), s.detach())


def close_range() -> None:
    s = connecting()
    os.closerange(s.fileno(), s.fileno() + 1)
    s.detach()


def close_of_a_copy() -> None:
    """Only the last one ends it."""
    s = connecting()
    copy = socket.socket(fileno=os.dup(s.fileno()))
    s.close()
    with contextlib.closing(select.epoll()) as waiting:
        waiting.register(copy, select.EPOLLOUT)
        assert not waiting.poll(0.05)
    copy.close()


def close_by_another_thread() -> None:
    """While connect() waits: it returns, other than the kernel's."""
    s = socket.socket()

    def connect() -> None:
        with contextlib.suppress(OSError):
            s.connect(PEER)

    waiting = threading.Thread(target=connect, daemon=True)
    waiting.start()
    say("connecting")
    heard()
    s.close()
    waiting.join(WAIT_S)
    assert not waiting.is_alive()


def number_is_used_again() -> None:
    """What comes of the old attempt is not the new socket's business."""
    for _ in range(20):
        s = socket.socket()
        s.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            s.connect(PEER)
        fd = s.fileno()
        s.close()
        with socket.create_connection(GOOD, WAIT_S) as again:
            assert again.fileno() == fd
            assert again.recv(2) == b"hi"
    connecting().close()


def child_has_it_too() -> None:
    """The parent's close does not wait for a child that was forked meanwhile, which cannot have it."""
    s = connecting()
    release, told = os.pipe()
    if not (pid := os.fork()):
        os.close(told)
        os.read(release, 1)
        os._exit(0)
    s.close()
    say("ended")
    heard()
    os.close(told)
    os.waitpid(pid, 0)
    sys.exit(0)


def exit_process() -> None:
    connecting()
    os._exit(0)


def killed() -> None:
    connecting()
    os.kill(os.getpid(), 9)


def execute() -> None:
    """The descriptor is closed by exec()."""
    connecting()
    os.execv("/bin/cat", ["cat"])


def execute_with_it() -> None:
    """The new program would keep it, and cannot: it is told so, and the attempt ends."""
    s = connecting()
    s.set_inheritable(True)
    os.execv("/bin/cat", ["cat"])


WAYS: dict[str, Callable[[], None]] = {
    way.__name__: way
    for way in (
        close, close_after_an_option, close_after_bind, close_after_time_out, shutdown, disconnect, dup2, close_range,
        close_of_a_copy, close_by_another_thread, number_is_used_again, child_has_it_too, exit_process, killed,
        execute, execute_with_it,
    )
}  # fmt: skip


def main() -> None:
    global PEER, GOOD
    way, address, port, good = sys.argv[1:5]
    PEER, GOOD = (address, int(port)), (address, int(good))
    WAYS[way]()
    say("ended")
    heard()


if __name__ == "__main__":
    main()
