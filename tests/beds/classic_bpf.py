"""Classic BPF programs for tests of filters: `struct sock_filter` by name. Offsets of a datagram socket's filter count
from the UDP header, which has 8 bytes."""

from __future__ import annotations

import ctypes
import struct

SO_ATTACH_FILTER, SO_DETACH_FILTER, SO_LOCK_FILTER, SO_ATTACH_BPF = 26, 27, 44, 50
UDP_BYTES = 8
ALL = 0xFFFFFFFF
#: Of what the kernel knows about a packet: SKF_AD_OFF, and some of what can be loaded from there.
ANCILLARY, PROTOCOL, MARK, QUEUE, CPU, VLAN = 0xFFFFF000, 0, 20, 24, 36, 44
#: Where the network header is, and the frame.
NETWORK_HEADER, FRAME = 0xFFF00000, 0xFFE00000
_LD_B_ABS, _LD_W_ABS, _JEQ, _JA, _RET = 0x30, 0x20, 0x15, 0x05, 0x06
LD_B_IND, LDX_B_MSH, LDX_IMM, LDX_MEM, TAX = 0x50, 0xB1, 0x01, 0x61, 0x07


def instruction(code: int, k: int, jt: int = 0, jf: int = 0) -> bytes:
    return struct.pack("=HBBI", code, jt, jf, k)


def ret(size: int) -> bytes:
    """So much of the packet passes; 0: it is dropped."""
    return instruction(_RET, size)


def load_byte(at: int) -> bytes:
    return instruction(_LD_B_ABS, at)


def load_ancillary(what: int) -> bytes:
    return instruction(_LD_W_ABS, ANCILLARY + what)


def jump(by: int) -> bytes:
    return instruction(_JA, by)


def begins_with(byte: bytes) -> bytes:
    """Datagrams whose data begins with it; all others are dropped."""
    return load_byte(UDP_BYTES) + instruction(_JEQ, byte[0], 0, 1) + ret(ALL) + ret(0)


def of_length(instructions: int) -> bytes:
    """A program that lets all pass."""
    return jump(0) * (instructions - 1) + ret(ALL)


class Program:
    """`struct sock_fprog`; `raw` is valid as long as this is."""

    def __init__(self, code: bytes, count: int | None = None) -> None:
        self.code = ctypes.create_string_buffer(code, max(len(code), 1))
        number = len(code) // 8 if count is None else count
        self.raw = struct.pack("=H6xQ", number, ctypes.addressof(self.code))
