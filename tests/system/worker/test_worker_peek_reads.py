"""Peek mode's cost: what was peeked is not read over and over again, whatever the peer does."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from beds.scripted_host import ScriptedHost, Worker
from beds.worker import connected, host, receive_exactly, server, worker

__all__ = ["host", "server", "worker"]  # fixtures

SO_PEEK_OFF = 42
DRIPS = 500


def remembers_place() -> bool:
    """Does this kernel know where the next peek at a TCP socket begins?"""
    with socket.socket() as probe:
        try:
            probe.setsockopt(socket.SOL_SOCKET, SO_PEEK_OFF, 0)
        except OSError:
            return False
    return True


def of_worker(peer: socket.socket) -> socket.socket:
    """The worker's socket, which is in this process: a duplicate."""
    wanted = peer.getsockname()
    for path in Path("/proc/self/fd").iterdir():
        try:
            found = socket.socket(fileno=os.dup(int(path.name)))
        except OSError:
            continue
        try:
            if found.getpeername() == wanted:
                return found
        except OSError:
            pass
        found.close()
    raise AssertionError("no such socket")


@pytest.mark.skipif(not remembers_place(), reason="SO_PEEK_OFF for TCP is there since Linux 6.9")
def test_each_byte_is_peeked_once(worker: Worker, host: ScriptedHost, server: socket.socket) -> None:
    """The next read begins where the one before ended, and not at the front."""
    with connected(host, server) as c:
        assert c.ioctl("PEEK_MODE", b"\1").error == 0
        c.peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        got = b""
        for i in range(DRIPS):
            c.peer.sendall(b"%03d" % i)
            while len(got) < 3 * (i + 1):
                got += c.read().payload
        assert got == b"".join(b"%03d" % i for i in range(DRIPS))
        with of_worker(c.peer) as theirs:
            assert theirs.getsockopt(socket.SOL_SOCKET, SO_PEEK_OFF) == len(got)
            assert c.ioctl("END_PEEK_MODE", (3).to_bytes(4, "big")).error == 0
            c.read_bytes = 0
            again = b""
            while len(again) < len(got) - 3:
                again += c.read().payload
            assert again == got[3:]
            assert theirs.getsockopt(socket.SOL_SOCKET, SO_PEEK_OFF) == -1


def test_urgent_data_shifts_nothing(host: ScriptedHost, server: socket.socket) -> None:
    """Reading skips an urgent byte; what is peeked behind one is either right or does not come."""
    with connected(host, server) as c:
        assert c.ioctl("PEEK_MODE", b"\1").error == 0
        c.peer.sendall(b"hello")
        assert c.read().payload == b"hello"
        got = b"hello"
        c.peer.send(b"!", socket.MSG_OOB)
        for word in (b"more", b"of it"):
            c.peer.sendall(word)
            with pytest.raises(TimeoutError):
                while True:
                    got += c.read(50).payload
            assert b"hellomoreof it".startswith(got)
        assert c.ioctl("END_PEEK_MODE", bytes(4)).error == 0
        c.read_bytes = 0
        again = b""
        while len(again) < len("hellomoreof it"):
            again += c.read().payload
        assert again == b"hellomoreof it"


def test_a_lot_before_urgent_data_is_not_read_over_and_over(host: ScriptedHost, server: socket.socket) -> None:
    """From the front at most 64 KiB are peeked: then nothing more comes, and all comes again afterwards."""
    data = os.urandom(80_000)
    with connected(host, server) as c:
        assert c.ioctl("PEEK_MODE", b"\1").error == 0
        c.peer.sendall(data[:70_000])
        got = b""
        while len(got) < 70_000:
            got += c.read().payload
        c.peer.send(b"!", socket.MSG_OOB)
        c.peer.sendall(data[70_000:])
        with pytest.raises(TimeoutError):
            while True:
                got += c.read(50).payload
        assert got == data[:70_000]
        assert c.ioctl("END_PEEK_MODE", bytes(4)).error == 0
        c.read_bytes = 0
        again = b""
        while len(again) < len(data):
            again += c.read().payload
        assert again == data
        c.send(b"done")
        assert receive_exactly(c.peer, 4) == b"done"
