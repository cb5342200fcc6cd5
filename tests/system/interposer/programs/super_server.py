"""inetd's "wait": `super_server.py udp|tcp fork|spawn|subprocess|system ROUNDS` binds a socket and writes its port.
When something has come it starts a program with the socket as its standard input, and waits for its end.

The program answers what has come, once; a datagram without waiting for it: it was started because it is there."""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys

HERE = os.environ.get("LISTEN_AT", "127.0.0.1")
ENDS = "ends"
PATIENCE_S = 20.0


def answer() -> None:
    with socket.socket(fileno=0) as given:
        if given.type == socket.SOCK_DGRAM:
            given.setblocking(False)
            data, sender = given.recvfrom(100)
            given.sendto(data.upper(), sender)
        else:
            connection, _ = given.accept()
            with connection:
                connection.settimeout(PATIENCE_S)
                connection.sendall(connection.recv(100).upper())


def start(how: str, given: socket.socket) -> int:
    """Starts it, and waits: its exit status."""
    command = [sys.executable, __file__, ENDS]
    if how == "subprocess":
        return subprocess.run(command, stdin=given, check=False).returncode
    if how == "system":
        os.dup2(given.fileno(), 9)
        status = os.waitstatus_to_exitcode(os.system(f"{sys.executable} {__file__} {ENDS} <&9"))
        os.close(9)
        return status
    if how == "spawn":
        pid = os.posix_spawn(command[0], command, os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, given.fileno(), 0)])
    else:
        pid = os.fork()
        if not pid:
            os.dup2(given.fileno(), 0)
            os.execv(command[0], command)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def main() -> None:
    what, how, rounds = sys.argv[1:]
    with socket.socket(type=socket.SOCK_DGRAM if what == "udp" else socket.SOCK_STREAM) as given:
        given.bind((HERE, 0))
        if what == "tcp":
            given.listen()
        print(given.getsockname()[1], flush=True)
        for _ in range(int(rounds)):
            poll = select.poll()
            poll.register(given, select.POLLIN)
            assert poll.poll(PATIENCE_S * 1000)
            assert start(how, given) == 0


if __name__ == "__main__":
    answer() if sys.argv[1] == ENDS else main()
