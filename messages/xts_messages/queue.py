"""Queues of frames in Python, for the agent, the proxy supervisor and the tests (native/queue.h).

The data path never runs here; it takes over a queue by its address (:meth:`Queue.detach`).
"""

from __future__ import annotations

import errno
import os
import select
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from xts_messages._native import ffi, lib

HOST = int(lib.XTS_SHM_HOST)
PROXY = int(lib.XTS_SHM_PROXY)


def check(result: int, what: str) -> int:
    """Raises OSError for a native function's negative errno; else returns the result."""
    if result < 0:
        raise OSError(-result, f"{what}: {os.strerror(-result)}")
    return result


@dataclass(frozen=True, slots=True)
class QueueStats:
    """Counters of a queue since it was opened; see `struct xts_queue_stats` in native/queue.h."""

    tx_frames: int
    tx_bytes: int
    rx_frames: int
    rx_bytes: int
    kicks: int
    kicks_again: int
    tx_lost: int
    tx_no_slot: int
    rx_invalid: int
    rx_dropped: int
    sleeps: int
    wakeups: int


@dataclass(frozen=True, slots=True)
class Faults:
    """Faults by seed, in parts per million of frames; the first `skip_frames` pass unharmed."""

    seed: int
    drop_ppm: int = 0
    duplicate_ppm: int = 0
    reorder_ppm: int = 0
    corrupt_ppm: int = 0
    truncate_ppm: int = 0
    skip_frames: int = 0


class Frame:
    """A received frame. Its memory belongs to the queue; :meth:`recycle` has to be called once, in any order."""

    def __init__(self, queue: Queue, native: Any) -> None:
        self._queue: Queue | None = queue
        self._native = native

    @property
    def segments(self) -> int:
        """Number of pieces in which the frame came."""
        return int(self._native.segments)

    def __len__(self) -> int:
        return int(self._native.bytes)

    def __bytes__(self) -> bytes:
        if self._queue is None:
            raise ValueError("the frame has been recycled")
        return b"".join(
            bytes(ffi.buffer(self._native.segment[i].iov_base, self._native.segment[i].iov_len))
            for i in range(self._native.segments)
        )

    def recycle(self) -> None:
        """Gives the memory back to the queue. After this the frame cannot be used."""
        if self._queue is None:
            raise ValueError("the frame has been recycled")
        lib.xts_queue_recycle(self._queue.native, self._native)
        self._queue = None


class Queue:
    """One end of a queue. A context manager; closing it releases its descriptors. Not thread-safe."""

    def __init__(self, native: Any) -> None:
        """Takes over a `struct xts_queue *`."""
        self._native = native

    @property
    def native(self) -> Any:
        """The `struct xts_queue *`. ValueError after it was closed or detached."""
        if self._native is None:
            raise ValueError("the queue is closed")
        return self._native

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Releases everything. May be called again."""
        if self._native is not None:
            lib.xts_queue_close(self._native)
            self._native = None

    def detach(self) -> int:
        """Gives the queue up without closing it; returns its address, for another native module to take over."""
        address = int(ffi.cast("uintptr_t", self.native))
        self._native = None
        return address

    @property
    def kind(self) -> str:
        """afxdp, shm, or the name of a decorator."""
        return str(ffi.string(self.native.ops.kind).decode())

    @property
    def largest_message(self) -> int:
        """Size of the largest frame in bytes, including the Ethernet header."""
        return int(self.native.largest_message)

    @property
    def frame_window(self) -> int:
        """Number of frames for which there are buffers, in each direction."""
        return int(self.native.frame_window)

    @property
    def local_mac(self) -> bytes:
        return bytes(ffi.buffer(self.native.local_mac))

    @property
    def peer_mac(self) -> bytes:
        return bytes(ffi.buffer(self.native.peer_mac))

    @property
    def stats(self) -> QueueStats:
        native = self.native.stats
        return QueueStats(*(int(getattr(native, name)) for name in QueueStats.__slots__))

    def fileno(self) -> int:
        """The descriptor to poll for reading while armed."""
        return int(self.native.wait_fd)

    def submit(self, frame: bytes) -> None:
        """Copies a frame into a transmit slot; it leaves with the next kick. BlockingIOError: no slot is free;
        EMSGSIZE: empty, or longer than the largest message."""
        if not 0 < len(frame) <= self.largest_message:
            raise OSError(errno.EMSGSIZE, f"a frame has 1 to {self.largest_message} bytes, not {len(frame)}")
        slot = ffi.new("struct xts_tx_slot *")
        check(lib.xts_queue_acquire(self.native, slot), "no transmit slot is free")
        ffi.memmove(slot.data, frame, len(frame))
        lib.xts_queue_submit(self.native, slot, len(frame))

    def kick(self) -> bool:
        """Publishes what was submitted. False: some of it still waits, kick again soon. OSError: the queue is gone."""
        result = int(lib.xts_queue_kick(self.native))
        if result == -errno.EAGAIN:
            return False
        check(result, "kick")
        return True

    def send(self, frame: bytes) -> None:
        """Submits a frame and kicks until it is on its way."""
        self.submit(frame)
        while not self.kick():
            pass

    def receive(self) -> Frame | None:
        """The next frame, or None. BrokenPipeError: the peer's end is gone for good."""
        native = ffi.new("struct xts_rx_frame *")
        return Frame(self, native) if check(lib.xts_queue_receive(self.native, native), "receive") else None

    def arm(self) -> bool:
        """Asks to be woken. True: frames are there already, do not sleep."""
        return bool(lib.xts_queue_arm(self.native))

    def disarm(self) -> None:
        """After sleeping: withdraws the request."""
        lib.xts_queue_disarm(self.native)

    def wait(self, timeout_ms: int) -> Frame:
        """The next frame; sleeps until there is one. TimeoutError after timeout_ms without a frame."""
        poll = select.poll()
        poll.register(self.fileno(), select.POLLIN)
        frame = self.receive()
        while frame is None:
            if not self.arm():
                ready = poll.poll(timeout_ms)
                self.disarm()
                if not ready:
                    raise TimeoutError(errno.ETIMEDOUT, f"no frame for {timeout_ms} ms")
            frame = self.receive()
        return frame

    def capture(self, path: str) -> Queue:
        """This queue with every frame, in both directions, written to a pcap file; use the result in place of this
        object."""
        out = ffi.new("struct xts_queue **")
        check(lib.xts_pcap_wrap(out, self.native, os.fsencode(path)), f"capture to {path}")
        self._native = None
        return Queue(out[0])

    def bundled(self, sending: bool = True) -> Queue:
        """This queue with small frames sent several at a time, if `sending`, and the peer's bundles split."""
        out = ffi.new("struct xts_queue **")
        check(lib.xts_bundle_wrap(out, self.native), "bundle")
        lib.xts_bundle_send(out[0], sending)
        self._native = None
        return Queue(out[0])

    def with_faults(self, on_transmit: Faults | None = None, on_receive: Faults | None = None) -> Queue:
        """This queue with faults; use the result in place of this object."""
        out = ffi.new("struct xts_queue **")
        native = [
            ffi.NULL if f is None else ffi.new("struct xts_faults *", {n: getattr(f, n) for n in Faults.__slots__})
            for f in (on_transmit, on_receive)
        ]
        check(lib.xts_fault_wrap(out, self.native, *native), "faults")
        self._native = None
        return Queue(out[0])


@dataclass(frozen=True, slots=True)
class ShmArea:
    """Shared memory and its bells (native/shm.h). The holder passes the descriptors on, or closes them."""

    memfd: int
    host_bell: int
    proxy_bell: int
    geometry: Any  # struct xts_attach_reply *

    def open(self, side: int) -> Queue:
        """Makes the queue of one side (HOST, PROXY) from duplicates of the descriptors."""
        fds = [os.dup(self.memfd), os.dup(self.host_bell if side == HOST else self.proxy_bell)]
        bells = (fds[1], -1) if side == HOST else (-1, fds[1])
        out = ffi.new("struct xts_queue **")
        result = int(lib.xts_shm_open(out, side, fds[0], *bells, self.geometry))
        if result < 0:
            for fd in fds:
                os.close(fd)
        check(result, "opening a shared-memory queue")
        return Queue(out[0])

    def close(self) -> None:
        """Closes all three descriptors."""
        for fd in (self.memfd, self.host_bell, self.proxy_bell):
            os.close(fd)


def create_shm(frame_window: int = 64, largest_message: int = int(lib.XTS_FRAME_BYTES_MAX)) -> ShmArea:
    """Makes shared memory for a frame window. OSError EINVAL: window or size out of range."""
    area = ffi.new("struct xts_shm_area *")
    check(
        lib.xts_shm_create(area, frame_window, largest_message),
        f"shared memory for a window of {frame_window}",
    )
    geometry = ffi.new("struct xts_attach_reply *")
    geometry[0] = area.geometry
    return ShmArea(area.memfd, area.host_bell, area.proxy_bell, geometry)


def open_shm_pair(frame_window: int = 64, largest_message: int = int(lib.XTS_FRAME_BYTES_MAX)) -> tuple[Queue, Queue]:
    """Both ends, the host's and the proxy's, in this process: for tests and simulation."""
    area = create_shm(frame_window, largest_message)
    try:
        host = area.open(HOST)
        try:
            return host, area.open(PROXY)
        except OSError:
            host.close()
            raise
    finally:
        area.close()


def adopt_afxdp(xsk_fd: int, umem_fd: int, geometry: Any) -> Queue:
    """Makes a queue from an open AF_XDP socket, with all its memory mapped; takes over both descriptors on success."""
    out = ffi.new("struct xts_queue **")
    check(lib.xts_afxdp_adopt(out, xsk_fd, umem_fd, geometry), "adopting an AF_XDP socket")
    lib.xts_afxdp_populate(out[0])
    return Queue(out[0])
