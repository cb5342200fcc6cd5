"""Sockets that programs under install() send to each other: by send_fds(), and by multiprocessing."""

from __future__ import annotations

import multiprocessing
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from beds.patience import SLOWER
from beds.proxy_process import ProxyProcess
from xts_lab.lab import Lab

PATIENCE_S = 20.0 * SLOWER
EVERYTHING = "use xts tcp_client *:*\nuse xts tcp_server *:*\nuse xts udp_receiver *:*\n"
RECEIVER = """
import socket, sys
import xts_socket
assert xts_socket.install(sys.argv[1])
way = socket.socket(fileno=int(sys.argv[2]))
_, fds, _, _ = socket.recv_fds(way, 10, 1)
given = {made}
given.settimeout(120)
{body}
given.close()
way.sendall(b"done")
"""
GIVER = """
import socket, sys
import xts_socket
assert xts_socket.install(sys.argv[1])
way = socket.socket(fileno=int(sys.argv[2]))
{body}
{given}
assert socket.send_fds(way, [b"it"], [given.fileno()]) == 2
{after}
given.close()
assert way.recv(4) == b"done"
"""
LISTENS = "given = socket.create_server(({host!r}, 0))"
SAYS = "print({of}.getsockname()[1], flush=True)"
ACCEPTS = "listener = socket.create_server(('127.0.0.1', 0)); " + SAYS.format(of="listener")
ACCEPTED = "given = listener.accept()[0]; assert given.recv(6) == b'first '"
ECHO_TWO = """
for _ in range(2):
    connection, _ = given.accept()
    connection.sendall(connection.recv(100).upper())
    connection.close()
"""


@contextmanager
def program(rules: Path, text: str, way: socket.socket) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-c", text, str(rules), str(way.fileno())]
    with subprocess.Popen(command, stdout=subprocess.PIPE, pass_fds=[way.fileno()]) as process:
        try:
            yield process
            assert process.wait(PATIENCE_S) == 0
        finally:
            process.kill()


@contextmanager
def two(rules: Path, giver: str, receiver: str) -> Iterator[int]:
    """Two programs with a Unix socket between them; the port of the first."""
    here, there = socket.socketpair()
    with here, there, program(rules, giver, here) as gives, program(rules, receiver, there):
        assert gives.stdout is not None
        yield int(gives.stdout.readline())


def ask(port: int) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as client:
        client.sendall(b"hello")
        return client.makefile("rb").read()


@pytest.mark.parametrize("made", ["socket.socket(fileno=fds[0])", "socket.fromfd(fds[0], socket.AF_INET, 1)"])
def test_a_connection(made: str, xts_endpoint: ProxyProcess, rules: Callable[[str], Path]) -> None:
    """With what is unread of it."""
    giver = GIVER.format(body=ACCEPTS, given=ACCEPTED, after="")
    receiver = RECEIVER.format(made=made, body="given.sendall(given.recv(100).upper())")
    with two(rules(EVERYTHING), giver, receiver) as port:
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as client:
            client.sendall(b"first second")
            assert client.recv(100) == b"SECOND"


@pytest.mark.parametrize("host", ["127.0.0.1", ""])
def test_a_listener(host: str, xts_endpoint: ProxyProcess, rules: Callable[[str], Path]) -> None:
    giver = GIVER.format(body=LISTENS.format(host=host), given="", after=SAYS.format(of="given"))
    receiver = RECEIVER.format(made="socket.socket(fileno=fds[0])", body=ECHO_TWO)
    with two(rules(EVERYTHING), giver, receiver) as port:
        assert ask(port) == b"HELLO"
        assert ask(port) == b"HELLO"


def test_a_listener_on_this_host_too(lab: Lab, rules: Callable[[str], Path]) -> None:
    """By default loopback is the kernel's: a wildcard address is served by both, and both halves pass."""
    giver = GIVER.format(body=LISTENS.format(host=""), given="given.fileno()", after=SAYS.format(of="given"))
    polls = "import select\nassert select.select([given], [], [], 20)[0]"
    receiver = RECEIVER.format(made="socket.socket(fileno=fds[0])", body=polls + ECHO_TWO)
    file = str(rules("default xts\n"))
    here, there = socket.socketpair()
    with here, there:
        processes = [
            lab.popen(
                "host",
                [sys.executable, "-c", text, file, str(way.fileno())],
                stdout=subprocess.PIPE,
                pass_fds=[way.fileno()],
            )
            for text, way in ((giver, here), (receiver, there))
        ]
        try:
            assert processes[0].stdout is not None
            port = int(processes[0].stdout.readline())
            for role, host in (("net", "198.18.0.1"), ("host", "127.0.0.1")):
                with lab.inside(role):
                    client = socket.create_connection((host, port), timeout=PATIENCE_S)
                with client:
                    client.sendall(b"hello")
                    assert client.makefile("rb").read() == b"HELLO", role
            assert [process.wait(PATIENCE_S) for process in processes] == [0, 0]
        finally:
            for process in processes:
                process.kill()
                process.communicate()


def test_a_datagram_socket(xts_endpoint: ProxyProcess, rules: Callable[[str], Path]) -> None:
    bound = "given = socket.socket(type=socket.SOCK_DGRAM); given.bind(('127.0.0.1', 0)); " + SAYS.format(of="given")
    giver = GIVER.format(body=bound, given="import select; assert select.select([given], [], [], 20)[0]", after="")
    body = "data, sender = given.recvfrom(100); given.sendto(data.upper(), sender)"
    receiver = RECEIVER.format(made="socket.socket(fileno=fds[0])", body=body)
    with socket.socket(type=socket.SOCK_DGRAM) as client:
        client.settimeout(PATIENCE_S)
        with two(rules(EVERYTHING), giver, receiver) as port:
            client.sendto(b"unread", ("127.0.0.1", port))
            assert client.recv(100) == b"UNREAD"


MULTIPROCESSING = """
import multiprocessing, socket, sys
{before}
import xts_socket
from multiprocessing.reduction import recv_handle, send_handle

def serve(pipe, rules):
    assert xts_socket.install(rules)
    with socket.socket(fileno=recv_handle(pipe)) as by_handle:
        by_handle.sendall(by_handle.recv(100).upper())
    with pipe.recv() as pickled:
        pickled.sendall(pickled.recv(100).upper())
    with pipe.recv() as of_the_kernel:
        of_the_kernel.sendall(b"kernel")

if __name__ == "__main__":
    ways = multiprocessing.get_context({context!r})
    here, there = ways.Pipe()
    child = ways.Process(target=serve, args=(there, sys.argv[1]))
    child.start()
    assert xts_socket.install(sys.argv[1])
    one, other = socket.socketpair()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        connection, _ = listener.accept()
        assert connection.reason is xts_socket.Reason.NONE
        send_handle(here, connection.fileno(), child.pid)
        connection.close()
        connection, _ = listener.accept()
        here.send(connection)
        connection.close()
        here.send(one)
        assert other.recv(100) == b"kernel"
        child.join(30)
        assert child.exitcode == 0, child.exitcode
        try:
            ways.Process(target=serve, args=(listener, "")).start()
        except TypeError as refused:
            assert "Pipe or a Queue" in str(refused)
        else:
            assert {context!r} == "fork"
"""


@pytest.mark.parametrize("context", ["spawn", "forkserver"])
@pytest.mark.parametrize("before", ["", "import multiprocessing.reduction"])
def test_multiprocessing(
    context: str, before: str, xts_endpoint: ProxyProcess, rules: Callable[[str], Path], tmp_path: Path
) -> None:
    assert context in multiprocessing.get_all_start_methods()
    file = tmp_path / "program.py"
    file.write_text(MULTIPROCESSING.format(context=context, before=before))
    command = [sys.executable, str(file), str(rules(EVERYTHING))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ) as process:
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline())
            assert ask(port) == b"HELLO"
            assert ask(port) == b"HELLO"
            assert process.wait(PATIENCE_S) == 0
        finally:
            process.kill()
