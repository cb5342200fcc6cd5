"""The page in which a process shows its settings, and through which it can be asked to read its rules again or to log
more (native/core/control_page.h): a memfd of the process, found in /proc/PID/fd. Root can reach all processes, others
their own.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import pwd
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xts_messages.terminal.printable import printable

from ..._native import ffi, lib

_LINK = "/memfd:xts-control (deleted)"
_F_GET_SEALS, _F_SEAL_SHRINK = 1034, 0x2
_ORIGINS = ("default", "profile", "file", "environment", "call")  # enum xts_origin
LOG_LEVELS = ("none", "warning", "info", "debug")  # enum xts_log_level


@dataclass(frozen=True, slots=True)
class Value:
    """A setting of a process."""

    name: str  # name of the variable
    value: str
    origin: str  # default, profile, file, environment or call
    where: str  # a description of the place


def value_of(line: str) -> Value:
    """Parses a line of a page: name, value, origin and place."""
    name, value, origin, where = [printable(part) for part in (line.split("\t") + 3 * [""])[:4]]
    known = origin.isdecimal() and int(origin) < len(_ORIGINS)
    return Value(name, value, _ORIGINS[int(origin)] if known else "unknown", where)


class ControlPage:
    """The page of a process, mapped."""

    def __init__(self, pid: int, memory: mmap.mmap) -> None:
        self.pid = pid
        self._page = ffi.from_buffer("struct xts_control_page *", memory, True)

    @property
    def is_valid(self) -> bool:
        return bool(self._page.magic == lib.XTS_CONTROL_MAGIC and self._page.version == lib.XTS_CONTROL_VERSION)

    @property
    def inner_pid(self) -> int:
        """The process id as the process itself sees it."""
        return int(self._page.pid)

    @property
    def program(self) -> str:
        return _text(self._page.program)

    def settings(self) -> list[Value]:
        """The present settings; waits for a moment if they are being written."""
        for _ in range(100):
            before = self._page.settings_writes
            text = ffi.string(self._page.settings, len(self._page.settings)).decode("utf-8", "replace")
            if before == self._page.settings_writes and not before % 2:
                break
            time.sleep(0.001)
        return [value_of(line) for line in text.split("\n") if line.count("\t") == 3]

    @property
    def log_level(self) -> str:
        asked = self._page.log_asked
        level = asked - 1 if 0 < asked <= len(LOG_LEVELS) else self._page.log_level
        return LOG_LEVELS[level] if level < len(LOG_LEVELS) else "unknown"

    @property
    def log_is_asked(self) -> bool:
        """Has another log level been requested than that of the settings?"""
        return bool(self._page.log_asked)

    def ask_for_log(self, level: str | None) -> None:
        """Requests a log level from now on; None: that of the settings."""
        self._page.log_asked = 0 if level is None else LOG_LEVELS.index(level) + 1

    def ask_for_rules(self) -> int:
        """Requests that the rules are read again; returns the number of the request."""
        self._page.rules_asked = number = max(1, (self._page.rules_done + 1) & 0xFFFFFFFF)
        return int(number)

    def rules_answer(self, number: int, timeout_s: float) -> tuple[int, str] | None:
        """0, or an errno and a description, once the request has been carried out; None: not yet."""
        deadline = time.monotonic() + timeout_s
        while self._page.rules_done != number:
            if time.monotonic() > deadline:
                return None
            time.sleep(0.01)
        return int(self._page.rules_error), _text(self._page.rules_text)

    def close(self) -> None:
        ffi.release(self._page)


def _text(field: Any) -> str:
    return printable(ffi.string(field, len(field)).decode("utf-8", "replace"))


def pids(proc: Path = Path("/proc")) -> list[int]:
    """The ids of all processes, in order."""
    return sorted(int(entry.name) for entry in proc.iterdir() if entry.name.isdecimal())


@contextmanager
def page_of(pid: int, proc: Path = Path("/proc")) -> Iterator[ControlPage | None]:
    """The page of a process; None: it has none, or we may not see it."""
    memory = _map(proc / str(pid))
    if memory is None:
        yield None
        return
    page = ControlPage(pid, memory)
    try:
        yield page if page.is_valid else None
    finally:
        page.close()
        memory.close()


def unreachable(pid: int, proc: Path = Path("/proc"), *, interposed: bool = False) -> str:
    """Why a process has no page here: which of the causes it is, and what to do. `interposed`: it is the interposer's
    page that is looked for, and not the library's."""
    process = proc / str(pid)
    try:
        name = printable(process.joinpath("comm").read_text().strip())
        uid = process.stat().st_uid
    except OSError:
        return f"there is no process {pid}: `xts status` and `ps` list those that there are"
    who = f"process {pid} ({name})"
    try:
        list(process.joinpath("fd").iterdir())
        loaded = process.joinpath("maps").read_text(errors="replace")
    except PermissionError:
        what = "use sudo" if os.geteuid() else "root of a container may not look outside it: ask outside"
        return f"{who} is user {_user(uid)}'s, and user {_user(os.geteuid())} may not look at it: {what}"
    except OSError:
        return f"{who} has ended just now"
    return f"{who} {_why_no_page(process, loaded, interposed)}"


def _why_no_page(process: Path, loaded: str, interposed: bool) -> str:
    if interposed and "libxts-preload.so" not in loaded:
        return "is not under `xts run`, and no socket of it has gone through xts_socket.install()"
    if "/libxts.so" not in loaded:
        return "has not loaded libxts: start it with `xts run`, or let it import xts_socket or link libxts"
    if any(_is_link(link) for link in process.joinpath("fd").iterdir()):
        return "has libxts of another version than this xts: use the xts that it was started with"
    return "has loaded libxts, and has had no socket yet: ask again when it has"


def _is_link(link: Path) -> bool:
    try:
        return os.readlink(link) == _LINK  # noqa: PTH115 - a Path would be made of what is no path
    except OSError:
        return False


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _map(process: Path) -> mmap.mmap | None:
    size = ffi.sizeof("struct xts_control_page")
    try:
        links = sorted(process.joinpath("fd").iterdir())
    except OSError:  # it is gone, or belongs to another user
        return None
    for link in links:
        try:
            if os.readlink(link) != _LINK:  # noqa: PTH115 - a Path would be made of what is no path
                continue
            fd = os.open(link, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            if os.fstat(fd).st_size == size and _cannot_shrink(fd):
                return mmap.mmap(fd, size)
        finally:
            os.close(fd)
    return None


def _cannot_shrink(fd: int) -> bool:
    """The library seals its page. One that its process may cut off would end who has mapped it, by SIGBUS."""
    try:
        return bool(fcntl.fcntl(fd, _F_GET_SEALS) & _F_SEAL_SHRINK)
    except OSError:  # it is no memfd
        return False
