"""Communication between systemd and a service: states (sd_notify(3)), and descriptors in both directions.

The descriptors that systemd passes (sd_listen_fds(3)) are sockets of the service's .socket units, and those that an
earlier process of the service has stored. They are looked up once, before anything else is opened, and taken by address
or by name; a warning can name the ones that were not taken. Without systemd there are none.
"""

from __future__ import annotations

import array
import functools
import os
import socket
import stat
from contextlib import suppress
from dataclasses import dataclass, field

#: Sockets of a proxy that another one takes over from have the path at which they listen in their names.
LISTENS = "listener:"
FIRST_FD = 3  # SD_LISTEN_FDS_START
BARRIER_S = 5.0


@dataclass
class Passed:
    """Descriptors from systemd that have not been taken yet: (name, descriptor)."""

    items: list[tuple[str, int]] = field(default_factory=list)

    def listener(self, address: str | tuple[str, int], kind: socket.SocketKind) -> socket.socket | None:
        """The socket that listens at this path, or at this address and port; the caller owns it from now on."""
        for item in self.items:
            if not stat.S_ISSOCK(os.fstat(item[1]).st_mode):  # maps and memory are stored, too
                continue
            # with a family, whichever it has: without, Python asks for the name, which AF_XDP sockets have not
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, os.dup(item[1])) as found:
                listens = found.getsockopt(socket.SOL_SOCKET, socket.SO_TYPE) == kind
                listens = listens and bool(found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
                name = found.getsockname() if listens else ""
                if listens and item[0] == f"{LISTENS}{address}":  # it was bound by another name (unix_listener.py)
                    name = address
            if name and (name if isinstance(address, str) else tuple(name[:2])) == address:
                self.items.remove(item)
                return socket.socket(fileno=item[1])
        return None

    def named(self, prefix: str) -> dict[str, int]:
        """Stored descriptors whose names begin with prefix, by name; the caller owns them from now on."""
        found = {name: fd for name, fd in self.items if name.startswith(prefix)}
        self.items = [item for item in self.items if item[0] not in found]
        return found


@functools.cache
def passed() -> Passed:
    """The descriptors that systemd has passed to this process."""
    return _look()


@functools.cache
def manager() -> ServiceManager:
    """The service manager of this process."""
    return ServiceManager()


def _look() -> Passed:
    """The variables are removed, since they are for this process and not for its children."""
    whose, count, names = (os.environ.pop(name, "") for name in ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"))
    if whose != str(os.getpid()) or not count.isdigit():
        return Passed()
    called = names.split(":") if names else []
    result = Passed()
    for i in range(int(count)):
        os.set_inheritable(FIRST_FD + i, False)
        result.items.append((called[i] if i < len(called) else "unknown", FIRST_FD + i))
    return result


class ServiceManager:
    """The connection to systemd; does nothing without $NOTIFY_SOCKET, which is removed from the environment and kept as
    `address`."""

    def __init__(self) -> None:
        self.address = self._address = os.environ.pop("NOTIFY_SOCKET", "")
        if self._address.startswith("@"):
            self._address = "\0" + self._address[1:]

    def __bool__(self) -> bool:
        """Is there a manager that receives messages?"""
        return bool(self._address)

    def notify(self, message: str) -> None:
        """Sends a state. A failure is no reason to stop, and is ignored."""
        with suppress(OSError):
            self._send(message, [])

    def store(self, name: str, fd: int) -> None:
        """Stores a descriptor for later processes of this service; `passed().named()` finds it. OSError."""
        self._send(f"FDSTORE=1\nFDNAME={name}\nFDPOLL=0", [fd])

    def forget(self, name: str) -> None:
        """Makes systemd close what it has stored under this name; does nothing if there is nothing."""
        self.notify(f"FDSTOREREMOVE=1\nFDNAME={name}")

    def wait_until_taken(self) -> None:
        """Waits until systemd has read everything: the sender of a message has to live until then. TimeoutError."""
        reader, writer = socket.socketpair()
        with reader:
            with writer:
                self._send("BARRIER=1", [writer.fileno()])
            reader.settimeout(BARRIER_S)
            reader.recv(1)

    def _send(self, message: str, descriptors: list[int]) -> None:
        if not self._address:
            return
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            sender.connect(self._address)
            sender.sendmsg([message.encode()], rights)
