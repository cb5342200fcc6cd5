"""What the processes say to each other when a new proxy takes the place of a running one: `xts-proxy upgrade`.

Theory of operation. The new proxy asks the running one at its control socket, over a connection that is then theirs.
Each message is a header, descriptors, and a body (calling.py), which is plain data (msgpack): neither believes the
other one more than its types say. The one that gives is in giving.py, the one that takes in taking.py.

    new                                       running
    {"ask": "upgrade", ...}             ->
                                        <-    Granted, with the sockets that listen
    Ready                               ->
                                        <-    Begins
                                        <-    Sockets, as often as needed, with descriptors  } for each channel
                                        <-    Channel, with the queue's descriptors          }
    Takes                               ->                                                   }
                                        <-    Yours                                          }
                                        <-    Done, or GoesOn at any time

A channel belongs to the running proxy until it has sent Yours. It has kept what it has sent before, and takes it back
if the new one ends, refuses or is silent. From then on it never does, whatever becomes of the new one, which serves
nothing of a channel before it has heard Yours. So there is one owner at each time, and no number is used twice under
one key of TLS (tests/model/direction.pml). What is in the bodies of Sockets and Channel, only workers read.
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

from xts_proxy.workers.calling import Message
from xts_proxy.workers.workers import Moved

_HEAD = struct.Struct("=QI")
#: A piece has records of some hundred sockets, with what waits for TCP in each.
BYTES_MAX = 1 << 30
#: What both have to speak alike; a new proxy that speaks another version is refused.
VERSION = 3


class Granted(msgspec.Struct, frozen=True, tag="granted"):
    """`sockets`: the names of the descriptors. `program`: the kernel's number of the XDP program, 0: there is none."""

    version: int
    queue: str
    sockets: tuple[str, ...]
    program: int = 0


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """The new proxy's workers run."""


class Begins(msgspec.Struct, frozen=True, tag="begins"):
    """`queue_ids`: the numbers that are in use, and not to be given to others."""

    queue_ids: tuple[int, ...]


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
    """`geometry`: a struct xts_attach_reply; `state` to `owner`: of Moved. `attachment`: with it go the connection and
    the status page, behind the queue's descriptors."""

    queue_id: int
    tenant: str
    geometry: bytes
    state: bytes
    ticket: int
    epoch: int
    known: bytes
    owner: tuple[int, int]
    attachment: Attachment | None = None


def channel_of(queue_id: int, geometry: bytes, piece: Moved) -> Channel:
    """What the last piece of a channel says."""
    of_host = piece.ticket, piece.epoch, piece.known, piece.owner
    return Channel(queue_id, piece.tenant, geometry, piece.data, *of_host)


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


Said = Granted | Ready | Begins | Sockets | Channel | Takes | Yours | GoesOn | Done


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
