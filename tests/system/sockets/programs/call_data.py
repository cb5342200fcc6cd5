"""Scripts of calls: sending and receiving."""

from __future__ import annotations

import ctypes
import fcntl
import os
import select
import socket
import struct
import threading
import time

from beds.calls import Calls, address, fill, until
from beds.libc_structs import Header, Vector
from beds.scripts import script


def _in_two_parts(peer: socket.socket) -> None:
    """So that a call that waits for all of it is there before the first part, or between them, and in this order."""
    for part in (b"abc", b"defgh"):
        time.sleep(0.03)
        peer.sendall(part)


@script("calls")
def receive_flags(c: Calls) -> None:
    s, peer = c.connected()
    c.recv(s, 10, socket.MSG_DONTWAIT)
    c.recv(s, 0, socket.MSG_DONTWAIT)
    peer.sendall(b"0123456789")
    c.wait(s, select.POLLIN)
    until(lambda: c.call("recv", s, ctypes.create_string_buffer(20), 20, socket.MSG_PEEK) == 10)
    c.recv(s, 4, socket.MSG_PEEK)
    c.recv(s, 0)
    c.recv(s, 3)
    c.recv(s, 2, socket.MSG_TRUNC)
    c.recv(s, 10, socket.MSG_OOB)
    c.recv(s, 10, socket.MSG_ERRQUEUE)
    c.recv(s, 10, 0x400000)
    c.recv(s, 10, socket.MSG_DONTWAIT | socket.MSG_WAITALL)
    threading.Thread(target=_in_two_parts, args=(peer,)).start()
    c.recv(s, 8, socket.MSG_WAITALL)
    threading.Thread(target=_in_two_parts, args=(peer,)).start()
    c.recv(s, 8, socket.MSG_WAITALL | socket.MSG_PEEK)
    c.recv(s, 100)
    peer.sendall(b"end")
    peer.close()
    c.recv(s, 8, socket.MSG_WAITALL)
    c.recv(s, 8, socket.MSG_WAITALL)


@script("calls")
def receive_timeout_and_low_water(c: Calls) -> None:
    s, peer = c.connected()
    c.set(s, socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 100_000))
    c.recv(s, 10)
    c.set(s, socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 1_000_000))
    c.set(s, socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 0), 8)
    c.get(s, socket.SOL_SOCKET, socket.SO_RCVTIMEO, 16)
    c.set(s, socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 3, 200_000))
    c.get(s, socket.SOL_SOCKET, socket.SO_RCVTIMEO, 16)
    c.get(s, socket.SOL_SOCKET, socket.SO_RCVTIMEO, 4)
    c.set(s, socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 100_000))
    c.set(s, socket.SOL_SOCKET, socket.SO_RCVLOWAT, 8)
    c.get(s, socket.SOL_SOCKET, socket.SO_RCVLOWAT)
    peer.sendall(b"1234")
    until(lambda: c.call("recv", s, ctypes.create_string_buffer(20), 20, socket.MSG_PEEK | socket.MSG_DONTWAIT) == 4)
    c.events(s, select.POLLIN)
    c.recv(s, 10)
    peer.sendall(b"12345678")
    c.wait(s, select.POLLIN)
    c.recv(s, 10)


@script("calls")
def scatter_and_gather(c: Calls) -> None:
    s, peer = c.connected()
    words = [ctypes.create_string_buffer(word, len(word)) for word in (b"one", b"two", b"three")]
    one, two, three = (Vector(ctypes.addressof(word), len(word)) for word in words)
    m = Header(None, 0, (Vector * 4)(one, Vector(None, 0), two, three), 4, None, 0, 0)
    c.do("sendmsg", s, ctypes.byref(m), 0)
    c.note("peer", peer.recv(100).hex())
    m.count = 0
    c.do("sendmsg", s, ctypes.byref(m), 0)
    m.count = 1025
    c.do("sendmsg", s, ctypes.byref(m), 0)
    m.count = 1
    where = address(1)
    c.do("sendto", s, b"to", 2, 0, where, 16)
    c.note("peer", peer.recv(100).hex())
    peer.sendall(b"abcdefgh")
    parts = [ctypes.create_string_buffer(3), ctypes.create_string_buffer(10)]
    into = (Vector * 3)(*(Vector(ctypes.addressof(p), len(p)) for p in parts), Vector(None, 0))
    m = Header(ctypes.cast(ctypes.create_string_buffer(16), ctypes.c_void_p), 16, into, 3, None, 0, 0x55)
    c.do("recvmsg", s, ctypes.byref(m), socket.MSG_WAITALL & 0)
    c.note("parts", [parts[0].raw.hex(), parts[1].raw.hex(), m.name_bytes, m.control_bytes, m.flags])
    length = ctypes.c_uint(16)
    peer.sendall(b"x")
    buffer, from_where = ctypes.create_string_buffer(4), ctypes.create_string_buffer(16)
    c.do("recvfrom", s, buffer, 4, 0, from_where, ctypes.byref(length))
    c.note("length", length.value)


@script("calls")
def more_and_cork(c: Calls) -> None:
    s, peer = c.connected()
    c.send(s, b"head", socket.MSG_MORE)
    c.send(s, b"body", 0)
    received = b""
    while len(received) < 8:
        received += peer.recv(100)
    c.note("peer", received.hex())
    c.send(s, b"alone", socket.MSG_MORE)
    c.note("peer", peer.recv(100).hex())  # leaves after 200 ms at the latest
    c.set(s, socket.IPPROTO_TCP, socket.TCP_CORK, 1)
    c.send(s, b"corked")
    c.set(s, socket.IPPROTO_TCP, socket.TCP_CORK, 0)
    c.note("peer", peer.recv(100).hex())


@script("calls")
def send_until_full(c: Calls) -> None:
    s, peer = c.connected()
    sent, before = 0, len(c.trace)
    # Full is what is still full at the end of these calls. Before, what was sent moves on to the peer, for a time that
    # differs between the proxy and the kernel alone; each time that there is room again, all of them are made again.
    while True:
        del c.trace[before:]
        c.do("fcntl", s, fcntl.F_SETFL, os.O_NONBLOCK)
        sent += fill(c, s)
        c.events(s, select.POLLOUT)
        c.set(s, socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 0, 50_000))
        c.do("fcntl", s, fcntl.F_SETFL, 0)
        if c.send(s, b"x") != 1:
            break
        sent += 1
    received = 0
    while received < sent:
        received += len(peer.recv(min(1 << 20, sent - received)))
    c.wait(s, select.POLLOUT)
    c.events(s, select.POLLOUT)
    c.note("all there", received == sent)


@script("calls")
def large_both_ways(c: Calls) -> None:
    s, peer = c.connected()
    data = os.urandom(3 << 20)
    thread = threading.Thread(target=peer.sendall, args=(data,))
    thread.start()
    buffer = ctypes.create_string_buffer(len(data))
    c.do("recv", s, buffer, len(data), socket.MSG_WAITALL)
    thread.join()
    c.note("same", buffer.raw == data)
    received = bytearray()

    def reader() -> None:
        while len(received) < len(data):
            received.extend(peer.recv(1 << 20))

    thread = threading.Thread(target=reader)
    thread.start()
    c.do("send", s, data, len(data), 0)
    thread.join()
    c.note("same", bytes(received) == data)
