"""A connection that a child uses, which is stopped, sent something, and killed: what it was sent may be lost with it. A
second child and then this process read. It prints what each of them and the peer got."""

from __future__ import annotations

import os
import signal
import socket

HERE = os.environ["LISTEN_AT"]
PATIENCE_S = 10
ATTEMPTS = 50


def outcome(connection: socket.socket) -> str:
    try:
        return connection.recv(100).decode() or "end"
    except OSError as error:
        return os.strerror(error.errno or 0)


def attempt() -> tuple[str, str, str]:
    with socket.create_server((HERE, 0)) as listener:
        connection = socket.create_connection(listener.getsockname(), timeout=PATIENCE_S)
        peer, _ = listener.accept()
    peer.settimeout(PATIENCE_S)
    if not (child := os.fork()):
        peer.close()
        connection.send(b"mine")
        os.kill(os.getpid(), signal.SIGSTOP)
    os.waitpid(child, os.WUNTRACED)
    peer.recv(4, socket.MSG_WAITALL)
    peer.send(b"first ")
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    reads, writes = os.pipe()
    if not os.fork():
        os.write(writes, outcome(connection).encode())
        os._exit(0)
    os.wait()
    second = os.read(reads, 100).decode()
    try:
        peer.send(b"later")
    except OSError as error:  # an error is told once
        return second, outcome(connection), os.strerror(error.errno or 0)
    here = outcome(connection)
    connection.close()
    return second, here, outcome(peer)


def main() -> None:
    for _ in range(ATTEMPTS):
        got = attempt()
        if not got[0].startswith("first"):
            break
    print(*got, sep=", ")


if __name__ == "__main__":
    main()
