"""What the processes say to each other when a new proxy takes the place of a running one: `xts-proxy upgrade`.

Theory of operation. The new proxy asks the running one at its control socket, over a connection that is then theirs.
Each message is a header, descriptors, and a body (calling.py), which is plain data (msgpack): neither believes the
other one more than its types say. The one that gives is in giving.py, the one that takes in taking.py.

    new                                       running
    {"ask": "upgrade", ...}             ->
                                        <-    Granted, with the sockets that listen, and Spares
    Ready, with a descriptor            ->
                                        <-    Spares, if there are more
                                        <-    Begins
                                        <-    Resumption, with a descriptor
                                        <-    Sockets, as often as needed, with descriptors  } for each channel
                                        <-    Channel, with the queue's descriptors          }
    Takes                               ->                                                   }
                                        <-    Yours                                          }
                                        <-    Done, or GoesOn at any time

A channel belongs to the running proxy until it has sent Yours. It has kept what it has sent before, and takes it back
if the new one ends, refuses or is silent. From then on it never does, whatever becomes of the new one, which serves
nothing of a channel before it has heard Yours. So there is one owner at each time, and no number is used twice under
one key of TLS (tests/model/direction.pml). What is in the bodies of Sockets and Channel, only workers read.

A queue of an interface ends with its last descriptor, and only root can open it again. So each proxy has descriptors of
all queues until the hand-over is over (Spares), and a descriptor of the other one's workers. When these have ended, and
not before, it serves their queues again (queues/kept_ends.py): what was on them has ended. A channel that was offered
when the running one died goes on: it had been left.

Versions may differ, in both directions. Each end says which version of this talk it speaks, and the oldest that it
understands; Granted says the same of the records. The new proxy looks at both before it says Ready, and the running one
at what Ready says: who does not understand the other one ends the talk, and the running proxy goes on. Fields may be
added to messages within a version: they have a default, and who does not know them passes them over.
"""

from __future__ import annotations

import array
import asyncio
import errno
import fcntl
import os
import socket
import struct
from collections.abc import Callable, Sequence

import msgspec
from xts_messages.wire import record_table

from xts_proxy.workers.calling import Message
from xts_proxy.workers.given_queue import Left
from xts_proxy.workers.workers import Moved, Relayed

_HEAD = struct.Struct("=QI")
#: A piece has records of some hundred sockets, with what waits for TCP in each.
BYTES_MAX = 1 << 30
#: Of what is said here, and the oldest version of it that is still understood.
VERSION = 7
COMPATIBLE = 3
#: From this version on, a new proxy goes on with the session of a queue that repeats lost frames.
SESSIONS = 4
#: From this version on, it goes on with the channels behind a relay.
RELAYS = 5
#: From this version on, it goes on with sessions of TLS that can be resumed, and with keys of tickets.
RESUMPTION = 6
#: From this version on, it knows queues with small chunks (xts_messages/queues/afxdp.py).
SMALL_CHUNKS = 7


class Program(msgspec.Struct, frozen=True):
    """Which program an end is, for the log. `digest`: of its files (program_files.py)."""

    version: str
    digest: str
    pid: int

    def __str__(self) -> str:
        return f"xts-proxy {self.version}, sha256 {self.digest[:16]}, process {self.pid}"


class Versions(msgspec.Struct, frozen=True):
    """Of the records that an end writes, and the oldest that may read them."""

    version: int
    compatible: int


class Spares(msgspec.Struct, frozen=True, tag="spares"):
    """Descriptors, none of which is to be used as long as the workers of the running proxy live. The first is that of
    their process. Of each queue: its number, a struct xts_attach_reply, and how many descriptors follow."""

    queues: tuple[tuple[int, bytes, int], ...]

    @property
    def count(self) -> int:
        """Of descriptors."""
        return 1 + sum(count for _, _, count in self.queues)


class Granted(msgspec.Struct, frozen=True, tag="granted"):
    """`sockets`: the names of the descriptors; the last are those of `spares`. `program`: the kernel's number of the
    XDP program, 0: there is none. `version`, `compatible`: of this talk; 0: as version. `records`: of the sockets'
    (record_table.py)."""

    version: int
    queue: str
    sockets: tuple[str, ...]
    program: int = 0
    compatible: int = 0
    records: Versions = Versions(1, 1)
    who: Program | None = None
    spares: Spares | None = None


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """The new proxy's workers run, and it has understood Granted. `spares`: it understands these; with it goes the
    descriptor of its workers' process. `records`: as in Granted; it reads them up to that version, and what needs a
    later one stays."""

    version: int = 2
    compatible: int = 0
    who: Program | None = None
    spares: bool = False
    records: Versions = Versions(1, 1)


class Begins(msgspec.Struct, frozen=True, tag="begins"):
    """`queue_ids`: the numbers that are in use, and not to be given to others."""

    queue_ids: tuple[int, ...]


class Resumption(msgspec.Struct, frozen=True, tag="resumption"):
    """What sessions of TLS are resumed from: so many bytes in the memory behind the descriptor, which only workers
    read."""

    count: int


class Sockets(msgspec.Struct, frozen=True, tag="sockets"):
    """Of a channel that follows. `data`: of Moved (workers.py). `private`: the last descriptor has keys, which only
    workers read."""

    queue_id: int
    tenant: str
    data: bytes
    private: bool = False


class Attachment(msgspec.Struct, frozen=True):
    """A process that is attached over shared memory."""

    pid: int
    uid: int
    gid: int
    program: str
    kind: int


class Channel(msgspec.Struct, frozen=True, tag="channel"):
    """`geometry`: a struct xts_attach_reply; `state` to `owner`, and `session`: of Moved. `attachment`: with it go the
    connection and the status page, behind the queue's descriptors."""

    queue_id: int
    tenant: str
    geometry: bytes
    state: bytes
    ticket: int
    epoch: int
    known: bytes
    owner: tuple[int, int]
    attachment: Attachment | None = None
    session: bytes = b""
    relayed: tuple[Relayed, ...] = ()


def channel_of(queue_id: int, geometry: bytes, piece: Moved) -> Channel:
    """What the last piece of a channel says."""
    of_host = piece.ticket, piece.epoch, piece.known, piece.owner
    return Channel(queue_id, piece.tenant, geometry, piece.data, *of_host, session=piece.session, relayed=piece.relayed)


def left_of(channel: Channel) -> Left:
    """The same for the worker that goes on with it."""
    of_host = channel.ticket, channel.epoch, channel.known
    return Left(channel.queue_id, channel.state, channel.session, *of_host, channel.relayed)


class Takes(msgspec.Struct, frozen=True, tag="takes"):
    """`error`: why the channel cannot be taken; "": it will be served as soon as Yours comes."""

    queue_id: int
    error: str = ""


class Yours(msgspec.Struct, frozen=True, tag="yours"):
    """The channel belongs to the new proxy."""

    queue_id: int


class GoesOn(msgspec.Struct, frozen=True, tag="goes_on"):
    """The running proxy has taken back what it has offered, and serves it; the new one ends."""

    why: str


class Done(msgspec.Struct, frozen=True, tag="done"):
    """Nothing more comes. `reset`: connections that could not be handed over."""

    reset: int


Said = Granted | Ready | Spares | Begins | Resumption | Sockets | Channel | Takes | Yours | GoesOn | Done


def not_understood(granted: Granted) -> str:
    """Why this program cannot take over from one that says so; "": it can."""
    if problem := _other_talk(granted.version, granted.compatible):
        return problem
    records, ours = granted.records, record_table.TABLE
    if records.compatible > ours.version or records.version < ours.oldest:
        return (
            f"it writes records of version {records.version}, which those read that know version {records.compatible}; "
            f"this one reads versions {ours.oldest} to {ours.version}"
        )
    return ""


def not_answered(ready: Ready) -> str:
    """Why this program cannot give to one that says so; "": it can."""
    return _other_talk(ready.version, ready.compatible)


def _other_talk(version: int, compatible: int) -> str:
    oldest = compatible or version
    if version >= COMPATIBLE and oldest <= VERSION:
        return ""
    theirs, ours = _range(oldest, version), _range(COMPATIBLE, VERSION)
    return f"it hands over by {theirs} of the talk between proxies, this one by {ours}"


def _range(oldest: int, newest: int) -> str:
    return f"version {newest}" if oldest == newest else f"versions {oldest} to {newest}"


class Wire:
    """One end of the connection."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        sock.setblocking(False)
        self._coming = Message(BYTES_MAX)

    def close(self) -> None:
        self._coming.close()
        self.sock.close()

    async def say(self, said: Said, descriptors: Sequence[int] = ()) -> None:
        """The descriptors stay the caller's. OSError: the other one is gone."""
        body = msgspec.msgpack.encode(said)
        data = memoryview(_HEAD.pack(1, len(body)) + body)
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
        while data:
            try:
                sent = self.sock.sendmsg([data], rights, socket.MSG_NOSIGNAL)
            except BlockingIOError:
                loop = asyncio.get_running_loop()
                await self._until(loop.add_writer, loop.remove_writer)
                continue
            data, rights = data[sent:], []

    def check(self) -> None:
        """Of who hands over. OSError: the new proxy has closed."""
        try:
            if not self.sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT):
                raise ConnectionResetError(errno.ECONNRESET, "the new proxy has ended")
        except BlockingIOError:
            pass

    async def hear(self) -> tuple[Said, list[int]]:
        """The next message; the descriptors are the caller's. EOFError, OSError: there is none."""
        while True:
            try:
                return self._take()
            except BlockingIOError:
                loop = asyncio.get_running_loop()
                await self._until(loop.add_reader, loop.remove_reader)

    def hear_now(self, timeout_s: float) -> tuple[Said, list[int]]:
        """The same where there is no loop. TimeoutError."""
        self.sock.settimeout(timeout_s)
        try:
            return self._take()
        finally:
            self.sock.setblocking(False)

    def _take(self) -> tuple[Said, list[int]]:
        self._coming.receive(self.sock)
        came, self._coming = self._coming, Message(BYTES_MAX)
        came.check()
        try:
            return msgspec.msgpack.decode(came.body, type=Said), came.descriptors
        except msgspec.MsgspecError as error:
            came.close()
            raise OSError(errno.EPROTO, f"not a message of an upgrade: {error}") from None

    async def _until(self, add: Callable[..., None], remove: Callable[[int], bool]) -> None:
        ready = asyncio.Event()
        add(self.sock.fileno(), ready.set)
        try:
            await ready.wait()
        finally:
            remove(self.sock.fileno())


def private_memory() -> int:
    """Where a worker writes keys, and the next one reads them: no name, gone with its last descriptor."""
    made = os.memfd_create("xts-private", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    fcntl.fcntl(made, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)  # by which a worker knows that it is memory
    return made


def rewind(descriptors: Sequence[int], private: bool) -> None:
    """The last one is private memory: it is read from the beginning. OSError: it is something else."""
    if private and descriptors:
        os.lseek(descriptors[-1], 0, os.SEEK_SET)


def close_all(descriptors: list[int]) -> None:
    """Closes them, and forgets them."""
    while descriptors:
        os.close(descriptors.pop())
