"""Programs that count on having one thread, while a thread of the library's looks after their sockets."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Callable
from pathlib import Path

from beds.scripts import script
from system.interposer.programs.interposed import LIBC, libc, pair, until, wait_for_child

NOBODY = 65534
PR_SET_KEEPCAPS = 8
CAPABILITY_VERSION_3 = 0x20080522
CAP_SETGID, CAP_SETUID = 6, 7
CLONE_NEWNS, CLONE_NEWUSER = 0x20000, 0x10000000
SYS_UNSHARE = {"x86_64": 272, "aarch64": 97}
INTERPOSED = "libxts-preload" in os.environ.get("LD_PRELOAD", "")


def threads() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


def capabilities(permitted: int, effective: int) -> None:
    """capset(), which is about this thread alone."""
    head = struct.pack("=Ii", CAPABILITY_VERSION_3, 0)
    assert LIBC.capset(head, struct.pack("=IIIIII", effective, permitted, 0, 0, 0, 0)) == 0


def in_a_child_with_two_threads(do: Callable[[], object]) -> None:
    """A server's process for one client, which sends before and after. The library's thread is there: it looks after
    what parent and child have together."""
    if os.geteuid():
        return
    client, server = pair()
    pid = os.fork()
    if not pid:
        server.sendall(b"before, ")
        if INTERPOSED:
            until(lambda: threads() > 1)
        do()
        assert server.recv(100) == b"and now"
        server.sendall(b"after")
        os._exit(0)
    with client:
        server.close()
        assert client.recv(100) == b"before, "
        client.sendall(b"and now")
        assert client.recv(100) == b"after"
    wait_for_child(pid)


@script("as the kernel")
def a_child_keeps_a_capability_and_changes_its_user_again() -> None:
    """ProFTPD after a login. The C library has each thread change its user, and aborts where one may not."""

    def change() -> None:
        kept = 1 << CAP_SETGID | 1 << CAP_SETUID
        capabilities(kept, kept)
        libc("prctl", PR_SET_KEEPCAPS, 1)
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
        capabilities(kept, kept)
        for _ in range(3):
            os.setresuid(-1, 0, -1)
            os.setresgid(-1, 0, -1)
            os.setgroups([NOBODY])
            os.setresgid(-1, NOBODY, -1)
            os.setresuid(-1, NOBODY, -1)
            capabilities(kept, kept)
        assert os.geteuid() == NOBODY

    in_a_child_with_two_threads(change)


@script("as the kernel")
def a_child_gives_up_what_it_may_and_is_refused() -> None:
    """As before, but no capability is left: the errno of the call, and no abort."""

    def change() -> None:
        capabilities(0, 0)
        try:
            os.setresuid(NOBODY, NOBODY, NOBODY)
        except PermissionError:
            return
        raise AssertionError("without a capability it has become somebody else")

    in_a_child_with_two_threads(change)


@script("as the kernel")
def a_child_makes_a_namespace_of_users() -> None:
    in_a_child_with_two_threads(lambda: libc("unshare", CLONE_NEWUSER))


@script("as the kernel")
def a_child_makes_a_namespace_of_users_by_number() -> None:
    number = SYS_UNSHARE[os.uname().machine]
    in_a_child_with_two_threads(lambda: libc("syscall", ctypes.c_long(number), ctypes.c_long(CLONE_NEWUSER)))


@script("as the kernel")
def a_child_goes_into_its_namespace_of_mounts() -> None:
    """Which setns() refuses to a process whose threads have a root directory together."""

    def change() -> None:
        fd = os.open("/proc/self/ns/mnt", os.O_RDONLY)
        libc("setns", fd, CLONE_NEWNS)
        os.close(fd)

    in_a_child_with_two_threads(change)
