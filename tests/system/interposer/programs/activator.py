"""Starts a service when somebody connects, as systemd's socket activation does: `activator.py listener|connection
ROUNDS SERVICE …`. The service gets the listening socket, or each connection, as descriptor 3 (sd_listen_fds(3)).

Writes the port, and then how each service has ended."""

from __future__ import annotations

import os
import select
import socket
import sys

FIRST_FD = 3


def start(passed: socket.socket, command: list[str]) -> int:
    pid = os.fork()
    if pid:
        return pid
    if passed.fileno() == FIRST_FD:
        passed.set_inheritable(True)
    else:
        os.dup2(passed.fileno(), FIRST_FD)
    environment = {**os.environ, "LISTEN_FDS": "1", "LISTEN_PID": str(os.getpid())}
    os.execve(command[0], command, environment)


def main() -> None:
    what, rounds, *command = sys.argv[1:]
    with socket.create_server((os.environ["LISTEN_AT"], 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        for _ in range(int(rounds)):
            poll = select.poll()
            poll.register(listener, select.POLLIN)
            poll.poll()
            if what == "listener":
                pid = start(listener, command)
            else:
                with listener.accept()[0] as connection:
                    pid = start(connection, command)
            print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


if __name__ == "__main__":
    main()
