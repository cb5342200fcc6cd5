"""What the table of records calls content or secret is in nothing that the proxy shows: a marker in each is looked for
in status, metrics, logs, environments, and captures."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from beds.handover import Connection, connected, server
from beds.operated_proxy import Proxy, running, wait
from beds.scripted_host import ScriptedHost
from beds.share import KEEP_MS, share
from xts_messages.attaching.attach import attach
from xts_messages.wire import record_framing, record_messages, record_table, wire_table
from xts_messages.wire.record_form import Privacy

__all__ = ["server"]  # a fixture

FEATURES = wire_table.FEATURES["SHARE"][0] | wire_table.FEATURES["TAKE"][0] | wire_table.FEATURES["ULP"][0]
STREAM, PDU = 1, 2
#: By record and field. Keys of 16 bytes, and of 8.
MARKERS = {
    "tcp_side.pushed": b"KEY-OF-TLS-16-BY",
    "tcp_side.returned": b"RETURNED-BY-HOST",
    "returned_part.data": b"DATA-OF-RETURNED",
    "ulp_mark.control": b"CONTROL-OF-A-PDU",
    "outgoing.spill": b"WAITS-IN-A-SPILL",
}
#: Each is the right to take a connection over: a field of messages (wire_table.py).
KEYS = {f"key {number}": b"KEY-OF-%d" % number for number in range(4)}


#: Of handshakes: nobody can choose these (tests/system/tls/test_secrets_of_handshakes.py).
OF_HANDSHAKES = {"tls_direction.secret", "tls_direction.iv", "tls_direction.waiting"}
#: Only between workers, in memory that nobody else reads (tests/system/worker/test_worker_move_tls.py).
OF_UPGRADES = {"pushed_state.state", "pushed_state.layers", "tls_state.part", "tls_resumption.secret"} | {
    f"{record.name}.{field.name}"
    for header in (*record_framing.HEADERS.values(), *record_messages.HEADERS.values())
    for record in header.records
    for field in record.fields
    if field.privacy is not Privacy.OPEN
}
#: Only in records from worker to worker, which supervisors pass on unread, as those of `outgoing.spill` in an upgrade
#: (tests/system/worker/test_worker_move_datagram.py).
OF_DATAGRAMS = {f"datagram_side.{name}" for name in ("waiting", "unsent", "returned", "returning")}


def test_each_field_that_is_not_open_has_a_marker() -> None:
    closed = {
        f"{record.name}.{field.name}"
        for record in record_table.RECORDS.values()
        for field in record.fields
        if field.privacy is not Privacy.OPEN
    }
    assert set(MARKERS) | OF_HANDSHAKES | OF_UPGRADES | OF_DATAGRAMS == closed


def forms(marker: bytes) -> list[bytes]:
    """How somebody may have written it down."""
    texts = [marker.hex(), marker.hex(" "), base64.b64encode(marker)[:-2].decode(), str(list(marker))[1:-1]]
    for half in (marker[:8], marker[8:]):
        numbers = [int.from_bytes(half, order) for order in ("big", "little")] if half else []
        texts += [form for number in numbers for form in (str(number), f"{number:x}")]
    return [marker, *(form.encode() for text in texts for form in (text, text.upper()))]


def found(place: str, data: bytes, markers: dict[str, bytes]) -> list[str]:
    return [f"{name} in {place}" for name, marker in markers.items() for form in forms(marker) if form in data]


@pytest.mark.parametrize("form", range(17))
def test_what_is_written_down_is_found(form: int) -> None:
    written = b"before " + forms(KEYS["key 0"])[form] + b" after"
    assert found("a log", written, {"key": KEYS["key 0"]})


@contextlib.contextmanager
def host_of(proxy: Proxy, capture: Path) -> Iterator[ScriptedHost]:
    attachment = attach(proxy.endpoint, program="test")
    attachment.queue = attachment.queue.capture(str(capture))
    try:
        yield ScriptedHost(attachment.queue, attachment.epoch, {"features": FEATURES}).open()
    finally:
        attachment.close()


def shown(proxy: Proxy) -> dict[str, bytes]:
    """All that the proxy shows now, by its name."""
    status = json.dumps(proxy.status(connections=True))
    processes = [proxy.process.pid, *proxy.status()["proxy"]["processes"].values()]
    return {
        "status": status.encode(),
        "metrics": proxy.metrics().encode(),
        "log": proxy.log.read_bytes(),
        "connection log": (proxy.directory / "closed.jsonl").read_bytes(),
        "environment": b"".join(Path(f"/proc/{pid}/environ").read_bytes() for pid in processes),
    }


def named(host: ScriptedHost, server: socket.socket, number: int) -> tuple[Connection, socket.socket, int]:
    """A connection with a key that is a marker."""
    connection, peer = connected(host, server)
    key = int.from_bytes(KEYS[f"key {number}"])
    assert share(host, key, connection.proxy_id, connection.number, KEEP_MS).error == 0
    return connection, peer, key


def spills(host: ScriptedHost, server: socket.socket) -> socket.socket:
    """A connection that is parked with bytes that its peer does not take."""
    connection, peer, key = named(host, server, 0)
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    marker = MARKERS["outgoing.spill"]
    while connection.credits > 32768:
        connection.send(marker * 1024)
        with contextlib.suppress(TimeoutError):
            connection.receive(20)
    assert connection.park(key).error == 0
    return peer


def returns(host: ScriptedHost, server: socket.socket) -> list[socket.socket]:
    """Connections that are parked, and whose host gives back a stream, and PDUs."""
    stream, peer, key = named(host, server, 1)
    marker = MARKERS["tcp_side.returned"]
    peer.sendall(marker)
    while len(stream.received) < len(marker):
        stream.receive()
    assert stream.park(key).error == 0
    host.send("XTS_CMD_RETURN", marker, key=key, kind=STREAM, record_bytes=0)
    pdus, other_peer, key = named(host, server, 2)
    assert host.push("LENGTH_PREFIXED", pdus.proxy_id, pdus.number).error == 0
    marker, control = MARKERS["returned_part.data"], MARKERS["ulp_mark.control"]
    other_peer.sendall(struct.pack(">I", len(marker)) + marker)
    assert host.expect("XTS_REPLY_RECV_PDU").payload == marker
    assert pdus.park(key).error == 0
    halves = {"control_high": int.from_bytes(control[:8]), "control_low": int.from_bytes(control[8:])}
    fields = {"record_bytes": len(marker), "control_type": 6, "control_bytes": 16} | halves
    host.send("XTS_CMD_RETURN", marker, key=key, kind=PDU, **fields)
    return [peer, other_peer]


def encrypts(host: ScriptedHost, server: socket.socket) -> socket.socket:
    """A connection with a key of TLS, and one whose push is refused, which says why."""
    connection, peer, _ = named(host, server, 3)
    key = MARKERS["tcp_side.pushed"]
    info = struct.pack("=HH8s16s4s8s", 0x0303, 51, bytes(8), key, bytes(4), bytes(8))
    answer = host.push(
        "TLS_KEYS", connection.proxy_id, connection.number, way="PUSH_ULP_TX", crypto_info=info, crypto=1
    )
    assert answer.error == 0, host.ulp_error(connection.proxy_id, connection.number)
    refused = struct.pack("=HH8s16s4s8s", 0x0303, 9999, bytes(8), key, bytes(4), bytes(8))
    assert host.push("TLS_KEYS", connection.proxy_id, connection.number, way="PUSH_ULP_TX", crypto_info=refused).error
    reason = host.ulp_error(connection.proxy_id, connection.number)
    assert not found("the reason of a refusal", str(reason).encode(), MARKERS)
    return peer


def test_markers_are_shown_nowhere(tmp_path: Path, server: socket.socket) -> None:
    capture, markers = tmp_path / "captured.pcap", MARKERS | KEYS
    places: list[tuple[str, bytes]] = []
    with running(tmp_path, connection_log=str(tmp_path / "closed.jsonl")) as proxy:
        with host_of(proxy, capture) as host, contextlib.ExitStack() as peers:
            for peer in (spills(host, server), *returns(host, server), encrypts(host, server)):
                peers.enter_context(peer)
            wait(lambda: proxy.status()["workers"][0]["parked_connections"] == 3, "parked connections")
            places += shown(proxy).items()
            assert b'"send_ulps": "tls_keys"' in dict(places)["status"], "status shows this connection"
        log = tmp_path / "closed.jsonl"
        wait(lambda: log.read_bytes().count(b"handed_over") == len(KEYS), "records of the connections")
        places += shown(proxy).items()
        os.kill(proxy.process.pid, 15)
        assert proxy.ended(10) == 0
        places.append(("log", proxy.log.read_bytes()))
    assert [one for place, data in places for one in found(place, data, markers)] == []
    captured = capture.read_bytes()
    assert MARKERS["outgoing.spill"] in captured, "a capture has what programs say"
    assert found("a capture", captured, KEYS | {"tcp_side.pushed": MARKERS["tcp_side.pushed"]}) == []
