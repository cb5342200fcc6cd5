"""The messages between the agent and its privileged opener, over a pair of SOCK_SEQPACKET sockets.

A request has 40 bytes, and keys behind them if it is OVER. An answer has some hundred, with descriptors if a queue was
opened. Anything else ends the connection. Each request has a number, and one answer with this number, so that nobody
takes a late answer for another one. The answer to OPEN comes when it is done, all others at once and in order. What
becomes of the interface comes without a request.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from dataclasses import astuple, dataclass
from enum import IntEnum

from xts_bpf.program import QUEUES_MAX, Owner
from xts_messages.native import ffi, lib
from xts_messages.queues.afxdp import NO_DROPS, Drops

_REQUEST = struct.Struct("=HHIIIQQ")
_ANSWER = struct.Struct("=HHIiI")
REQUEST_BYTES_MAX = _REQUEST.size + int(lib.XTS_OVER_BYTES_MAX)
_COUNT = struct.Struct("=HH")
_FD = struct.Struct("=i")
_OWNED = struct.Struct("=H2xIIxxxxQ")
_STATE = struct.Struct(f"=IIII??{QUEUES_MAX // 8}sHIIH5Q")
GEOMETRY_BYTES = int(ffi.sizeof("struct xts_attach_reply"))
TEXT_BYTES_MAX = 400
ANSWER_BYTES_MAX = _ANSWER.size + _COUNT.size + QUEUES_MAX * _OWNED.size
DESCRIPTORS = 2  # the socket and its UMEM


class Ask(IntEnum):
    """The requests of the agent."""

    OPEN = 1  # close a queue, open it again, and hand its descriptors over
    ADMIT = 2  # let frames of an open queue in, for the process it is given to
    RELEASE = 3  # admit no more frames, and send the proxy GOODBYE for the process, if there is one
    FINISH = 4  # close everything, and detach the program if no process has a queue: the agent could not begin
    LOOK = 6  # say how the interface is: the answer comes after a report
    OVER = 7  # tell the proxy that no process has the connections of some keys any more
    OPEN_LARGE = 8  # as OPEN, with chunks that each library knows
    LEAVE = 5  # close what no process has; queues in use and the program stay for the next agent


class Say(IntEnum):
    """The answers of the opener."""

    READY = 16  # sent once, without a request: the program is attached
    OPENED = 17
    DONE = 18
    STATE = 19  # sent without a request, at the beginning and after each change: an InterfaceReport


@dataclass(frozen=True, slots=True)
class Request:
    """`owner` and `secret` are for ADMIT; `secret` 0: frames have none. For OVER `owner` has only an epoch, and `keys`
    are those of connections."""

    ask: Ask
    queue_id: int = 0
    owner: Owner | None = None
    number: int = 0
    secret: int = 0
    keys: tuple[int, ...] = ()

    def pack(self) -> bytes:
        owner = self.owner or Owner(0, 0, 0)
        head = _REQUEST.pack(self.ask, self.queue_id, self.number, owner.uid, owner.pid, owner.epoch, self.secret)
        return head + struct.pack(f"={len(self.keys)}Q", *self.keys)

    @classmethod
    def unpack(cls, data: bytes, queues: int) -> Request:
        """ValueError: it is not a request, or for a queue that does not exist."""
        if not _REQUEST.size <= len(data) <= REQUEST_BYTES_MAX or len(data) % 8:
            raise ValueError(f"a request of {len(data)} bytes")
        ask, queue_id, number, uid, pid, epoch, secret = _REQUEST.unpack_from(data)
        keys = tuple(key for (key,) in struct.iter_unpack("=Q", data[_REQUEST.size :]))
        if queue_id >= queues:
            raise ValueError(f"a request for queue {queue_id} of {queues}")
        request = cls(Ask(ask), queue_id, Owner(epoch, uid, pid) if epoch else None, number, secret, keys)
        if (request.ask in (Ask.ADMIT, Ask.OVER)) != (request.owner is not None):
            raise ValueError("an owner where none belongs, or none")
        if keys and request.ask is not Ask.OVER:
            raise ValueError("keys where none belong")
        return request


@dataclass(frozen=True, slots=True)
class InterfaceReport:
    """What the opener knows about its interface (xts_bpf.kept_interface). Queues that were opened in an earlier
    generation are lost."""

    generation: int = 1
    queues: int = 0  # how many the interface has, of those that the opener serves
    program_id: int = 0  # the kernel's number of our XDP program
    reattached: int = 0  # how often that was attached again
    renewed: int = 0  # how often all queues had to be opened again
    problem: str = ""  # why no queue carries anything at the moment
    steered: bool = False  # frames have an address for each queue (xts_bpf.steering)
    headed: bool = False  # and a head with the secret of their attachment
    lacking: frozenset[int] = frozenset()  # queues that frames do not find, and are not to be given away
    lacking_reason: str = ""
    zero_copy: int = 0  # how many queues are bound with zero copy (xts_bpf.zero_copy)
    fallbacks: int = 0  # how often queues were bound again in copy mode
    drops: Drops = NO_DROPS  # by the kernel, at all queues since the opener has begun
    copying: str = ""  # why they are bound as they are, for people; "": none is open

    @property
    def how(self) -> str:
        """How frames find their queue, or why they do not find all, for people."""
        if not self.steered:
            return "the queues of both ends are the same, as on veth"
        if self.queues == 1:
            return self.lacking_reason or "the only queue needs no rule, and was proved by a frame"
        return self.lacking_reason or f"each of the {self.queues} queues has an address, and was proved by a frame"

    def send(self, connection: socket.socket) -> None:
        head = _ANSWER.pack(Say.STATE, 0, 0, 0, self.generation)
        problem = self.problem.encode()[:TEXT_BYTES_MAX]
        lacking = sum(1 << number for number in self.lacking).to_bytes(QUEUES_MAX // 8, "little")
        counts = self.queues, self.program_id, self.reattached, self.renewed
        copying = self.copying.encode()[:TEXT_BYTES_MAX]
        copies = self.zero_copy, self.fallbacks, len(copying), *astuple(self.drops)
        body = _STATE.pack(*counts, self.steered, self.headed, lacking, len(problem), *copies)
        connection.send(head + body + problem + copying + self.lacking_reason.encode()[:TEXT_BYTES_MAX])

    @classmethod
    def unpack(cls, generation: int, body: bytes) -> InterfaceReport:
        """ConnectionResetError: it is none."""
        if len(body) < _STATE.size:
            raise ConnectionResetError("the privileged process said half of something")
        queues, program_id, reattached, renewed, steered, headed, bits, length, *copies = _STATE.unpack_from(body)
        texts, end = body[_STATE.size :], length + copies[2]
        parts = texts[:length], texts[length:end], texts[end:]
        problem, copying, reason = (part.decode(errors="replace") for part in parts)
        mask = int.from_bytes(bits, "little")
        lacking = frozenset(number for number in range(QUEUES_MAX) if mask >> number & 1)
        return cls(
            generation,
            queues,
            program_id,
            reattached,
            renewed,
            problem,
            steered=steered,
            headed=headed,
            lacking=lacking,
            lacking_reason=reason,
            zero_copy=copies[0],
            fallbacks=copies[1],
            copying=copying,
            drops=Drops(*copies[3:]),
        )


@dataclass(frozen=True, slots=True)
class Answer:
    """`error` is an errno, and `text` explains it; `geometry` and `descriptors` are only for OPENED without error,
    `state` only for STATE."""

    say: Say
    queue_id: int = 0
    number: int = 0  # that of the request
    error: int = 0
    text: str = ""
    geometry: bytes = b""
    descriptors: tuple[int, ...] = ()
    generation: int = 1  # of the interface, when the queue was opened
    state: InterfaceReport | None = None

    def send(self, connection: socket.socket) -> None:
        body = self.text.encode()[:TEXT_BYTES_MAX] if self.error else self.geometry
        head = _ANSWER.pack(self.say, self.queue_id, self.number, self.error, self.generation)
        socket.send_fds(connection, [head + body], self.descriptors)


def send_ready(connection: socket.socket, owners: list[Owner | None]) -> None:
    """Sends the number of queues, and the owners of those that were given away earlier."""
    owned = [_OWNED.pack(n, o.uid, o.pid, o.epoch) for n, o in enumerate(owners) if o]
    head = _ANSWER.pack(Say.READY, 0, 0, 0, 1) + _COUNT.pack(len(owners), len(owned))
    connection.send(head + b"".join(owned))


def receive_ready(connection: socket.socket, flags: int = 0) -> list[Owner | None]:
    """What `send_ready()` sent. OSError: why the opener could not begin. BlockingIOError: it has said nothing yet, with
    MSG_DONTWAIT."""
    data = connection.recv(ANSWER_BYTES_MAX, flags)
    if len(data) < _ANSWER.size:
        raise ConnectionResetError("the privileged process ended before it was ready")
    _, _, _, error, _ = _ANSWER.unpack_from(data)
    if error:
        raise OSError(error, data[_ANSWER.size :].decode(errors="replace"))
    count, owned = _COUNT.unpack_from(data, _ANSWER.size)
    owners: list[Owner | None] = [None] * count
    for i in range(owned):
        number, uid, pid, epoch = _OWNED.unpack_from(data, _ANSWER.size + _COUNT.size + i * _OWNED.size)
        owners[number] = Owner(epoch, uid, pid)
    return owners


def receive_answer(connection: socket.socket, flags: int = 0) -> Answer:
    """The next answer. BlockingIOError: none waits, with MSG_DONTWAIT. ConnectionResetError: the opener has ended."""
    room = socket.CMSG_LEN(DESCRIPTORS * _FD.size)
    # recv_fds() of Python 3.11 ignores its flags.
    data, ancillary, said, _ = connection.recvmsg(ANSWER_BYTES_MAX, room, flags | socket.MSG_CMSG_CLOEXEC)
    fds = [fd for _, _, found in ancillary for (fd,) in _FD.iter_unpack(found[: len(found) // _FD.size * _FD.size])]
    if len(data) < _ANSWER.size:
        raise ConnectionResetError("the privileged process has ended")
    say, queue_id, number, error, generation = _ANSWER.unpack_from(data)
    body = data[_ANSWER.size :]
    if say == Say.STATE:
        return Answer(Say.STATE, state=InterfaceReport.unpack(generation, body))
    if said & socket.MSG_CTRUNC and not error:  # the agent has no room, and the kernel has closed what does not go in
        for fd in fds:
            os.close(fd)
        why = f"queue {queue_id}: the agent cannot take it in: {os.strerror(errno.EMFILE)}"
        error, body, fds = errno.EMFILE, why.encode(), []
    whole = (len(body), len(fds)) == (GEOMETRY_BYTES, DESCRIPTORS)
    if say == Say.OPENED and not error and not whole:
        for fd in fds:
            os.close(fd)
        raise ConnectionResetError("the privileged process gave no queue")
    text = body.decode(errors="replace") if error else ""
    return Answer(Say(say), queue_id, number, error, text, b"" if error else body, tuple(fds), generation)
