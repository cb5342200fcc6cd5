"""What the Wireshark dissector does with payload: streams of two directions, and the dissectors of their ports."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from unit.messages.test_dissector import TSHARK, run_tshark, write_pcap
from xts_messages.wire import codec, datagram
from xts_messages.wire import wire_table as table
from xts_messages.wire.codec import Endpoint, Frame
from xts_messages.wire.datagram import Datagram

pytestmark = pytest.mark.skipif(TSHARK is None, reason="tshark is not installed")

HOST, DEVICE = bytes.fromhex("020000000001"), bytes.fromhex("020000000002")
REQUEST = b"GET /shop HTTP/1.1\r\nHost: a\r\n\r\n"
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfour"


def host(name: str, id_: int = 0, payload: bytes = b"", **fields: Any) -> bytes:
    return codec.encode(Frame(name, fields, payload, id=id_, source=HOST, destination=DEVICE))


def proxy(name: str, id_: int, payload: bytes = b"", **fields: Any) -> bytes:
    return codec.encode(Frame(name, fields, payload, id=id_, source=DEVICE, destination=HOST))


def connected(number: int = 1, port: int = 80, client: int = 40000) -> list[bytes]:
    local, peer = Endpoint.of("198.18.0.1", client), Endpoint.of("198.18.0.2", port)
    return [
        host("XTS_CMD_CONNECT", xts_socket=number, peer=peer),
        proxy("XTS_REPLY_CONNECT_ACK", number, proxy_id=0x100 + number, local=local, peer=peer),
    ]


def send(data: bytes, number: int = 1) -> bytes:
    return host("XTS_CMD_SEND", 0x100 + number, data)


def recv(data: bytes, number: int = 1) -> bytes:
    return proxy("XTS_REPLY_RECV", number, data)


def shown(path: Path, frames: list[bytes], fields: tuple[str, ...], *arguments: str) -> list[list[str]]:
    """A row for each packet."""
    write_pcap(path / "some.pcap", frames)
    wanted = [part for field in fields for part in ("-e", field)]
    text = run_tshark(path / "some.pcap", "-T", "fields", "-E", "occurrence=a", *wanted, *arguments)
    return [line.split("\t") for line in text.splitlines()]


def test_http_is_readable(tmp_path: Path) -> None:
    rows = shown(
        tmp_path,
        [*connected(), send(REQUEST), recv(ANSWER)],
        ("xts.stream", "http.request.uri", "http.response.code", "ip.src", "_ws.col.Info", "_ws.col.Source"),
    )
    assert [row[0] for row in rows] == ["0"] * 4, "both directions, and both identifiers, are one stream"
    assert rows[2][1] == "/shop" and "GET /shop HTTP/1.1" in rows[2][4]
    assert rows[3][2] == "200"
    assert [row[5] for row in rows[2:]] == ["198.18.0.1", "198.18.0.2"]


def test_what_a_server_has_accepted(tmp_path: Path) -> None:
    local, peer = Endpoint.of("fd18::1", 80), Endpoint.of("fd18::2", 50000)
    frames = [
        proxy("XTS_REPLY_NEWCONN", 5, proxy_id=0x777, local=local, peer=peer),
        host("XTS_CMD_NEWCONN_ACK", 0x777, xts_socket=6),
        proxy("XTS_REPLY_RECV", 6, REQUEST),
        host("XTS_CMD_SEND", 0x777, ANSWER),
    ]
    rows = shown(tmp_path, frames, ("xts.stream", "http.request.uri", "http.response.code", "_ws.col.Source"))
    assert rows == [
        ["0", "", "", rows[0][3]],
        ["0", "", "", rows[1][3]],
        ["0", "/shop", "", "fd18::2"],
        ["0", "", "200", "fd18::1"],
    ]


@pytest.mark.parametrize("pieces", [[20], [1, 2, 25], [31, 40]])
def test_a_message_in_pieces(tmp_path: Path, pieces: list[int]) -> None:
    """Each end may cut the stream where it likes."""
    both = REQUEST + REQUEST.replace(b"shop", b"cart")
    cuts = [0, *pieces, len(both)]
    sent = [send(both[a:b]) for a, b in pairwise(cuts)]
    rows = shown(tmp_path, [*connected(), *sent], ("http.request.uri",), "-Y", "http")
    assert sorted(uri for (row,) in rows for uri in row.split(",")) == ["/cart", "/shop"]
    again = shown(tmp_path, [*connected(), *sent], ("http.request.uri",), "-2", "-Y", "http")
    assert again == rows, "a second pass, as the window of Wireshark makes, finds the same"


def test_plain_text_of_a_pushed_tls(tmp_path: Path) -> None:
    rows = shown(tmp_path, [*connected(port=443), send(REQUEST)], ("http.request.uri",), "-Y", "http")
    assert rows == [["/shop"]]


def test_streams_of_several_sockets(tmp_path: Path) -> None:
    frames = [*connected(1), *connected(2, client=40001), send(REQUEST, 2), send(REQUEST, 1), recv(ANSWER, 2)]
    rows = shown(tmp_path, frames, ("xts.stream",))
    assert [row[0] for row in rows] == ["0", "0", "1", "1", "1", "0", "1"]
    hello = host("XTS_LINK_HELLO")
    rows = shown(tmp_path, [*connected(1), hello, *connected(1)], ("xts.stream",), "-Y", "xts.stream")
    assert [row[0] for row in rows] == ["0", "0", "1", "1"], "another epoch has other sockets of the same numbers"


def test_payload_that_nobody_knows(tmp_path: Path) -> None:
    frames = [*connected(port=49151), send(b"\0\1\2"), host("XTS_CMD_SEND", 0x999, REQUEST)]
    rows = shown(tmp_path, frames, ("xts.stream", "xts.length", "_ws.col.Protocol"), "-Y", "xts.length > 0")
    assert rows == [["0", "3", "XTS"], ["1", "31", "XTS"]], "a capture may begin later than a connection"


def test_it_can_be_left(tmp_path: Path) -> None:
    frames = [*connected(), send(REQUEST)]
    assert shown(tmp_path, frames, ("http.request.uri",), "-o", "xts.payload:FALSE", "-Y", "http") == []


# --- datagrams -----------------------------------------------------------------------------------------------------

RESOLVER = Endpoint.of("198.18.0.53", 53)


def query(name: str, answer: bool = False) -> bytes:
    """A question of DNS, or an answer without records."""
    labels = b"".join(bytes([len(part)]) + part.encode() for part in name.split("."))
    head = b"\x12\x34" + (b"\x81\x80" if answer else b"\x01\x00") + b"\0\1\0\0\0\0\0\0"
    return head + labels + b"\0\0\1\0\1"


def opened(peer: Endpoint | None = None) -> list[bytes]:
    local = Endpoint.of("198.18.0.1", 40000)
    fields = {"peer": peer} if peer else {}
    return [
        host("XTS_CMD_OPEN_DATAGRAM", xts_socket=1, domain=4, **fields),
        proxy("XTS_REPLY_OPEN_DATAGRAM_ACK", 1, proxy_id=0x101, local=local, **fields),
    ]


def sent(*records: Datagram) -> bytes:
    return host("XTS_CMD_SEND_DATAGRAMS", 0x101, b"".join(map(datagram.encode, records)))


def names(path: Path, frames: list[bytes], *more: str) -> list[list[str]]:
    fields = ("dns.qry.name", "dns.flags.response", "_ws.col.Source", "_ws.col.Destination")
    return shown(path, frames, fields, "-Y", "dns", *more)


def test_datagrams_go_to_the_dissector_of_their_port(tmp_path: Path) -> None:
    """Of a socket that is not connected each has its peer; several in a message, and what has come back."""
    back = proxy("XTS_REPLY_RECV_DATAGRAMS", 1, datagram.encode(Datagram(query("a.example", True), RESOLVER)))
    records = [Datagram(query(name), RESOLVER, controls=(datagram.item("HOP_LIMIT", 3),)) for name in ("b.c", "d.e")]
    rows = names(tmp_path, [*opened(), sent(Datagram(query("a.example"), RESOLVER)), back, sent(*records)])
    assert [row[0] for row in rows] == ["a.example", "a.example", "b.c,d.e"]
    assert rows[0][2:] == ["198.18.0.1", "198.18.0.53"] and rows[1][2:] == ["198.18.0.53", "198.18.0.1"]
    assert rows[1][1] in ("1", "True")


def test_datagrams_of_a_connected_socket_and_trains(tmp_path: Path) -> None:
    one, two = query("one.example"), query("two.example")
    train = Datagram(one + two + query("x"), segment_bytes=len(one))
    assert [row[0] for row in names(tmp_path, [*opened(RESOLVER), sent(train)])] == ["one.example,two.example,x"]


@pytest.mark.parametrize("cut", [33, 40, 60])
def test_a_datagram_that_goes_on_in_the_next_message(tmp_path: Path, cut: int) -> None:
    whole = datagram.encode(Datagram(query("long.example"), RESOLVER))
    more = table.FLAGS["MORE"][0]
    first = codec.encode(
        Frame("XTS_CMD_SEND_DATAGRAMS", {}, whole[:cut], id=0x101, source=HOST, destination=DEVICE, flags=more)
    )
    rest = host("XTS_CMD_SEND_DATAGRAMS", 0x101, whole[cut:])
    frames = [*opened(), first, rest]
    assert [row[0] for row in names(tmp_path, frames)] == ["long.example"]
    assert [row[0] for row in names(tmp_path, frames, "-2")] == ["long.example"]


@pytest.mark.parametrize(
    "wrong",
    [
        Datagram(b"short", RESOLVER, data_bytes=60_000),
        Datagram(query("a.b"), RESOLVER, control_bytes=65_535),
        Datagram(bytes(2000), RESOLVER, segment_bytes=1),
        Datagram(b"", RESOLVER),
    ],
)
def test_records_that_are_wrong(tmp_path: Path, wrong: Datagram) -> None:
    """The dissector goes on with the next message."""
    rows = names(tmp_path, [*opened(), sent(wrong), sent(Datagram(query("next.example"), RESOLVER))])
    assert rows[-1][0] == "next.example"
