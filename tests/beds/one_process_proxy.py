"""A scripted proxy for one process of the host library at a time (caller.py): it serves the endpoint over shm, speaks
the link properly and says whatever a test wants. For several processes: scripted_proxy.py."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from xts_messages._native import ffi, lib
from xts_messages.attaching.attachments import Grant, Peer
from xts_messages.attaching.endpoint import Endpoint
from xts_messages.queues import queue
from xts_messages.queues.queue_kinds import PROXY
from xts_messages.queues.shm import create_shm
from xts_messages.wire import codec
from xts_messages.wire import wire_table as table

from beds.patience import SLOWER

WINDOW = 64 * 1024
PATIENCE_S = 10.0 * SLOWER


class OneProcessProxy:
    """Serves one process at a time. Context manager."""

    def __init__(self, directory: Path, frame_window: int = 32, features: int = 0) -> None:
        self.features = features
        self.path = directory / "endpoint.sock"
        self.frame_window = frame_window
        self.queue: queue.Queue | None = None
        self.link: Any = None
        self.backlog: list[codec.Frame] = []
        self.mute = False  # says nothing, not even what the link has due
        self.answer_hello: int | None = 0  # 0: properly; an errno: refuses; None: not at all
        self.endpoint = Endpoint(str(self.path), self._allocate)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.endpoint.close()
        if self.queue is not None:
            self.queue.close()

    def _allocate(self, _peer: Peer, _epoch: int) -> Grant:
        area = create_shm(self.frame_window)
        self.queue = area.open(PROXY)
        os.close(area.proxy_bell)
        area.geometry.ethertype = table.ETHERTYPE
        self.link = self._new_link()
        return Grant(area.geometry, (area.memfd, area.host_bell))

    def _new_link(self) -> Any:
        assert self.queue is not None
        link = ffi.new("struct xts_link *")
        config = ffi.new("struct xts_link_config *")
        config.role = lib.XTS_LINK_PROXY
        config.local_mac, config.peer_mac = self.queue.local_mac, self.queue.peer_mac
        config.frame_window, config.largest_message = self.frame_window, self.queue.largest_message
        config.sockets_max = 1000
        config.features = self.features
        assert lib.xts_link_init(link, config, time.monotonic_ns()) == 0
        return link

    def replaced(self, ticket: int) -> None:
        """The process of the proxy has died, and the next one has its queue: the link opens again."""
        epoch = self.link.epoch
        self.link = self._new_link()
        lib.xts_link_replace(self.link, epoch, ticket)
        lib.xts_link_replay_ends(self.link)
        self.until(lambda: self.up, "the host does not say HELLO")

    @property
    def up(self) -> bool:
        return self.link is not None and bool(self.link.state == lib.XTS_LINK_UP)

    # --- frames --------------------------------------------------------------------------------------

    def raw(self, frame: bytes) -> None:
        assert self.queue is not None
        self.queue.send(frame)

    def send(self, name: str, payload: bytes = b"", flags: int = 0, error: int = 0, id: int = 0, **fields: Any) -> None:
        """Sends a message, properly sealed; waits for a frame credit."""
        frame = bytearray(codec.encode(codec.Frame(name, fields, payload, flags=flags, error=error, id=id)))
        self.send_encoded(frame)

    def send_encoded(self, frame: bytearray) -> None:
        end = time.monotonic() + PATIENCE_S
        while not lib.xts_link_credits(self.link):
            self.pump()
            assert time.monotonic() < end, "no frame credit"
        lib.xts_link_seal(self.link, ffi.from_buffer(frame))
        self.raw(bytes(frame))

    def pump(self) -> None:
        """Serves the endpoint, and the link once."""
        self.endpoint.process(0.002)
        if self.queue is None:
            return
        memory, head = ffi.new("uint8_t[128]"), ffi.new("struct xts_head *")
        while (frame := self.queue.receive()) is not None:
            data = bytes(frame)
            frame.recycle()
            size = min(len(data), 128)
            if not self.up and self.answer_hello != 0:
                self._refuse(data)
                continue
            verdict = lib.xts_link_receive(self.link, ffi.from_buffer(data), size, len(data), time.monotonic_ns(), head)
            if verdict == lib.XTS_LINK_DELIVER:
                lib.xts_link_recycled(self.link)
                self.backlog.append(codec.decode(data))
        while not self.mute and (length := lib.xts_link_control(self.link, memory, time.monotonic_ns())):
            self.raw(bytes(ffi.buffer(memory, length)))

    def _refuse(self, data: bytes) -> None:
        hello = codec.decode(data)
        if self.answer_hello and hello.name == "XTS_LINK_HELLO":
            assert self.queue is not None
            answer = codec.Frame(
                "XTS_LINK_HELLO_ACK", {**dict.fromkeys(("version", "frame_window", "largest_message", "features",
                "sockets_max"), 0), "epoch": hello.fields["epoch"]}, error=self.answer_hello,
                destination=self.queue.peer_mac, source=self.queue.local_mac,
            )  # fmt: skip
            self.raw(codec.encode(answer))

    def until(self, condition: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < end, what
            self.pump()

    def receive(self, what: str = "message") -> codec.Frame:
        """The next one."""
        self.until(lambda: bool(self.backlog), f"no {what} came")
        return self.backlog.pop(0)

    def expect(self, name: str) -> codec.Frame:
        """The next message, which must be of this type."""
        frame = self.receive(name)
        assert frame.name == name, frame
        return frame

    def down(self) -> int:
        """Waits for the end of the link; its errno."""
        self.until(lambda: not self.up, "the link is still up")
        return int(self.link.error)


def name_of(error: int) -> str:
    return errno.errorcode[error]
