"""A bed for tests of datagram sockets in the worker: a host that keeps account of one socket as libxts would."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from xts_messages.wire import codec, datagram
from xts_messages.wire import wire_table as table
from xts_messages.wire.codec import Endpoint, flags
from xts_messages.wire.datagram import Datagram

from beds.patience import SLOWER
from beds.scripted_host import NEVER_MS, ScriptedHost, Worker

LOOPBACK = "127.0.0.1"
WINDOW = table.DATAGRAM_WINDOW_DEFAULT
FEATURES = table.FEATURES["DATAGRAM"][0] | table.FEATURES["REFUSAL"][0] | table.FEATURES["STAMPS"][0]
MORE = flags("MORE")
NOBODY = Endpoint()


@contextmanager
def host_of(worker: Worker, **changes: int) -> Iterator[ScriptedHost]:
    """A host that knows datagrams, its link open."""
    with worker.attach(features=FEATURES, **changes) as made:
        yield made.open()


@pytest.fixture
def host(worker: Worker) -> Iterator[ScriptedHost]:
    with host_of(worker) as made:
        yield made


def endpoint_of(peer: socket.socket) -> Endpoint:
    """Where a socket of the test is bound."""
    host, port = peer.getsockname()[:2]
    return Endpoint.of(host, port)


def udp_peer(host: str = LOOPBACK, **options: int) -> socket.socket:
    """A socket of the test, bound; `options` are of SOL_SOCKET: `udp_peer(SO_RCVBUF=4096)`."""
    made = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
    for name, value in options.items():
        made.setsockopt(socket.SOL_SOCKET, getattr(socket, name), value)
    made.bind((host, 0))
    made.settimeout(5 * SLOWER)
    return made


@pytest.fixture
def peer() -> Iterator[socket.socket]:
    with udp_peer(SO_RCVBUF=4 << 20) as made:
        yield made


def open_datagram(host: ScriptedHost, window: int = WINDOW, **fields: Any) -> tuple[int, codec.Frame]:
    """OPEN_DATAGRAM and its answer; the socket's number and the answer."""
    number = host.new_socket()
    host.tokens += 1
    fields = {"domain": 4, "local": NOBODY, "peer": NOBODY} | fields
    host.send("XTS_CMD_OPEN_DATAGRAM", xts_socket=number, token=host.tokens, post_credits=window, **fields)
    answer = host.expect("XTS_REPLY_OPEN_DATAGRAM_ACK")
    assert answer.id == number and answer.fields["token"] == host.tokens
    return number, answer


@dataclass
class Udp:
    """A datagram socket as its host keeps account of it. `held`: post credits; `granted`: what the proxy holds of
    ours. A datagram that is received is read at once, unless `credit` says otherwise."""

    host: ScriptedHost
    number: int
    id: int
    held: int
    granted: int
    local: Endpoint
    peer: Endpoint
    dropped: int = 0
    owing: int = 0
    reader: datagram.Reader = field(default_factory=datagram.Reader)
    ready: list[Datagram] = field(default_factory=list)
    errors: list[int] = field(default_factory=list)
    messages: int = 0

    @classmethod
    def open(cls, host: ScriptedHost, window: int = WINDOW, **fields: Any) -> Udp:
        number, answer = open_datagram(host, window, **fields)
        assert answer.error == 0, errno.errorcode.get(answer.error)
        f = answer.fields
        return cls(host, number, f["proxy_id"], f["post_credits"], window, f["local"], f["peer"])

    def message(self, payload: bytes, more: bool = False, **fields: Any) -> None:
        """SEND_DATAGRAMS with whatever payload."""
        self.host.send("XTS_CMD_SEND_DATAGRAMS", payload, id=self.id, flags=MORE if more else 0, **fields)

    def send(self, *datagrams: Datagram, part: int | None = None) -> None:
        """In one message, or in parts of so many bytes (of one datagram)."""
        for each in datagrams:
            while self.held < each.credits:
                self.take()
            self.held -= each.credits
        raw = b"".join(datagram.encode(each) for each in datagrams)
        largest = int(self.host.link.largest_message) - 32
        part = min(part or largest, largest)
        for at in range(0, len(raw), part):
            self.message(raw[at : at + part], more=at + part < len(raw))

    def take(self, timeout_ms: int = NEVER_MS) -> codec.Frame:
        """The next message about the socket; the account is kept."""
        frame = self.host.receive(timeout_ms)
        assert frame.id == self.number, frame
        assert frame.name == "XTS_REPLY_RECV_DATAGRAMS", frame
        self.held += frame.fields["post_credits"]
        assert self.held <= WINDOW
        self.dropped = frame.fields["dropped"]
        if frame.error:
            assert not frame.payload
            self.errors.append(frame.error)
            return frame
        complete = self.reader.take(frame.payload, bool(frame.flags & MORE))
        self.messages += bool(frame.payload)
        for each in complete:
            self.granted -= each.credits
            self.owing += each.credits
        assert self.granted >= 0, "more than there were credits for"
        self.ready += complete
        return frame

    def give(self) -> None:
        """Post credits of what was received go back."""
        self.host.send("XTS_CMD_SEND_DATAGRAMS", id=self.id, post_credits=self.owing)
        self.granted += self.owing
        self.owing = 0

    def receive(self, timeout_ms: int = NEVER_MS, *, credit: bool = True) -> Datagram:
        """The next datagram."""
        while not self.ready:
            self.take(timeout_ms)
        if credit and self.owing > self.granted:
            self.give()
        return self.ready.pop(0)

    def error(self) -> int:
        """The next pending error."""
        while not self.errors:
            self.take()
        return self.errors.pop(0)

    def settle(self) -> None:
        """Waits until the proxy has told of all that it has sent: an option call is answered in order."""
        assert self.option(socket.SOL_SOCKET, socket.SO_TYPE)[0] == 0

    def _call(self, request: str, reply: str, **fields: Any) -> codec.Frame:
        self.host.tokens += 1
        payload = fields.pop("payload", b"")
        fields = {"xts_socket": self.number, "token": self.host.tokens} | fields
        self.host.send(request, payload, id=self.id, **fields)
        passed = []
        while (frame := self.host.receive()).name != reply:
            passed.append(frame)
        self.host.backlog[:0] = passed
        assert frame.fields["token"] == self.host.tokens
        return frame

    def connect(self, peer: Endpoint) -> codec.Frame:
        return self._call("XTS_CMD_CONNECT_DATAGRAM", "XTS_REPLY_CONNECT_DATAGRAM_ACK", peer=peer)

    def bind(self, local: Endpoint) -> codec.Frame:
        return self._call("XTS_CMD_BIND", "XTS_REPLY_BIND_ACK", local=local, domain=local.ip_version)

    def set(self, level: int, option: int, value: int | bytes) -> int:
        return self.set_answer(level, option, value).error

    def set_answer(self, level: int, option: int, value: int | bytes) -> codec.Frame:
        payload = value if isinstance(value, bytes) else value.to_bytes(4, "little")
        return self._call("XTS_CMD_SETSOCKOPT", "XTS_REPLY_SOCKOPT_ACK", level=level, option=option, payload=payload)

    def option(self, level: int, option: int) -> tuple[int, int]:
        answer = self._call("XTS_CMD_GETSOCKOPT", "XTS_REPLY_SOCKOPT_ACK", level=level, option=option, payload=bytes(4))
        return answer.error, int.from_bytes(answer.payload, "little")

    def close(self, *names: str) -> codec.Frame:
        """CLOSE and its answer; what crosses it is passed over."""
        self.host.send("XTS_CMD_SEND", id=self.id, flags=flags("CLOSE", *names))
        while (answer := self.host.receive()).name != "XTS_REPLY_RECV":
            pass
        assert answer.flags & flags("CLOSED") and answer.id == self.number
        return answer
