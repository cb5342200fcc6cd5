"""Scripts of calls: how a connection ends."""

from __future__ import annotations

import ctypes
import errno
import select
import signal
import socket
import struct
import threading

from beds.calls import Calls, reset, until
from beds.libc_structs import PollFd
from beds.scripts import script


@script("calls")
def shutdown_write(c: Calls) -> None:
    s, peer = c.connected()
    c.send(s, b"last words")
    c.do("shutdown", s, socket.SHUT_WR)
    c.do("shutdown", s, socket.SHUT_WR)
    c.note("peer", peer.recv(100).hex())
    c.note("peer", peer.recv(100).hex())
    c.events(s)
    c.send(s, b"x")
    c.send(s, b"")
    peer.sendall(b"still heard")
    c.wait(s, select.POLLIN)
    c.recv(s, 100)
    c.events(s)
    peer.close()
    c.wait(s, select.POLLRDHUP if hasattr(select, "POLLRDHUP") else 0x2000)
    until(lambda: c.call("getpeername", s, ctypes.create_string_buffer(16), ctypes.byref(ctypes.c_uint(16))) < 0)
    c.events(s)
    c.recv(s, 10)
    c.recv(s, 10)
    c.name("getpeername", s)
    c.do("shutdown", s, socket.SHUT_RDWR)


@script("calls")
def shutdown_read(c: Calls) -> None:
    s, peer = c.connected()
    peer.sendall(b"before")
    c.wait(s, select.POLLIN)
    c.do("shutdown", s, socket.SHUT_RD)
    c.events(s)
    c.recv(s, 100)
    c.recv(s, 100)
    c.send(s, b"fine")
    c.note("peer", peer.recv(10).hex())
    c.do("shutdown", s, socket.SHUT_WR)
    c.events(s)


@script("calls")
def peer_closes(c: Calls) -> None:
    s, peer = c.connected()
    peer.sendall(b"bye")
    peer.close()
    c.wait(s, 0x2000)
    c.events(s)
    c.recv(s, 2)
    c.recv(s, 2)
    c.recv(s, 2)
    c.recv(s, 2)
    c.name("getpeername", s)
    c.send(s, b"into the void")
    c.wait_error(s)
    c.events(s)
    c.recv(s, 2)
    c.send(s, b"x")
    c.send(s, b"x")
    c.get(s, socket.SOL_SOCKET, socket.SO_ERROR)


@script("calls")
def reset_seen_by_recv(c: Calls) -> None:
    s, peer = c.connected()
    reset(peer)
    c.wait_error(s)
    c.events(s)
    c.recv(s, 10)
    c.recv(s, 10)
    c.send(s, b"x")
    c.get(s, socket.SOL_SOCKET, socket.SO_ERROR)
    c.events(s)
    c.name("getpeername", s)
    c.connect(s, 1)
    c.do("shutdown", s, socket.SHUT_WR)


@script("calls")
def reset_seen_by_send(c: Calls) -> None:
    s, peer = c.connected()
    reset(peer)
    c.wait_error(s)
    c.send(s, b"x")
    c.send(s, b"x")
    c.recv(s, 10)


@script("calls")
def reset_seen_by_option(c: Calls) -> None:
    s, peer = c.connected()
    reset(peer)
    c.wait_error(s)
    c.get(s, socket.SOL_SOCKET, socket.SO_ERROR)
    c.get(s, socket.SOL_SOCKET, socket.SO_ERROR)
    c.recv(s, 10)
    c.send(s, b"x")


@script("calls")
def reset_ends_waiting_calls(c: Calls) -> None:
    s, peer = c.connected()
    threading.Timer(0.05, lambda: reset(peer)).start()
    c.recv(s, 10)
    s, peer = c.connected()
    threading.Timer(0.05, peer.close).start()
    c.recv(s, 10)


@script("calls")
def broken_pipe_signals(c: Calls) -> None:
    seen: list[int] = []
    before = signal.signal(signal.SIGPIPE, lambda number, _frame: seen.append(number))
    try:
        s = c.create()
        c.send(s, b"x", 0)
        c.note("signals", len(seen))
        c.send(s, b"x", socket.MSG_NOSIGNAL)
        c.note("signals", len(seen))
        s, peer = c.connected()
        c.do("shutdown", s, socket.SHUT_WR)
        c.send(s, b"x", 0)
        c.note("signals", len(seen))
        peer.close()
    finally:
        signal.signal(signal.SIGPIPE, before)


def peer_end(c: Calls, peer: socket.socket) -> None:
    try:
        c.note("peer", peer.recv(100).hex())
        c.note("peer", peer.recv(100).hex())
    except OSError as error:
        c.note("peer", errno.errorcode[error.errno or 0])


@script("calls")
def close_with_unread_data(c: Calls) -> None:
    s, peer = c.connected()
    peer.sendall(b"unread")
    c.wait(s, select.POLLIN)
    c.close(s)
    peer_end(c, peer)
    s, peer = c.connected()
    peer.sendall(b"read")
    c.wait(s, select.POLLIN)
    c.recv(s, 100)
    c.send(s, b"all is well")
    c.close(s)
    peer_end(c, peer)


@script("calls")
def close_lingering(c: Calls) -> None:
    for value in ((1, 0), (1, 5), (0, 5)):
        s, peer = c.connected()
        c.set(s, socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", *value))
        c.get(s, socket.SOL_SOCKET, socket.SO_LINGER, 8)
        c.send(s, b"x")
        if value == (1, 0):
            c.note("peer", peer.recv(1).hex())
        c.close(s)
        peer_end(c, peer)
        peer.close()


@script("calls")
def interrupted(c: Calls) -> None:
    for flags in ("restart", "no restart"):
        s, peer = c.connected()
        signal.signal(signal.SIGALRM, lambda _number, _frame: None)
        signal.siginterrupt(signal.SIGALRM, flags != "restart")
        signal.siginterrupt(signal.SIGINT, flags != "restart")
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        threading.Timer(0.2, lambda peer=peer: peer.sendall(b"late")).start()
        c.recv(s, 10)
        if flags == "no restart":
            until(lambda s=s: c.call("recv", s, ctypes.create_string_buffer(9), 9, socket.MSG_DONTWAIT) > 0)
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        interrupted_poll = c.call("poll", (PollFd * 1)(PollFd(s, select.POLLIN, 0)), ctypes.c_ulong(1), 1000)
        c.note("poll", errno.errorcode[-interrupted_poll])
        c.set(s, socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 1, 0))
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        c.recv(s, 10)
        peer.close()
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
