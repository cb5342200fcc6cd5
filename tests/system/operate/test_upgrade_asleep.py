"""A program does not call the library, and as much has come for it as may, when another proxy takes over: it is asked
all the same, and goes on."""

from __future__ import annotations

import socket
import subprocess
from contextlib import ExitStack

import pytest
from beds.dialogues import peer_address, upgrading_with_server
from beds.operated_proxy import wait
from beds.patience import SLOWER
from beds.ready import readable
from beds.upgrades import Upgrading
from xts_proxy.status import control_socket

AFXDP = [pytest.mark.root, pytest.mark.afxdp]
KINDS = ["shm", *(pytest.param(kind, marks=AFXDP) for kind in ("afxdp", "relay", "switch"))]
PATIENCE_S = 30.0 * SLOWER
#: More than there are frames on their way at most, wherever it is.
CONNECTIONS = 150
SAID = b"said while it sleeps"

SLEEPS = """
import socket, sys
connections = [socket.create_connection((sys.argv[1], int(sys.argv[2]))) for _ in range(int(sys.argv[3]))]
print("connected", flush=True)
sys.stdin.readline()
came = [connection.recv(100, socket.MSG_WAITALL) for connection in connections]
for connection in connections:
    connection.close()
print(sorted(set(came)), flush=True)
"""


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    assert readable(process.stdout, PATIENCE_S)
    return process.stdout.readline().rstrip("\n")


def is_full(where: Upgrading) -> bool:
    """Has the proxy something for the program that it cannot send?"""
    rows = control_socket.ask(where.control(), control_socket.Question("status", connections=True))["connections"]
    return any(row["waits"]["receiving"] == "frame_credits" for row in rows)


@pytest.mark.parametrize("kind", KINDS)
def test_a_program_that_sleeps_with_its_window_full_is_asked(kind: str) -> None:
    with ExitStack() as stack:
        where, server = stack.enter_context(upgrading_with_server(kind, CONNECTIONS, PATIENCE_S))
        arguments = ["-c", SLEEPS, peer_address(where.place), str(server.getsockname()[1]), str(CONNECTIONS)]
        process = stack.enter_context(where.place.program(arguments))
        peers = [stack.enter_context(server.accept()[0]) for _ in range(CONNECTIONS)]
        assert line(process) == "connected"
        for peer in peers:
            peer.sendall(SAID)
            peer.shutdown(socket.SHUT_WR)
        wait(lambda: is_full(where), "a full window", PATIENCE_S)
        where.upgrade()
        assert where.status()["reset"] == 0
        assert process.stdin
        process.stdin.write("\n")
        process.stdin.flush()
        assert line(process) == str([SAID])
