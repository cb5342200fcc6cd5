"""What the programs for the interposer are made with: see preload_scripts.py."""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

DEADLINE_S = 10.0
LIBC = ctypes.CDLL(None, use_errno=True)
SIOCATMARK = 0x8905
F_SETOWN = 8
SYS_CLOSE = {"x86_64": 3, "aarch64": 57}[platform.machine()]


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end, "did not come true"
        time.sleep(0.002)


def errno_of(call: Callable[[], object]) -> int:
    """The errno a call fails with; 0: it does not."""
    try:
        call()
    except OSError as e:
        assert e.errno is not None
        return e.errno
    return 0


def libc(name: str, *arguments: object) -> int:
    """A call of the C library's. Raises OSError."""
    ctypes.set_errno(0)
    result = getattr(LIBC, name)(*arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), name)
    return int(result)


#: Where servers of this process listen that clients of the kernel connect to.
HERE = os.environ.get("LISTEN_AT", "127.0.0.1")
#: In a lab peers are made outside, by a program at this Unix socket (peers.py).
PEERS_AT = os.environ.get("PEERS_AT")
OUTSIDE = "198.18.0.2"


def _from_outside(way: socket.socket) -> socket.socket:
    _, fds, _, _ = socket.recv_fds(way, 1, 1)
    return socket.socket(fileno=fds[0])


def client_of(port: int) -> socket.socket:
    """Of a server of this process at HERE."""
    if not PEERS_AT:
        return socket.create_connection((HERE, port))
    with socket.socket(socket.AF_UNIX) as way:
        way.connect(PEERS_AT)
        way.sendall(b"connect %d" % port)
        return _from_outside(way)


def pair(family: int = socket.AF_INET) -> tuple[socket.socket, socket.socket]:
    """A client and what a server accepted. Under the rules of the test, both are offloaded; in a lab the second."""
    if PEERS_AT:
        with socket.socket(socket.AF_UNIX) as way:
            way.connect(PEERS_AT)
            way.sendall(b"accept")
            made = socket.create_connection((OUTSIDE, int(way.recv(5))))
            return _from_outside(way), made
    host = "127.0.0.1" if family == socket.AF_INET else "::1"
    with socket.create_server((host, 0), family=family) as server:
        client = socket.create_connection(server.getsockname()[:2])
        return client, server.accept()[0]


def drain(s: socket.socket) -> bytes:
    data = b""
    while part := s.recv(65536):
        data += part
    return data


def wait_for_child(pid: int) -> None:
    assert os.waitpid(pid, 0)[1] == 0


# --- what the interposer tells ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Report:
    """The status page of this process."""

    offloaded: int
    unseen: int
    stayed: dict[int, int]
    entries: dict[int, tuple[int, int, int]]  # by descriptor: kind, flags, reason

    @staticmethod
    def memfd() -> int:
        for link in Path("/proc/self/fd").iterdir():
            try:
                if str(link.readlink()).startswith("/memfd:xts-preload"):
                    return int(link.name)
            except FileNotFoundError:
                continue
        raise AssertionError("there is no status page")

    @classmethod
    def read(cls) -> Report:
        fd = os.open(f"/proc/self/fd/{cls.memfd()}", os.O_RDONLY)
        with mmap.mmap(fd, 0, prot=mmap.PROT_READ) as page:
            data = bytes(page)
        os.close(fd)
        magic, version, count, pid = struct.unpack_from("=4I", data)
        assert (magic, version, pid) == (0x58545352, 4, os.getpid())
        offloaded, unseen, *stayed = struct.unpack_from("=34Q", data, 312)
        size = (len(data) - 952) // count if len(data) % 4096 else 64
        entries = {}
        for fd in range(count):
            kind, flags, reason = struct.unpack_from("=BBH", data, 952 + fd * size)
            if kind:
                entries[fd] = (kind, flags, reason)
        return cls(offloaded, unseen, {i: n for i, n in enumerate(stayed) if n}, entries)


UNDECIDED, STAYED, OFFLOADED, INTERNAL = 1, 2, 3, 5
RULE, PROTOCOL, NO_ENDPOINT, OPTION, RAW, INHERITED, FASTOPEN, ELSEWHERE, LOST = 1, 2, 4, 7, 10, 11, 13, 14, 15


def kind_of(s: socket.socket | int) -> int:
    fd = s if isinstance(s, int) else s.fileno()
    return Report.read().entries.get(fd, (0, 0, 0))[0]


def reason_of(s: socket.socket) -> int:
    return Report.read().entries[s.fileno()][2]
