"""Pushed protocols as the host library has them, against a proxy made by hand: PDUs both ways, control data.
The proxy's part is played by the contract (PROTOCOL.md, "Pushed protocols")."""

from __future__ import annotations

import select
import socket
import zlib
from pathlib import Path

from beds.caller import Caller
from beds.examples import examples
from beds.libxts_ulp import (
    CTRUNC,
    EACH,
    EOR,
    GET_RECORD_TYPE,
    KEYS,
    PREFIXED,
    SET_RECORD_TYPE,
    SOL_TLS,
    SOL_XTS,
    TLS,
    TRUNC,
    Connection,
    c,
    caller,
    proxy,
    stream,
)
from beds.one_process_proxy import OneProcessProxy
from beds.ulp_calls import body
from hypothesis import given
from hypothesis import strategies as st
from xts_messages.wire.ulps import BY_NAME

__all__ = ["c", "caller", "proxy", "stream"]  # fixtures

PPOLL = ("271", "73")  # its number on x86-64 and on Arm


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


def test_the_window_grows_for_a_pdu_behind_one_that_is_held(c: Connection) -> None:
    """The PDU is shorter than half of what the window may be, so it comes whole and can be decided about, although it
    was not the first when it began, and the one before it takes credits for as long as the program holds it."""
    c.push("PUSH_ULP_RX", PREFIXED)
    assert c.call("ask_reader", True) == 0
    c.pdu(bytes(4000))
    c.pdu(bytes(8200), more=True, record=20_000)
    assert c.call("poll", select.POLLIN, 5000) == select.POLLIN
    assert c.call("hold") == 1
    assert c.call("poll", select.POLLIN, 0) == 0  # not a part of it
    while c.credits < 11_800 + EACH:
        c.proxy.until(lambda: bool(c.proxy.backlog), "the window does not grow")
        c.credits += c._granted(c.proxy.backlog.pop(0))
    c.pdu(bytes(11_800), record=20_000)
    assert c.call("poll", select.POLLIN, 5000) == select.POLLIN
    assert c.call("hold") == 1
    assert c.call("recvmsg", 100, socket.MSG_DONTWAIT) == "EAGAIN"


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
    proxy: OneProcessProxy,
    caller: Caller,
    sizes: list[int],
    parts: list[int],
    buffers: list[int],
    waitall: bool,
    known: bool,
) -> None:
    if sum(sizes) // (sum(buffers) / len(buffers)) > 3000:
        buffers = [*buffers, 30_000]
    if sum(sizes) // (sum(parts) / len(parts)) > 1000:
        parts = [*parts, 30_000]  # a message for each byte of half a megabyte takes a minute
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


def test_a_nonblocking_pdu_goes_whole_or_not(proxy: OneProcessProxy, caller: Caller) -> None:
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
    proxy: OneProcessProxy, caller: Caller, sizes: list[int], window: int, blocking: bool
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


def test_credits_that_come_with_an_event_wake_who_waits_for_them(proxy: OneProcessProxy, caller: Caller) -> None:
    c = Connection(proxy, caller, "socket", credits=4096)
    c.push("PUSH_ULP", TLS)
    assert c.call("send", 4096) == 4096
    c.caller.start("poll", c.s, select.POLLOUT, 600_000)
    asleep = Path(f"/proc/{caller.process.pid}/syscall")
    proxy.until(lambda: asleep.read_text().split()[0] in PPOLL, "it does not sleep")
    c.event("TLS", control=bytes.fromhex("0304 1301 0303"), credits=4096)
    assert c.caller.result() == select.POLLOUT
    c.close()
