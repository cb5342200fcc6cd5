"""What a process exchanges with systemd: descriptors that it is given, and those that it stores."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from beds.service_manager import Manager

SHOW = """
import socket
from xts_messages.services.service_manager import passed
{}
print([name for name, _ in passed().items])
"""
TAKE_UNIX = (
    'found = passed().listener("{}", socket.SOCK_SEQPACKET); print(found and found.fileno(), found.getsockname())'
)
TAKE_TCP = 'found = passed().listener(("127.0.0.1", {}), socket.SOCK_STREAM); print(bool(found))'


@pytest.fixture
def manager() -> Iterator[Manager]:
    with Manager() as made:
        yield made


def said(manager: Manager, code: str, *sockets: socket.socket) -> str:
    with manager.start([sys.executable, "-c", SHOW.format(code)], sockets=sockets) as process:
        out, err = process.communicate(timeout=20)
    assert process.returncode == 0, err
    return out


def test_a_socket_is_found_by_its_path(manager: Manager, tmp_path: Path) -> None:
    path = str(tmp_path / "e")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(path)
        listener.listen()
        assert said(manager, TAKE_UNIX.format(path), listener) == f"3 {path}\n[]\n"


def test_a_socket_is_found_by_its_address(manager: Manager) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert said(manager, TAKE_TCP.format(port), listener) == "True\n[]\n"
        assert said(manager, TAKE_TCP.format(port ^ 1), listener) == "False\n['socket']\n"


def test_what_is_meant_for_another_process_is_left_alone(manager: Manager) -> None:
    code = 'import os; os.environ["LISTEN_PID"] = str(os.getppid())'
    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert said(manager, code, listener) == "[]\n"


def test_the_variables_are_for_no_child(manager: Manager) -> None:
    code = 'passed(); import os; print([name for name in os.environ if name.startswith("LISTEN_")])'
    assert said(manager, code) == "[]\n[]\n"


STORE = """
import os
from xts_messages.services.service_manager import manager
reader, writer = os.pipe()
os.write(writer, b"kept")
manager().store("a pipe", reader)
manager().store("another", reader)
manager().forget("another")
manager().wait_until_taken()
"""


def test_what_is_stored_comes_back(manager: Manager) -> None:
    with manager.start([sys.executable, "-c", STORE]) as process:
        assert process.wait(20) == 0, process.communicate()[1]
    assert manager.names() == ["a pipe"]
    code = 'import os; print(os.read(passed().named("a ")["a pipe"], 9))'
    assert said(manager, code) == "b'kept'\n[]\n"


def test_without_systemd_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    from xts_messages.services.service_manager import ServiceManager

    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    silent = ServiceManager()
    assert not silent
    silent.notify("READY=1")
