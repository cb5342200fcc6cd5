"""Network namespaces of a lab: making, entering and removing them.

In Linux a namespace is a property of a thread, so everything here works only on the calling thread: `inside()` moves it
and brings it back, and sockets made in between stay in the namespace. Only the network is changed; the file system
stays shared, so Unix sockets and BPF file systems look the same from every namespace (`ip netns exec` hides the
latter).

Settings are in two trees. /proc/sys/net shows the calling thread's namespace. /sys shows the namespace of
whoever mounted it, so `sysfs()` makes a private, unattached mount of it and gives out a descriptor to open
files below.
"""

from __future__ import annotations

import ctypes
import errno
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

NETNS_DIRECTORY = Path("/run/netns")

_CLONE_NEWNET = 0x40000000
_MS_BIND, _MS_REC, _MS_SHARED = 0x1000, 0x4000, 0x100000
_MNT_DETACH = 2
# The mount API of Linux 5.2; these numbers are the same on every architecture.
_SYS_FSOPEN, _SYS_FSCONFIG, _SYS_FSMOUNT = 430, 431, 432
_FSOPEN_CLOEXEC, _FSCONFIG_CMD_CREATE, _FSMOUNT_CLOEXEC = 1, 6, 1

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def _mount(source: str, target: Path, flags: int) -> None:
    result = _libc.mount(source.encode(), str(target).encode(), b"none", ctypes.c_ulong(flags), None)
    _check(result, f"mount {source or 'none'} on {target}")


def path_of(namespace: str) -> Path:
    """The path of the namespace's name (as `ip netns` keeps them)."""
    return NETNS_DIRECTORY / namespace


def exists(namespace: str) -> bool:
    """Does the name exist and refer to a live namespace, not to a file that a crash has left?"""
    path = path_of(namespace)
    return path.exists() and path.stat().st_dev != NETNS_DIRECTORY.stat().st_dev


def _prepare_directory() -> None:
    NETNS_DIRECTORY.mkdir(mode=0o755, exist_ok=True)
    try:
        _mount("", NETNS_DIRECTORY, _MS_SHARED | _MS_REC)
    except OSError as error:
        if error.errno != errno.EINVAL:  # EINVAL: not a mount point yet
            raise
        _mount(str(NETNS_DIRECTORY), NETNS_DIRECTORY, _MS_BIND | _MS_REC)
        _mount("", NETNS_DIRECTORY, _MS_SHARED | _MS_REC)


def create(namespace: str) -> None:
    """Makes an empty namespace with its loopback down. OSError (EEXIST) when the name is taken."""
    failure: list[OSError] = []

    def make() -> None:  # runs in a separate thread, which makes the namespace and ends
        try:
            _check(_libc.unshare(_CLONE_NEWNET), "unshare")
            _mount("/proc/thread-self/ns/net", path_of(namespace), _MS_BIND)
        except OSError as error:
            failure.append(error)

    _prepare_directory()
    os.close(os.open(path_of(namespace), os.O_RDONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o444))
    thread = threading.Thread(target=make, name=f"make {namespace}")
    thread.start()
    thread.join()
    if failure:
        remove(namespace)
        raise failure[0]


def remove(namespace: str) -> None:
    """Removes the name; the namespace goes with the last process in it. Does nothing if there is no such name."""
    path = path_of(namespace)
    while _libc.umount2(str(path).encode(), _MNT_DETACH) == 0:
        pass
    with suppress(FileNotFoundError):
        path.unlink()


def enter(namespace: str) -> None:
    """Moves the calling thread into the namespace for good."""
    descriptor = os.open(path_of(namespace), os.O_RDONLY | os.O_CLOEXEC)
    try:
        _check(_libc.setns(descriptor, _CLONE_NEWNET), f"setns {namespace}")
    finally:
        os.close(descriptor)


@contextmanager
def inside(namespace: str) -> Iterator[None]:
    """The calling thread is in the namespace for the duration of the block. Must not be used across an `await` or
    `yield`."""
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        enter(namespace)
        try:
            yield
        finally:
            _check(_libc.setns(home, _CLONE_NEWNET), "setns back")
    finally:
        os.close(home)


def processes_in(namespace: str) -> list[int]:
    """Process ids that live in the namespace."""
    wanted = path_of(namespace).stat()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                here = (entry / "ns/net").stat()
                if (here.st_dev, here.st_ino) == (wanted.st_dev, wanted.st_ino):
                    found.append(int(entry.name))
    return sorted(found)


# --- settings ----------------------------------------------------------------


def sysctl(name: str) -> str:
    """The value of net.NAME (slashes for dots) in the calling thread's namespace."""
    return Path("/proc/sys/net", name).read_text().strip()


def set_sysctl(name: str, value: int | str) -> None:
    """Sets net.NAME in the calling thread's namespace."""
    try:
        Path("/proc/sys/net", name).write_text(f"{value}\n")
    except OSError as error:
        raise OSError(error.errno, f"net/{name} = {value}: {error.strerror}") from error


@contextmanager
def sysfs(namespace: str) -> Iterator[int]:
    """A descriptor of the top of /sys as seen from the namespace, for `os.open(..., dir_fd=)`."""
    with inside(namespace):
        context = _check(_libc.syscall(_SYS_FSOPEN, b"sysfs", _FSOPEN_CLOEXEC), "fsopen sysfs")
        try:
            _check(_libc.syscall(_SYS_FSCONFIG, context, _FSCONFIG_CMD_CREATE, None, None, 0), "fsconfig sysfs")
            top = _check(_libc.syscall(_SYS_FSMOUNT, context, _FSMOUNT_CLOEXEC, 0), "fsmount sysfs")
        finally:
            os.close(context)
    try:
        yield top
    finally:
        os.close(top)


def read_sysfs(top: int, name: str) -> str:
    """The text of a file below a `sysfs()` descriptor."""
    descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=top)
    with os.fdopen(descriptor, encoding="ascii") as file:
        return file.read().strip()


def write_sysfs(top: int, name: str, value: int | str) -> None:
    """Writes a file below a `sysfs()` descriptor."""
    descriptor = os.open(name, os.O_WRONLY | os.O_CLOEXEC, dir_fd=top)
    try:
        os.write(descriptor, f"{value}\n".encode())
    except OSError as error:
        raise OSError(error.errno, f"/sys/{name} = {value}: {error.strerror}") from error
    finally:
        os.close(descriptor)
