"""Who serves a path is told, and a service that comes second ends with a status by which it is not started again."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from xts_agent.__main__ import main as agent
from xts_messages.services import exit_status
from xts_messages.services.served_sockets import Server, in_use, server_of
from xts_proxy.__main__ import main as proxy

COMMANDS = {"xts-agent": agent, "xts-proxy": proxy}


def listening(path: Path, kind: socket.SocketKind = socket.SOCK_SEQPACKET) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, kind)
    listener.bind(str(path))
    listener.listen()
    return listener


def test_whose_a_socket_is(tmp_path: Path) -> None:
    path = tmp_path / "s"
    assert server_of(path, socket.SOCK_SEQPACKET) is None, "there is none"
    with listening(path):
        server = server_of(path, socket.SOCK_SEQPACKET)
        assert server == Server(os.getpid(), Path("/proc/self/comm").read_text().rstrip("\n"))
        assert server_of(path, socket.SOCK_STREAM) is None, "it is of another kind"
    assert server_of(path, socket.SOCK_SEQPACKET) is None, "its file is stale"


def test_a_full_backlog_is_served(tmp_path: Path) -> None:
    path = tmp_path / "s"
    waiting = []
    with listening(path) as listener:
        listener.listen(0)
        for _ in range(2):
            waiting.append(client := socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK))
            client.connect_ex(str(path))
        assert server_of(path, socket.SOCK_SEQPACKET) == Server(0, "")
        for client in waiting:
            client.close()


@pytest.mark.parametrize(
    ("server", "said"),
    [
        (Server(7, "xts-proxy"), "/s is served by xts-proxy (process 7): stop that, or choose another path"),
        (Server(1, "systemd"), "/s is served by systemd (a .socket unit: see `systemctl list-sockets`): stop that, or"),
        (Server(0, ""), "/s is served by another process: stop that"),
    ],
)
def test_what_is_said(server: Server, said: str) -> None:
    assert str(in_use("/s", server).strerror).startswith(said)


@pytest.mark.parametrize("program", COMMANDS)
def test_the_check_of_a_socket_unit(program: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "s"
    assert COMMANDS[program](["--unserved", str(path)]) == 0
    with listening(path):
        assert COMMANDS[program](["--unserved", str(path)]) == exit_status.MISTAKE
        assert path.is_socket()
    assert capsys.readouterr().err.startswith(f"{program}: {path} is served by ")


def test_an_agent_that_comes_second_touches_no_interface(tmp_path: Path) -> None:
    """The interface is not even there: it is not asked for."""
    path = tmp_path / "s"
    options = ["--interface", "nowhere0", "--peer-mac", "02:00:00:00:00:01", "--endpoint", str(path)]
    with listening(path):
        command = [sys.executable, "-m", "xts_agent", *options]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (exit_status.MISTAKE, 1)
    assert f"{path} is served by " in done.stderr


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (errno.EADDRINUSE, exit_status.MISTAKE),
        (errno.ENOENT, exit_status.MISTAKE),
        (errno.ENODEV, exit_status.FAILED),
        (errno.ENOMEM, exit_status.FAILED),
        (errno.EBUSY, exit_status.FAILED),
    ],
)
def test_what_passes_by_itself(error: int, status: int) -> None:
    """An interface may come later."""
    assert exit_status.of_start(OSError(error, "")) == status
