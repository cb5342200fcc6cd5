"""A host that closes sockets and then reads nothing: TCP peers hear of the close though CLOSED finds no frame free."""

from __future__ import annotations

import socket

from beds.scripted_host import Worker
from beds.worker import FEATURES, connected, server, wait_until_taken, worker
from xts_messages.wire.codec import flags

__all__ = ["server", "worker"]
FRAMES = 8


def test_a_close_does_not_wait_for_a_host_that_reads_nothing(worker: Worker, server: socket.socket) -> None:
    with worker.attach(features=FEATURES, frame_window=FRAMES) as host:
        host.open()
        filling = [connected(host, server) for _ in range(2 * FRAMES)]
        closed = [connected(host, server) for _ in range(FRAMES // 2)]
        for conn in filling:
            conn.peer.sendall(b"x")
        wait_until_taken([conn.peer for conn in filling])
        for conn in closed:
            host.send("XTS_CMD_SEND", id=conn.id, flags=flags("CLOSE"), post_credits=0)
        for conn in closed:
            assert conn.peer.recv(1) == b"", "FIN"
        for conn in (*filling, *closed):
            conn.peer.close()
