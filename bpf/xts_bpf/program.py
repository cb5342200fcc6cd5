"""The steering program on an interface: loading, attaching, its maps and counters, through libxdp.

libxdp's dispatcher is switched off (`LIBXDP_SKIP_DISPATCHER`): it needs bpffs, cannot carry fragments on older kernels,
and is refused under lockdown. The program is attached by netlink in native mode only; generic mode delivers veth's
frames to the wrong queue.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import socket
import struct
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

os.environ["LIBXDP_SKIP_DISPATCHER"] = "1"  # read by libxdp at its first call

from xts_bpf import _native

ffi, lib = _native.ffi, _native.lib
OBJECT = Path(_native.__file__).with_name("xts_steer.bpf.o")  # installed beside the compiled module
PROGRAM = "xts_steer"
QUEUES_MAX = 256
CONFIG = struct.Struct("=2s6sB7x")
SIOCGIFHWADDR = 0x8927


@dataclass(frozen=True, slots=True)
class SteerCounters:
    """Frames since the program was attached, over all queues."""

    admitted: int  # handed to a socket
    passed: int  # not ours, left to the kernel
    foreign: int  # ours, but from another station than the peer: dropped
    malformed: int  # ours, but shorter than a message's head: dropped
    no_socket: int  # ours, but nobody is attached to this queue: dropped
    others_dropped: int  # not ours, on an exclusive interface: dropped


def parse_mac(text: str) -> bytes:
    """`02:00:00:00:00:01` as six bytes. ValueError says what is wrong."""
    if not re.fullmatch(r"[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}", text):
        raise ValueError(f"{text!r} is not a MAC address such as 02:00:00:00:00:01")
    return bytes.fromhex(text.replace(":", ""))


def interface_mac(interface: str) -> bytes:
    """The MAC address of an interface of this network namespace. OSError ENODEV: there is none of this name."""
    interface_index(interface)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        answer = fcntl.ioctl(control, SIOCGIFHWADDR, interface.encode()[:15].ljust(64, b"\0"))
    return answer[18:24]


def interface_index(interface: str) -> int:
    """OSError ENODEV: there is no such interface here."""
    try:
        return socket.if_nametoindex(interface)
    except OSError:
        raise OSError(errno.ENODEV, f"there is no interface {interface} in this network namespace") from None


def _caught(result: int, what: str) -> None:
    """Raises the OSError of a libxdp call, with what libbpf, libxdp and the kernel said about it."""
    if result < 0:
        said = " ".join(ffi.string(lib.xts_bpf_messages()).decode(errors="replace").split())
        raise OSError(-result, f"{what}: {os.strerror(-result)}" + (f" ({said})" if said else ""))


class SteerProgram:
    """The program, attached to an interface as long as this object is open. A context manager.

    Needs CAP_NET_ADMIN and CAP_BPF. OSError: EBUSY, another XDP program is there; EOPNOTSUPP, the driver has no native
    XDP; else the text says what the kernel answered. A program of ours that a dead process left is replaced.
    """

    def __init__(self, interface: str, peer_mac: bytes, *, ethertype: int = 0x855B, exclusive: bool = False) -> None:
        """peer_mac: the only station whose frames are admitted. exclusive: drop all traffic that is not ours."""
        self.interface = interface
        self._ifindex = interface_index(interface)
        self._program: Any = None
        self._attached = False
        lib.xts_bpf_catch_messages()
        self._remove_stale()
        program = lib.xdp_program__open_file(os.fsencode(OBJECT), b"xdp.frags", ffi.NULL)
        _caught(int(lib.libxdp_get_error(program)), f"opening {OBJECT}")
        self._program = program
        try:
            # libbpf 1.1 derives the flag from the section only at load, which is too late for libxdp.
            _caught(lib.xdp_program__set_xdp_frags_support(program, True), "asking for fragments")
            _caught(
                lib.xdp_program__attach(program, self._ifindex, lib.XDP_MODE_NATIVE, 0),
                f"attaching the XDP program to {interface} in native mode",
            )
            self._attached = True
            self._check_native()
            self._sockets_fd = self._map("xts_sockets")
            self._counters_fd = self._map("xts_counters")
            config = CONFIG.pack(ethertype.to_bytes(2, "big"), peer_mac, exclusive)
            self._update(self._map("xts_config"), 0, config, "configuring the XDP program")
        except OSError:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    @property
    def program_id(self) -> int:
        """The kernel's number of the loaded program, as bpftool and tracepoints show it."""
        return int(lib.xdp_program__id(self._program))

    def admit(self, queue_id: int, xsk_fd: int) -> None:
        """Hands frames that arrive on a queue to this socket from now on."""
        what = f"registering a socket for queue {queue_id} of {self.interface}"
        self._update(self._sockets_fd, queue_id, struct.pack("=i", xsk_fd), what)

    def withdraw(self, queue_id: int) -> None:
        """Drops frames that arrive on a queue from now on; harmless when nothing was registered."""
        lib.bpf_map_delete_elem(self._sockets_fd, struct.pack("=I", queue_id))

    def counters(self) -> SteerCounters:
        """Sums over the processors; not one moment's picture."""
        return SteerCounters(*(self._counter(i) for i in range(len(SteerCounters.__slots__))))

    def close(self) -> None:
        """Detaches and unloads the program; harmless when repeated."""
        if self._program is None:
            return
        if self._attached:
            lib.xdp_program__detach(self._program, self._ifindex, lib.XDP_MODE_NATIVE, 0)
        lib.xdp_program__close(self._program)
        self._program = None

    def _remove_stale(self) -> None:
        found = lib.xdp_multiprog__get_from_ifindex(self._ifindex)
        if int(lib.libxdp_get_error(found)) < 0:
            return
        try:
            name = ffi.string(lib.xdp_program__name(lib.xdp_multiprog__main_prog(found))).decode()
            if name != PROGRAM:
                raise OSError(
                    errno.EBUSY,
                    f"{self.interface} has the XDP program {name!r}: remove it (ip link set {self.interface} xdp off)",
                )
            _caught(lib.xdp_multiprog__detach(found), f"removing a left-over program from {self.interface}")
        finally:
            lib.xdp_multiprog__close(found)

    def _check_native(self) -> None:
        found = lib.xdp_multiprog__get_from_ifindex(self._ifindex)
        _caught(int(lib.libxdp_get_error(found)), f"looking for the program on {self.interface}")
        mode = lib.xdp_multiprog__attach_mode(found)
        lib.xdp_multiprog__close(found)
        if mode != lib.XDP_MODE_NATIVE:
            raise OSError(errno.EOPNOTSUPP, f"the driver of {self.interface} has no native XDP")

    def _map(self, name: str) -> int:
        fd = int(lib.bpf_object__find_map_fd_by_name(lib.xdp_program__bpf_obj(self._program), name.encode()))
        _caught(fd, f"map {name}")
        return fd

    def _update(self, fd: int, key: int, value: bytes, what: str) -> None:
        if lib.bpf_map_update_elem(fd, struct.pack("=I", key), value, 0) < 0:
            raise OSError(ffi.errno, f"{what}: {os.strerror(ffi.errno)}")

    def _counter(self, index: int) -> int:
        cpus = int(lib.libbpf_num_possible_cpus())
        values = ffi.new("uint64_t[]", cpus)
        if lib.bpf_map_lookup_elem(self._counters_fd, struct.pack("=I", index), values) < 0:
            raise OSError(ffi.errno, f"reading counters: {os.strerror(ffi.errno)}")
        return sum(int(v) for v in values)
