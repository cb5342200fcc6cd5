"""A host that asks for what waits behind frame credits gets something of each socket that has something, and then the
answer. The host is made by hand, and reads nothing until it asks."""

from __future__ import annotations

import errno
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from beds.examples import examples
from beds.scripted_host import ScriptedHost, Worker
from beds.worker import LOOPBACK, PREFIX, connected, prefixed, wait_until_taken
from hypothesis import given
from hypothesis import strategies as st
from xts_messages._native import lib
from xts_messages.wire import codec
from xts_messages.wire import wire_table as table
from xts_messages.wire.codec import Endpoint, Frame, flags

FEATURES = table.FEATURES["CATCH_UP"][0] | table.FEATURES["ULP"][0]
FRAMES = 4
SETTLED_S = 0.03


def gathered(payload: bytes) -> Iterator[Frame]:
    """The messages in a GATHERED."""
    at = 0
    while at < len(payload):
        (length,) = struct.unpack_from("!H", payload, at)
        message = bytearray(payload[at + 2 : at + 2 + length])
        assert len(message) == length >= table.HEAD_BYTES and not any(message[: table.ETH_BYTES])
        assert not message[15] and not message[16], "what the link fills in"
        struct.pack_into("!H", message, 12, table.ETHERTYPE)
        inner = codec.decode(bytes(message))
        assert inner.name != "XTS_REPLY_GATHERED"
        yield inner
        at += 2 + length


class Asking:
    """A host, what it has received by socket, and in how many frames."""

    def __init__(self, host: ScriptedHost) -> None:
        self.host = host
        self.data: dict[int, bytearray] = {}
        self.ended: dict[int, int] = {}  # XTS socket -> 0 for EOS, or the errno
        self.announced: list[int] = []
        self.gathered = 0

    def take(self, frame: Frame) -> None:
        if frame.name == "XTS_REPLY_GATHERED":
            self.gathered += 1
            for inner in gathered(frame.payload):
                self.take(inner)
            return
        if frame.name == "XTS_REPLY_NEWCONN":
            self.announced.append(frame.id)
            return
        assert frame.name in ("XTS_REPLY_RECV", "XTS_REPLY_RECV_PDU"), frame
        self.data.setdefault(frame.id, bytearray()).extend(frame.payload)
        if frame.flags & flags("EOS"):
            self.ended[frame.id] = 0
        if frame.flags & flags("RESET"):
            self.ended[frame.id] = frame.error

    def catch_up(self) -> None:
        assert lib.xts_link_catch_up(self.host.link)
        deadline = time.monotonic() + 5
        while lib.xts_link_catching_up(self.host.link):
            self.host.pump(10)
            assert time.monotonic() < deadline and self.host.up, "no answer"
        while self.host.backlog:
            self.take(self.host.backlog.pop(0))


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with Worker() as made:
        yield made


@pytest.fixture
def host(worker: Worker) -> Iterator[ScriptedHost]:
    with worker.attach(features=FEATURES, frame_window=FRAMES) as made:
        made.open()
        yield made


@pytest.fixture(scope="module")
def server() -> Iterator[socket.socket]:
    with socket.create_server((LOOPBACK, 0), backlog=200) as made:
        made.settimeout(5)
        yield made


def settle(peers: list[socket.socket]) -> None:
    """The promise is about what is there for some milliseconds."""
    wait_until_taken(peers)
    time.sleep(SETTLED_S)


ENDS = st.sampled_from(["open", "fin", "reset"])


@examples(15)
@given(made=st.lists(st.tuples(st.integers(0, 3000), ENDS), min_size=1, max_size=60))
def test_each_has_its_turn_before_the_answer(
    worker: Worker, server: socket.socket, made: list[tuple[int, str]]
) -> None:
    with worker.attach(features=FEATURES, frame_window=FRAMES) as host, ExitStack() as kept:
        asking = Asking(host.open())
        conns = [connected(host, server) for _ in made]
        for conn, (size, end) in zip(conns, made, strict=True):
            peer = kept.enter_context(conn.peer)
            peer.sendall(bytes([conn.number % 256]) * size)
            if end == "fin":
                peer.shutdown(socket.SHUT_WR)
        settle([conn.peer for conn in conns])
        for conn, (_, end) in zip(conns, made, strict=True):
            if end == "reset":
                conn.peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                conn.peer.close()
        time.sleep(SETTLED_S)
        asking.catch_up()
        for conn, (size, end) in zip(conns, made, strict=True):
            got = bytes(asking.data.get(conn.number, b""))
            if end != "reset":  # which takes what was not read with it
                assert got == bytes([conn.number % 256]) * size, (conn.number, len(got), size)
            expected = {"open": None, "fin": 0, "reset": errno.ECONNRESET}[end]
            assert asking.ended.get(conn.number) == expected, (conn.number, end)


def test_it_takes_few_frames_and_one_exchange(worker: Worker, server: socket.socket, host: ScriptedHost) -> None:
    asking, conns = Asking(host), [connected(host, server) for _ in range(150)]
    for conn in conns:
        conn.peer.sendall(b"x" * 100)
    settle([conn.peer for conn in conns])
    asking.catch_up()
    assert {number: bytes(data) for number, data in asking.data.items()} == {c.number: b"x" * 100 for c in conns}
    assert asking.gathered <= len(conns) / 10  # one for each turn of the channel, which is a matter of time
    for conn in conns:
        conn.peer.close()


def test_bulk_data_takes_its_share_only(worker: Worker, server: socket.socket, host: ScriptedHost) -> None:
    """One that has much does not make the answer wait; what is left follows by itself, and nothing is lost."""
    asking, conns = Asking(host), [connected(host, server) for _ in range(100)]
    for conn in conns:
        conn.peer.sendall(bytes(30_000))
    settle([conn.peer for conn in conns])
    asking.catch_up()
    assert all(len(asking.data[conn.number]) > 0 for conn in conns)
    while any(len(asking.data[conn.number]) < 30_000 for conn in conns):
        asking.take(host.receive())
    assert all(len(asking.data[conn.number]) == 30_000 for conn in conns)
    for conn in conns:
        conn.peer.close()


def test_a_listener_announces_all_that_wait(worker: Worker, host: ScriptedHost) -> None:
    asking, number = Asking(host), host.new_socket()
    local = Endpoint.of(LOOPBACK, 0)
    host.send("XTS_CMD_BIND", xts_socket=number, token=1, domain=4, local=local)
    bound = host.expect("XTS_REPLY_BIND_ACK").fields
    listen = {"xts_socket": number, "token": 2, "post_credits": 80, "domain": 4, "backlog": 100}
    host.send("XTS_CMD_LISTEN", id=bound["proxy_id"], **listen)
    assert host.expect("XTS_REPLY_LISTEN_ACK").error == 0
    clients = [socket.create_connection((LOOPBACK, bound["local"].port), 5) for _ in range(100)]
    time.sleep(SETTLED_S)
    asking.catch_up()
    assert asking.announced == [number] * 80, "as many as its post credits allow"
    for client in clients:
        client.close()


def test_pdus_come_too(worker: Worker, server: socket.socket, host: ScriptedHost) -> None:
    asking, conns = Asking(host), [connected(host, server, PREFIX) for _ in range(20)]
    for conn in conns:
        conn.peer.sendall(prefixed(b"a pdu"))
    settle([conn.peer for conn in conns])
    asking.catch_up()
    assert all(asking.data[conn.number].endswith(b"a pdu") for conn in conns)
    for conn in conns:
        conn.peer.close()


def test_a_request_with_nothing_to_send_is_answered_at_once(host: ScriptedHost) -> None:
    asking = Asking(host)
    asking.catch_up()
    asking.catch_up()
    assert not asking.data and not asking.gathered


def test_a_host_that_floods_is_served_as_one_that_asks_once(
    worker: Worker, server: socket.socket, host: ScriptedHost
) -> None:
    asking, conns = Asking(host), [connected(host, server) for _ in range(30)]
    for conn in conns:
        conn.peer.sendall(b"x")
    settle([conn.peer for conn in conns])
    for _ in range(200):
        asking.catch_up()
    assert sum(map(len, asking.data.values())) == 30
    for conn in conns:
        conn.peer.close()


def test_a_host_that_has_not_agreed_on_it_may_not_ask(worker: Worker) -> None:
    with worker.attach(features=0) as host:
        host.open()
        host.link.features = FEATURES  # of this end only
        assert lib.xts_link_catch_up(host.link)
        assert host.wait_down() == errno.EPROTO
