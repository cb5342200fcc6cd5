"""The file of a Unix socket that a service listens at: is it still there, and still ours?

A file that somebody has removed (a tool that cleans up, a hand) leaves a service that nobody can reach and that
notices nothing. So it looks every now and then, and listens at the path again. A file of another service is left alone.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

EVERY_S = 5.0


class KeptFile:
    """`warn` gets a sentence once for each thing that happens to the file."""

    def __init__(self, path: Path, warn: Callable[[str], None]) -> None:
        self.path = path
        self._warn = warn
        self._inode: tuple[int, int] | None = None  # None: it is not ours
        self._next_look = 0.0  # by time.monotonic()
        self._told = ""

    def own(self) -> None:
        """The file that is there now is ours. If it is gone already, that is found at the next look."""
        try:
            found = self.path.stat()
        except FileNotFoundError:
            self._inode = (0, 0)
        else:
            self._inode = (found.st_dev, found.st_ino)
        self._next_look = time.monotonic() + EVERY_S

    def leave(self) -> None:
        """It is another process's."""
        self._inode = None

    def is_ours(self) -> bool:
        try:
            found = self.path.lstat()
        except OSError:
            return False
        return (found.st_dev, found.st_ino) == self._inode

    def timeout_s(self) -> float | None:
        """How long until the next look; None: there is none, as it is not ours."""
        return None if self._inode is None else max(0.0, self._next_look - time.monotonic())

    def look(self, again: Callable[[], None]) -> None:
        """If it is time, and the file is gone, `again` listens at the path again; it may raise an OSError, and is
        called again after a while."""
        if self._inode is None or time.monotonic() < self._next_look:
            return
        self._next_look = time.monotonic() + EVERY_S
        if self.is_ours():
            return
        if os.path.lexists(self.path):
            self._tell(f"{self.path} is another process's now, which new processes reach instead of this one")
            return
        try:
            again()
        except OSError as error:
            self._tell(
                f"{self.path} has been removed, and cannot be made again ({error.strerror}): nobody can reach this "
                "process until it is started again"
            )
            return
        self.own()
        self._told = ""
        self._warn(f"{self.path} has been removed by somebody, and is made again")

    def remove(self) -> None:
        """At the end. OSError: we may not."""
        if self.is_ours():
            self.path.unlink()

    def _tell(self, text: str) -> None:
        if text != self._told:
            self._told = text
            self._warn(text)
