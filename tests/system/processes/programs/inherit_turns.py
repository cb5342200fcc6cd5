"""Connections that processes use by turns, where several wait for one at the same time."""

from __future__ import annotations

import ctypes
import errno
import os
import select
import socket
import struct
import threading
from collections.abc import Callable

from beds.calls import Calls, address, until
from beds.scripts import script
from system.processes.programs.inheriting import (
    PATIENCE_S,
    Child,
    Signal,
    kernel_receive_all,
    poll,
    receive_exactly,
)
from system.sockets.programs.library_scripts import info, recv, send


def reading_child(c: Calls, s: int, peer: socket.socket, started: Signal, done: Signal) -> Child:
    """Has the connection, and waits in recv() for three bytes."""

    def child() -> None:
        assert send(c, s, b"x") == 1
        started.tell()
        assert recv(c, s, 3, socket.MSG_WAITALL) == b"..."
        done.tell()

    made = Child(c, child)
    started.wait()
    assert peer.recv(1) == b"x"
    return made


@script("inherit")
def several_send_at_the_same_time(c: Calls) -> None:
    """Parent and three children: each gets its turn, again and again."""
    s, peer = c.connected()

    def sends(letter: bytes) -> None:
        for _ in range(50):
            assert send(c, s, letter * 100) == 100

    children = [Child(c, lambda letter=letter: sends(letter)) for letter in (b"a", b"b", b"c")]  # type: ignore[misc]
    sends(b"p")
    for child in children:
        child.wait()
    assert c.call("close", s) == 0
    received = kernel_receive_all(peer)
    assert sorted(received) == sorted(b"abcp" * 5000), len(received)


@script("inherit")
def two_wait_for_data(c: Calls) -> None:
    """Who receives keeps the connection while it receives nothing; the other one gives up when its time is over."""
    s, peer = c.connected()
    started, done = Signal(), Signal()
    child = reading_child(c, s, peer, started, done)
    c.set(s, socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 100_000))
    # That was a use: the child has given it up, and asks for it again.
    until(lambda: c.call("recv", s, ctypes.create_string_buffer(9), 9, socket.MSG_DONTWAIT) == -errno.EAGAIN)
    for _ in range(3):
        assert c.call("recv", s, ctypes.create_string_buffer(9), 9, 0) == -errno.EAGAIN
    peer.sendall(b"...")
    done.wait()
    child.wait()


@script("inherit")
def a_thread_sends_while_another_waits_for_the_connection(c: Calls) -> None:
    """The child receives, a thread of the parent wants to, and another one sends: that needs it most."""
    s, peer = c.connected()
    started, done = Signal(), Signal()
    child = reading_child(c, s, peer, started, done)
    received: list[bytes] = []
    thread = threading.Thread(target=lambda: received.append(recv(c, s, 1)))
    thread.start()
    for i in range(20):
        assert send(c, s, b"%04d" % i) == 4
        assert receive_exactly(peer, 4) == b"%04d" % i
    peer.sendall(b"....")  # for both
    thread.join(PATIENCE_S)
    done.wait()
    child.wait()
    assert received == [b"."]


@script("inherit")
def many_end_with_a_child(c: Calls) -> None:
    """The parent has closed all; the child that had copies is killed, and each peer learns of it."""
    server = socket.create_server(("127.0.0.1", 0), backlog=256)
    port = server.getsockname()[1]
    pairs = []
    for _ in range(200):
        s = c.create()
        assert c.call("connect", s, address(port), 16) == 0
        pairs.append((s, server.accept()[0]))
    child = Child(c, lambda: Signal().wait())
    for s, _ in pairs:
        assert c.call("close", s) == 0
    assert not select.select([peer for _, peer in pairs], [], [], 0.2)[0], "closed, though the child may want it"
    child.kill()
    for _, peer in pairs:
        assert select.select([peer], [], [], PATIENCE_S)[0]
        assert peer.recv(1) == b""
    until(lambda: info(c).sockets == 0)


@script("inherit")
def all_is_waited_for_between_turns(c: Calls) -> None:
    """MSG_WAITALL: another process sends in the midst of it, and has to have the connection for that."""
    s, peer = c.connected()
    half = Signal()

    def child() -> None:
        half.wait()
        assert send(c, s, b"x") == 1

    sender = Child(c, child)
    received: list[bytes] = []
    thread = threading.Thread(target=lambda: received.append(recv(c, s, 8, socket.MSG_WAITALL)))
    thread.start()
    frames = info(c).received_frames
    peer.sendall(b"half")
    until(lambda: info(c).received_frames > frames)
    half.tell()
    assert peer.recv(1) == b"x"
    sender.wait()
    peer.sendall(b"half")
    thread.join(PATIENCE_S)
    assert received == [b"halfhalf"]


def reads_while_another_sends(c: Calls, times: int, waits: Callable[[int], None]) -> None:
    """A child receives this many bytes, of which the peer sends one at a time, while its parent sends all the time."""
    s, peer = c.connected()
    got = Signal()

    def serve() -> None:
        """The peer: takes what comes, and sends the next byte when the last has been read."""
        peer.setblocking(False)
        peer.send(b".")
        while True:
            ready = select.select([peer, got.read_end], [], [])[0]
            if peer in ready and not peer.recv(1 << 20):
                break
            if got.read_end in ready:
                os.read(got.read_end, 1)
                peer.send(b".")

    def receive() -> None:
        for _ in range(times):
            waits(s)
            assert recv(c, s, 1) == b"."
            got.tell()

    serving = Child(c, serve, orderly=False)
    peer.close()
    reader = Child(c, receive)
    while not os.waitid(os.P_PID, reader.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
        assert send(c, s, bytes(1000)) == 1000
    reader.wait()
    serving.kill()


@script("inherit")
def one_receives_while_the_other_sends_all_the_time(c: Calls) -> None:
    """It was passed over each time, since who sends needs the connection more."""
    reads_while_another_sends(c, 100, lambda _: None)


@script("inherit")
def one_polls_while_the_other_sends_all_the_time(c: Calls) -> None:
    """What is in use was not given up for a poll."""
    reads_while_another_sends(c, 30, lambda s: until(lambda: poll(c, s, timeout_ms=1000) == select.POLLIN))
