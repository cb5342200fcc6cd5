"""Waiting in a trio run: one system task watches the descriptor of one set, for all sockets of the run."""

from __future__ import annotations

from collections.abc import Callable

import outcome
import trio
from trio.lowlevel import Abort, RunVar

from .._readiness import Readiness
from .._socket import socket as XtsSocket  # noqa: N812 - one of three kinds of socket here

_readiness: RunVar[Readiness] = RunVar("xts_socket.trio readiness")


def of_this_run() -> Readiness:
    """The waits of this trio run; the first call makes them, with the task that collects their events."""
    readiness = _readiness.get(None)  # type: ignore[arg-type] # None is no Readiness, but a default may be
    if readiness is None:
        readiness = Readiness()
        _readiness.set(readiness)
        trio.lowlevel.spawn_system_task(_collect, readiness, name="xts_socket.trio: events")
    return readiness


async def _collect(readiness: Readiness) -> None:
    """Runs until the run ends, when trio cancels it."""
    try:
        descriptor = readiness.fileno()
        while True:
            await trio.lowlevel.wait_readable(descriptor)
            readiness.collect()
    finally:
        readiness.close()


async def wait(sock: XtsSocket, event: int) -> None:
    """Waits for READABLE or WRITABLE; always a checkpoint. BusyResourceError if another task waits for the same,
    ClosedResourceError if the socket is closed meanwhile."""
    if sock.number < 0:
        await trio.lowlevel.checkpoint()
        raise trio.ClosedResourceError("this socket was already closed")
    readiness = of_this_run()
    task = trio.lowlevel.current_task()

    def wake(closed: bool) -> None:
        ended: outcome.Outcome[None] = outcome.Value(None)
        if closed:
            ended = outcome.Error(trio.ClosedResourceError("another task closed this socket"))
        trio.lowlevel.reschedule(task, ended)

    def abort(_: Callable[[], None]) -> Abort:
        readiness.cancel(sock, event)
        return Abort.SUCCEEDED

    if not readiness.wait(sock, event, wake):
        await trio.lowlevel.checkpoint()
        raise trio.BusyResourceError("another task is already waiting for this socket")
    await trio.lowlevel.wait_task_rescheduled(abort)


def forget(sock: XtsSocket) -> None:
    """To be called before a close: tasks that wait for the socket get ClosedResourceError."""
    if trio.lowlevel.in_trio_run() and (readiness := _readiness.get(None)):  # type: ignore[arg-type]
        readiness.forget(sock)
