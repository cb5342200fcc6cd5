"""A message protocol that lets the sender wait, in the worker: gRPC on HTTP/2's windows."""

from __future__ import annotations

import socket
import struct

import pytest
from beds.grpc import DATA, END_HEADERS, HEADERS, PING, PREFACE, control, frame, parse, prefixed, window_update
from beds.scripted_host import ScriptedHost, Worker
from beds.worker import Conn, connected, host, receive_exactly, server, wait_for, worker
from xts_messages.wire.codec import flags
from xts_messages.wire.ulps import BY_NAME

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


def blocked(c: Conn) -> int:
    """The stream that the layer says it waits for."""
    item = next(item for item in BY_NAME["GRPC"].items if item.name == "BLOCKED")
    answer = c.ioctl("ULP_INFO", struct.pack("!BBHI", 1, 1, item.number, 0))
    assert answer.error == 0, answer
    total, stream = struct.unpack("!II", answer.payload)
    assert total == 4
    return int(stream)


def test_a_message_without_a_window_holds_up_those_behind_it_and_says_so(
    host: ScriptedHost, server: socket.socket
) -> None:
    """The limit that ULPS.md names: what is sent on a socket is one queue, whatever streams it is for."""
    message = bytes(range(256)) * 300
    rest = len(prefixed(message)) - WINDOW
    with connected(host, server, {"ulp": "HTTP2"}, {"ulp": "GRPC"}) as c:
        heads = frame(HEADERS, b"\x82", END_HEADERS, 1) + frame(HEADERS, b"\x82", END_HEADERS, 3)
        c.send_pdu(heads)
        assert receive_exactly(c.peer, len(PREFACE + heads)) == PREFACE + heads
        assert blocked(c) == 0
        c.send_pdu(message, control=(BY_NAME["GRPC"].number, control(0, 0, 1)))
        c.send_pdu(b"behind", control=(BY_NAME["GRPC"].number, control(0, 0, 3)))
        said = b""
        while len(said) < WINDOW:
            said += next(parse(received_frame(c.peer)))[3]
        wait_for(lambda: blocked(c) == 1, "it waits for no window")
        c.peer.sendall(window_update(0, 1 << 20) + frame(PING, bytes(8)))
        assert c.read().payload == frame(PING, bytes(8))  # so the connection's window is open, and that of stream 3 was
        wait_for(lambda: blocked(c) == 1, "it waits for no window")
        c.peer.setblocking(False)
        with pytest.raises(BlockingIOError):
            c.peer.recv(1)
        c.peer.settimeout(5)
        c.peer.sendall(window_update(1, rest))
        while len(said) < WINDOW + rest:
            said += next(parse(received_frame(c.peer)))[3]
        assert said == prefixed(message)
        assert list(parse(received_frame(c.peer))) == [(DATA, 0, 3, prefixed(b"behind"))]
        assert blocked(c) == 0


@pytest.mark.parametrize("lingering", [False, True])
def test_what_a_window_has_stopped_is_delivered_after_the_host_has_closed(
    worker: Worker, host: ScriptedHost, server: socket.socket, lingering: bool
) -> None:
    """Data that comes meanwhile, more than is read at once, is for nobody."""
    message = bytes(range(256)) * 300
    rest = len(prefixed(message)) - WINDOW
    with connected(host, server, {"ulp": "HTTP2"}, {"ulp": "GRPC"}) as c:
        head = frame(HEADERS, b"\x82", END_HEADERS, 1)
        c.send_pdu(head)
        c.send_pdu(message, control=(BY_NAME["GRPC"].number, control(0, 0, 1)))
        assert receive_exactly(c.peer, len(PREFACE + head)) == PREFACE + head
        said = b""
        while len(said) < WINDOW:
            said += next(parse(received_frame(c.peer)))[3]
        if lingering:
            host.send("XTS_CMD_SEND", id=c.id, flags=flags("CLOSE", "LINGER"), post_credits=c.read_bytes)
            host.ioctl("ULP_LIST", id=77)  # of nobody; its answer: CLOSE has been seen, whose own comes at the end
        else:
            assert c.close().error == 0
        c.peer.sendall(frame(HEADERS, b"\x88", END_HEADERS, 1))
        c.peer.sendall(b"".join(frame(DATA, prefixed(bytes(16000)), 0, 1) for _ in range(4)))
        c.peer.sendall(window_update(0, rest) + window_update(1, rest))
        rest_of_it = receive_exactly(c.peer, 1 << 30)
        said += b"".join(payload for kind, *_, payload in parse(rest_of_it) if kind == DATA)
        assert said == prefixed(message)
    worker.wait(lambda s: s.connections == 0, "the orphan has not ended")


def received_frame(peer: socket.socket) -> bytes:
    """A whole frame."""
    head = receive_exactly(peer, 9)
    return head + receive_exactly(peer, int.from_bytes(head[:3], "big"))
