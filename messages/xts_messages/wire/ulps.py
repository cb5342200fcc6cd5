"""The table of ULPs (upper layer protocols): the single declaration of the protocols that can be pushed onto a socket.

`messages/native/ulp_wire.h` and `messages/ULPS.md` are generated from it together with the wire (`python -m
xts_messages.generate`). The paper ("API") has `struct ulp_info { ulp_id; ulp_parameters[] }`, castable; here the
parameters are attributes, as netlink has them: `type: u16, length: u16, value`, without padding, in network byte
order, in any order, each at most once unless it is marked as repeated. An attribute a proxy does not know is refused.

An IOCTL's payload is, by request:

- PUSH_ULP_RX, PUSH_ULP_TX, PUSH_ULP (both directions): `read_bytes: u32` (as with CLOSE: bytes of this connection the
  application has read, modulo 2^30), `flags: u16` (0x0001: the socket is SOCK_SEQPACKET), `ulp_id: u16`, then the
  attributes; answer: `handshake: u8` (1: the event READY, or RESET, will follow).
- PEEK_MODE: `on: u8`. END_PEEK_MODE: `drop_bytes: u32`, from the first byte received on the connection.
- ULP_LIST: none; answer: `ulp_id: u16, version: u16, directions: u8` (1 receive, 2 send, 3 both) for each that this
  proxy offers to this host.
- ULP_INFO: `direction: u8 (0 receive, 1 send), layer: u8 (0 is next to TCP), item: u16, offset: u32`; answer:
  `total: u32`, then bytes of the item.
- ULP_ERROR: none; answer: `error: u16, protocol: u8, fault: u8`, then text in UTF-8. The protocol is whose fault it is,
  and 0 without the feature FAULT_OF.

The event TLS has `version: u16, cipher: u16, send: u8, receive: u8` for control data, of the uppermost TLS or TLS_KEYS:
version as on the wire of TLS; of TLS the suite's number at IANA, of TLS_KEYS the kernel's cipher type;
who encrypts and who decrypts as in the items CRYPTO (0: no such protocol in that direction).

CONNECT's payload, of at most CONNECT_PUSH_BYTES, is the pushes that go before it. For each: `request: u32`
(PUSH_ULP_RX, PUSH_ULP_TX or PUSH_ULP), `bytes: u32`, then so many bytes, the payload of that IOCTL (`read_bytes` is 0).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

#: ioctl requests: the last eight of the sixteen that are private to a protocol (SIOCPROTOPRIVATE, linux/sockios.h).
REQUESTS: dict[str, tuple[int, str]] = {
    "PUSH_ULP_RX": (0x89E8, "push a protocol onto the receive side"),
    "PUSH_ULP_TX": (0x89E9, "push a protocol onto the send side"),
    "PUSH_ULP": (0x89EA, "push a protocol onto both"),
    "PEEK_MODE": (0x89EB, "begin peek mode: what is received stays in the TCP socket as well"),
    "END_PEEK_MODE": (
        0x89EC,
        "drop this many bytes from the first received on, and read the rest again, through what was pushed",
    ),
    "ULP_LIST": (0x89ED, "what this proxy offers"),
    "ULP_INFO": (0x89EE, "what a pushed protocol reports"),
    "ULP_ERROR": (0x89EF, "why the connection failed in a protocol, or the last push was refused"),
}

#: Events in `control_type` of RECV_PDU: they take no post credits and are not PDUs.
EVENTS: dict[str, tuple[int, str]] = {
    "READY": (0xFF01, "the handshakes of what was pushed onto an established connection have ended well"),
    "TLS": (0xFF02, "how the connection is encrypted from now on (feature ULP_TLS), in 6 bytes of control data"),
}

#: Faults of a protocol: name -> (number, errno that the application gets, meaning). Each is counted separately.
FAULTS: dict[str, tuple[int, str, str]] = {
    "RECORD": (1, "EBADMSG", "a PDU that cannot be authenticated or is malformed"),
    "LENGTH": (2, "EBADMSG", "a length that no PDU of the protocol has"),
    "TOO_LONG": (3, "EMSGSIZE", "a PDU longer than its maximum"),
    "DIGEST": (4, "EBADMSG", "a digest or checksum that does not match"),
    "HANDSHAKE": (5, "EPROTO", "the handshake failed, or the peer broke the protocol or sent an alert"),
    "CERTIFICATE": (6, "EKEYREJECTED", "the peer's certificate was not accepted, or it did not accept ours"),
    "TRUNCATED": (7, "EBADMSG", "the stream ended inside a PDU, or without the end the protocol demands"),
    "PARSER": (8, "EPROTO", "a parser program answered with an error"),
    "STALLED": (9, "ETIMEDOUT", "the handshake or a header did not come in time"),
    "MEMORY": (10, "ENOBUFS", "the proxy has no room for it"),
    "USE": (11, "EINVAL", "the application sent what the protocol cannot carry"),
    "PUSH": (12, "EINVAL", "the push was refused: parameters, place in the stack, kind of socket"),
    "FLOOD": (13, "EPROTO", "the peer sent too much in a row that carries no data: key updates, tickets …"),
}


class Type(Enum):
    """The type of an attribute's value."""

    U8 = "u8"
    U16 = "u16"
    U32 = "u32"
    U64 = "u64"
    STRING = "string"  # UTF-8, not terminated
    BYTES = "bytes"
    FLAG = "flag"  # of length 0: present or not


@dataclass(frozen=True, slots=True)
class Attribute:
    """A parameter of a push. `name` is its name in C (XTS_<ULP>_<NAME>) and, in small letters, in Python (where TLS has
    `server_hostname` for SERVER_NAME and `ca` for TRUST)."""

    name: str
    number: int
    type: Type
    meaning: str
    required: bool = False
    repeated: bool = False


@dataclass(frozen=True, slots=True)
class Item:
    """Something that ULP_INFO reports."""

    name: str
    number: int
    type: Type
    meaning: str


@dataclass(frozen=True, slots=True)
class Ulp:
    """A protocol. `receive`, `send`: directions in which it can be pushed; `boundaries`: its output are PDUs, so that
    it needs SOCK_SEQPACKET if it is the uppermost (otherwise a byte stream). `optional`: offered only if the operator's
    configuration names it. `control`: the content of the 16 bytes of control data. `meaning`: a phrase; `notes`:
    sentences about its use."""

    name: str
    number: int
    version: int
    receive: bool
    send: bool
    boundaries: bool
    meaning: str
    attributes: tuple[Attribute, ...] = ()
    items: tuple[Item, ...] = ()
    control: str = ""
    source: str = ""
    notes: str = ""
    optional: bool = False


_MAX = Attribute("MAX_BYTES", 1, Type.U32, "longest PDU taken, all of it; default 1 MiB")

ULPS: tuple[Ulp, ...] = (
    Ulp(
        "STREAM_PARSER",
        1,
        1,
        True,
        False,
        True,
        "delineates PDUs whose header has their length",
        (
            _MAX,
            Attribute("OFFSET", 2, Type.U32, "where the length field begins", required=True),
            Attribute("WIDTH", 3, Type.U8, "its width in bytes, 1 to 8", required=True),
            Attribute("LITTLE_ENDIAN", 4, Type.FLAG, "its byte order; else network byte order"),
            Attribute("MASK", 5, Type.U64, "applied to the field first; default all ones"),
            Attribute("SHIFT", 6, Type.U8, "then shifted right by this many bits"),
            Attribute("UNIT", 7, Type.U32, "then multiplied by this; default 1"),
            Attribute("ADJUSTMENT", 8, Type.U64, "then added (signed): what the field does not count"),
            Attribute("MAGIC_OFFSET", 9, Type.U32, "where every PDU has the magic bytes"),
            Attribute("MAGIC", 10, Type.BYTES, "the magic bytes, at most 16"),
            Attribute("MAGIC_MASK", 11, Type.BYTES, "as long as MAGIC: bits that count"),
            Attribute("TIMEOUT_MS", 12, Type.U32, "how long an incomplete PDU may wait for the rest; default none"),
        ),
        source='the paper, "strparser"',
    ),
    Ulp(
        "BPF_PARSER",
        2,
        1,
        True,
        False,
        True,
        "delineates PDUs with an eBPF program of the operator (the kernel's strparser contract)",
        (
            _MAX,
            Attribute("PROGRAM", 2, Type.STRING, "its name in the proxy's configuration", required=True),
            Attribute("TIMEOUT_MS", 3, Type.U32, "how long an incomplete PDU may wait for the rest; default none"),
        ),
        notes=("The program has to know the length of a PDU after 256 bytes."),
        source="the paper; linux Documentation/networking/strparser.rst",
    ),
    Ulp(
        "LINES",
        3,
        1,
        True,
        True,
        True,
        "one PDU per line",
        (
            _MAX,
            Attribute("DELIMITER", 2, Type.BYTES, "ends a line, at most 8 bytes; default LF"),
            Attribute("KEEP", 3, Type.FLAG, "the delimiter is a part of the PDU"),
        ),
    ),
    Ulp(
        "LENGTH_PREFIXED",
        4,
        1,
        True,
        True,
        True,
        "a length, then that many bytes: taken off on receive, put before each PDU on send",
        (
            _MAX,
            Attribute("WIDTH", 2, Type.U8, "of the length: 1, 2, 3, 4 or 8 bytes; default 4"),
            Attribute("LITTLE_ENDIAN", 3, Type.FLAG, "its byte order; else network byte order"),
            Attribute("COUNTS_ITSELF", 4, Type.FLAG, "the length includes the length field"),
        ),
    ),
    Ulp(
        "TLS",
        5,
        1,
        True,
        True,
        False,
        "TLS 1.2 and 1.3, terminated in the proxy: handshake, records, keys",
        (
            Attribute("ROLE", 1, Type.U8, "0: by who connected (the default), 1: client, 2: server"),
            Attribute("SERVER_NAME", 2, Type.STRING, "client: SNI, and the name that the certificate must have"),
            Attribute(
                "ALPN", 3, Type.STRING, "a protocol offered (client) or taken (server), best first", repeated=True
            ),
            Attribute(
                "VERIFY",
                4,
                Type.U8,
                "0: no, 1: if there is one (server); its chain, not its name (client), 2: required (client's default)",
            ),
            Attribute(
                "TRUST", 5, Type.STRING, 'trust roots, by their name in the proxy\'s configuration; default: "default"'
            ),
            Attribute(
                "IDENTITY",
                6,
                Type.STRING,
                "certificate and key, by their name in the proxy's configuration; server: "
                "several are chosen from by SNI, the first being the default",
                repeated=True,
            ),
            Attribute("MIN_VERSION", 7, Type.U16, "0x0303 or 0x0304; never below what the configuration says"),
            Attribute("MAX_VERSION", 8, Type.U16, "0x0303 or 0x0304"),
            Attribute("CIPHERS", 9, Type.STRING, "OpenSSL's list for TLS 1.2; the configuration may forbid more"),
            Attribute("CIPHERSUITES", 10, Type.STRING, "of TLS 1.3"),
            Attribute(
                "CRYPTO",
                11,
                Type.U8,
                "0: the best available (the default), 1: user, 2: kernel, 3: device. Where that is not "
                "available it falls back, counted. With TLS 1.3 the best is 2 where the kernel changes keys (Linux "
                "6.14), else 1; under 2 and 3 KeyUpdate then ends the connection",
            ),
            Attribute("VERIFY_HOST", 12, Type.FLAG, "client: check SERVER_NAME although VERIFY is 1"),
            Attribute("NO_RESUMPTION", 13, Type.FLAG, "does not resume an earlier session, and keeps none"),
        ),
        (
            Item("VERSION", 1, Type.U16, "0x0303 or 0x0304"),
            Item("CIPHER", 2, Type.STRING, "OpenSSL's name"),
            Item("ALPN", 3, Type.STRING, "the protocol agreed on"),
            Item("PEER_CERTIFICATE", 4, Type.BYTES, "DER"),
            Item("PEER_CHAIN", 5, Type.BYTES, "DER, one after the other"),
            Item("RESUMED", 6, Type.U8, "1: an earlier session was resumed"),
            Item(
                "CRYPTO_SEND",
                7,
                Type.U8,
                "who encrypts: 1 user, 2 kernel, 3 device: the kernel, where an interface has TLS switched on; a card "
                "may yet leave a connection to the kernel",
            ),
            Item("CRYPTO_RECEIVE", 8, Type.U8, "who decrypts"),
            Item("SERVER_NAME", 9, Type.STRING, "the name the client asked for"),
            Item("CRYPTO_REASON", 10, Type.STRING, "why it is not the best kind"),
            Item("VERIFIED", 11, Type.U8, "1: the peer's certificate was checked and is good"),
            Item("CIPHER_ID", 12, Type.U16, "IANA's number of the cipher suite"),
        ),
        control="record type: u8 (on SOCK_SEQPACKET, where TLS is the uppermost and a PDU is a record, or "
        "several if the peer asked for short ones)",
        notes=(
            "This is one layer of both directions. It is pushed by PUSH_ULP. Or it is pushed onto one side, and "
            "then, with the same parameters or none, onto the other."
        ),
        source="RFC 8446, RFC 5246",
    ),
    Ulp(
        "TLS_KEYS",
        6,
        1,
        True,
        True,
        False,
        "TLS records with keys of the host, as setsockopt(SOL_TLS, TLS_TX or TLS_RX) hands them to the kernel",
        (
            Attribute(
                "CRYPTO_INFO",
                1,
                Type.BYTES,
                "the kernel's struct tls12_crypto_info_*, as it lies in the host's memory (64-bit little-endian)",
                required=True,
            ),
            Attribute(
                "CRYPTO",
                2,
                Type.U8,
                "as for TLS; but 0 is the kernel with TLS 1.3 too where that can change keys (Linux 6.14)",
            ),
        ),
        (
            Item("CRYPTO", 1, Type.U8, "1 user, 2 kernel, 3 device"),
            Item("CRYPTO_REASON", 2, Type.STRING, "why it is not the best kind"),
            Item("CRYPTO_INFO", 3, Type.BYTES, "version and cipher type; never a key"),
        ),
        control="record type: u8, for every record that is not application data (23)",
        notes=("Each direction is a layer by itself. Pushed again, it changes keys."),
        source="linux Documentation/networking/tls.rst",
    ),
    Ulp(
        "TLS_RECORDS",
        7,
        1,
        True,
        False,
        True,
        "delineates TLS records and leaves them as they are (the paper's figure 6)",
        (_MAX,),
        control="type: u8, version: u16, length: u16, as in the record's header",
        source="RFC 8446 5.1",
    ),
    Ulp(
        "HTTP2",
        8,
        1,
        True,
        True,
        True,
        "HTTP/2 frames, header included, one PDU each",
        (
            Attribute("ROLE", 2, Type.U8, "0: by who connected (the default), 1: client, 2: server"),
            Attribute(
                "MAX_FRAME_BYTES",
                3,
                Type.U32,
                "longest payload taken: what the application says in SETTINGS_MAX_FRAME_SIZE; default 16384",
            ),
        ),
        control="length: u24, type: u8, flags: u8, stream: u32, as in the frame's header",
        notes=(
            "The client's preface is sent and taken off here. On send, a PDU is one or more whole frames. "
            "SETTINGS and all other frames are the application's. A frame longer than MAX_FRAME_BYTES is answered"
            " by GOAWAY and ends the connection."
        ),
        source="RFC 9113 3.4, 4.1",
    ),
    Ulp(
        "GRPC",
        9,
        1,
        True,
        True,
        True,
        "gRPC messages of all streams, above HTTP2 only",
        (
            Attribute("MAX_BYTES", 1, Type.U32, "longest message taken; default 1 MiB"),
            Attribute(
                "STREAMS_MAX",
                2,
                Type.U32,
                "streams open at once, at most 65536; default 1024. SETTINGS_MAX_CONCURRENT_STREAMS should not "
                "promise more",
            ),
        ),
        control=(
            "kind: u8 (0: message, 1: HTTP/2 frame), flags: u8 (0x01: compressed, 0x80: END_STREAM), reserved: u16, "
            "stream: u32"
        ),
        notes=(
            "It is pushed onto both sides, before the first HEADERS. Received messages are put together from DATA"
            " frames and delivered with their stream. Sent ones are cut into DATA frames as the peer's windows allow. "
            "What is sent on a socket is one queue. A message whose window is closed holds up all behind it, "
            "messages of other streams and RST_STREAM too, until the peer opens the window. Meanwhile go on "
            "reading; BLOCKED names the stream. Streams that must not wait for one another need sockets of their "
            "own. WINDOW_UPDATE is dealt with here, both ways. All other frames pass as PDUs of kind 1, and so "
            "does an empty DATA frame that ends a stream. A PDU that is sent without control data is of that "
            "kind. HPACK, SETTINGS and PING are the application's. No library of gRPC uses this protocol yet: it is "
            "for programs that speak gRPC themselves."
        ),
        source="gRPC over HTTP/2 (grpc/grpc doc/PROTOCOL-HTTP2.md)",
        items=(
            Item(
                "BLOCKED",
                1,
                Type.U32,
                "the stream whose message waits for a window, its own or the connection's; 0: none does",
            ),
        ),
        optional=True,
    ),
    Ulp(
        "DNS",
        10,
        1,
        True,
        True,
        True,
        "DNS messages over TCP or TLS: the length of two bytes is taken off and put on",
        (
            Attribute(
                "PADDING",
                2,
                Type.U16,
                "on send, EDNS padding to a multiple of this (RFC 8467: 128 for queries, 468 for answers); only "
                "of messages whose last record is OPT, without "
                "padding yet; default none",
            ),
        ),
        control="id: u16, flags: u16, as in the header",
        source="RFC 1035 4.2.2, RFC 7766, RFC 7858, RFC 7830",
    ),
    Ulp(
        "NVME_TCP",
        11,
        1,
        True,
        True,
        True,
        "NVMe/TCP PDUs; header and data digests (CRC32C) are made and checked here",
        (
            _MAX,
            Attribute("HEADER_DIGEST", 2, Type.FLAG, "as agreed in ICReq and ICResp: from the PDU after them on"),
            Attribute("DATA_DIGEST", 3, Type.FLAG, "the same for data"),
            Attribute(
                "NEGOTIATE",
                4,
                Type.FLAG,
                "digests and alignment as ICReq and ICResp, which pass through here, agree on",
            ),
            Attribute(
                "DATA_ALIGNMENT",
                5,
                Type.U8,
                "on send, data begin at a multiple of 4 times (this plus 1), as HPDA and CPDA say it; default 0",
            ),
        ),
        control=(
            "type: u8, flags: u8, hlen: u8, pdo: u8, as in the plain header; digests of this PDU: u8 (0x01 header, "
            "0x02 data), right when the PDU is complete"
        ),
        notes=(
            "The application sees and sends the plain form, header and data. It has neither digest flag. PLEN is "
            "the sum of both, and PDO is equal to HLEN, or 0 without data. MAX_BYTES counts the header: data "
            "of 1 MiB in one PDU need 24 bytes more than the default."
        ),
        source="NVM Express TCP Transport 1.0, 3.3 and 3.6",
    ),
    Ulp(
        "MPA",
        12,
        1,
        True,
        True,
        True,
        "RDMA over TCP: MPA's FPDUs after the start-up frames, with markers and CRC32C; a PDU is a ULPDU (at "
        "most 65535 bytes, with markers 64768)",
        (
            Attribute("MARKERS_RX", 2, Type.FLAG, "the peer sends markers"),
            Attribute("MARKERS_TX", 3, Type.FLAG, "markers are sent"),
            Attribute("NO_CRC", 4, Type.FLAG, "both sides agreed to go without: the field is zero and not checked"),
            Attribute(
                "START_OFFSET",
                5,
                Type.U32,
                "bytes of FPDUs that went before the push in that direction, for where markers are (they count "
                "from the first FPDU on, RFC 5044 4.3); default 0",
            ),
        ),
        source="RFC 5044",
        optional=True,
    ),
)

BY_NAME = {ulp.name: ulp for ulp in ULPS}
BY_NUMBER = {ulp.number: ulp for ulp in ULPS}
