"""Frames of several sockets share packets where packets are dear: between the host library and a running proxy."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from beds.patience import SLOWER
from xts_lab.lab import Lab

DEADLINE_S = 60.0 * SLOWER
CONNECTIONS = 16
#: Answers all connections at once, when each of them has asked.
SERVER = f"""
import socket
with socket.create_server(("198.18.0.2", 0), backlog={CONNECTIONS}) as listener:
    print(listener.getsockname()[1], flush=True)
    socks = [listener.accept()[0] for _ in range({CONNECTIONS})]
    while all(s.recv(64, socket.MSG_WAITALL) for s in socks):
        for sock in socks:
            sock.sendall(bytes(64))
"""
#: Until a packet has brought more than one frame, or that would have happened long ago.
CLIENT = f"""
import dataclasses, json, sys, xts_socket
socks = [xts_socket.create_connection(("198.18.0.2", int(sys.argv[1]))) for _ in range({CONNECTIONS})]
for turn in range(500):
    for sock in socks:
        sock.sendall(bytes(64))
    for sock in socks:
        assert sock.recv(64, xts_socket.MSG_WAITALL) == bytes(64)
    found = xts_socket.info()
    if found.received_packets < found.received_frames:
        break
print(json.dumps(dataclasses.asdict(found)))
"""


def info_after_many_answers(lab: Lab) -> dict[str, Any]:
    server = lab.popen("net", [sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True)
    with server:
        assert server.stdout is not None
        port = server.stdout.readline().strip()
        client = lab.popen("host", [sys.executable, "-c", CLIENT, port], stdout=subprocess.PIPE, text=True)
        with client:
            output, _ = client.communicate(timeout=DEADLINE_S)
        assert server.wait(DEADLINE_S) == 0
    found: dict[str, Any] = json.loads(output)
    return found


def test_answers_to_many_sockets_share_packets(lab: Lab) -> None:
    found = info_after_many_answers(lab)
    assert found["queue_kind"] == lab.settings.queue
    assert bool(found["features"] & 8) == (lab.settings.queue == "afxdp")
    assert (found["received_packets"] < found["received_frames"]) == (lab.settings.queue == "afxdp")
    assert found["malformed"] == 0
