"""Waiting under anyio, on either back end: on trio with the set of `xts_socket.trio`, on asyncio with a set that the
event loop watches."""

from __future__ import annotations

import asyncio
import sys

import anyio
from anyio.lowlevel import RunVar, cancel_shielded_checkpoint, checkpoint_if_cancelled

from .._readiness import Readiness, Tasks
from .._socket import socket as XtsSocket  # noqa: N812 - next to anyio's kinds of socket

_readiness: RunVar[Readiness] = RunVar("xts_socket.anyio readiness")


def of_this_loop() -> Readiness:
    """The waits of the running event loop."""
    trio = sys.modules.get("trio")
    if trio is not None and trio.lowlevel.in_trio_task():  # in this order, since trio may run as a guest of asyncio
        from ..trio._waits import of_this_run

        return of_this_run()
    readiness = _readiness.get(None)
    if readiness is None:
        readiness = Readiness()
        _readiness.set(readiness)
        asyncio.get_running_loop().add_reader(readiness.fileno(), readiness.collect)  # it lives as long as the loop
    return readiness


async def wait(sock: XtsSocket, event: int) -> None:
    """Waits for READABLE or WRITABLE. ClosedResourceError if the socket is closed, before or meanwhile."""
    if sock.number < 0:
        raise anyio.ClosedResourceError
    readiness = of_this_loop()
    ended = anyio.Event()
    closed = False

    def wake(was_closed: bool) -> None:
        nonlocal closed
        closed = was_closed
        ended.set()

    if not readiness.wait(sock, event, wake):
        raise anyio.BusyResourceError("waiting for")
    try:
        await ended.wait()
    finally:
        if not ended.is_set():
            readiness.cancel(sock, event)
    if closed:
        raise anyio.ClosedResourceError


until = Tasks(wait, checkpoint_if_cancelled, cancel_shielded_checkpoint).until


def close(sock: XtsSocket) -> None:
    """Closes the socket; tasks that wait for it get ClosedResourceError."""
    if sock.number >= 0:
        of_this_loop().forget(sock)
        sock.close()
