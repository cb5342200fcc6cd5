"""Listeners that a program under install() hands to the programs it starts: by Flask's reloader, and by hand."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import xts_socket
from beds.proxy_process import ProxyProcess
from xts_lab.free_ports import free_port

PATIENCE_S = 30.0
SO_GET_FILTER = 26  # of <asm-generic/socket.h>; Python has no name for it
EVERYTHING = "use xts tcp_client *:*\nuse xts tcp_server *:*\n"

APPLICATION = """
import sys
import xts_socket
assert xts_socket.install(sys.argv[1])
from flask import Flask
app = Flask(__name__)
app.route("/")(lambda: "{answer}")
app.run(port=int(sys.argv[2]), use_reloader=True, reloader_type="stat", reloader_interval=0.1)
"""

STARTED = """
import socket, sys
import xts_socket
assert xts_socket.install(sys.argv[1])
listener = {made}
assert listener.getsockname()[1] == int(sys.argv[3])
connection, _ = listener.accept()
connection.sendall(b"by who was started")
connection.close()
"""


def ask(port: int) -> bytes:
    """What it answers; nothing, where the program that has accepted it is ended."""
    with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as client, suppress(ConnectionError):
        client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        return client.makefile("rb").read().rpartition(b"\r\n\r\n")[2]
    return b""


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_reloader_of_flask(xts_endpoint: ProxyProcess, rules: Callable[[str], Path], tmp_path: Path) -> None:
    """The process that watches the files keeps the listener; each new program gets it and serves. No client is
    refused meanwhile."""
    pytest.importorskip("flask")
    application, port = tmp_path / "application.py", free_port()
    application.write_text(APPLICATION.format(answer="before"))
    command = [sys.executable, str(application), str(rules(EVERYTHING)), str(port)]
    said = tmp_path / "said"
    with said.open("wb") as log, subprocess.Popen(command, stderr=log, start_new_session=True) as watching:
        try:
            # It says so when the listener has been prepared for the programs to come.
            until(lambda: watching.poll() is not None or "Running on" in said.read_text())
            assert ask(port) == b"before", said.read_text()
            application.write_text(APPLICATION.format(answer="afterwards"))
            answers = [ask(port)]
            end = time.monotonic() + PATIENCE_S
            while answers[-1] != b"afterwards":
                assert time.monotonic() < end
                answers.append(ask(port))
            assert set(answers) <= {b"before", b"", b"afterwards"}
        finally:
            os.killpg(watching.pid, signal.SIGTERM)
            watching.wait(PATIENCE_S)


@pytest.mark.parametrize(
    "made",
    ["socket.fromfd(int(sys.argv[2]), socket.AF_INET, socket.SOCK_STREAM)", "socket.socket(fileno=int(sys.argv[2]))"],
)
def test_a_listener_is_inherited(
    made: str, xts_endpoint: ProxyProcess, rules: Callable[[str], Path], tmp_path: Path
) -> None:
    path = rules(EVERYTHING)
    assert xts_socket.install(path)
    try:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            assert not listener.get_inheritable()
            listener.set_inheritable(True)
            assert listener.get_inheritable()
            port = listener.getsockname()[1]
            arguments = [str(path), str(listener.fileno()), str(port)]
            command = [sys.executable, "-c", STARTED.format(made=made), *arguments]
            with subprocess.Popen(command, pass_fds=[listener.fileno()]) as started:
                with xts_socket.create_connection(("127.0.0.1", port)) as client:
                    assert client.recv(100) == b"by who was started"
                assert started.wait(PATIENCE_S) == 0
            listener.set_inheritable(False)
            assert not listener.get_inheritable()
    finally:
        xts_socket.uninstall()


def label_of(descriptor: int) -> bytes:
    """What programs that inherit it find the listener by: a socket filter (label.c)."""
    room, instructions = ctypes.create_string_buffer(8 * 4096), ctypes.c_uint(4096)
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.getsockopt(descriptor, socket.SOL_SOCKET, SO_GET_FILTER, room, ctypes.byref(instructions)) == 0
    return room.raw[: 8 * instructions.value]


HAS_IT_FOR_A_MOMENT = """
import socket, sys
import xts_socket
assert xts_socket.install(sys.argv[1])
with socket.socket(fileno=int(sys.argv[2])) as way:
    _, (descriptor,), _, _ = socket.recv_fds(way, 1, 1)
socket.socket(fileno=descriptor).close()
"""


def test_a_listener_is_inherited_after_a_program_has_left_it(
    xts_endpoint: ProxyProcess, rules: Callable[[str], Path]
) -> None:
    """A program that the listener was passed to knew its key, so there is another after it."""
    path = rules(EVERYTHING)
    assert xts_socket.install(path)
    try:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            listener.set_inheritable(True)
            label = label_of(listener.fileno())
            here, there = socket.socketpair()
            with here, there:
                command = [sys.executable, "-c", HAS_IT_FOR_A_MOMENT, str(path), str(there.fileno())]
                with subprocess.Popen(command, pass_fds=[there.fileno()]) as passed_to:
                    socket.send_fds(here, [b"x"], [listener.fileno()])
                assert passed_to.returncode == 0
            until(lambda: label_of(listener.fileno()) != label)
            port = listener.getsockname()[1]
            made = "socket.socket(fileno=int(sys.argv[2]))"
            command = [sys.executable, "-c", STARTED.format(made=made), str(path), str(listener.fileno()), str(port)]
            with subprocess.Popen(command, pass_fds=[listener.fileno()]) as started:
                with xts_socket.create_connection(("127.0.0.1", port)) as client:
                    assert client.recv(100) == b"by who was started"
                assert started.wait(PATIENCE_S) == 0
    finally:
        xts_socket.uninstall()
