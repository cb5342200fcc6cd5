"""multiprocessing under install(): its connections over TCP, and sockets that it sends to another process.

A `Connection` reads and writes the descriptor that detach() gives. Of an offloaded socket that is only a mirror, so its
three calls go to the functions of _installed_descriptor.py. Sockets are pickled by their class, and multiprocessing
does not know the classes of install(): they are registered with it. Both stay after uninstall(), as open sockets do.
"""

from __future__ import annotations

import os
import socket as _standard
from collections.abc import Sequence
from typing import Any

from . import _installed_descriptor as descriptor
from ._passing import carrier_of
from ._when_imported import when_imported

_known: set[type] = set()


def tell(*classes: type) -> None:
    """Registers these classes with multiprocessing, once it is imported."""
    when_imported("multiprocessing.reduction", lambda reduction: _register(reduction, classes))
    when_imported("multiprocessing.connection", _connect)


def _register(reduction: Any, classes: Sequence[type]) -> None:
    def reduce(sock: _standard.socket) -> Any:
        from multiprocessing.context import get_spawning_popen

        if (carrier := carrier_of(sock.fileno())) is None:
            return reduction._reduce_socket(sock)
        try:
            if get_spawning_popen() is not None:
                raise TypeError(
                    "an offloaded socket cannot be an argument of a process that is about to be spawned: "
                    "send it through a Pipe or a Queue"
                )
            return reduction._rebuild_socket, (reduction.DupFd(carrier), sock.family, sock.type, sock.proto)
        finally:
            os.close(carrier)

    for each in classes:
        reduction.register(each, reduce)


def _connect(module: Any) -> None:
    """The methods take the function to call as an argument with a default."""
    connection = module.Connection
    if connection in _known:
        return
    _known.add(connection)
    send, receive, close = connection._send, connection._recv, connection._close
    connection._send = lambda self, buf, write=descriptor.write: send(self, buf, write)
    connection._recv = lambda self, size, read=descriptor.read: receive(self, size, read)
    connection._close = lambda self, _close=descriptor.close: close(self, _close)
