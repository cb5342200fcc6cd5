"""The steering program on an interface: loading, attaching, its maps and counters, through libxdp and libbpf.

libxdp looks up which programs are on the interface. Where it has a dispatcher there, ours joins it
(interface_programs.py). Else the program is attached alone, through netlink: a dispatcher needs bpffs, cannot carry
fragments on older kernels, and is refused under lockdown. In native mode only; generic mode delivers veth's frames to
the wrong queue.

Attached in this way, the program and its maps outlive the process that attached it: admitted sockets go on receiving.
The next process to attach loads the program again, with the maps of the old one, and replaces the old one in one step,
without losing a frame; nothing has to be pinned. The program is configured before it is attached.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import struct
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from xts_bpf.bpf_object import checked, descriptor_of, map_of, open_object, programs
from xts_bpf.interface_programs import find, join, part, refuse_others
from xts_bpf.native import FOLDER, ffi, lib
from xts_bpf.stacked_devices import refuse_stacked

OBJECT = FOLDER / "xts_steer.bpf.o"  # installed next to the compiled module
QUEUES_MAX = 256
#: The maps that the next program takes over. Each has its own configuration.
LASTING_MAPS = ("xts_sockets", "xts_owners", "xts_counters", "xts_secrets", "xts_probes")
CONFIG = struct.Struct("=2s6sB6sB")
OWNER = struct.Struct("=QII")
SECRET = struct.Struct(">Q")  # as in frames
PROBE = struct.Struct("=QII")
SIOCGIFHWADDR = 0x8927


@dataclass(frozen=True, slots=True)
class SteerCounters:
    """Numbers of frames since the program was attached, for all queues together."""

    admitted: int  # handed to a socket
    passed: int  # not ours, left to the kernel
    foreign: int  # ours, but from a MAC address other than the peer's: dropped
    malformed: int  # ours, but shorter than a message's head: dropped
    no_socket: int  # ours, but no process is attached to this queue: dropped
    others_dropped: int  # not ours, on an exclusive interface: dropped
    wrong_secret: int  # ours, but without the secret of the attachment that has the queue: dropped
    probes: int  # whether frames find their queue, and the answers


@dataclass(frozen=True, slots=True)
class Arrival:
    """The last answer to a probe for a queue: where it has arrived, there and on the way back; -1: nowhere so far."""

    round: int
    there: int
    here: int


@dataclass(frozen=True, slots=True)
class Owner:
    """To whom a queue was given."""

    epoch: int  # of the attachment, never 0
    uid: int
    pid: int


def read_counters(fd: int) -> SteerCounters:
    """Sums over the processors, which are not read at the same moment. OSError: this process may not read the map."""
    return SteerCounters(*(_counter(fd, i) for i in range(len(SteerCounters.__slots__))))


def _counter(fd: int, index: int) -> int:
    values = ffi.new("uint64_t[]", int(lib.libbpf_num_possible_cpus()))
    if lib.bpf_map_lookup_elem(fd, struct.pack("=I", index), values) < 0:
        raise OSError(ffi.errno, f"reading counters: {os.strerror(ffi.errno)}")
    return sum(int(v) for v in values)


def interface_mac(interface: str) -> bytes:
    """The MAC address of an interface of this network namespace. OSError ENODEV: no such interface."""
    interface_index(interface)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as control:
        answer = fcntl.ioctl(control, SIOCGIFHWADDR, interface.encode()[:15].ljust(64, b"\0"))
    return answer[18:24]


def interface_index(interface: str) -> int:
    """OSError ENODEV: no such interface here."""
    try:
        return socket.if_nametoindex(interface)
    except OSError:
        raise OSError(errno.ENODEV, f"there is no interface {interface} in this network namespace") from None


def _open_program(number: int, interface: str) -> int:
    """A descriptor of a program of ours that is attached already."""
    fd = int(lib.bpf_prog_get_fd_by_id(number))
    return checked(fd, f"opening the XDP program {number} of {interface}")


def detach_left_over(interface: str) -> bool:
    """Takes off the program of ours that another process has left, with the queues that it still serves. False: there
    is none. OSError: as SteerProgram."""
    lib.xts_bpf_catch_messages()
    index = interface_index(interface)
    there = find(interface, index)
    refuse_others(interface, there)
    for number in there.ours:
        if there.dispatched:
            part(interface, index, number)
            continue
        left = _open_program(number, interface)
        try:
            checked(lib.xts_bpf_detach(index, left), f"detaching the XDP program of {interface}")
        finally:
            os.close(left)
    return bool(there.ours)


class SteerProgram:
    """The program, attached to an interface while this object is open. A context manager.

    Needs CAP_NET_ADMIN and CAP_BPF, and CAP_SYS_ADMIN if a program is attached already. OSError: EBUSY: another XDP
    program is attached, and not by a dispatcher; EOPNOTSUPP: the driver has no native XDP; else the text has the
    kernel's answer. A program of ours that another process has left is replaced, and its sockets, owners and counters
    are taken over.
    """

    def __init__(
        self,
        interface: str,
        peer_mac: bytes,
        *,
        ethertype: int = 0x855B,
        exclusive: bool = False,
        peer_mask: bytes | None = None,
    ) -> None:
        """peer_mac: the only MAC address from which frames are admitted. peer_mask: the bits of it that count, where
        each queue has an address; probes are answered there. exclusive: drop all other traffic."""
        self.interface = interface
        self._ifindex = interface_index(interface)
        refuse_stacked(interface)
        self._fd = -1
        self._joined: Any = None
        #: Ours is in a dispatcher, with others.
        self.is_shared = False
        #: The number of the program that the interface has, then: ours, or the dispatcher.
        self.attached_id = 0
        self._object: Any = open_object(OBJECT, f"opening {OBJECT}")
        self._objects = [self._object]  # whose descriptors are in use
        mask = peer_mask or b"\xff" * len(peer_mac)
        config = CONFIG.pack(ethertype.to_bytes(2, "big"), peer_mac, exclusive, mask, bool(peer_mask))
        old = -1
        try:
            there = find(interface, self._ifindex)
            refuse_others(interface, there)
            if there.ours:
                old = _open_program(there.ours[0], interface)
                self._take_over(old, LASTING_MAPS)
            if there.dispatched:
                self._join(there.names, config, there.ours)
            else:
                self._load()
                self._configure(config)
                self._attach(self._ifindex, old)
        except OSError:
            self.leave()
            raise
        finally:
            if old >= 0:
                os.close(old)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    @property
    def program_id(self) -> int:
        """The kernel's number of the loaded program, as bpftool and tracepoints show it."""
        return int(lib.xts_bpf_program_id(self._fd))

    def attach_again(self, index: int) -> None:
        """Attaches the program, which has been taken off or whose interface was removed, to an interface that has none.
        Its sockets, owners and counters are as before. Needs CAP_NET_ADMIN, and after a dispatcher what loading it
        needs. OSError: EBUSY: there is a program; ENODEV: there is no such interface."""
        if index != self._ifindex and not self.is_shared:
            lib.xts_bpf_detach(self._ifindex, self._fd)  # it may still be there, under another name
        lib.xts_bpf_catch_messages()
        if self.is_shared:
            self._load_alone()
        self._attach(index, -1)
        self._ifindex = index

    def find_again(self, index: int) -> int:
        """The number of the dispatcher in which ours is by now; 0: there is none. OSError: as find()."""
        there = find(self.interface, index)
        if not there.dispatched or self.program_id not in there.ours:
            return 0
        self.attached_id = there.number
        return there.number

    def admit(self, queue_id: int, xsk_fd: int, owner: Owner | None = None, secret: int = 0) -> None:
        """From now on hands frames that arrive on a queue to this socket, and records its owner. `secret`: only those
        with this one; 0: all."""
        what = f"registering a socket for queue {queue_id} of {self.interface}"
        self._update(self._secrets_fd, queue_id, SECRET.pack(secret), what)
        if owner:
            self._update(self._owners_fd, queue_id, OWNER.pack(owner.epoch, owner.uid, owner.pid), what)
        self._update(self._sockets_fd, queue_id, struct.pack("=i", xsk_fd), what)

    def withdraw(self, queue_id: int) -> None:
        """From now on drops frames that arrive on a queue. May be called if nothing was registered."""
        lib.bpf_map_delete_elem(self._sockets_fd, struct.pack("=I", queue_id))

    def owner(self, queue_id: int) -> Owner | None:
        """The last owner of a queue; None if `forget()` has been called since."""
        value = ffi.new("char[]", OWNER.size)
        if lib.bpf_map_lookup_elem(self._owners_fd, struct.pack("=I", queue_id), value) < 0:
            raise OSError(ffi.errno, f"reading the owner of queue {queue_id}: {os.strerror(ffi.errno)}")
        epoch, uid, pid = OWNER.unpack(bytes(ffi.buffer(value)))
        return Owner(epoch, uid, pid) if epoch else None

    def forget(self, queue_id: int) -> None:
        """Records that the queue has no owner."""
        self._update(self._owners_fd, queue_id, bytes(OWNER.size), f"releasing queue {queue_id} of {self.interface}")

    def secret(self, queue_id: int) -> int:
        """What admit() was given for a queue last; 0: frames have no secret."""
        return int(SECRET.unpack(self._look_up(self._secrets_fd, queue_id, SECRET.size))[0])

    def arrival(self, queue_id: int) -> Arrival:
        """The last answer to a probe for a queue."""
        number, there, here = PROBE.unpack(self._look_up(self._probes_fd, queue_id, PROBE.size))
        return Arrival(number, there - 1, here - 1)

    def _look_up(self, fd: int, key: int, size: int) -> bytes:
        value = ffi.new("char[]", size)
        if lib.bpf_map_lookup_elem(fd, struct.pack("=I", key), value) < 0:
            raise OSError(ffi.errno, f"reading a map of the XDP program: {os.strerror(ffi.errno)}")
        return bytes(ffi.buffer(value))

    def counters(self) -> SteerCounters:
        """Sums over the processors, which are not read at the same moment."""
        return read_counters(self._counters_fd)

    def handed(self) -> dict[str, int]:
        """What another process has to have, to go on with the program (adopted_program.py)."""
        return {
            "program": self._fd,
            "sockets": self._sockets_fd,
            "owners": self._owners_fd,
            "counters": self._counters_fd,
            "secrets": self._secrets_fd,
            "probes": self._probes_fd,
        }

    def descriptors(self) -> list[int]:
        """What a process that is forked from this one has to keep, to go on with the program."""
        return list(self.handed().values())

    @property
    def secrets_fd(self) -> int:
        """The map of the queues' secrets, for the owner of a device's queues to write them (headed.h)."""
        return self._secrets_fd

    @property
    def counters_fd(self) -> int:
        """The map for read_counters(), for use in another process."""
        return self._counters_fd

    def close(self) -> None:
        """Detaches the program, unless another has replaced it, and unloads it. May be called again."""
        if self._fd >= 0 and self.is_shared:
            with suppress(OSError):  # who may not do that has another process for it
                part(self.interface, self._ifindex, self.program_id)
        elif self._fd >= 0:
            lib.xts_bpf_detach(self._ifindex, self._fd)
        self.leave()

    def leave(self) -> None:
        """Closes this object and leaves the program attached: admitted sockets go on receiving. May be called again."""
        if self._joined is not None:
            lib.xdp_program__close(self._joined)
        while self._objects:
            lib.bpf_object__close(self._objects.pop())
        self._joined = self._object = None
        self._fd = -1

    def _attach(self, index: int, old: int) -> None:
        """Alone, in one step in place of ours with the descriptor `old`; -1: there is none."""
        checked(
            lib.xts_bpf_attach(index, self._fd, old), f"attaching the XDP program to {self.interface} in native mode"
        )
        self.is_shared, self.attached_id = False, self.program_id

    def _join(self, names: tuple[str, ...], config: bytes, before: tuple[int, ...]) -> None:
        """In the dispatcher with others, in place of ours with these numbers. Until it is configured it passes all,
        also to the ones before."""
        self._joined, self._fd = join(self.interface, self._ifindex, self._object, names)
        self.is_shared = True
        try:
            self._find_maps()
            self._configure(config)
            for number in before:
                part(self.interface, self._ifindex, number)
            if not self.find_again(self._ifindex):
                raise OSError(errno.EBUSY, f"the XDP program of {self.interface} was taken off by another tool")
        except OSError:
            self.close()
            raise

    def _load_alone(self) -> None:
        """What a dispatcher calls is loaded for this, and cannot be attached: we load it once more, with its maps. The
        descriptors that others have of these stay as they are."""
        opened = open_object(OBJECT, f"opening {OBJECT}")
        self._objects.append(opened)
        self._object = opened
        self._take_over(self._fd, (*LASTING_MAPS, "xts_config"))
        checked(lib.bpf_object__load(opened), f"loading {OBJECT}")
        (program,) = programs(opened).values()
        self._fd = descriptor_of(program)
        checked(lib.xts_bpf_hold_map(self._fd, self._owners_fd), "keeping the owners of queues with the XDP program")

    def _take_over(self, old: int, maps: tuple[str, ...]) -> None:
        """Has the object that is not loaded yet use maps of the program with the descriptor `old`."""
        for name in maps:
            what = f"taking over the map {name} of the program on {self.interface}"
            checked(lib.xts_bpf_reuse_map(self._object, old, name.encode()), what)

    def _load(self) -> None:
        checked(lib.bpf_object__load(self._object), f"loading {OBJECT}")
        (program,) = programs(self._object).values()
        self._fd = descriptor_of(program)
        self._find_maps()

    def _find_maps(self) -> None:
        self._sockets_fd = self._map("xts_sockets")
        self._owners_fd = self._map("xts_owners")
        self._counters_fd = self._map("xts_counters")
        self._secrets_fd = self._map("xts_secrets")
        self._probes_fd = self._map("xts_probes")
        checked(lib.xts_bpf_hold_map(self._fd, self._owners_fd), "keeping the owners of queues with the XDP program")

    def _configure(self, config: bytes) -> None:
        self._update(self._map("xts_config"), 0, config, "configuring the XDP program")

    def _map(self, name: str) -> int:
        return map_of(self._object, name)

    def _update(self, fd: int, key: int, value: bytes, what: str) -> None:
        if lib.bpf_map_update_elem(fd, struct.pack("=I", key), value, 0) < 0:
            raise OSError(ffi.errno, f"{what}: {os.strerror(ffi.errno)}")
