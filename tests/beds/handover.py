"""A bed for tests of connections that change hands: a scripted host's account of one, PARK, CLAIM and TAKE."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from xts_messages.wire import codec
from xts_messages.wire.codec import flags

from beds.patience import SLOWER
from beds.scripted_host import NEVER_MS, WINDOW, ScriptedHost
from beds.share import KEEP_MS, LOOPBACK


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server((LOOPBACK, 0)) as made:
        made.settimeout(5 * SLOWER)
        yield made


@dataclass
class Connection:
    """A connection as its present host sees it."""

    host: ScriptedHost
    number: int
    proxy_id: int
    credits: int
    unread: int = 0
    received: bytearray = field(default_factory=bytearray)  # in this host; the application reads it at once

    def send(self, data: bytes, *names: str) -> None:
        assert len(data) <= self.credits
        self.credits -= len(data)
        self.host.send("XTS_CMD_SEND", data, id=self.proxy_id, flags=flags(*names) if names else 0)

    def park(self, key: int, keep_ms: int = KEEP_MS) -> codec.Frame:
        """Parks it: data that comes before the answer is taken."""
        self.host.send("XTS_CMD_PARK", id=self.proxy_id, xts_socket=self.number, token=7, key=key, keep_ms=keep_ms)
        while (frame := self.host.receive()).name == "XTS_REPLY_RECV":
            self.take(frame)
        assert frame.name == "XTS_REPLY_PARK_ACK" and frame.id == self.number and frame.fields["token"] == 7
        return frame

    def take(self, frame: codec.Frame) -> codec.Frame:
        """Accounts for a RECV of this connection."""
        assert (frame.name, frame.id) == ("XTS_REPLY_RECV", self.number)
        self.received += frame.payload
        self.credits += frame.fields["post_credits"]
        return frame

    def receive(self, timeout_ms: int = NEVER_MS) -> codec.Frame:
        return self.take(self.host.receive(timeout_ms))

    def grant(self, credits: int) -> None:
        self.host.send("XTS_CMD_SEND", id=self.proxy_id, post_credits=credits)

    def close(self, *names: str) -> codec.Frame:
        """All that came has been read."""
        read = self.unread + len(self.received)
        self.host.send("XTS_CMD_SEND", id=self.proxy_id, flags=flags("CLOSE", *names), post_credits=read)
        while not (frame := self.receive()).flags & flags("CLOSED"):
            pass
        return frame


def connected(host: ScriptedHost, server: socket.socket, window: int = WINDOW) -> tuple[Connection, socket.socket]:
    number, ack = host.connect(LOOPBACK, server.getsockname()[1], window)
    assert ack.error == 0
    peer, _ = server.accept()
    peer.settimeout(5 * SLOWER)
    return Connection(host, number, ack.fields["proxy_id"], ack.fields["post_credits"]), peer


def claim(host: ScriptedHost, key: int, window: int = WINDOW, unread: int = 0) -> codec.Frame:
    number = host.new_socket()
    host.send("XTS_CMD_CLAIM", xts_socket=number, token=8, key=key, post_credits=window - unread, unread=unread)
    answer = host.receive()
    assert (answer.name, answer.id, answer.fields["token"]) == ("XTS_REPLY_CLAIM_ACK", number, 8)
    return answer


def claimed(host: ScriptedHost, key: int, window: int = WINDOW, unread: int = 0) -> Connection:
    answer = claim(host, key, window, unread)
    assert answer.error == 0
    return Connection(host, answer.id, answer.fields["proxy_id"], answer.fields["post_credits"], unread)
