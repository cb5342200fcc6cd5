"""The device's side of an interface: opens the steering program and one queue for each number, in one step."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from contextlib import ExitStack, closing
from functools import partial
from types import TracebackType
from typing import Any, Self, TypedDict, Unpack

from xts_messages.queues.afxdp import XskSocket, open_socket
from xts_messages.queues.queue import Queue
from xts_messages.queues.queue_kinds import DEFAULT, QueueOptions

from xts_bpf import _native
from xts_bpf.program import SteerCounters, SteerProgram, interface_index, interface_mac
from xts_bpf.steering import Prober, Steering
from xts_bpf.zero_copy import QueueBinder

ffi, lib = _native.ffi, _native.lib


def receive_queues(interface: str) -> int:
    """The receive queues that an interface of this network namespace uses. OSError ENODEV: no such interface."""
    interface_index(interface)
    try:
        channels = _channels(interface)
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:
            raise
        return 1  # the driver has a fixed number of queues, usually one
    return max(1, int(channels.rx_count) + int(channels.combined_count))


def _channels(interface: str) -> Any:
    """OSError EOPNOTSUPP: the driver does not report it."""
    found = ffi.new("struct ethtool_channels *")
    if result := int(lib.xts_bpf_channels(interface.encode(), found, False)):
        raise OSError(-result, f"the queues of {interface}: {os.strerror(-result)}")
    return found


def raise_receive_queues(interface: str, wanted: int) -> int:
    """Gives an interface this many receive queues, or as many as its driver allows if that is less, and the same number
    of transmit queues; never fewer than it has. Returns the number of receive queues after that. OSError: the driver
    refuses, with its message. Drivers may stop the whole interface for this, so call it only while the interface is not
    in use."""
    interface_index(interface)
    try:
        channels = _channels(interface)
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:
            raise
        raise OSError(errno.EOPNOTSUPP, f"the driver of {interface} has a fixed number of queues") from None
    _raise(channels, wanted)
    if result := int(lib.xts_bpf_channels(interface.encode(), channels, True)):
        raise OSError(-result, f"giving {interface} {wanted} queues: {os.strerror(-result)}")
    return receive_queues(interface)


def _raise(channels: Any, wanted: int) -> None:
    """Changes struct ethtool_channels: combined queues if the driver has them, else as many in each direction."""
    if channels.max_combined:
        combined = min(wanted - channels.rx_count, channels.max_combined)
        channels.combined_count = max(channels.combined_count, combined)
        return
    channels.rx_count = max(channels.rx_count, min(wanted, channels.max_rx))
    channels.tx_count = max(channels.tx_count, min(wanted, channels.max_tx))


class Options(TypedDict, total=False):
    """The options of open_device_sockets() that have defaults."""

    options: QueueOptions
    ethertype: int
    exclusive: bool
    patience_s: float
    steering: Steering
    binder: QueueBinder | None


class DeviceSockets:
    """Sockets of an interface's queues, in the requested order, for another process to use. A context manager: closing
    it closes the sockets of this process and removes the program."""

    def __init__(self, program: SteerProgram, sockets: list[XskSocket]) -> None:
        self.program = program
        self.sockets = sockets

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    @property
    def secrets_fd(self) -> int:
        """The map of the queues' secrets."""
        return self.program.secrets_fd

    def counters(self) -> SteerCounters:
        """The counters of the program."""
        return self.program.counters()

    def close(self) -> None:
        """May be called again."""
        for xsk in self.sockets:
            xsk.close()
        self.program.close()


class DeviceQueues:
    """Queues of an interface, in the requested order, open in this process. A context manager: closing it closes the
    queues that were not detached and removes the program."""

    def __init__(self, program: SteerProgram, queues: list[Queue]) -> None:
        self.program = program
        self.queues = queues

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """May be called again."""
        for queue in self.queues:
            queue.close()
        self.program.close()


def open_device_sockets(
    interface: str,
    queues: int | Iterable[int],
    peer_mac: bytes,
    *,
    options: QueueOptions = DEFAULT,
    ethertype: int = 0x855B,
    exclusive: bool = False,
    patience_s: float = 1.0,
    steering: Steering = Steering.NONE,
    binder: QueueBinder | None = None,
) -> DeviceSockets:
    """Attaches the steering program and opens sockets on the queues, in the current network namespace.

    queues: their numbers, or how many from 0 on. peer_mac: the host's MAC address on this link. If a queue was closed
    just now, this waits for it, for at most patience_s. OSError says what failed; nothing is left behind in that case.
    """
    with ExitStack() as undo:
        program = undo.enter_context(
            SteerProgram(interface, peer_mac, ethertype=ethertype, exclusive=exclusive, peer_mask=steering.peer_mask)
        )
        numbers = range(queues) if isinstance(queues, int) else queues
        opened = open_sockets(
            program,
            interface,
            numbers,
            peer_mac,
            ethertype,
            steering=steering,
            options=options,
            patience_s=patience_s,
            binder=binder,
        )
        undo.pop_all()
        return DeviceSockets(program, opened)


def open_sockets(
    program: SteerProgram,
    interface: str,
    queues: Iterable[int],
    peer_mac: bytes,
    ethertype: int,
    *,
    steering: Steering = Steering.NONE,
    options: QueueOptions = DEFAULT,
    patience_s: float = 1.0,
    binder: QueueBinder | None = None,
) -> list[XskSocket]:
    """Opens sockets on queues of the interface that the program is on, whatever it is called now, and admits frames to
    them: those of any attachment, until one has opened a link. `binder`: decides about zero copy; None: copy mode.
    OSError: nothing is left open."""
    with ExitStack() as undo, ExitStack() as probing:
        local_mac = interface_mac(interface)
        answers = None
        if binder:
            binder.begin(interface)
            if steering is Steering.ADDRESS:
                prober = probing.enter_context(closing(Prober(program, ethertype)))
                answers = partial(prober.answers, interface, local_mac, peer_mac)
        opened: list[XskSocket] = []
        for queue_id in queues:
            if binder:
                xsk = undo.enter_context(
                    binder.open(interface, queue_id, options, answers=answers, patience_s=patience_s)
                )
            else:
                xsk = undo.enter_context(open_socket(interface, queue_id, options, patience_s=patience_s))
            xsk.geometry.ethertype = ethertype
            xsk.set_addresses(steering.address(local_mac, queue_id), steering.address(peer_mac, queue_id))
            opened.append(xsk)
            program.admit(queue_id, xsk.xsk_fd)
        undo.pop_all()
        return opened


def open_device_queues(
    interface: str, queues: int | Iterable[int], peer_mac: bytes, **options: Unpack[Options]
) -> DeviceQueues:
    """The same for use in this process, with the options of open_device_sockets(). `detach()` of each queue returns its
    address, for a worker to take over; the result keeps the program."""
    with ExitStack() as undo:
        sockets = undo.enter_context(open_device_sockets(interface, queues, peer_mac, **options))
        opened = [undo.enter_context(xsk.adopt()) for xsk in sockets.sockets]
        undo.pop_all()
        return DeviceQueues(sockets.program, opened)
