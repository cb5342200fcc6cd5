"""What a program under the interposer sends while it handles many events leaves together, but does not wait long for a
program that does not come back (XTS_EPOLL_HOLD)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from beds.patience import SLOWER
from beds.preload import preload_library
from xts_lab.lab import Lab

CONNECTIONS, ROUNDS = 8, 3
#: Answers some of many connections that are ready, then calls nothing until the answers are known to have come.
SERVER = f"""
import os, select, socket, sys, time
listener = socket.create_server(("0.0.0.0", 0))
print(listener.getsockname()[1], flush=True)
sockets = [listener.accept()[0] for _ in range({CONNECTIONS})]
epoll = select.epoll()
for s in sockets:
    epoll.register(s, select.EPOLLIN)
for turn in range({ROUNDS}):
    for s in sockets:
        while s.recv(1, socket.MSG_PEEK) != b"q":
            pass
    assert len(epoll.poll()) == {CONNECTIONS}
    for s in sockets[:3]:
        s.send(b"answer")
    end = time.monotonic() + 20
    while not os.path.exists(sys.argv[1] + str(turn)):
        assert time.monotonic() < end, "the answer does not leave"
    for s in sockets:
        s.recv(1)
"""
CLIENT = f"""
import socket, sys
sockets = [socket.create_connection((sys.argv[1], int(sys.argv[2])), 30) for _ in range({CONNECTIONS})]
for turn in range({ROUNDS}):
    for s in sockets:
        s.sendall(b"q")
    for s in sockets[:3]:
        assert s.recv(6, socket.MSG_WAITALL) == b"answer"
    open(sys.argv[3] + str(turn), "w").close()
"""


def test_an_answer_leaves_though_the_program_goes_on_computing(lab: Lab, tmp_path: Path) -> None:
    seen = str(tmp_path / "seen")
    server = lab.popen(
        "host",
        [sys.executable, "-c", SERVER, seen],
        environment={"LD_PRELOAD": preload_library(), "XTS_STRICT": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout is not None
        port = server.stdout.readline().strip()
        lab.run("net", [sys.executable, "-c", CLIENT, "198.18.0.1", port, seen], timeout=60 * SLOWER)
        _, said = server.communicate(timeout=30 * SLOWER)
    finally:
        server.kill()
        server.wait()
    assert server.returncode == 0, said
