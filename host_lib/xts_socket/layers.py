"""Protocols that can be pushed onto a socket (`sock.push(Tls(), Http2())`): a class for each, with its parameters.

The parameters are those of the table (xts_messages/ulps.py, ULPS.md) by their names there in small letters; of `Tls`
two have the name that Python's ssl gives them. What is left at its default is not sent: the proxy's own default holds.
A value that cannot be is refused here, TypeError or ValueError; what only the proxy can know (a name of its
configuration, a place in the stack) is refused by `push()`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Literal

from xts_messages.ulp_attributes import encode_attributes
from xts_messages.ulps import BY_NAME, Ulp

Role = Literal["client", "server"]
Crypto = Literal["user", "kernel", "device"]

_ROLES = {None: 0, "client": 1, "server": 2}
_CRYPTO = {None: 0, "user": 1, "kernel": 2, "device": 3}
_TLS_VERSIONS = (0x0303, 0x0304)
_MAGIC_BYTES_MAX = 16
_DELIMITER_BYTES_MAX = 8


def _named(attribute: str, default: Any) -> Any:
    """A parameter whose name is not that of its attribute."""
    return field(default=default, metadata={"attribute": attribute})


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """What the classes here have in common. `PROTOCOL` is the name in the table."""

    PROTOCOL: ClassVar[str] = ""

    def __post_init__(self) -> None:
        if not self.PROTOCOL:
            raise TypeError("Layer is what protocols have in common: push one of them, Tls() for instance")
        self.encoded()  # for its errors
        self._check()

    def _check(self) -> None:
        """ValueError for values that do not go together."""

    @classmethod
    def ulp(cls) -> Ulp:
        """The protocol's row of the table."""
        return BY_NAME[cls.PROTOCOL]

    def _wire(self, name: str, value: Any) -> Any:
        """A parameter as its attribute has it."""
        del name
        return value

    def encoded(self) -> bytes:
        """The attributes of `struct ulp_info`, as they travel. TypeError or ValueError for what an attribute cannot
        hold."""
        return encode_attributes(
            self.ulp(),
            {
                each.metadata.get("attribute", each.name): self._wire(each.name, value)
                for each in fields(self)
                if (value := getattr(self, each.name)) is not None
            },
        )


def _choice(where: str, names: dict[Any, int], value: Any) -> int:
    if isinstance(value, str) and value in names:
        return names[value]
    raise ValueError(f"{where}: {value!r} is none of {', '.join(repr(name) for name in names if name)}")


def _tuple(where: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, Iterable):
        raise TypeError(f"{where}: a str or several are wanted, not {value!r}")
    return tuple(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamParser(Layer):
    """Delineates PDUs whose header has their length (the paper, "strparser"). Receive side only; makes PDUs.

    The length of a PDU, header included, is `((field & mask) >> shift) * unit + adjustment`.
    """

    PROTOCOL: ClassVar[str] = "STREAM_PARSER"
    #: where the length field begins, in bytes from the PDU's first
    offset: int
    #: its width in bytes, 1 to 8
    width: int
    #: its byte order; else network byte order
    little_endian: bool = False
    #: bits of the field that count
    mask: int | None = None
    #: by how many bits it is then shifted right
    shift: int | None = None
    #: bytes for each count of the field
    unit: int | None = None
    #: bytes that the field does not count (the header, often); may be negative
    adjustment: int | None = None
    #: where every PDU has the magic bytes
    magic_offset: int | None = None
    #: the magic bytes, at most 16
    magic: bytes | None = None
    #: as long as `magic`: bits that count
    magic_mask: bytes | None = None
    #: longest PDU taken, all of it, in bytes; default 1 MiB
    max_bytes: int | None = None
    #: a PDU that has begun has to be complete in this time; default: no limit
    timeout_ms: int | None = None

    def _check(self) -> None:
        _in_range("StreamParser(width=…)", self.width, 1, 8)
        _in_range("StreamParser(shift=…)", self.shift, 0, 8 * self.width - 1)
        _in_range("StreamParser(unit=…)", self.unit, 1, 0xFFFFFFFF)
        if self.adjustment is not None:
            _in_range("StreamParser(adjustment=…)", self.adjustment, -(1 << 63), (1 << 63) - 1)
        if self.magic is None:
            if self.magic_offset is not None or self.magic_mask is not None:
                raise ValueError("StreamParser: magic_offset and magic_mask are of no use without magic")
            return
        _in_range("StreamParser(magic=…): length", len(self.magic), 1, _MAGIC_BYTES_MAX)
        if self.magic_mask is not None and len(self.magic_mask) != len(self.magic):
            raise ValueError(
                f"StreamParser(magic_mask=…): {len(self.magic_mask)} bytes for a magic of {len(self.magic)}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class BpfParser(Layer):
    """Delineates PDUs with an eBPF program that the proxy's operator has installed (the paper; the kernel's strparser
    contract). Receive side only; makes PDUs."""

    PROTOCOL: ClassVar[str] = "BPF_PARSER"
    #: its name in the proxy's configuration
    program: str
    #: longest PDU taken, all of it, in bytes; default 1 MiB
    max_bytes: int | None = None
    #: a PDU that has begun has to be complete in this time; default: no limit
    timeout_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines(Layer):
    """One PDU per line; on send the delimiter is put behind each PDU. Makes PDUs."""

    PROTOCOL: ClassVar[str] = "LINES"
    #: ends a line, at most 8 bytes; default LF
    delimiter: bytes | None = None
    #: the delimiter is a part of the PDU
    keep: bool = False
    #: longest PDU taken, in bytes; default 1 MiB
    max_bytes: int | None = None

    def _check(self) -> None:
        if self.delimiter is not None:
            _in_range("Lines(delimiter=…): length", len(self.delimiter), 1, _DELIMITER_BYTES_MAX)


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthPrefixed(Layer):
    """A length, then that many bytes: taken off on receive, put before each PDU on send. Makes PDUs."""

    PROTOCOL: ClassVar[str] = "LENGTH_PREFIXED"
    #: of the length: 1, 2, 3, 4 or 8 bytes; default 4
    width: int | None = None
    #: its byte order; else network byte order
    little_endian: bool = False
    #: the length includes the length field
    counts_itself: bool = False
    #: longest PDU taken, in bytes; default 1 MiB
    max_bytes: int | None = None

    def _check(self) -> None:
        if self.width not in (None, 1, 2, 3, 4, 8):
            raise ValueError(f"LengthPrefixed(width=…): {self.width} is none of 1, 2, 3, 4, 8")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls(Layer):
    """TLS 1.2 or 1.3 terminated in the proxy, which has keys, certificates and trust roots; the application sends and
    receives plain text (RFC 8446, RFC 5246)."""

    PROTOCOL: ClassVar[str] = "TLS"
    #: client: the name that is asked for (SNI) and that the certificate has to be for. `create_connection` and its like
    #: take the host's
    server_hostname: str | None = _named("server_name", None)
    #: protocols offered (client) or taken (server), best first
    alpn: str | tuple[str, ...] | list[str] = ()
    #: the peer's certificate is required (True, the client's default), checked if there is one ("optional", for
    #: servers), or not looked at (False, the server's default)
    verify: bool | Literal["optional"] | None = None
    #: trust roots, by their name in the proxy's configuration; default: "default"
    ca: str | None = _named("trust", None)
    #: certificate and key, by their name in the proxy's configuration; a server with several chooses by SNI, the first
    #: being the default
    identity: str | tuple[str, ...] | list[str] = ()
    #: which side of the handshake this is; default: by who connected
    role: Role | None = None
    #: 0x0303 or 0x0304 (`ssl.TLSVersion`); never below what the proxy's configuration says
    min_version: int | None = None
    #: 0x0303 or 0x0304 (`ssl.TLSVersion`)
    max_version: int | None = None
    #: OpenSSL's list for TLS 1.2; what the proxy's configuration forbids stays so
    ciphers: str | None = None
    #: OpenSSL's list for TLS 1.3
    ciphersuites: str | None = None
    #: what encrypts and decrypts: default the best there is. What is not to be had falls back, counted. With TLS 1.3
    #: the best is "user": under "kernel" and "device" a peer that asks for other keys (KeyUpdate) ends the connection
    crypto: Crypto | None = None
    #: client: the name is checked although `verify` is "optional"
    verify_host: bool = False
    #: no session of before is resumed, and none kept
    no_resumption: bool = False

    def __post_init__(self) -> None:
        for name in ("alpn", "identity"):
            object.__setattr__(self, name, _tuple(f"Tls({name}=…)", getattr(self, name)))
        Layer.__post_init__(self)

    def _wire(self, name: str, value: Any) -> Any:
        if name == "role":
            return _choice("Tls(role=…)", _ROLES, value)
        if name == "crypto":
            return _choice("Tls(crypto=…)", _CRYPTO, value)
        if name == "verify":
            if not isinstance(value, bool) and value != "optional":
                raise ValueError(f"Tls(verify=…): {value!r} is none of True, False, 'optional'")
            return 1 if value == "optional" else 2 * value
        return value

    def _check(self) -> None:
        for name in ("min_version", "max_version"):
            value = getattr(self, name)
            if value is not None and value not in _TLS_VERSIONS:
                raise ValueError(f"Tls({name}=…): {value:#x} is neither 0x303 (TLS 1.2) nor 0x304 (TLS 1.3)")
        if self.min_version and self.max_version and self.min_version > self.max_version:
            raise ValueError("Tls: min_version is above max_version")
        for protocol in self.alpn:
            _in_range("Tls(alpn=…): length of a name", len(protocol.encode()), 1, 255)


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsKeys(Layer):
    """TLS records with keys of the application's own, as setsockopt(SOL_TLS, TLS_TX or TLS_RX) hands them to the
    kernel. One direction at a time; pushed again, it changes keys (linux Documentation/networking/tls.rst)."""

    PROTOCOL: ClassVar[str] = "TLS_KEYS"
    #: the kernel's struct tls12_crypto_info_*
    crypto_info: bytes = field(repr=False)
    #: what encrypts or decrypts: default the best there is
    crypto: Crypto | None = None

    def _wire(self, name: str, value: Any) -> Any:
        return _choice("TlsKeys(crypto=…)", _CRYPTO, value) if name == "crypto" else value


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsRecords(Layer):
    """Delineates TLS records and leaves them as they are (the paper's figure 6). Receive side only; makes PDUs."""

    PROTOCOL: ClassVar[str] = "TLS_RECORDS"
    #: longest record taken, in bytes; default 1 MiB
    max_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Http2(Layer):
    """HTTP/2 frames, header included, one PDU each; a PDU sent is one or more whole frames. The client's preface is
    sent and taken off in the proxy; SETTINGS and all other frames are the application's (RFC 9113). Makes PDUs."""

    PROTOCOL: ClassVar[str] = "HTTP2"
    #: which side this is; default: by who connected
    role: Role | None = None
    #: longest payload taken, 16384 to 16777215 bytes: what the application says in SETTINGS_MAX_FRAME_SIZE; default
    #: 16384. A longer frame ends the connection
    max_frame_bytes: int | None = None

    def _wire(self, name: str, value: Any) -> Any:
        return _choice("Http2(role=…)", _ROLES, value) if name == "role" else value

    def _check(self) -> None:
        _in_range("Http2(max_frame_bytes=…)", self.max_frame_bytes, 16384, 16777215)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grpc(Layer):
    """gRPC messages of all streams, above `Http2` only, before the first HEADERS (gRPC over HTTP/2). Messages are put
    together from DATA frames and cut into them as the peer's windows allow, and WINDOW_UPDATE is dealt with, in the
    proxy; all other frames are PDUs of their own; `GrpcMessage.kind` says which. What is sent is one queue: a
    message whose window is closed holds up all behind it, of other streams too, until the peer opens it (`ulp_info()`
    has the stream, as "blocked"). Makes PDUs. Only where the proxy's configuration names it (`optional` in [ulp])."""

    PROTOCOL: ClassVar[str] = "GRPC"
    #: streams open at once, at most 65536; default 1024. SETTINGS_MAX_CONCURRENT_STREAMS should not promise more
    streams_max: int | None = None
    #: longest message taken, in bytes; default 1 MiB
    max_bytes: int | None = None

    def _check(self) -> None:
        _in_range("Grpc(streams_max=…)", self.streams_max, 1, 65536)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dns(Layer):
    """DNS messages over TCP or TLS: the length of two bytes is taken off and put on (RFC 1035 4.2.2, RFC 7858). Makes
    PDUs."""

    PROTOCOL: ClassVar[str] = "DNS"
    #: on send, EDNS padding to a multiple of this many bytes (RFC 8467: 128 for queries, 468 for answers); default:
    #: none
    padding: int | None = None

    def _check(self) -> None:
        _in_range("Dns(padding=…)", self.padding, 1, 0xFFFF)


@dataclass(frozen=True, slots=True, kw_only=True)
class NvmeTcp(Layer):
    """NVMe/TCP PDUs; header and data digests (CRC32C) are made and checked in the proxy. The application sees and
    sends the plain form, header and data (NVM Express TCP Transport 1.0, 3.3 and 3.6). Makes PDUs."""

    PROTOCOL: ClassVar[str] = "NVME_TCP"
    #: as agreed in ICReq and ICResp: from the PDU after them on
    header_digest: bool = False
    #: likewise
    data_digest: bool = False
    #: digests and alignment as ICReq and ICResp, which pass through the proxy, agree on
    negotiate: bool = False
    #: on send, data begin at a multiple of 4 times (this plus 1) bytes, as HPDA and CPDA say it; default 0
    data_alignment: int | None = None
    #: longest PDU taken, in bytes; default 1 MiB
    max_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Mpa(Layer):
    """RDMA over TCP: MPA's FPDUs after the start-up frames, with markers and CRC32C; a PDU is a ULPDU (RFC 5044).
    Only where the proxy's configuration names it (`optional` in [ulp])."""

    PROTOCOL: ClassVar[str] = "MPA"
    #: the peer sends markers
    markers_rx: bool = False
    #: markers are sent
    markers_tx: bool = False
    #: both sides agreed to go without the CRC: it is zero and not checked
    no_crc: bool = False
    #: bytes of FPDUs that went before the push in that direction, for where markers are (RFC 5044 4.3); default 0
    start_offset: int | None = None


def _in_range(where: str, value: int | None, least: int, most: int) -> None:
    if value is not None and not least <= value <= most:
        raise ValueError(f"{where}: {value} is out of range, {least} to {most}")


#: By their names in the table.
LAYERS: dict[str, type[Layer]] = {layer.PROTOCOL: layer for layer in Layer.__subclasses__()}
