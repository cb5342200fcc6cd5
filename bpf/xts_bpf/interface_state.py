"""What an interface is like at the moment, and whether sockets are still bound to it. No privilege is needed."""

from __future__ import annotations

import errno
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
_SIOCGIFNAME, _SIOCGIFINDEX, _SIOCGIFFLAGS, _SIOCGIFMTU, _SIOCGIFHWADDR = 0x8910, 0x8933, 0x8913, 0x8921, 0x8927
_NOTHING_LEFT = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS)
#: What the kernel says of an interface that is not there.
_NONE = (errno.ENODEV, errno.ENXIO)
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
    there is neither. OSError: nobody knows, as there are no descriptors or no memory to ask with."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as control:
        try:
            found = _find(control, name, index)
            flags, mtu, mac = (_asked(control, what, found) for what in (_SIOCGIFFLAGS, _SIOCGIFMTU, _SIOCGIFHWADDR))
            number = _number(_asked(control, _SIOCGIFINDEX, found))
            program = _program(number)
        except OSError as error:
            if error.errno in _NONE:
                return None
            raise
    up = bool(struct.unpack_from("=H", flags)[0] & _IFF_UP)
    return InterfaceState(number, found, up, mac[2:8], _number(mtu), program)


def _find(control: socket.socket, name: str, index: int) -> str:
    """Its name. OSError ENODEV."""
    try:
        _asked(control, _SIOCGIFINDEX, name)
    except OSError as error:
        if error.errno not in _NONE or not index:
            raise
        request = bytearray(_IFREQ_BYTES)
        struct.pack_into("=i", request, _NAME_BYTES, index)
        return fcntl.ioctl(control, _SIOCGIFNAME, bytes(request))[:_NAME_BYTES].split(b"\0")[0].decode()
    return name


def _program(index: int) -> int:
    """The number of its XDP program; 0: it has none."""
    program = ffi.new("uint32_t *")
    if -(error := int(lib.xts_bpf_attached(index, program))) in _NOTHING_LEFT:
        raise OSError(-error, os.strerror(-error))
    return int(program[0])


def _number(answer: bytes) -> int:
    return int(struct.unpack_from("=i", answer)[0])


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
