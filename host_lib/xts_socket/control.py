"""PDUs, and the control data that their layer reports with each: a class for each protocol.

The layouts are those of the table (xts_messages/wire/ulps.py, "control"; ULPS.md), in network byte order. They travel
as ancillary data with level SOL_XTS and the protocol's number as type; for `TlsKeys` in the kernel's form, with level
SOL_TLS.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from struct import Struct
from typing import ClassVar, Self

from xts_messages.wire.ulps import BY_NAME

SOL_XTS = 0x5854  # xts.h
SOL_TLS = 282  # <linux/socket.h>
TLS_SET_RECORD_TYPE, TLS_GET_RECORD_TYPE = 1, 2  # <linux/tls.h>


@dataclass(frozen=True, slots=True)
class Control:
    """Base of the classes here. `PROTOCOL` is the name in the table."""

    PROTOCOL: ClassVar[str] = ""
    LAYOUT: ClassVar[Struct] = Struct("")

    @classmethod
    def unpacked(cls, data: bytes) -> Self:
        """Decodes its form on the wire. ValueError if that is too short."""
        return cls(*cls.LAYOUT.unpack_from(data))

    def packed(self) -> bytes:
        """Its form on the wire."""
        return self.LAYOUT.pack(*(getattr(self, each.name) for each in fields(self)))

    def ancillary(self) -> tuple[int, int, bytes]:
        """The same as an item of sendmsg()'s ancillary data."""
        return SOL_XTS, BY_NAME[self.PROTOCOL].number, self.packed()


@dataclass(frozen=True, slots=True)
class TlsRecordType(Control):
    """The record type of a TLS record in plain text: 21 alert, 22 handshake, 23 application data."""

    PROTOCOL: ClassVar[str] = "TLS"
    LAYOUT: ClassVar[Struct] = Struct("!B")
    type: int


@dataclass(frozen=True, slots=True)
class KernelTlsRecordType(TlsRecordType):
    """The same under `TlsKeys`, in the kernel's form."""

    PROTOCOL: ClassVar[str] = "TLS_KEYS"

    def ancillary(self) -> tuple[int, int, bytes]:
        return SOL_TLS, TLS_SET_RECORD_TYPE, self.packed()


@dataclass(frozen=True, slots=True)
class TlsRecordHeader(Control):
    """The header of a TLS record as it is on the wire (RFC 8446 5.1). length: bytes after the header."""

    PROTOCOL: ClassVar[str] = "TLS_RECORDS"
    LAYOUT: ClassVar[Struct] = Struct("!BHH")
    type: int
    version: int
    length: int


@dataclass(frozen=True, slots=True)
class Http2Frame(Control):
    """The header of an HTTP/2 frame (RFC 9113 4.1). length: bytes after the header."""

    PROTOCOL: ClassVar[str] = "HTTP2"
    LAYOUT: ClassVar[Struct] = Struct("!BHBBI")
    length: int
    type: int
    flags: int
    stream: int

    @classmethod
    def unpacked(cls, data: bytes) -> Self:
        high, low, kind, flags, stream = cls.LAYOUT.unpack_from(data)
        return cls(high << 16 | low, kind, flags, stream)

    def packed(self) -> bytes:
        return self.LAYOUT.pack(self.length >> 16, self.length & 0xFFFF, self.type, self.flags, self.stream)


@dataclass(frozen=True, slots=True)
class GrpcMessage(Control):
    """What a PDU of `Grpc` is: kind 0: a message; 1: an HTTP/2 frame of another type. flags: 0x01 compressed, 0x80 the
    last of its stream."""

    PROTOCOL: ClassVar[str] = "GRPC"
    LAYOUT: ClassVar[Struct] = Struct("!BBHI")
    kind: int
    flags: int
    stream: int

    @classmethod
    def unpacked(cls, data: bytes) -> Self:
        kind, flags, _, stream = cls.LAYOUT.unpack_from(data)
        return cls(kind, flags, stream)

    def packed(self) -> bytes:
        return self.LAYOUT.pack(self.kind, self.flags, 0, self.stream)

    @property
    def compressed(self) -> bool:
        return bool(self.flags & 0x01)

    @property
    def end_stream(self) -> bool:
        return bool(self.flags & 0x80)


@dataclass(frozen=True, slots=True)
class DnsHeader(Control):
    """The beginning of a DNS message's header (RFC 1035 4.1.1)."""

    PROTOCOL: ClassVar[str] = "DNS"
    LAYOUT: ClassVar[Struct] = Struct("!HH")
    id: int
    flags: int


@dataclass(frozen=True, slots=True)
class NvmePdu(Control):
    """The common header of an NVMe/TCP PDU in its plain form, and the digests with which it came; they were right."""

    PROTOCOL: ClassVar[str] = "NVME_TCP"
    LAYOUT: ClassVar[Struct] = Struct("!BBBBB")
    type: int
    flags: int
    hlen: int
    pdo: int
    verified: int

    @property
    def header_verified(self) -> bool:
        return bool(self.verified & 0x01)

    @property
    def data_verified(self) -> bool:
        return bool(self.verified & 0x02)


CONTROLS: dict[str, type[Control]] = {
    kind.PROTOCOL: kind
    for kind in (TlsRecordType, KernelTlsRecordType, TlsRecordHeader, Http2Frame, GrpcMessage, DnsHeader, NvmePdu)
}


@dataclass(frozen=True, slots=True)
class Pdu:
    """One complete PDU. `control`: what its layer reports with it; None: nothing."""

    data: bytes
    control: Control | None = None


_BY_CMSG = {(SOL_XTS, BY_NAME[name].number): kind for name, kind in CONTROLS.items()}
_BY_CMSG[SOL_TLS, TLS_GET_RECORD_TYPE] = KernelTlsRecordType


def decoded(level: int, kind: int, data: bytes) -> Control | None:
    """Decodes an item of recvmsg()'s ancillary data; None if it is of an unknown type."""
    known = _BY_CMSG.get((level, kind))
    if known is None or len(data) < known.LAYOUT.size:
        return None
    return known.unpacked(data)
