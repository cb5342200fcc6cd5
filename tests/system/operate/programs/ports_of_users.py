"""Which user may have which port, and share it with whom: std (the kernel) or xts. Prints each outcome, as JSON.

Run as root. Each user is a child that changes its user before it makes its first socket.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import signal
import socket as kernel
import sys
import traceback
from collections.abc import Callable
from typing import Any

import xts_socket

SOCKET: Any = kernel if sys.argv[1] == "std" else xts_socket
ONE, OTHER = 1234, 65534
LOW, PORT = 443, 8222
STREAM, DATAGRAM = kernel.SOCK_STREAM, kernel.SOCK_DGRAM
ADDRESS, PORT_TOO = kernel.SO_REUSEADDR, kernel.SO_REUSEPORT
PR_SET_KEEPCAPS, CLONE_NEWUSER, NET_BIND_SERVICE = 8, 0x10000000, 10
libc = ctypes.CDLL(None, use_errno=True)


class User:
    """A process that carries out one thing after the other, and says how each has ended."""

    def __init__(self, uid: int, capability: bool = False, namespace: bool = False) -> None:
        ours, theirs = kernel.socketpair()
        self.pid = os.fork()
        if self.pid == 0:
            ours.close()
            try:
                become(uid, capability, namespace)
                serve(theirs)
            except BaseException:
                traceback.print_exc()
            os._exit(1)
        theirs.close()
        self._connection = ours

    def does(self, *words: Any) -> str:
        """ "ok", or the name of an errno."""
        self._connection.sendall(json.dumps(words).encode())
        return self._connection.recv(100).decode()

    def end(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        self._connection.close()


def become(uid: int, capability: bool, namespace: bool) -> None:
    libc.prctl(PR_SET_KEEPCAPS, int(capability), 0, 0, 0)
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    if capability:
        header = (ctypes.c_uint32 * 2)(0x20080522, 0)
        words = (ctypes.c_uint32 * 6)(*[1 << NET_BIND_SERVICE, 1 << NET_BIND_SERVICE, 0], 0, 0, 0)
        assert libc.capset(header, words) == 0
    if namespace and libc.unshare(CLONE_NEWUSER):
        os._exit(0)  # this machine lets no user have one: what is asked of it ends in ""


def serve(connection: kernel.socket) -> None:
    sockets: list[Any] = []

    def bind(kind: int, port: int, *options: int) -> None:
        sockets.append(SOCKET.socket(kernel.AF_INET, kind))
        for option in options:
            sockets[-1].setsockopt(kernel.SOL_SOCKET, option, 1)
        sockets[-1].bind(("0.0.0.0", port))

    def listen(*_: int) -> None:
        sockets[-1].listen()

    done: dict[str, Callable[..., None]] = {"bind": bind, "listen": listen}
    while words := connection.recv(1000):
        what, *arguments = json.loads(words)
        try:
            done[what](*arguments)
            answer = "ok"
        except OSError as error:
            answer = errno.errorcode.get(error.errno or 0, str(error))
        connection.sendall(answer.encode())


def low_ports() -> list[str]:
    found = []
    for who in ({"uid": OTHER}, {"uid": OTHER, "namespace": True}, {"uid": OTHER, "capability": True}, {"uid": 0}):
        user = User(**who)  # type: ignore[arg-type]
        found += [user.does("bind", STREAM, LOW), user.does("bind", DATAGRAM, LOW), user.does("bind", STREAM, 0)]
        user.end()
    return found


def shared(kind: int, *options: int, listens: bool = False) -> list[str]:
    """One user has the port; another, the same one again, and root try to."""
    one = User(ONE)
    found = [one.does("bind", kind, PORT, *options)]
    if listens:
        found.append(one.does("listen"))
    for uid in (OTHER, ONE, 0):
        user = User(uid)
        found.append(user.does("bind", kind, PORT, *options))
        if listens and found[-1] == "ok":
            found.append(user.does("listen"))
        user.end()
    one.end()
    return found


def bound_and_then_listening() -> list[str]:
    users = [User(ONE), User(OTHER)]
    found = [user.does("bind", STREAM, PORT, ADDRESS) for user in users]
    found += [user.does("listen") for user in users]
    for user in users:
        user.end()
    return found


def main() -> None:
    found = {
        "low ports": low_ports(),
        "none": shared(STREAM),
        "SO_REUSEPORT, listening": shared(STREAM, PORT_TOO, listens=True),
        "SO_REUSEPORT": shared(STREAM, PORT_TOO),
        "both, listening": shared(STREAM, ADDRESS, PORT_TOO, listens=True),
        "SO_REUSEADDR": shared(STREAM, ADDRESS),
        "SO_REUSEADDR, then listening": bound_and_then_listening(),
        "datagrams, SO_REUSEPORT": shared(DATAGRAM, PORT_TOO),
        "datagrams, SO_REUSEADDR": shared(DATAGRAM, ADDRESS),
    }
    print(json.dumps(found))


main()
