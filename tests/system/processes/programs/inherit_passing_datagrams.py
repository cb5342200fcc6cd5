"""Datagram sockets that pass to another program over a Unix socket."""

from __future__ import annotations

import ctypes
import errno
import select
import socket
import struct

from beds.calls import Calls, address, until
from beds.datagram_calls import bound, datagram
from beds.scripts import script
from system.processes.programs.inherit_carriers import value_at, words_of, write_words
from system.processes.programs.inherit_datagrams import echo
from system.processes.programs.inherit_exec import ExecSocket
from system.processes.programs.inherit_passing import Way, at_an_end
from system.processes.programs.inheriting import PATIENCE_S, Signal, poll
from system.sockets.programs.library_scripts import info, recv


@script("inherit")
def datagrams_passed(c: Calls) -> None:
    """Both have the socket then; who reads first gets what was unread."""
    way, served = Way(), Signal()

    def body(s: int) -> None:
        echo(c, s, 2)
        served.tell()
        echo(c, s)
        assert c.call("close", s) == 0

    child = at_an_end(c, way, body)
    s, port = bound(c, c.here)
    with c.udp_peer() as peer:
        peer.settimeout(PATIENCE_S)
        here = (c.here, port)
        peer.sendto(b"unread", here)
        assert poll(c, s) == select.POLLIN
        way.give(c, s)
        assert peer.recvfrom(100) == (b"unread back", here)
        peer.sendto(b"second", here)
        assert peer.recvfrom(100) == (b"second back", here)
        served.wait()
        assert c.call("close", s) == 0
        peer.sendto(b"third", here)
        assert peer.recvfrom(100) == (b"third back", here)
    child.wait()
    until(lambda: c.is_kernel or info(c).sockets == 0)


@script("inherit")
def datagrams_passed_and_closed(c: Calls) -> None:
    """It has not sent or received yet, and is closed while it is on its way."""
    way = Way()
    s = datagram(c)
    with c.udp_peer() as peer:
        where = address(peer.getsockname()[1], c.there)
        assert c.call("connect", s, where, len(where)) == 0
        way.give(c, s)
        assert c.call("close", s) == 0

        def body(taken: int) -> None:
            assert c.call("send", taken, b"question", 8, 0) == 8
            assert recv(c, taken, 100) == b"answer"

        child = at_an_end(c, way, body)
        data, back = peer.recvfrom(100)
        assert data == b"question"
        peer.sendto(b"answer", back)
        child.wait()


@script("inherit")
def a_made_up_record_of_a_datagram_socket(c: Calls) -> None:
    """Nothing has its key: it can be received, and not be used. What cannot be is refused."""
    way = Way()
    s, _ = bound(c)
    way.give(c, s)
    record = bytearray(b"".join(word.to_bytes(4, "little") for word in words_of(way.carrier())))
    kind = value_at(record, "datagrams")
    assert record[kind] == b"\1"
    record[value_at(record, "key").start] ^= 1
    record[value_at(record, "window")] = (1 << 30).to_bytes(4)
    out = ExecSocket()
    for datagrams, result in ((1, 1), (2, -errno.EPROTO)):
        record[kind] = bytes([datagrams])
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as made:
            write_words(made, [word for (word,) in struct.iter_unpack("=I", bytes(record))])
            assert c.call("take_passed", made.fileno(), True, ctypes.byref(out)) == result
        if result == 1:
            assert c.call("recv", out.number, ctypes.create_string_buffer(9), 9, 0) == -errno.ENETDOWN
            assert c.call("close", out.number) == 0
