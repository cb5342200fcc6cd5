"""Programs that are started by posix_spawn()."""

from __future__ import annotations

import os
import socket
import sys

from beds.scripts import script
from system.interposer.programs.interposed import OFFLOADED, Report, kind_of, pair, wait_for_child

SERVES = """
import os, socket, sys
listener, connection = (socket.socket(fileno=int(number)) for number in sys.argv[1].split(","))
for closed in sys.argv[2].split(","):
    try:
        os.fstat(int(closed))
    except OSError:
        continue
    raise AssertionError(closed)
connection.sendall(connection.recv(100).upper())
accepted, _ = listener.accept()
accepted.sendall(b"by the child")
"""


@script("interposer")
def spawned_as_a_service() -> None:
    """dup2 onto the standard descriptors of a program that knows nothing of sockets, as inetd does."""
    client, server = pair()
    actions = [(os.POSIX_SPAWN_DUP2, server.fileno(), 0), (os.POSIX_SPAWN_DUP2, server.fileno(), 1)]
    child = os.posix_spawnp("cat", ["cat"], os.environ, file_actions=actions)
    server.close()
    with client:
        client.sendall(b"through a pipe of one")
        client.shutdown(socket.SHUT_WR)
        assert client.makefile("rb").read() == b"through a pipe of one"
    wait_for_child(child)


@script("interposer")
def spawned_with_sockets() -> None:
    """What is not close-on-exec and not closed is there; the parent has what it had."""
    client, server = pair()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        closed, other = pair()
        for s in (server, listener, closed):
            os.set_inheritable(s.fileno(), True)
        numbers = f"{listener.fileno()},{server.fileno()}"
        words = [sys.executable, "-c", SERVES, numbers, f"{closed.fileno()},{other.fileno()}"]
        child = os.posix_spawn(words[0], words, os.environ, file_actions=[(os.POSIX_SPAWN_CLOSE, closed.fileno())])
        client.sendall(b"hello")
        assert client.recv(100) == b"HELLO"
        with socket.create_connection(listener.getsockname()) as caller:
            assert caller.makefile("rb").read() == b"by the child"
        wait_for_child(child)
        server.sendall(b"by the parent")
        assert client.recv(100) == b"by the parent"
        closed.sendall(b"x")
        assert other.recv(1) == b"x"
        assert kind_of(server) == kind_of(listener) == OFFLOADED
    assert not Report.read().unseen
