"""The whole proxy as a process on the device's end of a veth pair, the host's end in this process."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from beds.operated_proxy import PROXY, START_S, Proxy, running, user_to_become, wait, write_config
from beds.scripted_host import ScriptedHost
from beds.service_manager import Manager
from pyroute2 import NetNS, netns
from xts_bpf.device import DeviceQueues, open_device_queues
from xts_messages.codec import flags

pytestmark = [
    pytest.mark.root,
    pytest.mark.afxdp,
    pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root"),
]

QUEUES = 2
HOST_MAC, DEVICE_MAC = "02:00:00:00:00:01", "02:00:00:00:00:02"
_numbers = itertools.count()


@dataclass(frozen=True)
class Cable:
    """Interfaces xts0 of namespace `host` and dev0 of `device`, joined."""

    host: str
    device: str


@contextlib.contextmanager
def inside(namespace: str) -> Iterator[None]:
    """This thread, and what it starts, is in a namespace."""
    netns.pushns(namespace)
    try:
        yield
    finally:
        netns.popns()


@pytest.fixture
def cable() -> Iterator[Cable]:
    stem = f"xtsproxy{os.getpid()}-{next(_numbers)}"
    made = Cable(f"{stem}h", f"{stem}d")
    queues = {"mtu": 62_000, "num_tx_queues": QUEUES, "num_rx_queues": QUEUES}
    try:
        netns.create(made.host)
        netns.create(made.device)
        with NetNS(made.host) as host, NetNS(made.device) as device:
            peer = {"ifname": "dev0", "address": DEVICE_MAC, "net_ns_fd": made.device} | queues
            host.link("add", ifname="xts0", kind="veth", address=HOST_MAC, peer=peer, **queues)
            for ns, name in ((host, "xts0"), (device, "dev0"), (device, "lo")):
                ns.link("set", index=ns.link_lookup(ifname=name)[0], state="up")
        yield made
    finally:
        for name in (made.host, made.device):
            with contextlib.suppress(OSError):
                netns.remove(name)


@pytest.fixture
def ends(cable: Cable) -> Iterator[DeviceQueues]:
    """The host's queues."""
    with ExitStack() as stack:
        with inside(cable.host):
            opened = open_device_queues("xts0", QUEUES, bytes.fromhex(DEVICE_MAC.replace(":", "")))
        yield stack.enter_context(opened)


@pytest.fixture
def open_directory() -> Iterator[Path]:
    """One that other users can read; tmp_path is its owner's alone."""
    with tempfile.TemporaryDirectory(prefix="xts-proxy-") as name:
        path = Path(name)
        path.chmod(0o755)
        yield path


@contextlib.contextmanager
def proxy_on(cable: Cable, directory: Path, **proxy: Any) -> Iterator[Proxy]:
    with inside(cable.device):
        context = running(directory, queue="afxdp", interface="dev0", peer_mac=HOST_MAC, workers=QUEUES, **proxy)
        made = context.__enter__()
    with contextlib.ExitStack() as stack:
        stack.push(context.__exit__)
        yield made


def host_on(ends: DeviceQueues, number: int) -> ScriptedHost:
    """A new process of the host on a queue."""
    queue = ends.queues[number]
    changes = {"largest_message": queue.largest_message}
    return ScriptedHost(queue, secrets.randbits(63), changes).open()


@pytest.fixture
def server(cable: Cable) -> Iterator[socket.socket]:
    with inside(cable.device):
        made = socket.create_server(("127.0.0.1", 0))
    with made:
        made.settimeout(5)
        yield made


def exchange(host: ScriptedHost, server: socket.socket) -> None:
    """A message of the largest size there and back, and an orderly close."""
    _, ack = host.connect("127.0.0.1", server.getsockname()[1])
    assert ack.error == 0
    peer, _ = server.accept()
    with peer:
        peer.settimeout(5)
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


@pytest.mark.parametrize("single_chunk", [False, True], ids=["fragments", "single chunk"])
def test_each_queue_carries_connections(
    cable: Cable, ends: DeviceQueues, server: socket.socket, tmp_path: Path, single_chunk: bool
) -> None:
    with proxy_on(cable, tmp_path, single_chunk=single_chunk) as proxy:
        for number in range(QUEUES):
            host = host_on(ends, number)
            assert (host.link.largest_message < 4096) == single_chunk
            exchange(host, server)
        channels = proxy.status()["channels"]
        assert [(c["queue_id"], c["worker"], c["link_state"]) for c in channels] == [(0, 0, "up"), (1, 1, "up")]
        proxy.process.send_signal(signal.SIGTERM)
        assert host.wait_down() == errno.ESHUTDOWN
        assert proxy.ended() == 0


def test_the_next_proxy_takes_the_queues_of_a_killed_one(
    cable: Cable, ends: DeviceQueues, server: socket.socket, tmp_path: Path
) -> None:
    for _ in range(2):
        with proxy_on(cable, tmp_path) as proxy:
            exchange(host_on(ends, 1), server)
            proxy.process.kill()
            proxy.ended()


def test_a_reload_works_without_the_rights_of_the_start(
    cable: Cable, ends: DeviceQueues, server: socket.socket, tmp_path: Path
) -> None:
    with proxy_on(cable, tmp_path) as proxy:
        host = host_on(ends, 0)
        exchange(host, server)
        text = '[[policy.rule]]\naction = "deny"\nqueues = "0"'
        same = {"queue": "afxdp", "interface": "dev0", "peer_mac": HOST_MAC, "workers": QUEUES}
        proxy.write_config(text, **same)
        assert "is in force" in proxy.hang_up("taken")
        assert host.connect("127.0.0.1", server.getsockname()[1])[1].error == errno.EACCES
        exchange(host_on(ends, 1), server)


def test_a_host_that_begins_again_is_served_again(
    cable: Cable, ends: DeviceQueues, server: socket.socket, tmp_path: Path
) -> None:
    with proxy_on(cable, tmp_path) as proxy:
        old = host_on(ends, 0)
        assert old.connect("127.0.0.1", server.getsockname()[1])[1].error == 0
        exchange(host_on(ends, 0), server_after_one(server))
        wait(lambda: proxy.status()["workers"][0]["connections"] <= 1, "end of the old connections")


def server_after_one(server: socket.socket) -> socket.socket:
    """The server, its first connection taken and closed."""
    server.accept()[0].close()
    return server


def test_a_queue_that_is_not_there_is_told(cable: Cable, tmp_path: Path) -> None:
    config = write_config(tmp_path, queue="afxdp", interface="dev0", peer_mac=HOST_MAC, queues="0-7")
    with inside(cable.device):
        ended = subprocess.run(
            [*PROXY, "--config", str(config)], check=False, capture_output=True, text=True, timeout=START_S
        )
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1] == "xts-proxy: dev0 has queues 0-1, not 0-7 (see ethtool -l dev0)"


def test_queues_that_were_opened_ahead_need_no_privilege(
    cable: Cable, ends: DeviceQueues, server: socket.socket, open_directory: Path
) -> None:
    """As deploy/systemd/xts-proxy.service starts it; twice, the second time after the proxy was killed."""
    config = write_config(open_directory, queue="afxdp", interface="dev0", peer_mac=HOST_MAC, workers=QUEUES)
    shutil.chown(open_directory, user_to_become())
    with Manager() as manager, inside(cable.device):
        for _ in range(2):
            with manager.start([*PROXY, "--config", str(config), "--open-queues"]) as opener:
                assert opener.wait(START_S) == 0, opener.communicate()[1]
            assert len(manager.stored) == 2 * QUEUES + 2
            manager.heard.clear()
            with manager.start([*PROXY, "--config", str(config)], user=user_to_become()) as process:
                try:
                    wait(
                        lambda: any(m.startswith("READY=1") for m in manager.heard) or process.poll(), "READY", START_S
                    )
                    assert process.poll() is None, process.communicate()[1]
                    wait(lambda: not manager.stored, "end of what was stored")
                    for number in range(QUEUES):
                        exchange(host_on(ends, number), server)
                    privilege = Path(f"/proc/{process.pid}/status").read_text()
                    assert "CapPrm:\t0000000000000000\n" in privilege
                finally:
                    process.kill()


def test_queues_for_another_configuration_are_refused(cable: Cable, open_directory: Path) -> None:
    config = write_config(open_directory, queue="afxdp", interface="dev0", peer_mac=HOST_MAC)
    with Manager() as manager, inside(cable.device):
        with manager.start([*PROXY, "--config", str(config), "--open-queues"]) as opener:
            assert opener.wait(START_S) == 0, opener.communicate()[1]
        write_config(open_directory, queue="afxdp", interface="dev0", peer_mac=HOST_MAC, queues="1")
        with manager.start([*PROXY, "--config", str(config)]) as process:
            assert process.wait(START_S) == 1
            assert "opened for another configuration" in process.communicate()[1]


def test_queues_are_opened_ahead_for_systemd_only(cable: Cable, tmp_path: Path) -> None:
    config = write_config(tmp_path, queue="afxdp", interface="dev0", peer_mac=HOST_MAC)
    with inside(cable.device):
        ended = subprocess.run(
            [*PROXY, "--config", str(config), "--open-queues"],
            capture_output=True,
            text=True,
            timeout=START_S,
            check=False,
        )
    assert ended.returncode == 1
    assert "systemd does not listen" in ended.stderr
