"""A new proxy takes the place of a running one: its side of `xts-proxy upgrade` (handover.py).

What comes is as good as the process that it comes from, which may be broken into. It is decoded as plain data, and
handed to a worker, whose decoder checks each record, and asks the kernel what each descriptor is.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec
from xts_messages.queues.queue_kinds import QueueEnd
from xts_messages.services.service_manager import LISTENS, passed
from xts_messages.wire import record_table

from xts_proxy.queues.kept_ends import KeptEnds, has_ended, serve_orphans
from xts_proxy.status import control_socket
from xts_proxy.supervisor import quiet_start
from xts_proxy.supervisor.log import LOG
from xts_proxy.upgrade import handover
from xts_proxy.upgrade.handover import (
    Begins,
    Channel,
    Done,
    GoesOn,
    Granted,
    Ready,
    Resumption,
    Sockets,
    Spares,
    Takes,
    Versions,
    Wire,
    Yours,
    close_all,
    not_understood,
    rewind,
)
from xts_proxy.upgrade.program_files import this_program
from xts_proxy.upgrade.shown_key import draw, show

if TYPE_CHECKING:
    from xts_proxy.queues.channels import Channels
    from xts_proxy.workers.worker_process import WorkerProcess

_TIMEOUT_S = 10.0
#: In which the workers of a proxy have ended that has ended itself.
_ENDS_S = 5.0
_Heard = TypeVar("_Heard")


class GoesOnError(OSError):
    """The running proxy serves what it has offered: two must not."""


@dataclass(slots=True)
class Parts:
    """What the running proxy has of its interface: the number of the XDP program, and its maps."""

    program: int = 0
    maps: dict[str, int] = field(default_factory=dict)


class Teller(Protocol):
    """Who tells the service manager that this process is the main one now (successor.py)."""

    def begins(self) -> None: ...
    def alive(self) -> None: ...
    async def done(self) -> None: ...
    def failed(self, reason: str) -> None: ...


class Taking:
    """One take-over."""

    def __init__(self, granted: socket.socket, teller: Teller | None = None) -> None:
        """Takes the sockets that listen (`passed()`) over a connection that ask_to_take() has made. OSError: this
        program does not understand the running one."""
        self._wire = Wire(granted)
        self._teller = teller
        self.parts = Parts()
        self.pid = 0
        self.moved = self.sockets = self.reset = 0
        self._refused = 0  # sockets that a worker could not take
        self._spares = KeptEnds()
        self._running = -1  # of the running proxy's workers, as Child.pidfd
        self._offered: tuple[Channel, list[int]] | None = None  # what we have said that we take
        said, came = self._wire.hear_now(_TIMEOUT_S)
        if not isinstance(said, Granted) or len(said.sockets) != len(came):
            close_all(came)
            raise OSError(errno.EPROTO, "the running proxy does not say what it hands over")
        if problem := not_understood(said):
            close_all(came)
            who = f"The running one is {said.who}." if said.who else "It does not say its version."
            raise OSError(errno.EPROTO, f"the running proxy is not understood, and goes on: {problem}. {who}")
        LOG.info("upgrade: the running proxy is %s", said.who or "one that does not say its version")
        if said.spares:
            spare_fds = came[-said.spares.count :]
            self._take_spares(said.spares, spare_fds)
            close_all(spare_fds)
        self.queue = said.queue
        self.parts.program = said.program
        rest = len(came) - (said.spares.count if said.spares else 0)
        for name, fd in zip(said.sockets[:rest], came[:rest], strict=True):
            if name.startswith(LISTENS):
                passed().items.append((name, fd))
            else:
                self.parts.maps[name] = fd

    def close(self) -> None:
        """Harmless when repeated."""
        self._wire.close()
        self._spares.close()
        if self._offered:
            close_all(self._offered[1])
        if self._running >= 0:
            os.close(self._running)
            self._running = -1

    def alive(self) -> None:
        """Our workers make progress."""
        if self._teller:
            self._teller.alive()

    async def run(self, channels: Channels, stopping: asyncio.Event, ours: WorkerProcess) -> None:
        """Takes everything, or what has come until this proxy is `stopping`: what is left the running one takes back.
        `ours`: the workers that the channels are given to. OSError: the running proxy has ended before it had begun, or
        goes on."""
        begun = False
        try:
            if self._teller:
                self._teller.begins()
            ready = Ready(
                handover.VERSION,
                handover.COMPATIBLE,
                this_program(),
                spares=True,
                records=Versions(record_table.VERSION, record_table.COMPATIBLE),
            )
            quiet_start.end()  # from here on hosts wait for us
            await self._wire.say(ready, [ours.child.pidfd])
            while found := await _unless(stopping, self._wire.hear()):
                said, came = found
                begun = True
                if isinstance(said, Done):
                    self.reset = said.reset + self._refused
                    break
                await self._take(channels, said, came, ours)
        except GoesOnError:
            raise
        except (OSError, EOFError) as error:
            self._wire.close()
            ended = await self._running_one_has_ended()
            if not begun and not ended:
                raise OSError(errno.ECONNRESET, "the running proxy does not hand over: see its log") from error
            LOG.error("upgrade: the proxy before this one has ended too soon, and with it what it had left")
            if ended:
                await self._go_on_alone(channels)
                for worker in ours.workers:
                    worker.forget_arrived()
            else:
                LOG.error("upgrade: nobody knows whether its workers have ended, so what they had is not served here")
        finally:
            self.close()
        if self._teller and not stopping.is_set():
            await self._teller.done()
        LOG.info(
            "took over: %d channels with %d sockets; %d connections could not move",
            self.moved,
            self.sockets,
            self.reset,
        )

    async def _take(self, channels: Channels, said: object, came: list[int], ours: WorkerProcess) -> None:
        try:
            if isinstance(said, Spares):
                self._take_spares(said, came)
            elif isinstance(said, Begins):
                channels.reserve(said.queue_ids)
                channels.accept(True)
            elif isinstance(said, Resumption):
                self._take_resumption(said, came, ours)
            elif isinstance(said, Sockets):
                rewind(came, said.private)
                taken = channels.take_in(said, came)
                self.sockets += taken
                self._refused += len(came) - said.private - taken
            elif isinstance(said, Channel):
                await self._take_channel(channels, said, came)
            elif isinstance(said, GoesOn):
                raise _goes_on(said)
            else:
                raise OSError(errno.EPROTO, "not what a proxy says that hands over")
        finally:
            close_all(came)

    @staticmethod
    def _take_resumption(said: Resumption, came: list[int], ours: WorkerProcess) -> None:
        """Without it there are whole handshakes."""
        try:
            rewind(came, private=True)
            if len(came) != 1:
                raise OSError(errno.EPROTO, "not what a proxy says that hands over")
            taken = ours.take_resumption(came[0], said.count)
        except OSError as error:
            LOG.warning("upgrade: what sessions of TLS are resumed from cannot be taken: %s", error)
        else:
            LOG.debug("upgrade: %d sessions and keys of tickets of TLS are here", taken)

    async def _take_channel(self, channels: Channels, said: Channel, came: list[int]) -> None:
        """Serves nothing of it before it is ours. If it cannot be served then, its host attaches again."""
        problem = _why_not(lambda: channels.check_taken(said, came))
        if problem:
            LOG.error("upgrade: queue %d: %s", said.queue_id, problem)
        await self._wire.say(Takes(said.queue_id, problem))
        if problem:
            return
        self._offered = said, [os.dup(fd) for fd in came]
        answer, more = await self._wire.hear()
        close_all(self._offered[1])
        self._offered = None
        close_all(more)
        if isinstance(answer, GoesOn):
            raise _goes_on(answer)
        if answer != Yours(said.queue_id):
            raise OSError(errno.EPROTO, "not what a proxy says that hands over")
        self._have(channels, said, came)

    def _have(self, channels: Channels, said: Channel, came: list[int]) -> None:
        problem = _why_not(lambda: channels.take_over(said, came))
        if problem:
            LOG.error("upgrade: queue %d cannot be served, and its host attaches again: %s", said.queue_id, problem)
        self.moved += not problem

    def _take_spares(self, said: Spares, came: list[int]) -> None:
        """OSError: that is not what they are."""
        if len(came) != said.count:
            raise OSError(errno.EPROTO, "not what a proxy says that hands over")
        if self._running < 0:
            self._running = os.dup(came[0])
        at = 1
        for queue_id, geometry, count in said.queues:
            self._spares.keep(queue_id, QueueEnd.unpack(geometry, tuple(came[at : at + count])))
            at += count

    async def _running_one_has_ended(self) -> bool:
        """Its workers have; False: they live, or nobody knows."""
        try:
            return self._running >= 0 and await has_ended(self._running, _ENDS_S)
        except OSError:
            return False

    async def _go_on_alone(self, channels: Channels) -> None:
        """The running proxy has ended in the middle: what it had not offered has ended with it, but not its queues."""
        channels.reserve(())
        channels.accept(True)
        if self._offered:
            self._have(channels, *self._offered)
        served = channels.served()
        left = {queue_id: end for queue_id, end in self._spares.ends.items() if queue_id not in served}
        await serve_orphans(channels, left, "of the proxy before this one cannot be served")


def _goes_on(said: GoesOn) -> GoesOnError:
    return GoesOnError(errno.ECONNABORTED, f"the running proxy goes on: {said.why[:200]}")


def _why_not(does: Callable[[], None]) -> str:
    """ "": it could be done."""
    try:
        does()
    except (OSError, ValueError, msgspec.MsgspecError) as error:
        return str(error)[:200] or "it cannot be taken"
    return ""


async def _unless(stopping: asyncio.Event, what: Coroutine[Any, Any, _Heard]) -> _Heard | None:
    """Its result; None: we stop before there is one."""
    heard = asyncio.ensure_future(what)
    stops = asyncio.ensure_future(stopping.wait())
    try:
        await asyncio.wait((heard, stops), return_when=asyncio.FIRST_COMPLETED)
        return await heard if heard.done() else None
    finally:
        heard.cancel()
        stops.cancel()
        await asyncio.gather(heard, stops, return_exceptions=True)


def _line(sock: socket.socket) -> bytes:
    """Not a byte more than that, for descriptors follow."""
    line = b""
    while not line.endswith(b"\n") and len(line) < 1000 and (byte := sock.recv(1)):
        line += byte
    return line


def ask_to_take(control: str, key: bytes = b"") -> socket.socket:
    """The connection to the running proxy, which grants that we take over. `key`: that it asks for, and has; b"": none.
    OSError: it does not."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    nonce = draw() if key else b""
    try:
        sock.settimeout(_TIMEOUT_S)
        sock.connect(control)
        sock.sendall(msgspec.json.encode(control_socket.Question("upgrade", nonce=nonce)) + b"\n")
        line = _line(sock)
        if key and b'"error"' not in line:
            show(key, nonce, line, sock.sendall)
            line = _line(sock)
        answer = msgspec.json.decode(line, type=dict[str, str])
    except (OSError, msgspec.DecodeError) as error:
        sock.close()
        reason = error.strerror if isinstance(error, OSError) else "it is no xts-proxy, or an older one"
        number = (error.errno if isinstance(error, OSError) else None) or errno.EPROTO
        raise OSError(number, f"asking the proxy at {control}: {reason or error}") from None
    if "error" in answer:
        sock.close()
        raise OSError(errno.EPERM, f"the proxy at {control} does not hand over: {answer['error'][:200]}")
    return sock


def duplicate(fd: int) -> int:
    """With close-on-exec."""
    return os.dup(fd)
