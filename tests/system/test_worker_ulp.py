"""Pushed protocols in the worker, against a host made by hand and TCP peers on loopback: PROTOCOL.md, "Pushed
protocols"."""

from __future__ import annotations

import errno
import itertools
import os
import socket
import struct
import threading
from typing import Any

import pytest
from scripted_host import WINDOW, ScriptedHost, Worker
from worker_ulp_bed import (
    FEATURES,
    LOOPBACK,
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
from xts_messages import codec, table
from xts_messages.codec import flags

__all__ = ["host", "server", "worker"]  # fixtures


# --- PDUs both ways ---------------------------------------------------------------------------------------------------


def test_pdus_both_ways(worker: Worker, host: ScriptedHost, server: socket.socket) -> None:
    with connected(host, server, PREFIX) as c:
        c.send_pdu(b"question")
        c.send_pdu(b"")
        assert receive_exactly(c.peer, 16) == prefixed(b"question", b"")
        c.peer.sendall(prefixed(b"answer", b"", b"x"))
        assert [c.read_pdu() for _ in range(3)] == [b"answer", b"", b"x"]
        stats = worker.stats()
        assert stats.ulp_pushed[4] == 1 and stats.ulp_handshakes == 0
        assert c.close().error == 0
        assert c.peer.recv(1) == b""
    worker.wait(lambda s: s.connections == 0, "the connection did not end")


def test_a_push_onto_one_side_leaves_the_other_as_it_is(host: ScriptedHost, server: socket.socket) -> None:
    with connected(host, server, PREFIX | {"way": "PUSH_ULP_RX"}) as c:
        c.send_pdu(b"as it is")
        assert receive_exactly(c.peer, 8) == b"as it is"
        c.peer.sendall(prefixed(b"framed"))
        assert c.read_pdu() == b"framed"
        c.close()
    with connected(host, server, PREFIX | {"way": "PUSH_ULP_TX"}) as c:
        c.send_pdu(b"framed")
        assert receive_exactly(c.peer, 10) == prefixed(b"framed")
        c.peer.sendall(b"as it is")
        assert c.read().payload == b"as it is"


@pytest.mark.parametrize("window", [SMALL, WINDOW])
def test_pdus_larger_than_the_window(window: int, server: socket.socket) -> None:
    """Each way: the parts flow while they are read, whatever the length of the whole."""
    pdus = [os.urandom(count) for count in (window * 3 + 1, 1, 0, window, window * 10)]
    with Worker(window_bytes=window, window_bytes_max=window) as worker, worker.attach(features=FEATURES) as host:
        host.open()
        with connected(host, server, PREFIX, window=window) as c:
            assert c.held == window
            writer = threading.Thread(target=c.peer.sendall, args=(prefixed(*pdus),))
            writer.start()
            assert [c.read_pdu() for _ in pdus] == pdus
            writer.join()
            got = bytearray()
            reader = threading.Thread(target=lambda: got.extend(receive_exactly(c.peer, len(prefixed(*pdus)))))
            reader.start()
            for pdu in pdus:
                c.send_pdu(pdu, part=1000)
            reader.join()
            assert got == prefixed(*pdus)


def test_many_small_pdus_cost_what_they_take(worker: Worker, host: ScriptedHost, server: socket.socket) -> None:
    """With PDUs of a byte it is the price of a message that fills the window."""
    with connected(host, server, PREFIX, window=SMALL) as c:
        c.peer.sendall(prefixed(*[b"x"] * 200))
        taken = 0
        for _ in range(SMALL // (table.PDU_CREDITS + 1)):
            frame = c.receive()
            assert frame.payload == b"x"
            taken += table.PDU_CREDITS + 1
        assert SMALL - taken < table.PDU_CREDITS + 1
        with pytest.raises(TimeoutError):
            c.receive(100)
        c.give_credits(taken)
        assert c.receive().payload == b"x"


# --- what TCP does not take -------------------------------------------------------------------------------------------


def stall(c: Conn, make: Any) -> list[bytes]:
    """Sends PDUs to a peer that does not read until no more credits come."""
    sent = []
    for i in itertools.count():
        pdu = make(i)
        try:
            while c.held < len(pdu) + table.PDU_CREDITS:
                c.receive(200)
        except TimeoutError:
            return sent
        c.send_pdu(pdu)
        sent.append(pdu)
    raise AssertionError


@pytest.mark.parametrize("length", [0, 30])
def test_pdus_wait_in_the_spill_buffer_with_their_boundaries(
    worker: Worker, host: ScriptedHost, server: socket.socket, length: int
) -> None:
    server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    with connected(host, server, PREFIX) as c:
        sent = [os.urandom(60000) for _ in range(3)]
        for pdu in sent:
            c.send_pdu(pdu)
        sent += stall(c, lambda _: os.urandom(60000))
        sent += stall(c, lambda i: i.to_bytes(4, "big") * (length // 4) + b"y" * (length % 4))
        stats = worker.channel()
        assert stats.spill_bytes <= stats.window_bytes == WINDOW
        closing = threading.Thread(target=c.close)
        closing.start()
        assert receive_exactly(c.peer, 1 << 30) == prefixed(*sent)
        closing.join()
    worker.wait(lambda s: s.connections == 0 and s.spill_bytes == 0, "the orphan did not end")


def test_credits_of_spilled_pdus_come_back(worker: Worker, host: ScriptedHost, server: socket.socket) -> None:
    """The conservation law with PDUs, read off both ends while nothing moves."""
    server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    with connected(host, server, PREFIX) as c:
        sent = stall(c, lambda i: b"z" * 997)
        assert c.held < WINDOW // 2
        assert receive_exactly(c.peer, len(prefixed(*sent))) == prefixed(*sent)
        while c.held < WINDOW - WINDOW // 4:
            c.receive()


# --- faults -----------------------------------------------------------------------------------------------------------


def test_a_fault_resets_with_its_errno_and_a_reason(worker: Worker, host: ScriptedHost, server: socket.socket) -> None:
    with connected(host, server, PREFIX | {"max_bytes": 100}) as c:
        c.peer.sendall(prefixed(b"good") + (101).to_bytes(4, "big") + b"junk")
        assert c.read_pdu() == b"good"
        frame = c.receive()
        assert frame.flags == flags("RESET") and frame.error == errno.EMSGSIZE
        told = host.ulp_error(c.id, c.number)
        assert (told.error, told.fault) == (errno.EMSGSIZE, "too_long") and "101" in told.text
        assert c.peer.recv(1) == b"", "closed on TCP at once"
        assert worker.stats().ulp_faults[3] == 1
        c.send_pdu(b"dropped")
        c.close()
    worker.wait(lambda s: s.connections == 0, "the connection did not end")


def test_a_stream_that_ends_within_a_pdu_is_a_fault(host: ScriptedHost, server: socket.socket) -> None:
    with connected(host, server, PREFIX) as c:
        c.peer.sendall(prefixed(b"whole") + b"\0\0\0\5cut")
        c.peer.shutdown(socket.SHUT_WR)
        assert c.read_pdu() == b"whole"
        frame = c.receive()
        while not frame.flags & flags("RESET"):
            frame = c.receive()
        assert frame.error == errno.EBADMSG
        assert host.ulp_error(c.id, c.number).fault == "truncated"


def test_the_end_of_the_stream(host: ScriptedHost, server: socket.socket) -> None:
    with connected(host, server, PREFIX) as c:
        c.peer.sendall(prefixed(b"last"))
        c.peer.shutdown(socket.SHUT_WR)
        assert c.read_pdu() == b"last"
        assert c.receive().flags == flags("EOS")
        c.send_pdu(b"afterwards")
        c.host.send("XTS_CMD_SEND", id=c.id, flags=flags("FIN"))
        assert receive_exactly(c.peer, 100) == prefixed(b"afterwards")


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
        refused(c, errno.EBUSY, "6 bytes are to be given back")
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


# --- peek mode --------------------------------------------------------------------------------------------------------


def peek(host: ScriptedHost, number: int, id: int = 0, on: int = 1) -> codec.Frame:
    return host.ioctl("PEEK_MODE", bytes([on]), id, number)


def test_peek_mode_reads_again_through_what_was_pushed(
    worker: Worker, host: ScriptedHost, server: socket.socket
) -> None:
    number = host.new_socket()
    id = peek(host, number).fields["proxy_id"]
    _, ack = host.connect(LOOPBACK, server.getsockname()[1], WINDOW, id, number)
    peer, _ = server.accept()
    peer.settimeout(5)
    with Conn(host, number, id, ack.fields["post_credits"], peer) as c:
        c.peer.sendall(b"220 hello\r\n")
        assert c.read().payload == b"220 hello\r\n"
        c.send(b"GO\r\n")
        assert receive_exactly(c.peer, 4) == b"GO\r\n", "what is sent leaves as it is"
        c.peer.sendall(b"250 go\r\n")
        assert c.read().payload == b"250 go\r\n"
        c.peer.sendall(prefixed(b"early", b"bird"))
        assert c.read(credit=False).payload == prefixed(b"early", b"bird")
        answer = c.push("LENGTH_PREFIXED", read_bytes=c.read_bytes)
        assert answer.error == 0
        c.send_pdu(b"waits for the end of peek mode")
        assert c.ioctl("END_PEEK_MODE", struct.pack("!I", 100)).error == errno.EINVAL
        assert c.ioctl("END_PEEK_MODE", struct.pack("!I", 19)).error == 0
        c.give_credits(c.owing)
        c.owing = c.read_bytes = 0
        while (frame := c.read()).fields.get("control_type") != READY:
            assert not frame.payload
        assert c.read_pdu() == b"early" and c.read_pdu() == b"bird"
        assert receive_exactly(c.peer, 34) == prefixed(b"waits for the end of peek mode")
        c.peer.sendall(prefixed(b"late"))
        assert c.read_pdu() == b"late"
        assert c.close().error == 0 and c.peer.recv(1) == b""


def test_peek_mode_tells_the_end_of_the_stream_twice(host: ScriptedHost, server: socket.socket) -> None:
    with connected(host, server) as c:
        assert peek(host, c.number, c.id).error == 0
        c.peer.sendall(b"12345678")
        c.peer.shutdown(socket.SHUT_WR)
        got = b""
        while len(got) < 8:
            got += c.read().payload
        assert c.receive().flags == flags("EOS")
        assert peek(host, c.number, c.id).error == errno.EISCONN
        assert c.ioctl("END_PEEK_MODE", struct.pack("!I", 5)).error == 0
        c.read_bytes = 0
        assert c.read().payload == b"678"
        assert c.receive().flags == flags("EOS")
        assert c.close().error == 0


def test_urgent_data_is_no_end_in_peek_mode(host: ScriptedHost, server: socket.socket) -> None:
    with connected(host, server) as c:
        assert c.ioctl("PEEK_MODE", b"\1").error == 0
        c.peer.sendall(b"greeting")
        assert c.read().payload == b"greeting"
        c.peer.send(b"!", socket.MSG_OOB)
        with pytest.raises(TimeoutError):
            c.receive(50)
        assert c.ioctl("END_PEEK_MODE", struct.pack("!I", 8)).error == 0
        c.peer.sendall(b"more")
        assert c.receive_data().payload == b"more"


def test_at_most_a_socket_buffer_is_peeked(host: ScriptedHost, server: socket.socket) -> None:
    data = os.urandom(8 << 20)
    with connected(host, server) as c:
        assert peek(host, c.number, c.id).error == 0
        writer = threading.Thread(target=lambda: c.peer.sendall(data))
        writer.start()
        got = bytearray()
        with pytest.raises(TimeoutError):
            while True:
                got += c.read(300).payload
        assert data.startswith(got) and 0 < len(got) < len(data)
        assert c.ioctl("END_PEEK_MODE", struct.pack("!I", 100)).error == 0
        c.read_bytes = 0
        again = bytearray()
        while len(again) < len(data) - 100:
            again += c.read().payload
        assert again == data[100:]
        writer.join()


def test_closing_in_peek_mode(worker: Worker, host: ScriptedHost, server: socket.socket) -> None:
    """Orderly when the application has read what was peeked; what waits for a push that never acted is lost."""
    for read_all, pushed in ((True, False), (False, False), (True, True)):
        with connected(host, server) as c:
            assert peek(host, c.number, c.id).error == 0
            c.peer.sendall(b"12345678")
            assert c.read().payload == b"12345678"
            if pushed:
                assert c.push("LENGTH_PREFIXED").error == 0
                c.send_pdu(b"never")
            c.read_bytes = 8 if read_all else 7
            c.close()
            if read_all and not pushed:
                assert c.peer.recv(1) == b""
            else:
                with pytest.raises(ConnectionResetError):
                    c.peer.recv(1)
    worker.wait(lambda s: s.connections == 0, "a connection did not end")


@pytest.mark.parametrize("payload", [b"", b"\2", b"\1\1"])
def test_peek_mode_wants_a_byte(host: ScriptedHost, payload: bytes) -> None:
    assert host.ioctl("PEEK_MODE", payload, number=host.new_socket()).error == errno.EINVAL


def test_ending_what_has_not_begun(host: ScriptedHost, server: socket.socket) -> None:
    with connected(host, server) as c:
        assert c.ioctl("END_PEEK_MODE", struct.pack("!I", 0)).error == errno.EINVAL


# --- hosts that do as they please -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "messages",
    [
        [{"payload": b"part", "flags": MORE}, {"name": "XTS_CMD_SEND", "payload": b"stream"}],
        [{"payload": b"part", "flags": MORE, "record_bytes": 8}, {"payload": b"more", "record_bytes": 9}],
        [{"payload": b"part", "flags": MORE, "record_bytes": 8}, {"payload": b"too much", "record_bytes": 8}],
        [{"payload": b"part", "flags": MORE, "record_bytes": 8}, {"payload": b"few", "record_bytes": 8}],
        [{"payload": b"x" * 5, "record_bytes": 4}],
        [{"payload": b"", "control_type": READY}],
        [{"payload": b"x", "post_credits": 1 << 30}],
        [{"payload": b"x" * (SMALL - 63)}],
    ],
    ids=["stream-within", "changes", "more", "fewer", "longer", "event", "credits", "beyond-credits"],
)
def test_pdus_against_the_rules_end_the_link(server: socket.socket, messages: list[dict[str, Any]]) -> None:
    with Worker(window_bytes=SMALL, window_bytes_max=SMALL) as worker, worker.attach(features=FEATURES) as host:
        host.open()
        with connected(host, server, PREFIX) as c:
            for message in messages:
                host.send(message.pop("name", "XTS_CMD_SEND_PDU"), id=c.id, **message)
            assert host.wait_down() == errno.EPROTO
        worker.wait(lambda s: s.connections == 0, "the connection did not end")


def test_a_pdu_on_a_socket_that_is_not_connected(host: ScriptedHost) -> None:
    id = host.push("LENGTH_PREFIXED", number=host.new_socket()).fields["proxy_id"]
    host.send("XTS_CMD_SEND_PDU", b"x", id=id)
    assert host.wait_down() == errno.EPROTO


def test_strangers_identifiers_are_passed_over(worker: Worker, host: ScriptedHost) -> None:
    host.send("XTS_CMD_SEND_PDU", b"x", id=77)
    host.send("XTS_CMD_GIVE_BACK", b"x", id=77)
    assert host.push("LENGTH_PREFIXED", 77, host.new_socket()).error == errno.EBADF
    assert worker.stats().bad_identifiers == 3


def test_layers_are_bounded_in_number(host: ScriptedHost) -> None:
    number, id = host.new_socket(), 0
    for _ in range(8):
        answer = host.push("STREAM_PARSER", id, number, way="PUSH_ULP_RX", offset=0, width=4)
        assert answer.error == 0
        id = answer.fields["proxy_id"]
    assert host.push("STREAM_PARSER", id, number, way="PUSH_ULP_RX", offset=0, width=4).error == errno.E2BIG


def test_a_socket_does_not_change_its_kind(host: ScriptedHost) -> None:
    number = host.new_socket()
    id = host.push("LENGTH_PREFIXED", number=number).fields["proxy_id"]
    assert host.push("TLS", id, number, message=False).error == errno.EINVAL


def test_a_pdu_in_the_middle_of_which_the_host_closes(
    worker: Worker, host: ScriptedHost, server: socket.socket
) -> None:
    with connected(host, server, PREFIX) as c:
        host.send("XTS_CMD_SEND_PDU", b"begun", id=c.id, flags=MORE, record_bytes=100)
        c.close()
        assert receive_exactly(c.peer, 1000) == b"\0\0\0\x64begun"
    worker.wait(lambda s: s.connections == 0, "the connection did not end")


def test_unread_pdus_reset_when_the_host_closes(host: ScriptedHost, server: socket.socket) -> None:
    """Sent and unread, or arrived and not sent: as the kernel does for bytes."""
    for credits in (True, False):
        with connected(host, server, PREFIX, window=SMALL if credits else 64) as c:
            c.peer.sendall(prefixed(b"never read"))
            if credits:
                assert c.receive().payload == b"never read"
            c.close()
            with pytest.raises(ConnectionResetError):
                while c.peer.recv(100):
                    pass


def test_lines_and_parsers(host: ScriptedHost, server: socket.socket) -> None:
    with connected(host, server, {"ulp": "LINES"}) as c:
        c.peer.sendall(b"one\ntwo\n\nfour\n")
        assert [c.read_pdu() for _ in range(4)] == [b"one", b"two", b"", b"four"]
        c.send_pdu(b"reply")
        assert receive_exactly(c.peer, 6) == b"reply\n"
        c.close()
    parser = {"ulp": "STREAM_PARSER", "way": "PUSH_ULP_RX", "offset": 1, "width": 2, "adjustment": 3}
    with connected(host, server, parser) as c:
        c.peer.sendall(b"\7\0\4four\7\0\0")
        assert [c.read_pdu() for _ in range(2)] == [b"\7\0\4four", b"\7\0\0"]
        c.close()


@pytest.mark.parametrize("timeout_ms", [50])
def test_a_pdu_that_does_not_go_on_in_time(host: ScriptedHost, server: socket.socket, timeout_ms: int) -> None:
    """Time passes although nothing comes."""
    parser = {"ulp": "STREAM_PARSER", "way": "PUSH_ULP_RX", "offset": 0, "width": 2, "timeout_ms": timeout_ms}
    with connected(host, server, parser) as c:
        c.peer.sendall(b"\0\x10begun")
        frame = c.receive_data()
        while not frame.flags & flags("RESET"):
            frame = c.receive_data()
        assert frame.error == errno.ETIMEDOUT and host.ulp_error(c.id, c.number).fault == "stalled"
