"""What a link does with OVER, which belongs to none of its epochs (PROTOCOL.md, "Connections that no process has")."""

from __future__ import annotations

import struct

import pytest
from beds.link_pair import CLOSED, DROPPED, EPOCH, HOST, PROXY, UP, Pair, config, core, from_host, from_proxy
from xts_messages.wire import codec
from xts_messages.wire import wire_table as table

OVER = table.FEATURES["OVER"][0]
SAID = core.XTS_LINK_SAID


def over(keys: int = 1) -> bytes:
    frame = bytearray(from_host("XTS_LINK_OVER", {"epoch": EPOCH}))
    frame[table.HEAD_BYTES + 8 : table.HEAD_BYTES + 12] = struct.pack(">I", 8 * keys)
    return bytes(frame) + bytes(8 * keys)


def opened() -> Pair:
    return Pair(config(HOST, features=OVER), config(PROXY, features=OVER)).open()


def test_it_is_for_the_proxy_at_any_time() -> None:
    """The link is as before: its sequence, its credits, its silence."""
    pair = Pair(config(HOST), config(PROXY))
    assert pair.proxy.take(over(), pair.now_ns) == SAID and not pair.proxy.up
    pair.open()
    before = codec.decode(over()).seqno, int(pair.proxy.link.heard_ns), pair.proxy.credits
    for _ in range(300):
        assert pair.proxy.take(over(100), pair.now_ns + 1) == SAID
    assert (codec.decode(over()).seqno, int(pair.proxy.link.heard_ns), pair.proxy.credits) == before
    assert pair.host.send(1)
    pair.settle()
    assert pair.proxy.delivered == [1]


def test_also_when_the_link_has_ended() -> None:
    pair = opened()
    assert pair.proxy.take(from_host("XTS_LINK_GOODBYE", {"epoch": EPOCH}), pair.now_ns) == CLOSED
    assert pair.proxy.take(over(), pair.now_ns) == SAID
    assert not pair.proxy.pump(pair.now_ns), "it has no answer"


@pytest.mark.parametrize("bytes_left", range(table.HEAD_BYTES, table.HEAD_BYTES + 12))
def test_one_that_is_cut_is_none(bytes_left: int) -> None:
    """As any frame that is too short."""
    pair = Pair(config(HOST), config(PROXY))
    assert pair.proxy.take(over()[:bytes_left], pair.now_ns) == DROPPED


def test_a_host_takes_none() -> None:
    pair = opened()
    frame = bytearray(from_proxy("XTS_LINK_REPLACED", {"epoch": EPOCH, "ticket": 1}))
    frame[table.ETH_BYTES] = codec.BY_NAME["XTS_LINK_OVER"].code
    assert pair.host.link.state == UP and pair.host.take(bytes(frame), pair.now_ns) != SAID


def test_one_of_somebody_else_is_foreign() -> None:
    pair = opened()
    frame = bytearray(over())
    frame[6:12] = b"\2\2\2\2\2\2"
    assert pair.proxy.take(bytes(frame), pair.now_ns) == DROPPED
    assert pair.proxy.link.stats.dropped_foreign == 1
