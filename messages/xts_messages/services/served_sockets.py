"""Who serves a Unix socket: a service that finds a living one at its path leaves it, and says whose it is."""

from __future__ import annotations

import argparse
import errno
import socket
import struct
import sys
from dataclasses import dataclass
from pathlib import Path

from xts_messages.services.exit_status import MISTAKE
from xts_messages.terminal.printable import printable

_CREDENTIALS = struct.Struct("=iII")
_SYSTEMD = 1


@dataclass(frozen=True, slots=True)
class Server:
    """The process that listens, as it was when it began to."""

    pid: int  # 0: in a PID namespace that is not visible here
    program: str  # "": not known

    def __str__(self) -> str:
        if self.pid == _SYSTEMD and self.program == "systemd":
            return "systemd (a .socket unit: see `systemctl list-sockets`)"
        return f"{self.program} (process {self.pid})" if self.program else "another process"


def server_of(path: Path | str, kind: socket.SocketKind) -> Server | None:
    """Who listens there; None: nobody does."""
    with socket.socket(socket.AF_UNIX, kind | socket.SOCK_NONBLOCK) as probe:
        try:
            probe.connect(str(path))
        except BlockingIOError:  # its backlog is full, so a process serves it
            return Server(0, "")
        except OSError:
            return None
        credentials = probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, _, _ = _CREDENTIALS.unpack(credentials)
    return Server(pid, _program(pid))


def in_use(path: Path | str, server: Server) -> OSError:
    """What a service says that wanted to serve this path, too."""
    return OSError(errno.EADDRINUSE, f"{path} is served by {server}: stop that, or choose another path")


def _program(pid: int) -> str:
    """The name that a process gives itself; "": it has ended, or is not visible."""
    try:
        return printable(Path(f"/proc/{pid}/comm").read_text().rstrip("\n")) if pid else ""
    except OSError:
        return ""


# --- the option of units of sockets -------------------------------------------------------------------------


def add_unserved(parser: argparse.ArgumentParser) -> None:
    """--unserved PATH, for ExecStartPre= of .socket units: systemd replaces a file that is there, whoever serves it."""
    parser.add_argument(
        "--unserved",
        metavar="PATH",
        help="only check that no process serves the Unix socket PATH, and exit: for ExecStartPre= of a .socket unit, "
        "because systemd would take the path over",
    )


def check_unserved(path: str, program: str) -> int:
    """The exit status of --unserved: 0, or MISTAKE after saying who serves the path."""
    if server := server_of(path, socket.SOCK_SEQPACKET):
        print(f"{program}: {in_use(path, server).strerror}", file=sys.stderr)
        return MISTAKE
    return 0
