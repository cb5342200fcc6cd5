"""Receiving calls of install()'s class on an undecided datagram socket.

A thread that sleeps in the kernel's call would never be woken if another thread's first datagram makes the socket an
offloaded one, since the awaited data comes to the XTS socket. So it sleeps in poll() instead, and
InstalledConnect._offload() ends that by shutting the kernel socket down. Then the thread continues with the XTS socket,
for the time that is left.
"""

from __future__ import annotations

import errno
import os
import select
import socket as _standard
import struct
from time import monotonic
from typing import Any

from ._installed_connect import InstalledConnect

_Base = _standard.socket  # the standard module's class when this was imported
_TIMEVAL = struct.Struct("@ll")
_NEVER_SLEEPS = _standard.MSG_DONTWAIT | _standard.MSG_ERRQUEUE
#: The position of the flags in a call's arguments.
_FLAGS_AT = {"recv": 1, "recvfrom": 1, "recv_into": 2, "recvfrom_into": 2, "recvmsg": 2, "recvmsg_into": 2}


def receive(sock: InstalledConnect, name: str, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """The call of that name on a socket that was undecided a moment ago."""
    at = _FLAGS_AT[name]
    flags = arguments[at] if len(arguments) > at else named.get("flags", 0)
    if _Base.gettimeout(sock) != 0 and not flags & _NEVER_SLEEPS:
        _sleep(sock)
        sock._kernel_has_received()  # before the call, which sleeps if another thread takes the datagram
    if sock._ours is not None:
        return getattr(sock._ours, name)(*arguments, **named)
    got = getattr(_Base, name)(sock, *arguments, **named)
    sock._kernel_has_received()
    return got


def _sleep(sock: InstalledConnect) -> None:
    """Sleeps until there is something to receive, from the kernel or from XTS. TimeoutError, or BlockingIOError if the
    timeout is that of SO_RCVTIMEO."""
    timeout_s = _Base.gettimeout(sock)
    late: OSError = TimeoutError("timed out")
    if timeout_s is None:
        late = BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        option = _Base.getsockopt(sock, _standard.SOL_SOCKET, _standard.SO_RCVTIMEO, _TIMEVAL.size)
        seconds, microseconds = _TIMEVAL.unpack(option)
        timeout_s = seconds + microseconds / 1e6 or None
    deadline = None if timeout_s is None else monotonic() + timeout_s
    sock._sleeping += 1
    try:
        if sock._ours is None and not _is_ready(_Base.fileno(sock), deadline):
            raise late
    finally:
        sock._sleeping -= 1
    if sock._ours is not None and deadline is not None and not _is_ready(sock._ours.fileno(), deadline):
        raise late


def _is_ready(fd: int, deadline: float | None) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    left = None if deadline is None else max(0.0, deadline - monotonic())
    return bool(poll.poll(None if left is None else left * 1000))
