"""Queues over RDMA in the virtual machine of tests/vm: a software device, and both ends of a queue in one process.

Whoever accepts is a process of its own (tests/vm/programs/rdma_acceptor.py), which has no queue pair.
"""

from __future__ import annotations

import itertools
import os
import resource
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from xts_messages.queues.queue import Queue
from xts_messages.queues.queue_kinds import HOST, PROXY, RDMA, QueueOptions
from xts_messages.queues.rdma import RdmaEnd
from xts_messages.queues.rdma_cm import Connection, Options, connect

from beds.patience import SLOWER
from beds.queued_links import DistantLinks

ACCEPTOR = Path(__file__).parents[1] / "vm" / "programs" / "rdma_acceptor.py"
ADDRESSES = {"rxe": "10.9.0.1", "siw": "10.9.1.1"}
#: Each acceptor has one of its own.
_SERVICES = itertools.count(7700)
#: The software devices of the kernel: their module, and the interface that they are put on.
DEVICES = {"rxe": "rdma_rxe", "siw": "siw"}
PATIENCE_S = 12.0 * SLOWER


class Device:
    """A software RDMA device on an interface. Unless these are given it talks with itself, at an end of a veth pair of
    its own. It stays: taking it away waits for all that is open there, and the machine goes after the tests."""

    def __init__(self, kind: str, *, name: str = "", interface: str = "", address: str = "") -> None:
        self.kind, self.name, self.interface = kind, name or f"xts{kind}", interface or f"v{kind}"
        self.address = address or ADDRESSES[kind]

    def missing(self) -> str:
        """Why there cannot be one; empty: there can."""
        return modules_missing(self.kind)

    def make(self) -> None:
        """Makes it, with its interface."""
        unlimited_memory()
        _ip("link", "add", self.interface, "type", "veth", "peer", "name", f"{self.interface}p")
        for end in (self.interface, f"{self.interface}p"):
            _ip("link", "set", end, "up")
        _ip("addr", "add", f"{self.address}/24", "dev", self.interface)
        self.add()

    def add(self) -> None:
        """Makes it, on an interface that is there."""
        _run("rdma", "link", "add", self.name, "type", self.kind, "netdev", self.interface)

    def delete(self) -> None:
        """Takes it away, which waits until nobody has it open. Its interface stays."""
        _run("rdma", "link", "delete", self.name)

    @contextmanager
    def cut(self) -> Iterator[None]:
        """Inside, frames do not arrive."""
        _ip("link", "set", self.interface, "down")
        try:
            yield
        finally:
            _ip("link", "set", self.interface, "up")

    @property
    def ifindex(self) -> int:
        return socket.if_nametoindex(self.interface)


def modules_missing(kind: str, *more: str) -> str:
    """Which module the kernel lacks for devices of this kind; empty: none."""
    for module in (DEVICES[kind], "rdma_ucm", "ib_uverbs", *more):
        if subprocess.run(["modprobe", module], capture_output=True, check=False).returncode:
            return f"this kernel has no {module}"
    return ""


def unlimited_memory() -> None:
    """Both ends are this process's, and some devices count locked memory whoever locks it."""
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def _run(*words: str) -> None:
    subprocess.run(words, check=True, timeout=12 * SLOWER)


def _ip(*words: str) -> None:
    _run("ip", *words)


class Acceptor(AbstractContextManager["Acceptor"]):
    """The process that accepts."""

    def __init__(self, address: str) -> None:
        self.service = next(_SERVICES)
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(PATIENCE_S)
        with theirs:
            words = [sys.executable, str(ACCEPTOR), str(theirs.fileno()), address, str(self.service)]
            self.process = subprocess.Popen(words, pass_fds=(theirs.fileno(),))
        assert self.hear() == b"listening"

    def hear(self) -> bytes:
        return self.socket.recv(512)

    def accept(self, end: RdmaEnd) -> int:
        """Accepts the next peer for this end; returns its life."""
        self.socket.send(str(end.qp_number).encode())
        while True:
            said, fds, _, _ = socket.recv_fds(self.socket, 512, 1)
            if said == b"established":
                return fds[0]
            if not said.startswith(b"step"):
                raise ConnectionError(said.decode())
            end.step(said[4:])
            self.socket.send(b"done")

    def __exit__(self, *_: object) -> None:
        self.socket.close()
        try:
            self.process.wait(2 * SLOWER)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Pair(AbstractContextManager["Pair"]):
    """Two ends that are connected: the host's has connected, the proxy's was accepted for."""

    host: Queue
    proxy: Queue
    connection: Connection

    def __init__(
        self,
        device: Device,
        acceptor: Acceptor,
        options: QueueOptions,
        proxy_options: QueueOptions | None = None,
        how: Options | None = None,
    ) -> None:
        self.acceptor = acceptor
        self.ends = RdmaEnd(device.ifindex, options), RdmaEnd(device.ifindex, proxy_options or options)
        host, proxy = self.ends
        came: list[int] = []
        accepting = threading.Thread(target=lambda: came.append(acceptor.accept(proxy)))
        accepting.start()
        self.connection = connect(device.address, acceptor.service, host.qp_number, host.step, how or Options())
        accepting.join(PATIENCE_S)
        self.numbers = host.numbers, proxy.numbers
        self.host = host.adopt(HOST, os.dup(self.connection.life.fileno()))
        self.proxy = proxy.adopt(PROXY, came[0])

    def __exit__(self, *_: object) -> None:
        self.host.close()
        self.proxy.close()
        self.connection.close()
        while self.acceptor.hear() != b"ended":
            pass


def until_readable(queue: Queue, timeout_s: float = PATIENCE_S) -> None:
    """Sleeps as the owner of a queue does."""
    ready = select.poll()
    ready.register(queue.fileno(), select.POLLIN)
    if not queue.arm():
        assert ready.poll(int(timeout_s * 1000)), "nothing has happened"
        queue.disarm()


class RdmaLinks(DistantLinks):
    """Two links over such a pair."""

    def __init__(self, device: Device, acceptor: Acceptor, options: QueueOptions) -> None:
        self._made = Pair(device, acceptor, options)
        super().__init__(RDMA, options)

    def pair(self, kind: int, options: QueueOptions) -> tuple[Queue, Queue]:
        return self._made.host, self._made.proxy

    def close(self) -> None:
        for end in self.ends:
            end.forget()
        self._made.__exit__()
