"""Applications, shared memory, a relay, a trunk over RDMA, and a worker of the proxy in this process."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any, Self

from xts_messages.attaching.attachments import Attached, Grant, NotReady, Peer
from xts_messages.attaching.endpoint import Endpoint
from xts_messages.native import ffi, lib
from xts_messages.queues.queue_kinds import PROXY, QueueOptions
from xts_messages.queues.rdma import RdmaEnd
from xts_messages.queues.shm import create_shm
from xts_messages.wire.wire_table import RELAYED_WINDOW
from xts_proxy._native import ffi as worker_ffi
from xts_proxy._native import lib as worker_lib

from beds.rdma import PATIENCE_S, Acceptor, Device
from beds.scripted_host import Worker

RELAY = Path(__file__).parents[1] / "vm" / "programs" / "rdma_relay.py"
LARGEST_MESSAGE = 16384
_CHANNELS = "struct xts_channel_stats[16]"
REPORT_BYTES = int(ffi.sizeof("struct xts_relay_report"))


class Trunk(AbstractContextManager["Trunk"]):
    """Serves `endpoint` while it is open."""

    def __init__(self, device: Device, acceptor: Acceptor, folder: Path) -> None:
        self.device, self.acceptor = device, acceptor
        self.path = folder / "endpoint.sock"
        self.reports: list[tuple[int, int, int]] = []  # what, number, error
        self._numbers = iter(range(1, 1000))
        self._stack, self._stop = ExitStack(), threading.Event()

    def __enter__(self) -> Self:
        self.worker = self._stack.enter_context(Worker(relayed_max=8))
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control.setblocking(False)
        end = RdmaEnd(self.device.ifindex, QueueOptions(64))
        with theirs:
            words = [sys.executable, str(RELAY), str(theirs.fileno()), str(self.device.ifindex)]
            words += [self.device.address, str(self.acceptor.service)]
            self.relay = subprocess.Popen(words, pass_fds=(theirs.fileno(),))
        self._geometry = end.geometry
        life_fd = self.acceptor.accept(end)
        queue = end.adopt(PROXY, os.dup(life_fd))
        native = worker_ffi.cast("struct xts_queue *", queue.detach())
        added = worker_lib.xts_worker_add_channel(self.worker.native, native, life_fd, 0, self.worker.tenant, ffi.NULL)
        assert added == 0
        self._endpoint = Endpoint(str(self.path), self._grant, released=self._released)
        self._serving = threading.Thread(target=self._serve)
        self._serving.start()
        return self

    def until_reported(self, what: int) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while all(report[0] != what for report in self.reports):
            assert time.monotonic() < deadline, f"the relay does not report {what}: {self.reports}"
            self._stop.wait(0.01)

    def channels(self) -> int:
        """How many the worker has: the trunk and those on it."""
        return int(worker_lib.xts_worker_channels(self.worker.native, worker_ffi.new(_CHANNELS), 16))

    def until_no_channel(self) -> None:
        """The worker has no channel any more."""
        deadline = time.monotonic() + PATIENCE_S
        while self.channels():
            assert time.monotonic() < deadline, "the worker keeps a channel"
            self._stop.wait(0.01)

    def _serve(self) -> None:
        while not self._stop.is_set():
            self._endpoint.process(0.02)
            try:
                while data := self._control.recv(REPORT_BYTES):
                    report = ffi.from_buffer("struct xts_relay_report *", data)
                    self.reports.append((int(report.what), int(report.number), int(report.error)))
            except OSError:
                continue

    def _grant(self, peer: Peer, epoch: int) -> Grant:
        if all(report[0] != lib.XTS_RELAY_UP for report in self.reports):
            raise NotReady
        area, number = create_shm(RELAYED_WINDOW, LARGEST_MESSAGE), next(self._numbers)
        area.geometry.epoch, area.geometry.relayed = epoch, number
        for name in ("ethertype", "queue_id", "local_mac", "peer_mac", "interface"):
            setattr(area.geometry, name, getattr(self._geometry, name))
        owner = {"uid": peer.uid, "pid": peer.pid}
        order = ffi.new("struct xts_relay_order *", {"what": lib.XTS_RELAY_ADD, "number": number, **owner})
        order.geometry = area.geometry[0]
        socket.send_fds(self._control, [bytes(ffi.buffer(order))], [area.memfd, area.proxy_bell])
        os.close(area.proxy_bell)
        return Grant(area.geometry, (area.memfd, area.host_bell), tag=number)

    def _released(self, attached: Attached) -> None:
        tag: Any = attached.tag
        order = ffi.new("struct xts_relay_order *", {"what": lib.XTS_RELAY_REMOVE, "number": tag})
        self._control.send(bytes(ffi.buffer(order)))

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._serving.join()
        self._endpoint.close()
        self._control.close()
        self.relay.wait(PATIENCE_S)
        self._stack.close()
        while self.acceptor.hear() != b"ended":
            pass
