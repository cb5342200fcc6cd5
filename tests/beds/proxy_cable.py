"""A cable between a host and a device: the whole proxy runs at its one end, and the test's own host at the other."""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
import socket
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pyroute2 import NetNS, netns
from xts_bpf.device import DeviceQueues
from xts_messages.wire.codec import flags

from beds.operated_proxy import Proxy, running
from beds.patience import SLOWER
from beds.restarts import SharedMemory
from beds.scripted_host import ScriptedHost
from beds.upgrades import OverSharedMemory

QUEUES = 2
HOST_MAC, DEVICE_MAC = "02:00:00:00:00:01", "02:00:00:00:00:02"
_numbers = itertools.count()


@dataclass(frozen=True)
class Cable:
    """Interfaces xts0 of namespace `host` and dev0 of `device`, joined."""

    host: str
    device: str

    def join(self, queues: int = QUEUES, device_mac: str = DEVICE_MAC) -> None:
        """Makes the interfaces."""
        sizes = {"mtu": 62_000, "num_tx_queues": queues, "num_rx_queues": queues}
        with NetNS(self.host) as host, NetNS(self.device) as device:
            peer = {"ifname": "dev0", "address": device_mac, "net_ns_fd": self.device} | sizes
            host.link("add", ifname="xts0", kind="veth", address=HOST_MAC, peer=peer, **sizes)
            for ns, name in ((host, "xts0"), (device, "dev0"), (device, "lo")):
                ns.link("set", index=ns.link_lookup(ifname=name)[0], state="up")


@contextlib.contextmanager
def inside(namespace: str) -> Iterator[None]:
    """This thread, and what it starts, is in a namespace."""
    netns.pushns(namespace)
    try:
        yield
    finally:
        netns.popns()


@contextlib.contextmanager
def made_cable() -> Iterator[Cable]:
    stem = f"xtsproxy{os.getpid()}-{next(_numbers)}"
    made = Cable(f"{stem}h", f"{stem}d")
    try:
        netns.create(made.host)
        netns.create(made.device)
        made.join()
        yield made
    finally:
        for name in (made.host, made.device):
            with contextlib.suppress(OSError):
                netns.remove(name)


@contextlib.contextmanager
def proxy_on(cable: Cable, directory: Path, **proxy: Any) -> Iterator[Proxy]:
    with inside(cable.device):
        context = running(directory, queue="afxdp", interface="dev0", peer_mac=HOST_MAC, workers=QUEUES, **proxy)
        made = context.__enter__()
    with contextlib.ExitStack() as stack:
        stack.push(context.__exit__)
        yield made


@contextlib.contextmanager
def upgraded_on(cable: Cable, before: Proxy) -> Iterator[Proxy]:
    """The proxy that takes the place of one that has itself taken the place of the one that runs there."""
    where = OverSharedMemory(SharedMemory(before.directory), before)  # both have their files in a folder
    try:
        with inside(cable.device):
            where.upgrade()
            where.upgrade()
        yield replace(before, process=where.process)
    finally:
        where.close()


def host_on(ends: DeviceQueues, number: int) -> ScriptedHost:
    """A new process of the host on a queue."""
    queue = ends.queues[number]
    changes = {"largest_message": queue.largest_message}
    return ScriptedHost(queue, secrets.randbits(63), changes).open()


def exchange(host: ScriptedHost, server: socket.socket) -> None:
    """A message of the largest size there and back, and an orderly close."""
    _, ack = host.connect("127.0.0.1", server.getsockname()[1])
    assert ack.error == 0
    peer, _ = server.accept()
    with peer:
        peer.settimeout(5 * SLOWER)
        sent = os.urandom(min(int(host.link.largest_message), 60_000) - 100)
        host.send("XTS_CMD_SEND", sent, id=ack.fields["proxy_id"])
        with peer.makefile("rb") as stream:
            assert stream.read(len(sent)) == sent
        peer.sendall(sent)
        back = b""
        while len(back) < len(sent):
            back += host.expect("XTS_REPLY_RECV").payload
        assert back == sent
    host.send("XTS_CMD_SEND", id=ack.fields["proxy_id"], flags=flags("CLOSE"), post_credits=len(back))
    while not host.expect("XTS_REPLY_RECV").flags & flags("CLOSED"):
        pass
