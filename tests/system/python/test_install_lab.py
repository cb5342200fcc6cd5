"""install() with the default rules where host and device are machines of their own: the lab."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest
from beds.patience import SLOWER
from xts_lab.lab import Lab

DEADLINE_S = 20.0 * SLOWER
SERVER = """
import select, socket, sys, warnings, xts_socket
warnings.simplefilter("error")
xts_socket.install()
with socket.create_server(("", 0)) as listener:
    print(listener.getsockname()[1], flush=True)
    for _ in range(4):
        if sys.argv[1] == "select":
            assert select.select([listener], [], [], 10)[0]
        else:
            listener.settimeout(10)
        sock, _ = listener.accept()
        with sock:
            print(sock.reason.name, sock.recv(100).decode(), flush=True)
"""
CLIENT = """
import socket, sys, xts_socket
xts_socket.install()
sock = socket.create_connection(("198.18.0.2", int(sys.argv[1])), 10)
print(sock.reason.name, sock.recv(100).decode())
"""


@pytest.mark.parametrize("waiting", ["accept", "select"])
def test_a_wildcard_listener_is_for_the_network_and_for_the_host_itself(lab: Lab, waiting: str) -> None:
    server = lab.popen("host", [sys.executable, "-c", SERVER, waiting], stdout=subprocess.PIPE, text=True)
    with server:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        for role, address, reason in (("net", "198.18.0.1", "NONE"), ("host", "127.0.0.1", "LOCAL")) * 2:
            with lab.inside(role):
                client = socket.socket()
            with client:
                client.settimeout(DEADLINE_S)
                client.connect((address, port))
                client.sendall(role.encode())
                assert server.stdout.readline().split() == [reason, role]
        assert server.wait(DEADLINE_S) == 0


def test_a_client_of_the_network(lab: Lab) -> None:
    with lab.inside("net"):
        listener = socket.create_server(("198.18.0.2", 0))
    with listener:
        listener.settimeout(DEADLINE_S)
        command = [sys.executable, "-c", CLIENT, str(listener.getsockname()[1])]
        client = lab.popen("host", command, stdout=subprocess.PIPE, text=True)
        with client:
            accepted, address = listener.accept()
            with accepted:
                assert address[0] == "198.18.0.1"
                accepted.sendall(b"hello")
            output, _ = client.communicate(timeout=DEADLINE_S)
        assert output.split() == ["NONE", "hello"]
