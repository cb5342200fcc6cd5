"""The proxy and an application in PID namespaces that do not show each other, as containers have: the proxy is process
1 of its own, and who attaches has no number there."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from beds.operated_proxy import PROXY, Proxy, running, wait
from beds.ready import readable
from beds.scripted_host import ScriptedHost

pytestmark = pytest.mark.root

LOOPBACK = "127.0.0.1"
NAMESPACE = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
TENANTS = f"""
[[tenant]]
name = "by-cgroup"
cgroups = ["/"]
[[tenant]]
name = "by-user"
users = ["{os.getuid()}"]
"""


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server((LOOPBACK, 0)) as made:
        made.settimeout(5)
        yield made


@contextmanager
def connected(host: ScriptedHost, server: socket.socket) -> Iterator[tuple[int, socket.socket]]:
    """The proxy's identifier of a connection to the server, and the server's end."""
    _, ack = host.connect(LOOPBACK, server.getsockname()[1])
    assert ack.error == 0
    peer, _ = server.accept()
    peer.settimeout(5)
    with peer:
        yield int(ack.fields["proxy_id"]), peer


def first_of(unshare: subprocess.Popen[str]) -> int:
    """Our number of process 1 of the namespace that `unshare` has made."""
    children = Path(f"/proc/{unshare.pid}/task/{unshare.pid}/children")
    wait(children.read_text, "process in the namespace")
    return int(children.read_text())


@contextmanager
def running_inside(tmp_path: Path, configuration: str = "") -> Iterator[Proxy]:
    """A proxy that is process 1 of a PID namespace. It is ended by itself: once it has changed its user, the kernel
    no longer ends it with unshare (--kill-child)."""
    with running(tmp_path, configuration, under=NAMESPACE) as proxy:
        first = first_of(proxy.process)
        try:
            yield proxy
        finally:
            with suppress(ProcessLookupError):
                os.kill(first, signal.SIGTERM)
            proxy.process.wait(10)


def is_first(proxy: Proxy) -> int:
    """Our number of a proxy, which is 1 in its own namespace."""
    pid = first_of(proxy.process)
    assert f"NSpid:\t{pid}\t1\n" in Path(f"/proc/{pid}/status").read_text()
    return pid


def test_an_application_that_has_no_number_is_served(tmp_path: Path, server: socket.socket) -> None:
    with running_inside(tmp_path) as proxy, proxy.host() as (_, host):
        is_first(proxy)
        with connected(host, server) as (number, peer):
            host.send("XTS_CMD_SEND", b"question", id=number)
            assert peer.recv(64) == b"question"
            (channel,) = proxy.status()["channels"]
            assert (channel["pid"], channel["link_state"]) == (0, "up")
    assert f"attached by a process of another PID namespace (test) of user {os.getuid()}" in proxy.log.read_text()


def test_it_belongs_to_tenants_by_user_and_the_log_says_so_once(tmp_path: Path) -> None:
    with running_inside(tmp_path, TENANTS) as proxy, proxy.host(), proxy.host():
        assert [row["tenant"] for row in proxy.status()["channels"]] == ["by-user"] * 2
        told = f"test of user {os.getuid()} is in another PID namespace, where its cgroup cannot be read"
        assert proxy.log.read_text().count(told) == 1


def test_its_end_is_noticed_although_a_forked_child_lives(tmp_path: Path) -> None:
    program = (
        "import os, sys, time\n"
        "from xts_messages.attaching.attach import attach\n"
        "a = attach(sys.argv[1])\n"
        "if os.fork() == 0: time.sleep(60)\n"
        "print('up', flush=True)\n"
        "time.sleep(60)\n"
    )
    with running_inside(tmp_path) as proxy:
        command = [PROXY[0], "-c", program, proxy.endpoint]
        with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as process:
            try:
                assert process.stdout and process.stdout.readline() == b"up\n"
                assert len(proxy.status()["channels"]) == 1
                process.kill()
                wait(lambda: not proxy.status()["channels"], "channel that ends")
            finally:
                os.killpg(process.pid, signal.SIGKILL)


def test_sigterm_drains_process_1(tmp_path: Path, server: socket.socket) -> None:
    with running(tmp_path, under=NAMESPACE, drain_timeout_s=60) as proxy, proxy.host() as (_, host):
        with connected(host, server) as (number, peer):
            os.kill(is_first(proxy), signal.SIGTERM)
            wait(lambda: proxy.status()["proxy"]["state"] == "draining", "draining")
            host.send("XTS_CMD_SEND", b"still here", id=number)
            assert peer.recv(64) == b"still here"
            host.send("XTS_CMD_SEND", id=number, flags=0x02)  # CLOSE
            assert peer.recv(64) == b""
        assert proxy.ended() == 0
    assert "cut off" not in proxy.log.read_text()


def test_sigterm_ends_process_1_in_time(tmp_path: Path, server: socket.socket) -> None:
    with running(tmp_path, under=NAMESPACE, drain_timeout_s=0.3) as proxy, proxy.host() as (_, host):
        with connected(host, server):
            os.kill(is_first(proxy), signal.SIGTERM)
            assert proxy.ended() == 0
    assert "1 connections are cut off" in proxy.log.read_text()


#: The proxy stays where it has just set its handler.
WAITS_BEFORE_IT_BEGINS = """
import signal
def and_wait(number, handler, set_handler=signal.signal):
    set_handler(number, handler)
    if number == signal.SIGTERM:
        signal.pause()
signal.signal = and_wait
"""


def test_sigterm_ends_process_1_before_it_serves(tmp_path: Path) -> None:
    """It has no default action there."""
    config = tmp_path / "proxy.toml"
    config.touch()
    (tmp_path / "sitecustomize.py").write_text(WAITS_BEFORE_IT_BEGINS)
    command = [*NAMESPACE, *PROXY, "--config", str(config)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        try:
            first = first_of(process)
            pidfd = os.pidfd_open(first)
            wait(lambda: handles(first, signal.SIGTERM), "handler", 10)
            os.kill(first, signal.SIGTERM)
            assert readable(pidfd, 5), "it goes on"
            os.close(pidfd)
            assert process.wait(5) == 128 + signal.SIGTERM
        finally:
            process.kill()


def handles(pid: int, number: int) -> bool:
    (caught,) = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("SigCgt:")]
    return bool(int(caught.split()[1], 16) >> (number - 1) & 1)
