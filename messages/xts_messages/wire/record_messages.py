"""The same of HTTP2, GRPC, NVME_TCP and MPA (record_framing.py)."""

from __future__ import annotations

from .record_fields import SINCE, STATE_MAX, ahead, flag, numeric, octets, part, stream, u8, u16, u32, u64, waiting
from .record_form import Field, Form, Header, Privacy, Record

# --- HTTP/2 ---------------------------------------------------------------------------------------------------------

FRAME_MAX = (1 << 24) - 1
FRAME_HEAD = 9

HTTP2_FRAME = Record(
    "http2_frame",
    "The header of a frame of HTTP/2.",
    (
        u32(1, "length", "of the payload", FRAME_MAX),
        u8(2, "type", "enum http2_type, or another"),
        u8(3, "flags", "enum http2_flag"),
        u32(4, "stream", "its number; 0: the connection"),
    ),
)

HTTP2_PASSING = Record(
    "http2_passing",
    "A frame on its way to the host.",
    (
        octets(1, "head", "its header", FRAME_HEAD),
        u32(2, "got", "of the header", FRAME_HEAD),
        u32(3, "given", "of header and payload, delivered to the host"),
        part(4, "frame", "http2_frame", "the header, if it is complete"),
    ),
    check="http2_passing_check",
    alone=True,
)

HTTP2_WALK = Record(
    "http2_walk",
    "Where a walk over frames is that pass in pieces.",
    (
        octets(1, "head", "of the frame", FRAME_HEAD),
        octets(2, "entry", "of SETTINGS", 6),
        u8(3, "got", "of the header", FRAME_HEAD),
        u8(4, "entry_got", "of the setting", 5),
        u32(5, "left", "of the payload", FRAME_MAX),
        part(6, "frame", "http2_frame", "the header"),
        u16(7, "setting", "the last one found"),
        u32(8, "value", "of that"),
    ),
    alone=True,
)

HTTP2 = Record(
    "http2",
    "HTTP2: frames as PDUs (http2.c).",
    (
        u8(1, "role", "enum role", 2),
        u32(2, "frame_bytes_max", "the longest payload that the application takes", FRAME_MAX),
        flag(3, "preface_due", "the preface has to be sent"),
        ahead(4),
        octets(5, "preface", "of the client, as it comes", 24),
        u32(6, "preface_got", "how much of it", 24),
        part(7, "passing", "http2_passing", "what comes"),
        flag(8, "checked", "the header of the current frame"),
        u32(9, "last_stream", "the peer's highest stream, for GOAWAY"),
        waiting(10, "out", "the preface, or GOAWAY"),
        part(11, "walk", "http2_walk", "over what is sent"),
        flag(12, "in_pdu", "more of the PDU has to be sent"),
        u32(13, "pdu_left", "of it; UINT32_MAX: not known"),
    ),
    alone=True,
)

# --- gRPC -----------------------------------------------------------------------------------------------------------

PREFIX = 5
STREAMS_MAX = 1 << 16
MESSAGE_MAX = 1 << 30

GRPC_STREAM = Record(
    "grpc_moved_stream",
    "An open stream (struct grpc_stream).",
    (
        u32(1, "id", "its number"),
        flag(2, "local_ended", "we send no more on it"),
        flag(3, "remote_ended", "the peer sends no more"),
        Field(
            4,
            "send_window",
            Form.U32,
            "what the peer lets us send, signed: negative when it has shrunk it",
            default=0,
            since=SINCE,
            c_type="int32_t",
        ),
        u32(5, "to_return", "bytes received and not yet given back to the peer's window"),
        octets(6, "prefix", "of the message that is being gathered", PREFIX),
        u8(7, "prefix_got", "how much of it", PREFIX),
        u32(8, "length", "of the message", MESSAGE_MAX),
        Field(
            9,
            "message",
            Form.STREAM,
            "what has come of it",
            default=0,
            most=STATE_MAX,
            since=SINCE,
            privacy=Privacy.CONTENT,
            c_type="struct xts_record_bytes",
            ops="xts_record_bytes_stream",
        ),
    ),
)

GRPC_RECEIVE = Record(
    "grpc_receive",
    "What comes (grpc_receive.c).",
    (
        ahead(1),
        part(2, "passing", "http2_passing", "the frame"),
        part(3, "walk", "http2_walk", "over the frames that pass"),
        u8(4, "phase", "enum grpc_phase", 7),
        u32(5, "frame_bytes", "of a DATA frame: its length", FRAME_MAX),
        u32(6, "left", "what is left of its messages", FRAME_MAX),
        u32(7, "padding", "its padding", FRAME_MAX),
        octets(8, "small", "a number that comes", 4),
        u32(9, "small_got", "how much of it", 4),
        u32(10, "message_bytes", "of the message that goes to the host", MESSAGE_MAX),
        u32(11, "given", "what the host has of it", MESSAGE_MAX),
        u8(12, "message_flags", "enum grpc_flag"),
        stream(13, "gathered", "a message that was gathered, in GRPC_GATHERED", STATE_MAX, "grpc_buffer"),
    ),
    check="grpc_receive_check",
)

GRPC_SEND = Record(
    "grpc_send",
    "What is sent (grpc_send.c).",
    (
        flag(1, "in_pdu", "more of the PDU has to be sent"),
        u8(2, "kind", "enum grpc_kind", 1),
        u8(3, "flags", "enum grpc_flag"),
        u32(4, "stream", "of the message"),
        u64(5, "left", "of the PDU; UINT64_MAX: not known"),
        octets(6, "head", "of the frame that has begun, and what it has of the prefix", FRAME_HEAD + PREFIX),
        u8(7, "head_bytes", "how long that is", FRAME_HEAD + PREFIX),
        u8(8, "head_given", "what TCP has of it", FRAME_HEAD + PREFIX),
        u32(9, "frame_left", "payload still to come from the host", FRAME_MAX),
        u32(10, "frame_bytes", "the length of the frame", FRAME_MAX + FRAME_HEAD),
        octets(11, "prefix", "of the message", PREFIX),
        u8(12, "prefix_given", "what frames have of it", PREFIX),
        part(13, "walk", "http2_walk", "over the application's frames"),
        flag(14, "headers_open", "a CONTINUATION frame has to follow"),
        flag(15, "blocked", "by a window"),
        waiting(16, "control", "WINDOW_UPDATEs that wait for the end of a frame, or for TCP"),
    ),
    check="grpc_send_check",
)

GRPC = Record(
    "grpc",
    "GRPC: messages of all streams (grpc.c).",
    (
        u32(1, "message_bytes_max", "of a message that comes"),
        u32(2, "streams_max", "that may be open", STREAMS_MAX),
        u32(3, "buffered_max", "bytes of messages that are being gathered", MESSAGE_MAX),
        flag(4, "client", "the streams that it opens are odd"),
        Field(
            5,
            "streams",
            Form.LIST,
            "that are open",
            default=0,
            most=STREAMS_MAX,
            since=SINCE,
            privacy=Privacy.CONTENT,
            charged=("XTS_USE_ULP_BYTES",),
            c_type="struct grpc_streams",
            ops="grpc_streams_list",
            of="grpc_moved_stream",
        ),
        u32(6, "last_local", "the highest stream that our side has opened"),
        u32(7, "last_remote", "the same of the peer"),
        Field(
            8,
            "send_window",
            Form.U64,
            "of the connection; signed",
            default=0,
            since=SINCE,
            c_type="int64_t",
        ),
        numeric(9, "peer_initial_window", Form.I32, "of a stream, as the peer has set it"),
        numeric(10, "local_initial_window", Form.I32, "as the application has"),
        u32(11, "window_changes", "how often the peer has changed its initial window"),
        u32(12, "peer_frame_bytes_max", "the longest payload that the peer takes", FRAME_MAX),
        u32(13, "to_return", "of the connection: received and not yet given back to the peer's window"),
        part(14, "receive", "grpc_receive", "what comes"),
        part(15, "send", "grpc_send", "what is sent"),
    ),
    check="grpc_check",
    behind="""\
struct ulp_layer *layer;
uint32_t buffered; /* bytes allocated for messages that are being gathered */""",
    alone=True,
)

# --- NVMe/TCP -------------------------------------------------------------------------------------------------------

NVME_PDU = Record(
    "nvme_pdu",
    "The common header of a PDU.",
    (
        u8(1, "type", "enum nvme_type"),
        u8(2, "flags", "enum nvme_flag"),
        u8(3, "pdo", "where the data are"),
        u32(4, "plen", "of all of it"),
    ),
    behind="struct nvme_kind kind; /* of its type */",
)

NVME_RECEIVE = Record(
    "nvme_receive",
    "What comes (nvme_tcp_receive.c).",
    (
        ahead(1),
        part(2, "pdu", "nvme_pdu", "the current PDU"),
        octets(3, "head", "everything before the data", 256),
        u32(4, "head_got", "how much of that", 256),
        u32(5, "head_bytes", "how long it is; 0: the common header is not complete", 255),
        u32(6, "data_bytes", "of the plain form: bytes of data"),
        u32(7, "given", "bytes delivered to the host"),
        flag(8, "ready", "the header is checked, and in plain form"),
        u8(9, "digests", "which ones this PDU has", 3),
        u32(10, "crc", "of the data so far"),
        octets(11, "digest", "as it comes", 4),
        u32(12, "digest_got", "how much of it", 4),
        flag(13, "held", "the last byte of the data waits for the digest"),
        u8(14, "last", "that byte"),
    ),
)

NVME_SEND = Record(
    "nvme_send",
    "What is sent (nvme_tcp_send.c).",
    (
        waiting(1, "out", "a header or a digest"),
        flag(2, "in_pdu", "more of the PDU has to be sent"),
        u32(3, "pdu_bytes", "as announced; 0: not known before its header is here"),
        u32(4, "taken", "of these"),
        octets(5, "head", "as the host sends it", 128),
        u32(6, "head_got", "how much of it", 128),
        u32(7, "head_bytes", "how long it is; 0: the common header is not complete", 128),
        u32(8, "data_left", "of the data"),
        flag(9, "digest", "the data digest is still to be sent"),
        u32(10, "crc", "of the data so far"),
    ),
)

NVME_TCP = Record(
    "nvme_tcp",
    "NVME_TCP (nvme_tcp.c).",
    (
        u32(1, "pdu_bytes_max", "of a PDU that comes"),
        u32(2, "alignment", "of the data that we send", 128),
        flag(3, "negotiate", "ICReq and ICResp say which digests there are"),
        flag(4, "client", "it has connected"),
        u8(5, "requested", "by the ICReq; all until one is seen", 3),
        u8(6, "digests", "in force", 3),
        part(7, "receive", "nvme_receive", "what comes"),
        part(8, "send", "nvme_send", "what is sent"),
    ),
    check="nvme_tcp_check",
    alone=True,
)

# --- MPA ------------------------------------------------------------------------------------------------------------

ULPDU_MAX = (1 << 16) - 1

MPA_STREAM = Record(
    "mpa_stream",
    "One direction of the stream.",
    (
        flag(1, "markers", "it has them"),
        u64(2, "position", "of the next byte, in the stream of FPDUs"),
        u64(3, "begin", "position of this FPDU's ULPDU_Length field; UINT64_MAX: it has not come yet"),
        u32(4, "crc", "of this FPDU so far"),
    ),
)

MPA = Record(
    "mpa",
    "MPA: ULPDUs of FPDUs (mpa.c).",
    (
        flag(1, "no_crc", "both sides go without"),
        part(2, "from", "mpa_stream", "what comes"),
        ahead(3),
        octets(4, "marker", "as it comes", 4),
        octets(5, "length", "the same", 2),
        u32(6, "marker_got", "how much of that", 4),
        u32(7, "length_got", "how much of that", 2),
        u32(8, "bytes", "of the ULPDU: its length", ULPDU_MAX),
        u32(9, "given", "how much has been delivered", ULPDU_MAX),
        octets(10, "trailer", "padding and CRC", 7),
        u32(11, "trailer_got", "how much of that", 7),
        flag(12, "held", "the last byte waits for the CRC"),
        u8(13, "last", "that byte"),
        part(14, "to", "mpa_stream", "what is sent"),
        waiting(15, "out", "encoded"),
        flag(16, "in_pdu", "more of the PDU has to be sent"),
        u32(17, "pdu_bytes", "its length", ULPDU_MAX),
        u32(18, "left", "what of it has not been sent", ULPDU_MAX),
    ),
    check="mpa_check",
    alone=True,
)

HEADERS = {
    "ulp/http2/http2_state.h": Header((HTTP2_FRAME, HTTP2_PASSING, HTTP2_WALK, HTTP2), ("ulp/ulp.h",)),
    "ulp/grpc/grpc_state.h": Header(
        (GRPC_STREAM, GRPC_RECEIVE, GRPC_SEND, GRPC),
        ("ulp/http2/http2_state.h", "wire/record.h"),
        """\
struct grpc_stream;

/* The open streams: an array, with hash chains by the stream's number. */
struct grpc_streams {
	struct grpc_stream *stream;
	uint32_t *chain; /* as many as room */
	uint32_t room, used, free, open;
};

/* A message that was gathered; memory that is kept has no bytes. */
struct grpc_buffer {
	uint8_t *data;
	uint32_t room, bytes;
};

""",
    ),
    "ulp/nvme_tcp/nvme_tcp_state.h": Header(
        (NVME_PDU, NVME_RECEIVE, NVME_SEND, NVME_TCP),
        ("ulp/ulp.h",),
        """\
/* What a PDU of a type can have. header_bytes 0: there is no such type. */
struct nvme_kind {
	uint8_t header_bytes;
	uint8_t digests; /* enum nvme_digest */
	bool data;
	uint32_t bytes_max; /* of the whole PDU; 0: no limit */
};

""",
    ),
    "ulp/mpa/mpa_state.h": Header((MPA_STREAM, MPA), ("ulp/ulp.h",)),
}
