"""Queues of frames in Python, for the agent, the proxy supervisor and the tests (native/queues/queue.h).

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

_NEVER = 0xFFFF_FFFF_FFFF_FFFF


def check(result: int, what: str) -> int:
    """Raises OSError for a native function's negative errno; else returns the result."""
    if result < 0:
        raise OSError(-result, f"{what}: {os.strerror(-result)}")
    return result


@dataclass(frozen=True, slots=True)
class QueueStats:
    """Counters of a queue since it was opened; see `struct xts_queue_stats` in native/queues/queue.h."""

    tx_frames: int
    tx_bytes: int
    rx_frames: int
    rx_bytes: int
    kicks: int
    kicks_again: int
    tx_lost: int
    tx_resent: int
    tx_no_slot: int
    rx_invalid: int
    rx_dropped: int
    rx_foreign: int
    sleeps: int
    wakeups: int
    tx_repeated: int
    rx_duplicates: int
    rx_early: int
    violations: int
    rtt_ns: int
    window_frames: int
    card_polls: int


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
    delay_ppm: int = 0  # held up for delay_us, and those behind them
    repeat_ppm: int = 0  # sent again after delay_us, on transmit only
    delay_us: int = 0


class Frame:
    """A received frame. Its memory belongs to the queue; :meth:`recycle` has to be called once, in any order."""

    def __init__(self, queue: Queue, native: Any) -> None:
        self._queue: Queue | None = queue
        self._native = native
        self._kept = False

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

    def keep(self) -> bool:
        """Keeps it longer than its frame credit, which may be returned now. False: there is no room for that."""
        if self._queue is None:
            raise ValueError("the frame has been recycled")
        self._kept = self._kept or bool(lib.xts_queue_keep(self._queue.native, self._native))
        return self._kept

    def recycle(self) -> None:
        """Gives the memory back to the queue. After this the frame cannot be used."""
        if self._queue is None:
            raise ValueError("the frame has been recycled")
        (lib.xts_queue_recycle_kept if self._kept else lib.xts_queue_recycle)(self._queue.native, self._native)
        self._queue = None


class Retained:
    """A submitted slot whose content is kept, until :meth:`release`."""

    def __init__(self, queue: Queue, native: Any, length: int) -> None:
        self._queue, self._native, self._length = queue, native, length

    def submit(self) -> bool:
        """Submits it once more. False: it has not come back from the last time."""
        result = int(lib.xts_queue_submit_retained(self._queue.native, self._native, self._length))
        if result == -errno.EAGAIN:
            return False
        check(result, "submitting a frame")
        return True

    def release(self) -> None:
        """The slot is free again as soon as it has come back. Once."""
        lib.xts_queue_release(self._queue.native, self._native)


class Queue:
    """One end of a queue. A context manager; closing it releases its descriptors. Not thread-safe."""

    def __init__(self, native: Any, largest: int = 0) -> None:
        """Takes over a `struct xts_queue *`. `largest`: of its frames, if they come in parts."""
        self._native = native
        self._largest = largest

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
    def traits(self) -> int:
        """Bits XTS_QUEUE_*, enum xts_queue_trait: what the code above it goes by."""
        return int(self.native.traits)

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
        slot = self._slot_with(frame)
        lib.xts_queue_submit(self.native, slot, len(frame))

    def submit_retained(self, frame: bytes) -> Retained:
        """As submit(), and the slot can be submitted again until it is released."""
        slot = self._slot_with(frame)
        lib.xts_queue_retain(self.native, slot)
        retained = Retained(self, slot, len(frame))
        retained.submit()
        return retained

    def _slot_with(self, frame: bytes) -> Any:
        largest = self._largest or self.largest_message - int(self.native.head_bytes)
        if not 0 < len(frame) <= largest:
            raise OSError(errno.EMSGSIZE, f"a frame has 1 to {largest} bytes, not {len(frame)}")
        slot = ffi.new("struct xts_tx_slot *")
        check(lib.xts_queue_acquire(self.native, slot), "no transmit slot is free")
        ffi.memmove(slot.data, frame, len(frame))
        return slot

    def tick(self, now_ns: int) -> None:
        """Tells it the time, for a queue with a clock: what is due leaves with the next kick."""
        lib.xts_queue_tick(self.native, now_ns)

    @property
    def deadline_ns(self) -> int | None:
        """When to call tick() at the latest, 0: at once; None: not needed."""
        deadline = int(lib.xts_queue_deadline_ns(self.native))
        return None if deadline == _NEVER else deadline

    @property
    def kept_max(self) -> int:
        """Buffers for frames that are kept longer than their credit."""
        return int(self.native.kept_max)

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

    def settle(self, now_ns: int) -> bytes:
        """Before leave(): the session with which another process goes on, b"" if there is none. BlockingIOError: frames
        have not arrived, try again; then `now_ns` counts."""
        session = ffi.new("uint8_t **")
        length = check(lib.xts_queue_settle(self.native, now_ns, session), "settling a queue")
        try:
            return bytes(ffi.buffer(session[0], length)) if length else b""
        finally:
            lib.xts_queue_session_free(session[0])

    def leave(self) -> tuple[bytes, tuple[int, ...]]:
        """For a process that goes on with this end (QueueEnd.resume()): its state, and duplicates of the descriptors,
        which are the caller's. Only close() may follow. BlockingIOError: frames are on their way, try again; OSError
        EBUSY: some are lent out; EOPNOTSUPP."""
        state, fds = ffi.new("uint8_t[]", int(lib.XTS_QUEUE_STATE_BYTES_MAX)), ffi.new("int[4]", [-1] * 4)
        length = check(lib.xts_queue_leave(self.native, fds, state), "leaving a queue")
        return bytes(ffi.buffer(state, length)), tuple(fd for fd in fds if fd >= 0)

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
        lib.xts_bundle_send(out[0], sending, 0)
        self._native = None
        return Queue(out[0])

    def in_parts(self, packet_bytes: int, peer_bytes: int = 0) -> Queue:
        """This queue with frames of more than `packet_bytes` in parts (native/decorators/parts.h); use the result
        in place of this object. `peer_bytes`: as many of the peer's, if that is not the same."""
        out = ffi.new("struct xts_queue **")
        check(lib.xts_parts_wrap(out, self.native), "parts")
        lib.xts_parts_use(out[0], packet_bytes, peer_bytes or packet_bytes)
        self._native = None
        return Queue(out[0], int(lib.xts_parts_frame_bytes(packet_bytes)))

    def headed(
        self, secret: int = 0, number: int = 0, secrets_fd: int = -1, state: bytes = b"", *, died: bool = False
    ) -> Queue:
        """This queue with a head on each frame: a host's, with its secret, or, with 0, a proxy's, which takes the form
        of its frames from each epoch; use the result in place of this object. `number`: the peer's, of the queue.
        `secrets_fd`: the map of its XDP program. `state`: of a proxy that has left it (split_state()) or has `died`."""
        out = ffi.new("struct xts_queue **")
        values = {"secret": secret, "number": number, "secrets_fd": secrets_fd}
        config = ffi.new("struct xts_headed_config *", values)
        check(lib.xts_headed_wrap(out, self.native, config), "heads")
        self._native = None
        made = Queue(out[0])
        resume = lib.xts_headed_resume_dead if died else lib.xts_headed_resume
        if state and (result := resume(made.native, state, len(state))):
            made.close()
            check(result, "going on with heads")
        return made

    def repeating(self, role: int, epoch: int = 0, session: bytes = b"") -> Queue:
        """This queue with lost frames repeated (native/decorators/arq.h): `role` is one of XTS_ARQ_*, `epoch` a host's,
        `session` that of a proxy that has left it (settle()). Use the result in place of this object."""
        out = ffi.new("struct xts_queue **")
        config = ffi.new("struct xts_arq_config *", {"role": role, "epoch": epoch})
        check(lib.xts_arq_wrap(out, self.native, config), "repeating")
        self._native = None
        made = Queue(out[0])
        if session and (result := lib.xts_arq_resume(made.native, session, len(session))):
            made.close()
            check(result, "going on with a session")
        return made

    def dead_session(self, dead_below: int, dead: int, dead_bytes: int, epoch: int) -> bytes:
        """The session in this epoch of a process that has died, b"" if there is none: for resume_dead_session(), once.
        This queue goes on for that of the process. The addresses of that one's struct, and of what repeated lost
        frames. Before anything is sent."""
        out = ffi.new("uint8_t **")
        structs = ffi.cast("void *", dead_below), ffi.cast("void *", dead)
        length = lib.xts_arq_dead_session(self.native, *structs, dead_bytes, epoch, out)
        try:
            return bytes(ffi.buffer(out[0], length)) if check(length, "reading a session") else b""
        finally:
            lib.xts_queue_session_free(out[0])

    def resume_dead_session(self, session: bytes) -> None:
        """Goes on with it, on a queue that repeats lost frames. BlockingIOError: slots are on their way, try again."""
        check(lib.xts_arq_resume_dead(self.native, session, len(session)), "going on with a session")

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


def split_state(state: bytes) -> tuple[bytes, bytes]:
    """The state of a queue with heads that a process has left (Queue.leave()): of the queue below, and of the heads.
    OSError EINVAL: it is too short."""
    if len(state) < lib.XTS_HEADED_STATE_BYTES:
        raise OSError(errno.EINVAL, "the state of a queue with heads is incomplete")
    at = len(state) - int(lib.XTS_HEADED_STATE_BYTES)
    return state[:at], state[at:]
