"""Pairs of processes, a parent and its child, that have a connection in common, which the child uses. When a line
comes the child sends, and ends; its parent has closed its own copy before that, ends, too, or sleeps. Answers with a
line when all have ended, or sleep. With the next line those that sleep send more.

    last_words_in_common.py PEER PORT WAYS

WAYS: of the pairs, with commas: how the child ends, " and ", what its parent does.
"""

from __future__ import annotations

import os
import signal
import socket
import sys

SENT = b"0123456789" * 500


def child(connection: socket.socket, how: str, begun: int, start: int) -> None:
    connection.sendall(b"begun")
    os.write(begun, b"1")
    if not os.read(start, 1):
        os._exit(1)
    connection.sendall(SENT)
    if how == "closes":
        connection.close()
    elif how == "shuts":
        connection.shutdown(socket.SHUT_WR)
    elif how == "is killed":
        os.kill(os.getpid(), signal.SIGKILL)
    os._exit(0)


def parent(server: tuple[str, int], way: str, start: int, told: int) -> None:
    how, _, does = way.partition(" and ")
    connection = socket.create_connection(server)
    hear, begun = os.pipe()
    to_child, begin = os.pipe()
    pid = os.fork()
    if not pid:
        child(connection, how, begun, to_child)
    os.read(hear, 1)
    if does == "closed":
        connection.close()
    os.write(told, b"1")
    os.read(start, 1)
    os.write(begin, b"1")
    os.waitpid(pid, 0)
    if does == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    os.write(told, b"1")
    os.read(start, 1)
    if does == "sleeps" and how != "shuts":
        connection.sendall(b"more")
    os.write(told, b"1")
    os._exit(0)


def main(peer: str, port: str, ways: str) -> None:
    starts, ready = [], []
    for way in ways.split(","):
        start, begin = os.pipe()
        hear, told = os.pipe()
        if os.fork() == 0:
            os.close(begin)
            os.close(hear)
            parent((peer, int(port)), way, start, told)
        os.close(start)
        os.close(told)
        starts.append(begin)
        ready.append(hear)
        os.read(hear, 1)
    print("connected", flush=True)
    for word in ("left", "more"):
        sys.stdin.readline()
        for begin in starts:
            try:
                os.write(begin, b"1")
            except BrokenPipeError:  # it was killed
                continue
        for hear in ready:
            os.read(hear, 1)
        print(word, flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    main(*sys.argv[1:])
