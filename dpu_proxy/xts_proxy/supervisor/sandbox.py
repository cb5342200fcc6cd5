"""Least privilege for the proxy's processes, once everything that needs privilege is open.

Limits are raised first (`raise_limits`); then queues and sockets are opened; then `confine` gives up what is no longer
needed, first of all the user root. Capabilities belong to threads: confine() runs before any are started, and refuses
to run later.

The supervisor keeps one capability, to read the files that a reload names, which only root may be able to read. It is
effective only inside `reading()`.
"""

from __future__ import annotations

import errno
import fcntl
import os
import pwd
import resource
import signal
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from xts_messages.services import landlock

from xts_proxy._native import ffi, lib
from xts_proxy.config.config_limits import DESCRIPTORS_MAX

CAPABILITIES = {
    "dac_override": 1,
    "dac_read_search": 2,
    "net_bind_service": 10,
    "net_admin": 12,
    "net_raw": 13,
    "ipc_lock": 14,
    "sys_admin": 21,
    "sys_nice": 23,
    "perfmon": 38,
    "bpf": 39,
}
#: What the supervisor keeps, to read again the files that it has read as root.
OF_SUPERVISOR = ("dac_read_search",)
#: What the opener keeps, to open queues again and to attach the XDP program.
OF_OPENER = ("net_admin", "net_raw", "ipc_lock", "perfmon", "bpf")
#: And, where other XDP programs are next to ours: these are asked for, and pinned in files of root.
IF_SHARED = ("sys_admin", "dac_override")
#: The user that the proxy becomes when root has started it and the configuration names none: the first one that exists.
DEFAULT_USERS = ("xts", "nobody")
_STDERR = 2
_THREADS_END_S = 2.0
_SETPCAP = 8
#: setrlimit(2): RLIMIT_NICE is this minus the lowest nice value that may be set.
_NICE_RANGE = 20
_CAPABILITY_VERSION_3 = 0x20080522


def raise_limits() -> int:
    """Raises the number of descriptors to the hard limit, which is returned. If we may, also allows unlimited locked
    memory, for UMEM, and allows threads to leave SCHED_IDLE again (native/ulp/handshake_pool.h)."""
    _, descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))
    _, locked = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    try:
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    except (ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (locked, locked))
    allow_nice()
    return descriptors


def allow_nice() -> bool:
    """Allows threads to leave SCHED_IDLE again, if we may. False: they may not, unless they have SYS_NICE."""
    _, nice_max = resource.getrlimit(resource.RLIMIT_NICE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NICE, (_nice_limit(), nice_max if _allows_nice(nice_max) else _nice_limit()))
    return _allows_nice(resource.getrlimit(resource.RLIMIT_NICE)[0])


def reserve_descriptors() -> None:
    """Makes this process's table of descriptors as large as its limit allows, 8 bytes each, before it has threads. The
    kernel never makes it smaller. When it grows in a process with threads, the call that needs it waits for a grace
    period of RCU (expand_fdtable()): a worker stood still for 5 to 15 ms at 64, 128, 256 … connections."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = min(limit, DESCRIPTORS_MAX) if limit != resource.RLIM_INFINITY else DESCRIPTORS_MAX
    with suppress(OSError):  # without memory for it, the table grows when needed
        os.close(fcntl.fcntl(_STDERR, fcntl.F_DUPFD_CLOEXEC, highest - 1))


def _nice_limit() -> int:
    """The RLIMIT_NICE with which our threads may leave SCHED_IDLE."""
    return _NICE_RANGE - os.getpriority(os.PRIO_PROCESS, 0)


def _allows_nice(limit: int) -> bool:
    return limit == resource.RLIM_INFINITY or limit >= _nice_limit()


def of_workers() -> tuple[str, ...]:
    """The capabilities that workers keep: to bind to ports below 1024 of the device, and to leave SCHED_IDLE where the
    limit does not allow it (root in a container may not raise limits)."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NICE)
    return ("net_bind_service",) if _allows_nice(limit) else ("net_bind_service", "sys_nice")


def confine(user: str, keep: Sequence[str] = (), core_dumps: bool = False) -> list[str]:
    """Becomes `user` ("": see `user_to_become`), keeps of all capabilities those of `keep` that are held, and never
    gains any again; DAC_READ_SEARCH is not effective from here on. Unless `core_dumps`, there are no core dumps, and no
    process of the same user can read its memory. Returns what was done, for the log. OSError: the process must not go
    on."""
    threads = _threads()
    until = time.monotonic() + _THREADS_END_S
    while threads != 1 and time.monotonic() < until:
        time.sleep(0.001)
        threads = _threads()
    if threads != 1:
        raise RuntimeError(f"confine() must come before threads; there are {threads}")
    done = []
    _empty_bounding_set(keep)
    if account := user_to_become(user):
        _become(account)
        done.append(f"user {account.pw_name}")
    before = capabilities()
    kept = before & _mask(*keep)
    _set_capabilities(kept, kept & ~_mask("dac_read_search"))
    _prctl("PR_CAP_AMBIENT", lib.PR_CAP_AMBIENT_CLEAR_ALL)
    _prctl("PR_SET_NO_NEW_PRIVS", 1)
    _prctl("PR_SET_DUMPABLE", int(core_dumps))
    if not core_dumps:
        done.append("no core dumps")
    if capabilities() != kept:
        raise OSError(errno.EPERM, "the kernel kept capabilities that were dropped")
    names = [name for name, number in CAPABILITIES.items() if kept >> number & 1]
    done.append(f"{(before & ~kept).bit_count()} capabilities dropped, kept: {', '.join(names) or 'none'}")
    done.append("no new privileges")
    return done


def _threads() -> int:
    """Of this process. One that has been joined may be among them for a moment, if it gets no time to end."""
    return len(list(Path("/proc/self/task").iterdir()))


def give_up_files(*, network: bool) -> str:
    """From now on this process can open, make or run no file, and, without `network`, bind or connect no TCP socket.
    Returns what was done, for the log: nothing if the kernel has no Landlock."""
    if lib.xts_calls_sanitized():
        return "no Landlock: the run-time libraries of sanitizers read /proc"
    return landlock.restrict(network=network)


def restrict_calls(*, parsers: bool, started: bool, understudy: bool = False) -> str:
    """From here on a workers' process may only make the system calls that workers need
    (messages/native/common/allowed_syscalls.h). Those that start threads are allowed until it is `started`, bpf(2) only
    if there are `parsers`. `understudy`: what is allowed in addition to the process from which the next one is made.
    Returns a line for the log."""
    calls = lib.XTS_CALLS_OF_WORKERS | (lib.XTS_CALLS_OF_PARSERS if parsers else 0)
    calls |= lib.XTS_CALLS_OF_UNDERSTUDY if understudy else 0
    calls |= 0 if started else lib.XTS_CALLS_OF_START
    if result := lib.xts_calls_only(calls):
        raise OSError(-result, f"restricting system calls: {os.strerror(-result)}")
    return f"{lib.xts_calls_count(calls)} system calls"


@contextmanager
def reading() -> Iterator[None]:
    """Inside the context, files that only root may read can be read, if they could be when we started."""
    held = capabilities()
    reader = _mask("dac_read_search")
    if held & reader:
        _set_capabilities(held, held)
    try:
        yield
    finally:
        if held & reader:
            _set_capabilities(held, held & ~reader)


def is_private(path: Path) -> bool:
    """May this file be out of reach for other users, because a folder above it is not for everybody?"""
    return not all(parent.stat().st_mode & stat.S_IXOTH for parent in path.resolve().parents)


def user_to_become(name: str) -> pwd.struct_passwd | None:
    """The user of this name. Without a name: an unprivileged user if we are root, else None, and we keep our user.
    OSError ENOENT: there is no such user."""
    if name:
        return find_user(name)
    if os.geteuid() != 0:
        return None
    for default in DEFAULT_USERS:
        with suppress(OSError):
            return find_user(default)
    wanted = " nor ".join(DEFAULT_USERS)
    raise OSError(errno.ENOENT, f"there is no user {wanted} for the proxy to become: name one as proxy.user")


def set_name(name: str) -> None:
    """What ps and top call this process, 15 characters at most."""
    text = ffi.new("char[]", name.encode())
    _prctl("PR_SET_NAME", int(ffi.cast("uintptr_t", text)))


def die_with_parent() -> None:
    """SIGKILL when the thread that forked us ends. A change of user forgets this."""
    _prctl("PR_SET_PDEATHSIG", signal.SIGKILL)


def find_user(name: str) -> pwd.struct_passwd:
    """The user of this name. OSError ENOENT: there is none."""
    try:
        return pwd.getpwnam(name)
    except KeyError as error:
        raise OSError(errno.ENOENT, f"proxy.user: there is no user {name}") from error


def _become(account: pwd.struct_passwd) -> None:
    if (os.getresuid(), os.getresgid()) == ((account.pw_uid,) * 3, (account.pw_gid,) * 3):
        # we are this user already, and, for example, a user namespace with one user does not allow changing groups
        return
    _prctl("PR_SET_KEEPCAPS", 1)
    try:
        os.initgroups(account.pw_name, account.pw_gid)
        os.setgid(account.pw_gid)
        os.setuid(account.pw_uid)
    except OSError as error:
        hint = 'proxy.user = "root" says that it is to stay root' if os.geteuid() == 0 else "only root can"
        raise OSError(error.errno, f"becoming user {account.pw_name}: {error.strerror}; {hint}") from error


def capabilities() -> int:
    """The permitted capabilities of this thread, as a bit mask."""
    header, data = _header(), ffi.new("uint32_t[6]")
    if lib.capget(header, data) < 0:
        raise OSError(ffi.errno, os.strerror(ffi.errno))
    return int(data[1]) | int(data[4]) << 32


def holds(*names: str) -> bool:
    """Are all of these capabilities permitted?"""
    wanted = _mask(*names)
    return capabilities() & wanted == wanted


def _mask(*names: str) -> int:
    return sum(1 << CAPABILITIES[name] for name in names)


def _set_capabilities(permitted: int, effective: int) -> None:
    """Sets the capabilities; none are inheritable."""
    words = [mask >> shift & 0xFFFFFFFF for shift in (0, 32) for mask in (effective, permitted, 0)]
    data = ffi.new("uint32_t[6]", words)
    if lib.capset(_header(), data) < 0:
        raise OSError(ffi.errno, os.strerror(ffi.errno))


def _empty_bounding_set(keep: Sequence[str]) -> None:
    """Empties the bounding set, so that no program run from here gains capabilities. Needs CAP_SETPCAP; without it
    there is little to gain anyway."""
    if not capabilities() >> _SETPCAP & 1:
        return
    number = 0
    while lib.prctl(lib.PR_CAPBSET_READ, ffi.cast("unsigned long", number)) >= 0:
        if not _mask(*keep) >> number & 1:
            _prctl("PR_CAPBSET_DROP", number)
        number += 1


def _header() -> Any:
    return ffi.new("uint32_t[2]", [_CAPABILITY_VERSION_3, 0])


def _prctl(option: str, value: int) -> None:
    arguments = [ffi.cast("unsigned long", number) for number in (value, 0, 0, 0)]
    if lib.prctl(getattr(lib, option), *arguments) < 0:
        raise OSError(ffi.errno, f"prctl({option}): {os.strerror(ffi.errno)}")
