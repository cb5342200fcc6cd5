"""A hostile host against the proxy's worker, over the shared-memory queue (issue section 8).

Whatever it sends has a defined, counted answer; at worst its channel is closed, its TCP connections reset, and the
channel opens again for the next process. A bystander on another channel of the same worker never notices.
"""

from __future__ import annotations

import errno
import os
import random
import select
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from beds.scripted_host import WINDOW, ScriptedHost, Worker, make_tenant
from xts_messages._native import ffi, lib
from xts_messages.wire import codec
from xts_messages.wire import wire_table as table
from xts_messages.wire.codec import Endpoint, Frame, flags

LOOPBACK = "127.0.0.1"
EPOCH = 0x1234
UNKNOWN = 0x00ABCDEF
#: Windows are smaller than the largest message, so that one message can be too much.
LIMITS = {"connections": 20, "listeners": 4, "window_bytes": 16384, "window_bytes_max": 16384}


@dataclass
class Connection:
    """An established connection of a scripted host: both identifiers, credits held, the TCP peer's end."""

    host: ScriptedHost
    number: int
    proxy_id: int
    held: int
    peer: socket.socket

    def echo(self, data: bytes) -> None:
        """One round trip."""
        self.host.send("XTS_CMD_SEND", data, id=self.proxy_id)
        got = b""
        while len(got) < len(data):
            got += self.peer.recv(65536)
        self.peer.sendall(got)
        back = b""
        while len(back) < len(data):
            frame = self.host.expect("XTS_REPLY_RECV")
            back += frame.payload
        assert back == got == data


def establish(host: ScriptedHost, server: socket.socket) -> Connection:
    number, ack = host.connect(LOOPBACK, server.getsockname()[1])
    assert ack.error == 0
    peer, _ = server.accept()
    peer.settimeout(5)
    fields: Any = ack.fields
    return Connection(host, number, fields["proxy_id"], fields["post_credits"], peer)


@dataclass
class Scene:
    """A worker, a hostile host with a connection, and a bystander with one."""

    worker: Worker
    hostile: ScriptedHost
    mine: Connection
    bystander: Connection

    def frame(self, name: str, payload: bytes = b"", **changes: Any) -> bytes:
        """A frame that the link would let pass, except for what is changed; `fields` are the message's."""
        link = self.hostile.link
        values = {
            "seqno": int(link.sent),
            "frame_ack": int(link.recycled),
            "destination": self.hostile.queue.peer_mac,
            "source": self.hostile.queue.local_mac,
        }
        return codec.encode(Frame(name, changes.pop("fields", {}), payload, **(values | changes)))

    def raw(self, frame: bytes) -> None:
        """Sends bytes as they are; waits while the queue is full."""
        deadline = time.monotonic() + 5
        while True:
            try:
                return self.hostile.raw(frame)
            except BlockingIOError:
                assert time.monotonic() < deadline, "the worker does not take frames any more"
                time.sleep(0)

    def sequenced(self, name: str, payload: bytes = b"", **changes: Any) -> None:
        """Sends such a frame as the next of the sequence, whatever the frame credits say."""
        self.raw(self.frame(name, payload, **changes))
        self.hostile.link.sent = (self.hostile.link.sent + 1) % 256

    def still_serves(self, connection: Connection) -> None:
        connection.echo(os.urandom(3000))


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server((LOOPBACK, 0), backlog=64) as made:
        made.settimeout(5)
        yield made


@pytest.fixture
def scene(server: socket.socket) -> Iterator[Scene]:
    bystander_tenant = make_tenant("bystander", 1, **LIMITS)
    with (
        Worker(**LIMITS) as worker,
        worker.attach(EPOCH) as hostile,
        worker.attach(77, tenant=bystander_tenant) as other,
    ):
        mine, bystander = establish(hostile.open(), server), establish(other.open(), server)
        with mine.peer, bystander.peer:
            made = Scene(worker, hostile, mine, bystander)
            yield made
            made.still_serves(bystander)


def counted(scene: Scene, figure: str, at_least: int = 1) -> None:
    """Waits until a counter of the hostile channel's link has grown."""
    scene.worker.wait(lambda _: getattr(scene.worker.channel().link, figure) >= at_least, f"{figure} did not grow")


# --- dropped and counted -----------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [1, 13, 14, 23])
def test_frames_without_a_head(scene: Scene, length: int) -> None:
    for _ in range(300):
        scene.raw(scene.frame("XTS_CMD_SEND")[:length])
    counted(scene, "malformed", 300)
    scene.still_serves(scene.mine)


def test_frames_of_others(scene: Scene) -> None:
    scene.raw(scene.frame("XTS_CMD_SEND", source=b"\x02\0\0\0\0\x99"))
    scene.raw(scene.frame("XTS_CMD_SEND", ethertype=0x0800))
    counted(scene, "dropped_foreign", 2)
    scene.still_serves(scene.mine)


def test_control_frames_of_a_later_version(scene: Scene) -> None:
    later = bytearray(scene.frame("XTS_LINK_PING"))
    later[table.ETH_BYTES] = table.LINK_CODES[-1]
    scene.raw(bytes(later))
    counted(scene, "malformed")
    scene.still_serves(scene.mine)


def test_goodbye_of_another_epoch(scene: Scene) -> None:
    scene.raw(scene.frame("XTS_LINK_GOODBYE", fields={"epoch": EPOCH + 1}))
    counted(scene, "dropped_stale")
    scene.still_serves(scene.mine)


def test_data_for_unknown_and_stale_identifiers(scene: Scene, server: socket.socket) -> None:
    gone = establish(scene.hostile, server)
    with gone.peer:
        scene.hostile.send("XTS_CMD_SEND", id=gone.proxy_id, flags=flags("CLOSE"))
        assert scene.hostile.expect("XTS_REPLY_RECV").flags == flags("CLOSED")
    for identifier in (0, UNKNOWN, 0xFFFFFFFF, gone.proxy_id, gone.proxy_id ^ 1 << 20, scene.mine.proxy_id ^ 1 << 31):
        scene.hostile.send("XTS_CMD_SEND", b"for whom?", id=identifier, flags=flags("CLOSE"))
    scene.worker.wait(lambda s: s.bad_identifiers == 6, "not counted")
    scene.still_serves(scene.mine)


def test_an_identifier_works_only_on_the_queue_it_belongs_to(server: socket.socket) -> None:
    with Worker() as worker, worker.attach(1) as first, worker.attach(2) as second:
        first.open(), second.open()
        theirs = [establish(second, server) for _ in range(3)]
        for connection in theirs:
            first.send("XTS_CMD_SEND", b"stolen", id=connection.proxy_id, flags=flags("CLOSE", "ABORT"))
        worker.wait(lambda s: s.bad_identifiers == 3, "not counted")
        for connection in theirs:
            connection.echo(b"unharmed")
            connection.peer.close()


CALLS: dict[str, tuple[str, dict[str, Any]]] = {
    "XTS_CMD_CONNECT": ("XTS_REPLY_CONNECT_ACK", {"post_credits": 1, "domain": 4, "peer": Endpoint.of(LOOPBACK, 1)}),
    "XTS_CMD_LISTEN": ("XTS_REPLY_LISTEN_ACK", {"token": 5, "post_credits": 1, "domain": 4, "backlog": 1}),
    "XTS_CMD_BIND": ("XTS_REPLY_BIND_ACK", {"token": 5, "domain": 4, "local": Endpoint.of(LOOPBACK, 0)}),
    "XTS_CMD_SETSOCKOPT": ("XTS_REPLY_SOCKOPT_ACK", {"token": 5, "domain": 4, "level": 6, "option": 1}),
    "XTS_CMD_GETSOCKOPT": ("XTS_REPLY_SOCKOPT_ACK", {"token": 5, "domain": 4, "level": 6, "option": 1}),
    "XTS_CMD_IOCTL": ("XTS_REPLY_IOCTL_ACK", {"token": 5, "domain": 4, "request": 0x541B}),
}


@pytest.mark.parametrize("name", CALLS)
def test_calls_on_unknown_identifiers_are_answered(scene: Scene, name: str) -> None:
    reply, fields = CALLS[name]
    for identifier in (UNKNOWN, scene.mine.proxy_id ^ 1 << 20):
        scene.hostile.send(name, id=identifier, xts_socket=4711, **fields)
        answer = scene.hostile.expect(reply)
        assert (answer.error, answer.id, answer.fields["proxy_id"]) == (errno.EBADF, 4711, 0)
        assert answer.fields.get("token", 5) == 5
    # The right identifier of the proxy with the wrong one of the host's is no better.
    scene.hostile.send(name, id=scene.mine.proxy_id, xts_socket=scene.mine.number + 1, **fields)
    assert scene.hostile.expect(reply).error == errno.EBADF
    assert scene.worker.stats().bad_identifiers == 3
    scene.still_serves(scene.mine)


def test_a_flood_of_newconn_acks(scene: Scene) -> None:
    for number in range(2000):
        scene.hostile.send("XTS_CMD_NEWCONN_ACK", id=number * 7919 % 0xFFFFFFFF, xts_socket=number, post_credits=WINDOW)
    scene.worker.wait(lambda s: s.bad_identifiers == 2000, "not counted")
    scene.hostile.send("XTS_CMD_NEWCONN_ACK", id=scene.mine.proxy_id, xts_socket=9, post_credits=WINDOW, error=1)
    scene.worker.wait(lambda s: s.bad_identifiers == 2001, "an established connection is not announced")
    scene.still_serves(scene.mine)


def test_a_flood_of_connects_ends_at_the_limit(scene: Scene, server: socket.socket) -> None:
    port = server.getsockname()[1]
    errors = []
    for _ in range(200):
        number = scene.hostile.new_socket()
        scene.hostile.send(
            "XTS_CMD_CONNECT", xts_socket=number, post_credits=1, domain=4, peer=Endpoint.of(LOOPBACK, port)
        )
        while len(errors) < number - 50:
            errors.append(scene.hostile.expect("XTS_REPLY_CONNECT_ACK").error)
    while len(errors) < 200:
        errors.append(scene.hostile.expect("XTS_REPLY_CONNECT_ACK").error)
    assert errors.count(0) == 19, "twenty sockets are allowed, one was there"
    assert errors.count(errno.ENOBUFS) == 181
    assert scene.worker.stats().refused_limit == 181
    scene.still_serves(scene.mine)


def test_a_flood_of_listeners_ends_at_the_limit(scene: Scene) -> None:
    errors = []
    for token in range(50):
        scene.hostile.send(
            "XTS_CMD_LISTEN", xts_socket=scene.hostile.new_socket(), token=token, post_credits=1, domain=4
        )
        errors.append(scene.hostile.expect("XTS_REPLY_LISTEN_ACK").error)
    assert errors.count(0) == 4
    assert errors.count(errno.ENOBUFS) == 46
    scene.still_serves(scene.mine)


def test_connections_nobody_acknowledges_are_bounded_by_the_credits(scene: Scene) -> None:
    scene.hostile.send("XTS_CMD_BIND", xts_socket=900, token=1, domain=4, local=Endpoint.of(LOOPBACK, 0))
    bound: Any = scene.hostile.expect("XTS_REPLY_BIND_ACK").fields
    listen = {"xts_socket": 900, "token": 2, "post_credits": 3, "domain": 4, "backlog": 8}
    scene.hostile.send("XTS_CMD_LISTEN", id=bound["proxy_id"], **listen)
    scene.hostile.expect("XTS_REPLY_LISTEN_ACK")
    clients = [socket.create_connection((LOOPBACK, bound["local"].port), 5) for _ in range(6)]
    for _ in range(3):
        scene.hostile.expect("XTS_REPLY_NEWCONN")
    with pytest.raises(TimeoutError):
        scene.hostile.receive(100)
    scene.still_serves(scene.mine)
    for client in clients:
        client.close()


# --- violations: this channel ends -------------------------------------------------------------------------


def _changed(scene: Scene, offset: int, value: int, width: int = 4) -> None:
    frame = bytearray(scene.frame("XTS_CMD_SEND", id=scene.mine.proxy_id))
    frame[offset : offset + width] = value.to_bytes(width, "big")
    scene.raw(bytes(frame))


def _data_after_fin(scene: Scene) -> None:
    scene.hostile.send("XTS_CMD_SEND", b"last", id=scene.mine.proxy_id, flags=flags("FIN"))
    scene.hostile.send("XTS_CMD_SEND", b"after all", id=scene.mine.proxy_id)


def _data_on_an_unconnected_socket(scene: Scene) -> None:
    scene.hostile.send("XTS_CMD_BIND", xts_socket=800, token=1, domain=4, local=Endpoint.of(LOOPBACK, 0))
    bound: Any = scene.hostile.expect("XTS_REPLY_BIND_ACK").fields
    scene.hostile.send("XTS_CMD_SEND", b"too early", id=bound["proxy_id"])


def _more_than_the_window(scene: Scene) -> None:
    """Sends on without looking at acknowledgements. Each frame asks for a reply, and none of those is acknowledged
    either, so that the proxy may not recycle them."""
    bind = {"xts_socket": scene.mine.number, "domain": 4, "local": Endpoint.of(LOOPBACK, 0)}
    for token in range(3 * table.FRAME_WINDOW_MAX):
        scene.sequenced("XTS_CMD_BIND", fields=bind | {"token": token}, id=scene.mine.proxy_id, frame_ack=0)


def _credits_beyond_all(scene: Scene) -> None:
    for _ in range(2):
        scene.hostile.send("XTS_CMD_SEND", id=scene.mine.proxy_id, post_credits=table.CREDITS_MAX)


VIOLATIONS: dict[str, Callable[[Scene], None]] = {
    "a SEND cut in its fixed part": lambda s: s.raw(s.frame("XTS_CMD_SEND", id=s.mine.proxy_id)[:-1]),
    "a PING cut short": lambda s: s.raw(s.frame("XTS_LINK_PING")[:-1]),
    "an unknown type": lambda s: _changed(s, table.ETH_BYTES, 200, width=1),
    "a message of the proxy's": lambda s: s.sequenced("XTS_REPLY_RECV", id=s.mine.proxy_id),
    "a length past the frame": lambda s: s.sequenced("XTS_CMD_SEND", b"x", fields={"length": 9999}, id=s.mine.proxy_id),
    "bytes after the payload": lambda s: s.sequenced(
        "XTS_CMD_SEND", bytes(99), fields={"length": 1}, id=s.mine.proxy_id
    ),
    "an option's length past the frame": lambda s: s.sequenced(
        "XTS_CMD_SETSOCKOPT", fields={"length": 60000, "domain": 4}, id=s.mine.proxy_id
    ),
    "a sequence jump of one": lambda s: s.raw(s.frame("XTS_CMD_SEND", seqno=(s.hostile.link.sent + 1) % 256)),
    "a sequence jump of 255": lambda s: s.raw(s.frame("XTS_CMD_SEND", seqno=(s.hostile.link.sent - 1) % 256)),
    "an acknowledgement of frames never sent": lambda s: s.raw(
        s.frame("XTS_LINK_FRAME_ACK", frame_ack=(s.hostile.link.received + 1) % 256)
    ),
    "more data than credits": lambda s: s.sequenced("XTS_CMD_SEND", bytes(16385), id=s.mine.proxy_id),
    "more credits than there can be": _credits_beyond_all,
    "credits over the limit in one message": lambda s: _changed(s, table.HEAD_BYTES, table.CREDITS_MAX + 1),
    "an address of IP version 5": lambda s: s.sequenced(
        "XTS_CMD_BIND", fields={"xts_socket": 5, "domain": 4, "local": Endpoint(5)}
    ),
    "a domain of 5": lambda s: s.sequenced("XTS_CMD_CONNECT", fields={"xts_socket": 5, "domain": 5}),
    "data after FIN": _data_after_fin,
    "data on a socket that is not connected": _data_on_an_unconnected_socket,
    "HELLO twice": lambda s: s.raw(
        s.frame(
            "XTS_LINK_HELLO",
            fields={"version": 1, "frame_window": 64, "largest_message": table.FRAME_BYTES_MAX, "epoch": EPOCH},
        )
    ),
}


def was_reset(peer: socket.socket) -> None:
    """Reads to the end, which must be a reset, if need be one after the end of the stream."""
    try:
        while peer.recv(65536):
            pass
    except ConnectionResetError:
        return
    poll = select.poll()
    poll.register(peer, 0)
    assert poll.poll(5000), "no reset came"
    assert peer.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) in (errno.ECONNRESET, errno.EPIPE)


def reopened(scene: Scene, epoch: int) -> ScriptedHost:
    """The next process on the hostile channel's queue."""
    again = ScriptedHost(scene.hostile.queue, epoch)
    return again.open()


@pytest.mark.parametrize("violation", VIOLATIONS)
def test_a_violation_ends_the_channel_and_nothing_else(scene: Scene, server: socket.socket, violation: str) -> None:
    VIOLATIONS[violation](scene)
    assert scene.hostile.wait_down() == errno.EPROTO
    was_reset(scene.mine.peer)
    stats, channel = scene.worker.stats(), scene.worker.channel()
    link = channel.link
    assert stats.link_failures == 1
    assert stats.bad_messages + link.malformed + link.sequence_errors + link.credit_errors == 1
    assert (channel.connections, channel.listeners, channel.window_bytes) == (0, 0, 0)
    scene.still_serves(scene.bystander)
    with establish(reopened(scene, EPOCH + 1), server).peer:
        assert scene.worker.stats().channels_up == 2


def test_a_host_that_ignores_the_window(scene: Scene) -> None:
    """Replies it does not acknowledge fill the window towards it; those that wait fill the one towards the proxy."""
    scene.hostile.link.recycled = 0
    _more_than_the_window(scene)
    scene.worker.wait(lambda s: s.link_failures == 1, "the channel is still up")
    assert scene.worker.channel().link.credit_errors == 1
    was_reset(scene.mine.peer)


def swallow(host: ScriptedHost) -> None:
    """Takes frames off the queue, unread."""
    while frame := host.queue.receive():
        frame.recycle()


# --- epochs ------------------------------------------------------------------------------------------------


def test_another_epoch_ends_the_one_before(scene: Scene, server: socket.socket) -> None:
    again = reopened(scene, EPOCH + 1)
    assert scene.mine.peer.recv(10) == b"", "closed as the kernel does for a process that has ended"
    again.send("XTS_CMD_SEND", b"into the past", id=scene.mine.proxy_id)
    scene.worker.wait(lambda s: s.bad_identifiers == 1, "an identifier of the old epoch still works")
    with establish(again, server).peer:
        assert scene.worker.channel().connections == 1


def test_a_storm_of_epochs(scene: Scene, server: socket.socket) -> None:
    for epoch in range(2, 300):
        scene.raw(
            scene.frame(
                "XTS_LINK_HELLO",
                fields={
                    "version": 1,
                    "frame_window": 64,
                    "largest_message": table.FRAME_BYTES_MAX,
                    "epoch": epoch,
                },
            )
        )
        swallow(scene.hostile)
    with establish(reopened(scene, 1 << 40), server).peer:
        assert scene.worker.stats().channels_up == 2
        assert scene.worker.channel().connections == 1


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"version": 9}, errno.EPROTONOSUPPORT),
        ({"required": 1 << 60}, errno.EOPNOTSUPP),
        ({"frame_window": 1}, errno.EINVAL),
        ({"epoch": 0}, errno.EINVAL),
    ],
)
def test_a_hello_that_is_refused_ends_what_was(scene: Scene, changes: dict[str, int], error: int) -> None:
    fields = {"version": 1, "frame_window": 64, "largest_message": table.FRAME_BYTES_MAX, "epoch": EPOCH + 1}
    scene.raw(scene.frame("XTS_LINK_HELLO", fields=fields | changes))
    answer = scene.hostile.queue.wait(5000)
    decoded = codec.decode(bytes(answer))
    answer.recycle()
    assert (decoded.name, decoded.error) == ("XTS_LINK_HELLO_ACK", error)
    scene.worker.wait(lambda s: s.channels_up == 1, "the channel is still up")
    with pytest.raises(ConnectionResetError):
        scene.mine.peer.recv(10)


# --- noise -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(8))
def test_noise(scene: Scene, server: socket.socket, seed: int) -> None:
    """Legal and broken frames of all messages, with fields at random; a new epoch whenever the channel has ended."""
    dice = random.Random(seed)
    host = scene.hostile
    for epoch in range(EPOCH + 1, EPOCH + 40):
        for _ in range(dice.randrange(60)):
            message = dice.choice([m for m in table.MESSAGES if m.sender != "proxy" and m.code not in (16, 21)])
            frame = bytearray(
                codec.encode(
                    Frame(
                        message.name,
                        {},
                        dice.randbytes(dice.choice([0, 0, 7, 500])) if message.payload else b"",
                        flags=dice.choice([0, 0, dice.randrange(256)]),
                        id=dice.choice([0, 1 << 20, 0x100001, UNKNOWN]),
                    )
                )
            )
            for _ in range(dice.choice([0, 1, 3, 9])):
                frame[dice.randrange(17, len(frame))] = dice.choice([0, 1, 4, 6, 255, dice.randrange(256)])
            if lib.xts_link_credits(host.link) and message.sequenced:
                lib.xts_link_seal(host.link, ffi.from_buffer(frame))
                host.queue.send(bytes(frame)[: None if dice.random() < 0.98 else dice.randrange(1, len(frame))])
            host.pump(0)
            host.backlog.clear()
        host = ScriptedHost(host.queue, epoch)
        host.open()
    with establish(host, server).peer:
        scene.still_serves(scene.bystander)
