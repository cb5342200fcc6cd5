"""A stand-in for systemd: hears what a service says, keeps descriptors for it, and passes them to the next process."""

from __future__ import annotations

import array
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

MESSAGE_BYTES = 4096
#: Puts descriptors where sd_listen_fds(3) wants them and becomes a command, as another user without any capability.
AS_SYSTEMD = """
import fcntl, os, pwd, sys
fds, names, user, *command = sys.argv[1:]
high = [fcntl.fcntl(int(fd), fcntl.F_DUPFD_CLOEXEC, 1000) for fd in fds.split(",") if fd]
for number, fd in enumerate(high):
    os.dup2(fd, 3 + number)
os.environ |= {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": str(len(high)), "LISTEN_FDNAMES": names}
if user:
    group = str(pwd.getpwnam(user).pw_gid)
    command = ["setpriv", "--reuid", user, "--regid", group, "--clear-groups", "--bounding-set", "-all",
               "--inh-caps", "-all", "--no-new-privs", "--", *command]
os.execvp(command[0], command)
"""


class Manager:
    """A context manager. `stored` and `heard` change while processes run; wait for what you look for."""

    def __init__(self) -> None:
        self.stored: list[tuple[str, int]] = []
        self.heard: list[str] = []
        self._directory = tempfile.TemporaryDirectory(prefix="xts-manager-")
        Path(self._directory.name).chmod(0o755)
        self.path = f"{self._directory.name}/notify"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(self.path)
        Path(self.path).chmod(0o777)
        self._thread = threading.Thread(target=self._listen)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as last:
            last.sendto(b"", self.path)
        self._thread.join()
        self._socket.close()
        self._directory.cleanup()
        self.forget("")

    def forget(self, prefix: str) -> None:
        """Closes what is stored under names that begin so."""
        gone = [item for item in self.stored if item[0].startswith(prefix)]
        self.stored = [item for item in self.stored if item not in gone]
        for _, fd in gone:
            os.close(fd)

    def names(self) -> list[str]:
        return sorted(name for name, _ in self.stored)

    def start(
        self, command: Sequence[str], *, user: str = "", sockets: Sequence[socket.socket] = (), watchdog_ms: int = 0
    ) -> subprocess.Popen[str]:
        """Runs a command with all that is stored, and these sockets."""
        passed = [*self.stored, *(("socket", listener.fileno()) for listener in sockets)]
        fds, names = ",".join(str(fd) for _, fd in passed), ":".join(name for name, _ in passed)
        environment = os.environ | {"NOTIFY_SOCKET": self.path}
        if watchdog_ms:
            environment["WATCHDOG_USEC"] = str(watchdog_ms * 1000)
        return subprocess.Popen(
            [sys.executable, "-c", AS_SYSTEMD, fds, names, user, *command],
            pass_fds=[fd for _, fd in passed],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def _listen(self) -> None:
        room = socket.CMSG_SPACE(array.array("i").itemsize * 8)
        while True:
            data, ancillary, _, _ = self._socket.recvmsg(MESSAGE_BYTES, room)
            if not data:
                return
            fds = array.array("i")
            for _, _, rights in ancillary:
                fds.frombytes(rights)
            self._hear(data.decode(), list(fds))

    def _hear(self, message: str, fds: list[int]) -> None:
        fields = dict(line.split("=", 1) for line in message.splitlines())
        if "FDSTORE" in fields:
            self.stored += [(fields["FDNAME"], fd) for fd in fds]
            return
        if "FDSTOREREMOVE" in fields:
            with suppress(StopIteration):
                name, fd = next(item for item in self.stored if item[0] == fields["FDNAME"])
                self.stored.remove((name, fd))
                os.close(fd)
            return
        for fd in fds:  # of a barrier: it falls when this is closed
            os.close(fd)
        if "BARRIER" not in fields:
            self.heard.append(message)
