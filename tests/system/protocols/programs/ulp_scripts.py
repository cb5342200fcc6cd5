"""Programs that push protocols with libxts.so, against a proxy and the kernel's peers: `python ulp_scripts.py LIBRARY
NAME`. They assert; the exit status tells."""

from __future__ import annotations

import ctypes
import errno
import os
import random
import select
import socket
import struct
import sys
import threading
import zlib
from collections.abc import Callable
from typing import Any

from beds.calls import Calls, address
from beds.scripts import apart, script, scripts
from beds.ulp_calls import body, drain, end_peek, error, peek, poll, pour, push, recvmsg, sendmsg, sequenced, unread
from beds.ulp_calls import tell as tell_item
from beds.ulp_calls import ulps as offered
from system.sockets.programs.library_scripts import recv
from xts_messages.wire.ulps import BY_NAME, FAULTS

DEADLINE_S = 60
PREFIXED, LINES, PARSER = (BY_NAME[name].number for name in ("LENGTH_PREFIXED", "LINES", "STREAM_PARSER"))
EOR = socket.MSG_EOR
SCRIPTS = scripts("protocols")


def connected(c: Calls, *pushes: tuple[str, int]) -> tuple[int, socket.socket]:
    """A message socket with these pushed before connecting, and its peer."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        s = sequenced(c)
        assert s > 0
        for request, ulp in pushes:
            assert push(c, s, request, ulp) == 0, error(c, s)
        assert c.call("connect", s, address(listener.getsockname()[1]), 16) == 0
        return s, listener.accept()[0]


def prefixed(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


def sizes(seed: int) -> list[int]:
    """Sizes of PDUs: many small ones, some empty, some beyond any window."""
    draw = random.Random(seed)
    return [draw.choice([0, draw.randrange(300), draw.randrange(20_000), draw.randrange(900_000)]) for _ in range(40)]


def in_thread(work: Callable[[], Any]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


@script("protocols")
def pdus_to_the_application(c: Calls) -> None:
    wanted = sizes(int(os.environ.get("SEED", "1")))
    s, peer = connected(c, ("PUSH_ULP", PREFIXED))

    def send() -> None:
        for place, size in enumerate(wanted):
            peer.sendall(prefixed(body(size, place)))
        peer.shutdown(socket.SHUT_WR)

    in_thread(send)
    got = drain(c, s, [70_000, 11, 4096])
    assert [p[:2] for p in got] == [[size, zlib.crc32(body(size, place))] for place, size in enumerate(wanted)]


def _pour(c: Calls, blocking: bool) -> None:
    wanted = [size or 1 for size in sizes(int(os.environ.get("SEED", "2")))]
    s, peer = connected(c, ("PUSH_ULP", PREFIXED))
    got: list[bytes] = []

    def receive() -> None:
        with peer.makefile("rb") as file:
            while len(head := file.read(4)) == 4:
                got.append(file.read(struct.unpack(">I", head)[0]))

    receiving = in_thread(receive)
    assert pour(c, s, wanted, blocking) >= len(wanted)
    assert c.call("shutdown", s, socket.SHUT_WR) == 0
    receiving.join(DEADLINE_S)
    assert got == [body(size, place) for place, size in enumerate(wanted)]


@script("protocols")
def pdus_from_the_application(c: Calls) -> None:
    _pour(c, True)


@script("protocols")
def pdus_from_a_nonblocking_application(c: Calls) -> None:
    _pour(c, False)


@script("protocols")
def pdus_in_parts(c: Calls) -> None:
    s, peer = connected(c, ("PUSH_ULP_TX", PREFIXED))
    assert sendmsg(c, s, 4, socket.MSG_MORE) == 4
    assert push(c, s, "PUSH_ULP_TX", PREFIXED) == -errno.EBUSY
    assert sendmsg(c, s, 5) == 5 and sendmsg(c, s, 0) == 0
    wanted = prefixed(body(4) + body(5)) + prefixed(b"")
    assert peer.recv(len(wanted), socket.MSG_WAITALL) == wanted


@script("protocols")
def a_late_push_reads_what_was_not_read(c: Calls) -> None:
    s, peer = connected(c)
    peer.sendall(b"HELLO\n" + b"".join(b"line %d\n" % i for i in range(1500)))
    while unread(c, s) < 10_000:
        assert poll(c, s, select.POLLIN, 10_000)
    assert recv(c, s, 6) == b"HELLO\n"
    assert push(c, s, "PUSH_ULP_RX", LINES) == 0, error(c, s)
    for i in range(1500):
        text = b"line %d" % i
        assert recvmsg(c, s, 100) == [len(text), text.hex(), EOR, []]
    peer.sendall(b"more\n")
    peer.close()
    assert recvmsg(c, s, 100)[:3] == [4, b"more".hex(), EOR]
    assert recvmsg(c, s, 100)[:3] == [0, "", 0]


@script("protocols")
def a_late_push_of_what_has_ended(c: Calls) -> None:
    s, peer = connected(c)
    peer.sendall(b"one\ntwo\n")
    peer.close()
    while not poll(c, s, select.POLLRDHUP, 10_000) & select.POLLRDHUP:
        pass
    assert push(c, s, "PUSH_ULP_RX", LINES) == 0, error(c, s)
    assert [recvmsg(c, s, 100)[:3] for _ in range(3)] == [[3, b"one".hex(), EOR], [3, b"two".hex(), EOR], [0, "", 0]]


@script("protocols")
def peeking(c: Calls) -> None:
    """What was looked at is read again through the protocol, except what is dropped."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        s = sequenced(c)
        assert peek(c, s) == 0
        assert c.call("connect", s, address(listener.getsockname()[1]), 16) == 0
        peer = listener.accept()[0]
    peer.sendall(b"220 ready\n" + prefixed(b"first"))
    seen = b""
    while len(seen) < 19:
        seen += recv(c, s, 100)
    assert seen == b"220 ready\n" + prefixed(b"first")
    assert push(c, s, "PUSH_ULP", PREFIXED) == 0, error(c, s)
    assert end_peek(c, s, 20) == -errno.EINVAL
    assert end_peek(c, s, 10) == 0
    assert recvmsg(c, s, 100)[:3] == [5, b"first".hex(), EOR]
    assert sendmsg(c, s, 3) == 3
    assert peer.recv(7, socket.MSG_WAITALL) == prefixed(body(3))


@script("protocols")
def what_goes_wrong_is_told(c: Calls) -> None:
    s, peer = connected(c, ("PUSH_ULP", PREFIXED))
    assert error(c, s) == [0, 0, ""]
    peer.sendall(prefixed(b"fine") + b"\xff" * 8)
    assert recvmsg(c, s, 100)[:3] == [4, b"fine".hex(), EOR]
    assert recvmsg(c, s, 100) == -errno.EMSGSIZE
    number, fault, text = error(c, s)
    assert (number, fault) == (errno.EMSGSIZE, FAULTS["TOO_LONG"][0]) and text, text
    assert error(c, s) == [number, fault, text]
    assert recvmsg(c, s, 100)[:3] == [0, "", 0]


@script("protocols")
def what_cannot_be_pushed(c: Calls) -> None:
    s = sequenced(c)
    assert push(c, s, "PUSH_ULP", 999) == -errno.ENOPROTOOPT
    assert push(c, s, "PUSH_ULP_RX", PARSER) == -errno.EINVAL
    assert error(c, s)[:2] == [errno.EINVAL, FAULTS["PUSH"][0]] and error(c, s)[2]
    stream = c.create()
    assert push(c, stream, "PUSH_ULP_RX", PREFIXED) == -errno.EPROTOTYPE
    assert tell_item(c, s, 0, 0, 1, 10) == -errno.ENOTCONN


@script("protocols")
def what_is_offered(c: Calls) -> None:
    found = {ulp_id: (bool(receive), bool(send)) for ulp_id, _, receive, send in offered(c)}
    for name in ("LENGTH_PREFIXED", "LINES", "STREAM_PARSER", "TLS"):
        ulp = BY_NAME[name]
        assert found[ulp.number] == (ulp.receive, ulp.send), name


@script("protocols")
def accepted_connections(c: Calls) -> None:
    s = sequenced(c)
    assert push(c, s, "PUSH_ULP", PREFIXED) == 0, error(c, s)
    assert c.call("bind", s, address(0), 16) == 0 and c.call("listen", s, 5) == 0
    name, length = ctypes.create_string_buffer(16), ctypes.c_uint(16)
    assert c.call("getsockname", s, name, ctypes.byref(length)) == 0
    port = struct.unpack_from(">H", name.raw, 2)[0]
    for i in range(3):
        with socket.create_connection(("127.0.0.1", port)) as peer:
            accepted = c.call("accept", s, None, None)
            assert accepted > 0
            peer.sendall(prefixed(body(i)))
            assert recvmsg(c, accepted, 100)[:3] == [i, body(i).hex(), EOR]
            assert sendmsg(c, accepted, 5) == 5
            assert peer.recv(9, socket.MSG_WAITALL) == prefixed(body(5))
            assert c.call("close", accepted) == 0


if __name__ == "__main__":
    name = apart(sys.argv[2])
    SCRIPTS[name](Calls(sys.argv[1]))
