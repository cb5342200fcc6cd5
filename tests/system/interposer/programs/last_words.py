"""What processes that end leave to their peers and to other processes that have the connection: `last_words.py CASE`.

It prints what those got. All of it is so on the kernel.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

HERE = os.environ["LISTEN_AT"]
PATIENCE_S = 10
#: Sockets that are open when their process ends.
OPEN: list[socket.socket] = []


def pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server((HERE, 0)) as listener:
        connection = socket.create_connection(listener.getsockname(), timeout=PATIENCE_S)
        peer, _ = listener.accept()
    peer.settimeout(PATIENCE_S)
    return connection, peer


def outcome(call: Callable[[], object]) -> str:
    try:
        return str(call())
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, repr(error))


def child(body: Callable[[], None]) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        body()
    except BaseException as error:
        os.write(2, repr(error).encode())
    os._exit(0)


def until_it_sleeps(thread: int | None) -> None:
    end = time.monotonic() + PATIENCE_S
    while Path(f"/proc/self/task/{thread}/stat").read_text().rpartition(")")[2].split()[0] != "S":
        assert time.monotonic() < end
        time.sleep(0.001)


def shut_and_killed() -> str:
    """A child says FIN and is killed. The parent may not send any more, and what else it has goes on."""
    connection, peer = pair()
    other, others_peer = pair()

    def shuts() -> None:
        connection.send(b"mine")
        connection.shutdown(socket.SHUT_WR)
        os.kill(os.getpid(), signal.SIGKILL)

    os.waitpid(child(shuts), 0)
    got = [outcome(lambda: connection.send(b"more")), outcome(lambda: peer.recv(10, socket.MSG_WAITALL))]
    other.send(b"goes on")
    return ", ".join([*got, outcome(lambda: others_peer.recv(10))])


def killed_with_the_last_copy() -> str:
    """The parent has closed its copy, as a server does that makes a process for each connection."""
    connection, peer = pair()
    closed, tell = os.pipe()

    def answers() -> None:
        peer.close()
        os.read(closed, 1)
        connection.send(b"mine")
        os.kill(os.getpid(), signal.SIGKILL)

    pid = child(answers)
    connection.close()
    os.write(tell, b"x")
    os.waitpid(pid, 0)
    return ", ".join(outcome(lambda: peer.recv(10)) for _ in range(2))


def shut_for_reading() -> str:
    """By a child: the parent's call that waits ends, as all later ones, and it may still send."""
    connection, peer = pair()
    go, tell = os.pipe()

    def shuts() -> None:
        os.read(go, 1)
        connection.shutdown(socket.SHUT_RD)

    got: list[str] = []
    pid = child(shuts)
    waiting = threading.Thread(target=lambda: got.append(outcome(lambda: connection.recv(10))))
    waiting.start()
    until_it_sleeps(waiting.native_id)
    os.write(tell, b"x")
    waiting.join(PATIENCE_S)
    os.waitpid(pid, 0)
    poll = select.poll()
    poll.register(connection, select.POLLIN | select.POLLRDHUP)
    events = poll.poll(PATIENCE_S * 1000)[0][1] & (select.POLLIN | select.POLLRDHUP | select.POLLHUP)
    connection.send(b"sent")
    return f"{got[0]}, {events:#x}, {outcome(lambda: connection.recv(10))}, {outcome(lambda: peer.recv(10))}"


def shut_while_it_is_elsewhere() -> str:
    """The process that has it is stopped, and goes on after one that has shut it down has ended."""
    connection, peer = pair()

    def stops() -> None:
        connection.send(b"mine")
        os.kill(os.getpid(), signal.SIGSTOP)
        signal.pause()

    holder = child(stops)
    os.waitpid(holder, os.WUNTRACED)
    os.waitpid(child(lambda: connection.shutdown(socket.SHUT_WR)), 0)
    os.kill(holder, signal.SIGCONT)
    got = [outcome(lambda: peer.recv(10)) for _ in range(2)]
    os.kill(holder, signal.SIGKILL)
    os.waitpid(holder, 0)
    return ", ".join(got)


def asks_one_that_ends(ends: Callable[[socket.socket], None]) -> str:
    """The child's connection is its own; this process is the peer."""
    arrived, go = os.pipe()
    with socket.create_server((HERE, 0)) as listener:

        def answers() -> None:
            connection = socket.create_connection(listener.getsockname(), timeout=PATIENCE_S)
            OPEN.append(connection)
            connection.send(b"answer")
            os.read(arrived, 1)
            ends(connection)

        pid = child(answers)
        peer, _ = listener.accept()
    peer.settimeout(PATIENCE_S)
    got = outcome(lambda: peer.recv(6, socket.MSG_WAITALL))
    peer.send(b"question")
    os.write(go, b"x")
    os.waitpid(pid, 0)
    return f"{got}, {outcome(lambda: peer.recv(10))}"


def receives(connection: socket.socket, size: int) -> None:
    select.select([connection], [], [], PATIENCE_S)
    if size:
        connection.recv(size)


def all_was_read() -> str:
    return asks_one_that_ends(lambda connection: receives(connection, 100))


def a_part_unread() -> str:
    return asks_one_that_ends(lambda connection: receives(connection, 3))


def unread() -> str:
    return asks_one_that_ends(lambda connection: receives(connection, 0))


def told_to_reset() -> str:
    def ends(connection: socket.socket) -> None:
        receives(connection, 100)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    return asks_one_that_ends(ends)


def never_accepted() -> str:
    port, tell = os.pipe()
    connected, go = os.pipe()

    def listens() -> None:
        listener = socket.create_server((HERE, 0))
        OPEN.append(listener)
        os.write(tell, str(listener.getsockname()[1]).encode())
        select.select([listener], [], [], PATIENCE_S)
        os.read(connected, 1)

    pid = child(listens)
    peer = socket.create_connection((HERE, int(os.read(port, 10))), timeout=PATIENCE_S)
    os.write(go, b"x")
    os.waitpid(pid, 0)
    return outcome(lambda: peer.recv(10))


if __name__ == "__main__":
    print(globals()[sys.argv[1]]())
