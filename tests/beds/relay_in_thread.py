"""A relay in a thread of its own, the agent's end of its orders, and the proxy's end of its trunk."""

from __future__ import annotations

import fcntl
import socket
import struct
import termios
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from xts_messages._native import ffi, lib
from xts_messages.queues.queue_kinds import PROXY, QueueOptions
from xts_messages.wire import codec
from xts_messages.wire.wire_table import FEATURES

from beds.operated_proxy import wait
from beds.patience import SLOWER
from beds.queued_links import EPOCH, End, link_of
from beds.ready import readable
from beds.third_kind import open_pair

OPTIONS = QueueOptions(32)
PATIENCE_S = 30.0 * SLOWER
_WORD = struct.Struct(">Q")


@dataclass
class TrunkEnd(End):
    """Keeps what is said on the trunk outside its link (OVER): epochs and keys."""

    words: list[tuple[int, list[int]]] = field(default_factory=list)

    def receive(self, now_ns: int) -> bool:
        if not (found := self._next(now_ns)):
            return False
        frame, data, _, verdict = found
        if verdict == lib.XTS_LINK_DELIVER:
            lib.xts_link_recycled(self.link)
        if verdict == lib.XTS_LINK_SAID:
            said = codec.decode(data)
            self.words.append((said.fields["epoch"], [key for (key,) in _WORD.iter_unpack(said.payload)]))
        frame.recycle()
        return True


class RelayInThread:
    """`features`: names of those that the proxy has besides RELAY."""

    def __init__(self, kind: int, *features: str, silent_ms: int = 0) -> None:
        trunk, queue = open_pair(kind, OPTIONS)
        self._features = sum(FEATURES[name][0] for name in ("RELAY", *features))
        self.proxy = TrunkEnd(PROXY, queue, self._new_link(queue))
        self.agent, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.config = ffi.new("struct xts_relay_config *")
        self.config.trunk = ffi.cast("struct xts_queue *", trunk.detach())
        self.config.epoch, self.config.channels_max = EPOCH, 4
        self.config.control_fd, self.config.listen_fd = theirs.fileno(), -1
        self.config.silent_ms = silent_ms
        self._theirs = theirs
        self.thread = threading.Thread(target=lambda: lib.xts_relay_run(self.config))
        self.thread.start()
        theirs.detach()

    def _new_link(self, queue: Any) -> Any:
        return link_of(PROXY, queue, OPTIONS.frame_window, time.monotonic_ns(), features=self._features)

    def report(self) -> tuple[int, int]:
        """The next: what, and an error."""
        assert readable(self.agent, PATIENCE_S)
        report = ffi.from_buffer("struct xts_relay_report *", self.agent.recv(ffi.sizeof("struct xts_relay_report")))
        return int(report.what), int(report.error)

    def serve(self, seconds: float, until: Callable[[], bool] = lambda: False) -> None:
        """The proxy receives and answers for so long, or until something."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and not until():
            now_ns = time.monotonic_ns()
            self.proxy.tick(now_ns)
            while self.proxy.receive(now_ns):
                pass
            self.proxy.pump(now_ns)
            readable(self.agent, 0.01)

    def comes_up(self) -> None:
        """The proxy answers its first HELLO."""
        self.serve(PATIENCE_S, lambda: readable(self.agent))
        assert self.report() == (lib.XTS_RELAY_UP, 0)

    def proxy_dies(self) -> None:
        """Another process of the proxy has the trunk, has told the relay, and has not answered its HELLO yet."""
        while self.proxy.receive(time.monotonic_ns()):
            pass
        self.proxy.link = self._new_link(self.proxy.queue)
        lib.xts_link_replace(self.proxy.link, EPOCH, 1)
        lib.xts_link_replay_ends(self.proxy.link)
        self.proxy.pump(time.monotonic_ns())
        wait(self._something_came, "HELLO")

    def _something_came(self) -> bool:
        came = self.proxy.queue.arm() or readable(self.proxy.queue.fileno())
        self.proxy.queue.disarm()
        return came

    def order(self, what: int, epoch: int = 0, payload: bytes = b"") -> None:
        """One without descriptors, which the relay has read when this returns."""
        order = ffi.new("struct xts_relay_order *", {"what": what})
        order.geometry.epoch, order.geometry.token_bytes = epoch, len(payload)
        ffi.memmove(order.geometry.token, payload, len(payload))
        self.agent.send(bytes(ffi.buffer(order)))
        wait(lambda: not self._unread(), "the relay")

    def _unread(self) -> int:
        return int(struct.unpack("i", fcntl.ioctl(self.agent, termios.TIOCOUTQ, bytes(4)))[0])

    def say_over(self, epoch: int, keys: list[int]) -> None:
        """As the agent does."""
        self.order(lib.XTS_RELAY_OVER, epoch, b"".join(map(_WORD.pack, keys)))

    def close(self) -> None:
        """Ends it, and waits for its thread."""
        self.agent.close()
        self.thread.join(PATIENCE_S)
        assert not self.thread.is_alive()
        self.proxy.queue.close()
