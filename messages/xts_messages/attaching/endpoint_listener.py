"""The socket at an endpoint's path, from which an endpoint accepts (endpoint.py).

Theory of operation. Three things may happen to it, and none may end the service. Its file is removed or replaced: it
listens again at a new one (KeptFile says when). The process runs out of descriptors: a connection that waits would wake
it for ever, so a reserved descriptor is given up for the moment, the connection is accepted and turned away, and the
descriptor is reserved again; while that fails nobody is accepted. Another process of the server takes its place: this
one pauses, and resumes when the other one ends.
"""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import socket
import stat
import time
from collections.abc import Callable
from pathlib import Path

from xts_messages.services.kept_file import KeptFile
from xts_messages.services.served_sockets import in_use, server_of
from xts_messages.services.unix_listener import listen_at

BACKLOG = 4096  # the kernel has a limit of its own (net.core.somaxconn)
ACCEPTS = 256  # connections that are accepted before those are served that wait
RESERVE_S = 0.5
_NEVER = float("inf")


class EndpointListener:
    """Listens at `path`. It is registered with `selector` while it accepts, with None as data."""

    def __init__(
        self,
        path: Path,
        mode: int,
        selector: selectors.BaseSelector,
        accepted: Callable[[socket.socket], None],
        turned_away: Callable[[socket.socket, str], None],
        *,
        given: socket.socket | None,
        warn: Callable[[str], None],
    ) -> None:
        """accepted(connection), turned_away(connection, reason): the connections are theirs. given: a socket that
        listens at path already; its file is left alone. OSError EADDRINUSE, ENOTSOCK, and others."""
        self._path, self._mode = path, mode
        self._selector = selector
        self._accepted, self._turned_away = accepted, turned_away
        self._reserve = os.eventfd(0)  # what needs no file, as the process may give up the right to open one
        self._reserve_at = _NEVER  # by time.monotonic(): there is none, and it is tried again then
        try:
            self.socket = given or listen(path, mode)
            self.socket.setblocking(False)
        except OSError:
            os.close(self._reserve)
            raise
        self._is_paused = False
        self._file = KeptFile(path, warn)
        if given is None:
            self._file.own()
        self._register()

    def accept_some(self) -> None:
        """Accepts those that wait, ACCEPTS at most."""
        for _ in range(ACCEPTS):
            try:
                accepted, _ = self.socket.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE):
                    self._turn_next_away()
                return
            accepted.setblocking(False)
            self._accepted(accepted)

    def look(self) -> None:
        """At what may have happened to it. To be called after timeout_s()."""
        if self._reserve_at <= time.monotonic():
            self._reserve_again()
        if not self._is_paused:
            self._file.look(self._listen_again)

    def timeout_s(self) -> float | None:
        """None: any time."""
        waits = [max(0.0, self._reserve_at - time.monotonic())] if self._reserve_at < _NEVER else []
        if not self._is_paused and (look_s := self._file.timeout_s()) is not None:
            waits.append(look_s)
        return min(waits, default=None)

    def own_file(self) -> None:
        """The file is ours, and is removed at the end, though we have not made it."""
        self._file.own()

    def leave_file(self) -> None:
        """The file is another process's."""
        self._file.leave()

    def pause(self) -> None:
        """Accepts nobody from now on."""
        self._is_paused = True
        with contextlib.suppress(KeyError):
            self._selector.unregister(self.socket)

    def resume(self) -> None:
        """Accepts again."""
        self._is_paused = False
        self._register()

    def close(self) -> bool:
        """True: it was open. To be followed by remove_file()."""
        if self.socket.fileno() < 0:
            return False
        self.socket.close()
        if self._reserve >= 0:
            os.close(self._reserve)
        return True

    def remove_file(self) -> None:
        """If it is still ours."""
        with contextlib.suppress(OSError):
            self._file.remove()

    def _register(self) -> None:
        if self._reserve_at == _NEVER:
            self._selector.register(self.socket, selectors.EVENT_READ, None)

    def _listen_again(self) -> None:
        """With a new socket, since a file that is gone cannot be had back. Accepts first who waits at the old one."""
        listener = listen(self._path, self._mode)
        self.accept_some()
        with contextlib.suppress(KeyError):
            self._selector.unregister(self.socket)
        self.socket.close()
        self.socket = listener
        self._register()

    def _turn_next_away(self) -> None:
        """Out of descriptors. If none can be reserved again at once, because the whole machine has none left, nobody
        is accepted for a while."""
        if self._reserve >= 0:
            os.close(self._reserve)
            self._reserve = -1
            with contextlib.suppress(OSError):
                self._turned_away(self.socket.accept()[0], "the endpoint is out of descriptors")
        self._reserve_again()

    def _reserve_again(self) -> None:
        is_out = self._reserve_at < _NEVER
        try:
            self._reserve = os.eventfd(0)
        except OSError:
            self._reserve_at = time.monotonic() + RESERVE_S
            if not is_out and not self._is_paused:
                self._selector.unregister(self.socket)
            return
        self._reserve_at = _NEVER
        if is_out and not self._is_paused:
            self._register()


def listen(path: Path, mode: int) -> socket.socket:
    """A listening socket at path. A stale file there is replaced in one step; one that is served is left alone."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
    try:
        if path.exists():
            if not stat.S_ISSOCK(path.lstat().st_mode):
                raise OSError(errno.ENOTSOCK, f"{path} exists and is not a socket: remove it, or choose another")
            if server := server_of(path, socket.SOCK_SEQPACKET):
                raise in_use(path, server)
        listen_at(listener, path, mode, BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener
