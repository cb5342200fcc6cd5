"""Landlock: a process gives up files and the network for good, whoever its user is (landlock(7); Linux 5.13 and newer).

Files that are open already stay open. A kernel cannot restrict what its version of Landlock does not know yet: each
version of the interface (ABI) adds some rights.
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
from collections.abc import Iterable

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same numbers on all architectures
_GET_VERSION = 1
_PATH_BENEATH = 1

_WRITE_FILE, _READ_FILE, _READ_DIR, _REMOVE_FILE, _IOCTL_DEVICE = 1 << 1, 1 << 2, 1 << 3, 1 << 5, 1 << 15
#: All rights to files, by the first version that knows them.
_FILES = {1: (1 << 13) - 1, 2: 1 << 13, 3: 1 << 14, 5: 1 << 15}
#: TCP bind and connect.
_NETWORK = {4: 0b11}
#: Abstract Unix sockets and signals of processes outside.
_SCOPES = {6: 0b11}


def version() -> int:
    """The version of the interface that the kernel has; 0: none, or it was not enabled at boot."""
    return max(0, _call(_CREATE_RULESET, None, ctypes.c_size_t(0), _GET_VERSION))


def restrict(
    *, reads: Iterable[str] = (), removes: Iterable[str] = (), devices: Iterable[str] = (), network: bool = False
) -> str:
    """From now on this thread, and what it starts, cannot open, make or run any file, except to read files beneath
    `reads`, to use devices beneath `devices`, and to remove files from the directories `removes`. Without `network` it
    cannot bind or connect TCP sockets either. Needs no privilege, only PR_SET_NO_NEW_PRIVS. Returns a description for
    the log. OSError: the kernel has Landlock, and refuses."""
    known = version()
    if not known:
        return "no Landlock: the kernel has none, or it is not enabled"
    files = _of(_FILES, known)
    words = [files, 0 if network else _of(_NETWORK, known), _of(_SCOPES, known)]
    count = 3 if known >= 6 else 2 if known >= 4 else 1
    ruleset = _check(_call(_CREATE_RULESET, struct.pack(f"={count}Q", *words[:count]), ctypes.c_size_t(8 * count), 0))
    try:
        uses = _READ_FILE | _READ_DIR | _WRITE_FILE | _IOCTL_DEVICE
        for paths, rights in ((reads, _READ_FILE | _READ_DIR), (removes, _REMOVE_FILE), (devices, uses & files)):
            for path in paths:
                _allow(ruleset, path, rights)
        _check(_call(_RESTRICT_SELF, ruleset, 0))
    finally:
        os.close(ruleset)
    return f"Landlock (version {known})"


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        beneath = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return  # the path does not exist, so there is nothing to allow
    try:
        if not stat.S_ISDIR(os.fstat(beneath).st_mode):
            rights &= ~(_READ_DIR | _REMOVE_FILE)
        _check(_call(_ADD_RULE, ruleset, _PATH_BENEATH, struct.pack("=Qi", rights, beneath), 0))
    finally:
        os.close(beneath)


def _of(rights: dict[int, int], known: int) -> int:
    return sum(bits for since, bits in rights.items() if since <= known)


def _call(number: int, *arguments: object) -> int:
    _libc.syscall.restype = ctypes.c_long
    result = int(_libc.syscall(ctypes.c_long(number), *(_argument(one) for one in arguments)))
    return result if result >= 0 else -ctypes.get_errno()


def _argument(value: object) -> object:
    return ctypes.c_long(value) if isinstance(value, int) else value


def _check(result: int) -> int:
    if result < 0:
        raise OSError(-result, f"Landlock: {os.strerror(-result)}")
    return result


_libc = ctypes.CDLL(None, use_errno=True)
