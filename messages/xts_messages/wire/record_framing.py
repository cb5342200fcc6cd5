"""Records of pushed protocols that find PDUs in a stream, and of the list of layers: what one has kept of a connection
that goes to another process of the proxy. The structs are those by which the protocols work (dpu_proxy/native/ulp)."""

from __future__ import annotations

from .record_fields import (
    AHEAD_MAX,
    CONTROL_BYTES,
    HEAD_MAX,
    SINCE,
    STATE_MAX,
    ahead,
    flag,
    octets,
    part,
    stream,
    u8,
    u16,
    u32,
    u64,
    waiting,
)
from .record_form import Field, Form, Header, Privacy, Record, Trust

LAYERS_MAX = 16
#: A push is one message.
PARAMETERS_MAX = 1 << 16

# --- the layers of a connection -------------------------------------------------------------------------------------

LAYER = Record(
    "ulp_moved_layer",
    "A pushed protocol of a connection (ulp/ulp_stack_move.c).",
    (
        u16(1, "protocol", "enum xts_ulp_id"),
        flag(2, "receive", "it reads"),
        flag(3, "send", "it writes"),
        flag(4, "finished", "nothing more has to be asked of it for the end of its stream"),
        Field(
            5,
            "state",
            Form.STREAM,
            "its own record",
            default=0,
            most=STATE_MAX,
            since=SINCE,
            privacy=Privacy.SECRET,
            trust=Trust.PROCESS,
            c_type="struct xts_record_bytes",
            ops="xts_record_bytes_stream",
        ),
        stream(
            6,
            "replay",
            "bytes that its host gave back: it reads them before what comes from below",
            STATE_MAX,
            "xts_record_bytes",
        ),
        stream(7, "again", "the same, to be delivered as they are", STATE_MAX, "xts_record_bytes"),
        stream(
            8,
            "parameters",
            "of one for both directions that is in one: the other half may be pushed with the same ones",
            PARAMETERS_MAX,
            "xts_record_bytes",
        ),
    ),
    alone=True,
)

# --- framing: the length is in the first bytes ----------------------------------------------------------------------

FRAMING_HEAD = Record(
    "ulp_framing_head",
    "What the first bytes of a PDU say of it.",
    (
        u32(1, "strip", "bytes of the header that are not delivered", HEAD_MAX),
        u64(2, "length", "of the PDU without these; more than max_bytes is a fault"),
        u16(3, "control_type", "its control data, as in struct ulp_mark"),
        u8(4, "control_bytes", "length of control", CONTROL_BYTES),
        octets(5, "control", "what the protocol says of the PDU", CONTROL_BYTES),
    ),
)

WAIT = Record(
    "ulp_wait",
    "How long a PDU that has begun has waited for the peer, by the monotonic clock.",
    (
        flag(1, "waiting", "every read since since_ns has found nothing"),
        u64(2, "since_ns", "when it was found first"),
        u64(3, "spent_ns", "before that"),
    ),
)

FRAMING = Record(
    "ulp_framing",
    "Finds PDUs that have their length in the first bytes (framing.h).",
    (
        u32(1, "max_bytes", "of a PDU"),
        u32(2, "timeout_ms", "for a PDU that has begun; 0: none"),
        part(3, "wait", "ulp_wait", "used by framing.c only, as all that follows"),
        part(4, "head", "ulp_framing_head", "of the current PDU"),
        u32(5, "left", "bytes of it that have not been delivered yet"),
        flag(6, "known", "a PDU has begun and its length is known"),
        flag(7, "starved", "more bytes are needed than are here"),
        ahead(8),
    ),
    check="ulp_framing_check",
    links="""\
/* Provided by the protocol. Parses the first bytes (1 to ULP_IN_BYTES) of a PDU. 1: *head is filled in; 0:
 * needs more bytes, which it must not say when it has HEAD_MAX bytes or more; else ulp_fail(). */
int (*parse)(struct ulp_layer *l, const uint8_t *data, uint32_t bytes, struct ulp_framing_head *head);""",
)

LENGTH_SENDER = Record(
    "length_sender",
    "A PDU on its way to the peer, with its length in front (length_prefix.c).",
    (
        u8(1, "state", "enum length_sender_state", 2),
        u64(2, "left", "of a PDU that is PASSING, not taken from the host yet"),
        waiting(3, "held", "the length, and behind it what has been gathered"),
    ),
)

LENGTH_FIELD = Record(
    "length_field",
    "A length at an offset from the beginning of a PDU (length_field.h).",
    (
        part(1, "framing", "ulp_framing", "first"),
        u32(2, "offset", "where the field is", HEAD_MAX),
        u32(3, "unit", "of what it counts; starts as 1"),
        u64(4, "mask", "of the field; starts as all ones"),
        u64(5, "adjustment", "what is added; it is signed"),
        u8(6, "width", "bytes of the field", 8),
        u8(7, "shift", "to the right, behind the mask", 63),
        flag(8, "little_endian", "the field's order"),
        u32(9, "head_bytes", "how many bytes have to be here before the length is read", HEAD_MAX),
        u32(10, "strip", "bytes of the header that are not delivered", HEAD_MAX),
        u32(11, "pdu_bytes_min", "a PDU that is shorter is a fault"),
        u16(12, "control_type", "control data are part of the header, unchanged; 0: none"),
        u8(13, "control_offset", "where they begin", HEAD_MAX - 1),
        u8(14, "control_bytes", "how many", CONTROL_BYTES),
        u16(15, "block", "a PDU that is sent is padded to a multiple; 0: it is not"),
        part(16, "sender", "length_sender", "what is sent"),
    ),
    check="length_field_check",
    behind="""\
/* Checks that data, at least head_bytes long, is the beginning of a PDU: 0, or ulp_fail(). NULL: no check. */
int (*check)(struct ulp_layer *l, const uint8_t *data);
/* Pads a PDU that is sent to a multiple of block bytes, at most to room; returns its new length. NULL, or block
 * 0: no padding. */
uint32_t (*pad)(uint8_t *pdu, uint32_t bytes, uint32_t room, uint16_t block);""",
    alone=True,
)

STREAM_PARSER = Record(
    "stream_parser",
    "STREAM_PARSER: a length field, and bytes by which a PDU begins (stream_parser.c).",
    (
        part(1, "field", "length_field", "first"),
        u32(2, "magic_offset", "where these bytes are", HEAD_MAX),
        u8(3, "magic_bytes", "how many", CONTROL_BYTES),
        u8(4, "magic_mask_bytes", "how many of their mask were given", CONTROL_BYTES),
        octets(5, "magic", "these bytes", CONTROL_BYTES, Privacy.OPEN),
        octets(6, "magic_mask", "which of their bits are compared", CONTROL_BYTES, Privacy.OPEN),
    ),
    check="stream_parser_check",
    behind="bool has_offset, has_magic_offset; /* while it is pushed */",
)

BPF_PARSER = Record(
    "bpf_parser",
    "BPF_PARSER: a program that the operator has named (bpf_parser.c).",
    (
        part(1, "framing", "ulp_framing", "first"),
        Field(
            2,
            "name",
            Form.OCTETS,
            "of the program, with a NUL behind it",
            default=0,
            most=64,
            since=SINCE,
            c_type="char",
        ),
    ),
    behind="int program_fd; /* owned by the configuration */",
)

# --- lines ----------------------------------------------------------------------------------------------------------

DELIMITER_MAX = 8

LINES_SENDING = Record(
    "lines_sending",
    "A line on its way to the peer.",
    (
        u64(1, "length", "bytes of the current PDU that the layer below has taken"),
        u64(2, "checked", "bytes of it that have been checked; more than length when not all were taken"),
        u64(3, "window", "its last bytes"),
        u8(4, "delimiter_left", "bytes of the delimiter that the layer below has not taken yet", DELIMITER_MAX),
    ),
)

LINES = Record(
    "lines",
    "LINES: one PDU per line (lines.c).",
    (
        u32(1, "max_bytes", "of a line"),
        part(2, "sending", "lines_sending", "what is sent"),
        octets(3, "delimiter", "that ends a line", DELIMITER_MAX, Privacy.OPEN),
        u8(4, "delimiter_bytes", "how long it is", DELIMITER_MAX),
        flag(5, "keep", "it is part of the PDU"),
        u64(6, "handed", "bytes of the current line that have been delivered"),
        u32(
            7,
            "ending",
            "once the end of the line is found, its bytes that are still to deliver: a delimiter that the reader's "
            "room cuts in two is not found again",
            AHEAD_MAX,
        ),
        flag(8, "starved", "what was read ahead has been searched, and none of it can be delivered yet"),
        ahead(9),
    ),
    check="lines_check",
    behind="uint64_t delimiter_value, delimiter_mask; /* of the delimiter, as in sending.window */",
)

HEADERS = {
    "ulp/ulp_moved_layer.h": Header(
        (LAYER,),
        ("wire/record.h",),
    ),
    "ulp/framing/framing_state.h": Header(
        (FRAMING_HEAD, WAIT, FRAMING, LENGTH_SENDER, LENGTH_FIELD, STREAM_PARSER, BPF_PARSER, LINES_SENDING, LINES),
        ("ulp/ulp.h",),
    ),
}
