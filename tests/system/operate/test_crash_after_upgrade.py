"""The workers die that have taken connections over from another proxy: their counts of bytes go on, whatever was
unread or unsent when they came, and came before their host had claimed them."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import ExitStack

import pytest
from beds import process_tree
from beds.dialogues import peer_address, upgrading_with_server
from beds.operated_proxy import wait
from beds.patience import SLOWER
from beds.ready import readable
from beds.upgrades import Upgrading
from xts_proxy.status import control_socket

AFXDP = [pytest.mark.root, pytest.mark.afxdp]
KINDS = ["shm", *(pytest.param(kind, marks=AFXDP) for kind in ("afxdp", "relay"))]
PATIENCE_S = 30.0 * SLOWER
CONNECTIONS = 12
#: More than one window, less than what TCP takes besides.
BEFORE, MEANWHILE, AFTER = b"b" * 150_000, b"m" * 40_000, b"a" * 30_000
SENT = 100_000

READS = """
import socket, sys
connections = [socket.create_connection((sys.argv[1], int(sys.argv[2]))) for _ in range(int(sys.argv[3]))]
said, total = sys.stdin.readline, int(sys.argv[4])
for number, connection in enumerate(connections):
    connection.sendall(bytes([number]) * int(sys.argv[5]))
print("connected", flush=True)
said()
came = [connection.recv(1) for connection in connections]
print("read", flush=True)
said()
for number, connection in enumerate(connections):
    connection.sendall(b"last")
    while len(came[number]) < total:
        came[number] += connection.recv(total - len(came[number])) or b"!" * total
    connection.close()
print(len(set(came)), came[0].rstrip(b"a").rstrip(b"m").rstrip(b"b"), came[0].count(b"m"), flush=True)
said()
"""


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout and process.stderr
    assert readable(process.stdout, PATIENCE_S)
    return process.stdout.readline().rstrip("\n") or process.stderr.read()


def go_on(process: subprocess.Popen[str]) -> None:
    assert process.stdin
    process.stdin.write("\n")
    process.stdin.flush()


def frames(where: Upgrading) -> list[tuple[int, int]]:
    rows = control_socket.ask(where.control(), control_socket.Question("status"))["channels"]
    return [(row["link"]["sent_frames"], row["link"]["received_frames"]) for row in rows]


def is_at_rest(where: Upgrading) -> bool:
    """What is under way when the workers die may end its connection."""
    before = frames(where)
    time.sleep(0.1 * SLOWER)
    return frames(where) == before


def kill_workers(pid: int) -> None:
    workers = process_tree.one(pid, "xts-workers")
    ended = os.pidfd_open(workers)
    os.kill(workers, signal.SIGKILL)
    assert readable(ended, PATIENCE_S)
    os.close(ended)


@pytest.mark.parametrize("kind", KINDS)
def test_all_bytes_are_right(kind: str) -> None:
    with ExitStack() as stack:
        where, server = stack.enter_context(upgrading_with_server(kind, CONNECTIONS, PATIENCE_S))
        total = len(BEFORE) + len(MEANWHILE) + len(AFTER)
        numbers = (CONNECTIONS, total, SENT)
        arguments = ["-c", READS, peer_address(where.place), str(server.getsockname()[1]), *map(str, numbers)]
        process = stack.enter_context(where.place.program(arguments))
        peers = [stack.enter_context(server.accept()[0]) for _ in range(CONNECTIONS)]
        assert line(process) == "connected"
        for peer in peers:
            peer.settimeout(PATIENCE_S)
            peer.sendall(BEFORE)
        where.upgrade()
        for peer in peers:
            peer.sendall(MEANWHILE)  # its host sleeps, and has not claimed it
        go_on(process)
        assert line(process) == "read"
        wait(lambda: is_at_rest(where), "rest")
        kill_workers(where.pid())
        for peer in peers:
            peer.sendall(AFTER)
        go_on(process)
        for number, peer in enumerate(peers):
            came = b""
            while data := peer.recv(1 << 16):
                came += data
            assert came[SENT:] == b"last" and len(set(came[:SENT])) == 1, number
        assert line(process) == f"1 b'' {len(MEANWHILE)}"
