"""Why a socket waits: what both ends measure of one connection, and that it ends when the reason does."""

from __future__ import annotations

import os
import socket as kernel
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import xts_socket
from beds.proxy_process import ProxyProcess
from xts_messages.attaching.waits import HOST_REASONS, PROXY_REASONS
from xts_socket.cli.sockets import joined

DEADLINE_S = 20.0


@contextmanager
def pair() -> Iterator[tuple[xts_socket.socket, kernel.socket]]:
    """An offloaded connection, and its peer in the kernel, with small buffers so that little fills them."""
    with kernel.create_server(("127.0.0.1", 0)) as listener:
        listener.setsockopt(kernel.SOL_SOCKET, kernel.SO_RCVBUF, 8192)
        with xts_socket.socket() as sock:
            sock.settimeout(DEADLINE_S)
            sock.connect(listener.getsockname())
            peer, _ = listener.accept()
            peer.settimeout(DEADLINE_S)
            with peer:
                yield sock, peer


def row_of(proxy: ProxyProcess, sock: xts_socket.socket) -> joined.Row:
    """Both ends of it, as `xts top` has them."""
    look = joined.look(os.environ["XTS_ENDPOINT"], proxy.control)
    assert not look.missing
    mine = [row for row in look.rows if (row.pid, row.xts_socket) == (os.getpid(), sock.number)]
    assert len(mine) == 1, mine
    return mine[0]


def until(proxy: ProxyProcess, sock: xts_socket.socket, holds: Callable[[joined.Row], bool]) -> joined.Row:
    deadline = time.monotonic() + DEADLINE_S
    while not holds(row := row_of(proxy, sock)):
        assert time.monotonic() < deadline, row
        time.sleep(0.01)
    return row


def fill(sock: xts_socket.socket) -> int:
    """Sends until there is no room, and none comes: everything is full, to the peer."""
    sock.setblocking(False)
    sent, quiet_since = 0, time.monotonic()
    while time.monotonic() - quiet_since < 0.3:
        try:
            sent += sock.send(bytes(65536))
            quiet_since = time.monotonic()
        except BlockingIOError:
            time.sleep(0.01)
    return sent


def test_a_peer_that_does_not_read(xts_endpoint: ProxyProcess) -> None:
    """The host waits for post credits, as the proxy waits for TCP, as the peer's window is full."""
    with pair() as (sock, peer):
        sent = fill(sock)
        row = until(xts_endpoint, sock, lambda row: row.waits_for == "TCP")
        assert row.wait_times["post_credits"] and row.wait_times["tcp"]
        longer = until(xts_endpoint, sock, lambda later: later.wait_ns["peer_window"] > row.wait_ns["peer_window"])
        assert longer.wait_ns["tcp"] > row.wait_ns["tcp"], "the wait goes on, and is counted meanwhile"
        assert longer.spill_bytes and longer.tcp is not None and longer.tcp.unacked_segments >= 0
        while sent:
            sent -= len(peer.recv(min(sent, 1 << 20)))
        with pytest.raises(BlockingIOError):
            sock.recv(1)  # looks at what has come: credits among it
        ended = until(xts_endpoint, sock, lambda row: row.waits_for not in ("TCP", "post credits"))
        again = row_of(xts_endpoint, sock)
        assert again.wait_ns["tcp"] == ended.wait_ns["tcp"] > 0, "it has ended"


def test_an_application_that_does_not_read(xts_endpoint: ProxyProcess) -> None:
    """First the host has what is unread; when its window is used up, the proxy keeps the rest."""
    with pair() as (sock, peer):
        peer.sendall(b"one")
        assert sock.recv(1, kernel.MSG_PEEK) == b"o"
        row = until(xts_endpoint, sock, lambda row: row.waits_for == "application")
        assert row.wait_times["application"] == 1 and row.recv_queue == 3
        peer.setblocking(False)
        deadline = time.monotonic() + DEADLINE_S
        while not (row := row_of(xts_endpoint, sock)).wait_times["application_window"]:
            assert time.monotonic() < deadline, row
            try:
                peer.send(bytes(65536))
            except BlockingIOError:
                time.sleep(0.01)
            sock.recv(1, kernel.MSG_PEEK)
        peer.close()
        while sock.recv(1 << 20):
            pass
        ended = row_of(xts_endpoint, sock)
        assert ended.waits_for == ""
        assert row_of(xts_endpoint, sock).wait_ns["application"] == ended.wait_ns["application"] > 0


def test_a_peer_that_does_not_answer(xts_endpoint: ProxyProcess) -> None:
    with pair() as (sock, peer):
        sock.sendall(b"?")
        first = until(xts_endpoint, sock, lambda row: row.waits_for == "peer")
        until(xts_endpoint, sock, lambda row: row.wait_ns["peer"] > first.wait_ns["peer"])
        peer.sendall(b"!")
        assert sock.recv(1) == b"!"
        assert row_of(xts_endpoint, sock).waits_for == ""


def test_a_new_socket_begins_at_nothing(xts_endpoint: ProxyProcess) -> None:
    """Also where another one had its entry in the page before."""
    for _ in range(2):
        with pair() as (sock, peer):
            peer.sendall(b"x")
            assert sock.recv(1) == b"x"
            row = row_of(xts_endpoint, sock)
            assert row.wait_times["application"] <= 1 and row.wait_times["post_credits"] == 0
            assert row.wait_times["tcp"] == 0


def test_each_end_has_its_reasons(xts_endpoint: ProxyProcess) -> None:
    with pair() as (sock, _):
        found = joined.proxy_side.ask(xts_endpoint.control)
        (theirs,) = (c for c in found.connections if c.waits and c.peer.endswith(f":{sock.getpeername()[1]}"))
        assert theirs.waits is not None and set(theirs.waits.by_reason) == set(PROXY_REASONS)
        (process,) = (p for p in joined.attached.ask(os.environ["XTS_ENDPOINT"]) if p.pid == os.getpid())
        (entry,) = (entry for entry in process.entries if entry.xts_socket == sock.number)
        assert entry.waits is None or set(entry.waits.by_reason) == set(HOST_REASONS)
        assert process.polling is None or process.polling.spin_ns >= 0
