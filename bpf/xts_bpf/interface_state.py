"""What an interface is like at the moment, and whether sockets are still bound to it. No privilege is needed."""

from __future__ import annotations

import fcntl
import os
import socket
import struct
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

from xts_messages.queues.afxdp import AF_XDP

from xts_bpf import _native

ffi, lib = _native.ffi, _native.lib
#: linux/sockios.h
_SIOCGIFFLAGS, _SIOCGIFMTU, _SIOCGIFHWADDR = 0x8913, 0x8921, 0x8927
_IFF_UP = 0x1
_IFREQ_BYTES, _NAME_BYTES = 40, 16


@dataclass(frozen=True, slots=True)
class InterfaceState:
    """An interface that exists."""

    index: int
    name: str
    up: bool
    mac: bytes
    mtu: int
    program_id: int  # of the XDP program that it has; 0: none


def read_state(name: str, index: int = 0) -> InterfaceState | None:
    """The interface of this name in this network namespace, or else the one of this number, which was renamed; None:
    there is neither."""
    try:
        found = socket.if_nametoindex(name)
    except OSError:
        if not index:
            return None
        try:
            found, name = index, socket.if_indextoname(index)
        except OSError:
            return None
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as control:
            flags, mtu, mac = (_asked(control, what, name) for what in (_SIOCGIFFLAGS, _SIOCGIFMTU, _SIOCGIFHWADDR))
    except OSError:  # it has gone meanwhile
        return None
    program = ffi.new("uint32_t *")
    lib.xts_bpf_attached(found, program)
    up = bool(struct.unpack_from("=H", flags)[0] & _IFF_UP)
    return InterfaceState(found, name, up, mac[2:8], struct.unpack_from("=i", mtu)[0], int(program[0]))


def _asked(control: socket.socket, what: int, name: str) -> bytes:
    request = name.encode()[: _NAME_BYTES - 1].ljust(_IFREQ_BYTES, b"\0")
    return fcntl.ioctl(control, what, request)[_NAME_BYTES:]


def any_unbound(descriptors: Iterable[int]) -> bool:
    """Has one of these AF_XDP sockets lost its interface, which was removed or moved? The kernel says so once, to
    whoever asks first."""
    return any([_is_unbound(fd) for fd in descriptors])


def _is_unbound(fd: int) -> bool:
    with suppress(OSError), socket.socket(AF_XDP, socket.SOCK_RAW, fileno=os.dup(fd)) as asked:
        return bool(asked.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
    return False
