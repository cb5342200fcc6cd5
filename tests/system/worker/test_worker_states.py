"""States of a connection that are left in a rare way: what the assertions of a build with XTS_DEBUG had found."""

from __future__ import annotations

import errno
import secrets
import socket
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from beds.scripted_host import WINDOW, ScriptedHost, Worker, make_tenant
from beds.share import KEEP_MS, goodbye
from beds.worker import LOOPBACK, connected, host, server, worker
from xts_lab.free_ports import free_port
from xts_messages.wire import codec, ulps
from xts_messages.wire.codec import Endpoint, flags
from xts_proxy._native import ffi

__all__ = ["host", "server", "worker"]  # fixtures

PROGRAMS = Path(__file__).parent / "programs"


@pytest.fixture
def closed_port() -> int:
    return free_port()


def fill_frame_window(worker: Worker, host: ScriptedHost, peer: socket.socket) -> None:
    """Makes the proxy send a byte at a time until it may send no frame; nobody takes any."""
    while worker.channel().frame_credits:
        before = worker.channel().link.sent_frames
        peer.send(b"x")
        worker.wait(
            lambda _, before=before: worker.channel().link.sent_frames > before or not worker.channel().frame_credits,
            "the byte was not sent",
        )


def test_no_listen_before_the_answer_of_a_failed_connect(
    worker: Worker, host: ScriptedHost, server: socket.socket, closed_port: int
) -> None:
    """It became a listener, whose CONNECT_ACK was still to be sent."""
    with connected(host, server) as c:
        c.send(b"acknowledges what has come")
        assert c.peer.recv(100)
        fill_frame_window(worker, host, c.peer)
        number = host.new_socket()
        peer = Endpoint.of(LOOPBACK, closed_port)
        host.send("XTS_CMD_CONNECT", xts_socket=number, post_credits=WINDOW, domain=4, peer=peer)
        worker.wait(lambda s: s.connects_failed == 1, "the connect did not fail")
        host.send("XTS_CMD_LISTEN", xts_socket=number, token=1, domain=4, backlog=1, post_credits=1)
        answers: dict[str, codec.Frame] = {}
        while len(answers) < 2:
            frame = host.receive()
            if frame.id == number:
                answers[frame.name] = frame
        assert answers["XTS_REPLY_LISTEN_ACK"].error == errno.EINVAL
        ack = answers["XTS_REPLY_CONNECT_ACK"]
        assert ack.error == errno.ECONNREFUSED
        host.send(
            "XTS_CMD_LISTEN", id=ack.fields["proxy_id"], xts_socket=number, token=2, domain=4, backlog=1, post_credits=1
        )
        assert host.expect("XTS_REPLY_LISTEN_ACK").error == 0


class Clock:
    """The worker's, which is moved by hand."""

    def __init__(self) -> None:
        self.now_ns = 1_000_000_000
        self.callback = ffi.callback("uint64_t(void)", self.look)

    def look(self) -> int:
        self.now_ns += 10_000
        return self.now_ns


def test_no_timer_looks_at_a_lingering_close_whose_host_has_gone(server: socket.socket) -> None:
    """The orphan went on lingering: a timer looked at it, for nobody, until its bytes were delivered."""
    clock, window = Clock(), 16 * WINDOW
    server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    tenant = make_tenant(window_bytes=window, window_bytes_max=window)
    with Worker(tenant=tenant, clock_ns=clock.callback) as worker, worker.attach(1) as host, worker.attach(2) as other:
        other.open()
        with connected(host.open(), server, window=window) as c:
            sent = 0
            while worker.channel().spill_bytes < WINDOW:
                c.send(bytes(32768))
                sent += 32768
            host.send("XTS_CMD_SEND", id=c.id, flags=flags("CLOSE", "LINGER"))
            clock.now_ns += 1_000_000_000
            assert other.ioctl("ULP_LIST", number=other.new_socket()).name  # a round of the worker
            worker.wait(lambda s: s.looks, "nobody looks at the lingering close")
            goodbye(host)
            worker.wait(lambda s: s.orphans == 1, "it is no orphan")
            looks = worker.stats().looks
            for _ in range(3):
                clock.now_ns += 10_000_000_000
                assert other.ioctl("ULP_LIST", number=other.new_socket()).name
            assert worker.stats().looks == looks
            received = 0
            while data := c.peer.recv(65536):
                received += len(data)
            assert received == sent
        worker.wait(lambda s: not s.orphans, "the orphan does not end")


def test_a_protocol_where_epoll_has_no_room(worker: Worker) -> None:
    """Its handshake has only begun, in another thread."""
    done = subprocess.run(
        [sys.executable, PROGRAMS / "epoll_without_room.py"], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == ["failed", "ENOBUFS"]


def pushes(*each: tuple[str, str]) -> bytes:
    """CONNECT's payload: a protocol, and its attributes in hexadecimal."""
    out = b""
    for name, attributes in each:
        push = struct.pack("!IHH", 0, 1, ulps.BY_NAME[name].number) + bytes.fromhex(attributes)
        out += struct.pack("!II", ulps.REQUESTS["PUSH_ULP"][0], len(push)) + push
    return out


@pytest.mark.parametrize("how", ["its push is refused", "TCP is refused", "the handshake fails"])
def test_what_has_never_been_connected_cannot_be_parked(
    worker: Worker, host: ScriptedHost, server: socket.socket, closed_port: int, how: str
) -> None:
    """Such a socket is of no further use. Parked and claimed it was an established connection, without a peer, and
    after that failed it could be connected as if nothing had been pushed."""
    number, key = host.new_socket(), secrets.randbits(64) | 1
    if how == "the handshake fails":
        id = host.push("TLS", number=number, message=False, verify=0).fields["proxy_id"]
        peer = Endpoint.of(LOOPBACK, server.getsockname()[1])
        host.send("XTS_CMD_CONNECT", id=id, xts_socket=number, post_credits=WINDOW, domain=4, peer=peer)
        server.accept()[0].close()
    else:
        payload = pushes(("LENGTH_PREFIXED", "0002000105" if how == "its push is refused" else ""))
        host.send(
            "XTS_CMD_CONNECT",
            payload,
            xts_socket=number,
            post_credits=WINDOW,
            domain=4,
            peer=Endpoint.of(LOOPBACK, closed_port),
            length=len(payload),
        )
    ack = host.expect("XTS_REPLY_CONNECT_ACK")
    assert ack.error
    id = ack.fields["proxy_id"]
    host.send("XTS_CMD_PARK", id=id, xts_socket=number, token=1, key=key, keep_ms=KEEP_MS)
    assert host.expect("XTS_REPLY_PARK_ACK").error == errno.EINVAL
    host.send("XTS_CMD_CLAIM", xts_socket=host.new_socket(), token=1, key=key, post_credits=WINDOW, unread=0)
    assert host.expect("XTS_REPLY_CLAIM_ACK").error == errno.ENOENT
    host.send("XTS_CMD_SEND", id=id, flags=flags("CLOSE"))
    assert host.expect("XTS_REPLY_RECV").flags & flags("CLOSED")
    worker.wait(lambda s: s.connections == 0, "it did not end")
