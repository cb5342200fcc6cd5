"""Time stamps of datagrams in Python, and the clock they are of. Device and host are one machine here, so that both
clocks are one: what is measured must hold."""

from __future__ import annotations

import errno
import json
import os
import socket
import struct
import time
from collections.abc import Iterator
from typing import Any

import pytest
import xts_socket
from xts_messages.attaching.status_page import Clock
from xts_messages.wire import wire_table as table
from xts_socket import _interfaces
from xts_socket.cli import main
from xts_socket.cli.sockets import attached, status_tables

pytestmark = pytest.mark.usefixtures("xts_endpoint")

DEADLINE_S = 10.0
SO_TIMESTAMPNS, SO_TIMESTAMPING = 35, 37
TX_SOFTWARE, RX_SOFTWARE, SOFTWARE, OPT_ID, OPT_TSONLY = 1 << 1, 1 << 3, 1 << 4, 1 << 7, 1 << 11


@pytest.fixture
def pair() -> Iterator[tuple[Any, socket.socket]]:
    """An offloaded socket, and a peer of the kernel's that is connected to it."""
    with xts_socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s, socket.socket(type=socket.SOCK_DGRAM) as peer:
        s.settimeout(DEADLINE_S)
        s.bind(("127.0.0.1", 0))
        peer.connect(s.getsockname())
        yield s, peer


def stamp_ns(s: Any) -> int:
    """Of the next datagram."""
    _, ((level, kind, value),), _, _ = s.recvmsg(100, 200)
    assert (level, kind) == (socket.SOL_SOCKET, SO_TIMESTAMPNS)
    seconds, ns = struct.unpack("qq", value)
    return int(seconds) * 10**9 + int(ns)


def clock() -> Clock:
    """As others see it."""
    (process,) = (one for one in attached.ask(os.environ["XTS_ENDPOINT"]) if one.pid == os.getpid())
    assert process.clock is not None
    return process.clock


@pytest.mark.parametrize("wanted", [xts_socket.XTS_CLOCK_DEVICE, xts_socket.XTS_CLOCK_HOST])
def test_a_stamp_is_of_the_clock_that_is_wanted(pair: tuple[Any, socket.socket], wanted: int) -> None:
    s, peer = pair
    s.setsockopt(xts_socket.SOL_XTS, xts_socket.SO_XTS_CLOCK, wanted)
    assert s.getsockopt(xts_socket.SOL_XTS, xts_socket.SO_XTS_CLOCK) == wanted
    s.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    before = time.time_ns()
    peer.send(b"now")
    stamp, after = stamp_ns(s), time.time_ns()
    error = clock().error_ns + 1000 if wanted == xts_socket.XTS_CLOCK_HOST else 0
    assert before - error <= stamp <= after + error


def test_the_option_of_the_clock_takes_two_values(pair: tuple[Any, socket.socket]) -> None:
    s, _ = pair
    for wrong in (2, -1, b"\0"):
        with pytest.raises(OSError) as caught:
            s.setsockopt(xts_socket.SOL_XTS, xts_socket.SO_XTS_CLOCK, wrong)
        assert caught.value.errno == errno.EINVAL
    with xts_socket.socket() as stream, pytest.raises(OSError) as caught:
        stream.setsockopt(xts_socket.SOL_XTS, xts_socket.SO_XTS_CLOCK, 1)
    assert caught.value.errno == errno.ENOPROTOOPT


def test_status_shows_how_far_the_clocks_are_apart(
    pair: tuple[Any, socket.socket], capsys: pytest.CaptureFixture[str]
) -> None:
    s, _ = pair
    s.setsockopt(xts_socket.SOL_XTS, xts_socket.SO_XTS_CLOCK, xts_socket.XTS_CLOCK_HOST)
    found = clock()
    assert abs(found.ahead_ns) <= found.error_ns + 1000  # two clocks of one machine are not read at the same moment
    assert found.measured_ns <= time.monotonic_ns()
    assert main(["status", "--json", "--pid", str(os.getpid())]) == 0
    (process,) = json.loads(capsys.readouterr().out)["processes"]
    assert set(process["clock"]) == {"ahead_ns", "error_ns", "measured_ns", "follows_ns"}
    assert main(["status", "-v", "--pid", str(os.getpid())]) == 0
    assert "Device's clock" in capsys.readouterr().out


def test_status_says_it_in_words() -> None:
    text = status_tables.clock_text(Clock(-1_234_567, 41_000, 10**9, 25_000), 4 * 10**9)
    assert text == "-1.235 ms to 41 us, 3 s ago; follows one to 25 us"
    assert status_tables.clock_text(Clock(0, 20_000_000, 0, None), 0) == "+0.000 ms to 20 ms, 0 s ago; follows none"
    assert status_tables.clock_text(None) == ""


def test_stamps_of_what_was_sent(pair: tuple[Any, socket.socket]) -> None:
    s, peer = pair
    s.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPING, TX_SOFTWARE | SOFTWARE | OPT_ID | OPT_TSONLY)
    before = time.time_ns()
    for number in range(3):
        s.sendto(b"to be stamped", peer.getsockname())
        data, items, flags, _ = received_error(s)
        assert data == b"" and flags & socket.MSG_ERRQUEUE
        values = {kind: value for _, kind, value in items}
        seconds, ns = struct.unpack_from("qq", values[SO_TIMESTAMPING])
        assert before <= seconds * 10**9 + ns <= time.time_ns()
        assert struct.unpack_from("IBBBxII", values[11]) == (errno.ENOMSG, 4, 0, 0, 0, number)  # IP_RECVERR


def received_error(s: Any) -> Any:
    deadline = time.monotonic() + DEADLINE_S
    while True:
        try:
            return s.recvmsg(100, 300, socket.MSG_ERRQUEUE)
        except BlockingIOError:
            assert time.monotonic() < deadline, "no stamp has come"
            time.sleep(0.001)


def test_status_shows_what_stamps_interfaces_make(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The lines are a proxy's; an older one tells no stamps."""
    lines = {
        0: ["2 p0 multicast 192.0.2.1", "5 p1 -"],
        table.INTERFACE_STAMPS: ["2 0 95 3 7 1 1", "5 -1 26 0 0 0 0"],
    }
    monkeypatch.setattr(_interfaces, "_ask", lambda _, option: lines.get(option, []))
    first, second = xts_socket.interfaces()
    assert first.stamping and (first.stamping.clock, first.stamping.text()) == (0, "software, card (sent, received)")
    assert second.stamping and (second.stamping.clock, second.stamping.text()) == (-1, "software")
    assert main(["status", "--interfaces"]) == 0
    assert "software, card (sent, received)" in capsys.readouterr().out
    assert main(["status", "--interfaces", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["interfaces"][0]["stamping"]["tx_type"] == 1
    del lines[table.INTERFACE_STAMPS]
    assert [one.stamping for one in xts_socket.interfaces()] == [None, None]


def test_stamps_of_a_card_in_words() -> None:
    words = {(0, 0, 0): "none", (26, 0, 0): "software", (95, 0, 0): "software, card (switched off)"}
    words |= {(95, 1, 0): "software, card (sent)", (95, 0, 12): "software, card (some received)"}
    for (flags, tx_type, rx_filter), text in words.items():
        assert _interfaces.Stamping(0, flags, 3, 7, tx_type, rx_filter).text() == text
