"""Why a file that a person has named cannot be read or made, and what to do: one sentence, for all commands."""

from __future__ import annotations

import difflib
import errno
import os
import pwd
from pathlib import Path


def not_read(path: Path | str, error: OSError) -> str:
    """`/etc/xts/web.conf: No such file or directory; did you mean /etc/xts/web.rules?`"""
    return _sentence(path, error, _to_read(Path(path), error.errno))


def not_made(path: Path | str, error: OSError) -> str:
    """The same of a file that was to be written."""
    return _sentence(path, error, _to_make(Path(path), error.errno))


def _sentence(path: Path | str, error: OSError, advice: str) -> str:
    what = error.strerror or str(error)
    return f"{path}: {what}; {advice}" if advice else f"{path}: {what}"


_NO_FOLDER = "a part of its name is a file and no folder"


def _to_read(path: Path, code: int | None) -> str:
    if code == errno.ENOENT:
        return _close_to(path) if path.parent.is_dir() else f"there is no folder {path.parent}"
    denied = f"user {_user()} may not read it: use one who may, or change its mode"
    advice = {errno.EACCES: denied, errno.EPERM: denied, errno.EISDIR: "give a file in it", errno.ENOTDIR: _NO_FOLDER}
    return advice.get(code or 0, "")


def _close_to(path: Path) -> str:
    close = difflib.get_close_matches(path.name, _names(path.parent), 1, cutoff=0.7)
    if close:
        return f"did you mean {path.with_name(close[0])}?"
    return "give the name of a file that is there" + ("" if path.is_absolute() else f", as seen from {Path.cwd()}")


def _to_make(path: Path, code: int | None) -> str:
    denied = f"user {_user()} may not write there: choose another folder"
    advice = {
        errno.ENOENT: f"there is no folder {path.parent}: make it first, or choose another",
        errno.EEXIST: "it is there and is not overwritten: remove it, or choose another name",
        errno.ENOTDIR: _NO_FOLDER,
        errno.EISDIR: "give the name of a file in it",
        **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), denied),
    }
    return advice.get(code or 0, "")


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208 - the names alone
    except OSError:
        return []


def _user() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())
