"""The device's records: what a socket is towards TCP, as far as it can go to another owner. record_form.py says what a
table is."""

from __future__ import annotations

from collections.abc import Iterator

from . import record_fields, record_framing, record_messages, wire_table
from .record_form import Field, Form, Header, Privacy, Record, Table, Trust

#: Of the records that this version writes, and the oldest version that may read them.
VERSION = 2
COMPATIBLE = 1

CONTROL_BYTES = record_fields.CONTROL_BYTES
#: A run of a PDU costs its sender this many credits, so there are no more of them.
RUNS_MAX = wire_table.CREDITS_MAX // wire_table.PDU_CREDITS
#: Pieces of one connection that were given back: each is charged to its tenant.
RETURNED_MAX = 1 << 24

ULP_MARK = Record(
    "ulp_mark",
    "Describes the bytes of one read or write, which all belong to one PDU or to a byte stream.",
    (
        Field(1, "pdu", Form.FLAG, "false: a byte stream, nothing else is set"),
        Field(2, "more", Form.FLAG, "the PDU goes on after these bytes", default=0),
        Field(3, "control_bytes", Form.U8, "length of control", default=0, most=CONTROL_BYTES),
        Field(4, "control_type", Form.U16, "enum xts_ulp_id, 0: none", default=0),
        Field(5, "record_bytes", Form.U32, "length of the whole PDU; 0: not known (yet)", default=0),
        Field(
            6,
            "control",
            Form.OCTETS,
            "what the protocol says of the PDU",
            default=0,
            most=CONTROL_BYTES,
            privacy=Privacy.CONTENT,
        ),
    ),
)

RUN = Record(
    "run",
    "Bytes of the spill buffer that belong together.",
    (
        Field(1, "bytes", Form.U32, "how many", most=wire_table.CREDITS_MAX),
        Field(2, "raw", Form.FLAG, "they bypass the protocols"),
        Field(3, "mark", Form.RECORD, "their mark", c_type="struct ulp_mark", of="ulp_mark"),
    ),
)

OUTGOING = Record(
    "outgoing",
    "Bytes that the host has sent and TCP has not taken yet (outgoing.h).",
    (
        Field(
            1,
            "spill",
            Form.STREAM,
            "bytes that wait, in their order",
            default=0,
            most=wire_table.CREDITS_MAX,
            privacy=Privacy.CONTENT,
            charged=("XTS_USE_SPILL_BYTES", "XTS_USE_KEPT_BYTES", "XTS_USE_ORPHAN_BYTES"),
            view="spill_bytes",
            c_type="struct spill",
            ops="spill_stream",
        ),
        Field(
            2,
            "runs",
            Form.LIST,
            "which of them belong together; NULL: there has been no run yet",
            default=0,
            most=RUNS_MAX,
            c_type="struct runs *",
            ops="runs_list",
            of="run",
        ),
        Field(
            3,
            "sent_bytes",
            Form.U64,
            "bytes taken by TCP or a protocol, since the beginning",
            default=0,
            view="sent_bytes",
        ),
    ),
    check="outgoing_check",
)

RETURNED = Record(
    "returned_part",
    "Bytes that a host had received, and gave back when another process took the connection over.",
    (
        Field(1, "mark", Form.RECORD, "their mark", c_type="struct ulp_mark", of="ulp_mark"),
        Field(2, "at", Form.U32, "how many of them have been sent again", default=0, most=wire_table.CREDITS_MAX),
        Field(
            3,
            "data",
            Form.STREAM,
            "all of them",
            default=0,
            most=wire_table.CREDITS_MAX,
            privacy=Privacy.CONTENT,
            c_type="struct xts_record_bytes",
            ops="xts_record_bytes_stream",
        ),
    ),
    check="returned_part_check",
)

TCP_SIDE = Record(
    "tcp_side",
    "What a connection is towards TCP. It goes from one owner to the next as a whole (tcp_move.h): a connection of a "
    "channel, a parked one, one that a member of a shared listener has given back. The rest of struct connection is "
    "the channel's, and ends with it.",
    (
        Field(1, "fd", Form.DESCRIPTOR, "its socket; -1: none (any more)", default=0, trust=Trust.KERNEL),
        Field(
            4,
            "error",
            Form.ERRNO,
            "of the connection, sent in RESET, CONNECT_ACK or CLOSED",
            default=0,
            view="error",
        ),
        Field(
            6,
            "kernel_send",
            Form.U32,
            "charged for the kernel's send buffer, whose size its program has set (socket_buffers.c)",
            default=0,
            most=(1 << 31) - 1,
            charged=("XTS_USE_SOCKET_BYTES",),
            view="kernel_send_bytes",
        ),
        Field(
            7,
            "kernel_receive",
            Form.U32,
            "the same of the receive buffer",
            default=0,
            most=(1 << 31) - 1,
            charged=("XTS_USE_SOCKET_BYTES",),
            view="kernel_receive_bytes",
        ),
        Field(
            10,
            "out",
            Form.RECORD,
            "bytes for TCP that still wait",
            c_type="struct outgoing",
            of="outgoing",
        ),
        Field(
            8,
            "received_bytes",
            Form.U64,
            "bytes sent to the host of this channel, or the last one",
            default=0,
            view="received_bytes",
        ),
        Field(
            9,
            "accepted_bytes",
            Form.U64,
            "bytes accepted from the host of this channel, or the last one",
            default=0,
            view="host_bytes",
        ),
        Field(
            12,
            "pushed",
            Form.OBJECT,
            "protocols on it, or peek mode; NULL for most (pushed.h)",
            default=0,
            privacy=Privacy.SECRET,
            trust=Trust.PROCESS,
            charged=("XTS_USE_ULP_BYTES", "XTS_USE_KEPT_BYTES", "XTS_USE_ORPHAN_BYTES"),
            c_type="struct pushed *",
        ),
        Field(
            11,
            "returned",
            Form.LIST,
            "bytes that another process had not read: sent to the host before TCP's",
            default=0,
            most=RETURNED_MAX,
            privacy=Privacy.CONTENT,
            charged=("XTS_USE_KEPT_BYTES",),
            c_type="struct returned",
            ops="returned_list",
            of="returned_part",
        ),
        Field(
            2,
            "ip_version",
            Form.U8,
            "of the socket",
            values=(4, 6),
            trust=Trust.KERNEL,
        ),
        Field(3, "accepted", Form.FLAG, "the peer has connected to us", view="accepted"),
        Field(
            13, "fin_wanted", Form.FLAG, "the host sends no more: FIN follows what waits", default=0, view="fin_wanted"
        ),
        Field(14, "fin_done", Form.FLAG, "FIN has been sent, or close(2) sends it", default=0, view="fin_done"),
        Field(15, "more", Form.FLAG, "the last message had the flag MORE", default=0),
        Field(
            5,
            "rebinding",
            Form.FLAG,
            "SO_REUSEADDR is not the host's (listener_kind.c)",
            default=0,
        ),
    ),
    check="tcp_side_check",
)

#: Bytes of a connection that are not opened, or not sent.
TLS_WAITING_MAX = 1 << 24

TLS_DIRECTION = Record(
    "tls_direction",
    "One direction of a TLS connection that our record layer carries (ulp/tls/tls_direction.h). It has one owner: who "
    "writes the record wipes what it was made of before anybody reads it.",
    (
        Field(1, "tls13", Form.FLAG, "TLS 1.3, else 1.2"),
        Field(2, "cipher", Form.U16, "the kernel's number of the cipher, or one of tls_record.h", most=0x1FF),
        Field(
            3,
            "secret",
            Form.OCTETS,
            "TLS 1.3: the traffic secret; 1.2: the key",
            most=48,
            privacy=Privacy.SECRET,
            trust=Trust.PROCESS,
        ),
        Field(4, "secret_bytes", Form.U8, "how long it is", most=48),
        Field(
            5,
            "iv",
            Form.OCTETS,
            "TLS 1.2: salt and IV",
            default=0,
            most=12,
            privacy=Privacy.SECRET,
            trust=Trust.PROCESS,
        ),
        Field(
            6, "explicit_nonce", Form.OCTETS, "TLS 1.2: what the next record carries of its nonce", default=0, most=8
        ),
        Field(7, "sequence", Form.U64, "number of the next record under these keys"),
        Field(8, "records", Form.U32, "sending: how many records these keys have encrypted", default=0),
        Field(9, "update_due", Form.FLAG, "sending: KeyUpdate comes before the next data", default=0),
        Field(10, "ended", Form.FLAG, "close_notify has been read, or sent", default=0),
        Field(
            11,
            "waiting",
            Form.STREAM,
            "received bytes that are not opened, or sealed ones that TCP has not taken; the first record may be open",
            default=0,
            most=TLS_WAITING_MAX,
            privacy=Privacy.CONTENT,
            c_type="struct xts_record_bytes",
            ops="xts_record_bytes_stream",
        ),
        Field(12, "opened", Form.FLAG, "receiving: the first record in them is open, where it lies", default=0),
        Field(13, "type", Form.U8, "of that record", default=0),
        Field(14, "payload_bytes", Form.U32, "its payload", default=0, most=16_384),
        Field(15, "taken", Form.U32, "how much of that has been delivered", default=0, most=16_384),
        Field(16, "payload_max", Form.U32, "the longest payload of a record", most=16_384),
        Field(17, "message_head", Form.OCTETS, "receiving: of a message that has come in part", default=0, most=4),
        Field(18, "message_head_bytes", Form.U8, "how much of the head", default=0, most=4),
        Field(19, "message_first", Form.U8, "the first byte of its body", default=0),
        Field(20, "in_message", Form.FLAG, "the head is here", default=0),
        Field(21, "message_left", Form.U32, "what of its body has not come", default=0, most=(1 << 24) - 1),
    ),
    alone=True,
)

#: Of a handshake: OpenSSL takes no more for the certificates of a peer.
TLS_CHAIN_MAX = 1 << 18
TLS_TEXT_MAX = 255


def _bytes(number: int, name: str, meaning: str, most: int, privacy: Privacy = Privacy.CONTENT) -> Field:
    """Bytes that are somewhere else."""
    return Field(
        number,
        name,
        Form.STREAM,
        meaning,
        default=0,
        most=most,
        privacy=privacy,
        trust=Trust.PROCESS if privacy is Privacy.SECRET else Trust.BOUNDS,
        c_type="struct xts_record_bytes",
        ops="xts_record_bytes_stream",
    )


TLS_STATE = Record(
    "tls_state",
    "A TLS connection that our record layer carries, for another process of the proxy (ulp/tls/tls_move.c).",
    (
        Field(1, "client", Form.FLAG, "we are its client"),
        Field(2, "receive", Form.RECORD, "what comes", c_type="struct tls_direction", of="tls_direction"),
        Field(3, "send", Form.RECORD, "what leaves", c_type="struct tls_direction", of="tls_direction"),
        Field(4, "cipher_id", Form.U16, "IANA's number of the suite", default=0),
        Field(5, "resumed", Form.FLAG, "its session was resumed", default=0),
        Field(6, "verified", Form.FLAG, "the peer's certificate was", default=0),
        _bytes(7, "cipher", "name of the suite", TLS_TEXT_MAX, Privacy.OPEN),
        _bytes(8, "server_name", "that the client asked for", TLS_TEXT_MAX, Privacy.OPEN),
        _bytes(9, "alpn", "the protocol agreed on", TLS_TEXT_MAX, Privacy.OPEN),
        _bytes(10, "chain", "the peer's certificates, its own first", TLS_CHAIN_MAX, Privacy.OPEN),
        Field(11, "own_bytes", Form.U32, "of its own", default=0, most=TLS_CHAIN_MAX),
        _bytes(12, "part", "of a PDU that comes in parts: what is not in a record yet", 16_384),
        Field(13, "in_pdu", Form.FLAG, "more of the PDU has to be written", default=0),
        Field(14, "crypto", Form.U8, "who should encrypt (enum xts_tls_crypto)", default=0, most=3),
        _bytes(15, "reason", "why nobody better does", TLS_TEXT_MAX, Privacy.OPEN),
        Field(16, "keeps_session", Form.FLAG, "a client that would keep a ticket", default=0),
    ),
)

TLS_RESUMPTION = Record(
    "tls_resumption",
    "A session of TLS that can be resumed, or a key of tickets, for the process of the proxy that takes over "
    "(ulp/tls/tls_resumption.h).",
    (
        Field(
            1, "kind", Form.U8, "0: a key of tickets; 1: a session of a client; 2: one of a server, by its ID", most=2
        ),
        Field(
            2,
            "key",
            Form.OCTETS,
            "by which a client finds it; the ID; or the name of the key of tickets, and zeros",
            most=32,
        ),
        Field(3, "made_s", Form.U64, "of a key of tickets: when (CLOCK_BOOTTIME)", default=0),
        Field(4, "bare", Form.FLAG, "of one: not where clients show certificates", default=0),
        _bytes(5, "secret", "the session as OpenSSL writes it, or the key", 16_384, Privacy.SECRET),
    ),
)

PUSHED_STATE = Record(
    "pushed_state",
    "A connection's pushed protocols, for another process of the proxy (pushed/pushed_move.c).",
    (
        Field(1, "protocol", Form.U16, "enum xts_ulp_id, of one alone; 0: they are in layers"),
        Field(2, "client", Form.FLAG, "this side has connected"),
        Field(3, "typed", Form.FLAG, "a push has set the type", default=0),
        Field(4, "message_socket", Form.FLAG, "SOCK_SEQPACKET", default=0),
        Field(5, "event_wanted", Form.FLAG, "the host waits for READY", default=0),
        Field(6, "tls_wanted", Form.FLAG, "the event TLS has to be sent", default=0),
        Field(7, "pdus", Form.FLAG, "the last read returned bytes of a PDU", default=0),
        Field(8, "since_pdu", Form.U64, "bytes of a stream sent to the host since the last PDU", default=0),
        Field(9, "pdu_open", Form.FLAG, "the host has begun to send a PDU", default=0),
        Field(10, "pdu_bytes", Form.U32, "its length; 0: not known", default=0),
        Field(11, "pdu_left", Form.U32, "what of it has not come", default=0),
        Field(12, "finished", Form.FLAG, "the protocol has sent its end of stream", default=0),
        Field(13, "layer_finished", Form.FLAG, "nothing more has to be asked of it for that", default=0),
        Field(14, "read_error", Form.ERRNO, "of the socket, which tells it once", default=0),
        _bytes(15, "state", "the protocol's own record", record_fields.STATE_MAX, Privacy.SECRET),
        Field(
            16,
            "layers",
            Form.LIST,
            "from TCP up, as each direction has them",
            default=0,
            most=record_framing.LAYERS_MAX,
            since=record_fields.SINCE,
            needed=True,
            privacy=Privacy.SECRET,
            trust=Trust.PROCESS,
            c_type="struct ulp_moved_layers",
            ops="ulp_moved_layers_list",
            of="ulp_moved_layer",
        ),
    ),
)

#: Interfaces of the device that a socket has joined groups on, and the groups.
GROUPS_MAX = 1 << 16
#: Of one socket: what its host has returned to it, what it has taken from the kernel.
DATAGRAMS_MAX = 1 << 28

DATAGRAM_GROUP = Record(
    "datagram_group",
    "A multicast group that a datagram socket has joined.",
    (
        Field(1, "ip_version", Form.U8, "of the address", values=(4, 6)),
        Field(2, "address", Form.OCTETS, "as in messages; of IPv4, the first four bytes", default=0, most=16),
        Field(3, "interface", Form.U32, "the device's number; 0: not known", default=0),
    ),
)

DATAGRAM_SIDE = Record(
    "datagram_side",
    "A datagram socket, for another process of the proxy (datagrams/datagram_move.c). What has come for it waits in "
    "the kernel's socket, which has its address, peer and options.",
    (
        Field(1, "fd", Form.DESCRIPTOR, "its socket", default=0, trust=Trust.KERNEL),
        Field(2, "ip_version", Form.U8, "of the socket", values=(4, 6), trust=Trust.KERNEL),
        Field(3, "error", Form.ERRNO, "that its host has not been told", default=0),
        Field(
            4,
            "kernel_send",
            Form.U32,
            "charged for the kernel's send buffer, whose size its program has set",
            default=0,
            most=(1 << 31) - 1,
            charged=("XTS_USE_SOCKET_BYTES",),
        ),
        Field(
            5,
            "kernel_receive",
            Form.U32,
            "the same of the receive buffer",
            default=0,
            most=(1 << 31) - 1,
            charged=("XTS_USE_SOCKET_BYTES",),
        ),
        _bytes(
            6, "waiting", "of its host, and the kernel had no room: errno, 32 bits, and record", wire_table.CREDITS_MAX
        ),
        Field(7, "coming", Form.U32, "of the last of these, what has not come", default=0, most=(1 << 16) - 1),
        Field(8, "lost", Form.FLAG, "the rest of that one is dropped", default=0),
        _bytes(9, "unsent", "taken from the kernel and not sent to its host: records", DATAGRAMS_MAX),
        Field(10, "data_left", Form.U32, "of the first, if it was sent in part", default=0, most=(1 << 16) - 1),
        _bytes(11, "returned", "by a process that had not read them, for the next one: records", DATAGRAMS_MAX),
        Field(12, "returned_error", Form.ERRNO, "the same, a pending error", default=0),
        Field(13, "delivered", Form.U64, "credits for what it was sent: it may return no more", default=0),
        Field(14, "dropped", Form.U32, "by the kernel, as the host was told", default=0),
        Field(15, "bound", Form.FLAG, "its host has chosen an address or a port", default=0),
        Field(16, "all", Form.FLAG, "IP_MULTICAST_ALL, as its host has set it", default=0),
        Field(17, "all6", Form.FLAG, "IPV6_MULTICAST_ALL", default=0),
        Field(18, "pktinfo", Form.FLAG, "IP_PKTINFO", default=0),
        Field(19, "pktinfo6", Form.FLAG, "IPV6_RECVPKTINFO", default=0),
        Field(
            20,
            "groups",
            Form.LIST,
            "that it has joined",
            default=0,
            most=GROUPS_MAX,
            charged=("XTS_USE_GROUPS", "XTS_USE_SOCKET_BYTES"),
            c_type="struct datagram_groups",
            ops="datagram_groups_list",
            of="datagram_group",
        ),
        Field(
            21,
            "filter_instructions",
            Form.U32,
            "of its filter",
            default=0,
            most=wire_table.FILTER_BYTES_MAX // 8,
            charged=("XTS_USE_FILTERS", "XTS_USE_SOCKET_BYTES"),
        ),
        Field(22, "filter_dropped", Form.U32, "by the kernel, as far as they were counted for the filter", default=0),
        _bytes(23, "filter_name", "of the operator's filter", wire_table.FILTER_NAME_BYTES_MAX, Privacy.OPEN),
        Field(24, "sent_bytes", Form.U64, "since the beginning", default=0),
        _bytes(25, "returning", "returned, and the end of the last one has not come: records", DATAGRAMS_MAX),
        Field(27, "window", Form.U32, "that its host had", default=0, most=wire_table.CREDITS_MAX),
        Field(26, "skipping", Form.U32, "of one that is dropped, what has not come", default=0, most=(1 << 16) - 1),
    ),
    check="datagram_side_check",
)

TABLE = Table(
    "dpu_proxy/native",
    VERSION,
    COMPATIBLE,
    {
        "ulp/ulp_mark.h": Header((ULP_MARK,), before=f"#define ULP_CONTROL_BYTES {CONTROL_BYTES}\n\n"),
        "connection/tcp_side.h": Header(
            (RUN, OUTGOING, RETURNED, TCP_SIDE),
            ("connection/spill.h", "wire/record.h", "ulp/ulp_mark.h", "worker/tcp_view.h"),
            """\
struct pushed;
struct returned_piece;
struct runs;

/* Bytes that another process had received and gave back: returned_bytes.c. */
struct returned {
	struct returned_piece *last; /* its next is the first; NULL: there are none */
};

""",
        ),
        "ulp/tls/tls_direction_struct.h": Header((TLS_DIRECTION, TLS_STATE), ("wire/record.h",)),
        "ulp/tls/tls_resumption_struct.h": Header((TLS_RESUMPTION,), ("wire/record.h",)),
        "datagrams/datagram_side.h": Header(
            (DATAGRAM_GROUP, DATAGRAM_SIDE),
            ("wire/record.h",),
            """\
struct datagram_group;

struct datagram_groups {
	struct datagram_group *groups;
	uint32_t count, room;
};

""",
        ),
        **record_framing.HEADERS,
        **record_messages.HEADERS,
        "pushed/pushed_state.h": Header((PUSHED_STATE,), ("wire/record.h", "ulp/ulp_moved.h")),
    },
)
RECORDS = TABLE.records


def views(record: Record = TCP_SIDE, path: str = "") -> Iterator[tuple[str, Field]]:
    """Where in the struct each field lies that may be shown ("out.sent_bytes"), those of its parts among them."""
    for field in record.fields:
        if field.view:
            yield path + field.name, field
        if field.form is Form.RECORD:
            yield from views(RECORDS[field.of], f"{path}{field.name}.")
