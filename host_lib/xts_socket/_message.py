"""`struct msghdr` for sendmsg and recvmsg: buffers, ancillary data and addresses in C form, kept alive
together."""

from __future__ import annotations

from collections.abc import Iterable
from socket import CMSG_LEN
from struct import Struct
from typing import Any

from ._address import ROOM, Address, decode
from ._arguments import c_int
from ._native import ffi

_CMSGHDR = Struct("@Nii")  # length with this header, level, type
_ALIGN = 8
_CHARS = ffi.typeof("char[]")


def memory_of(buffer: Any, writable: bool) -> Any:
    """The memory of a bytes-like object as C data. TypeError if it is not bytes-like, or not writable."""
    try:
        return ffi.from_buffer(_CHARS, buffer, writable)
    except BufferError:
        if not writable:
            raise
    raise TypeError(f"a read-write bytes-like object is required, not {type(buffer).__name__!r}")


class Message:
    """A msghdr and everything it points to. `bytes` is the room, or the amount of data, in its buffers."""

    __slots__ = ("_address", "_control", "_iov", "_views", "bytes", "header")

    def __init__(self, buffers: Iterable[Any], control: bytes | int, address: bytes | None, writable: bool) -> None:
        """`control`: ancillary data to send, or how many bytes of room for receiving; `address` None: room for one."""
        self._views = [memory_of(buffer, writable) for buffer in buffers]
        self._iov = ffi.new("struct iovec[]", len(self._views) or 1)
        self.bytes = 0
        for entry, view in zip(self._iov, self._views, strict=False):
            entry.iov_base = view
            entry.iov_len = len(view)
            self.bytes += len(view)
        self._control = ffi.new("unsigned char[]", control) if control else ffi.NULL
        self._address = ffi.new("unsigned char[]", ROOM if address is None else address)
        self.header = ffi.new("struct msghdr *")
        self.header.msg_iov = self._iov
        self.header.msg_iovlen = len(self._views)
        self.header.msg_control = self._control
        self.header.msg_controllen = len(self._control) if control else 0
        if isinstance(control, bytes) and control:
            self.header.msg_controllen = len(control)
        self.header.msg_name = self._address if address != b"" else ffi.NULL
        self.header.msg_namelen = ROOM if address is None else len(address)

    def release(self) -> None:
        """Releases the callers' buffers, so that they can be resized even while a traceback holds this object."""
        for view in self._views:
            ffi.release(view)

    def ancillary(self) -> list[tuple[int, int, bytes]]:
        """The ancillary data that was received: (level, type, data) for each item."""
        if not self._control:
            return []
        return unpack_ancillary(bytes(ffi.buffer(self._control, self.header.msg_controllen)))

    @property
    def sender(self) -> Address | None:
        """The address that came with the data; None on a stream."""
        return decode(bytes(ffi.buffer(self._address, min(self.header.msg_namelen, ROOM))))


def unpack_ancillary(raw: bytes) -> list[tuple[int, int, bytes]]:
    """The items of received ancillary data: (level, type, data) for each."""
    found = []
    at = 0
    while at + _CMSGHDR.size <= len(raw):
        length, level, kind = _CMSGHDR.unpack_from(raw, at)
        if length < _CMSGHDR.size:
            break
        found.append((level, kind, raw[at + _CMSGHDR.size : at + length]))
        at += (length + _ALIGN - 1) // _ALIGN * _ALIGN
    return found


def pack_ancillary(items: Iterable[Iterable[Any]]) -> bytes:
    """Ancillary data for sendmsg, from (level, type, data) for each item. TypeError for anything else."""
    packed = b""
    for item in items:
        fields = tuple(item)
        if len(fields) != 3:
            raise TypeError("an item of sendmsg()'s ancillary data must be (level, type, data)")
        level, kind, data = fields
        with memory_of(data, False) as view:
            raw = bytes(ffi.buffer(view))
        body = _CMSGHDR.pack(CMSG_LEN(len(raw)), c_int(level), c_int(kind)) + raw
        packed += body + bytes(-len(body) % _ALIGN)
    return packed
