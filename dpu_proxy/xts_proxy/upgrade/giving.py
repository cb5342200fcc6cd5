"""The running proxy hands over to a new one: its side of `xts-proxy upgrade` (handover.py, native/processes/move.h).

Theory of operation. Only root may ask: who could, gets everything that hosts and peers send. Nothing is given before
the new proxy's workers run. From then on it accepts new processes, and each channel moves as soon as it can and its
turn has come (leaving.py). A channel that cannot yet, because of a protocol, or of a connection that several processes
have, is served here as ever, until `drain_timeout_s` is over; then what cannot move is reset, and counted. When the
last channel is gone, this proxy ends as on SIGTERM.

If the new proxy ends, refuses or is silent before we have told it that a channel is its own, the channel goes back to
its worker here, by the same steps, and so do all that have begun to move. Then this proxy goes on as if nothing had
been. What it has told the new one is lost; the queues of an interface it serves again when the new one has ended.
"""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import socket
import struct
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from xts_messages.queues.afxdp import has_small_chunks
from xts_messages.queues.queue_kinds import QueueEnd
from xts_messages.services.service_manager import LISTENS
from xts_messages.wire import record_table

from xts_proxy.queues.kept_ends import has_ended, serve_orphans
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
    left_of,
    not_answered,
    private_memory,
    rewind,
)
from xts_proxy.upgrade.leaving import Leaving, is_about_to_answer, may_be_asked
from xts_proxy.upgrade.program_files import this_program
from xts_proxy.workers.workers import ENDS, LINK_STATES, Moved, Owner, Waits

if TYPE_CHECKING:
    from xts_proxy.queues.channels import Channels
    from xts_proxy.workers.worker_process import WorkerProcess

_CREDENTIALS = struct.Struct("=iII")
#: How long a host may take to finish its calls. After that the calls that are under way fail.
_WITHIN_S = 10.0
#: After drain_timeout_s, for hosts that take no message: their epochs end then.
_END_S = 2.0
_LOOK_S = 0.002
#: For so long after a host was asked, which waits from its answer on, we look as often as this.
_AWAKE_S, _GLANCE_S = 0.01, 0.0003
_ASK_AGAIN_S = 0.02
#: In which the new proxy has to start.
_READY_S = 60.0
#: Hosts wait for the new proxy twice as long.
_ANSWER_S = 5.0
_TELL_S = 0.5
_NO_SMALL_CHUNKS = (
    "the new proxy is older, and does not know the queues' small chunks: restart with the older version, which ends "
    "connections. Queues that a proxy opens with chunk_bytes = 4096 it can have"
)
_SPARES_A_MESSAGE = 60
#: Descriptors that may be open at the same time: of a queue and its process, and of what listens.
_OF_A_QUEUE, _OF_OURS = 8, 32


def check_peer(sock: socket.socket) -> int:
    """The process at the other end. OSError EPERM: it is not root's."""
    pid, uid, _ = _CREDENTIALS.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    if uid != 0:
        raise OSError(errno.EPERM, f"only root may take over from a running proxy, not user {uid}")
    return int(pid)


def check_room(sockets: int, queues: int) -> None:
    """Everything comes through this process. What did not go in would be lost, so that is known before anything moves.
    `sockets`: descriptors that workers have for them. OSError EMFILE."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = limit - sum(1 for _ in Path("/proc/self/fd").iterdir())
    needed = sockets + _OF_A_QUEUE * queues + _OF_OURS
    if needed > free:
        raise OSError(
            errno.EMFILE, f"an upgrade may take {needed} descriptors here, and {max(0, free)} are left (RLIMIT_NOFILE)"
        )


class Giving:
    """One attempt. `run()` returns True when the new proxy has everything."""

    def __init__(
        self, sock: socket.socket, channels: Channels, listeners: dict[str, int], patience_s: float, ours: WorkerProcess
    ) -> None:
        """`listeners`: names and descriptors of the sockets that listen, which stay ours. `patience_s`: for how long
        channels wait that cannot move. `ours`: the process of the workers that serve them."""
        self._wire = Wire(sock)
        self._channels = channels
        self._listeners = listeners
        self._deadline = patience_s
        self._ours = ours
        self._theirs = -1  # the same of the new proxy
        self._told: list[int] = []  # the queues of which we have told it that they are its own
        self._broken: OSError | None = None
        self.begun = False  # the new proxy is ready
        self._sessions = False  # and goes on with sessions of queues that repeat lost frames
        self._relays = False  # and with channels behind relays
        self._reads = 1  # records up to this version
        self.moved = self.sockets = self.reset = 0
        #: what channels wait for that cannot move yet
        self.waits: dict[int, Waits] = {}

    def waiting(self) -> Waits:
        """The same for all channels together."""
        reasons = sorted({why for waits in self.waits.values() for why in waits})
        return {why: sum(waits.get(why, 0) for waits in self.waits.values()) for why in reasons}

    async def run(self) -> bool:
        """False: the new proxy has not everything, and this one goes on."""
        try:
            await self._begin()
            self._deadline += time.monotonic()
            await self._all()
            if not self._broken:
                await self._wire.say(Done(self.reset))
        except (OSError, EOFError, TimeoutError) as error:
            self._fail(error)
        if self._broken:
            self.begun = False
            self._channels.accept(True)
            why = str(self._broken.strerror or self._broken)
            LOG.error("upgrade: %s; this proxy goes on", why)
            if self.moved:
                LOG.error("upgrade: %d queues have ended with the new proxy, with what was on them", self.moved)
            with suppress(OSError, EOFError):  # it may have ended
                await asyncio.wait_for(self._wire.say(GoesOn(why)), _TELL_S)
        self._wire.close()
        return self._broken is None

    def _fail(self, error: Exception) -> None:
        text = error.strerror if isinstance(error, OSError) else None
        text = text or ("the new proxy is silent" if isinstance(error, TimeoutError) else "the new proxy has ended")
        self._broken = self._broken or OSError(errno.EPIPE, text)

    async def _begin(self) -> None:
        program, more = self._channels.parts()
        names, descriptors = [*self._listeners, *more], [*self._listeners.values(), *more.values()]
        (spares, spare_fds), *later = self._spares()
        names += [f"spare-{number}" for number in range(len(spare_fds))]
        descriptors += spare_fds
        granted = Granted(
            handover.VERSION,
            self._channels.config.proxy.queue,
            tuple(names),
            program,
            handover.COMPATIBLE,
            Versions(record_table.VERSION, record_table.COMPATIBLE),
            this_program(),
            spares,
        )
        await self._wire.say(granted, descriptors)
        said, came = await asyncio.wait_for(self._wire.hear(), _READY_S)
        if isinstance(said, Ready) and said.spares and came:
            self._theirs = came.pop(0)
        close_all(came)
        if not isinstance(said, Ready):
            raise OSError(errno.EPROTO, "the new proxy is not ready")
        if problem := not_answered(said):
            raise OSError(errno.EPROTO, f"the new proxy is not understood: {problem}")
        if said.version < handover.SMALL_CHUNKS and any(map(_has_small_chunks, self._channels.ends().values())):
            raise OSError(errno.EPROTO, _NO_SMALL_CHUNKS)
        LOG.info("upgrade: the new proxy is %s", said.who or "one that does not say its version")
        self.begun = True
        self._sessions = said.version >= handover.SESSIONS
        self._relays = said.version >= handover.RELAYS
        self._reads = said.records.version
        for spares, spare_fds in later if said.spares else ():
            await self._wire.say(spares, spare_fds)
        self._channels.accept(False)
        await self._wire.say(Begins(tuple(self._channels.served())))
        if said.version >= handover.RESUMPTION:
            await self._say_resumption()

    async def _say_resumption(self) -> None:
        """Who comes to the new proxy resumes what began here. What begins here from now on is not among it, and without
        it there are whole handshakes."""
        private_fd = private_memory()
        try:
            count = self._ours.give_resumption(private_fd)
        except OSError as error:
            LOG.warning("upgrade: %s; no session of before is resumed", error.strerror or error)
        else:
            await self._wire.say(Resumption(count), [private_fd])
        finally:
            os.close(private_fd)

    def _spares(self) -> list[tuple[Spares, list[int]]]:
        """At least one."""
        ends = list(self._channels.ends().items())
        parts = [ends[at : at + _SPARES_A_MESSAGE] for at in range(0, max(1, len(ends)), _SPARES_A_MESSAGE)]
        return [
            (
                Spares(tuple((queue_id, end.pack(), len(end.descriptors)) for queue_id, end in part)),
                [self._ours.child.pidfd, *(fd for _, end in part for fd in end.descriptors)],
            )
            for part in parts
        ]

    @property
    def has_pending(self) -> bool:
        """There are queues to take back when the new proxy has ended."""
        return bool(self._told and self._theirs >= 0)

    async def take_queues_back(self) -> None:
        """After run() has returned False."""
        try:
            await has_ended(self._theirs)
        except OSError as error:
            LOG.error("upgrade: queues %s stay with the new proxy: %s", self._told, error.strerror)
            return
        ends = self._channels.ends()
        told = {queue_id: ends[queue_id] for queue_id in self._told if queue_id in ends}  # others were opened again
        failed = await serve_orphans(self._channels, told, "cannot be taken back")
        LOG.info("upgrade: the new proxy has ended; its queues are served again: %d", len(self._told) - failed)
        self._told = []

    def close(self) -> None:
        """Harmless when repeated."""
        if self._theirs >= 0:
            os.close(self._theirs)
            self._theirs = -1

    async def _all(self) -> None:
        """Moves all channels; if the new proxy ends, moves those that have begun back."""
        leaving: dict[int, Leaving] = {}
        while True:
            if not leaving and not self._broken:
                leaving = self._next()
            self._look()
            if self._broken:
                leaving = {queue_id: one for queue_id, one in leaving.items() if one.asked}
            if not leaving:
                return
            if await self._steps(leaving):
                await asyncio.sleep(0)
            elif is_about_to_answer(leaving.values(), _AWAKE_S):
                time.sleep(_GLANCE_S)  # a loop's timers have a millisecond
                await asyncio.sleep(0)
            else:
                await asyncio.sleep(_LOOK_S)

    async def _steps(self, leaving: dict[int, Leaving]) -> bool:
        """One of each. True: some have gone."""
        more = may_be_asked(leaving.values())
        gone = []
        for queue_id, one in leaving.items():
            new = one.live and not one.asked
            if new and more <= 0:
                continue
            if await self._step(queue_id, one):
                one.close()
                self.waits.pop(queue_id, None)
                gone.append(queue_id)
            more -= new and one.asked
        for queue_id in gone:
            del leaving[queue_id]
        return bool(gone)

    def _look(self) -> None:
        """Does the new proxy live? What waits may wait for long, and newcomers with it."""
        if self._broken:
            return
        try:
            self._wire.check()
        except OSError as error:
            self._fail(error)

    def _next(self) -> dict[int, Leaving]:
        """Queues without a host come first: each takes the new proxy a while, in which no host should have to wait."""
        served = self._channels.served()
        rows = [row for worker in set(served.values()) for row in worker.channels()]
        live = {row["queue_id"] for row in rows if LINK_STATES[row["link_state"]] == "up"}
        found = {queue_id: Leaving(worker, queue_id in live) for queue_id, worker in served.items()}
        return {queue_id: one for queue_id, one in found.items() if not one.live} or found

    async def _step(self, queue_id: int, one: Leaving) -> bool:
        """True: it is gone."""
        if not one.asked:
            return self._ask(queue_id, one)
        try:
            while found := one.take(queue_id):
                if await self._give(queue_id, one, *found):
                    return True
        except OSError as error:
            if error.errno not in (errno.ECANCELED, errno.ENOENT):
                raise
            one.asked = False  # its process has ended; the queue may go on
            one.ask_at = time.monotonic() + _ASK_AGAIN_S
        return False

    def _ask(self, queue_id: int, one: Leaving) -> bool:
        now = time.monotonic()
        if now < one.ask_at:
            return False
        one.ask_at = now + _ASK_AGAIN_S
        urgency = (now >= self._deadline) + (now >= self._deadline + _END_S)
        if not self._sessions and self._channels.frames().repeats:
            urgency = ENDS
        if not self._relays and any(row["relayed"] for row in one.worker.channels() if row["queue_id"] == queue_id):
            urgency = ENDS
        error, self.waits[queue_id] = one.worker.move_ask(queue_id, int(_WITHIN_S * 1000), urgency, self._reads)
        one.asked, one.asked_at = error in (0, errno.EALREADY), now
        return error == errno.ENOENT

    async def _give(self, queue_id: int, one: Leaving, piece: Moved, descriptors: list[int]) -> bool:
        """A piece of the channel. True: that was the last."""
        self.reset += piece.reset
        self.sockets += piece.sockets
        if not piece.last:
            sockets = Sockets(queue_id, piece.tenant, piece.data, piece.private)
            one.kept.append((sockets, descriptors))
            await self._send(sockets, descriptors)
            return False
        channel, more = self._channels.describe(queue_id, piece)
        if not self._channels.has_ended(queue_id) and await self._offered(channel, [*descriptors, *more]):
            self._channels.gone(queue_id)
            if queue_id in self._channels.ends():
                self._told.append(queue_id)
            close_all(descriptors)
            self.moved += 1
        else:  # also where its process ends meanwhile: so do its connections, here
            self._back(queue_id, one, channel, descriptors)
            self._channels.stays(queue_id)
        for _, kept in one.kept:
            close_all(kept)
        return True

    async def _offered(self, channel: Channel, descriptors: list[int]) -> bool:
        """True: it is the new proxy's."""
        await self._send(channel, descriptors)
        return await self._takes(channel.queue_id) and await self._is_its_own(channel.queue_id)

    async def _send(self, said: Sockets | Channel, descriptors: list[int]) -> None:
        if self._broken:
            return
        try:
            await asyncio.wait_for(self._wire.say(said, descriptors), _ANSWER_S)
        except (OSError, EOFError) as error:
            self._fail(error)

    async def _takes(self, queue_id: int) -> bool:
        if self._broken:
            return False
        try:
            said, came = await asyncio.wait_for(self._wire.hear(), _ANSWER_S)
        except (OSError, EOFError) as error:
            self._fail(error)
            return False
        close_all(came)
        if not isinstance(said, Takes) or said.queue_id != queue_id:
            self._fail(OSError(errno.EPROTO, "it does not say what it takes"))
        elif said.error:
            self._fail(OSError(errno.EPROTO, f"queue {queue_id}: {said.error}"))
        return self._broken is None

    async def _is_its_own(self, queue_id: int) -> bool:
        """Tells it so; from then on nothing is taken back. False: it cannot be told, and has nothing of it: a socket
        takes so short a message whole or not at all."""
        try:
            await asyncio.wait_for(self._wire.say(Yours(queue_id)), _ANSWER_S)
        except (OSError, EOFError) as error:
            self._fail(error)
        return self._broken is None

    def _back(self, queue_id: int, one: Leaving, channel: Channel, descriptors: list[int]) -> None:
        """The channel goes on here."""
        account = self._channels.tenants.accounts[channel.tenant]
        for sockets, kept in one.kept:
            rewind(kept, sockets.private)
            one.worker.take_in(self._channels.tenants.accounts[sockets.tenant], sockets.data, kept)
        end = QueueEnd.unpack(channel.geometry, tuple(descriptors))
        life_fd = self._channels.life_fd(queue_id)
        left = left_of(channel)
        one.worker.resume_channel(end, (account, Owner(*channel.owner)), left, life_fd, frames=self._channels.frames())
        close_all(descriptors)


def _has_small_chunks(end: QueueEnd) -> bool:
    return has_small_chunks(end.geometry)


def names_of(listeners: list[tuple[str, socket.socket]]) -> dict[str, int]:
    """What Granted says of them."""
    with ExitStack() as undo:
        found = {}
        for name, sock in listeners:
            found[f"{LISTENS}{name}"] = fd = os.dup(sock.fileno())
            undo.callback(os.close, fd)
        undo.pop_all()
    return found
