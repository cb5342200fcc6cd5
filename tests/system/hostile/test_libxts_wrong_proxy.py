"""What the host library makes of a proxy that is wrong, slow, dead or malicious: at worst that one channel ends, with
a defined errno, and the next socket attaches again. Never a crash, never a hang."""

from __future__ import annotations

import errno
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from beds.caller import Caller
from beds.one_process_proxy import OneProcessProxy
from beds.shm_proxy import library
from xts_messages.wire import codec
from xts_messages.wire import wire_table as table
from xts_messages.wire.codec import flags

PEER = codec.Endpoint.of("127.0.0.1", 80)


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[OneProcessProxy]:
    with OneProcessProxy(tmp_path) as made:
        yield made


@pytest.fixture
def caller(proxy: OneProcessProxy) -> Iterator[Caller]:
    with Caller(proxy, library()) as made:
        yield made


def recv(proxy: OneProcessProxy, s: int, payload: bytes = b"", names: tuple[str, ...] = (), **more: Any) -> None:
    fields = {"post_credits": 0, "length": len(payload)} | {k: v for k, v in more.items() if k != "error"}
    proxy.send("XTS_REPLY_RECV", payload, flags=flags(*names), error=more.get("error", 0), id=s, **fields)


def test_a_correct_proxy_is_believed(proxy: OneProcessProxy, caller: Caller) -> None:
    s, connect = caller.connected()
    assert connect.id == 0 and connect.fields["xts_socket"] == s and connect.fields["peer"] == PEER
    recv(proxy, s, b"hello")
    assert caller.call("recv", s, 100) == b"hello".hex()
    assert caller.call("send", s, 1000) == 1000
    sent = proxy.expect("XTS_CMD_SEND")
    assert sent.payload == bytes(1000) and sent.id == 0x77 and sent.fields["post_credits"] == 5
    assert caller.call("close", s) == 0
    closed = proxy.expect("XTS_CMD_SEND")
    assert closed.flag_names == ("CLOSE",) and closed.fields["post_credits"] == 5  # bytes read
    recv(proxy, s, names=("CLOSED",))
    assert caller.call("malformed") == 0


def test_connections_that_fail_tell_why(proxy: OneProcessProxy, caller: Caller) -> None:
    s = caller.call("socket")
    for error in (errno.ECONNREFUSED, errno.ENETUNREACH, errno.ETIMEDOUT, errno.EACCES):
        caller.start("connect", s)
        proxy.expect("XTS_CMD_CONNECT")
        none = codec.Endpoint()
        proxy.send("XTS_REPLY_CONNECT_ACK", error=error, id=s, proxy_id=0, post_credits=0, local=none, peer=none)
        assert caller.result() == errno.errorcode[error]
    assert caller.call("close", s) == 0


def test_unknown_identifiers_are_counted_and_dropped(proxy: OneProcessProxy, caller: Caller) -> None:
    s, _ = caller.connected()
    for wrong in (0, 1, s + 1, s ^ (1 << 20), 0xFFFFFFFF):
        recv(proxy, wrong, b"not yours")
        proxy.send("XTS_REPLY_CONNECT_ACK", id=wrong, proxy_id=5, post_credits=1, local=PEER, peer=PEER)
        proxy.send("XTS_REPLY_BIND_ACK", id=wrong, proxy_id=5, token=1, local=PEER)
    recv(proxy, s, b"mine")
    assert caller.call("recv", s, 100) == b"mine".hex()
    assert caller.call("malformed") == 15


def test_a_reply_with_another_token_is_dropped(proxy: OneProcessProxy, caller: Caller) -> None:
    s = caller.call("socket")
    caller.start("nodelay", s)
    asked = proxy.expect("XTS_CMD_SETSOCKOPT")
    wrong = (int(str(asked.fields["token"])) + 1) & 0xFFFFFFFF
    proxy.send("XTS_REPLY_SOCKOPT_ACK", id=s, proxy_id=9, token=wrong, length=0)
    proxy.send("XTS_REPLY_SOCKOPT_ACK", id=s, proxy_id=9, token=asked.fields["token"], length=0, error=errno.EPERM)
    assert caller.result() == "EPERM"


def test_a_new_connection_for_no_listener_is_refused(proxy: OneProcessProxy, caller: Caller) -> None:
    caller.connected()
    proxy.send("XTS_REPLY_NEWCONN", id=0x123456, proxy_id=0x88, post_credits=1, local=PEER, peer=PEER)
    caller.call("malformed")
    refusal = proxy.expect("XTS_CMD_NEWCONN_ACK")
    assert refusal.id == 0x88 and refusal.error


def listening(proxy: OneProcessProxy, caller: Caller, backlog: int = 1) -> int:
    s = caller.call("socket")
    caller.start("listen", s, backlog)
    asked = proxy.expect("XTS_CMD_LISTEN")
    assert asked.fields["post_credits"] == backlog + 1
    proxy.send("XTS_REPLY_LISTEN_ACK", id=s, proxy_id=0x66, token=asked.fields["token"], local=PEER)
    assert caller.result() == 0
    return int(s)


def test_a_listener_returns_its_credits(proxy: OneProcessProxy, caller: Caller) -> None:
    s = listening(proxy, caller)
    for i in range(5):
        proxy.send("XTS_REPLY_NEWCONN", id=s, proxy_id=0x100 + i, post_credits=1000, local=PEER, peer=PEER)
        accepted = caller.call("accept", s)
        assert accepted > 0
        answer = proxy.expect("XTS_CMD_NEWCONN_ACK")
        assert answer.id == 0x100 + i and answer.fields["xts_socket"] == accepted and not answer.error
        returned = proxy.expect("XTS_CMD_SEND")
        assert returned.id == 0x66 and returned.fields["post_credits"] == 1
    assert caller.call("close", s) == 0
    assert proxy.expect("XTS_CMD_SEND").flag_names == ("CLOSE",)


def violation(proxy: OneProcessProxy, caller: Caller, s: int) -> None:
    """The channel ends with GOODBYE; its sockets in ECONNRESET; the next socket attaches again."""
    assert caller.call("recv", s, 100) == "ECONNRESET"
    assert proxy.down() in (errno.EPROTO, errno.EBADMSG)
    assert caller.call("recv", s, 100) == ""
    assert caller.call("send", s, 1) == "EPIPE"
    again, _ = caller.connected()
    recv(proxy, again, b"fine")
    assert caller.call("recv", again, 10) == b"fine".hex()
    assert caller.call("close", s) == 0


def test_more_data_than_credits(proxy: OneProcessProxy, caller: Caller) -> None:
    s, connect = caller.connected()
    window = int(str(connect.fields["post_credits"]))
    recv(proxy, s, bytes(30_000))
    recv(proxy, s, bytes(window - 30_010))
    recv(proxy, s, bytes(11))
    assert caller.call("recv", s, window) == bytes(window - 10).hex()
    violation(proxy, caller, s)


@pytest.mark.parametrize("credits", [table.CREDITS_MAX, table.CREDITS_MAX - 100])
def test_more_credits_than_there_can_be(proxy: OneProcessProxy, caller: Caller, credits: int) -> None:
    s, _ = caller.connected(credits=101)
    recv(proxy, s, post_credits=credits)
    violation(proxy, caller, s)


def test_a_field_out_of_range(proxy: OneProcessProxy, caller: Caller) -> None:
    s, _ = caller.connected()
    frame = bytearray(codec.encode(codec.Frame("XTS_REPLY_RECV", {"post_credits": 0, "length": 0}, id=s)))
    frame[24:28] = b"\xff\xff\xff\xff"
    proxy.send_encoded(frame)
    violation(proxy, caller, s)


def test_a_length_past_the_frame(proxy: OneProcessProxy, caller: Caller) -> None:
    s, _ = caller.connected()
    frame = bytearray(codec.encode(codec.Frame("XTS_REPLY_RECV", {"post_credits": 0, "length": 4}, b"four", id=s)))
    frame[28:32] = (5000).to_bytes(4, "big")
    proxy.send_encoded(frame)
    violation(proxy, caller, s)


@pytest.mark.parametrize("names", [("CLOSED",), ("EOS",)])
def test_data_after_the_end(proxy: OneProcessProxy, caller: Caller, names: tuple[str, ...]) -> None:
    s, _ = caller.connected()
    recv(proxy, s, names=names)
    if names == ("EOS",):
        recv(proxy, s, b"more")
        assert caller.call("recv", s, 10) in ("", "ECONNRESET")
        assert proxy.down() == errno.EPROTO
    else:
        violation(proxy, caller, s)


def test_more_connections_than_the_backlog(proxy: OneProcessProxy, caller: Caller) -> None:
    s = listening(proxy, caller, backlog=2)
    for i in range(4):
        proxy.send("XTS_REPLY_NEWCONN", id=s, proxy_id=0x100 + i, post_credits=1, local=PEER, peer=PEER)
    accepted = caller.call("accept", s)
    if isinstance(accepted, int):
        assert caller.call("recv", accepted, 1) == "ECONNRESET"
    assert proxy.down() == errno.EPROTO  # another call would attach again


def test_a_message_out_of_sequence(proxy: OneProcessProxy, caller: Caller) -> None:
    s, _ = caller.connected()
    proxy.link.sent += 1
    recv(proxy, s, b"one was lost")
    violation(proxy, caller, s)


def test_a_goodbye(proxy: OneProcessProxy, caller: Caller) -> None:
    s, _ = caller.connected()
    fresh = caller.call("socket")
    caller.start("recv", s, 10)
    from xts_messages._native import lib

    lib.xts_link_goodbye(proxy.link, errno.ESHUTDOWN)
    assert caller.result() == "ECONNRESET"
    assert caller.call("connect", fresh) == "ENETDOWN"


@pytest.mark.parametrize("answer", [errno.EPROTONOSUPPORT, errno.EOPNOTSUPP])
def test_a_refused_link(proxy: OneProcessProxy, caller: Caller, answer: int) -> None:
    proxy.answer_hello = answer
    assert caller.call("socket") == "ENETDOWN"
    proxy.answer_hello = 0
    caller.connected()


@pytest.mark.parametrize("seed", range(4))
def test_random_messages(tmp_path: Path, seed: int) -> None:
    """Well-sealed frames of random content: every call ends, the process lives, no descriptor is lost."""
    draw = random.Random(seed)
    names = [m.name for m in table.MESSAGES if m.sender == "proxy" and m.sequenced]
    with OneProcessProxy(tmp_path) as proxy, Caller(proxy, library()) as caller:
        caller.call("socket")
        before = caller.call("descriptors")
        for _ in range(10):
            s, _ = caller.connected()
            ids = [s, s, s, 0, 1, draw.getrandbits(32)]
            for _ in range(draw.randrange(1, 20)):
                if not proxy.up:
                    break
                frame = bytearray(draw.randbytes(draw.choice((60, 80, 200))))
                frame[14] = codec.BY_NAME[draw.choice(names)].code
                frame[20:24] = draw.choice(ids).to_bytes(4, "big")
                if draw.random() < 0.7:  # fields that pass the first checks
                    frame[24:36] = draw.randrange(100).to_bytes(4, "big") * 2 + len(frame[36:]).to_bytes(4, "big")
                proxy.send_encoded(frame)
                proxy.pump()
            proxy.mute = True  # whatever happened, waiting ends
            assert isinstance(caller.call("recv", s, 1000), str)
            caller.call("close", s)
            proxy.mute = False
            proxy.backlog.clear()
        after = caller.call("descriptors")
        assert after <= before + 6, (before, after)
