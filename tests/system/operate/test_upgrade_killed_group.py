"""An upgrade, and then all processes of a server are killed: peers hear of it as they do without an upgrade."""

from __future__ import annotations

import os
import signal
import socket
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from beds.ready import readable
from beds.upgrades import upgrading
from system.interposer.test_killed_group import SOON_S, answered, still_there

AFXDP = [pytest.mark.root, pytest.mark.afxdp]
KINDS = ["shm", pytest.param("afxdp", marks=AFXDP), pytest.param("relay", marks=AFXDP)]
PATIENCE_S = 20.0
#: A parent that uses connections, and has a child that has not used them yet; with a line, each answers on half of
#: them. Both have all of them to the end.
PROGRAM = """
import os, socket, sys
def answer(connection):
    if connection.recv(1):
        connection.send(b"%d\\n" % os.getpid())
with socket.create_server((sys.argv[1], 0), backlog=64) as listener:
    print(listener.getsockname()[1], flush=True)
    connections = [listener.accept()[0] for _ in range(10)]
for connection in connections:
    answer(connection)
go, begin = os.pipe()
if not os.fork():
    os.read(go, 1)
    mine = connections[5:]
    print(os.getpid(), flush=True)
else:
    print(os.getpid(), flush=True)
    sys.stdin.readline()
    os.write(begin, b"!")
    mine = connections[:5]
while True:
    for connection in mine:
        answer(connection)
"""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("upgrades", [1, 2])
def test_all_are_killed_after_an_upgrade(kind: str, upgrades: int) -> None:
    """Those that one process has, and those that it has given to another since; two upgrades, with a child's first use
    between them."""
    with tempfile.TemporaryDirectory(prefix="xts-upgrade-") as folder, ExitStack() as stack:
        Path(folder).chmod(0o755)
        where = stack.enter_context(upgrading(kind, Path(folder), ""))
        process = stack.enter_context(where.place.program(["-c", PROGRAM, where.place.address]))
        assert process.stdin and process.stdout
        port = int(process.stdout.readline())
        clients: list[socket.socket] = []
        for _ in range(10):
            clients.append(stack.enter_context(where.place.connect(port, PATIENCE_S)))
        parent = {answered(client) for client in clients}
        assert int(process.stdout.readline()) in parent
        where.upgrade()
        process.stdin.write("\n")
        process.stdin.flush()
        assert readable(process.stdout, PATIENCE_S)
        child = int(process.stdout.readline())
        assert [answered(client) for client in clients] == [*parent] * 5 + [child] * 5
        if upgrades == 2:
            where.upgrade()
            assert [answered(client) for client in clients] == [*parent] * 5 + [child] * 5
        began = time.monotonic()
        os.killpg(process.pid, signal.SIGKILL)
        assert not still_there(clients, SOON_S), time.monotonic() - began
