"""Ends of queues over RDMA (native/queues/rdma.h), for the process that carries the frames.

An end is opened at an interface, taken to a connection step by step, as the connection manager says (rdma_cm.py), and
adopted as any other queue. The connection manager may be in another process: a step is bytes.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from xts_messages import _native
from xts_messages._native import ffi, lib
from xts_messages.queues.queue import Queue, check
from xts_messages.queues.queue_kinds import DEFAULT, HOST, RDMA, QueueEnd, QueueOptions, open_ends

#: The library with the verbs, which is there if libibverbs was when this was built. Debian has it in xts-rdma.
LIBRARY = Path(_native.__file__).with_name("libxts-rdma.so")

#: What libibverbs and librdmacm read, and the devices that they use: for who gives up all other files.
READS = ("/sys", "/proc", "/etc", "/usr/lib", "/lib")
DEVICES = ("/dev/infiniband",)


def load() -> None:
    """Loads the library with the verbs. OSError says what is missing."""
    result = int(lib.xts_rdma_load(os.fsencode(LIBRARY)))
    if result == -errno.ENOENT:
        missing = "libibverbs.so.1 cannot be loaded: install libibverbs1" if LIBRARY.exists() else _not_built()
        raise OSError(errno.EOPNOTSUPP, f"no queues over RDMA: {missing}")
    if result == -errno.EPROTONOSUPPORT:
        raise OSError(errno.EOPNOTSUPP, f"no queues over RDMA: {LIBRARY} is of another version of this package")
    check(result, "loading the library of RDMA queues")


def check_installed() -> None:
    """OSError: what is missing for queues over RDMA, and for connecting them (rdma_cm.py)."""
    load()
    if find_spec("pyverbs") is None:
        raise OSError(errno.EOPNOTSUPP, "no connections of RDMA: pyverbs is not installed (python3-pyverbs)")


def device_at(interface: str) -> str:
    """The RDMA device of an interface, as the kernel names it; "": there is none, or it cannot be said. For people:
    whoever opens an end finds the device by its addresses."""
    for entry in Path("/sys/class/infiniband").glob("*/ports/*/gid_attrs/ndevs/*"):
        with contextlib.suppress(OSError):  # addresses that are not in use
            if entry.read_text().strip() == interface:
                return entry.parents[4].name
    return ""


def geometry(options: QueueOptions = DEFAULT, **more: int) -> Any:
    """The `struct xts_attach_reply *` of all ends with these options, for who has none."""
    found = ffi.new("struct xts_attach_reply *")
    lib.xts_rdma_geometry(found, options.native(**more))
    return found


def _not_built() -> str:
    return "the library of RDMA queues is not here: install xts-rdma, or build where libibverbs-dev is"


class RdmaEnd:
    """An end that is not in use yet. A context manager; closing it does nothing after it was adopted."""

    def __init__(self, ifindex: int, options: QueueOptions = DEFAULT, *, keep: bool = False, **more: int) -> None:
        """Opens it at the RDMA device of an interface. `keep`: when its queue has been closed, `renew()` makes the end
        as new. OSError: why it cannot be opened."""
        load()
        try:
            self._end, _ = open_ends(RDMA, options, ifindex=ifindex, **more)
        except OSError as failure:
            raise _explained(failure) from failure
        self._events_fd = self._end.descriptors[0]
        self._keep = keep
        self.geometry = self._end.geometry
        if keep:
            check(lib.xts_rdma_keep(self._events_fd), "keeping an end of an RDMA queue")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Closes the end if it was not adopted. May be called again."""
        if self._events_fd >= 0:
            lib.xts_rdma_discard(self._events_fd)
            self._events_fd = -1

    def renew(self) -> None:
        """With a new queue pair, for the next connection. OSError EBUSY: the queue is in use; else: the device is gone,
        or has no more."""
        try:
            check(lib.xts_rdma_renew(self._events_fd), "a new queue pair")
        except OSError as failure:
            raise _explained(failure) from failure

    @property
    def numbers(self) -> Any:
        """Its `struct xts_rdma_numbers`."""
        return _numbers(self._events_fd)

    @property
    def qp_number(self) -> int:
        """The number of its queue pair, for the connection manager."""
        return int(self.numbers.qp_num)

    @property
    def device(self) -> str:
        return str(ffi.string(self.numbers.device).decode())

    def step(self, step: bytes) -> None:
        """Takes the queue pair to a state (rdma_cm.py)."""
        _step(self._events_fd, step)

    def adopt(self, end: int, life_fd: int) -> Queue:
        """The queue, once all steps were taken. Takes over `life_fd`, which hangs up when the connection ends. OSError
        ENOTCONN: it is not connected."""
        queue = QueueEnd(self.geometry, (self._events_fd, life_fd)).adopt(end)
        if not self._keep:
            self._events_fd = -1
        return queue


class RdmaCarrier:
    """An end whose frames another queue has, over shared memory: the process that has it does nothing else
    (native/rdma/rdma_carrier.c)."""

    def __init__(self, ifindex: int, options: QueueOptions = DEFAULT) -> None:
        """Opens it at the RDMA device of an interface. OSError: why it cannot be opened."""
        load()
        out = ffi.new("int *")
        try:
            check(lib.xts_rdma_carrier(out, options.native(ifindex=ifindex)), "opening an RDMA device")
        except OSError as failure:
            raise _explained(failure) from failure
        self._events_fd = int(out[0])

    def close(self) -> None:
        """Closes it. May be called again."""
        if self._events_fd >= 0:
            lib.xts_rdma_discard(self._events_fd)
            self._events_fd = -1

    @property
    def device(self) -> str:
        return str(ffi.string(_numbers(self._events_fd).device).decode())

    def carry(self, end: QueueEnd) -> int:
        """The frames of the next connection are those of this queue, of which `end` is the host's: its descriptors are
        taken over. Returns the number of a new queue pair. OSError: the device is gone, or has no more."""
        queue = end.adopt_or_close(HOST)
        try:
            check(lib.xts_rdma_carry(self._events_fd, queue.native), "a new queue pair")
        except OSError as failure:
            queue.close()
            raise _explained(failure) from failure
        queue.detach()
        return int(_numbers(self._events_fd).qp_num)

    def step(self, step: bytes) -> None:
        """As RdmaEnd.step()."""
        _step(self._events_fd, step)

    def run(self, life_fd: int, word_fd: int, spin_us: int) -> None:
        """Carries until one of these is readable or hangs up, the connection has ended, or the queue's other end was
        closed. OSError: it could not begin."""
        check(lib.xts_rdma_run(self._events_fd, life_fd, word_fd, spin_us), "carrying frames")


def _numbers(events_fd: int) -> Any:
    out = ffi.new("struct xts_rdma_numbers *")
    check(lib.xts_rdma_numbers(events_fd, out), "an end of an RDMA queue")
    return out


def _step(events_fd: int, step: bytes) -> None:
    native = ffi.new("struct xts_rdma_step *")
    if len(step) != ffi.sizeof(native[0]):
        raise OSError(errno.EPROTO, "a step of a queue pair is of another version")
    ffi.buffer(native)[:] = step
    check(lib.xts_rdma_step(events_fd, native), f"queue pair to state {native.state}")


def _explained(failure: OSError) -> OSError:
    """With what to do."""
    if failure.errno == errno.ENODEV:
        return OSError(errno.ENODEV, f"{failure.strerror}: there is no RDMA device at this interface (rdma link)")
    if failure.errno in (errno.ENOMEM, errno.EAGAIN):
        soft = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
        limit = "no limit" if soft == resource.RLIM_INFINITY else f"a limit of {soft} bytes"
        return OSError(
            errno.ENOMEM, f"{failure.strerror}: its memory has to be locked, and there is {limit} (LimitMEMLOCK)"
        )
    if failure.errno in (errno.EACCES, errno.EPERM):
        return OSError(failure.errno, f"{failure.strerror}: this user may not use /dev/infiniband")
    return failure
