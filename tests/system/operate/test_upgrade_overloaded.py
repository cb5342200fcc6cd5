"""A program that sends more than its proxy takes, when another proxy takes over: it answers at once, and what waits is
sent to the next one. Something waits there all the time, so whoever waited until nothing does would wait for long."""

from __future__ import annotations

import hashlib
import json
import socket
import subprocess
import threading
from contextlib import ExitStack

import pytest
from beds.application import Application
from beds.dialogues import peer_address, upgrading_with_server
from beds.patience import SLOWER
from beds.scripted_proxy import ScriptedProxy
from xts_messages.wire import wire_table as table

AFXDP = [pytest.mark.root, pytest.mark.afxdp]
KINDS = ["shm", *(pytest.param(kind, marks=AFXDP) for kind in ("afxdp", "relay"))]
MOVE = table.FEATURES["MOVE"][0]
WINDOW_FRAMES = 16
CONNECTIONS = 40
PATIENCE_S = 30.0 * SLOWER
MESSAGE_BYTES, MESSAGES = 64, 4000

FILLER = f"""
import xts_socket

sockets = [xts_socket.socket() for _ in range({CONNECTIONS})]
for s in sockets:
    s.connect(("198.18.0.2", 80))
    s.setblocking(False)
for s in sockets:
    assert s.send(b"x") == 1
poll = xts_socket.epoll(batch=True)
for s in sockets:
    poll.register(s, 1)
print("waits", flush=True)
poll.poll({PATIENCE_S})
"""


def test_move_is_answered_before_what_waits_is_sent(scripted: ScriptedProxy) -> None:
    with Application(FILLER, scripted.path) as application:
        channel = scripted.next_channel(features=MOVE, frame_window=WINDOW_FRAMES)
        for number in range(CONNECTIONS):
            channel.accept_connect(number + 1)
        while len(channel.backlog) < WINDOW_FRAMES:
            channel.take(1000)
        assert {frame.name for frame in channel.backlog} == {"XTS_CMD_SEND"}
        assert application.process.stdout and application.process.stdout.readline() == "waits\n"
        channel.backlog.clear()
        channel.send("XTS_REPLY_MOVE", fields={"ticket": 1 << 63 | 5, "within_ms": 60_000})  # it gives credits back
        answer = channel.receive()
        assert (answer.name, answer.fields) == ("XTS_CMD_MOVE_ACK", {"ticket": 1 << 63 | 5})
        application.process.kill()
        application.process.communicate()


SENDER = """
import select, sys
import xts_socket

count, messages, bytes_each = map(int, sys.argv[3:6])
turns = bytes(range(251)) * 3
sockets = []
for number in range(count):
    s = xts_socket.socket()
    s.connect((sys.argv[1], int(sys.argv[2])))
    s.setblocking(False)
    s.send(number.to_bytes(4, "big"))
    sockets.append([s, number, 0])
print("connected", flush=True)
poll = xts_socket.epoll()
for row in sockets:
    poll.register(row[0], select.EPOLLOUT)
left = sockets
while left:
    for row in left:
        s, number, at = row
        try:
            while row[2] < messages * bytes_each:
                begin = (number + row[2]) % 251
                row[2] += s.send(turns[begin : begin + min(bytes_each, messages * bytes_each - row[2])])
                if row[2] % (16 * bytes_each) == 0:
                    break
        except BlockingIOError:
            pass
    left = [row for row in left if row[2] < messages * bytes_each]
    poll.poll(0.01)
for row in sockets:
    row[0].close()
print("sent", flush=True)
sys.stdin.readline()
"""


def expected(number: int) -> str:
    turn = bytes((number + i) % 251 for i in range(251))
    return hashlib.sha256((turn * (MESSAGES * MESSAGE_BYTES // 251 + 1))[: MESSAGES * MESSAGE_BYTES]).hexdigest()


class Sinks:
    """What comes over each connection, by the number that comes first."""

    def __init__(self, server: socket.socket) -> None:
        self._server = server
        self.found: dict[int, str] = {}
        self.threads = [threading.Thread(target=self._take, daemon=True) for _ in range(CONNECTIONS)]
        for thread in self.threads:
            thread.start()

    def _take(self) -> None:
        peer, _ = self._server.accept()
        with peer:
            peer.settimeout(PATIENCE_S)
            number = int.from_bytes(peer.recv(4, socket.MSG_WAITALL), "big")
            digest = hashlib.sha256()
            while data := peer.recv(1 << 16):
                digest.update(data)
            self.found[number] = digest.hexdigest()


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout and process.stderr
    return process.stdout.readline().strip() or process.stderr.read()


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_lost_of_what_waits(kind: str) -> None:
    with ExitStack() as stack:
        where, server = stack.enter_context(upgrading_with_server(kind, CONNECTIONS, PATIENCE_S))
        sinks = Sinks(server)
        numbers = (CONNECTIONS, MESSAGES, MESSAGE_BYTES)
        arguments = ["-c", SENDER, peer_address(where.place), str(server.getsockname()[1]), *map(str, numbers)]
        process = stack.enter_context(where.place.program(arguments, interposed=False))
        assert said(process) == "connected"
        for _ in range(2):
            where.upgrade()
            assert where.status()["reset"] == 0
        assert said(process) == "sent"
        for thread in sinks.threads:
            thread.join(PATIENCE_S)
        assert sinks.found == {number: expected(number) for number in range(CONNECTIONS)}, json.dumps(sinks.found)
