"""Datagrams that a process was sent and has not read: they go to who reads next."""

from __future__ import annotations

import ctypes
import select
import socket
import time

from beds.calls import Calls
from beds.datagram_calls import bound
from beds.scripts import script
from system.processes.programs.inherit_datagrams import DATAGRAMS, receive, send_to, serves_datagrams
from system.processes.programs.inherit_exec import exec_prepare, execute
from system.processes.programs.inheriting import PATIENCE_S, Child, Signal, poll


@script("inherit")
def datagrams_of_a_super_server(c: Calls) -> None:
    """inetd's "wait": the parent polls, and leaves what has woken it to a child, which may call without waiting."""
    s, port = bound(c, c.here)

    def serve(flags: int) -> None:
        data, sender = receive(c, s, flags)
        send_to(c, s, data + b" back", sender)

    with c.udp_peer() as peer:
        peer.settimeout(PATIENCE_S)
        for n in range(6):
            peer.sendto(b"%d" % n, (c.here, port))
            assert poll(c, s) == select.POLLIN
            child = Child(c, lambda n=n: serve(socket.MSG_DONTWAIT if n % 2 else 0))  # type: ignore[misc]
            assert peer.recvfrom(100) == (b"%d back" % n, (c.here, port))
            child.wait()
        peer.sendto(b"for the parent", (c.here, port))
        assert receive(c, s)[0] == b"for the parent"


@script("inherit")
def datagrams_of_a_super_server_that_execs(c: Calls) -> None:
    s, port = bound(c, c.here)
    with c.udp_peer() as peer:
        peer.settimeout(PATIENCE_S)
        peer.sendto(b"0", (c.here, port))
        peer.sendto(b"1", (c.here, port))
        assert poll(c, s) == select.POLLIN
        child = Child(c, lambda: execute(serves_datagrams, exec_prepare(c, s)))
        assert sorted(peer.recv(100) for _ in range(2)) == [b"0 back", b"1 back"]
        child.wait()


@script("inherit")
def datagrams_that_a_child_has_not_read(c: Calls) -> None:
    """A child is sent more than it reads, and leaves the rest: those that come after it, or its parent, get it."""
    s, port = bound(c, c.here)
    with c.udp_peer() as peer:
        for n in range(DATAGRAMS):
            peer.sendto(b"%d" % n, (c.here, port))
        got: list[bytes] = []
        tell = Signal()

        def takes_one(closes: bool) -> None:
            tell.tell(receive(c, s)[0].rjust(3))
            if closes:
                assert c.call("close", s) == 0

        for n in range(10):
            Child(c, lambda n=n: takes_one(n % 2 == 1)).wait()  # type: ignore[misc]
            got.append(tell.wait(3).strip())
        got += [receive(c, s)[0] for _ in range(DATAGRAMS - 10)]
        assert sorted(got, key=int) == [b"%d" % n for n in range(DATAGRAMS)]
        assert len(set(got)) == DATAGRAMS


@script("inherit")
def large_datagrams_go_back(c: Calls) -> None:
    """They take several messages; so does what is between them. Together they fit into the device's SO_RCVBUF, which
    counts more than their bytes: none is lost before the proxy has taken it."""
    s, port = bound(c, c.here)
    sent = [bytes([n]) * size for n, size in enumerate((20_000, 0, 1, 9_000, 65_000))]
    room = ctypes.create_string_buffer(1 << 16)

    def takes_all() -> None:
        got = []
        for _ in sent:
            n = c.call("recvfrom", s, room, len(room), 0, None, None)
            assert n >= 0
            got.append(room.raw[:n])
        assert got == sent

    with c.udp_peer() as peer:
        for data in sent:
            peer.sendto(data, (c.here, port))
        assert poll(c, s) == select.POLLIN
        time.sleep(0.05)  # until several have come
        assert poll(c, s) == select.POLLIN
        Child(c, takes_all).wait()


@script("inherit")
def datagrams_of_a_process_that_is_away(c: Calls) -> None:
    """It has been sent one, and does not read it: after a while the other one gets it."""
    s, port = bound(c, c.here)
    ready = Signal()

    def child() -> None:
        ready.wait()
        assert receive(c, s)[0] == b"for who reads"

    child_process = Child(c, child)
    with c.udp_peer() as peer:
        peer.sendto(b"for who reads", (c.here, port))
        assert poll(c, s) == select.POLLIN
        ready.tell()
        child_process.wait()
