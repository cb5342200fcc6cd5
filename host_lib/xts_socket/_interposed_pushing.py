"""Pushing a protocol onto a socket of the standard module under the interposer (`xts run`, `xts dev`). There a socket's
descriptor stands for an offloaded one, and pushing is an ioctl() of it (preload/ulp_ioctl.c)."""

from __future__ import annotations

import errno
import fcntl
import select
import socket as standard
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ._install import under_interposer
from ._native import ffi

if TYPE_CHECKING:
    from .layers import Layer

#: Answers about a descriptor that is the kernel's, or that the rules leave to it.
_NOT_OFFLOADED = (errno.ENOTTY, errno.EOPNOTSUPP, errno.EINVAL, errno.EBADF)


def is_interposed(sock: Any) -> bool:
    """May a protocol be pushed onto this socket's descriptor?"""
    return isinstance(sock, standard.socket) and under_interposer()


def push_by_descriptor(sock: standard.socket, layers: Iterable[Layer]) -> bool:
    """Pushes, and waits for the handshake if the socket is connected and not non-blocking. False: it is the kernel's.
    ValueError: it listens already, so its connections would come without. OSError: the proxy refuses, or the handshake
    has failed."""
    from ._ulp import requests

    if sock.getsockopt(standard.SOL_SOCKET, standard.SO_ACCEPTCONN):
        raise ValueError(f"{sock!r} listens already: TLS in the proxy has to be there before listen()")
    for _, request, info in requests(layers, "both"):
        try:
            fcntl.ioctl(sock.fileno(), request, bytearray(ffi.buffer(info)))
        except OSError as failure:
            if failure.errno in _NOT_OFFLOADED:
                return False
            raise
    if sock.gettimeout() != 0 and _is_connected(sock):
        _await_handshake(sock)
    return True


def _is_connected(sock: standard.socket) -> bool:
    try:
        sock.getpeername()
    except OSError:
        return False
    return True


def _await_handshake(sock: standard.socket) -> None:
    waiting = select.poll()
    waiting.register(sock, select.POLLOUT)
    timeout_s = sock.gettimeout()
    if not waiting.poll(None if timeout_s is None else timeout_s * 1000):
        raise TimeoutError("timed out")
    if code := sock.getsockopt(standard.SOL_SOCKET, standard.SO_ERROR):
        raise OSError(code, f"the handshake of TLS in the proxy has failed: {errno.errorcode.get(code, code)}")
