"""The client's side of attaching (native/attaching/attach.h): how a process gets its queue from an endpoint."""

from __future__ import annotations

import errno
import os
import socket
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass, fields
from types import TracebackType
from typing import Any, Self

from xts_messages._native import ffi, lib
from xts_messages.attaching.status_page import Figures
from xts_messages.queues.afxdp import NO_DROPS, Drops
from xts_messages.queues.queue import Queue
from xts_messages.queues.queue_kinds import kind_name
from xts_messages.settings.environment import BY_NAME

#: More than any endpoint lists: processes with a queue, and those behind relays.
_ANSWERS_MAX = 65536
DEFAULT_ENDPOINT = str(BY_NAME["XTS_ENDPOINT"].default)


def endpoint_path() -> str:
    """The endpoint that this process would use, according to the environment it was started with."""
    found = lib.xts_environment(lib.XTS_ENV_ENDPOINT)
    return (os.fsdecode(ffi.string(found)) if found else "") or DEFAULT_ENDPOINT


class Attachment:
    """A live attachment: its queue, and the connection, which ends when the server has gone."""

    def __init__(self, native: Any) -> None:
        self._native = native
        self.queue = Queue(native.queue)
        self.epoch = int(native.reply.epoch)
        self.queue_id = int(native.reply.queue_id)
        # number of the channel at a relay of the agent; 0: the queue is only ours
        self.relayed = int(native.reply.relayed)
        self.chunk_bytes = int(native.reply.chunk_bytes)  # of its memory; 0: it is shared memory
        self.token = bytes(ffi.buffer(native.reply.token))[: native.reply.token_bytes]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def fileno(self) -> int:
        """The connection; readable (end of file) once the server has gone."""
        return int(self._native.connection)

    @property
    def status(self) -> Any:
        """The `struct xts_status_page *` that this process writes."""
        return self._native.status

    def close(self) -> None:
        """Closes queue and connection. May be called again."""
        self.queue.close()
        self._native.queue = ffi.NULL
        lib.xts_detach(self._native)


def attach(
    endpoint: str | None = None,
    *,
    program: str = "",
    frame_window_max: int = 0,
    umem_bytes_max: int = 0,
    timeout_ms: int = 5000,
) -> Attachment:
    """Attaches this process. Blocks for some milliseconds, at most timeout_ms.

    OSError with the server's errno and reason; ENOENT, ECONNREFUSED: no server; ETIMEDOUT; EPROTO: not our
    protocol.
    """
    out = ffi.new("struct xts_attachment *")
    request = ffi.new("struct xts_attach_request *")
    request.frame_window_max = frame_window_max
    request.umem_bytes_max = umem_bytes_max
    request.program = program.encode()[: ffi.sizeof(request.program) - 1]
    path = ffi.NULL if endpoint is None else ffi.new("char[]", os.fsencode(endpoint))
    result = int(lib.xts_attach(out, path, request, timeout_ms))
    if result < 0:
        reason = ffi.string(out.reply.reason).decode(errors="replace") or os.strerror(-result)
        raise OSError(-result, f"attaching to {endpoint or endpoint_path()}: {reason}")
    return Attachment(out)


@dataclass(frozen=True, slots=True)
class Listing:
    """An attached process, as the endpoint lists it, with a duplicate of its status page."""

    kind: str  # "afxdp", "shm", or "relay": shared memory to a relay of the agent
    queue_id: int
    epoch: int
    pid: int
    uid: int
    program: str
    status_fd: int  # the receiver has to close it
    interface: str = ""  # interface of the queue; over shm, or from an older endpoint: ""
    relayed: int = 0  # number of the channel, if there is a relay; 0: the queue is its own


@dataclass(frozen=True, slots=True)
class Ended:
    """A process that was killed, with what the endpoint has kept about it."""

    pid: int
    uid: int
    program: str
    ended_s_ago: float
    signal: int  # 0: unknown
    figures: Figures


#: The size of the struct before it had interfaces.
_LISTING_BYTES_MIN = int(ffi.offsetof("struct xts_attach_listing", "interface"))


def list_attachments(endpoint: str | None = None, timeout_ms: int = 5000) -> Iterator[Listing]:
    """Asks an endpoint for the attached processes that this user may see (root: all). OSError as attach()."""
    listing_bytes = int(ffi.sizeof("struct xts_attach_listing"))
    for data, fds in _ask(lib.XTS_ATTACH_STATUS_MAGIC, listing_bytes, endpoint, timeout_ms):
        if len(data) < _LISTING_BYTES_MIN or len(fds) != 1:
            for fd in fds:
                os.close(fd)
            raise OSError(71, "the endpoint does not speak this version")
        native = ffi.from_buffer("struct xts_attach_listing *", data.ljust(listing_bytes, b"\0"))
        yield Listing(
            kind=kind_name(int(native.kind)),
            queue_id=int(native.queue_id),
            epoch=int(native.epoch),
            pid=int(native.pid),
            uid=int(native.uid),
            program=ffi.string(native.program).decode(errors="replace"),
            status_fd=fds[0],
            interface=ffi.string(native.interface).decode(errors="replace"),
            relayed=int(native.relayed),
        )


def list_ended(endpoint: str | None = None, timeout_ms: int = 5000) -> Iterator[Ended]:
    """Asks an endpoint for the processes that were killed not long ago and that this user may see. An older endpoint
    lists none. OSError as attach()."""
    ended_bytes = int(ffi.sizeof("struct xts_attach_ended"))
    for data, fds in _ask(lib.XTS_ATTACH_ENDED_MAGIC, ended_bytes, endpoint, timeout_ms):
        for fd in fds:
            os.close(fd)
        native = ffi.from_buffer("struct xts_attach_ended *", data.ljust(ended_bytes, b"\0"))
        if native.magic != lib.XTS_ATTACH_ENDED_MAGIC:  # a refusal
            return
        yield Ended(
            pid=int(native.pid),
            uid=int(native.uid),
            program=ffi.string(native.program).decode(errors="replace"),
            ended_s_ago=int(native.ended_ms_ago) / 1000,
            signal=int(native.signal),
            figures=Figures.read(native.figures),
        )


@dataclass(frozen=True, slots=True)
class OfferedQueues:
    """The queues that an interface has for processes, as reported by its endpoint."""

    interface: str
    queues: int  # queues that processes can have for themselves
    relayed: int  # how many more processes the relay can serve
    used: int  # in use, of both kinds
    program_id: int = 0  # of the XDP program that it has to have; 0: not known
    problem: str = ""  # why no queue carries anything at the moment; "": they do
    steering: str = ""  # how frames find their queue, or why they do not find all; "": the endpoint is older
    lacking: int = 0  # queues that they do not find, and that nobody gets
    copying: str = ""  # "zero copy: " or "copy mode: ", and why; "": the endpoint is older, or no queue is open
    drops: Drops = NO_DROPS  # by the kernel, at its queues


#: The size of the struct before it had problems.
_QUEUES_BYTES_MIN = int(ffi.offsetof("struct xts_attach_queues", "problem"))


def list_queues(endpoint: str | None = None, timeout_ms: int = 5000) -> Iterator[OfferedQueues]:
    """Asks an endpoint how many queues there are. A proxy makes them on demand, and lists none. OSError as attach();
    EPROTO also for an older endpoint."""
    queues_bytes = int(ffi.sizeof("struct xts_attach_queues"))
    for data, fds in _ask(lib.XTS_ATTACH_QUEUES_MAGIC, queues_bytes, endpoint, timeout_ms):
        for fd in fds:
            os.close(fd)
        native = ffi.from_buffer("struct xts_attach_queues *", data.ljust(queues_bytes, b"\0"))
        if len(data) < _QUEUES_BYTES_MIN or native.magic != lib.XTS_ATTACH_QUEUES_MAGIC:
            raise OSError(errno.EPROTO, "the endpoint does not say how many queues it has: it is older")
        interface = ffi.string(native.interface).decode(errors="replace")
        problem = ffi.string(native.problem).decode(errors="replace")
        counts = int(native.queues), int(native.relayed), int(native.used), int(native.program)
        steering = ffi.string(native.steering).decode(errors="replace")
        drops = Drops(*(int(getattr(native.drops, one.name)) for one in fields(Drops)))
        copying = ffi.string(native.copying).decode(errors="replace")
        yield OfferedQueues(interface, *counts, problem, steering, int(native.lacking), copying, drops)


def _ask(magic: int, answer_bytes: int, endpoint: str | None, timeout_ms: int) -> Iterator[tuple[bytes, list[int]]]:
    """The messages of the answer, each with its descriptors. `timeout_ms`: of all waits together. OSError EMSGSIZE:
    there are more than any endpoint has."""
    request = struct.pack(
        f"={ffi.sizeof('struct xts_attach_request')}s", struct.pack("=II", magic, lib.XTS_ATTACH_VERSION)
    )
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.settimeout(timeout_ms / 1000)
        connection.connect(endpoint or endpoint_path())
        connection.send(request)
        left_s = timeout_ms / 1000
        for _ in range(_ANSWERS_MAX):
            connection.settimeout(max(left_s, 0.001))
            begun_s = time.monotonic()
            data, fds, _, _ = socket.recv_fds(connection, answer_bytes, 4, socket.MSG_CMSG_CLOEXEC)
            left_s -= time.monotonic() - begun_s
            if not data:
                return
            yield data, fds
    raise OSError(errno.EMSGSIZE, "the endpoint's answer does not end")
