"""What the programs that keep sockets over fork and exec are made with: see inherit_scripts.py."""

from __future__ import annotations

import ctypes
import errno
import hashlib
import os
import select
import signal
import socket
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from beds.calls import Calls, address
from beds.libc_structs import PollFd
from system.sockets.programs.library_scripts import recv, send

PATIENCE_S = 30.0
PATTERN = hashlib.shake_128(b"pattern").digest(1 << 20)


# --- processes ----------------------------------------------------------------------------------------


class Child:
    """A forked process that runs a function and leaves as a program under the interposer would."""

    def __init__(self, c: Calls, body: Callable[[], None], orderly: bool = True) -> None:
        self.complaints, tell = os.pipe()
        self.pid = os.fork()
        if self.pid:
            os.close(tell)
            return
        status = 1
        try:
            signal.alarm(60)
            body()
            status = 0
        except BaseException as error:
            os.write(tell, "".join(traceback.format_exception(error)).encode()[-4000:])
        if orderly:
            c.native.xts_before_exit()
        os._exit(status)

    def wait(self, expected: int = 0) -> None:
        end = time.monotonic() + 60
        while True:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                break
            assert time.monotonic() < end, "a child hangs"
            time.sleep(0.005)
        complaint = os.read(self.complaints, 4000).decode() if os.waitstatus_to_exitcode(status) == 1 else ""
        os.close(self.complaints)
        assert os.waitstatus_to_exitcode(status) == expected, (status, complaint)

    def stop(self) -> None:
        """And waits until all its threads have stopped: until one of them has seen the signal, the others go on."""
        os.kill(self.pid, signal.SIGSTOP)
        _, status = os.waitpid(self.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status), status

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        self.wait(-signal.SIGKILL)


class Signal:
    """One process tells another, through a pipe."""

    def __init__(self) -> None:
        self.read_end, self.write_end = os.pipe()

    def tell(self, what: bytes = b"x") -> None:
        os.write(self.write_end, what)

    def wait(self, size: int = 1) -> bytes:
        assert select.select([self.read_end], [], [], PATIENCE_S)[0], "nobody tells"
        return os.read(self.read_end, size)


def open_descriptors(pid: int | None = None) -> int:
    return len(list(Path(f"/proc/{pid or 'self'}/fd").iterdir()))


# --- sockets ------------------------------------------------------------------------------------------


def listen(c: Calls, backlog: int = 128, share: bool = True) -> tuple[int, int]:
    """A listener that may be shared, and its port."""
    s = c.create()
    if share:
        assert c.call("share_listener", s) == 0
    assert c.call("bind", s, address(0), 16) == 0 and c.call("listen", s, backlog) == 0
    found = c.name("getsockname", s)
    assert found
    return s, found[1]


def poll(c: Calls, s: int, events: int = select.POLLIN, timeout_ms: int = 10_000) -> int:
    fds = (PollFd * 1)(PollFd(s, events, 0))
    r = c.call("poll", fds, ctypes.c_ulong(1), timeout_ms)
    assert r >= 0, r
    return int(fds[0].revents)


def accept(c: Calls, s: int) -> int:
    r = c.call("accept4", s, None, None, 0)
    assert r >= 0, errno.errorcode[-r]
    return r


def receive_all(c: Calls, s: int, size: int) -> bytes:
    data = b""
    while len(data) < size and (part := recv(c, s, min(size - len(data), 65536))):
        data += part
    return data


def receive_exactly(peer: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size and (part := peer.recv(size - len(data))):
        data += part
    return data


def kernel_receive_all(peer: socket.socket) -> bytes:
    data = b""
    while part := peer.recv(65536):
        data += part
    return data


def ask(port: int) -> bytes:
    """One connection to a server that says who it is and closes."""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as peer:
        return kernel_receive_all(peer)


def refused(port: int) -> bool:
    """Does nobody listen there any more?"""
    with socket.socket() as probe:
        probe.settimeout(PATIENCE_S)
        return probe.connect_ex(("127.0.0.1", port)) == errno.ECONNREFUSED


def serve_names(c: Calls, s: int, name: bytes, count: int = 1 << 30) -> None:
    for _ in range(count):
        connection = accept(c, s)
        send(c, connection, name)
        c.call("close", connection)


@contextmanager
def workers(c: Calls, s: int, count: int, body: Callable[[int], None] | None = None) -> Iterator[list[Child]]:
    def work(index: int) -> None:
        if body:
            body(index)
        else:
            serve_names(c, s, b"%d" % index)

    made = [Child(c, partial(work, i)) for i in range(count)]
    try:
        yield made
    finally:
        for child in made:
            os.kill(child.pid, signal.SIGKILL)
            os.waitpid(child.pid, 0)
