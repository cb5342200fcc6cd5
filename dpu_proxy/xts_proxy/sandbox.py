"""Least privilege for the proxy, once everything that needs privilege is open.

Limits are raised first (`raise_limits`); then queues and sockets are opened; then `confine` gives up what is no
longer needed. Capabilities belong to threads: confine() runs before the workers start, so that they inherit the
little that is left, and it refuses to run later. What a reload needs (reading the file, posting to workers) needs
none of what is dropped, except that another user must still be allowed to read the file.
"""

from __future__ import annotations

import errno
import os
import pwd
import resource
from pathlib import Path
from typing import Any

from xts_proxy._native import ffi, lib

#: What stays: hosts may listen on ports below 1024 of the device.
KEPT = {"net_bind_service": 10}
_SETPCAP = 8
_CAPABILITY_VERSION_3 = 0x20080522


def raise_limits() -> int:
    """Descriptors up to the hard limit, which is returned; locked memory without limit, for UMEM, where we may."""
    _, descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))
    _, locked = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    try:
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    except (ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (locked, locked))
    return descriptors


def confine(user: str, core_dumps: bool = False) -> list[str]:
    """Becomes `user` ("" for the same one), keeps of all capabilities those in KEPT that are held, and never gains
    any again. Unless `core_dumps`, its memory, which may hold keys, is written nowhere and shown to no process of
    the same user. Returns what was done, for the log. OSError: nothing can be relied on."""
    threads = len(list(Path("/proc/self/task").iterdir()))
    if threads != 1:
        raise RuntimeError(f"confine() must come before threads; there are {threads}")
    done = []
    _empty_bounding_set()
    if user:
        account = find_user(user)
        _prctl("PR_SET_KEEPCAPS", 1)
        os.initgroups(account.pw_name, account.pw_gid)
        os.setgid(account.pw_gid)
        os.setuid(account.pw_uid)
        done.append(f"user {user}")
    before = capabilities()
    kept = before & sum(1 << number for number in KEPT.values())
    _set_capabilities(kept)
    _prctl("PR_CAP_AMBIENT", lib.PR_CAP_AMBIENT_CLEAR_ALL)
    _prctl("PR_SET_NO_NEW_PRIVS", 1)
    _prctl("PR_SET_DUMPABLE", int(core_dumps))
    if not core_dumps:
        done.append("no core dumps")
    if capabilities() != kept:
        raise OSError(errno.EPERM, "the kernel kept capabilities that were dropped")
    names = [name for name, number in KEPT.items() if kept >> number & 1]
    done.append(f"{(before & ~kept).bit_count()} capabilities dropped, kept: {', '.join(names) or 'none'}")
    done.append("no new privileges")
    return done


def find_user(name: str) -> pwd.struct_passwd:
    """OSError ENOENT: there is none of this name."""
    try:
        return pwd.getpwnam(name)
    except KeyError as error:
        raise OSError(errno.ENOENT, f"proxy.user: there is no user {name}") from error


def capabilities() -> int:
    """The permitted capabilities of this thread, as a bit mask."""
    header, data = _header(), ffi.new("uint32_t[6]")
    if lib.capget(header, data) < 0:
        raise OSError(ffi.errno, os.strerror(ffi.errno))
    return int(data[1]) | int(data[4]) << 32


def _set_capabilities(mask: int) -> None:
    """Permitted and effective; nothing inheritable."""
    low, high = mask & 0xFFFFFFFF, mask >> 32
    data = ffi.new("uint32_t[6]", [low, low, 0, high, high, 0])
    if lib.capset(_header(), data) < 0:
        raise OSError(ffi.errno, os.strerror(ffi.errno))


def _empty_bounding_set() -> None:
    """So that no program run from here gains any. Needs CAP_SETPCAP; without it there is little to gain anyway."""
    if not capabilities() >> _SETPCAP & 1:
        return
    number = 0
    while lib.prctl(lib.PR_CAPBSET_READ, ffi.cast("unsigned long", number)) >= 0:
        if number not in KEPT.values():
            _prctl("PR_CAPBSET_DROP", number)
        number += 1


def _header() -> Any:
    return ffi.new("uint32_t[2]", [_CAPABILITY_VERSION_3, 0])


def _prctl(option: str, value: int) -> None:
    arguments = [ffi.cast("unsigned long", number) for number in (value, 0, 0, 0)]
    if lib.prctl(getattr(lib, option), *arguments) < 0:
        raise OSError(ffi.errno, f"prctl({option}): {os.strerror(ffi.errno)}")
