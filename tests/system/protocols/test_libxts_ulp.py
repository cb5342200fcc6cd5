"""Pushed protocols as the host library has them, against a proxy made by hand: pushes, what goes back, handshakes,
peek mode, reasons.
The proxy's part is played by the contract (PROTOCOL.md, "Pushed protocols")."""

from __future__ import annotations

import errno
import select
import socket
import struct
from pathlib import Path
from typing import Any

import pytest
from beds.caller import Caller
from beds.libxts_ulp import (
    EACH,
    EOR,
    PREFIXED,
    PROXY_ID,
    TLS,
    ULP,
    Connection,
    c,
    caller,
    proxy,
    stream,
)
from beds.one_process_proxy import OneProcessProxy
from beds.shm_proxy import library
from beds.ulp_calls import body
from xts_messages.wire import codec
from xts_messages.wire import wire_table as table
from xts_messages.wire.codec import flags
from xts_messages.wire.ulps import REQUESTS

__all__ = ["c", "caller", "proxy", "stream"]  # fixtures


# --- pushing ---------------------------------------------------------------------------------------------


def test_the_kind_of_socket(c: Connection) -> None:
    assert c.call("kind") == socket.SOCK_SEQPACKET


def test_without_the_feature_nothing_can_be_pushed(tmp_path: Path) -> None:
    with OneProcessProxy(tmp_path) as old, Caller(old, library()) as caller:
        s, _ = caller.connected(kind="sequenced")
        assert caller.call("push", s, "PUSH_ULP", PREFIXED) == "ENOPROTOOPT"
        assert caller.call("ulps") == []
        assert caller.call("error", s) == [0, 0, ""]
        old.send("XTS_REPLY_RECV", b"plain", id=s, post_credits=0, length=5)
        assert caller.call("recv", s, 10) == b"plain".hex()


def test_what_a_push_says(c: Connection) -> None:
    c.recv(b"0123456789")
    assert c.call("recv", 4) == b"0123".hex()
    c.caller.start("push", c.s, "PUSH_ULP_TX", PREFIXED, [[1, 70000, 4], [2, 8, 1], [3, ""], [9, "6162"]])
    asked = c.answer(b"\0")
    assert c.caller.result() == 0
    assert asked.fields["request"] == REQUESTS["PUSH_ULP_TX"][0] and asked.id == PROXY_ID
    assert asked.payload == struct.pack(">IHH", 4, 1, PREFIXED) + bytes.fromhex(
        "0001 0004 000111700002 0001 080003 00000009 0002 6162"
    )
    assert c.call("recv", 10) == b"456789".hex()  # a send push leaves what was received alone


def test_a_push_before_the_connection_makes_the_socket(proxy: OneProcessProxy, caller: Caller) -> None:
    proxy.backlog.clear()
    s = caller.call("socket")
    caller.start("push", s, "PUSH_ULP", TLS)
    asked = proxy.expect("XTS_CMD_IOCTL")
    assert asked.id == 0 and asked.fields["xts_socket"] == s and asked.payload == struct.pack(">IHH", 0, 0, TLS)
    proxy.send("XTS_REPLY_IOCTL_ACK", b"\0", id=s, proxy_id=9, token=asked.fields["token"], length=1)
    assert caller.result() == 0
    caller.start("connect", s)
    connect = proxy.expect("XTS_CMD_CONNECT")
    assert connect.id == 9
    proxy.send("XTS_REPLY_CONNECT_ACK", id=s, error=errno.EKEYREJECTED, proxy_id=9, post_credits=0,
               local=codec.Endpoint(), peer=codec.Endpoint())  # fmt: skip
    assert caller.result() == "EKEYREJECTED"
    caller.start("error", s)
    asked = proxy.expect("XTS_CMD_IOCTL")
    text = struct.pack(">HH", errno.EKEYREJECTED, 6) + b"expired\n"
    proxy.send("XTS_REPLY_IOCTL_ACK", text, id=s, proxy_id=9, token=asked.fields["token"], length=len(text))
    assert caller.result() == [errno.EKEYREJECTED, 6, "expired?"]
    assert caller.call("error", s) == [errno.EKEYREJECTED, 6, "expired?"]  # remembered
    assert caller.call("close", s) == 0
    assert proxy.expect("XTS_CMD_SEND").flag_names == ("CLOSE",)


def test_a_refused_push_changes_nothing(c: Connection) -> None:
    c.caller.start("push", c.s, "PUSH_ULP", PREFIXED)
    c.answer(error=errno.EINVAL)
    assert c.caller.result() == "EINVAL"
    assert c.call("send", 10) == 10
    assert c.expect("XTS_CMD_SEND").payload == bytes(10)
    c.caller.start("error", c.s)
    c.answer(struct.pack(">HH", errno.EINVAL, 12) + b"width: 1 to 8")
    assert c.caller.result() == [errno.EINVAL, 12, "width: 1 to 8"]


@pytest.mark.parametrize("unread", [0, 1, 5000, 12_000])
def test_what_was_not_read_goes_back(c: Connection, unread: int) -> None:
    data = body(unread + 100)
    for at in range(0, len(data), 3000):
        c.recv(data[at : at + 3000])
    assert c.call("recv", 100) == data[:100].hex()
    c.caller.start("push", c.s, "PUSH_ULP_RX", PREFIXED)
    asked = c.expect("XTS_CMD_IOCTL")
    assert struct.unpack(">I", asked.payload[:4]) == (100,)
    late = body(300, 5)
    c.recv(late)  # was on its way
    c.proxy.send("XTS_REPLY_IOCTL_ACK", b"\0", id=c.s, proxy_id=PROXY_ID, token=asked.fields["token"], length=1)
    back = b""
    while len(back) < unread + 300:
        c.proxy.until(lambda: bool(c.proxy.backlog), "nothing goes back")
        frame = c.proxy.backlog.pop(0)
        assert frame.name == "XTS_CMD_GIVE_BACK" and frame.id == PROXY_ID, "before anything else about the socket"
        back += frame.payload
    assert back == data[100:] + late
    assert c.caller.result() == 0
    c.pdu(b"through the protocol")
    assert c.call("recvmsg", 100) == [20, b"through the protocol".hex(), EOR, []]
    assert c.close() == 120


def test_the_end_of_the_stream_is_behind_what_went_back(c: Connection) -> None:
    c.recv(b"rest", names=("EOS",))
    c.caller.start("push", c.s, "PUSH_ULP_RX", PREFIXED)
    c.answer(b"\0")
    assert c.expect("XTS_CMD_GIVE_BACK").payload == b"rest"
    assert c.caller.result() == 0
    c.pdu(b"st")
    assert c.call("recvmsg", 100)[:3] == [2, b"st".hex(), EOR]
    c.recv(names=("EOS",))
    assert c.call("recvmsg", 100) == [0, "", 0, []]


def test_a_reset_while_bytes_go_back(tmp_path: Path) -> None:
    """Two frames on their way at most: the rest of 60 KB waits when the reset comes, and nobody may read it."""
    with OneProcessProxy(tmp_path, frame_window=4, features=ULP) as proxy, Caller(proxy, library()) as caller:
        c = Connection(proxy, caller)
        c.recv(body(50_000))
        c.caller.start("push", c.s, "PUSH_ULP_RX", PREFIXED)
        asked = c.expect("XTS_CMD_IOCTL")
        c.proxy.send("XTS_REPLY_IOCTL_ACK", b"\0", id=c.s, proxy_id=PROXY_ID, token=asked.fields["token"], length=1)
        c.recv(names=("RESET",), error=errno.EBADMSG)
        assert c.caller.result() == 0
        assert c.call("recv", 10) == "EBADMSG"
        assert c.call("recv", 10) == ""


def test_a_reset_during_a_push_before_anybody_asked_how_connecting_went(proxy: OneProcessProxy, caller: Caller) -> None:
    """A state that the table of sockets (socket_states.c) had left out: builds with XTS_DEBUG ended here."""
    proxy.backlog.clear()
    s = caller.call("socket")
    assert caller.call("nonblocking", s) == 0
    assert caller.call("connect", s) == "EINPROGRESS"
    proxy.expect("XTS_CMD_CONNECT")
    peer = codec.Endpoint.of("127.0.0.1", 80)
    proxy.send("XTS_REPLY_CONNECT_ACK", id=s, proxy_id=PROXY_ID, post_credits=65536, local=peer, peer=peer)
    caller.start("push", s, "PUSH_ULP_RX", PREFIXED)
    asked = proxy.expect("XTS_CMD_IOCTL")
    proxy.send("XTS_REPLY_RECV", id=s, flags=flags("RESET"), error=errno.EBADMSG, post_credits=0, length=0)
    proxy.send(
        "XTS_REPLY_IOCTL_ACK", id=s, error=errno.ENOTCONN, proxy_id=PROXY_ID, token=asked.fields["token"], length=0
    )
    assert caller.result() == "ENOTCONN"
    assert caller.call("connect", s) == "EBADMSG"
    assert caller.call("close", s) == 0
    assert proxy.expect("XTS_CMD_SEND").flag_names == ("CLOSE",)


def test_a_send_push_waits_until_what_was_sent_before_has_left(c: Connection) -> None:
    c.caller.start("push", c.s, "PUSH_ULP_TX", PREFIXED)
    for _ in range(3):
        c.answer(error=errno.EAGAIN)
    c.answer(b"\0")
    assert c.caller.result() == 0
    assert c.call("nonblocking") == 0
    c.caller.start("push", c.s, "PUSH_ULP_TX", PREFIXED)
    c.answer(error=errno.EAGAIN)
    assert c.caller.result() == "EAGAIN"


def test_a_small_window_grows_to_what_pdus_need(proxy: OneProcessProxy, tmp_path: Path) -> None:
    with (
        OneProcessProxy(tmp_path, features=ULP) as apart,
        Caller(apart, library(), XTS_WINDOW_BYTES="100", XTS_WINDOW_BYTES_MAX="8192") as caller,
    ):
        c = Connection(apart, caller)
        assert c.credits == 100
        c.caller.start("push", c.s, "PUSH_ULP_RX", PREFIXED)
        c.answer(b"\0")
        assert c.caller.result() == 0 and c.credits == table.ULP_WINDOW_MIN


# --- handshakes, peek mode ---------------------------------------------------------------------------------


def test_a_handshake_is_waited_for(stream: Connection) -> None:
    c = stream
    c.push("PUSH_ULP", TLS, handshake=1)
    assert c.call("poll", select.POLLOUT, 20) == 0
    c.caller.start("handshake", c.s)
    c.proxy.pump()
    c.event("READY")
    assert c.caller.result() == 0
    assert c.call("poll", select.POLLOUT, 0) == select.POLLOUT
    assert c.call("handshake") == 0


def test_a_handshake_that_fails(stream: Connection) -> None:
    c = stream
    c.push("PUSH_ULP", TLS, handshake=1)
    assert c.call("nonblocking") == 0
    assert c.call("handshake") == "EAGAIN"
    c.recv(names=("RESET",), error=errno.EKEYREJECTED)
    assert c.call("poll", select.POLLOUT, 5000) & select.POLLERR
    assert c.call("handshake") == "EKEYREJECTED"
    assert c.call("handshake") == "ENOTCONN"
    c.caller.start("error", c.s)
    c.answer(struct.pack(">HH", errno.EKEYREJECTED, 6) + b"self-signed")
    assert c.caller.result() == [errno.EKEYREJECTED, 6, "self-signed"]


def test_peek_mode(stream: Connection) -> None:
    c = stream
    c.caller.start("peek", c.s)
    assert c.answer().payload == b"\1"
    assert c.caller.result() == 0
    c.recv(b"220 ready\r\n\x16\x03")
    assert c.call("recv", 5) == b"220 r".hex()
    c.push("PUSH_ULP", TLS)  # nothing goes back
    c.caller.start("end_peek", c.s, 11)
    assert c.answer().payload == struct.pack(">I", 11)
    assert c.caller.result() == 0
    c.recv(b"secret")
    assert c.call("recv", 100) == b"secret".hex()
    assert c.call("end_peek", 0) == "EINVAL"
    assert c.close() == 6


def test_accepted_connections_have_what_the_listener_had(proxy: OneProcessProxy, caller: Caller) -> None:
    proxy.backlog.clear()
    s = caller.call("sequenced")
    caller.start("push", s, "PUSH_ULP", PREFIXED)
    asked = proxy.expect("XTS_CMD_IOCTL")
    proxy.send("XTS_REPLY_IOCTL_ACK", b"\0", id=s, proxy_id=0x66, token=asked.fields["token"], length=1)
    assert caller.result() == 0
    caller.start("listen", s, 5)
    asked = proxy.expect("XTS_CMD_LISTEN")
    here = codec.Endpoint.of("127.0.0.1", 80)
    proxy.send("XTS_REPLY_LISTEN_ACK", id=s, proxy_id=0x66, token=asked.fields["token"], local=here)
    assert caller.result() == 0
    proxy.send("XTS_REPLY_NEWCONN", id=s, proxy_id=0x100, post_credits=9000, local=here, peer=here)
    accepted = caller.call("accept", s)
    assert proxy.expect("XTS_CMD_NEWCONN_ACK").id == 0x100
    assert caller.call("kind", accepted) == socket.SOCK_SEQPACKET
    assert caller.call("sendmsg", accepted, 7) == 7
    sent = proxy.expect("XTS_CMD_SEND_PDU")
    assert sent.id == 0x100 and sent.payload == body(7)
    for number, proxy_id in ((accepted, 0x100), (s, 0x66)):
        assert caller.call("close", number) == 0
        closed = proxy.expect("XTS_CMD_SEND")  # taken here, so that no later test meets it
        assert (closed.id, closed.flag_names[0]) == (proxy_id, "CLOSE")
        proxy.send("XTS_REPLY_RECV", flags=flags("CLOSED"), id=number, post_credits=0, length=0)


# --- what the proxy tells -----------------------------------------------------------------------------------


def test_items(stream: Connection) -> None:
    c = stream
    assert c.call("tell", 0, 0, 1, 10) == "ENOENT"
    c.push("PUSH_ULP", TLS)
    c.caller.start("tell", c.s, 0, 0, 1, 10)
    assert c.answer(struct.pack(">IH", 2, 0x0304)).payload == struct.pack(">BBHI", 0, 0, 1, 0)
    assert c.caller.result() == [2, "0403"]  # the host's byte order
    certificate = body(2500)
    c.caller.start("tell", c.s, 1, 0, 4, 4000)
    for at in (0, 1020, 2040):
        assert c.answer(struct.pack(">I", 2500) + certificate[at : at + 1020]).payload == struct.pack(
            ">BBHI", 1, 0, 4, at
        )
    assert c.caller.result() == [2500, certificate.hex()]
    c.caller.start("tell", c.s, 1, 0, 4, 10)
    c.answer(struct.pack(">I", 2500) + certificate[:1020])
    assert c.caller.result() == [2500, certificate[:10].hex()]
    c.caller.start("tell", c.s, 1, 0, 4, 4000)
    c.answer(struct.pack(">I", 1) + certificate[:1020])
    assert c.caller.result() == "EPROTO"


def test_offers(proxy: OneProcessProxy, caller: Caller) -> None:
    proxy.backlog.clear()
    caller.start("ulps")
    asked = proxy.expect("XTS_CMD_IOCTL")
    s = int(str(asked.fields["xts_socket"]))
    offers = struct.pack(">HHBHHB", 1, 1, 1, 5, 2, 3)
    proxy.send("XTS_REPLY_IOCTL_ACK", offers, id=s, proxy_id=0x31, token=asked.fields["token"], length=len(offers))
    assert caller.result() == [[1, 1, 1, 0], [5, 2, 1, 1]]
    closed = proxy.expect("XTS_CMD_SEND")
    assert closed.id == 0x31 and closed.flag_names == ("CLOSE",)
    proxy.send("XTS_REPLY_RECV", flags=flags("CLOSED"), id=s, post_credits=0, length=0)


# --- a proxy that is wrong ------------------------------------------------------------------------------------


def _too_much(c: Connection) -> None:
    c.pdu(bytes(10_000), more=True)
    c.pdu(bytes(c.credits - EACH + 1), more=True)


def _longer_than_said(c: Connection) -> None:
    c.pdu(b"12345", more=True, record=8)
    c.pdu(b"12345", record=8)


def _stream_in_a_pdu(c: Connection) -> None:
    c.pdu(b"12345", more=True)
    c.recv(b"what?")


def _end_in_a_pdu(c: Connection) -> None:
    c.pdu(b"12345", more=True)
    c.recv(names=("EOS",))


def _after_the_end(c: Connection) -> None:
    c.recv(names=("EOS",))
    c.pdu(b"12345")


def _unknown_event(c: Connection) -> None:
    c.proxy.send("XTS_REPLY_RECV_PDU", id=c.s, control_type=0xFFFE)


@pytest.mark.parametrize(
    "wrong",
    [_too_much, _longer_than_said, _stream_in_a_pdu, _end_in_a_pdu, _after_the_end, _unknown_event],
)
def test_a_proxy_that_breaks_the_rules_loses_the_channel(wrong: Any, tmp_path: Path) -> None:
    with OneProcessProxy(tmp_path, features=ULP) as proxy, Caller(proxy, library()) as caller:
        c = Connection(proxy, caller)
        c.push("PUSH_ULP_RX", PREFIXED)
        wrong(c)
        assert c.call("recv", 10) in ("ECONNRESET", "")
        assert proxy.down() == errno.EPROTO
        assert c.call("send", 10) in ("EPIPE", "ECONNRESET")
        assert c.call("handshake") in ("ENOTCONN", "ECONNRESET")
        assert c.call("error") == "ENETDOWN"
