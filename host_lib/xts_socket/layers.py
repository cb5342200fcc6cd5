"""Protocols that can be pushed onto a socket (`sock.push(Tls(), Http2())`): a class for each, with its parameters.

The parameters are those of the table (xts_messages/wire/ulps.py, ULPS.md) under their names there, in small letters;
two of `Tls` have their names from Python's ssl. A parameter that is left at its default is not sent: the proxy's own
default holds. Impossible values are refused here, with TypeError or ValueError; what only the proxy can check (a name
of its configuration, a place in the stack) is refused by `push()`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Literal

from xts_messages.wire.ulp_attributes import encode_attributes
from xts_messages.wire.ulps import BY_NAME, Ulp

from ._misuse import Named

Role = Literal["client", "server"]
Crypto = Literal["user", "kernel", "device"]

_ROLES = {None: 0, "client": 1, "server": 2}
_CRYPTO = {None: 0, "user": 1, "kernel": 2, "device": 3}
_TLS_VERSIONS = (0x0303, 0x0304)
_MAGIC_BYTES_MAX = 16
_DELIMITER_BYTES_MAX = 8


def _named(attribute: str, default: Any) -> Any:
    """A parameter whose name differs from that of its attribute."""
    return field(default=default, metadata={"attribute": attribute})


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer(metaclass=Named):
    """Base of the classes here. `PROTOCOL` is the name in the table."""

    PROTOCOL: ClassVar[str] = ""

    def __post_init__(self) -> None:
        if not self.PROTOCOL:
            raise TypeError("Layer is what protocols have in common: push one of them, Tls() for instance")
        self.encoded()  # to raise its errors
        self._check()

    def _check(self) -> None:
        """ValueError for values that do not fit together."""

    @classmethod
    def ulp(cls) -> Ulp:
        """The protocol's row of the table."""
        return BY_NAME[cls.PROTOCOL]

    def _wire(self, name: str, value: Any) -> Any:
        """A parameter in the form of its attribute."""
        del name
        return value

    def encoded(self) -> bytes:
        """The attributes of `struct ulp_info`, in their wire form. TypeError or ValueError for what an attribute cannot
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
    #: the bits of the field that are used
    mask: int | None = None
    #: by how many bits the result is shifted right
    shift: int | None = None
    #: how many bytes one unit of the field means
    unit: int | None = None
    #: bytes that the field does not include (often the header); may be negative
    adjustment: int | None = None
    #: where the magic bytes are in every PDU
    magic_offset: int | None = None
    #: the magic bytes, at most 16
    magic: bytes | None = None
    #: as long as `magic`: the bits that are compared
    magic_mask: bytes | None = None
    #: longest PDU accepted, as a whole, in bytes; default 1 MiB
    max_bytes: int | None = None
    #: a PDU that has begun has to be complete within this time; default: no limit
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
    #: longest PDU accepted, as a whole, in bytes; default 1 MiB
    max_bytes: int | None = None
    #: a PDU that has begun has to be complete within this time; default: no limit
    timeout_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines(Layer):
    """One PDU per line; on send the delimiter is appended to each PDU. Makes PDUs."""

    PROTOCOL: ClassVar[str] = "LINES"
    #: ends a line, at most 8 bytes; default LF
    delimiter: bytes | None = None
    #: the delimiter is a part of the PDU
    keep: bool = False
    #: longest PDU accepted, in bytes; default 1 MiB
    max_bytes: int | None = None

    def _check(self) -> None:
        if self.delimiter is not None:
            _in_range("Lines(delimiter=…): length", len(self.delimiter), 1, _DELIMITER_BYTES_MAX)


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthPrefixed(Layer):
    """A length, then that many bytes: the length is removed on receive, and put before each PDU on send. Makes PDUs."""

    PROTOCOL: ClassVar[str] = "LENGTH_PREFIXED"
    #: width of the length: 1, 2, 3, 4 or 8 bytes; default 4
    width: int | None = None
    #: its byte order; else network byte order
    little_endian: bool = False
    #: the length includes the length field
    counts_itself: bool = False
    #: longest PDU accepted, in bytes; default 1 MiB
    max_bytes: int | None = None

    def _check(self) -> None:
        if self.width not in (None, 1, 2, 3, 4, 8):
            raise ValueError(f"LengthPrefixed(width=…): {self.width} is none of 1, 2, 3, 4, 8")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls(Layer):
    """TLS 1.2 or 1.3 terminated in the proxy, which has keys, certificates and trust roots; the application sends and
    receives plain text (RFC 8446, RFC 5246)."""

    PROTOCOL: ClassVar[str] = "TLS"
    #: client: the name that is requested (SNI), and for which the certificate has to be valid. `create_connection` and
    #: similar functions use the host's
    server_hostname: str | None = _named("server_name", None)
    #: protocols offered (client) or accepted (server), best first
    alpn: str | tuple[str, ...] | list[str] = ()
    #: the peer's certificate is required (True, the client's default), checked if there is one ("optional", for
    #: servers), or not looked at (False, the server's default)
    verify: bool | Literal["optional"] | None = None
    #: trust roots, by their name in the proxy's configuration; default: "default"
    ca: str | None = _named("trust", None)
    #: certificate and key, by their name in the proxy's configuration; a server with several chooses by SNI, the first
    #: being the default
    identity: str | tuple[str, ...] | list[str] = ()
    #: the side of the handshake; default: client if this side has connected, else server
    role: Role | None = None
    #: 0x0303 or 0x0304 (`ssl.TLSVersion`); never below what the proxy's configuration says
    min_version: int | None = None
    #: 0x0303 or 0x0304 (`ssl.TLSVersion`)
    max_version: int | None = None
    #: OpenSSL's list for TLS 1.2; what the proxy's configuration forbids stays forbidden
    ciphers: str | None = None
    #: OpenSSL's list for TLS 1.3
    ciphersuites: str | None = None
    #: what encrypts and decrypts; default: the best that is available. If the choice is not available, it falls back,
    #: and that is counted. With TLS 1.3 the best is "user": under "kernel" and "device" a peer that requests other keys
    #: (KeyUpdate) ends the connection
    crypto: Crypto | None = None
    #: client: the name is checked even if `verify` is "optional"
    verify_host: bool = False
    #: no earlier session is resumed, and none is kept
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
        if name == "server_hostname" and isinstance(value, str) and not value.isascii():
            try:
                return value.encode("idna").decode("ascii")  # as ssl does: names in TLS are ASCII (RFC 6066)
            except UnicodeError as failure:
                raise ValueError(f"Tls(server_hostname=…): {value!r} is no host name: {failure}") from None
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
    """TLS records with keys of the application, as setsockopt(SOL_TLS, TLS_TX or TLS_RX) passes them to the kernel. One
    direction at a time; pushing it again changes the keys (linux Documentation/networking/tls.rst)."""

    PROTOCOL: ClassVar[str] = "TLS_KEYS"
    #: the kernel's struct tls12_crypto_info_*
    crypto_info: bytes = field(repr=False)
    #: what encrypts or decrypts; default: the best that is available
    crypto: Crypto | None = None

    def _wire(self, name: str, value: Any) -> Any:
        return _choice("TlsKeys(crypto=…)", _CRYPTO, value) if name == "crypto" else value


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsRecords(Layer):
    """Delineates TLS records without changing them (the paper's figure 6). Receive side only; makes PDUs."""

    PROTOCOL: ClassVar[str] = "TLS_RECORDS"
    #: longest record accepted, in bytes; default 1 MiB
    max_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Http2(Layer):
    """HTTP/2 frames, including the header, one PDU each; a PDU sent is one or more whole frames. The proxy sends and
    removes the client's preface; SETTINGS and all other frames are left to the application (RFC 9113). Makes PDUs."""

    PROTOCOL: ClassVar[str] = "HTTP2"
    #: the side; default: client if this side has connected, else server
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
    """gRPC messages of all streams, only above `Http2`, before the first HEADERS (gRPC over HTTP/2). The proxy
    assembles messages from DATA frames, cuts messages into DATA frames as the peer's windows allow, and handles
    WINDOW_UPDATE; all other frames are PDUs of their own; `GrpcMessage.kind` tells which. All that is sent is one
    queue: a message whose window is closed blocks all messages behind it, including those of other streams, until the
    peer opens the window (`ulp_info()` reports the stream, as "blocked"). Makes PDUs. Only if the proxy's configuration
    names it (`optional` in [ulp])."""

    PROTOCOL: ClassVar[str] = "GRPC"
    #: streams open at once, at most 65536; default 1024. SETTINGS_MAX_CONCURRENT_STREAMS should not promise more
    streams_max: int | None = None
    #: longest message accepted, in bytes; default 1 MiB
    max_bytes: int | None = None

    def _check(self) -> None:
        _in_range("Grpc(streams_max=…)", self.streams_max, 1, 65536)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dns(Layer):
    """DNS messages over TCP or TLS: the length of two bytes is removed and added (RFC 1035 4.2.2, RFC 7858). Makes
    PDUs."""

    PROTOCOL: ClassVar[str] = "DNS"
    #: on send, EDNS padding to a multiple of this many bytes (RFC 8467: 128 for queries, 468 for answers); default:
    #: none
    padding: int | None = None

    def _check(self) -> None:
        _in_range("Dns(padding=…)", self.padding, 1, 0xFFFF)


@dataclass(frozen=True, slots=True, kw_only=True)
class NvmeTcp(Layer):
    """NVMe/TCP PDUs; the proxy makes and checks header and data digests (CRC32C). The application sees and sends the
    plain form, header and data (NVM Express TCP Transport 1.0, 3.3 and 3.6). Makes PDUs."""

    PROTOCOL: ClassVar[str] = "NVME_TCP"
    #: as agreed in ICReq and ICResp: from the PDU after them on
    header_digest: bool = False
    #: the same for data
    data_digest: bool = False
    #: use the digests and the alignment that ICReq and ICResp, which pass through the proxy, agree on
    negotiate: bool = False
    #: on send, data begin at a multiple of 4 times (this plus 1) bytes, as HPDA and CPDA say it; default 0
    data_alignment: int | None = None
    #: longest PDU accepted, in bytes; default 1 MiB
    max_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Mpa(Layer):
    """RDMA over TCP: MPA's FPDUs after the start-up frames, with markers and CRC32C; a PDU is a ULPDU (RFC 5044). Only
    if the proxy's configuration names it (`optional` in [ulp])."""

    PROTOCOL: ClassVar[str] = "MPA"
    #: the peer sends markers
    markers_rx: bool = False
    #: markers are sent
    markers_tx: bool = False
    #: both sides agreed to go without the CRC: it is zero and not checked
    no_crc: bool = False
    #: bytes of FPDUs before the push in that direction, which determine where markers are (RFC 5044 4.3); default 0
    start_offset: int | None = None


def _in_range(where: str, value: int | None, least: int, most: int) -> None:
    if value is not None and not least <= value <= most:
        raise ValueError(f"{where}: {value} is out of range, {least} to {most}")


#: By their names in the table.
LAYERS: dict[str, type[Layer]] = {layer.PROTOCOL: layer for layer in Layer.__subclasses__()}
