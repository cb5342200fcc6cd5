"""What pushed protocols keep in the worker: counted for each host, bounded for all its connections together."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator

import pytest
from beds.grpc import DATA, END_HEADERS, HEADERS, frame
from beds.scripted_host import ScriptedHost, Worker, make_tenant
from beds.worker import FEATURES, Conn, connected, server
from xts_messages.wire import codec
from xts_messages.wire.codec import flags

__all__ = ["server"]  # fixtures

LIMIT = (1 << 18) + 8192
UNREAD = 60_000
MESSAGE = 100_000
KEY = 0x1122334455667788
#: Of a connection with anything pushed, or in peek mode: the proxy's structs for that, at most.
STRUCTS_MAX = 1000
AT_THE_LIMIT = "all protocols of this tenant together keep as much as they may"


@pytest.fixture
def worker() -> Iterator[Worker]:
    with Worker(ulp_bytes=LIMIT) as made:
        yield made


@pytest.fixture
def host(worker: Worker) -> Iterator[ScriptedHost]:
    with worker.attach(features=FEATURES) as made:
        yield made.open()


def with_unread(host: ScriptedHost, server: socket.socket) -> Conn:
    """A connection whose host has bytes of it that its application has not read."""
    c = connected(host, server)
    c.peer.sendall(bytes(UNREAD))
    had = 0
    while had < UNREAD:
        had += len(c.receive_data().payload)
    return c


def test_a_host_cannot_have_more_kept_for_it_than_its_limit(
    worker: Worker, host: ScriptedHost, server: socket.socket
) -> None:
    """It pushes onto many connections and never gives back what it has been told to: the proxy has made room for it."""
    held = [with_unread(host, server) for _ in range(LIMIT // UNREAD)]
    for number, c in enumerate(held, 1):
        assert c.push("LENGTH_PREFIXED", read_bytes=0).error == 0
        counted = worker.stats().ulp_bytes
        assert number * UNREAD < counted == worker.channel().ulp_bytes <= number * (UNREAD + STRUCTS_MAX)
    structs = counted // len(held) - UNREAD
    one_more = with_unread(host, server)
    assert one_more.push("LENGTH_PREFIXED", read_bytes=0).error == errno.ENOBUFS
    said = host.ulp_error(one_more.id, one_more.number)
    assert said.fault == "push"
    assert said.text == f"no room for 60000 bytes given back: {AT_THE_LIMIT}"
    stats = worker.stats()
    assert (stats.ulp_bytes, stats.refused_limit) == (len(held) * UNREAD + (len(held) + 1) * structs, 1)

    tenant = make_tenant("other", 1, ulp_bytes=LIMIT)
    with worker.attach(tenant=tenant, features=FEATURES) as other, with_unread(other.open(), server) as c:
        assert c.push("LENGTH_PREFIXED", read_bytes=0).error == 0  # its limit is its own
        unread = (UNREAD - 4).to_bytes(4, "big") + bytes(UNREAD - 4)
        for at in range(0, UNREAD, UNREAD // 4):
            other.send("XTS_CMD_GIVE_BACK", unread[at : at + UNREAD // 4], id=c.id)
        c.give_credits(UNREAD)
        assert c.read_pdu() == bytes(UNREAD - 4)
        assert worker.channel(1).ulp_bytes == structs  # the memory goes with the last byte of it

    assert held[0].close("ABORT").error == 0
    assert one_more.push("LENGTH_PREFIXED", read_bytes=0).error == 0  # refused, and otherwise as before
    for c in [*held[1:], one_more]:
        c.close("ABORT")
    worker.wait(lambda s: s.ulp_bytes == 0, "memory of connections that have gone is counted yet")
    assert worker.channel().ulp_bytes == 0
    for c in [*held, one_more]:
        c.peer.close()


def test_a_push_that_is_refused_keeps_nothing(worker: Worker, host: ScriptedHost, server: socket.socket) -> None:
    with with_unread(host, server) as c:
        assert c.push("LENGTH_PREFIXED", read_bytes=0, width=5).error == errno.EINVAL
        assert 0 < worker.stats().ulp_bytes < STRUCTS_MAX  # what tells why


def test_peek_mode_is_charged(host: ScriptedHost, worker: Worker, server: socket.socket) -> None:
    made: list[Conn] = []
    error = 0
    while not error:
        assert len(made) < LIMIT // 500, "nothing is charged"
        made.append(connected(host, server))
        error = made[-1].ioctl("PEEK_MODE", b"\1").error
        assert 0 < worker.used("ulp_bytes") <= len(made) * STRUCTS_MAX
    assert error == errno.ENOBUFS
    for c in made:
        c.close("ABORT")
        c.peer.close()
    worker.wait(lambda s: s.ulp_bytes == 0 and not worker.used("ulp_bytes"), "peek mode that has ended is counted yet")


def test_peers_cannot_have_more_gathered_for_them_than_their_host_s_limit(
    worker: Worker, host: ScriptedHost, server: socket.socket
) -> None:
    """Messages of gRPC that begin and do not end, on as many connections as it takes."""
    begun = frame(DATA, b"\0" + MESSAGE.to_bytes(4, "big") + bytes(16000), 0, 1) + frame(DATA, bytes(16000), 0, 1) * 3
    many: list[Conn] = []
    while not worker.stats().refused_limit:
        assert len(many) <= LIMIT // 64000, "more is gathered than the limit allows"
        c = connected(host, server, {"ulp": "HTTP2"}, {"ulp": "GRPC"})
        many.append(c)
        c.send_pdu(frame(HEADERS, b"\x82", END_HEADERS, 1))
        c.peer.sendall(begun)
        # Told to the host in its place in the stream: all before has been gathered, or it never will be.
        c.peer.sendall(frame(HEADERS, b"\x88", END_HEADERS, 1))
        last = c.receive_data()
        assert worker.stats().ulp_bytes <= LIMIT
    assert len(many) > 1
    assert last.flags & flags("RESET") and last.error == errno.ENOBUFS
    said = host.ulp_error(many[-1].id, many[-1].number)
    assert (said.fault, said.text) == ("memory", f"grpc: no room to gather a message: {AT_THE_LIMIT}")
    stats = worker.stats()
    assert stats.ulp_faults[10] == stats.refused_limit == 1
    for c in many:
        c.close("ABORT")
        c.peer.close()
    worker.wait(lambda s: s.ulp_bytes == 0, "memory of connections that have gone is counted yet")


def test_a_host_that_goes_leaves_nothing_counted(worker: Worker, server: socket.socket) -> None:
    with worker.attach(features=FEATURES) as host, with_unread(host.open(), server) as c:
        assert c.push("LENGTH_PREFIXED", read_bytes=0).error == 0
        assert UNREAD < worker.stats().ulp_bytes < UNREAD + STRUCTS_MAX
        ScriptedHost(host.queue, host.epoch + 1, {"features": FEATURES}).open()
        worker.wait(lambda s: s.connections == 0, "connections of a host that has gone")
        assert worker.stats().ulp_bytes == worker.channel().ulp_bytes == 0


def test_memory_moves_with_a_connection_that_is_parked(
    worker: Worker, host: ScriptedHost, server: socket.socket
) -> None:
    """The host that claims it is charged for what it keeps, or, at its limit, does not get it."""
    with worker.attach(features=FEATURES) as other, with_unread(host, server) as c:
        other.open()
        assert c.push("LENGTH_PREFIXED", read_bytes=0).error == 0
        unread = (UNREAD - 4).to_bytes(4, "big") + bytes(UNREAD - 4)
        for at in range(0, UNREAD, UNREAD // 4):
            host.send("XTS_CMD_GIVE_BACK", unread[at : at + UNREAD // 4], id=c.id)
        c.receive_data()  # as far as there are credits: the rest is kept
        counted = worker.channel(0).ulp_bytes
        assert UNREAD < counted < UNREAD + STRUCTS_MAX
        host.send("XTS_CMD_PARK", id=c.id, xts_socket=c.number, token=1, key=KEY, keep_ms=60_000)
        while (answer := host.receive()).name != "XTS_REPLY_PARK_ACK":
            pass
        assert answer.error == 0
        assert (worker.channel(0).ulp_bytes, worker.stats().ulp_bytes) == (0, 0)

        held = [with_unread(other, server) for _ in range(LIMIT // UNREAD)]
        for mine in held:
            assert mine.push("LENGTH_PREFIXED", read_bytes=0).error == 0
        assert claim(other).error == errno.ENOBUFS
        assert held[0].close("ABORT").error == 0
        claimed = claim(other)
        assert claimed.error == 0
        assert worker.channel(1).ulp_bytes == worker.stats().ulp_bytes == len(held) * counted
        other.send("XTS_CMD_SEND", id=claimed.fields["proxy_id"], flags=flags("CLOSE", "ABORT"))
        for mine in held[1:]:
            mine.host.send("XTS_CMD_SEND", id=mine.id, flags=flags("CLOSE", "ABORT"))
        worker.wait(lambda s: s.ulp_bytes == 0, "memory of connections that have gone is counted yet")
        for mine in held:
            mine.peer.close()


def claim(host: ScriptedHost) -> codec.Frame:
    """What the proxy answers."""
    host.send("XTS_CMD_CLAIM", xts_socket=host.new_socket(), token=2, key=KEY, post_credits=0)
    return host.expect("XTS_REPLY_CLAIM_ACK")


def test_what_tls_takes_is_counted(worker: Worker, host: ScriptedHost) -> None:
    """OpenSSL's share estimated: a push is many times its message."""
    pushed = []
    while (ack := host.push("TLS", number=host.new_socket(), message=False, verify=0)).error == 0:
        pushed.append(ack)
        assert worker.stats().ulp_bytes >= 2000 * len(pushed)
    assert ack.error == errno.ENOBUFS
    assert LIMIT // 4500 < len(pushed) < LIMIT // 2000
    for made in [*pushed, ack]:
        host.send("XTS_CMD_SEND", id=made.fields["proxy_id"], flags=flags("CLOSE"))
        host.expect("XTS_REPLY_RECV")
    worker.wait(lambda s: s.ulp_bytes == 0, "memory of sockets that have gone is counted yet")
