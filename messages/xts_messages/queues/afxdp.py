"""Opening AF_XDP sockets from Python, which the agent and the proxy supervisor do with privilege
(native/queues/afxdp.h)."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import socket
import struct
import time
from dataclasses import astuple, dataclass, field
from types import TracebackType
from typing import Any, Literal, Self

from xts_messages._native import ffi, lib
from xts_messages.queues.queue import Queue
from xts_messages.queues.queue_kinds import AFXDP, DEFAULT, HOST, QueueEnd, QueueOptions, open_ends

#: A queue returns EBUSY for some 17 ms after its last socket was closed.
REBIND_STEP_S = 0.005
AF_XDP = 44
#: Bytes of a buffer of a queue's memory, and of a small one, which holds any frame of an interface whose MTU is not
#: larger than this.
CHUNK, SMALL_CHUNK = int(lib.XTS_CHUNK_BYTES), int(lib.XTS_CHUNK_SMALL_BYTES)
SMALL_CHUNK_MTU = SMALL_CHUNK - int(lib.XTS_CHUNK_HEADROOM) - int(lib.XTS_CHUNK_SPARE) - int(lib.XTS_ETH_BYTES)
#: What status says of a queue that has small ones, behind other things.
SMALL_CHUNKS_SAID = f"; in chunks of {SMALL_CHUNK} bytes"
#: What a configuration may say of them.
ChunkBytes = Literal["auto", 2048, 4096]

_EXPLAIN = {
    errno.EAFNOSUPPORT: "this kernel has no AF_XDP (CONFIG_XDP_SOCKETS, Linux 4.18); shared memory does without",
    errno.EBUSY: "the queue has a socket already",
    errno.EINVAL: "there is no such queue, or the interface has no AF_XDP",
    errno.EPERM: "CAP_NET_RAW and CAP_NET_ADMIN are needed",
    errno.ENOMEM: "there is not enough memory, or its cgroup may not have more",
    errno.EMSGSIZE: f"the MTU is below {int(lib.XTS_FRAME_BYTES_LEAST) - int(lib.XTS_ETH_BYTES)}: raise it "
    f"(best {int(lib.XTS_FRAME_BYTES_MAX) - int(lib.XTS_ETH_BYTES)} or more)",
    errno.EOVERFLOW: f"the MTU is above {SMALL_CHUNK_MTU}, and such frames do not fit into chunk_bytes = "
    f'{SMALL_CHUNK}: lower it, or set chunk_bytes = "auto"',
}


@dataclass(slots=True)
class XskSocket:
    """An opened AF_XDP socket and its UMEM, not in use yet. A context manager that closes both."""

    interface: str
    queue_id: int
    xsk_fd: int
    umem_fd: int
    geometry: Any = field(repr=False)  # struct xts_attach_reply *; the caller sets epoch and addresses
    zero_copy: bool = False  # the driver uses its memory, as the kernel says since it is bound
    copying: str = ""  # that, and why, for people
    fell_back: bool = False  # zero copy was tried in vain

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Closes both descriptors; may block for some milliseconds. May be called again."""
        for fd in (self.xsk_fd, self.umem_fd):
            if fd >= 0:
                os.close(fd)
        self.xsk_fd = self.umem_fd = -1

    def set_addresses(self, local_mac: bytes, peer_mac: bytes) -> None:
        """Writes the MAC addresses of both ends into the geometry."""
        ffi.memmove(self.geometry.local_mac, local_mac, 6)
        ffi.memmove(self.geometry.peer_mac, peer_mac, 6)

    @property
    def end(self) -> QueueEnd:
        """What is handed to the process that uses it; the descriptors are still ours."""
        return QueueEnd(self.geometry, (self.xsk_fd, self.umem_fd))

    def adopt(self) -> Queue:
        """Makes a queue from it, in this process; from now on the queue owns the descriptors."""
        queue = self.end.adopt(HOST)
        self.xsk_fd = self.umem_fd = -1
        return queue


def chunk_bytes_of(configured: ChunkBytes) -> int:
    """The same for QueueOptions."""
    return 0 if configured == "auto" else configured


def has_small_chunks(geometry: Any) -> bool:
    """Has a queue with this struct xts_attach_reply such?"""
    return int(geometry.chunk_bytes) == SMALL_CHUNK


def may_have_small_chunks(geometry: Any) -> bool:
    """Could it, by the frames of its interface?"""
    return int(geometry.largest_message) <= SMALL_CHUNK_MTU + int(lib.XTS_ETH_BYTES)


def open_socket(
    interface: str, queue_id: int, options: QueueOptions = DEFAULT, *, patience_s: float = 0.0
) -> XskSocket:
    """Opens and binds a socket on a queue of an interface of this network namespace.

    A busy queue is tried again for patience_s seconds. OSError has the kernel's errno and its meaning here.
    """
    index, deadline = _index(interface), time.monotonic() + patience_s
    while True:
        try:
            end, _ = open_ends(AFXDP, options, ifindex=index, queue_id=queue_id)
            xsk_fd, umem_fd = end.descriptors
            return XskSocket(interface, queue_id, xsk_fd, umem_fd, end.geometry, is_zero_copy(xsk_fd))
        except OSError as error:
            number = error.errno or errno.EIO
            if number != errno.EBUSY or time.monotonic() >= deadline:
                what = _locked() if number == errno.ENOBUFS else _EXPLAIN.get(number, os.strerror(number))
                raise OSError(number, f"AF_XDP socket on queue {queue_id} of {interface}: {what}") from None
        time.sleep(REBIND_STEP_S)


def _locked() -> str:
    """What to do where no more memory may be locked."""
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    limit = "the kernel's limit" if soft == resource.RLIM_INFINITY else f"RLIMIT_MEMLOCK, {soft >> 10} KiB"
    return (
        f"its memory cannot be locked, for all queues of this user together have more than {limit}: "
        "raise it (LimitMEMLOCK=), or give CAP_IPC_LOCK"
    )


def has_huge_pages(umem_fd: int) -> bool:
    """Is this memory in huge pages?"""
    return os.fstatvfs(umem_fd).f_bsize == int(lib.XTS_HUGE_PAGE_BYTES)


def is_zero_copy(xsk_fd: int) -> bool:
    """Does the driver use the memory of this socket, which is bound? By what the kernel says."""
    return int(lib.xts_afxdp_is_zero_copy(xsk_fd)) == 1


@dataclass(frozen=True, slots=True)
class Drops:
    """What the kernel has dropped at sockets (struct xts_attach_drops): XDP_STATISTICS."""

    rx_dropped: int = 0
    rx_ring_full: int = 0
    rx_no_buffers: int = 0
    rx_invalid: int = 0
    tx_invalid: int = 0

    def __add__(self, other: Drops) -> Drops:
        return Drops(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    @property
    def frames(self) -> int:
        """All together: frames that nobody has received, and descriptors that are none."""
        return sum(astuple(self))


NO_DROPS = Drops()
_SOL_XDP, _XDP_STATISTICS = 283, 7
#: struct xdp_statistics: rx_dropped, rx_invalid_descs, tx_invalid_descs, rx_ring_full, rx_fill_ring_empty_descs, …
_STATISTICS = struct.Struct("=5Q8x")


def drops_of(xsk_fd: int) -> Drops:
    """Of a socket; none, if the kernel does not say."""
    try:
        with socket.socket(AF_XDP, socket.SOCK_RAW, fileno=os.dup(xsk_fd)) as asked:
            found = asked.getsockopt(_SOL_XDP, _XDP_STATISTICS, _STATISTICS.size)
    except OSError:
        return NO_DROPS
    if len(found) < _STATISTICS.size:  # before Linux 5.9
        return NO_DROPS
    dropped, rx_invalid, tx_invalid, full, empty = _STATISTICS.unpack(found)
    # In copy mode each frame that finds no buffer counts as dropped, too. With zero copy the driver has looked in vain
    # for buffers to keep ready, which costs no frame.
    no_buffers = 0 if is_zero_copy(xsk_fd) else min(empty, dropped)
    return Drops(dropped - no_buffers, full, no_buffers, rx_invalid, tx_invalid)


def _index(interface: str) -> int:
    """OSError ENODEV: no such interface here."""
    try:
        return socket.if_nametoindex(interface)
    except OSError:
        raise OSError(errno.ENODEV, f"there is no interface {interface} in this network namespace") from None


def is_busy(interface: str, queue_id: int) -> bool:
    """Does any process have a socket on this queue? Cheaper than trying to open one. OSError: unknown."""
    result = int(lib.xts_afxdp_probe(_index(interface), queue_id))
    if result < 0 and result != -errno.EBUSY:
        raise OSError(-result, f"queue {queue_id} of {interface}: {_EXPLAIN.get(-result, os.strerror(-result))}")
    return result == -errno.EBUSY


class LastWord:
    """A transmit-only socket of our own on the queue of another process's socket, for a frame that is sent after that
    process has died, whatever state its rings are in. A context manager."""

    def __init__(self, xsk: XskSocket) -> None:
        """Duplicates the descriptors of xsk that it needs; to be made before xsk is passed on, since it shares the
        UMEM."""
        self._geometry = ffi.new("struct xts_attach_reply *")
        self._geometry[0] = xsk.geometry[0]
        index = _index(xsk.interface)
        fd = int(lib.xts_afxdp_last_word_open(xsk.xsk_fd, index, xsk.queue_id))
        if fd < 0:
            raise OSError(-fd, f"transmit-only socket on queue {xsk.queue_id} of {xsk.interface}: {os.strerror(-fd)}")
        self._fds = [fd]
        try:
            self._fds += [os.dup(xsk.xsk_fd)]
            self._fds += [os.dup(xsk.umem_fd)]
        except OSError:  # an open one would keep the queue busy for ever
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def flush(self) -> None:
        """Makes the kernel send what the other socket's owner had put into its ring, as far as it can."""
        # Python has sendto only in socket objects; this one only borrows the descriptor.
        with contextlib.suppress(OSError):
            with socket.socket(AF_XDP, socket.SOCK_RAW, fileno=os.dup(self._fds[1])) as kick:
                kick.send(b"", socket.MSG_DONTWAIT)

    def send(self, frame: bytes) -> None:
        """Sends one frame that fits into a chunk. OSError: it was not sent."""
        result = int(lib.xts_afxdp_last_word_send(*self._fds, self._geometry, frame, len(frame)))
        if result < 0:
            raise OSError(-result, f"last word: {os.strerror(-result)}")

    def close(self) -> None:
        """Closes its descriptors; may block for some milliseconds. May be called again."""
        while self._fds:
            os.close(self._fds.pop())
