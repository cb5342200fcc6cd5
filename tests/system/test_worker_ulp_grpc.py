"""A message protocol that lets the sender wait, in the worker: gRPC on HTTP/2's windows."""

from __future__ import annotations

import socket

import pytest
from grpc_bed import DATA, END_HEADERS, HEADERS, PREFACE, control, frame, parse, prefixed, window_update
from scripted_host import ScriptedHost, Worker
from worker_ulp_bed import FEATURES, Conn, connected, host, receive_exactly, server, worker
from xts_messages.codec import flags
from xts_messages.ulps import BY_NAME

__all__ = ["host", "server", "worker"]  # fixtures

WINDOW = 65535


def test_what_a_window_has_stopped_goes_on_when_it_opens(host: ScriptedHost, server: socket.socket) -> None:
    """Nothing else happens than that WINDOW_UPDATE: TCP was never full."""
    message = bytes(range(256)) * 300
    rest = len(prefixed(message)) - WINDOW
    with connected(host, server, {"ulp": "HTTP2"}, {"ulp": "GRPC"}) as c:
        head = frame(HEADERS, b"\x82", END_HEADERS, 1)
        c.send_pdu(head)
        assert receive_exactly(c.peer, len(PREFACE + head)) == PREFACE + head
        c.send_pdu(message, control=(BY_NAME["GRPC"].number, control(0, 0, 1)))
        said = b""
        for update in (b"", window_update(0, rest) + window_update(1, rest)):
            c.peer.sendall(update)
            end = WINDOW if not update else WINDOW + rest
            while len(said) < end:
                kind, _, stream, payload = next(parse(received_frame(c.peer)))
                assert (kind, stream) == (DATA, 1)
                said += payload
            assert len(said) == end
        assert said == prefixed(message)


def message_begun(c: Conn) -> tuple[bytes, bytes]:
    """A message longer than the windows of HTTP/2 is sent; what has to arrive, and what has."""
    message = bytes(range(256)) * 300
    head = frame(HEADERS, b"\x82", END_HEADERS, 1)
    c.send_pdu(head)
    assert receive_exactly(c.peer, len(PREFACE + head)) == PREFACE + head
    c.send_pdu(message, control=(BY_NAME["GRPC"].number, control(0, 0, 1)))
    return prefixed(message), receive_data(c.peer, WINDOW)


def receive_data(peer: socket.socket, count: int) -> bytes:
    """Of DATA frames."""
    said = b""
    while len(said) < count:
        kind, _, stream, payload = next(parse(received_frame(peer)))
        assert (kind, stream) == (DATA, 1)
        said += payload
    return said


@pytest.mark.parametrize("how", ["close", "linger", "goes"])
def test_what_a_window_has_stopped_goes_on_when_the_host_has_closed(
    worker: Worker, server: socket.socket, how: str
) -> None:
    """Nobody reads any more, but for the windows. Data that comes meanwhile is for nobody."""
    with worker.attach(features=FEATURES) as host:
        host.open()
        c = connected(host, server, {"ulp": "HTTP2"}, {"ulp": "GRPC"})
        wanted, said = message_begun(c)
        if how == "linger":
            host.send("XTS_CMD_SEND", id=c.id, flags=flags("CLOSE", "LINGER"), post_credits=c.read_bytes)
        elif how == "close":
            c.close()
    with c:
        c.peer.sendall(frame(HEADERS, b"\x88", END_HEADERS, 1) + frame(DATA, bytes(5 + 16000), 0, 1))
        c.peer.sendall(window_update(0, len(wanted)) + window_update(1, len(wanted)))
        assert said + receive_data(c.peer, len(wanted) - len(said)) == wanted
        assert c.peer.recv(1) == b""
    worker.wait(lambda s: s.connections == s.spill_bytes == 0, "the orphan did not end")


def received_frame(peer: socket.socket) -> bytes:
    """A whole frame."""
    head = receive_exactly(peer, 9)
    return head + receive_exactly(peer, int.from_bytes(head[:3], "big"))
