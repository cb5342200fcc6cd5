"""Pushed protocols in the worker, against a host made by hand and TCP peers on loopback: PDUs both ways, faults, hosts
that break the rules. PROTOCOL.md,
"Pushed protocols"."""

from __future__ import annotations

import errno
import itertools
import os
import socket
import struct
import threading
from typing import Any

import pytest
from beds.scripted_host import WINDOW, ScriptedHost, Worker
from beds.worker import (
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
    wait_until_taken,
    worker,
)
from xts_lab.free_ports import free_port
from xts_messages.wire import wire_table as table
from xts_messages.wire.codec import flags

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


def test_a_stream_that_is_cut_off_can_be_answered(worker: Worker, server: socket.socket) -> None:
    """A host that knows CUT_OFF is told so by EOS, and may go on sending."""
    with worker.attach(features=FEATURES | table.FEATURES["CUT_OFF"][0]) as attached:
        with attached.open() as host, connected(host, server, PREFIX) as c:
            c.peer.sendall(prefixed(b"whole") + b"\0\0\0\5cut")
            c.peer.shutdown(socket.SHUT_WR)
            assert c.read_pdu() == b"whole"
            frame = c.receive()
            while not frame.flags & flags("EOS"):
                assert not frame.flags & flags("RESET")
                frame = c.receive()
            assert frame.error == errno.EBADMSG
            assert host.ulp_error(c.id, c.number).fault == "truncated"
            c.send_pdu(b"the answer")
            assert receive_exactly(c.peer, 14) == prefixed(b"the answer")


def test_the_end_of_the_stream(host: ScriptedHost, server: socket.socket) -> None:
    with connected(host, server, PREFIX) as c:
        c.peer.sendall(prefixed(b"last"))
        c.peer.shutdown(socket.SHUT_WR)
        assert c.read_pdu() == b"last"
        assert c.receive().flags == flags("EOS")
        c.send_pdu(b"afterwards")
        c.host.send("XTS_CMD_SEND", id=c.id, flags=flags("FIN"))
        assert receive_exactly(c.peer, 100) == prefixed(b"afterwards")


def test_a_reset_right_behind_the_end_of_the_stream(host: ScriptedHost, server: socket.socket) -> None:
    """The end waits behind data without credits, so the event of the RST has been seen before."""
    with connected(host, server, PREFIX, window=SMALL) as c:
        c.peer.sendall(prefixed(bytes(2 * SMALL)))
        c.peer.shutdown(socket.SHUT_WR)
        wait_until_taken([c.peer])
        c.peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        c.peer.close()
        assert c.receive_data().flags == MORE
        for _ in range(2):  # the worker has looked at its sockets meanwhile
            assert host.connect(LOOPBACK, free_port())[1].error == errno.ECONNREFUSED
        c.give_credits(4 * SMALL)
        assert not c.receive_data().flags, "the rest of the PDU"
        assert c.receive_data().flags == flags("EOS")
        frame = c.receive_data()
        assert frame.flags == flags("RESET") and frame.error == errno.EPIPE


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
