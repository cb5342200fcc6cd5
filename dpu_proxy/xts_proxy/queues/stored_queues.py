"""Queues that are opened in advance, so that the service itself never has the privilege to open any.

Theory of operation. The unit starts two commands. `xts-proxy --open-queues` (ExecStartPre=+) is root for a moment: it
attaches the XDP program, in place of one that an earlier proxy left there, opens the queues of the configuration, and
stores their descriptors with systemd, with a description in a memfd. The proxy itself, which has no privilege to do any
of that, finds them among the descriptors that it is started with, and makes systemd forget them, so that a queue is
free again when the proxy has ended. Queues that an earlier start has left in the store are removed before anything is
opened. When queues cannot be opened, the reason is stored in their place: the proxy ends with it, as systemd looks only
at the proxy's own exit status when it decides whether to start it again (RestartPreventExitStatus).

The description names the settings that the queues were opened with. If the proxy's own settings differ, somebody has
changed the file between the two commands, and the start fails.
"""

from __future__ import annotations

import errno
import os
from contextlib import ExitStack

import msgspec
from xts_bpf import flow_rules
from xts_bpf.device import DeviceSockets, open_device_sockets, open_sockets
from xts_bpf.program import QUEUES_MAX, SteerCounters, SteerProgram, interface_mac, read_counters
from xts_bpf.steering import SteeredInterface, Steering
from xts_bpf.zero_copy import AUTO, QueueBinder
from xts_messages.native import ffi
from xts_messages.queues.afxdp import XskSocket, is_zero_copy
from xts_messages.queues.queue_kinds import QueueOptions
from xts_messages.services.service_manager import ServiceManager, manager, passed

from xts_proxy.supervisor.log import LOG

PREFIX = "xts-queues"
_BYTES_MAX = 1 << 20


class Settings(msgspec.Struct, frozen=True):
    """The settings that queues are opened with."""

    interface: str
    queue_ids: tuple[int, ...]
    peer_mac: bytes
    options: QueueOptions
    ethertype: int
    exclusive: bool
    steering: Steering = Steering.NONE
    flow_rules: str = flow_rules.ETHTOOL
    zero_copy: str = AUTO
    napi_defer_us: int = 0

    def binder(self) -> QueueBinder:
        """Who decides whether the driver copies."""
        return QueueBinder(self.zero_copy, self.flow_rules, LOG)

    def steered(self) -> SteeredInterface | None:
        """Installs addresses and rules for the queues, if frames are steered by them."""
        if self.steering is not Steering.ADDRESS:
            return None
        base = interface_mac(self.interface)
        return SteeredInterface(
            self.interface, base, self.queue_ids, LOG, how=self.flow_rules, ethertype=self.ethertype
        )

    def open(self, patience_s: float) -> DeviceSockets:
        """Opens the queues in this process. OSError says what could not be opened."""
        return open_device_sockets(
            self.interface,
            self.queue_ids,
            self.peer_mac,
            options=self.options,
            ethertype=self.ethertype,
            exclusive=self.exclusive,
            patience_s=patience_s,
            steering=self.steering,
            binder=self.binder(),
        )

    def open_again(self, program: SteerProgram, name: str, patience_s: float) -> list[XskSocket]:
        """Opens the queues, in this process, of the interface that the program is on, by the name that it has now.
        OSError as above."""
        return open_sockets(
            program,
            name,
            self.queue_ids,
            self.peer_mac,
            self.ethertype,
            steering=self.steering,
            options=self.options,
            patience_s=patience_s,
            binder=self.binder(),
        )


class _Description(msgspec.Struct, frozen=True):
    settings: Settings | None = None
    geometries: tuple[bytes, ...] = ()  # a struct xts_attach_reply for each queue
    copying: tuple[str, ...] = ()  # for each queue: whether the driver copies, and why
    program_id: int = 0  # the kernel's number of the XDP program that the interface has
    shared: bool = False  # which is a dispatcher of several
    error: int = 0  # why none was opened: an errno, and a text
    problem: str = ""

    def memfd(self) -> int:
        """The caller has to close it."""
        result = os.memfd_create(PREFIX)
        with open(result, "wb", closefd=False) as file:
            file.write(msgspec.msgpack.encode(self))
        return result


class StoredQueues:
    """Sockets that another process has opened, in the order of the settings. A context manager, as DeviceSockets."""

    def __init__(
        self, sockets: list[XskSocket], counters_fd: int, secrets_fd: int, program_id: int, *, shared: bool = False
    ) -> None:
        self.sockets = sockets
        self.secrets_fd = secrets_fd
        self.program_id, self.shared = program_id, shared
        self.counters_fd = counters_fd

    def counters(self) -> SteerCounters:
        """OSError: this process may not read the map."""
        return read_counters(self.counters_fd)

    def close(self) -> None:
        """Harmless when repeated. The program stays on the interface."""
        for xsk in self.sockets:
            xsk.close()
        for fd in (self.counters_fd, self.secrets_fd):
            if fd >= 0:
                os.close(fd)
        self.counters_fd = self.secrets_fd = -1


def store(settings: Settings, patience_s: float) -> None:
    """Opens the queues and stores them with systemd. OSError: a queue could not be opened, or systemd does not store
    it."""
    systemd = manager()
    if not systemd:
        raise OSError(errno.ENOTCONN, "systemd does not listen: --open-queues is for ExecStartPre=+ of its unit")
    clear(systemd)
    systemd.wait_until_taken()
    opened = settings.open(patience_s)
    with ExitStack() as undo:
        for xsk in opened.sockets:
            undo.callback(xsk.close)
        geometries = tuple(bytes(ffi.buffer(xsk.geometry)) for xsk in opened.sockets)
        copying = tuple(xsk.copying for xsk in opened.sockets)
        number, shared = opened.program.attached_id, opened.program.is_shared
        description = _Description(settings, geometries, copying, number, shared).memfd()
        undo.callback(os.close, description)
        for number, xsk in enumerate(opened.sockets):
            systemd.store(_name("socket", number), xsk.xsk_fd)
            systemd.store(_name("memory", number), xsk.umem_fd)
        systemd.store(_name("counters"), opened.program.counters_fd)
        systemd.store(_name("secrets"), opened.program.secrets_fd)
        settings.steered()  # they stay: the service has no right to take them away
        systemd.store(PREFIX, description)
        systemd.wait_until_taken()
        opened.program.leave()


def store_failure(error: OSError) -> None:
    """Stores why no queues could be opened. OSError: the same error, if there is no systemd."""
    systemd = manager()
    if not systemd:
        raise error
    description = _Description(error=error.errno or errno.EIO, problem=error.strerror or str(error)).memfd()
    try:
        systemd.store(PREFIX, description)
        systemd.wait_until_taken()
    finally:
        os.close(description)


def take(settings: Settings) -> StoredQueues | None:
    """The queues stored for this process; None: none were stored. OSError: why they could not be opened. ESTALE: they
    do not match the settings."""
    found = passed().named(PREFIX)
    if not found:
        return None
    for name in found:
        manager().forget(name)
    with ExitStack() as undo:
        for fd in found.values():
            undo.callback(os.close, fd)
        description = _read(found.get(PREFIX, -1))
        if description and description.error:
            raise OSError(description.error, description.problem)
        if description is None or description.settings != settings:
            raise OSError(errno.ESTALE, "the queues were opened for another configuration: start the service again")
        sockets = []
        stored = zip(settings.queue_ids, description.geometries, description.copying, strict=True)
        for number, (queue_id, data, copying) in enumerate(stored):
            geometry = ffi.new("struct xts_attach_reply *")
            ffi.memmove(geometry, data, ffi.sizeof("struct xts_attach_reply"))
            fd, memory_fd = (os.dup(found[_name(what, number)]) for what in ("socket", "memory"))
            what = settings.interface, queue_id, fd, memory_fd, geometry, is_zero_copy(fd), copying
            sockets.append(XskSocket(*what))
        counters_fd, secrets_fd = (os.dup(found[_name(what)]) for what in ("counters", "secrets"))
        number, shared = description.program_id, description.shared
        return StoredQueues(sockets, counters_fd, secrets_fd, number, shared=shared)


def clear(systemd: ServiceManager) -> None:
    """Makes systemd close what an earlier start has stored and not taken."""
    for number in range(QUEUES_MAX):
        systemd.forget(_name("socket", number))
        systemd.forget(_name("memory", number))
    systemd.forget(_name("counters"))
    systemd.forget(_name("secrets"))
    systemd.forget(PREFIX)


def _name(what: str, number: int | None = None) -> str:
    return f"{PREFIX}-{what}" + (f"-{number}" if number is not None else "")


def _read(fd: int) -> _Description | None:
    if fd < 0:
        return None
    data = os.pread(fd, _BYTES_MAX, 0)
    try:
        return msgspec.msgpack.decode(data, type=_Description)
    except msgspec.DecodeError:
        return None
