"""Queues over RDMA in the virtual machine of tests/vm: a software device, and both ends of a queue in one process.

Whoever accepts is a process of its own (tests/vm/programs/rdma_acceptor.py), which has no queue pair.
"""

from __future__ import annotations

import itertools
import os
import random
import resource
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol

from xts_messages._native import lib
from xts_messages.queues.queue import Queue
from xts_messages.queues.queue_kinds import CARRIED, HOST, PROXY, RDMA, QueueEnd, QueueOptions, open_ends
from xts_messages.queues.rdma import RdmaCarrier, RdmaEnd
from xts_messages.queues.rdma_cm import Connection, Options, connect

from beds.counted_calls import CountedCalls
from beds.patience import SLOWER
from beds.queued_links import DistantLinks

ACCEPTOR = Path(__file__).parents[1] / "vm" / "programs" / "rdma_acceptor.py"
ADDRESSES = {"rxe": "10.9.0.1", "siw": "10.9.1.1"}
#: Each acceptor has one of its own.
_SERVICES = itertools.count(7700)
#: The software devices of the kernel: their module, and the interface that they are put on.
DEVICES = {"rxe": "rdma_rxe", "siw": "siw"}
PATIENCE_S = 12.0 * SLOWER
#: Of a queue's frames: with several buffers for one, or not.
LARGEST = {False: int(lib.XTS_FRAME_BYTES_MAX), True: int(lib.XTS_FRAME_BYTES_SINGLE)}


class Device:
    """A software RDMA device on an interface. Unless these are given it talks with itself, at an end of a veth pair of
    its own. It stays, for the next program of tests, too: taking it away waits for all that is open there, and the
    machine goes after the tests."""

    def __init__(self, kind: str, *, name: str = "", interface: str = "", address: str = "") -> None:
        self.kind, self.name, self.interface = kind, name or f"xts{kind}", interface or f"v{kind}"
        self.address = address or ADDRESSES[kind]

    def missing(self) -> str:
        """Why there cannot be one; empty: there can."""
        return modules_missing(self.kind)

    def make(self) -> None:
        """Makes it, with its interface, as far as they are not there."""
        unlimited_memory()
        if not is_interface(self.interface):
            _ip("link", "add", self.interface, "type", "veth", "peer", "name", f"{self.interface}p")
        for end in (self.interface, f"{self.interface}p"):
            _ip("link", "set", end, "up")
        _ip("addr", "replace", f"{self.address}/24", "dev", self.interface)
        self.add()

    def add(self) -> None:
        """Makes it, on an interface that is there, unless it is there, too."""
        if not Path("/sys/class/infiniband", self.name).exists():
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


def is_interface(name: str) -> bool:
    """Is there one of this name?"""
    return Path("/sys/class/net", name).exists()


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


class Offered(Protocol):
    """A queue pair that is to be connected."""

    @property
    def qp_number(self) -> int: ...
    def step(self, step: bytes) -> None: ...


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

    def accept(self, end: Offered) -> int:
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


class CarriedEnd(AbstractContextManager["CarriedEnd"]):
    """The proxy's end of a queue as a worker has it, `queue`: shared memory, whose frames a carrier has, in a thread of
    its own from start() on. `calls`: how many system calls that has made, when it is over."""

    def __init__(self, device: Device, options: QueueOptions) -> None:
        self.carrier = RdmaCarrier(device.ifindex, options)
        host, proxy = open_ends(
            CARRIED, QueueOptions(options.frame_window), largest_message=LARGEST[options.single_chunk]
        )
        self.memory_fd = os.dup(proxy.descriptors[0])  # adopting takes over, and both ends have the same descriptor
        self.qp_number = self.carrier.carry(host)
        self.queue = QueueEnd(proxy.geometry, (self.memory_fd, proxy.descriptors[1])).adopt(PROXY)
        self.word, self._its = socket.socketpair()
        self.calls = 0
        self._running: threading.Thread | None = None

    def step(self, step: bytes) -> None:
        self.carrier.step(step)

    def start(self, life_fd: int) -> None:
        """It is connected. Takes over `life_fd`."""

        def run() -> None:
            with CountedCalls() as counted:
                with counted.counting():
                    self.carrier.run(life_fd, self._its.fileno(), 0)
                self.calls = counted.calls()
            os.close(life_fd)

        self._running = threading.Thread(target=run)
        self._running.start()

    def ended(self) -> bool:
        """The carrier has, within our patience."""
        assert self._running
        self._running.join(PATIENCE_S)
        return not self._running.is_alive()

    def __exit__(self, *_: object) -> None:
        self.queue.close()
        self.word.close()
        assert not self._running or self.ended()
        self._its.close()
        self.carrier.close()


class CarriedPair(AbstractContextManager["CarriedPair"]):
    """As Pair, with a worker's end as the proxy's."""

    def __init__(self, device: Device, acceptor: Acceptor, options: QueueOptions) -> None:
        self.acceptor = acceptor
        self.end, mine = CarriedEnd(device, options), RdmaEnd(device.ifindex, options)
        came: list[int] = []
        accepting = threading.Thread(target=lambda: came.append(acceptor.accept(self.end)))
        accepting.start()
        self.connection = connect(device.address, acceptor.service, mine.qp_number, mine.step, Options())
        accepting.join(PATIENCE_S)
        self.host = mine.adopt(HOST, os.dup(self.connection.life.fileno()))
        self.end.start(came[0])
        self.proxy = self.end.queue
        self._connected = True

    def disconnect(self) -> None:
        """The host's connection manager ends the connection. Harmless when repeated."""
        if self._connected:
            self._connected = False
            self.connection.close()

    def __exit__(self, *_: object) -> None:
        self.host.close()
        self.end.__exit__()
        self.disconnect()
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


def frame_of(size: int, number: int = 0) -> bytes:
    """The same for the same numbers."""
    return random.Random(size * 1_000_003 + number).randbytes(size)


def take(queue: Queue, count: int) -> list[bytes]:
    """So many frames, which are given back."""
    frames = []
    while len(frames) < count:
        frame = queue.wait(30_000)
        frames.append(bytes(frame))
        frame.recycle()
    queue.kick()
    return frames
