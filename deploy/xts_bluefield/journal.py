"""The journal: what each setting was before it was touched, and what it was made, in order; a JSON file.

It is replaced as a whole after each change, and on disk before an action begins: whatever stops the program, or the
machine, finds either the entry or an untouched setting. Entries stay over boots, with the value of before the first
apply, until undo has removed them.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct, structs

from .machine import write_whole
from .model import Setting, Value

DEFAULT = "/var/lib/xts-bluefield/journal.json"


class Entry(Struct, frozen=True, forbid_unknown_fields=True):
    """`state`: "done" when the setting was read back with our value; "started" while apply or undo is at it."""

    kind: str
    place: str
    original: Any
    ours: Any
    state: Literal["started", "done"]

    @property
    def setting(self) -> Setting:
        return Setting(self.kind, self.place)


class _File(Struct, frozen=True, forbid_unknown_fields=True):
    version: Literal[1]
    entries: list[Entry]


class JournalError(OSError):
    """The journal cannot be used; the text says why, and what to do."""


class Journal:
    """A journal in memory, and on disk after each change."""

    def __init__(self, path: Path, entries: list[Entry]) -> None:
        self.path = path
        self.entries = entries

    @classmethod
    @contextmanager
    def opened(cls, path: Path) -> Iterator[Journal]:
        """The journal at a path, empty if there is none, for this process alone until the block ends."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            lock = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise JournalError(error.errno, f"{path}: {error.strerror}; name another with --journal") from None
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise JournalError(errno.EBUSY, f"{path}: another xts-bluefield is at work; wait for it") from None
            yield cls(path, _read(path))
        finally:
            os.close(lock)

    def begin(self, setting: Setting, found: Value, ours: Value) -> None:
        """Before the first action. What was there before an earlier apply stays the original."""
        i = self._index(setting)
        if i is None:
            self.entries.append(Entry(setting.kind, setting.place, found, ours, "started"))
        else:
            self.entries[i] = structs.replace(self.entries[i], ours=ours, state="started")
        self._save()

    def done(self, setting: Setting) -> None:
        """After the new value was read back."""
        self._mark(setting, "done")

    def leaving(self, setting: Setting) -> None:
        """Before undo's first action: from here on the value may be one between ours and the original."""
        self._mark(setting, "started")

    def _mark(self, setting: Setting, state: Literal["started", "done"]) -> None:
        i = self._index(setting)
        assert i is not None
        self.entries[i] = structs.replace(self.entries[i], state=state)
        self._save()

    def remove(self, setting: Setting) -> None:
        """The setting has its original value again. The last one takes the file with it."""
        self.entries = [entry for entry in self.entries if entry.setting != setting]
        if self.entries:
            self._save()
        else:
            self.path.unlink(missing_ok=True)

    def _index(self, setting: Setting) -> int | None:
        return next((i for i, entry in enumerate(self.entries) if entry.setting == setting), None)

    def _save(self) -> None:
        text = msgspec.json.format(msgspec.json.encode(_File(1, self.entries)), indent=1).decode()
        write_whole(self.path, text + "\n", 0o600)


def _read(path: Path) -> list[Entry]:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise JournalError(error.errno, f"{path}: {error.strerror}") from None
    try:
        return msgspec.json.decode(data, type=_File).entries
    except (msgspec.DecodeError, ValueError) as error:
        raise JournalError(
            errno.EBADMSG,
            f"{path}: this is no whole journal: {error}. Nothing was changed. Put a copy of it back, or move it away: "
            "without it undo does not know what there was before",
        ) from None
