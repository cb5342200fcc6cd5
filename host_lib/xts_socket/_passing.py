"""Passing descriptors to other programs over Unix sockets (SCM_RIGHTS).

A descriptor that stands for an XTS socket only mirrors its readiness. The socket's *carrier* is sent in its place
(xts_pass), and closed here after it has been sent. The receiver, under install() or with this package, gets the socket
with `socket(fileno=)` and `fromfd()`; a program under the interposer gets it at once.
"""

from __future__ import annotations

import errno
import os
import socket as _standard
from array import array
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from ._descriptor import number_behind
from ._native import lib

_RIGHTS = (_standard.SOL_SOCKET, _standard.SCM_RIGHTS)

#: Messages for the errno of xts_pass().
_REFUSED = {
    errno.EOPNOTSUPP: "an XTS socket that is being connected, is in peek mode, or has a push or a handshake under way, "
    "cannot be passed to another program",
}


def carrier_of(fd: int) -> int | None:
    """What to send in place of this descriptor, and to close after that; None: the descriptor itself."""
    number, kernel_half = number_behind(fd)
    if number is None:
        return None
    carrier = lib.xts_py_pass(number, kernel_half)
    if carrier >= 0:
        return int(carrier)
    if carrier == -errno.ENOTCONN:
        return None  # it has ended, and the mirror says the same to a program without this package
    raise OSError(-carrier, _REFUSED.get(-carrier, os.strerror(-carrier)))


@contextmanager
def with_carriers(ancdata: Iterable[tuple[int, int, Any]]) -> Iterator[list[tuple[int, int, Any]]]:
    """In the block: the control data in the form to be sent."""
    made: list[int] = []
    out: list[tuple[int, int, Any]] = []
    try:
        for level, kind, data in ancdata:
            if (level, kind) != _RIGHTS:
                out.append((level, kind, data))
                continue
            raw = bytes(data)
            fds = array("i", raw[: len(raw) - len(raw) % 4])
            for at, fd in enumerate(fds):
                carrier = carrier_of(fd)
                if carrier is not None:
                    made.append(carrier)
                    fds[at] = carrier
            out.append((level, kind, fds))
        yield out
    finally:
        for carrier in made:
            os.close(carrier)


def send_fds(
    sock: _standard.socket, buffers: Iterable[Any], fds: Iterable[int], flags: int = 0, address: Any = None
) -> int:
    """As socket.send_fds(): descriptors of XTS sockets pass as these sockets."""
    with with_carriers([(*_RIGHTS, array("i", fds))]) as ancdata:
        return sock.sendmsg(buffers, ancdata, flags, *(() if address is None else (address,)))
