"""A bed for tests of pushed protocols in the worker: a host that keeps account of one connection as libxts would."""

from __future__ import annotations

import fcntl
import socket
import struct
import termios
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from xts_messages.wire import codec, ulps
from xts_messages.wire import wire_table as table
from xts_messages.wire.codec import flags

from beds.patience import SLOWER
from beds.scripted_host import NEVER_MS, WINDOW, ScriptedHost, Worker

LOOPBACK = "127.0.0.1"
MORE = flags("MORE")
SMALL = table.ULP_WINDOW_MIN
READY = ulps.EVENTS["READY"][0]
FEATURES = table.FEATURES["ULP"][0] | table.FEATURES["SHARE"][0] | table.FEATURES["TAKE"][0]


@pytest.fixture
def worker() -> Iterator[Worker]:
    with Worker() as made:
        yield made


@pytest.fixture
def host(worker: Worker) -> Iterator[ScriptedHost]:
    with worker.attach(features=FEATURES) as made:
        yield made.open()


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server((LOOPBACK, 0)) as made:
        made.settimeout(5 * SLOWER)
        yield made


def prefixed(*pdus: bytes) -> bytes:
    """As LENGTH_PREFIXED has them on TCP, with a width of 4."""
    return b"".join(len(pdu).to_bytes(4, "big") + pdu for pdu in pdus)


@dataclass
class Conn:
    """A connection as its host keeps account of it. `held`: post credits. `read` gives back those of what it reads."""

    host: ScriptedHost
    number: int
    id: int
    held: int
    peer: socket.socket
    read_bytes: int = 0
    owing: int = 0

    def __enter__(self) -> Conn:
        return self

    def __exit__(self, *_: object) -> None:
        self.peer.close()

    def push(self, ulp: str, **more: Any) -> codec.Frame:
        return self.host.push(ulp, self.id, self.number, **more)

    def ioctl(self, request: str, payload: bytes = b"") -> codec.Frame:
        return self.host.ioctl(request, payload, self.id, self.number)

    def receive(self, timeout_ms: int = NEVER_MS) -> codec.Frame:
        """The next message about data; the account is kept."""
        frame = self.host.receive(timeout_ms)
        assert frame.name in ("XTS_REPLY_RECV", "XTS_REPLY_RECV_PDU") and frame.id == self.number, frame
        self.held += frame.fields["post_credits"]
        return frame

    def give_credits(self, count: int) -> None:
        self.host.send("XTS_CMD_SEND", id=self.id, post_credits=count)

    def receive_data(self, timeout_ms: int = NEVER_MS) -> codec.Frame:
        """The next message that is more than credits."""
        while not (frame := self.receive(timeout_ms)).payload and frame.name == "XTS_REPLY_RECV" and not frame.flags:
            pass
        return frame

    def read(self, timeout_ms: int = NEVER_MS, *, credit: bool = True) -> codec.Frame:
        """The next message with data, read at once."""
        frame = self.receive_data(timeout_ms)
        self.read_bytes += len(frame.payload)
        if frame.name == "XTS_REPLY_RECV_PDU" and frame.fields["control_type"] < 0xFF00:
            self.owing += len(frame.payload) + table.PDU_CREDITS
        else:
            self.owing += len(frame.payload)
        if credit and self.owing:
            self.give_credits(self.owing)
            self.owing = 0
        return frame

    def read_pdu(self) -> bytes:
        """A whole PDU."""
        parts, first = [], None
        while True:
            frame = self.read()
            assert frame.name == "XTS_REPLY_RECV_PDU", frame
            first = first or frame
            assert frame.fields["record_bytes"] == first.fields["record_bytes"]
            parts.append(frame.payload)
            if not frame.flags & MORE:
                whole = b"".join(parts)
                assert first.fields["record_bytes"] in (0, len(whole))
                return whole

    def send_pdu(
        self,
        data: bytes,
        part: int = 1 << 15,
        record_bytes: int | None = None,
        control: tuple[int, bytes] = (0, b""),
    ) -> None:
        """A whole PDU, in parts, waiting for post credits. control: type and data, in the first part."""
        pieces = [data[i : i + part] for i in range(0, len(data), part)] or [b""]
        for i, piece in enumerate(pieces):
            while self.held < len(piece) + table.PDU_CREDITS:
                self.receive()
            self.held -= len(piece) + table.PDU_CREDITS
            self.host.send(
                "XTS_CMD_SEND_PDU",
                piece,
                id=self.id,
                flags=MORE if i < len(pieces) - 1 else 0,
                record_bytes=len(data) if record_bytes is None else record_bytes,
                control_type=control[0] if i == 0 else 0,
                control_bytes=len(control[1]) if i == 0 else 0,
                control_high=int.from_bytes(control[1][:8].ljust(8, b"\0"), "big") if i == 0 else 0,
                control_low=int.from_bytes(control[1][8:].ljust(8, b"\0"), "big") if i == 0 else 0,
            )

    def send(self, data: bytes, *names: str) -> None:
        while self.held < len(data):
            self.receive()
        self.held -= len(data)
        self.host.send("XTS_CMD_SEND", data, id=self.id, flags=flags(*names))

    def close(self, *names: str) -> codec.Frame:
        """CLOSE and its answer; whatever crosses it is passed over."""
        self.host.send("XTS_CMD_SEND", id=self.id, flags=flags("CLOSE", *names), post_credits=self.read_bytes)
        while (answer := self.host.receive()).name != "XTS_REPLY_RECV" or not answer.flags & flags("CLOSED"):
            pass
        return answer


def connected(host: ScriptedHost, server: socket.socket, *pushes: dict[str, Any], window: int = WINDOW) -> Conn:
    """A connection to the server with these pushes made before CONNECT."""
    number, id = host.new_socket(), 0
    for push in pushes:
        answer = host.push(id=id, number=number, **push)
        assert answer.error == 0 and answer.payload == b"\0", answer
        id = answer.fields["proxy_id"]
    _, ack = host.connect(LOOPBACK, server.getsockname()[1], window, id, number)
    assert ack.error == 0, ack
    peer, _ = server.accept()
    peer.settimeout(5 * SLOWER)
    return Conn(host, number, ack.fields["proxy_id"], ack.fields["post_credits"], peer)


PREFIX = {"ulp": "LENGTH_PREFIXED"}


def receive_exactly(peer: socket.socket, count: int) -> bytes:
    """For sockets with a time-out, too: Python makes them non-blocking, and then MSG_WAITALL does not wait."""
    data = bytearray()
    while len(data) < count and (more := peer.recv(min(65536, count - len(data)))):
        data += more
    return bytes(data)


def wait_for(reached: Callable[[], bool], what: str) -> None:
    """Asks until it is so."""
    deadline = time.monotonic() + 5 * SLOWER
    while not reached():
        assert time.monotonic() < deadline, what
        time.sleep(0.001)


def wait_until_taken(peers: list[socket.socket]) -> None:
    """Until the proxy's TCP has acknowledged all that these kernel sockets have sent."""

    def unacknowledged(peer: socket.socket) -> int:
        return int(struct.unpack("i", fcntl.ioctl(peer, termios.TIOCOUTQ, bytes(4)))[0])

    wait_for(lambda: not any(map(unacknowledged, peers)), "TCP has taken what was sent")
