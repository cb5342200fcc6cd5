"""Opening queues, handing them over and adopting them, whatever their kind (native/queues/queue_kinds.h)."""

from __future__ import annotations

import errno
import os
from dataclasses import asdict, dataclass, field
from typing import Any

from xts_messages._native import ffi, lib
from xts_messages.queues.queue import Queue, check

HOST = int(lib.XTS_QUEUE_HOST)
PROXY = int(lib.XTS_QUEUE_PROXY)
AFXDP = int(lib.XTS_QUEUE_AFXDP)
SHM = int(lib.XTS_QUEUE_SHM)
RDMA = int(lib.XTS_QUEUE_RDMA)
#: Between a worker and the process of the proxy that has the queue pair.
CARRIED = int(lib.XTS_QUEUE_CARRIED)
#: Where a proxy waits for connections of RDMA, if its configuration does not say: for its queue 0, and for each further
#: queue at the next port.
RDMA_PORT, RDMA_QUEUES_MAX = 8556, 64


@dataclass(frozen=True, slots=True)
class QueueOptions:
    """How queues are to be opened: what an operator can say of them, and passes through unread to where that is done.
    An option more is a field here, a member of struct xts_queue_options, and a key of the configurations."""

    frame_window: int = 64
    single_chunk: bool = False  # frames of one buffer, even where they may have several
    kept_max: int = 0  # buffers for frames that are kept longer than their credit
    huge_pages: bool = False  # of an interface: memory in huge pages, if there are enough
    numa_node: int = 0  # of an interface: the node near which its memory should be, plus one; 0: any
    buffers_max: int = 0  # of an interface: how many buffers a frame may have; 0: as many as it needs
    busy_poll_us: int = 0  # of an interface: the kernel polls the card when asked for frames (busy_poll.py); 0: not
    busy_poll_frames: int = 0  # of an interface: that such a poll may handle; 0: as the kernel has it
    zero_copy: bool = False  # of an interface: the driver uses the queue's memory itself (xts_bpf/zero_copy.py)
    chunk_bytes: int = 0  # of an interface: of a buffer, CHUNK or SMALL_CHUNK (afxdp.py); 0: as its frames need it

    def native(self, **more: int) -> Any:
        """The struct xts_queue_options *. `more`: members that only the opener knows."""
        return ffi.new("struct xts_queue_options *", asdict(self) | more)


DEFAULT = QueueOptions()


@dataclass(frozen=True, slots=True)
class QueueEnd:
    """One end of a queue that is not in use yet: what is handed to whoever adopts it."""

    geometry: Any = field(repr=False)  # struct xts_attach_reply *
    descriptors: tuple[int, ...]

    @classmethod
    def unpack(cls, geometry: bytes, descriptors: tuple[int, ...]) -> QueueEnd:
        """From what `pack()` of another process has written, and the descriptors that came with it."""
        native = ffi.new("struct xts_attach_reply *")
        ffi.buffer(native)[:] = geometry
        return cls(native, descriptors)

    def pack(self) -> bytes:
        """The geometry as bytes, for a process of the same build on this machine."""
        return bytes(ffi.buffer(self.geometry))

    @property
    def kind(self) -> str:
        """The name of its kind; unknown: "unknown"."""
        return kind_name(int(self.geometry.kind))

    def adopt(self, end: int) -> Queue:
        """Makes the queue, HOST's or PROXY's end, with all its memory mapped. Takes over the descriptors on success.
        OSError EPROTO: there is no such kind, or it needs other descriptors; else why it cannot be adopted."""
        out = ffi.new("struct xts_queue **")
        kind = self._known_kind()
        check(lib.xts_queue_adopt(out, end, list(self.descriptors), self.geometry), f"adopting a queue ({self.kind})")
        if kind.populate:
            kind.populate(out[0])
        return Queue(out[0])

    def resume(self, end: int, state: bytes) -> Queue:
        """As `adopt()`, for a queue that another process has left in this state (xts_queue_leave())."""
        out = ffi.new("struct xts_queue **")
        kind = self._known_kind()
        result = lib.xts_queue_resume(out, end, list(self.descriptors), self.geometry, state, len(state))
        check(result, f"going on with a queue ({self.kind})")
        if kind.populate:
            kind.populate(out[0])
        return Queue(out[0])

    def adopt_orphan(self, end: int) -> Queue:
        """As `adopt()`, for a queue whose process has ended without leaving it. OSError EAGAIN: frames are still on
        their way, try again; EOPNOTSUPP: it has to be opened again."""
        out = ffi.new("struct xts_queue **")
        kind = self._known_kind()
        result = lib.xts_queue_adopt_orphan(out, end, list(self.descriptors), self.geometry)
        check(result, f"taking a queue whose process has ended ({self.kind})")
        if kind.populate:
            kind.populate(out[0])
        return Queue(out[0])

    def resume_dead(self, end: int, dead: int, dead_bytes: int) -> Queue:
        """As `resume()`, for one whose process has died: where its struct is (resume_dead in queue_kinds.h)."""
        out = ffi.new("struct xts_queue **")
        kind = self._known_kind()
        address = ffi.cast("void *", dead)
        result = lib.xts_queue_resume_dead(out, end, list(self.descriptors), self.geometry, address, dead_bytes)
        check(result, f"going on with a queue ({self.kind})")
        if kind.populate:
            kind.populate(out[0])
        return Queue(out[0])

    def _known_kind(self) -> Any:
        kind = lib.xts_queue_kind(self.geometry.kind)
        if not kind or kind.descriptors != len(self.descriptors):
            check(-errno.EPROTO, f"a queue of kind {self.kind} with {len(self.descriptors)} descriptors")
        return kind

    def adopt_or_close(self, end: int, is_orphan: bool = False) -> Queue:
        """As `adopt()`, or `adopt_orphan()`, and the descriptors are closed if it fails."""
        try:
            return self.adopt_orphan(end) if is_orphan else self.adopt(end)
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        """Closes the descriptors."""
        for fd in self.descriptors:
            os.close(fd)


def kind_name(number: int) -> str:
    """The word for a kind by its number; the number of a listing, too."""
    if number == int(lib.XTS_QUEUE_RELAY):
        return "relay"
    kind = lib.xts_queue_kind(number)
    return ffi.string(kind.name).decode() if kind else "unknown"


def outlives_its_server(number: int) -> bool:
    """Does a queue of this kind go on working when the attach connection has ended? Then its process has to be told
    when it is taken back."""
    kind = lib.xts_queue_kind(number)
    return bool(kind) and not kind.traits & lib.XTS_QUEUE_DEATH_SHOWS


def open_ends(kind: int, options: QueueOptions = DEFAULT, **more: int) -> tuple[QueueEnd, QueueEnd]:
    """Opens a queue: the host's end and the proxy's. What both need is the same descriptor in both; at an interface
    both are the one end that there is. OSError says with the kernel's errno why it cannot be."""
    out = ffi.new("struct xts_queue_opened *")
    check(lib.xts_queue_open(out, kind, options.native(**more)), f"opening a queue ({kind_name(kind)})")
    geometry = ffi.new("struct xts_attach_reply *")
    geometry[0] = out.geometry
    count = int(lib.xts_queue_kind(kind).descriptors)
    host, proxy = (tuple(int(out.fds[end][i]) for i in range(count)) for end in (HOST, PROXY))
    return QueueEnd(geometry, host), QueueEnd(geometry, proxy)
