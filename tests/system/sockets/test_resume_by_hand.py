"""The proxy's process has died: what the library says to the next one (PROTOCOL.md, "Crash"). The test is the proxy."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from beds.caller import Caller
from beds.one_process_proxy import WINDOW, OneProcessProxy
from beds.shm_proxy import library
from xts_messages.wire import codec
from xts_messages.wire import wire_table as table

TICKET, NEXT_TICKET = 0x1234567800000000, 0x2345678900000000
PROXY_ID, OTHERS_ID = 0x77, 0x55
PEER = codec.Endpoint.of("127.0.0.1", 80)


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[OneProcessProxy]:
    with OneProcessProxy(tmp_path, features=table.FEATURES["RESUME"][0]) as made:
        yield made


@pytest.fixture
def caller(proxy: OneProcessProxy) -> Iterator[Caller]:
    with Caller(proxy, library()) as made:
        yield made


@pytest.fixture
def sock(proxy: OneProcessProxy, caller: Caller) -> int:
    """Connected; it has sent 4 bytes, and was sent 5, of which 2 are read. A call waits at another one: who is in no
    call need not look."""
    number, _ = caller.connected()
    assert caller.call("send", number, 4) == 4
    assert proxy.expect("XTS_CMD_SEND").payload == bytes(4)
    proxy.send("XTS_REPLY_RECV", b"hello", id=number)
    assert caller.call("recv", number, 2) == b"he".hex()
    other = caller.call("socket")
    caller.start("connect", other)
    connect = proxy.expect("XTS_CMD_CONNECT")
    assert connect.fields["xts_socket"] == other
    proxy.send("XTS_REPLY_CONNECT_ACK", id=other, proxy_id=OTHERS_ID, post_credits=WINDOW, local=PEER, peer=PEER)
    assert caller.result() == 0
    caller.start("recv", other, 1)
    return number


def claim(proxy: OneProcessProxy, number: int, ticket: int, others_id: int = OTHERS_ID) -> dict[str, Any]:
    """RESUME for the socket, for the other one, and that it was all."""
    said = proxy.expect("XTS_CMD_RESUME").fields
    assert (said["xts_socket"], said["key"]) == (number, ticket | PROXY_ID)
    assert proxy.expect("XTS_CMD_RESUME").fields["key"] == ticket | others_id
    assert proxy.expect("XTS_CMD_RESUME").fields["key"] == 0
    return said


def counts(said: dict[str, Any]) -> tuple[int, int, int, int]:
    return said["received_bytes"], said["sent_bytes"], said["unread"], said["fin_sent"]


def answer(proxy: OneProcessProxy, caller: Caller, number: int, error: int = 0) -> None:
    """The same for both; the call returns."""
    for one, proxy_id in ((number, PROXY_ID + 1), (number + 1, OTHERS_ID + 1)):
        fields = {"proxy_id": proxy_id, "post_credits": WINDOW, "local": PEER, "peer": PEER}
        proxy.send("XTS_REPLY_CLAIM_ACK", id=one, error=error, **fields)
    if not error:
        proxy.send("XTS_REPLY_RECV", b"x", id=number + 1)
    assert caller.result() == ("ECONNRESET" if error else b"x".hex())


def goes_on(proxy: OneProcessProxy, caller: Caller, number: int) -> None:
    """Both ways, and it counts from the claim."""
    proxy.send("XTS_REPLY_RECV", b" world", id=number)
    data = b""
    while len(data) < 9:
        data += bytes.fromhex(caller.call("recv", number, 100))
    assert data == b"llo world"
    assert caller.call("send", number, 4) == 4
    while (frame := proxy.receive()).name != "XTS_CMD_SEND":  # credits
        pass
    assert (frame.id, frame.payload) == (PROXY_ID + 1, bytes(4))


def test_a_connection_goes_on(proxy: OneProcessProxy, caller: Caller, sock: int) -> None:
    proxy.replaced(TICKET)
    assert counts(claim(proxy, sock, TICKET)) == (5, 4, 3, 0)
    answer(proxy, caller, sock)
    goes_on(proxy, caller, sock)
    caller.start("recv", sock, 1)
    proxy.replaced(NEXT_TICKET)
    said = proxy.expect("XTS_CMD_RESUME").fields
    assert said["key"] == NEXT_TICKET | (PROXY_ID + 1)
    assert counts(said) == (3 + 6, 4, 0, 0)  # 3 were unread at the claim


def test_the_next_process_dies_before_it_has_answered(proxy: OneProcessProxy, caller: Caller, sock: int) -> None:
    """The one after it is asked the same."""
    proxy.replaced(TICKET)
    first = claim(proxy, sock, TICKET)
    proxy.replaced(NEXT_TICKET)
    assert counts(claim(proxy, sock, NEXT_TICKET)) == counts(first) == (5, 4, 3, 0)
    answer(proxy, caller, sock)
    goes_on(proxy, caller, sock)


@pytest.mark.parametrize("error", [104, 2])
def test_what_does_not_go_on_is_reset(proxy: OneProcessProxy, caller: Caller, sock: int, error: int) -> None:
    """What has come is read before. A second death in between is no excuse to wait for ever."""
    proxy.replaced(TICKET)
    claim(proxy, sock, TICKET)
    proxy.replaced(NEXT_TICKET)
    claim(proxy, sock, NEXT_TICKET)
    answer(proxy, caller, sock, error)
    assert caller.call("recv", sock, 100) in (b"llo".hex(), "ECONNRESET")
    assert caller.call("send", sock, 1) in ("ECONNRESET", "EPIPE")


# --- what was pending when the process died -----------------------------------------------------------------------

FEW = 10


@pytest.fixture
def deficit(proxy: OneProcessProxy, caller: Caller, sock: int) -> int:
    """Bytes were accepted for which no frame was left. The next process grants credits for some of them: it keeps what
    TCP has not taken. How many were accepted."""
    proxy.send("XTS_REPLY_RECV", b"x", id=sock + 1)
    assert caller.result() == b"x".hex()
    accepted = sum(caller.unserved("send", sock, 4) for _ in range(2 * proxy.frame_window))
    caller.start("recv", sock + 1, 1)
    proxy.replaced(TICKET)
    said = claim(proxy, sock, TICKET)
    pending = 4 + accepted - said["sent_bytes"]
    assert FEW < pending < accepted
    for number, proxy_id, credits in ((sock, PROXY_ID + 1, FEW), (sock + 1, OTHERS_ID + 1, WINDOW)):
        local = {"local": PEER, "peer": PEER}
        proxy.send("XTS_REPLY_CLAIM_ACK", id=number, proxy_id=proxy_id, post_credits=credits, **local)
    proxy.send("XTS_REPLY_RECV", b"x", id=sock + 1)
    assert caller.result() == b"x".hex()
    return int(pending)


def sent(proxy: OneProcessProxy, number: int) -> list[codec.Frame]:
    """All that has come from this socket, except credits."""
    proxy.pump()
    came, proxy.backlog = proxy.backlog, []
    return [frame for frame in came if frame.id == number and (frame.payload or frame.flags)]


def test_pending_bytes_wait_for_credits(proxy: OneProcessProxy, caller: Caller, sock: int, deficit: int) -> None:
    """The connection goes on meanwhile, in the other direction too, and nothing overtakes them."""
    proxy.send("XTS_REPLY_RECV", b" world", id=sock)
    assert bytes.fromhex(caller.call("recv", sock, 100)) in (b"llo", b"llo world")
    assert caller.call("send_at_once", sock, 4) == "EAGAIN"
    proxy.send("XTS_REPLY_RECV", id=sock, post_credits=deficit - FEW - 1)
    assert caller.call("send_at_once", sock, 4) == "EAGAIN"
    assert sent(proxy, PROXY_ID + 1) == []
    proxy.send("XTS_REPLY_RECV", id=sock, post_credits=1 + 4)
    assert caller.call("send", sock, 4) == 4
    assert b"".join(frame.payload for frame in sent(proxy, PROXY_ID + 1)) == bytes(deficit + 4)


def test_what_follows_pending_bytes_waits_as_well(
    proxy: OneProcessProxy, caller: Caller, sock: int, deficit: int
) -> None:
    assert caller.call("shutdown", sock, socket.SHUT_WR) == 0
    assert sent(proxy, PROXY_ID + 1) == []
    proxy.send("XTS_REPLY_RECV", id=sock, post_credits=deficit - FEW)
    caller.call("recv", sock, 1)
    (frame,) = sent(proxy, PROXY_ID + 1)
    assert (frame.payload, frame.flags) == (bytes(deficit), table.FLAGS["FIN"][0])


def test_pending_bytes_are_claimed_again(proxy: OneProcessProxy, caller: Caller, sock: int, deficit: int) -> None:
    """The next process has died, too, before it had granted credits for all of them."""
    caller.start("recv", sock + 1, 1)
    proxy.replaced(NEXT_TICKET)
    said = proxy.expect("XTS_CMD_RESUME").fields
    assert (said["xts_socket"], said["sent_bytes"]) == (sock, 0)
    fields = {"proxy_id": PROXY_ID + 2, "post_credits": deficit, "local": PEER, "peer": PEER}
    proxy.send("XTS_REPLY_CLAIM_ACK", id=sock, **fields)
    proxy.until(lambda: any(frame.payload for frame in proxy.backlog), "the bytes do not come")
    assert b"".join(frame.payload for frame in sent(proxy, PROXY_ID + 2)) == bytes(deficit)


def test_a_close_that_resets_does_not_wait(proxy: OneProcessProxy, caller: Caller, sock: int, deficit: int) -> None:
    assert deficit
    assert caller.call("resets", sock) == 0
    caller.start("close", sock)
    proxy.until(lambda: any(frame.flags for frame in proxy.backlog), "CLOSE does not come")
    (frame,) = sent(proxy, PROXY_ID + 1)
    assert (frame.payload, frame.flags) == (b"", table.FLAGS["CLOSE"][0] | table.FLAGS["ABORT"][0])
