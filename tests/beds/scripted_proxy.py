"""A scripted proxy for several processes of the host library: it attaches them over shared memory, speaks the link
properly and says whatever a test wants. It opens no TCP socket. For one process that is told what to call:
one_process_proxy.py."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from xts_messages._native import ffi, lib
from xts_messages.attaching.attachments import Attached, Grant, Peer
from xts_messages.attaching.endpoint import Endpoint
from xts_messages.queues import queue
from xts_messages.queues.queue_kinds import PROXY
from xts_messages.queues.shm import create_shm
from xts_messages.wire import codec
from xts_messages.wire.codec import Endpoint as Address
from xts_messages.wire.codec import Frame

from beds.patience import SLOWER

WINDOW = 64 * 1024
PATIENCE_S = 10.0 * SLOWER
PEER = Address.of("198.18.0.2", 80)
LOCAL = Address.of("198.18.0.1", 43210)
#: With these the library makes a listener again.
MADE_AGAIN = {"XTS_CMD_SETSOCKOPT", "XTS_CMD_BIND", "XTS_CMD_LISTEN"}


class Channel:
    """One attached process, as its proxy sees it. Its link opens by itself when the first message is expected."""

    def __init__(self, made: queue.Queue, poll: Callable[[], None], **changes: int) -> None:
        self.queue = made
        self.poll = poll
        self.backlog: list[Frame] = []
        self.gone = False
        self.link = ffi.new("struct xts_link *")
        config = ffi.new("struct xts_link_config *")
        config.role = lib.XTS_LINK_PROXY
        config.local_mac, config.peer_mac = made.local_mac, made.peer_mac
        config.frame_window, config.largest_message = made.frame_window, made.largest_message
        config.sockets_max = 100
        for name, value in changes.items():
            setattr(config, name, value)
        assert lib.xts_link_init(self.link, config, time.monotonic_ns()) == 0

    @property
    def up(self) -> bool:
        return bool(self.link.state == lib.XTS_LINK_UP)

    def frame(self, name: str, payload: bytes = b"", **changes: Any) -> bytes:
        """A frame that the link of the process would let pass, except for what is changed."""
        values: dict[str, Any] = {
            "seqno": int(self.link.sent),
            "frame_ack": int(self.link.recycled),
            "destination": self.queue.peer_mac,
            "source": self.queue.local_mac,
        }
        return codec.encode(Frame(name, changes.pop("fields", {}), payload, **(values | changes)))

    def offer(self, frame: bytes) -> bool:
        """Sends bytes as they are, unless the queue is full."""
        try:
            self.queue.send(frame)
        except BlockingIOError:
            return False
        return True

    def raw(self, frame: bytes) -> None:
        """Sends bytes as they are; waits while the queue is full."""
        deadline = time.monotonic() + PATIENCE_S
        while not self.offer(frame):
            assert time.monotonic() < deadline, "the process does not take frames any more"
            self.poll()

    def sequenced(self, name: str, payload: bytes = b"", **changes: Any) -> None:
        """Sends such a frame as the next of the sequence, whatever the frame credits say."""
        self.raw(self.frame(name, payload, **changes))
        self.link.sent = (self.link.sent + 1) % 256

    def send(self, name: str, payload: bytes = b"", **changes: Any) -> None:
        """Sends a message, properly sealed; waits for a frame credit."""
        frame = bytearray(self.frame(name, payload, **changes))
        self._until(lambda: lib.xts_link_credits(self.link) > 0, "no frame credit")
        lib.xts_link_seal(self.link, ffi.from_buffer(frame))
        self.raw(bytes(frame))

    def receive(self) -> Frame:
        """The next message."""
        self._until(lambda: bool(self.backlog), "no message")
        return self.backlog.pop(0)

    def expect(self, name: str) -> Frame:
        """The next message, which must be of this type; refusals of new connections are passed over."""
        while (frame := self.receive()).name == "XTS_CMD_NEWCONN_ACK" != name:
            assert frame.error
        assert frame.name == name, frame
        return frame

    def wait_down(self) -> int:
        """Waits for the end of the link; its errno."""
        self._until(lambda: self.link.state == lib.XTS_LINK_DOWN, "the link is still up")
        return int(self.link.error)

    def accept_connect(self, proxy_id: int = 1, credits: int = WINDOW) -> int:
        """Answers the CONNECT that comes next, after what the library asks for its listener again; the XTS socket.
        Refusals of new connections are passed over."""
        while (connect := self.receive()).name != "XTS_CMD_CONNECT":
            refusal = connect.name == "XTS_CMD_NEWCONN_ACK" and connect.error
            assert connect.name in MADE_AGAIN or refusal, connect
        number = connect.fields["xts_socket"]
        assert isinstance(number, int)
        fields = {"proxy_id": proxy_id, "post_credits": credits, "local": LOCAL, "peer": PEER}
        self.send("XTS_REPLY_CONNECT_ACK", id=number, fields=fields)
        return number

    def _until(self, reached: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not reached():
            assert not self.gone, f"{what}: the process has gone"
            assert time.monotonic() < deadline, what
            self.pump()

    def pump(self) -> None:
        """Sends what the link has due, and takes one frame if one comes within 10 ms."""
        self.poll()
        self.say_due()
        self.take(10)

    def say_due(self) -> None:
        """Sends the control frames that are due."""
        memory = ffi.new("uint8_t[128]")
        while length := lib.xts_link_control(self.link, memory, time.monotonic_ns()):
            self.raw(bytes(ffi.buffer(memory, length)))

    def take(self, timeout_ms: int) -> None:
        """Takes one frame, if one comes in time, and says nothing to it."""
        try:
            taken = self.queue.wait(timeout_ms)
        except TimeoutError:
            return
        except BrokenPipeError:
            self.gone = True
            return
        data = bytes(taken)
        taken.recycle()
        head = ffi.new("struct xts_head *")
        first = min(len(data), 128)
        verdict = lib.xts_link_receive(self.link, ffi.from_buffer(data), first, len(data), time.monotonic_ns(), head)
        if verdict == lib.XTS_LINK_DELIVER:
            lib.xts_link_recycled(self.link)
            self.backlog.append(codec.decode(data))


class ScriptedProxy:
    """An endpoint at a path, and a channel for each process that attaches. Context manager.

    `spoil` may change the reply of an attachment (`struct xts_attach_reply *`) before it is sent.
    """

    def __init__(self, path: Path, spoil: Callable[[Any], None] = lambda _: None) -> None:
        self.path = path
        self.spoil = spoil
        self.granted: list[queue.Queue] = []
        self.attached = 0
        self.taken = 0
        self.endpoint = Endpoint(str(path), self._allocate, self._attached)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.endpoint.close()
        for made in self.granted:
            made.close()

    def _allocate(self, _peer: Peer, _epoch: int) -> Grant:
        area = create_shm()
        self.granted.append(area.open(PROXY))
        os.close(area.proxy_bell)
        self.spoil(area.geometry)
        return Grant(area.geometry, (area.memfd, area.host_bell))

    def _attached(self, _attached: Attached) -> None:
        self.attached += 1

    def poll(self) -> None:
        self.endpoint.process(0)

    def next_channel(self, patience_s: float = PATIENCE_S, **changes: int) -> Channel:
        """The channel of the next attachment. `changes` are fields of struct xts_link_config. TimeoutError after
        patience_s."""
        deadline = time.monotonic() + patience_s
        while self.attached == self.taken:
            if time.monotonic() >= deadline:
                raise TimeoutError(errno.ETIMEDOUT, "nobody attaches")
            self.endpoint.process(0.02)
        self.taken += 1
        return Channel(self.granted[self.taken - 1], self.poll, **changes)
