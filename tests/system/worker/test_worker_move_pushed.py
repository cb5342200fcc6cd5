"""Connections with pushed protocols that go to another worker, by raw messages, with the state that the first one has
written; and what a broken-into worker may have written in its place."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from beds.examples import examples
from beds.moves import MOVE, Left, ask, claim, is_open, moved, take, take_in
from beds.scripted_host import WINDOW, ScriptedHost, Worker
from beds.worker import FEATURES, LOOPBACK, Conn, connected, flags, receive_exactly
from hypothesis import given
from hypothesis import strategies as st
from xts_messages.wire.record_framing import LAYERS_MAX
from xts_proxy.upgrade.handover import private_memory

#: What is pushed, half a PDU of its peer, and the other half.
PUSHED: dict[str, tuple[list[dict[str, Any]], bytes, bytes]] = {
    "LINES": ([{"ulp": "LINES"}], b"one\ntw", b"o\n"),
    "LENGTH_PREFIXED": ([{"ulp": "LENGTH_PREFIXED", "width": 1}], b"\3one\3tw", b"o"),
    "DNS": ([{"ulp": "DNS"}], b"\0\x0c" + b"twelve bytes" + b"\0", b"\x0c" + b"twelve bytes"),
    "STREAM_PARSER": ([{"ulp": "STREAM_PARSER", "offset": 0, "width": 1, "way": "PUSH_ULP_RX"}], b"\4one\4tw", b"o"),
    "HTTP2": ([{"ulp": "HTTP2"}], bytes([0, 0, 3]) + bytes(6) + b"one" + bytes([0, 0]), b"\3" + bytes(6) + b"two"),
    "NVME_TCP": (
        [{"ulp": "NVME_TCP"}],
        bytes([5, 0, 24, 0, 24, 0, 0, 0]) + bytes(16) + bytes([5, 0]),
        bytes([24, 0, 24, 0, 0, 0]) + bytes(16),
    ),
    "two": (
        [{"ulp": "TLS_RECORDS", "way": "PUSH_ULP_RX"}, {"ulp": "LINES"}],
        b"\x17\3\3\0\6one\ntw\x17\3",
        b"\3\0\2o\n",
    ),
}
#: The end of what the host gets of both.
PUSHED_LAST = {"LINES": b"two", "DNS": b"twelve bytes" * 2, "NVME_TCP": bytes(16), "HTTP2": b"two", "two": b"\2o"}
PUSHED_LAST |= {"LENGTH_PREFIXED": b"two", "STREAM_PARSER": b"two"}
EACH = pytest.mark.parametrize("name", PUSHED)


def leave(host: ScriptedHost, worker: Worker) -> tuple[Left, bytes]:
    """Its channel, with what workers keep; and what had come of PDUs before."""
    assert ask(worker) == 0
    came = b""
    while (frame := host.receive()).name != "XTS_REPLY_MOVE":
        came += frame.payload
    host.send("XTS_CMD_MOVE_ACK", ticket=frame.fields["ticket"])
    left = take(worker)
    assert left.private and left.reset == 0
    return left, came


@EACH
@examples(40)
@given(data=st.data())
def test_what_comes_in_private_is_not_believed(name: str, data: st.DataObject) -> None:
    """Bytes of it are others, or it is shorter. No descriptor is left, and the worker goes on."""
    pushes, first, _ = PUSHED[name]
    with (
        Worker() as worker,
        socket.create_server((LOOPBACK, 0)) as server,
        worker.attach(features=FEATURES | MOVE) as host,
        connected(host.open(), server, *pushes) as connection,
    ):
        connection.peer.sendall(first)
        connection.receive_data()
        left, _ = leave(host, worker)
        private = bytearray(os.pread(left.descriptors[-1], 1 << 20, 0))
        for _ in range(data.draw(st.integers(1, 6))):
            edges = st.sampled_from([0, 1, 2, 3, 8, 9, 127, 128, 255])
            private[data.draw(st.integers(0, len(private) - 1))] = data.draw(st.one_of(edges, st.integers(0, 255)))
        private = private[: data.draw(st.sampled_from([len(private), len(private), len(private) // 2]))]
        os.close(left.descriptors.pop())
        left.descriptors.append(private_memory())
        os.pwrite(left.descriptors[-1], private, 0)
        taken = take_in(worker, left.records, left.descriptors)
        assert taken in (0, 1) and is_open(left.descriptors[0]) == bool(taken)
        assert not is_open(left.descriptors[-1])
        left.descriptors = []
        left.close()
        with worker.attach(features=FEATURES | MOVE) as another, connected(another.open(), server) as goes_on:
            goes_on.send(b"here")
            assert receive_exactly(goes_on.peer, 4) == b"here"


def test_more_layers_than_there_can_be() -> None:
    """The list is as long as the table says, and not as a record does."""
    layer = field(1, (3).to_bytes(2, "big")) + field(2, b"\1") + field(3, b"\0")
    body = field(1, bytes(2)) + field(2, b"\0") + field(4, b"\1")
    body += field(16, (len(layer).to_bytes(4, "big") + layer) * (LAYERS_MAX + 1))
    record = b"\0\2\0\2" + len(body).to_bytes(4, "big") + body
    with (
        Worker() as worker,
        socket.create_server((LOOPBACK, 0)) as server,
        worker.attach(features=FEATURES | MOVE) as host,
        connected(host.open(), server, {"ulp": "LINES"}),
    ):
        left, _ = leave(host, worker)
        before = len(os.pread(left.descriptors[-1], 1 << 20, 0))
        os.close(left.descriptors.pop())
        left.descriptors.append(private_memory())
        os.pwrite(left.descriptors[-1], record.ljust(before, b"\0"), 0)
        assert take_in(worker, left.records, left.descriptors) == 0
        left.descriptors = []
        left.close()


def field(number: int, value: bytes) -> bytes:
    return number.to_bytes(2, "big") + bytes(2) + len(value).to_bytes(4, "big") + value


@EACH
def test_half_a_pdu_goes_on(name: str) -> None:
    """At the next worker, behind the byte that the first one has read."""
    pushes, first, second = PUSHED[name]
    with Worker() as worker, connecting(worker, pushes) as connection:
        connection.peer.sendall(first + second)
        expected = connection.receive_data().payload
        while not expected.endswith(PUSHED_LAST[name]):
            expected += connection.receive_data().payload
    with Worker() as worker, Worker(tenant=worker.tenant) as following, connecting(worker, pushes) as connection:
        connection.peer.sendall(first)
        before = connection.receive_data().payload
        left, more = leave(connection.host, worker)
        before += more
        assert take_in(following, left.records, left.descriptors) == 1
        left.descriptors = []
        with following.attach(features=FEATURES | MOVE) as after:
            id, _ = claim(after.open(), left.ticket, connection.id, 77, unread=0)
            there = Conn(after, 77, id, WINDOW, connection.peer)
            connection.peer.sendall(second)
            while len(before) < len(expected):
                before += there.receive_data().payload
        assert before == expected
        left.close()


def test_what_it_keeps_is_charged_where_it_is() -> None:
    """A PDU that is gathered, since its length was not announced: by the next worker from the claim on, until it has
    been sent."""
    data = bytes(range(250)) * 100
    with (
        Worker() as worker,
        Worker(tenant=worker.tenant) as following,
        connecting(worker, [{"ulp": "LENGTH_PREFIXED"}]) as connection,
    ):
        connection.host.send("XTS_CMD_SEND_PDU", data, id=connection.id, flags=flags("MORE"))
        worker.wait(lambda _: worker.used("ulp_bytes") > len(data), "a part of a PDU is not gathered")
        kept = worker.used("ulp_bytes")
        left = moved(connection.host, worker, following)
        assert worker.used("ulp_bytes") == 0
        with following.attach(features=FEATURES | MOVE) as after:
            id, held = claim(after.open(), left.ticket, connection.id, 77, unread=0)
            assert worker.used("ulp_bytes") == kept
            there = Conn(after, 77, id, held, connection.peer)
            there.host.send("XTS_CMD_SEND_PDU", b"end", id=id)
            whole = data + b"end"
            assert receive_exactly(connection.peer, 4 + len(whole)) == len(whole).to_bytes(4, "big") + whole
            following.wait(lambda _: worker.used("ulp_bytes") < kept - len(data), "what was sent is charged")
            there.close()
            following.wait(lambda _: worker.used("ulp_bytes") == 0, "what has ended is charged")
        left.close()


@contextmanager
def connecting(worker: Worker, pushes: list[dict[str, Any]]) -> Iterator[Conn]:
    with (
        socket.create_server((LOOPBACK, 0)) as server,
        worker.attach(features=FEATURES | MOVE) as host,
        connected(host.open(), server, *pushes) as connection,
    ):
        yield connection
