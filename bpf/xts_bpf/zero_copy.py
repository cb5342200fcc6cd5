"""Whether a queue is bound with zero copy, or the kernel copies each frame.

Theory of operation. With zero copy the card reads and writes the queue's memory. A driver says whether it has that, and
over how many buffers a frame may extend (xts_messages/machine/xdp_features.py). What it says is not believed. A queue
whose probe was answered before it was bound (steering.py) has to answer one within ANSWER_S after that, or the driver's
zero copy moves nothing: the queue is bound again in copy mode, and so are all that follow. Where no probe was answered
before, nothing can be told from the silence. Who can bind again later waits for the answer in copy mode.

What a queue *is* the kernel says (XDP_OPTIONS), after it was bound.

With zero copy small chunks depend on the driver, too. One that gives its card the size of buffers in steps of 1 KiB
(igb, igc) would cut the 1,792 bytes of one down to 1,024, and lose longer frames without a word; a probe is too
short to show that. So only drivers of which it is known get small ones unasked, and normal ones if they refuse these.

A lab's card answers in a driver's place, as it does for rules (flow_rules.py): its queues are in copy mode, and it
says they were not.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from xts_messages.machine.xdp_features import XdpFeatures, ask_outside
from xts_messages.queues.afxdp import (
    CHUNK,
    SMALL_CHUNKS_SAID,
    XskSocket,
    has_huge_pages,
    has_small_chunks,
    may_have_small_chunks,
    open_socket,
)
from xts_messages.queues.queue_kinds import QueueOptions

from xts_bpf import flow_rules
from xts_bpf.interface_driver import driver_of
from xts_bpf.program import interface_index

NO_NODE = -1
#: Drivers that by their sources give their card buffers of any size, or in steps of at most 128 bytes.
TAKE_SMALL_CHUNKS = frozenset({"i40e", "ice", "mlx5_core", "virtio_net"})
AUTO, ON, OFF = "auto", "on", "off"
#: How long a queue may take to move a probe, before it is bound and after that; and before, where the one before it
#: did not.
ANSWER_S, BEFORE_S = 1.0, 0.15
#: How long a queue may be busy after it was closed to be bound again.
REBIND_S = 1.0
#: Errors of bind() that say nothing about zero copy.
_OTHERS = (
    *(errno.EBUSY, errno.EPERM, errno.ENOBUFS, errno.ENODEV, errno.EMSGSIZE, errno.EOVERFLOW),
    errno.EAFNOSUPPORT,
)
#: Sends a probe to a queue for so many seconds: is it answered?
Answers = Callable[[int, float], bool]


@dataclass(frozen=True, slots=True)
class CopyMode:
    """How queues are to be bound. `buffers`: how many a frame may have; 0: as many as it needs."""

    zero_copy: bool
    reason: str  # a sentence for people, without its beginning
    buffers: int = 0

    @property
    def said(self) -> str:
        """For people."""
        return f"{'zero copy' if self.zero_copy else 'copy mode'}: {self.reason}"


def decide(wanted: str, driver: str, features: XdpFeatures | None) -> CopyMode:
    """How the queues of this driver are to be bound, `wanted`: the configuration's zero_copy. `features` None: the
    kernel does not say."""
    named = _named(driver)
    one = 1 if features and features.native and not features.several_buffers else 0
    if wanted == OFF:
        return CopyMode(False, 'the configuration says zero_copy = "off"', one)
    if features is None:
        unknown = "this kernel does not say what drivers have (Linux 6.3)"
        return CopyMode(wanted == ON, unknown, 1 if wanted == ON else 0)
    if not features.zero_copy:
        return CopyMode(False, f"{named} has no zero copy", one)
    frames = "a frame has one buffer" if features.buffers == 1 else f"a frame has up to {features.buffers} buffers"
    return CopyMode(True, f"{named} has it, and {frames}", features.buffers)


class Driver(Protocol):
    """Who has the card of an interface."""

    def features(self) -> XdpFeatures | None:
        """None: it cannot be known."""

    def open(self, queue_id: int, options: QueueOptions, patience_s: float) -> XskSocket:
        """As afxdp.open_socket()."""


class KernelDriver:
    """A driver of the kernel."""

    def __init__(self, interface: str) -> None:
        self._interface = interface

    def features(self) -> XdpFeatures | None:
        try:
            return ask_outside().get(interface_index(self._interface))
        except (OSError, ImportError):
            return None

    def open(self, queue_id: int, options: QueueOptions, patience_s: float) -> XskSocket:
        return open_socket(self._interface, queue_id, options, patience_s=patience_s)


class StandInDriver:
    """A lab's card. One that knows nothing of zero copy is as the kernel's driver."""

    def __init__(self, interface: str, how: str) -> None:
        self._card = flow_rules.StandIn(interface, how.removeprefix(flow_rules.STAND_IN))
        self._kernel = KernelDriver(interface)

    def features(self) -> XdpFeatures | None:
        try:
            (found,) = self._card.ask("features")
        except (OSError, ValueError):
            return self._kernel.features()
        return XdpFeatures(int(found["bits"]), int(found["buffers"])) if found["bits"] else self._kernel.features()

    def open(self, queue_id: int, options: QueueOptions, patience_s: float) -> XskSocket:
        """OSError: also as the card answers."""
        self._card.ask("bind", queue=queue_id, zero_copy=options.zero_copy)
        xsk = self._kernel.open(queue_id, replace(options, zero_copy=False), patience_s)
        xsk.zero_copy = options.zero_copy
        return xsk


def driver_at(interface: str, how: str) -> Driver:
    """`how`: as flow_rules.of()."""
    return StandInDriver(interface, how) if how.startswith(flow_rules.STAND_IN) else KernelDriver(interface)


class QueueBinder:
    """Opens the queues of an interface, with zero copy where it is wanted, there, and works."""

    def __init__(self, wanted: str, how: str, log: logging.Logger, *, waits: bool = False) -> None:
        """`waits`: where no probe was answered, take copy mode; begin() comes again when one was."""
        self._wanted, self._how, self._log, self._waits = wanted, how, log, waits
        self._name = self._driver_name = ""
        self._node = NO_NODE
        self._driver: Driver = KernelDriver("")
        self.mode = CopyMode(False, "")
        #: How often queues were bound again in copy mode, because zero copy moved nothing or was refused.
        self.fallbacks = 0
        #: A queue is in copy mode only until a probe is answered.
        self.postponed = False
        self._silent = False  # no probe of the last queue was answered before it was bound
        self._large = ""  # with zero copy, why chunks are not small where they might be

    def begin(self, name: str) -> None:
        """The interface, by its name now: its driver is asked. OSError: zero copy is wanted, and it has none."""
        self._name, self._driver_name = name, driver_of(name)
        self._driver = driver_at(name, self._how)
        self.mode = decide(self._wanted, self._driver_name, self._driver.features())
        self._node = numa_node(name)
        self.postponed = self._silent = False
        known = self._driver_name in TAKE_SMALL_CHUNKS
        self._large = "" if known else f"{_named(self._driver_name)} is not known to take smaller ones"
        if self._wanted == ON and not self.mode.zero_copy:
            raise self._refused(errno.EOPNOTSUPP, self.mode.reason)

    def open(
        self,
        name: str,
        queue_id: int,
        options: QueueOptions,
        *,
        answers: Answers | None = None,
        patience_s: float = 0.0,
    ) -> XskSocket:
        """Opens a queue. `name`: of the interface now, which may have been renamed since begin(). `answers`: sends the
        queue a probe; None: frames have no address for each. OSError as open_socket(), and if zero copy is wanted and
        does not work."""
        if name != self._name:
            self._name, self._driver = name, driver_at(name, self._how)
        if not self.mode.zero_copy:
            return self._open(self.mode, queue_id, options, patience_s)
        before = answers(queue_id, BEFORE_S if self._silent else ANSWER_S) if answers else None
        self._silent = before is False
        if self._silent and self._waits:
            self.postponed = True
            waiting = "no probe was answered yet; zero copy is tried when one is"
            return self._open(CopyMode(False, waiting, self.mode.buffers), queue_id, options, patience_s)
        try:
            xsk = self._open_zero_copy(queue_id, options, patience_s)
        except OSError as error:
            if error.errno in _OTHERS:
                raise
            return self._fall_back(queue_id, options, error.errno or errno.EIO, f"refuses it ({_text(error)})")
        if before and answers and not answers(queue_id, ANSWER_S):
            xsk.close()
            return self._fall_back(
                queue_id,
                options,
                errno.EIO,
                f"moved no frame on queue {queue_id} with it, or the other end answers no more",
            )
        if not before:
            xsk.copying += "; not proved by a frame"
        return xsk

    def _open_zero_copy(self, queue_id: int, options: QueueOptions, patience_s: float) -> XskSocket:
        """As _open(). A driver may refuse small chunks, and not others."""
        try:
            return self._open(self.mode, queue_id, options, patience_s)
        except OSError as error:
            if error.errno in _OTHERS or self._large or options.chunk_bytes:
                raise
        self._large = f"{_named(self._driver_name)} refuses smaller ones"
        return self._open(self.mode, queue_id, options, REBIND_S)

    def _fall_back(self, queue_id: int, options: QueueOptions, number: int, what: str) -> XskSocket:
        named = _named(self._driver_name)
        if self._wanted == ON:
            raise self._refused(number, f"{named} {what}")
        copied = CopyMode(False, f"{named} says that it has zero copy, and {what}", 0)
        xsk = self._open(copied, queue_id, options, REBIND_S)
        self.mode, xsk.fell_back = copied, True
        self.fallbacks += 1
        self._log.warning("%s: %s", self._name, copied.said)
        return xsk

    def _refused(self, number: int, why: str) -> OSError:
        return OSError(
            number, f'zero copy on {self._name}: {why}; zero_copy = "auto" takes copy mode where there is none'
        )

    def _open(self, mode: CopyMode, queue_id: int, options: QueueOptions, patience_s: float) -> XskSocket:
        wanted = replace(
            options,
            zero_copy=mode.zero_copy,
            single_chunk=options.single_chunk or mode.buffers == 1,
            buffers_max=mode.buffers,
            numa_node=self._node + 1,
            chunk_bytes=options.chunk_bytes or (CHUNK if mode.zero_copy and self._large else 0),
        )
        xsk = self._driver.open(queue_id, wanted, patience_s)
        xsk.copying = replace(mode, zero_copy=xsk.zero_copy).said
        if options.huge_pages:
            huge = has_huge_pages(xsk.umem_fd)
            xsk.copying += "; in huge pages" if huge else "; not in huge pages: too few are free (vm.nr_hugepages)"
        xsk.copying += self._said_of_chunks(xsk, options)
        return xsk

    def _said_of_chunks(self, xsk: XskSocket, options: QueueOptions) -> str:
        """What is worth telling people."""
        if has_small_chunks(xsk.geometry):
            return SMALL_CHUNKS_SAID
        if xsk.zero_copy and self._large and not options.chunk_bytes and may_have_small_chunks(xsk.geometry):
            return f"; in chunks of {CHUNK} bytes: {self._large}"
        return ""


def numa_node(interface: str) -> int:
    """The node that the card of an interface is at; NO_NODE: it has none, or is not visible here."""
    try:
        return max(NO_NODE, int(Path(f"/sys/class/net/{interface}/device/numa_node").read_text(encoding="ascii")))
    except (OSError, ValueError):
        return NO_NODE


def _named(driver: str) -> str:
    return f"the driver {driver}" if driver else "the driver"


def _text(error: OSError) -> str:
    return os.strerror(error.errno) if error.errno else str(error)
