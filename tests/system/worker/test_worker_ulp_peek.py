"""Pushed protocols in the worker, against a host made by hand and TCP peers on loopback: peek mode. PROTOCOL.md,
"Pushed protocols"."""

from __future__ import annotations

import errno
import os
import socket
import struct
import threading

import pytest
from beds.scripted_host import WINDOW, ScriptedHost, Worker
from beds.worker import (
    LOOPBACK,
    READY,
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
