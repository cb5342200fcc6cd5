"""Least privilege for a process that serves others: another user, few capabilities or none, and no way to gain any."""

from __future__ import annotations

import os
import pwd

from xts_messages._native import lib

#: Numbers of linux/capability.h.
DAC_OVERRIDE, SETGID, SETUID, SETPCAP = 1, 6, 7, 8
NET_ADMIN, NET_RAW, IPC_LOCK, SYS_ADMIN, PERFMON, BPF = 12, 13, 14, 21, 38, 39


def find_user(name: str) -> pwd.struct_passwd:
    """OSError ENOENT: there is no user with this name."""
    try:
        return pwd.getpwnam(name)
    except KeyError:
        raise FileNotFoundError(2, f"there is no user {name}") from None


def confine(*keep: int, user: pwd.struct_passwd | None = None) -> None:
    """Becomes another user (None: the same) and keeps these capabilities, as far as they are held; to be called before
    there are threads. With another user none can be kept. OSError: it failed, and nothing may be assumed."""
    mask = sum(1 << number for number in keep)
    _check(int(lib.xts_privilege_bound(mask)))
    if user and (os.getresuid(), os.getresgid()) != ((user.pw_uid,) * 3, (user.pw_gid,) * 3):
        os.setgroups([])
        os.setresgid(user.pw_gid, user.pw_gid, user.pw_gid)
        os.setresuid(user.pw_uid, user.pw_uid, user.pw_uid)
    _check(int(lib.xts_privilege_keep(mask)))


def _check(result: int) -> None:
    if result < 0:
        raise OSError(-result, f"giving up privileges: {os.strerror(-result)}")
