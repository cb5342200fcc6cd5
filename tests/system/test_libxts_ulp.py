"""Pushed protocols as the host library has them, against a proxy made by hand: pushes, what goes back, PDUs both ways,
peek mode, handshakes, reasons. The proxy's part is played by the contract (PROTOCOL.md, "Pushed protocols")."""

from __future__ import annotations

import errno
import select
import socket
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from examples import examples
from handmade_proxy import Caller, ScriptedProxy
from hypothesis import given
from hypothesis import strategies as st
from shm_proxy import library
from ulp_calls import body
from xts_messages import codec, table
from xts_messages.codec import Frame, flags
from xts_messages.ulps import BY_NAME, EVENTS, REQUESTS

ULP = table.FEATURES["ULP"][0]
EACH = table.PDU_CREDITS
SOL_XTS, SOL_TLS, SET_RECORD_TYPE, GET_RECORD_TYPE = 0x5854, 282, 1, 2
EOR, TRUNC, CTRUNC = socket.MSG_EOR, socket.MSG_TRUNC, socket.MSG_CTRUNC
PREFIXED, TLS, KEYS = (BY_NAME[name].number for name in ("LENGTH_PREFIXED", "TLS", "TLS_KEYS"))
PROXY_ID = 0x77


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScriptedProxy]:
    with ScriptedProxy(tmp_path_factory.mktemp("proxy"), features=ULP) as made:
        yield made


@pytest.fixture(scope="module")
def caller(proxy: ScriptedProxy) -> Iterator[Caller]:
    with Caller(proxy, library(), XTS_WINDOW_BYTES="16384", XTS_WINDOW_BYTES_MAX="65536") as made:
        yield made


class Connection:
    """A connection as its proxy sees it: what it may send, what it gets."""

    def __init__(self, proxy: ScriptedProxy, caller: Caller, kind: str = "sequenced", credits: int = 65536) -> None:
        self.proxy, self.caller = proxy, caller
        self.closed = False
        proxy.backlog.clear()
        self.s, connect = caller.connected(credits, kind)
        self.credits = int(str(connect.fields["post_credits"]))
        self.granted = credits

    def call(self, name: str, *arguments: Any) -> Any:
        return self.caller.call(name, self.s, *arguments)

    def expect(self, name: str) -> Frame:
        """The next message of this type; adverts that come before it are counted."""
        while True:
            self.proxy.until(lambda: bool(self.proxy.backlog), f"no {name} came")
            frame = self.proxy.backlog.pop(0)
            self.credits += self._granted(frame)
            if frame.name == name:
                return frame
            assert frame.name == "XTS_CMD_SEND" and not frame.payload and not frame.flags, frame

    @staticmethod
    def _granted(frame: Frame) -> int:
        closing = "CLOSE" in frame.flag_names
        return (
            0
            if closing or frame.name not in ("XTS_CMD_SEND", "XTS_CMD_SEND_PDU")
            else int(str(frame.fields["post_credits"]))
        )

    def recv(self, payload: bytes = b"", names: tuple[str, ...] = (), error: int = 0, credits: int = 0) -> None:
        self.credits -= len(payload)
        self.proxy.send(
            "XTS_REPLY_RECV",
            payload,
            flags=flags(*names),
            error=error,
            id=self.s,
            post_credits=credits,
            length=len(payload),
        )

    def pdu(self, payload: bytes, more: bool = False, record: int = 0, control: bytes = b"", about: int = 0) -> None:
        self.credits -= len(payload) + EACH
        high, low = struct.unpack(">QQ", control.ljust(16, b"\0"))
        self.proxy.send(
            "XTS_REPLY_RECV_PDU", payload, flags=flags("MORE") if more else 0, id=self.s, post_credits=0,
            length=len(payload), record_bytes=record, control_type=about, control_bytes=len(control),
            control_high=high, control_low=low,
        )  # fmt: skip

    def event(self, name: str) -> None:
        self.credits += EACH
        self.pdu(b"", about=EVENTS[name][0])

    def answer(self, payload: bytes = b"", error: int = 0) -> Frame:
        asked = self.expect("XTS_CMD_IOCTL")
        self.proxy.send(
            "XTS_REPLY_IOCTL_ACK", payload, error=error, id=self.s, proxy_id=PROXY_ID, token=asked.fields["token"],
            length=len(payload),
        )  # fmt: skip
        return asked

    def push(self, request: str, ulp: int, handshake: int = 0) -> Frame:
        """Pushes, with nothing unread; the IOCTL."""
        self.caller.start("push", self.s, request, ulp)
        asked = self.answer(bytes([handshake]))
        assert self.caller.result() == 0
        return asked

    def close(self) -> int:
        """Closes, once; how many bytes the application has read, as the CLOSE says."""
        if self.closed:
            return 0
        self.closed = True
        assert self.call("close") == 0
        closed = self.expect("XTS_CMD_SEND")
        while "CLOSE" not in closed.flag_names:
            closed = self.expect("XTS_CMD_SEND")
        self.recv(names=("CLOSED",))
        return int(str(closed.fields["post_credits"]))


@pytest.fixture
def c(proxy: ScriptedProxy, caller: Caller) -> Iterator[Connection]:
    made = Connection(proxy, caller)
    yield made
    made.close()


@pytest.fixture
def stream(proxy: ScriptedProxy, caller: Caller) -> Iterator[Connection]:
    made = Connection(proxy, caller, "socket")
    yield made
    made.close()


# --- pushing ---------------------------------------------------------------------------------------------


def test_the_kind_of_socket(c: Connection) -> None:
    assert c.call("kind") == socket.SOCK_SEQPACKET


def test_without_the_feature_nothing_can_be_pushed(tmp_path: Path) -> None:
    with ScriptedProxy(tmp_path) as old, Caller(old, library()) as caller:
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


def test_a_push_before_the_connection_makes_the_socket(proxy: ScriptedProxy, caller: Caller) -> None:
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
    with ScriptedProxy(tmp_path, frame_window=4, features=ULP) as proxy, Caller(proxy, library()) as caller:
        c = Connection(proxy, caller)
        c.recv(body(50_000))
        c.caller.start("push", c.s, "PUSH_ULP_RX", PREFIXED)
        asked = c.expect("XTS_CMD_IOCTL")
        c.proxy.send("XTS_REPLY_IOCTL_ACK", b"\0", id=c.s, proxy_id=PROXY_ID, token=asked.fields["token"], length=1)
        c.recv(names=("RESET",), error=errno.EBADMSG)
        assert c.caller.result() == 0
        assert c.call("recv", 10) == "EBADMSG"
        assert c.call("recv", 10) == ""


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


def test_a_small_window_grows_to_what_pdus_need(proxy: ScriptedProxy, tmp_path: Path) -> None:
    with (
        ScriptedProxy(tmp_path, features=ULP) as apart,
        Caller(apart, library(), XTS_WINDOW_BYTES="100", XTS_WINDOW_BYTES_MAX="8192") as caller,
    ):
        c = Connection(apart, caller)
        assert c.credits == 100
        c.caller.start("push", c.s, "PUSH_ULP_RX", PREFIXED)
        c.answer(b"\0")
        assert c.caller.result() == 0 and c.credits == table.ULP_WINDOW_MIN


# --- receiving -------------------------------------------------------------------------------------------


def test_one_pdu_per_call(c: Connection) -> None:
    c.push("PUSH_ULP_RX", PREFIXED)
    for payload in (b"one", b"", b"three"):
        c.pdu(payload)
    c.pdu(b"fo", more=True, record=4)
    assert c.call("poll", select.POLLIN, 5000) == select.POLLIN
    assert [c.call("recvmsg", 100) for _ in range(3)] == [
        [3, b"one".hex(), EOR, []], [0, "", EOR, []], [5, b"three".hex(), EOR, []],
    ]  # fmt: skip
    assert c.call("poll", select.POLLIN, 0) == 0
    assert c.call("recvmsg", 100, socket.MSG_DONTWAIT) == "EAGAIN"
    c.caller.start("recvmsg", c.s, 100)
    c.pdu(b"ur", record=4)
    assert c.caller.result() == [4, b"four".hex(), EOR, []]


def test_a_buffer_that_is_too_small(c: Connection) -> None:
    c.push("PUSH_ULP_RX", PREFIXED)
    c.pdu(b"0123456789")
    c.pdu(b"next")
    assert c.call("recvmsg", 4, socket.MSG_PEEK | socket.MSG_TRUNC) == [10, b"0123".hex(), TRUNC, []]
    assert c.call("recvmsg", 0) == [0, "", TRUNC, []]
    assert c.call("recvmsg", 4) == [4, b"0123".hex(), TRUNC, []]
    assert c.call("unread") == 6
    assert c.call("recvmsg", 4, socket.MSG_TRUNC) == [6, b"4567".hex(), TRUNC, []]
    assert c.call("recvmsg", 4, socket.MSG_PEEK) == [2, b"89".hex(), EOR, []]
    assert c.call("recvmsg", 4, socket.MSG_WAITALL) == [2, b"89".hex(), EOR, []]
    assert c.call("recvmsg", 4) == [4, b"next".hex(), EOR, []]


def test_the_length_of_a_pdu_that_has_not_all_come(c: Connection) -> None:
    c.push("PUSH_ULP_RX", PREFIXED)
    size, data = 500_000, body(500_000)
    at = 0
    while at < size:  # all that may be sent: the window grows to its maximum while nobody reads
        c.call("poll", 0, 0)
        c.proxy.pump()
        while c.proxy.backlog:
            c.credits += c._granted(c.proxy.backlog.pop(0))
        if c.credits <= EACH:
            break
        n = min(c.credits - EACH, 8000, size - at)
        c.pdu(data[at : at + n], more=True, record=size)
        at += n
    assert at > 32768
    assert c.call("recvmsg", 10, socket.MSG_TRUNC | socket.MSG_PEEK) == [size, data[:10].hex(), TRUNC, []]
    assert c.call("recvmsg", 10, socket.MSG_TRUNC) == [size, data[:10].hex(), TRUNC, []]
    assert c.call("recvmsg", 10, socket.MSG_TRUNC) == [size - 10, data[10:20].hex(), TRUNC, []]


def test_control_data(c: Connection) -> None:
    c.push("PUSH_ULP_RX", BY_NAME["HTTP2"].number)
    control = bytes(range(1, 10))
    c.pdu(b"frame", control=control, about=8)
    c.pdu(b"frame", control=control, about=8)
    assert c.call("recvmsg", 3, 0, 64) == [3, b"fra".hex(), TRUNC, [[SOL_XTS, 8, control.hex()]]]
    assert c.call("recvmsg", 3, 0, 64) == [2, b"me".hex(), EOR, [[SOL_XTS, 8, control.hex()]]]
    assert c.call("recvmsg", 9, socket.MSG_PEEK, 20) == [5, b"frame".hex(), EOR | CTRUNC, [[SOL_XTS, 8, "01020304"]]]
    assert c.call("recvmsg", 9) == [5, b"frame".hex(), EOR | CTRUNC, []]


@examples(30)
@given(
    sizes=st.lists(st.one_of(st.integers(0, 300), st.integers(0, 40_000), st.integers(0, 200_000)), max_size=12),
    parts=st.lists(st.integers(0, 30_000), min_size=1, max_size=5).filter(any),
    buffers=st.lists(st.one_of(st.integers(1, 64), st.integers(1, 70_000)), min_size=1, max_size=4),
    waitall=st.booleans(),
    known=st.booleans(),
)
def test_any_pdus_into_any_buffers(
    *,
    proxy: ScriptedProxy,
    caller: Caller,
    sizes: list[int],
    parts: list[int],
    buffers: list[int],
    waitall: bool,
    known: bool,
) -> None:
    if sum(sizes) // (sum(buffers) / len(buffers)) > 3000:
        buffers = [*buffers, 30_000]
    c = Connection(proxy, caller)
    c.push("PUSH_ULP_RX", PREFIXED)
    caller.start("drain", c.s, buffers, socket.MSG_WAITALL if waitall else 0)

    def wait_for_credits() -> None:
        if proxy.backlog:
            c.credits += c._granted(proxy.backlog.pop(0))
        elif c.credits <= EACH:
            proxy.until(lambda: bool(proxy.backlog), f"stalled with {c.credits} credits")
            wait_for_credits()

    turn = 0
    for place, size in enumerate(sizes):
        data, at, last = body(size, place), 0, False
        while not last:
            while proxy.backlog or c.credits <= EACH:
                wait_for_credits()
            n = min(parts[turn % len(parts)], size - at, c.credits - EACH)
            turn += 1
            last = at + n == size
            c.pdu(data[at : at + n], more=not last, record=size if known else 0)
            at += n
    c.recv(names=("EOS",))
    got = caller.result()
    assert [p[:2] for p in got] == [[size, zlib.crc32(body(size, place))] for place, size in enumerate(sizes)]
    c.close()


def test_many_empty_parts_cost_nothing(c: Connection) -> None:
    c.push("PUSH_ULP_RX", PREFIXED)
    c.caller.start("recvmsg", c.s, 10)
    for _ in range(2000):
        while c.proxy.backlog or c.credits <= EACH:
            c.proxy.until(lambda: bool(c.proxy.backlog), "stalled")
            c.credits += c._granted(c.proxy.backlog.pop(0))
        c.pdu(b"", more=True)
    c.pdu(b"end")
    assert c.caller.result() == [3, b"end".hex(), EOR, []]


# --- sending ---------------------------------------------------------------------------------------------


def test_a_call_is_a_pdu(c: Connection) -> None:
    c.push("PUSH_ULP_TX", PREFIXED)
    for size in (5, 0, 70_000 - 30_000):
        assert c.call("sendmsg", size) == size
        sent = c.expect("XTS_CMD_SEND_PDU")
        assert sent.payload == body(size) and sent.fields["record_bytes"] == size and not sent.flags
    c.recv(credits=40_005 + 3 * EACH)
    assert c.call("sendmsg", 3, socket.MSG_MORE) == 3
    assert c.call("sendmsg", 4, socket.MSG_MORE) == 4
    assert c.call("sendmsg", 0) == 0
    parts = [c.expect("XTS_CMD_SEND_PDU") for _ in range(3)]
    assert [(f.payload, f.flag_names, f.fields["record_bytes"]) for f in parts] == [
        (body(3), ("MORE",), 0), (body(4), ("MORE",), 0), (b"", (), 0),
    ]  # fmt: skip


def test_control_data_goes_with_the_first_message(c: Connection) -> None:
    c.push("PUSH_ULP_TX", PREFIXED)
    assert c.call("sendmsg", 3, 0, [SOL_XTS, 8, "0102"]) == "EINVAL"  # not pushed
    assert c.call("sendmsg", 3, 0, [1, 8, "0102"]) == "EINVAL"
    assert c.call("sendmsg", 3, 0, [SOL_XTS, PREFIXED, "00" * 17]) == "EINVAL"
    assert c.call("sendmsg", 3, socket.MSG_MORE, [SOL_XTS, PREFIXED, "010203"]) == 3
    sent = c.expect("XTS_CMD_SEND_PDU")
    assert (sent.fields["control_type"], sent.fields["control_bytes"]) == (PREFIXED, 3)
    assert sent.fields["control_high"] == 0x0102030000000000
    assert c.call("sendmsg", 3, 0, [SOL_XTS, PREFIXED, "010203"]) == "EINVAL"
    assert c.call("sendmsg", 3) == 3
    assert c.expect("XTS_CMD_SEND_PDU").fields["control_type"] == 0


def test_a_nonblocking_pdu_goes_whole_or_not(proxy: ScriptedProxy, caller: Caller) -> None:
    c = Connection(proxy, caller, credits=8192)
    c.push("PUSH_ULP_TX", PREFIXED)
    assert c.call("nonblocking") == 0
    assert c.call("sendmsg", 4000) == 4000
    assert c.call("sendmsg", 3000) == 3000
    assert c.call("sendmsg", 3000) == "EAGAIN"  # 1,064 credits are left
    assert c.call("poll", select.POLLOUT, 0) == 0
    c.expect("XTS_CMD_SEND_PDU")
    c.expect("XTS_CMD_SEND_PDU")
    c.recv(credits=1999)
    assert c.call("poll", select.POLLOUT, 50) == 0
    c.recv(credits=1)
    assert c.call("poll", select.POLLOUT, 5000) == select.POLLOUT
    assert c.call("sendmsg", 3000) == 3000
    c.expect("XTS_CMD_SEND_PDU")
    c.recv(credits=8192)
    assert c.call("sendmsg", 20_000) == 8128  # more than may ever be there: in parts
    sent = c.expect("XTS_CMD_SEND_PDU")
    assert sent.flag_names == ("MORE",) and sent.fields["record_bytes"] == 20_000
    assert c.call("sendmsg", 11_872) == "EAGAIN"
    assert c.call("push", "PUSH_ULP_TX", PREFIXED) == "EBUSY"
    c.recv(credits=8192)
    assert c.call("sendmsg", 30_000) == 8128  # what is offered too much is no part of it
    c.expect("XTS_CMD_SEND_PDU")
    c.recv(credits=8192)
    assert c.call("sendmsg", 30_000) == 20_000 - 2 * 8128
    sent = c.expect("XTS_CMD_SEND_PDU")
    assert not sent.flags and len(sent.payload) == 20_000 - 2 * 8128
    c.close()


@examples(25)
@given(
    sizes=st.lists(st.one_of(st.integers(0, 300), st.integers(0, 20_000), st.integers(0, 200_000)), max_size=12),
    window=st.integers(4096, 100_000),
    blocking=st.booleans(),
)
def test_any_pdus_through_any_window(
    proxy: ScriptedProxy, caller: Caller, sizes: list[int], window: int, blocking: bool
) -> None:
    if not blocking:
        sizes = [size or 1 for size in sizes]
    c = Connection(proxy, caller, credits=window)
    c.push("PUSH_ULP_TX", PREFIXED)
    caller.start("pour", c.s, sizes, blocking)
    got: list[bytes] = []
    unadvertised, pdu = 0, b""
    while len(got) < len(sizes):
        sent = c.expect("XTS_CMD_SEND_PDU")
        assert sent.fields["record_bytes"] == sizes[len(got)]
        window -= len(sent.payload) + EACH
        unadvertised += len(sent.payload) + EACH
        assert window >= 0, "more than was granted"
        pdu += sent.payload
        if not sent.flags:
            got.append(pdu)
            pdu = b""
        if unadvertised > (window + unadvertised) // 4:
            window += unadvertised
            c.recv(credits=unadvertised)
            unadvertised = 0
    assert got == [body(size, place) for place, size in enumerate(sizes)]
    assert caller.result() >= len(sizes)
    c.close()


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


def test_accepted_connections_have_what_the_listener_had(proxy: ScriptedProxy, caller: Caller) -> None:
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


# --- TLS_KEYS on a stream -----------------------------------------------------------------------------------


def test_control_records_of_tls_on_a_stream(stream: Connection) -> None:
    c = stream
    c.push("PUSH_ULP", KEYS)
    c.recv(b"first")
    c.pdu(b"\1\0", control=b"\x15", about=KEYS)
    c.recv(b"sec")
    c.recv(b"ond")
    assert c.call("recvmsg", 100, socket.MSG_WAITALL, 64) == [5, b"first".hex(), 0, [[SOL_TLS, GET_RECORD_TYPE, "17"]]]
    assert c.call("poll", select.POLLIN, 0) == select.POLLIN
    assert c.call("recv", 100) == "EIO"
    assert c.call("recvmsg", 100, 0, 64) == [2, "0100", EOR, [[SOL_TLS, GET_RECORD_TYPE, "15"]]]
    assert c.call("recv", 100) == b"second".hex()


def test_control_records_are_sent(stream: Connection) -> None:
    c = stream
    assert c.call("sendmsg", 2, 0, [SOL_TLS, SET_RECORD_TYPE, "15"]) == "EINVAL"
    c.push("PUSH_ULP_TX", KEYS)
    assert c.call("sendmsg", 2, 0, [SOL_TLS, SET_RECORD_TYPE, "15"]) == 2
    sent = c.expect("XTS_CMD_SEND_PDU")
    assert (sent.fields["control_type"], sent.fields["control_bytes"], sent.payload) == (KEYS, 1, body(2))
    assert sent.fields["control_high"] == 0x15 << 56
    assert c.call("sendmsg", 9, 0, [SOL_TLS, SET_RECORD_TYPE, "17"]) == 9
    assert c.expect("XTS_CMD_SEND").payload == body(9)
    assert c.call("send", 9) == 9


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


def test_offers(proxy: ScriptedProxy, caller: Caller) -> None:
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
    with ScriptedProxy(tmp_path, features=ULP) as proxy, Caller(proxy, library()) as caller:
        c = Connection(proxy, caller)
        c.push("PUSH_ULP_RX", PREFIXED)
        wrong(c)
        assert c.call("recv", 10) in ("ECONNRESET", "")
        assert proxy.down() == errno.EPROTO
        assert c.call("send", 10) in ("EPIPE", "ECONNRESET")
        assert c.call("handshake") in ("ENOTCONN", "ECONNRESET")
        assert c.call("error") == "ENETDOWN"
