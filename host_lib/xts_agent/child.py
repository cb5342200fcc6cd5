"""Child processes of the agent, forked before it has threads. Each keeps one descriptor: its link to the agent."""

from __future__ import annotations

import logging
import os
import signal
import socket
from collections.abc import Callable
from typing import NoReturn

log = logging.getLogger("xts-agent")


def fork(main: Callable[[socket.socket], int]) -> tuple[socket.socket, int]:
    """The child runs main() on its end of the connection, and exits with the result. Returns our end, and the child's
    process number. The child ignores the signals that end the agent; it ends with the connection instead."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    process = os.fork()
    if process == 0:
        _run(main, theirs)
    theirs.close()
    return ours, process


def _run(main: Callable[[socket.socket], int], inherited: socket.socket) -> NoReturn:
    status = 1
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        os.dup2(inherited.fileno(), 3)
        os.closerange(4, os.sysconf("SC_OPEN_MAX"))
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, fileno=3)
        connection.set_inheritable(False)
        status = main(connection)
    except OSError as error:
        log.error("a process of the agent cannot begin: %s", error.strerror or error)
    finally:
        os._exit(status)
