"""The whole proxy as a process on the device's end of a veth pair, the host's end in this process."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from beds.operated_proxy import PROXY, START_S, user_to_become, wait, write_config
from beds.proxy_cable import DEVICE_MAC, HOST_MAC, QUEUES, Cable, exchange, host_on, inside, made_cable, proxy_on
from beds.scripted_host import ScriptedHost
from beds.service_manager import Manager
from xts_bpf.device import DeviceQueues, open_device_queues
from xts_messages.native import lib
from xts_messages.wire.wire_table import FEATURES

pytestmark = [
    pytest.mark.root,
    pytest.mark.afxdp,
    pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root"),
]


@pytest.fixture
def cable() -> Iterator[Cable]:
    with made_cable() as made:
        yield made


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


@pytest.fixture
def server(cable: Cable) -> Iterator[socket.socket]:
    with inside(cable.device):
        made = socket.create_server(("127.0.0.1", 0))
    with made:
        made.settimeout(5)
        yield made


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
    assert ended.returncode == 2, "its unit does not start it again"
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
            assert len(manager.stored) == 2 * QUEUES + 3  # counters, secrets, description
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


@pytest.mark.parametrize(
    ("keys", "status", "reason"),
    [({"queues": "0-7"}, 2, "dev0 has queues 0-1, not 0-7"), ({"interface": "later0"}, 1, "no interface later0")],
)
def test_what_keeps_queues_from_being_opened_ends_the_service(
    cable: Cable, open_directory: Path, keys: dict[str, str], status: int, reason: str
) -> None:
    """systemd looks at the service's status only, when it decides whether to start it again."""
    config = write_config(open_directory, **{"queue": "afxdp", "interface": "dev0", "peer_mac": HOST_MAC, **keys})
    with Manager() as manager, inside(cable.device):
        with manager.start([*PROXY, "--config", str(config), "--open-queues"]) as opener:
            assert opener.wait(START_S) == 0, opener.communicate()[1]
        with manager.start([*PROXY, "--config", str(config)]) as process:
            assert process.wait(START_S) == status
            assert reason in process.communicate()[1].splitlines()[-1]
        assert any(message.startswith("STATUS=") and reason in message for message in manager.heard)


def test_mistakes_are_told_by_the_service_alone(open_directory: Path) -> None:
    config = write_config(open_directory, queue="afxdp", interface="dev0", peer_mac="x")
    with Manager() as manager:
        with manager.start([*PROXY, "--config", str(config), "--open-queues"]) as opener:
            assert (opener.wait(START_S), opener.communicate()) == (0, ("", ""))
        with manager.start([*PROXY, "--config", str(config)]) as process:
            assert process.wait(START_S) == 2
            [line] = process.communicate()[1].splitlines()
        assert line.startswith(f"{config}:") and "peer_mac: expected an Ethernet address" in line


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


def test_hosts_that_repeat_are_told_why_not_after_a_crash_too(cable: Cable, ends: DeviceQueues, tmp_path: Path) -> None:
    """The next process of the workers knows what the one before knew of a queue. It dropped their frames."""
    epoch = secrets.randbits(63)
    changes = {"largest_message": ends.queues[0].largest_message, "features": FEATURES["REFUSAL"][0]}
    with proxy_on(cable, tmp_path) as proxy:
        os.kill(proxy.pid_of("xts-workers"), signal.SIGKILL)
        wait(lambda: "another process goes on" in proxy.log.read_text(), "the next process")
        host = ScriptedHost(ends.queues[0].repeating(int(lib.XTS_ARQ_HOST), epoch), epoch, changes)

        def answered() -> bool:
            host.queue.tick(time.monotonic_ns())
            host.pump(10)
            return bool(host.link.state == lib.XTS_LINK_DOWN)

        wait(answered, "an answer")
        assert host.link.error == errno.EOPNOTSUPP
        assert host.link.refusal == lib.XTS_REFUSED_RELIABLE
