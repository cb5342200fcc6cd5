"""The device's side of an interface: the steering program and a queue for each number, in one step."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self, TypedDict, Unpack

from pyroute2 import Ethtool
from pyroute2.ethtool.ioctl import EthtoolError
from xts_messages.afxdp import XskSocket, open_socket
from xts_messages.queue import Queue

from xts_bpf.program import SteerProgram, interface_index, interface_mac


def receive_queues(interface: str) -> int:
    """How many receive queues an interface of this network namespace has in use. OSError ENODEV: there is none."""
    interface_index(interface)
    try:
        with Ethtool() as ethtool:
            channels = ethtool.get_channels(interface)
    except EthtoolError:  # a driver with a fixed number of queues, most often one
        return 1
    return max(1, (channels.rx_count or 0) + (channels.combined_count or 0))


def raise_receive_queues(interface: str, wanted: int) -> int:
    """Gives an interface so many receive queues, or as many as its driver allows if that is less, and as many to send
    with; never fewer than it has. How many it has then. OSError: the driver refuses, and what it said. Drivers may stop
    the whole interface for this: to be called while nobody uses it."""
    interface_index(interface)
    try:
        with Ethtool() as ethtool:
            now = ethtool.get_channels(interface)
            ethtool.set_channels(interface, _raised(now, wanted))
    except EthtoolError as error:
        raise OSError(errno.EOPNOTSUPP, f"the driver of {interface} has a fixed number of queues ({error})") from None
    except OSError as error:
        code = error.errno or errno.EIO
        raise OSError(code, f"giving {interface} {wanted} queues: {os.strerror(code)}") from None
    return receive_queues(interface)


def _raised(now: Any, wanted: int) -> dict[str, int]:
    """Of struct ethtool_channels: combined queues where the driver has such, else as many of either direction."""
    if now.max_combined:
        wanted_combined = min(wanted - now.rx_count, now.max_combined)
        return {"combined_count": max(now.combined_count, wanted_combined)}
    return {
        "rx_count": max(now.rx_count, min(wanted, now.max_rx)),
        "tx_count": max(now.tx_count, min(wanted, now.max_tx)),
    }


class Options(TypedDict, total=False):
    """What open_device_sockets() has defaults for."""

    frame_window: int
    single_chunk: bool
    ethertype: int
    exclusive: bool
    patience_s: float


class DeviceSockets:
    """Sockets of an interface's queues, in the order asked for, for another process to use. A context manager: closing
    closes those of this process and removes the program."""

    def __init__(self, program: SteerProgram, sockets: list[XskSocket]) -> None:
        self.program = program
        self.sockets = sockets

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Harmless when repeated."""
        for xsk in self.sockets:
            xsk.close()
        self.program.close()


class DeviceQueues:
    """Queues of an interface, in the order asked for, open in this process. A context manager: closing closes the
    queues that were not detached and removes the program."""

    def __init__(self, program: SteerProgram, queues: list[Queue]) -> None:
        self.program = program
        self.queues = queues

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Harmless when repeated."""
        for queue in self.queues:
            queue.close()
        self.program.close()


def open_device_sockets(
    interface: str,
    queues: int | Iterable[int],
    peer_mac: bytes,
    *,
    frame_window: int = 64,
    single_chunk: bool = False,
    ethertype: int = 0x855B,
    exclusive: bool = False,
    patience_s: float = 1.0,
) -> DeviceSockets:
    """Attaches the steering program and opens sockets on the queues, in the current network namespace.

    queues: their numbers, or how many from 0 on. peer_mac: the host's station on this wire. A queue that was closed
    just now is waited for, patience_s at most. OSError says what could not be had; nothing is then left behind.
    """
    with ExitStack() as undo:
        program = undo.enter_context(SteerProgram(interface, peer_mac, ethertype=ethertype, exclusive=exclusive))
        local_mac = interface_mac(interface)
        opened: list[XskSocket] = []
        for queue_id in range(queues) if isinstance(queues, int) else queues:
            xsk = undo.enter_context(
                open_socket(
                    interface, queue_id, frame_window=frame_window, single_chunk=single_chunk, patience_s=patience_s
                )
            )
            xsk.geometry.ethertype = ethertype
            xsk.set_addresses(local_mac, peer_mac)
            opened.append(xsk)
            program.admit(queue_id, xsk.xsk_fd)
        undo.pop_all()
        return DeviceSockets(program, opened)


def open_device_queues(
    interface: str, queues: int | Iterable[int], peer_mac: bytes, **options: Unpack[Options]
) -> DeviceQueues:
    """The same for use in this process, with the options of open_device_sockets(). Each queue's `detach()` gives its
    address for a worker to take over; the program stays with the result."""
    with ExitStack() as undo:
        sockets = undo.enter_context(open_device_sockets(interface, queues, peer_mac, **options))
        opened = [undo.enter_context(xsk.adopt()) for xsk in sockets.sockets]
        undo.pop_all()
        return DeviceQueues(sockets.program, opened)
