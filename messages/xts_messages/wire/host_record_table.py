"""The host's records: what a socket is to the process that has it, as far as it can go to another program, by exec or
in the label of a descriptor that is passed. record_form.py says what a table is.

Versions up to 8 were structs of C, which no other build of the library could read.
"""

from __future__ import annotations

from . import wire_table
from .record_form import Field, Form, Header, Privacy, Record, Table, Trust

VERSION = 9
COMPATIBLE = 9
OLDEST = 9

ULP_DEPTH = 8
CONTROL_BYTES = 16
ENDPOINT_BYTES = 108
DEED_BYTES = 16
#: As RELATIVES_MAX and COMMON_MAX of relatives.h.
SLOTS = 512
ENTRIES = 16384
#: Requests that one socket can have made: as many memberships and filters as a program may ask for, and more.
ASKED_MAX = 4096


def _flags(first: int, names: str, meanings: tuple[str, ...]) -> tuple[Field, ...]:
    return tuple(
        Field(number, name, Form.FLAG, meaning, default=0)
        for number, (name, meaning) in enumerate(zip(names.split(), meanings, strict=True), first)
    )


ADDRESS = Record(
    "xts_endpoint",
    "An address of a socket. The struct is that of messages (wire_table.py).",
    (
        Field(1, "port", Form.U16, "of TCP or UDP", default=0),
        Field(2, "ip_version", Form.U8, "0: there is no address", default=0, values=(0, 4, 6)),
        Field(3, "scope_id", Form.U32, "of IPv6", default=0),
        Field(4, "address", Form.OCTETS, "IPv4 in the first four bytes, or IPv6", default=0, most=16),
    ),
    foreign=True,
)

TLS_CHOICE = Record(
    "tls_crypto_info",
    "What a program has set through the kernel's interface for TLS (ktls.c). The struct is the kernel's.",
    (
        Field(1, "version", Form.U16, "of TLS; 0: none", default=0),
        Field(2, "cipher_type", Form.U16, "the kernel's number", default=0),
    ),
    foreign=True,
)

ULPS = Record(
    "ulps",
    "The protocols pushed onto a socket, and the PDU that is being sent: push_ulp.c. Arrays are indexed by "
    "ULPS_RECEIVE and ULPS_SEND.",
    (
        Field(1, "id", Form.OCTETS, "the first is next to TCP", default=0, most=ULP_DEPTH, index=0),
        Field(2, "id", Form.OCTETS, "sending", default=0, most=ULP_DEPTH, index=1),
        Field(3, "depth", Form.U8, "how many", default=0, most=ULP_DEPTH, index=0),
        Field(4, "depth", Form.U8, "sending", default=0, most=ULP_DEPTH, index=1),
        *_flags(5, "peeking handshaking", ("peek mode", "READY is still to come, or RESET")),
        Field(
            7,
            "sending",
            Form.FLAG,
            "a thread waits in the middle of a PDU; such a socket goes nowhere",
            default=0,
            values=(0,),
        ),
        *_flags(8, "begun", ("a PDU has begun, and the next send call continues it",)),
        Field(9, "record_bytes", Form.U32, "length of that PDU; 0: not known", default=0),
        Field(10, "sent", Form.U32, "bytes of it that have been sent", default=0),
        Field(11, "wanted", Form.U32, "the number of credits for lack of which a PDU was refused", default=0),
        Field(
            12,
            "keys",
            Form.RECORD,
            "version and cipher set through the kernel's interface (ktls.c); version 0: none",
            c_type="struct tls_crypto_info",
            of="tls_crypto_info",
            index=0,
        ),
        Field(13, "keys", Form.RECORD, "sending", c_type="struct tls_crypto_info", of="tls_crypto_info", index=1),
        Field(14, "tls_version", Form.U16, "from the event TLS; 0: none so far", default=0),
        Field(15, "tls_cipher", Form.U16, "the same", default=0),
        Field(16, "tls_by", Form.U8, "where data is decrypted and encrypted", default=0, index=0),
        Field(17, "tls_by", Form.U8, "sending", default=0, index=1),
        *_flags(
            18,
            "tls keys_expired with_connect zerocopy_ro expect_no_pad",
            (
                'setsockopt(TCP_ULP, "tls")',
                "the peer has sent KeyUpdate",
                "pushed in a CONNECT: if that fails, it is unknown what is pushed",
                "TLS_TX_ZEROCOPY_RO",
                "TLS_RX_EXPECT_NO_PAD",
            ),
        ),
    ),
)

PDU = Record(
    "pdu",
    "A PDU whose data is in the pieces, or a run of stream data between PDUs: pdu.c.",
    (
        Field(1, "bytes", Form.U32, "received and unread", most=wire_table.CREDITS_MAX),
        Field(2, "read", Form.U32, "bytes read so far, modulo 2^32", default=0),
        Field(3, "record_bytes", Form.U32, "its whole length; 0: not known", default=0),
        Field(
            4,
            "messages",
            Form.U32,
            "messages that it came in and whose XTS_PDU_CREDITS are not returned yet",
            default=0,
            most=wire_table.CREDITS_MAX,
        ),
        *_flags(5, "stream whole", ("not a PDU: data of the byte stream", "its last byte has come")),
        Field(7, "control_bytes", Form.U8, "length of control", default=0, most=CONTROL_BYTES),
        Field(8, "control_type", Form.U16, "enum xts_ulp_id; 0: none", default=0),
        Field(
            9,
            "control",
            Form.OCTETS,
            "what the protocol says of it",
            default=0,
            most=CONTROL_BYTES,
            privacy=Privacy.CONTENT,
        ),
    ),
    links="struct pdu *next;",
)

STAMPING = Record(
    "stamping",
    "The time stamps requested of the device's socket: flags of struct sock in the kernel.",
    (
        *_flags(
            1,
            "receives in_ns is_new",
            ("SOCK_RCVTSTAMP", "SOCK_RCVTSTAMPNS", "SOCK_TSTAMP_NEW: the option was one of the _NEW ones"),
        ),
        Field(4, "flags", Form.U32, "SO_TIMESTAMPING", default=0),
        *_flags(5, "by_host", ("SO_XTS_CLOCK: converted to this host's clock",)),
    ),
)

ASKED = Record(
    "asked_part",
    "A request that the proxy has carried out, and that is made again of the next one: asked.c.",
    (
        Field(1, "type", Form.U8, "XTS_CMD_SETSOCKOPT, IOCTL, BIND or CONNECT_DATAGRAM"),
        Field(2, "level", Form.U32, "of an option", default=0),
        Field(3, "option", Form.U32, "its number, or the request of an ioctl", default=0),
        Field(
            4,
            "address",
            Form.RECORD,
            "BIND: as it was answered; CONNECT_DATAGRAM: the peer",
            c_type="struct xts_endpoint",
            of="xts_endpoint",
        ),
        Field(
            5,
            "value",
            Form.STREAM,
            "what was set; of a push it may contain keys",
            default=0,
            most=wire_table.FILTER_BYTES_MAX,
            privacy=Privacy.SECRET,
            c_type="struct xts_record_bytes",
            ops="xts_record_bytes_stream",
        ),
    ),
    check="asked_part_check",
)

SOCKET = Record(
    "socket_record",
    "What a program has to know about a socket that comes from another one.",
    (
        Field(1, "number", Form.U32, "its number in the program that wrote the record"),
        Field(
            2,
            "relatives",
            Form.DESCRIPTOR,
            "other processes have it too: their common file; -1: none",
            default=0,
            trust=Trust.KERNEL,
        ),
        Field(3, "relatives_slot", Form.U32, "this process's slot in that", default=0, most=SLOTS - 1),
        Field(4, "relatives_entry", Form.U32, "the socket's entry", default=0, most=ENTRIES - 1),
        Field(
            5,
            "key",
            Form.U64,
            "0: the connection has ended, and only its unread bytes are left; or key_is_apart",
            default=0,
            privacy=Privacy.SECRET,
        ),
        Field(6, "receive_timeout_ns", Form.U64, "SO_RCVTIMEO", default=0),
        Field(7, "send_timeout_ns", Form.U64, "SO_SNDTIMEO", default=0),
        Field(8, "sent_bytes", Form.U64, "since the beginning", default=0),
        Field(9, "received_bytes", Form.U64, "since the beginning", default=0),
        Field(10, "common_read_bytes", Form.U64, "as in struct common", default=0),
        Field(11, "common_sent_bytes", Form.U64, "as in struct common", default=0),
        Field(12, "error", Form.ERRNO, "what the next call finds", default=0),
        Field(13, "linger_s", Form.I32, "SO_LINGER", default=0),
        Field(14, "backlog", Form.U32, "of listen()", default=0, most=wire_table.CREDITS_MAX),
        Field(15, "window", Form.U32, "credits granted to the proxy", default=0, most=wire_table.CREDITS_MAX),
        Field(16, "window_max", Form.U32, "how far the window may grow", default=0, most=wire_table.CREDITS_MAX),
        Field(17, "receive_lowat", Form.U32, "SO_RCVLOWAT", default=1),
        Field(
            18,
            "unread",
            Form.STREAM,
            "bytes that were received and not read",
            default=0,
            most=wire_table.CREDITS_MAX,
            privacy=Privacy.CONTENT,
            c_type="struct xts_record_bytes",
            ops="xts_record_bytes_stream",
        ),
        Field(
            19,
            "pdus",
            Form.LIST,
            "which PDUs they are; none: a byte stream",
            default=0,
            most=wire_table.CREDITS_MAX // wire_table.PDU_CREDITS,
            c_type="struct pdu_chain",
            ops="pdu_list",
            of="pdu",
        ),
        Field(
            20,
            "asked",
            Form.LIST,
            "what the program has asked, in that order",
            default=0,
            most=ASKED_MAX,
            c_type="struct asked *",
            ops="asked_list",
            of="asked_part",
        ),
        Field(21, "family", Form.U8, "of addresses", values=(4, 6)),
        Field(22, "state", Form.U8, "TCP_STATE_*", most=3),
        Field(23, "phase", Form.U8, "PHASE_*", default=0, most=3),
        Field(24, "shutdown", Form.U8, "RCV_SHUTDOWN, SEND_SHUTDOWN", default=0, most=3),
        *_flags(
            25,
            "done nonblocking close_on_exec linger seqpacket bound bound_address v6only passed deed_is_shared",
            (
                "the stream has ended",
                "O_NONBLOCK",
                "FD_CLOEXEC",
                "SO_LINGER is on",
                "SOCK_SEQPACKET",
                "bind() was called",
                "with an address",
                "IPV6_V6ONLY",
                "it was passed to other programs: passed_copies.h",
                "over exec: other processes may have the same open file of its deed",
            ),
        ),
        Field(
            35,
            "key_is_apart",
            Form.U8,
            "where: KEY_IN_LISTENER (listener_key.h), KEY_IN_DEED (deed.h); only a descriptor leads there",
            default=0,
            most=2,
        ),
        Field(36, "deed_fd", Form.DESCRIPTOR, "over exec: its deed; -1: none", default=0, trust=Trust.KERNEL),
        Field(
            37,
            "deed_id",
            Form.OCTETS,
            "which deed that is",
            default=0,
            most=DEED_BYTES,
            privacy=Privacy.SECRET,
            c_type="struct deed_id",
        ),
        *_flags(
            38,
            "datagrams connected broadcast tells_drops queues_errors",
            (
                "it is a datagram socket: what follows up to stamping is of it",
                "it has a peer",
                "SO_BROADCAST",
                "SO_RXQ_OVFL",
                "IP_RECVERR",
            ),
        ),
        Field(43, "segment_bytes", Form.U16, "UDP_SEGMENT", default=0),
        Field(44, "receive_bytes", Form.U32, "SO_RCVBUF", default=0),
        Field(45, "stamping", Form.RECORD, "time stamps", c_type="struct stamping", of="stamping"),
        Field(46, "local", Form.RECORD, "its own address", c_type="struct xts_endpoint", of="xts_endpoint"),
        Field(47, "peer", Form.RECORD, "the peer's", c_type="struct xts_endpoint", of="xts_endpoint"),
        Field(48, "ulps", Form.RECORD, "protocols on it", c_type="struct ulps", of="ulps"),
        Field(
            49,
            "endpoint",
            Form.OCTETS,
            "where agent or proxy listen; empty: the process's default",
            default=0,
            most=ENDPOINT_BYTES,
            c_type="char",
        ),
    ),
    check="socket_record_check",
)

PDU_CHAIN = f"""\
#define CONTROL_BYTES {CONTROL_BYTES}u /* longest control data of a PDU */

struct pdu;

struct pdu_chain {{
	struct pdu *first, *last; /* NULL: it is empty */
}};

"""

TABLE = Table(
    "host_lib/native",
    VERSION,
    COMPATIBLE,
    {
        "ulps/pushed_struct.h": Header(
            (TLS_CHOICE, ULPS),
            ("<linux/tls.h>",),
            f"#define ULP_DEPTH {ULP_DEPTH}u /* the highest stack of protocols */\n\n",
        ),
        "ulps/pdu_struct.h": Header((PDU,), before=PDU_CHAIN),
        "core/stamping.h": Header((STAMPING,)),
        "core/asked_part.h": Header((ADDRESS, ASKED), ("wire/record.h", "wire/wire.h")),
        "processes/socket_record_struct.h": Header(
            (SOCKET,),
            (
                "core/asked_part.h",
                "core/stamping.h",
                "processes/deed.h",
                "wire/record.h",
                "ulps/pdu_struct.h",
                "ulps/pushed_struct.h",
                "wire/wire.h",
            ),
            "struct asked;\n\n",
        ),
    },
    oldest=OLDEST,
)
