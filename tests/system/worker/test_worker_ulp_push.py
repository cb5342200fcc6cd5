"""Pushed protocols in the worker, against a host made by hand and TCP peers on loopback: pushes that are refused,
and pushes in the middle of a connection. PROTOCOL.md,
"Pushed protocols"."""

from __future__ import annotations

import errno
import os
import socket
import struct
import threading
from typing import Any

import pytest
from beds.scripted_host import ScriptedHost, Worker
from beds.worker import (
    FEATURES,
    MORE,
    PREFIX,
    READY,
    SMALL,
    Conn,
    connected,
    host,
    prefixed,
    receive_exactly,
    server,
    worker,
)
from xts_messages.wire import codec
from xts_messages.wire.codec import flags

__all__ = ["host", "server", "worker"]  # fixtures


# --- refused pushes ---------------------------------------------------------------------------------------------------


def test_a_refused_push_changes_nothing_and_has_a_reason(host: ScriptedHost, server: socket.socket) -> None:
    with connected(host, server) as c:
        answer = c.push("LENGTH_PREFIXED", width=5)
        assert answer.error == errno.EINVAL and not answer.payload
        assert "WIDTH" in host.ulp_error(c.id, c.number).text
        c.close()
    with connected(host, server) as c:
        assert c.push("LENGTH_PREFIXED", message=False).error == errno.EPROTOTYPE
        assert host.ulp_error(c.id, c.number).fault == "push"
        c.send(b"still a stream")
        assert receive_exactly(c.peer, 14) == b"still a stream"
        c.peer.sendall(b"both ways")
        assert c.read().payload == b"both ways"


def test_the_worker_says_why_it_refuses_a_push(host: ScriptedHost, server: socket.socket) -> None:
    def refused(c: Conn, error: int, why: str, **push: Any) -> None:
        answer = c.push(**(PREFIX | push))
        told = host.ulp_error(c.id, c.number)
        assert (answer.error, told.error, told.fault) == (error, error, "push") and why in told.text, told

    with connected(host, server) as c:
        refused(c, errno.EINVAL, "position", read_bytes=1)
        c.peer.sendall(prefixed(b"hi"))
        c.receive_data()
        assert c.push("LENGTH_PREFIXED").error == 0
        refused(c, errno.EBUSY, "6 bytes still have to be given back")
        host.send("XTS_CMD_GIVE_BACK", prefixed(b"hi"), id=c.id)
        assert c.read_pdu() == b"hi"
        refused(c, errno.EINVAL, "SOCK_SEQPACKET", message=False)
        host.send("XTS_CMD_SEND_PDU", b"part", id=c.id, flags=MORE)
        refused(c, errno.EBUSY, "in the middle of a PDU", read_bytes=c.read_bytes)
        c.close("ABORT")
    with connected(host, server) as c:
        c.send(b"", "FIN")
        refused(c, errno.EBUSY, "shut down", way="PUSH_ULP_TX")
        c.close("ABORT")
    with connected(host, server) as c:
        c.peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        c.peer.close()
        assert host.receive().error == errno.ECONNRESET
        refused(c, errno.ENOTCONN, "has ended")


@pytest.mark.parametrize("pdus", [(b"unread",), (b"read", b"unread")])
def test_unread_pdus_are_not_given_back(host: ScriptedHost, server: socket.socket, pdus: tuple[bytes, ...]) -> None:
    """They would come back as a stream; what is one, as before the first PDU, is given back."""
    with connected(host, server) as c:
        c.peer.sendall(prefixed(b"hi"))
        assert c.receive_data().payload == prefixed(b"hi")
        assert c.push("LENGTH_PREFIXED").error == 0
        host.send("XTS_CMD_GIVE_BACK", prefixed(b"hi"), id=c.id)
        assert c.read_pdu() == b"hi"
        c.close("ABORT")
    with connected(host, server, PREFIX) as c:
        c.peer.sendall(prefixed(*pdus))
        for pdu in pdus[:-1]:
            assert c.read_pdu() == pdu
        assert c.receive_data().payload == b"unread"
        answer = c.push("LINES", way="PUSH_ULP_RX", read_bytes=c.read_bytes)
        assert answer.error == errno.EBUSY
        assert "boundaries" in host.ulp_error(c.id, c.number).text
        c.peer.sendall(prefixed(b"as before"))
        assert c.read_pdu() == b"as before"


@pytest.mark.parametrize("cut", range(8))
def test_a_push_without_all_its_fields(host: ScriptedHost, cut: int) -> None:
    payload = struct.pack("!IHH", 0, 1, 4)[:cut]
    assert host.ioctl("PUSH_ULP", payload, number=host.new_socket()).error == errno.EINVAL


def test_a_window_too_small_for_pdus(server: socket.socket) -> None:
    with Worker(window_bytes=SMALL - 1, window_bytes_max=SMALL - 1) as worker, worker.attach(features=FEATURES) as host:
        host.open()
        number = host.new_socket()
        refused = host.push("LENGTH_PREFIXED", number=number)
        assert refused.error == errno.ENOBUFS
        assert f"window is {SMALL - 1} bytes" in host.ulp_error(refused.fields["proxy_id"], number).text
        with connected(host, server, window=SMALL) as c:
            assert c.push("LENGTH_PREFIXED").error == errno.ENOBUFS


def test_without_the_feature_there_are_no_such_requests(worker: Worker) -> None:
    with worker.attach() as host:
        host.open()
        assert host.push("LENGTH_PREFIXED", number=host.new_socket()).error == errno.ENOTTY
        host.send("XTS_CMD_SEND_PDU", b"x", id=1)
        assert host.wait_down() == errno.EPROTO


def test_a_proxy_lists_what_it_offers(host: ScriptedHost) -> None:
    answer = host.ioctl("ULP_LIST", number=host.new_socket())
    offers = list(struct.iter_unpack("!HHB", answer.payload))
    assert (4, 1, 3) in offers and len({number for number, _, _ in offers}) == len(offers)


# --- pushes in the middle of a connection -----------------------------------------------------------------------------


def give_back(c: Conn, data: bytes, part: int = 1000) -> None:
    for i in range(0, len(data), part):
        c.host.send("XTS_CMD_GIVE_BACK", data[i : i + part], id=c.id)
    c.give_credits(len(data))
    c.owing = 0


def late_push(c: Conn, unread: bytes, *, way: str = "PUSH_ULP", **parameters: Any) -> codec.Frame:
    """A push with what the host has not read given back after the answer."""
    answer = c.push("LENGTH_PREFIXED", way=way, read_bytes=c.read_bytes, **parameters)
    assert answer.error == 0, answer
    crossed = b""
    for frame in host_backlog(c):
        crossed += frame.payload
    if unread + crossed:
        give_back(c, unread + crossed)
    return answer


def host_backlog(c: Conn) -> list[codec.Frame]:
    frames = list(c.host.backlog)
    c.host.backlog.clear()
    for frame in frames:
        c.held += frame.fields["post_credits"]
    return frames


def test_a_push_after_a_greeting(host: ScriptedHost, server: socket.socket) -> None:
    """Nothing was sent beyond what the application has read: nothing is given back, and there is no handshake."""
    with connected(host, server) as c:
        c.peer.sendall(b"220 hello\r\n")
        assert c.read().payload == b"220 hello\r\n"
        c.send(b"GO\r\n")
        assert late_push(c, b"").payload == b"\0"
        c.send_pdu(b"question")
        assert receive_exactly(c.peer, 16) == b"GO\r\n" + prefixed(b"question")
        c.peer.sendall(prefixed(b"answer"))
        assert c.read_pdu() == b"answer"
        assert c.close().error == 0 and c.peer.recv(1) == b""


@pytest.mark.parametrize("read", [0, 5, 11, 14, 30])
@pytest.mark.parametrize("end", [False, True])
def test_what_was_read_too_early_is_given_back(host: ScriptedHost, server: socket.socket, read: int, end: bool) -> None:
    """The new protocol reads it first; the end of the stream, if it was told, is told again behind it."""
    greeting = bytes(read)
    with connected(host, server) as c:
        data = greeting + prefixed(b"early", b"bird", b"x" * 3000)
        c.peer.sendall(data)
        if end:
            c.peer.shutdown(socket.SHUT_WR)
        got = b""
        while len(got) < len(data):
            got += c.receive().payload
        if end:
            assert c.receive().flags == flags("EOS")
        assert got == data
        c.read_bytes = read
        late_push(c, got[read:])
        assert [c.read_pdu() for _ in range(3)] == [b"early", b"bird", b"x" * 3000]
        if end:
            assert c.receive().flags == flags("EOS")
        else:
            c.peer.sendall(prefixed(b"late"))
            assert c.read_pdu() == b"late"
        c.send_pdu(b"out")
        assert receive_exactly(c.peer, 7) == prefixed(b"out")
        assert c.close().error == 0 and c.peer.recv(1) == b""


def test_a_push_while_data_streams_in(host: ScriptedHost, server: socket.socket) -> None:
    """The peer sends all the time: whatever was on its way when the push was made comes back, once and in order."""
    pdus = [os.urandom(n % 700) for n in range(3000)]
    with connected(host, server) as c:
        writer = threading.Thread(target=c.peer.sendall, args=(b"!" * 100 + prefixed(*pdus),))
        writer.start()
        got = b""
        while len(got) < 100:
            got += c.receive().payload
        c.read_bytes = 100
        late_push(c, got[100:])
        c.give_credits(100)
        assert [c.read_pdu() for _ in pdus] == pdus
        writer.join()


@pytest.mark.parametrize("bytes_back", [0, 3, 200])
def test_giving_back_what_nobody_asked_for(host: ScriptedHost, server: socket.socket, bytes_back: int) -> None:
    with connected(host, server) as c:
        c.peer.sendall(bytes(10))
        c.read()
        if bytes_back != 3:
            assert c.push("LENGTH_PREFIXED", read_bytes=0).error == 0
        host.send("XTS_CMD_GIVE_BACK", bytes(bytes_back), id=c.id)
        assert host.wait_down() == errno.EPROTO


@pytest.mark.parametrize("read_bytes", [11, 1 << 30, 0xFFFFFFFF])
def test_positions_that_cannot_be(host: ScriptedHost, server: socket.socket, read_bytes: int) -> None:
    with connected(host, server) as c:
        c.peer.sendall(bytes(10))
        c.read()
        assert c.push("LENGTH_PREFIXED", read_bytes=read_bytes).error == errno.EINVAL
        c.peer.sendall(b"as before")
        assert c.read().payload == b"as before"


def test_nothing_is_pushed_before_everything_is_back(host: ScriptedHost, server: socket.socket) -> None:
    with connected(host, server) as c:
        c.peer.sendall(prefixed(b"early"))
        assert c.receive().payload == prefixed(b"early")
        assert c.push("LENGTH_PREFIXED", way="PUSH_ULP_RX").error == 0
        assert c.push("LENGTH_PREFIXED", way="PUSH_ULP_TX").error == errno.EBUSY
        with pytest.raises(TimeoutError):
            c.receive(50)
        give_back(c, prefixed(b"early"), part=2)
        assert c.read_pdu() == b"early"


def test_what_was_spilled_before_a_push_leaves_as_it_is(
    worker: Worker, host: ScriptedHost, server: socket.socket
) -> None:
    """And what the host sends after it leaves through the protocol, behind it."""
    server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    with connected(host, server) as c:
        sent = bytearray()
        while c.held > 20000 or worker.channel().spill_bytes < 1000:
            piece = os.urandom(min(c.held, 10000))
            c.send(piece)
            sent += piece
            while c.held < 20000:
                try:
                    c.receive(100)
                except TimeoutError:
                    break
        assert worker.channel().spill_bytes > 0
        assert late_push(c, b"").payload == b"\1", "it starts when those bytes have left"
        pdus = [os.urandom(500), b"", b"last"]
        for pdu in pdus:
            c.send_pdu(pdu)
        assert c.push("LENGTH_PREFIXED", way="PUSH_ULP_TX").error == errno.EAGAIN
        c.peer.sendall(prefixed(b"waits"))
        assert receive_exactly(c.peer, len(sent) + len(prefixed(*pdus))) == sent + prefixed(*pdus)
        while (frame := c.read()).fields.get("control_type") != READY:
            assert not frame.payload
        assert c.read_pdu() == b"waits"
        c.close()
