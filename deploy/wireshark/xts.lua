-- Generated from messages/xts_messages/wire/wire_table.py by `python -m xts_messages.generate`. Do not edit.
-- Use: tshark -X lua_script:xts.lua …, or copy it to Wireshark's plugin folder (Help, About, Folders).

local ETHERTYPE = 0x855B
local ETH_BYTES, HEAD_BYTES, ETH_MIN_BYTES = 14, 24, 60
local BUNDLE_BYTES = 28
local HEAD_TYPE = 14
local HEAD_SEQNO = 15
local HEAD_FRAME_ACK = 16
local HEAD_FLAGS = 17
local HEAD_ERROR = 18
local HEAD_ID = 20
local ENDPOINT_PORT = 0
local ENDPOINT_IP_VERSION = 2
local ENDPOINT_RESERVED = 3
local ENDPOINT_SCOPE_ID = 4
local ENDPOINT_ADDRESS = 8
local RECORD = { data_bytes = 0, segment_bytes = 2, control_bytes = 4, reserved = 6, endpoint = 8, bytes = 32, endpoint_bytes = 24 }
local ENDPOINT_IP_VERSIONS = { 0, 4, 6 }

local errno_names = {
	[0] = "none",
	[1] = "EPERM",
	[2] = "ENOENT",
	[3] = "ESRCH",
	[4] = "EINTR",
	[5] = "EIO",
	[6] = "ENXIO",
	[7] = "E2BIG",
	[8] = "ENOEXEC",
	[9] = "EBADF",
	[10] = "ECHILD",
	[11] = "EAGAIN",
	[12] = "ENOMEM",
	[13] = "EACCES",
	[14] = "EFAULT",
	[15] = "ENOTBLK",
	[16] = "EBUSY",
	[17] = "EEXIST",
	[18] = "EXDEV",
	[19] = "ENODEV",
	[20] = "ENOTDIR",
	[21] = "EISDIR",
	[22] = "EINVAL",
	[23] = "ENFILE",
	[24] = "EMFILE",
	[25] = "ENOTTY",
	[26] = "ETXTBSY",
	[27] = "EFBIG",
	[28] = "ENOSPC",
	[29] = "ESPIPE",
	[30] = "EROFS",
	[31] = "EMLINK",
	[32] = "EPIPE",
	[33] = "EDOM",
	[34] = "ERANGE",
	[35] = "EDEADLK",
	[36] = "ENAMETOOLONG",
	[37] = "ENOLCK",
	[38] = "ENOSYS",
	[39] = "ENOTEMPTY",
	[40] = "ELOOP",
	[42] = "ENOMSG",
	[43] = "EIDRM",
	[44] = "ECHRNG",
	[45] = "EL2NSYNC",
	[46] = "EL3HLT",
	[47] = "EL3RST",
	[48] = "ELNRNG",
	[49] = "EUNATCH",
	[50] = "ENOCSI",
	[51] = "EL2HLT",
	[52] = "EBADE",
	[53] = "EBADR",
	[54] = "EXFULL",
	[55] = "ENOANO",
	[56] = "EBADRQC",
	[57] = "EBADSLT",
	[59] = "EBFONT",
	[60] = "ENOSTR",
	[61] = "ENODATA",
	[62] = "ETIME",
	[63] = "ENOSR",
	[64] = "ENONET",
	[65] = "ENOPKG",
	[66] = "EREMOTE",
	[67] = "ENOLINK",
	[68] = "EADV",
	[69] = "ESRMNT",
	[70] = "ECOMM",
	[71] = "EPROTO",
	[72] = "EMULTIHOP",
	[73] = "EDOTDOT",
	[74] = "EBADMSG",
	[75] = "EOVERFLOW",
	[76] = "ENOTUNIQ",
	[77] = "EBADFD",
	[78] = "EREMCHG",
	[79] = "ELIBACC",
	[80] = "ELIBBAD",
	[81] = "ELIBSCN",
	[82] = "ELIBMAX",
	[83] = "ELIBEXEC",
	[84] = "EILSEQ",
	[85] = "ERESTART",
	[86] = "ESTRPIPE",
	[87] = "EUSERS",
	[88] = "ENOTSOCK",
	[89] = "EDESTADDRREQ",
	[90] = "EMSGSIZE",
	[91] = "EPROTOTYPE",
	[92] = "ENOPROTOOPT",
	[93] = "EPROTONOSUPPORT",
	[94] = "ESOCKTNOSUPPORT",
	[95] = "EOPNOTSUPP",
	[96] = "EPFNOSUPPORT",
	[97] = "EAFNOSUPPORT",
	[98] = "EADDRINUSE",
	[99] = "EADDRNOTAVAIL",
	[100] = "ENETDOWN",
	[101] = "ENETUNREACH",
	[102] = "ENETRESET",
	[103] = "ECONNABORTED",
	[104] = "ECONNRESET",
	[105] = "ENOBUFS",
	[106] = "EISCONN",
	[107] = "ENOTCONN",
	[108] = "ESHUTDOWN",
	[109] = "ETOOMANYREFS",
	[110] = "ETIMEDOUT",
	[111] = "ECONNREFUSED",
	[112] = "EHOSTDOWN",
	[113] = "EHOSTUNREACH",
	[114] = "EALREADY",
	[115] = "EINPROGRESS",
	[116] = "ESTALE",
	[117] = "EUCLEAN",
	[118] = "ENOTNAM",
	[119] = "ENAVAIL",
	[120] = "EISNAM",
	[121] = "EREMOTEIO",
	[122] = "EDQUOT",
	[123] = "ENOMEDIUM",
	[124] = "EMEDIUMTYPE",
	[125] = "ECANCELED",
	[126] = "ENOKEY",
	[127] = "EKEYEXPIRED",
	[128] = "EKEYREVOKED",
	[129] = "EKEYREJECTED",
	[130] = "EOWNERDEAD",
	[131] = "ENOTRECOVERABLE",
	[132] = "ERFKILL",
	[133] = "EHWPOISON",
}

local refusal_names = {
	[0] = "none",
	[1] = "CONNECT_POLICY",
	[2] = "LISTEN_POLICY",
	[3] = "STOPPING",
	[4] = "CONNECTIONS",
	[5] = "LISTENERS",
	[6] = "SOCKETS",
	[7] = "WINDOWS",
	[8] = "DEVICE_DESCRIPTORS",
	[9] = "DEVICE_MEMORY",
	[10] = "OPTION",
	[11] = "SHARED_LISTENERS",
	[12] = "PARKED",
	[13] = "RELAYED",
	[14] = "NAME_POLICY",
	[15] = "LOOKUPS",
	[16] = "GROUPS",
	[17] = "DEVICE_GROUPS",
	[18] = "FILTERS",
	[19] = "FILTER_LOADS",
	[20] = "FILTER_NAME",
	[21] = "LOCAL_PORTS",
	[22] = "BIND_PORTS",
	[23] = "LOW_PORT",
	[24] = "RELIABLE",
}

local type_names = {
	[1] = "XTS_CMD_CONNECT",
	[2] = "XTS_REPLY_CONNECT_ACK",
	[3] = "XTS_CMD_LISTEN",
	[4] = "XTS_REPLY_LISTEN_ACK",
	[5] = "XTS_REPLY_NEWCONN",
	[6] = "XTS_CMD_NEWCONN_ACK",
	[7] = "XTS_CMD_SEND",
	[8] = "XTS_REPLY_RECV",
	[16] = "XTS_LINK_HELLO",
	[17] = "XTS_LINK_HELLO_ACK",
	[18] = "XTS_LINK_FRAME_ACK",
	[19] = "XTS_LINK_PING",
	[20] = "XTS_LINK_PONG",
	[21] = "XTS_LINK_GOODBYE",
	[22] = "XTS_LINK_BUNDLE",
	[23] = "XTS_LINK_TOKEN",
	[24] = "XTS_LINK_CLOCK",
	[25] = "XTS_LINK_CLOCK_ACK",
	[26] = "XTS_LINK_CATCH_UP",
	[27] = "XTS_LINK_CAUGHT_UP",
	[240] = "XTS_LINK_REPLACED",
	[241] = "XTS_LINK_OVER",
	[28] = "XTS_LINK_HEADED",
	[29] = "XTS_LINK_PROBE",
	[32] = "XTS_CMD_BIND",
	[31] = "XTS_LINK_PART",
	[30] = "XTS_LINK_ARQ",
	[33] = "XTS_REPLY_BIND_ACK",
	[34] = "XTS_CMD_SETSOCKOPT",
	[35] = "XTS_CMD_GETSOCKOPT",
	[36] = "XTS_REPLY_SOCKOPT_ACK",
	[37] = "XTS_CMD_IOCTL",
	[38] = "XTS_REPLY_IOCTL_ACK",
	[39] = "XTS_CMD_SHARE",
	[40] = "XTS_REPLY_SHARE_ACK",
	[41] = "XTS_CMD_PARK",
	[42] = "XTS_REPLY_PARK_ACK",
	[43] = "XTS_CMD_CLAIM",
	[44] = "XTS_REPLY_CLAIM_ACK",
	[45] = "XTS_CMD_SEND_PDU",
	[46] = "XTS_REPLY_RECV_PDU",
	[47] = "XTS_CMD_GIVE_BACK",
	[48] = "XTS_RELAY_CARRIED",
	[49] = "XTS_CMD_TAKE",
	[50] = "XTS_REPLY_TAKE_ACK",
	[51] = "XTS_REPLY_YIELD",
	[53] = "XTS_REPLY_GATHERED",
	[52] = "XTS_CMD_RETURN",
	[54] = "XTS_CMD_CANCEL",
	[55] = "XTS_REPLY_MOVE",
	[56] = "XTS_CMD_MOVE_ACK",
	[60] = "XTS_CMD_RESUME",
	[57] = "XTS_CMD_SHUT_LISTENER",
	[58] = "XTS_REPLY_SHUT_LISTENER_ACK",
	[59] = "XTS_REPLY_LISTENING",
	[64] = "XTS_CMD_OPEN_DATAGRAM",
	[65] = "XTS_REPLY_OPEN_DATAGRAM_ACK",
	[66] = "XTS_CMD_CONNECT_DATAGRAM",
	[67] = "XTS_REPLY_CONNECT_DATAGRAM_ACK",
	[68] = "XTS_CMD_SEND_DATAGRAMS",
	[69] = "XTS_REPLY_RECV_DATAGRAMS",
	[71] = "XTS_CMD_RETURN_DATAGRAMS",
	[80] = "XTS_CMD_QUERY_NAME",
	[81] = "XTS_REPLY_NAME_ACK",
}

local common = {
	type = ProtoField.uint8("xts.type", "Type", base.DEC, type_names, nil, "the message's type"),
	seqno = ProtoField.uint8("xts.seqno", "Seqno", base.DEC, nil, nil, "sequence number, modulo 256; of a link frame: that of the next sequenced message"),
	frame_ack = ProtoField.uint8("xts.frame_ack", "Frame ack", base.UNIT_STRING, { " frame", " frames" }, nil, "frames whose buffers the sender has recycled, modulo 256"),
	flags = ProtoField.uint8("xts.flags", "Flags", base.HEX, nil, nil, "XTS_FLAG_*; in a reply to a request: its refusal (XTS_REFUSED_*), 0 for none"),
	error = ProtoField.uint16("xts.error", "Error", base.DEC, errno_names, nil, "Linux errno, 0 for none"),
	id = ProtoField.uint32("xts.id", "Id", base.HEX, nil, nil, "the target's identifier"),
	refusal = ProtoField.uint8("xts.refusal", "Refusal", base.DEC, refusal_names, nil, "why it failed"),
	payload = ProtoField.bytes("xts.payload", "Payload", base.NONE, "what the length field counts"),
	stream = ProtoField.uint32("xts.stream", "Stream", base.DEC, nil, nil, "the socket, both ways"),
	trailer = ProtoField.bytes("xts.trailer", "Trailer", base.NONE, "padding, or unknown to this version"),
}

local flags = {
	{ name = "FIN", bit = 0x01 },
	{ name = "CLOSE", bit = 0x02 },
	{ name = "ABORT", bit = 0x04 },
	{ name = "LINGER", bit = 0x08 },
	{ name = "MORE", bit = 0x10 },
	{ name = "EOS", bit = 0x20 },
	{ name = "RESET", bit = 0x40 },
	{ name = "CLOSED", bit = 0x80 },
}

local flag_fields = {
	FIN = ProtoField.bool("xts.flags.fin", "FIN", 8, nil, 0x01, "no more data from the host: half-close (shutdown SHUT_WR)"),
	CLOSE = ProtoField.bool("xts.flags.close", "CLOSE", 8, nil, 0x02, "the host has closed the socket; the proxy confirms with CLOSED"),
	ABORT = ProtoField.bool("xts.flags.abort", "ABORT", 8, nil, 0x04, "with CLOSE: reset the connection, drop what is not sent (SO_LINGER 0, unread data)"),
	LINGER = ProtoField.bool("xts.flags.linger", "LINGER", 8, nil, 0x08, "with CLOSE: confirm only when all data is acknowledged by the TCP peer"),
	MORE = ProtoField.bool("xts.flags.more", "MORE", 8, nil, 0x10, "more data follows at once (MSG_MORE)"),
	EOS = ProtoField.bool("xts.flags.eos", "EOS", 8, nil, 0x20, "end of stream: the TCP peer has sent FIN"),
	RESET = ProtoField.bool("xts.flags.reset", "RESET", 8, nil, 0x40, "the connection has failed; error says how"),
	CLOSED = ProtoField.bool("xts.flags.closed", "CLOSED", 8, nil, 0x80, "answer to CLOSE: both identifiers are free"),
}

-- The fields of the messages, by filter name.
local fields = {
	["xts.xts_socket"] = ProtoField.uint32("xts.xts_socket", "XTS socket", base.HEX, nil, nil, "the host's identifier of this socket"),
	["xts.post_credits"] = ProtoField.uint32("xts.post_credits", "Post credits", base.UNIT_STRING, { " byte", " bytes" }, nil, "post credits granted with this message"),
	["xts.domain"] = ProtoField.uint32("xts.domain", "Domain", base.DEC, nil, nil, "4 or 6: the family of the socket, should the proxy have to create it / 4 or 6: the family of the socket"),
	["xts.length"] = ProtoField.uint32("xts.length", "Length", base.UNIT_STRING, { " byte", " bytes" }, nil, "bytes of payload"),
	["xts.proxy_id"] = ProtoField.uint32("xts.proxy_id", "Proxy id", base.HEX, nil, nil, "the proxy's identifier of this socket"),
	["xts.token"] = ProtoField.uint32("xts.token", "Token", base.HEX, nil, nil, "repeated in the reply"),
	["xts.listen.post_credits"] = ProtoField.uint32("xts.listen.post_credits", "Post credits", base.UNIT_STRING, { " connection", " connections" }, nil, "connections that may wait for accept"),
	["xts.backlog"] = ProtoField.uint32("xts.backlog", "Backlog", base.UNIT_STRING, { " connection", " connections" }, nil, "as in listen(2) / that of the last LISTEN"),
	["xts.version"] = ProtoField.uint16("xts.version", "Version", base.DEC, nil, nil, "wire version / wire version spoken"),
	["xts.frame_window"] = ProtoField.uint16("xts.frame_window", "Frame window", base.UNIT_STRING, { " frame", " frames" }, nil, "largest window wanted / window in force, each way"),
	["xts.largest_message"] = ProtoField.uint32("xts.largest_message", "Largest message", base.UNIT_STRING, { " byte", " bytes" }, nil, "largest frame the host can receive / largest frame in force, each way"),
	["xts.features"] = ProtoField.uint64("xts.features", "Features", base.HEX, nil, nil, "feature bits offered / feature bits in force"),
	["xts.required"] = ProtoField.uint64("xts.required", "Required", base.HEX, nil, nil, "feature bits the host cannot do without"),
	["xts.epoch"] = ProtoField.uint64("xts.epoch", "Epoch", base.HEX, nil, nil, "random number of this attachment / repeats the HELLO's / the epoch that ends; 0, of a proxy: it knows of none / that of the HELLO / that has ended / of the process that has told of them, with OVER in force; it may have ended / that of the attachment"),
	["xts.pid"] = ProtoField.uint32("xts.pid", "PID", base.DEC, nil, nil, "the host process, for the operator's eyes only"),
	["xts.sockets_max"] = ProtoField.uint32("xts.sockets_max", "Sockets max", base.UNIT_STRING, { " socket", " sockets" }, nil, "sockets this host may have"),
	["xts.ping.token"] = ProtoField.uint64("xts.ping.token", "Token", base.HEX, nil, nil, "repeated in the answer"),
	["xts.pong.token"] = ProtoField.uint64("xts.pong.token", "Token", base.HEX, nil, nil, "the ping's"),
	["xts.queue"] = ProtoField.uint32("xts.queue", "Queue", base.DEC, nil, nil, "the queue it was given; of a relay's queue: and whose, in the bits from 8 on"),
	["xts.uid"] = ProtoField.uint32("xts.uid", "Uid", base.DEC, nil, nil, "its user"),
	["xts.expires_ms"] = ProtoField.uint64("xts.expires_ms", "Expires ms", base.DEC, nil, nil, "the HELLO comes before, in milliseconds since 1970"),
	["xts.mac_high"] = ProtoField.uint64("xts.mac_high", "Mac high", base.DEC, nil, nil, "first eight bytes of HMAC-SHA256 under the key that agent and proxy share"),
	["xts.mac_low"] = ProtoField.uint64("xts.mac_low", "Mac low", base.DEC, nil, nil, "and the next eight"),
	["xts.clock.token"] = ProtoField.uint64("xts.clock.token", "Token", base.HEX, nil, nil, "repeated in the answer"),
	["xts.clock_ack.token"] = ProtoField.uint64("xts.clock_ack.token", "Token", base.HEX, nil, nil, "the question's"),
	["xts.time_ns"] = ProtoField.uint64("xts.time_ns", "Time ns", base.DEC, nil, nil, "the device's clock: nanoseconds since 1970 (CLOCK_REALTIME)"),
	["xts.error_ns"] = ProtoField.uint64("xts.error_ns", "Error ns", base.DEC, nil, nil, "how far it may be from the time that it follows (by PTP or NTP: maxerror of adjtimex(2)); all ones: it follows none"),
	["xts.catch_up.token"] = ProtoField.uint64("xts.catch_up.token", "Token", base.HEX, nil, nil, "repeated in the answer; never 0"),
	["xts.caught_up.token"] = ProtoField.uint64("xts.caught_up.token", "Token", base.HEX, nil, nil, "the request's"),
	["xts.ticket"] = ProtoField.uint64("xts.ticket", "Ticket", base.DEC, nil, nil, "by which the host claims its sockets there; never 0 / by which the host claims its sockets there / of the MOVE"),
	["xts.secret"] = ProtoField.uint64("xts.secret", "Secret", base.DEC, nil, nil, "that of the attachment; 0 without the part SECRET"),
	["xts.reserved_high"] = ProtoField.uint64("xts.reserved_high", "Reserved high", base.DEC, nil, nil, "0"),
	["xts.reserved_low"] = ProtoField.uint32("xts.reserved_low", "Reserved low", base.DEC, nil, nil, "0"),
	["xts.parts"] = ProtoField.uint16("xts.parts", "Parts", base.DEC, nil, nil, "bits: which of these the head has"),
	["xts.round"] = ProtoField.uint64("xts.round", "Round", base.DEC, nil, nil, "of the probes of an agent; not 0"),
	["xts.arrived_on"] = ProtoField.uint32("xts.arrived_on", "Arrived on", base.DEC, nil, nil, "0 on the way there; on the way back the queue it arrived on, plus one"),
	["xts.back"] = ProtoField.uint16("xts.back", "Back", base.DEC, nil, nil, "0 on the way there, 1 on the way back"),
	["xts.frame_bytes"] = ProtoField.uint32("xts.frame_bytes", "Frame bytes", base.UNIT_STRING, { " byte", " bytes" }, nil, "length of the frame behind its Ethernet header"),
	["xts.offset"] = ProtoField.uint32("xts.offset", "Offset", base.UNIT_STRING, { " byte", " bytes" }, nil, "what has come of it before"),
	["xts.sequence"] = ProtoField.uint32("xts.sequence", "Sequence", base.DEC, nil, nil, "number of this frame, modulo 2^32; 0 without the part NUMBERED"),
	["xts.first"] = ProtoField.uint32("xts.first", "First", base.DEC, nil, nil, "number of the first frame of its sender in this epoch"),
	["xts.arrived"] = ProtoField.uint32("xts.arrived", "Arrived", base.DEC, nil, nil, "all frames with lower numbers have arrived; 0 without the part ARRIVED"),
	["xts.selective_low"] = ProtoField.uint64("xts.selective_low", "Selective low", base.DEC, nil, nil, "bit N: frame `arrived` + 1 + N has arrived, too"),
	["xts.selective_high"] = ProtoField.uint64("xts.selective_high", "Selective high", base.DEC, nil, nil, "bit N: frame `arrived` + 65 + N has arrived, too"),
	["xts.transmission"] = ProtoField.uint32("xts.transmission", "Transmission", base.DEC, nil, nil, "number of this transmission: repeated frames have a new one each time"),
	["xts.heard"] = ProtoField.uint32("xts.heard", "Heard", base.DEC, nil, nil, "highest number of a transmission that has arrived"),
	["xts.checksum"] = ProtoField.uint32("xts.checksum", "Checksum", base.DEC, nil, nil, "CRC32C of the frame from its type on, with 0 in this field"),
	["xts.held_us"] = ProtoField.uint16("xts.held_us", "Held us", base.DEC, nil, nil, "for how long the sender has had `heard`; 65535: or longer"),
	["xts.duplicates"] = ProtoField.uint16("xts.duplicates", "Duplicates", base.DEC, nil, nil, "numbered frames that have come twice, modulo 2^16"),
	["xts.level"] = ProtoField.int32("xts.level", "Level", base.DEC, nil, nil, "as in setsockopt(2) / as in getsockopt(2)"),
	["xts.option"] = ProtoField.int32("xts.option", "Option", base.DEC, nil, nil, "as in setsockopt(2) / as in getsockopt(2)"),
	["xts.request"] = ProtoField.uint32("xts.request", "Request", base.HEX, nil, nil, "as in ioctl(2)"),
	["xts.key"] = ProtoField.uint64("xts.key", "Key", base.DEC, nil, nil, "random number that stands for the socket in whatever process knows it; never 0 / made of the ticket and the socket's old identifier, or 0"),
	["xts.keep_ms"] = ProtoField.uint32("xts.keep_ms", "Keep ms", base.DEC, nil, nil, "how long it outlives the process that gave this, if that ends without closing it and nobody else has it"),
	["xts.unread"] = ProtoField.uint32("xts.unread", "Unread", base.UNIT_STRING, { " byte", " bytes" }, nil, "bytes received that came with the claim and are still unread / bytes received that are still unread"),
	["xts.record_bytes"] = ProtoField.uint32("xts.record_bytes", "Record bytes", base.UNIT_STRING, { " byte", " bytes" }, nil, "length of the whole PDU, of all its messages; 0: not known here"),
	["xts.control_type"] = ProtoField.uint16("xts.control_type", "Control type", base.DEC, nil, nil, "what the control data is about: a ULP, 0 for none, or an event (XTS_CONTROL_*)"),
	["xts.control_bytes"] = ProtoField.uint16("xts.control_bytes", "Control bytes", base.UNIT_STRING, { " byte", " bytes" }, nil, "length of the control data"),
	["xts.control_high"] = ProtoField.uint64("xts.control_high", "Control high", base.DEC, nil, nil, "control data: its first eight bytes"),
	["xts.control_low"] = ProtoField.uint64("xts.control_low", "Control low", base.DEC, nil, nil, "and the others; zero beyond control_bytes"),
	["xts.purpose"] = ProtoField.uint32("xts.purpose", "Purpose", base.DEC, nil, nil, "what for: 0 if nobody has it, 1 to wait for events, 2 to receive, 3 any other use"),
	["xts.died"] = ProtoField.uint32("xts.died", "Died", base.DEC, nil, nil, "1: its last process has ended without parking it"),
	["xts.delivered_bytes"] = ProtoField.uint64("xts.delivered_bytes", "Delivered bytes", base.UNIT_STRING, { " byte", " bytes" }, nil, "that this process had been sent, if it has died"),
	["xts.accepted_bytes"] = ProtoField.uint64("xts.accepted_bytes", "Accepted bytes", base.UNIT_STRING, { " byte", " bytes" }, nil, "that had come from this process, if it has died"),
	["xts.kind"] = ProtoField.uint32("xts.kind", "Kind", base.DEC, nil, nil, "0: the end, 1: byte stream, 2: PDU"),
	["xts.within_ms"] = ProtoField.uint32("xts.within_ms", "Within ms", base.DEC, nil, nil, "for how long the host may wait for calls that are under way"),
	["xts.received_bytes"] = ProtoField.uint64("xts.received_bytes", "Received bytes", base.UNIT_STRING, { " byte", " bytes" }, nil, "what it was sent since it had the connection on a channel"),
	["xts.sent_bytes"] = ProtoField.uint64("xts.sent_bytes", "Sent bytes", base.UNIT_STRING, { " byte", " bytes" }, nil, "what it has sent since then"),
	["xts.fin_sent"] = ProtoField.uint32("xts.fin_sent", "Fin sent", base.DEC, nil, nil, "not 0: it has sent FIN"),
	["xts.listens"] = ProtoField.uint32("xts.listens", "Listens", base.DEC, nil, nil, "0: no, and it has not so far; 1: yes; 2: no, it was shut down. Connections offered before are reset"),
	["xts.receive_bytes"] = ProtoField.uint32("xts.receive_bytes", "Receive bytes", base.UNIT_STRING, { " byte", " bytes" }, nil, "SO_RCVBUF of the device's socket; 0: the default of the device's kernel"),
	["xts.dropped"] = ProtoField.uint32("xts.dropped", "Dropped", base.DEC, nil, nil, "datagrams that have arrived for this socket and were dropped so far, modulo 2^32 (as SO_RXQ_OVFL)"),
	["xts.families"] = ProtoField.uint32("xts.families", "Families", base.DEC, nil, nil, "of addresses that the device has, loopback and link-local left out: 1 IPv4, 2 IPv6; 0: not known"),
}

local endpoints = {
	["peer"] = {
		whole = ProtoField.none("xts.peer", "Peer", "address of the peer"),
		port = ProtoField.uint16("xts.peer.port", "Port", base.DEC, nil, nil, "port of TCP or UDP"),
		ip_version = ProtoField.uint8("xts.peer.ip_version", "IP version", base.DEC, nil, nil, "4, 6, or 0 for none"),
		reserved = ProtoField.uint8("xts.peer.reserved", "Reserved", base.DEC, nil, nil, "zero"),
		scope_id = ProtoField.uint32("xts.peer.scope_id", "Scope id", base.DEC, nil, nil, "IPv6 scope (the device's interface index), else 0"),
		address4 = ProtoField.ipv4("xts.peer.address4", "IPv4 address", "address of the peer"),
		address6 = ProtoField.ipv6("xts.peer.address6", "IPv6 address", "address of the peer"),
		address = ProtoField.bytes("xts.peer.address", "Address", base.NONE, "address of the peer"),
	},
	["local"] = {
		whole = ProtoField.none("xts.local", "Local", "local address of the socket"),
		port = ProtoField.uint16("xts.local.port", "Port", base.DEC, nil, nil, "port of TCP or UDP"),
		ip_version = ProtoField.uint8("xts.local.ip_version", "IP version", base.DEC, nil, nil, "4, 6, or 0 for none"),
		reserved = ProtoField.uint8("xts.local.reserved", "Reserved", base.DEC, nil, nil, "zero"),
		scope_id = ProtoField.uint32("xts.local.scope_id", "Scope id", base.DEC, nil, nil, "IPv6 scope (the device's interface index), else 0"),
		address4 = ProtoField.ipv4("xts.local.address4", "IPv4 address", "local address of the socket"),
		address6 = ProtoField.ipv6("xts.local.address6", "IPv6 address", "local address of the socket"),
		address = ProtoField.bytes("xts.local.address", "Address", base.NONE, "local address of the socket"),
	},
}

local messages = {
	[1] = {
		short = "CONNECT", bytes = 64,
		meaning = "start a connection, with protocols pushed onto it before its first byte (payload: xts_messages/wire/ulps.py)",
		id_of = "the proxy's identifier, or 0: create the socket", payload = "length",
		flags = {},
		sender = "host",
		fields = {
			{ name = "xts_socket", offset = 24, bytes = 4, field = "xts.xts_socket" },
			{ name = "post_credits", offset = 28, bytes = 4, field = "xts.post_credits", limit = 1073741824, shown = true },
			{ name = "domain", offset = 32, bytes = 4, field = "xts.domain", legal = { 0, 4, 6 } },
			{ name = "peer", offset = 36, bytes = 24, endpoint = "peer" },
			{ name = "length", offset = 60, bytes = 4, field = "xts.length", limit = 61440, shown = true },
		},
	},
	[2] = {
		short = "CONNECT_ACK", bytes = 80,
		meaning = "the connection is established, or error says why not",
		id_of = "XTS socket", payload = nil,
		flags = {},
		refusal = true,
		sender = "proxy",
		fields = {
			{ name = "proxy_id", offset = 24, bytes = 4, field = "xts.proxy_id" },
			{ name = "post_credits", offset = 28, bytes = 4, field = "xts.post_credits", limit = 1073741824, shown = true },
			{ name = "local", offset = 32, bytes = 24, endpoint = "local" },
			{ name = "peer", offset = 56, bytes = 24, endpoint = "peer" },
		},
	},
	[3] = {
		short = "LISTEN", bytes = 44,
		meaning = "start a listener; each post credit is one connection of the backlog",
		id_of = "the proxy's identifier, or 0: create the socket", payload = nil,
		flags = {},
		sender = "host",
		fields = {
			{ name = "xts_socket", offset = 24, bytes = 4, field = "xts.xts_socket" },
			{ name = "token", offset = 28, bytes = 4, field = "xts.token" },
			{ name = "post_credits", offset = 32, bytes = 4, field = "xts.listen.post_credits", limit = 1073741824, shown = true },
			{ name = "domain", offset = 36, bytes = 4, field = "xts.domain", legal = { 0, 4, 6 } },
			{ name = "backlog", offset = 40, bytes = 4, field = "xts.backlog", shown = true },
		},
	},
	[4] = {
		short = "LISTEN_ACK", bytes = 56,
		meaning = "the listener has started, or error says why not",
		id_of = "XTS socket", payload = nil,
		flags = {},
		refusal = true,
		sender = "proxy",
		fields = {
			{ name = "proxy_id", offset = 24, bytes = 4, field = "xts.proxy_id" },
			{ name = "token", offset = 28, bytes = 4, field = "xts.token" },
			{ name = "local", offset = 32, bytes = 24, endpoint = "local" },
		},
	},
	[5] = {
		short = "NEWCONN", bytes = 80,
		meaning = "a listener has a new connection; takes one of its post credits",
		id_of = "XTS socket of the listener", payload = nil,
		flags = {},
		sender = "proxy",
		fields = {
			{ name = "proxy_id", offset = 24, bytes = 4, field = "xts.proxy_id" },
			{ name = "post_credits", offset = 28, bytes = 4, field = "xts.post_credits", limit = 1073741824, shown = true },
			{ name = "local", offset = 32, bytes = 24, endpoint = "local" },
			{ name = "peer", offset = 56, bytes = 24, endpoint = "peer" },
		},
	},
	[6] = {
		short = "NEWCONN_ACK", bytes = 32,
		meaning = "the new connection has an XTS socket; an error refuses it (reset)",
		id_of = "proxy's identifier of the new connection", payload = nil,
		flags = {},
		sender = "host",
		fields = {
			{ name = "xts_socket", offset = 24, bytes = 4, field = "xts.xts_socket" },
			{ name = "post_credits", offset = 28, bytes = 4, field = "xts.post_credits", limit = 1073741824, shown = true },
		},
	},
	[7] = {
		short = "SEND", bytes = 32,
		meaning = "data, post credits, and the ways of closing; length 0 is a pure credit advertisement. On a listener, post_credits returns accepted connections",
		id_of = "proxy's identifier", payload = "length",
		flags = { FIN = true, CLOSE = true, ABORT = true, LINGER = true, MORE = true, },
		sender = "host",
		fields = {
			{ name = "post_credits", offset = 24, bytes = 4, field = "xts.post_credits", limit = 1073741824, shown = true },
			{ name = "length", offset = 28, bytes = 4, field = "xts.length", limit = 61440, shown = true },
		},
	},
	[8] = {
		short = "RECV", bytes = 32,
		meaning = "received data, post credits, end of stream, failure, end of close",
		id_of = "XTS socket", payload = "length",
		flags = { EOS = true, RESET = true, CLOSED = true, },
		sender = "proxy",
		fields = {
			{ name = "post_credits", offset = 24, bytes = 4, field = "xts.post_credits", limit = 1073741824, shown = true },
			{ name = "length", offset = 28, bytes = 4, field = "xts.length", limit = 61440, shown = true },
		},
	},
	[16] = {
		short = "HELLO", bytes = 60,
		meaning = "opens the link; resets whatever an earlier epoch left",
		id_of = "unused", payload = nil,
		flags = {},
		fields = {
			{ name = "version", offset = 24, bytes = 2, field = "xts.version" },
			{ name = "frame_window", offset = 26, bytes = 2, field = "xts.frame_window", shown = true },
			{ name = "largest_message", offset = 28, bytes = 4, field = "xts.largest_message", shown = true },
			{ name = "features", offset = 32, bytes = 8, field = "xts.features" },
			{ name = "required", offset = 40, bytes = 8, field = "xts.required" },
			{ name = "epoch", offset = 48, bytes = 8, field = "xts.epoch" },
			{ name = "pid", offset = 56, bytes = 4, field = "xts.pid" },
		},
	},
	[17] = {
		short = "HELLO_ACK", bytes = 52,
		meaning = "the link is up with these values, or error refuses it",
		id_of = "unused", payload = nil,
		flags = {},
		refusal = true,
		fields = {
			{ name = "version", offset = 24, bytes = 2, field = "xts.version" },
			{ name = "frame_window", offset = 26, bytes = 2, field = "xts.frame_window", limit = 128, shown = true },
			{ name = "largest_message", offset = 28, bytes = 4, field = "xts.largest_message", limit = 61440, shown = true },
			{ name = "features", offset = 32, bytes = 8, field = "xts.features" },
			{ name = "epoch", offset = 40, bytes = 8, field = "xts.epoch" },
			{ name = "sockets_max", offset = 48, bytes = 4, field = "xts.sockets_max", shown = true },
		},
	},
	[18] = {
		short = "FRAME_ACK", bytes = 24,
		meaning = "frame_ack, when nothing else is there to carry it",
		id_of = "unused", payload = nil,
		flags = {},
		fields = {
		},
	},
	[19] = {
		short = "PING", bytes = 32,
		meaning = "answer me",
		id_of = "unused", payload = nil,
		flags = {},
		fields = {
			{ name = "token", offset = 24, bytes = 8, field = "xts.ping.token" },
		},
	},
	[20] = {
		short = "PONG", bytes = 32,
		meaning = "answer to a ping",
		id_of = "unused", payload = nil,
		flags = {},
		fields = {
			{ name = "token", offset = 24, bytes = 8, field = "xts.pong.token" },
		},
	},
	[21] = {
		short = "GOODBYE", bytes = 32,
		meaning = "this epoch has ended; error says why (0: orderly)",
		id_of = "unused", payload = nil,
		flags = {},
		fields = {
			{ name = "epoch", offset = 24, bytes = 8, field = "xts.epoch" },
		},
	},
	[22] = {
		short = "BUNDLE", bytes = 28,
		meaning = "several frames in one, as if they had come one by one; the payload is each frame's length (16 bits) and the frame itself, from its Ethernet header on. Its own sequence number and frame_ack are 0 and mean nothing",
		id_of = "unused", payload = "length",
		flags = {},
		fields = {
			{ name = "length", offset = 24, bytes = 4, field = "xts.length", limit = 61440, shown = true },
		},
	},
	[23] = {
		short = "TOKEN", bytes = 68,
		meaning = "what the agent of the host vouches for, right before the HELLO it is about; the payload is the path of the process's cgroup, and further claims",
		id_of = "unused", payload = "length",
		flags = {},
		fields = {
			{ name = "queue", offset = 24, bytes = 4, field = "xts.queue" },
			{ name = "uid", offset = 28, bytes = 4, field = "xts.uid" },
			{ name = "epoch", offset = 32, bytes = 8, field = "xts.epoch" },
			{ name = "expires_ms", offset = 40, bytes = 8, field = "xts.expires_ms" },
			{ name = "mac_high", offset = 48, bytes = 8, field = "xts.mac_high" },
			{ name = "mac_low", offset = 56, bytes = 8, field = "xts.mac_low" },
			{ name = "length", offset = 64, bytes = 4, field = "xts.length", limit = 255, shown = true },
		},
	},
	[24] = {
		short = "CLOCK", bytes = 32,
		meaning = "what time is it? Sent where STAMPS is in force",
		id_of = "unused", payload = nil,
		flags = {},
		fields = {
			{ name = "token", offset = 24, bytes = 8, field = "xts.clock.token" },
		},
	},
	[25] = {
		short = "CLOCK_ACK", bytes = 48,
		meaning = "the time at the moment when this leaves",
		id_of = "unused", payload = nil,
		flags = {},
		fields = {
			{ name = "token", offset = 24, bytes = 8, field = "xts.clock_ack.token" },
			{ name = "time_ns", offset = 32, bytes = 8, field = "xts.time_ns" },
			{ name = "error_ns", offset = 40, bytes = 8, field = "xts.error_ns" },
		},
	},
	[26] = {
		short = "CATCH_UP", bytes = 32,
		meaning = "send something of each socket that has something for the host, then answer; with CATCH_UP in force",
		id_of = "unused", payload = nil,
		flags = {},
		fields = {
			{ name = "token", offset = 24, bytes = 8, field = "xts.catch_up.token" },
		},
	},
	[27] = {
		short = "CAUGHT_UP", bytes = 32,
		meaning = "each socket that had something for the host when CATCH_UP came has had its turn since",
		id_of = "unused", payload = nil,
		flags = {},
		fields = {
			{ name = "token", offset = 24, bytes = 8, field = "xts.caught_up.token" },
		},
	},
	[240] = {
		short = "REPLACED", bytes = 40,
		meaning = "the process that served this epoch has died, and another one goes on: the host says HELLO to it, and RESUME; with RESUME in force",
		id_of = "unused", payload = nil,
		flags = {},
		fields = {
			{ name = "epoch", offset = 24, bytes = 8, field = "xts.epoch" },
			{ name = "ticket", offset = 32, bytes = 8, field = "xts.ticket" },
		},
	},
	[241] = {
		short = "OVER", bytes = 36,
		meaning = "from who attaches processes, not from a process: none has these connections any more; the payload is their keys (64 bits each). Its own sequence number and frame_ack are 0 and mean nothing",
		id_of = "unused", payload = "length",
		flags = {},
		fields = {
			{ name = "epoch", offset = 24, bytes = 8, field = "xts.epoch" },
			{ name = "length", offset = 32, bytes = 4, field = "xts.length", limit = 1024, shown = true },
		},
	},
	[28] = {
		short = "HEADED", bytes = 46,
		meaning = "a head, and as payload the frame that it carries, from the type of that on (PROTOCOL.md has more of it). Its own sequence number, frame_ack, flags and error are 0 and mean nothing",
		id_of = "receiver's queue", payload = nil,
		flags = {},
		fields = {
			{ name = "secret", offset = 24, bytes = 8, field = "xts.secret" },
			{ name = "reserved_high", offset = 32, bytes = 8, field = "xts.reserved_high" },
			{ name = "reserved_low", offset = 40, bytes = 4, field = "xts.reserved_low" },
			{ name = "parts", offset = 44, bytes = 2, field = "xts.parts" },
		},
	},
	[29] = {
		short = "PROBE", bytes = 38,
		meaning = "does a frame for this queue arrive there? The XDP program of the device sends it back, with the queue on which it has arrived; no process sees it",
		id_of = "receiver's queue", payload = nil,
		flags = {},
		fields = {
			{ name = "round", offset = 24, bytes = 8, field = "xts.round" },
			{ name = "arrived_on", offset = 32, bytes = 4, field = "xts.arrived_on" },
			{ name = "back", offset = 36, bytes = 2, field = "xts.back" },
		},
	},
	[32] = {
		short = "BIND", bytes = 60,
		meaning = "bind(2)",
		id_of = "the proxy's identifier, or 0: create the socket", payload = nil,
		flags = {},
		sender = "host",
		fields = {
			{ name = "xts_socket", offset = 24, bytes = 4, field = "xts.xts_socket" },
			{ name = "token", offset = 28, bytes = 4, field = "xts.token" },
			{ name = "domain", offset = 32, bytes = 4, field = "xts.domain", legal = { 0, 4, 6 } },
			{ name = "local", offset = 36, bytes = 24, endpoint = "local" },
		},
	},
	[31] = {
		short = "PART", bytes = 36,
		meaning = "a part of a frame that is longer than a packet; the payload is what the frame has behind its Ethernet header, from `offset` on. Its own sequence number and frame_ack are 0 and mean nothing",
		id_of = "unused", payload = "length",
		flags = {},
		fields = {
			{ name = "frame_bytes", offset = 24, bytes = 4, field = "xts.frame_bytes", limit = 61440, shown = true },
			{ name = "offset", offset = 28, bytes = 4, field = "xts.offset", limit = 61440, shown = true },
			{ name = "length", offset = 32, bytes = 4, field = "xts.length", limit = 61440, shown = true },
		},
	},
	[30] = {
		short = "ARQ", bytes = 78,
		meaning = "a head of what repeats lost frames, and as payload the frame that it carries, from the type of that on (PROTOCOL.md has more of it). Its own sequence number, frame_ack, flags, error and id are 0 and mean nothing",
		id_of = "unused", payload = nil,
		flags = {},
		fields = {
			{ name = "epoch", offset = 24, bytes = 8, field = "xts.epoch" },
			{ name = "sequence", offset = 32, bytes = 4, field = "xts.sequence" },
			{ name = "first", offset = 36, bytes = 4, field = "xts.first" },
			{ name = "arrived", offset = 40, bytes = 4, field = "xts.arrived" },
			{ name = "selective_low", offset = 44, bytes = 8, field = "xts.selective_low" },
			{ name = "selective_high", offset = 52, bytes = 8, field = "xts.selective_high" },
			{ name = "transmission", offset = 60, bytes = 4, field = "xts.transmission" },
			{ name = "heard", offset = 64, bytes = 4, field = "xts.heard" },
			{ name = "checksum", offset = 68, bytes = 4, field = "xts.checksum" },
			{ name = "held_us", offset = 72, bytes = 2, field = "xts.held_us" },
			{ name = "duplicates", offset = 74, bytes = 2, field = "xts.duplicates" },
			{ name = "parts", offset = 76, bytes = 2, field = "xts.parts" },
		},
	},
	[33] = {
		short = "BIND_ACK", bytes = 56,
		meaning = "answer to bind",
		id_of = "XTS socket", payload = nil,
		flags = {},
		refusal = true,
		sender = "proxy",
		fields = {
			{ name = "proxy_id", offset = 24, bytes = 4, field = "xts.proxy_id" },
			{ name = "token", offset = 28, bytes = 4, field = "xts.token" },
			{ name = "local", offset = 32, bytes = 24, endpoint = "local" },
		},
	},
	[34] = {
		short = "SETSOCKOPT", bytes = 48,
		meaning = "setsockopt(2), against the proxy's allow-list",
		id_of = "the proxy's identifier, or 0: create the socket", payload = "length",
		flags = {},
		sender = "host",
		fields = {
			{ name = "xts_socket", offset = 24, bytes = 4, field = "xts.xts_socket" },
			{ name = "token", offset = 28, bytes = 4, field = "xts.token" },
			{ name = "domain", offset = 32, bytes = 4, field = "xts.domain", legal = { 0, 4, 6 } },
			{ name = "level", offset = 36, bytes = 4, field = "xts.level", signed = true },
			{ name = "option", offset = 40, bytes = 4, field = "xts.option", signed = true },
			{ name = "length", offset = 44, bytes = 4, field = "xts.length", limit = 61440, shown = true },
		},
	},
	[35] = {
		short = "GETSOCKOPT", bytes = 48,
		meaning = "getsockopt(2); the payload is the value passed in, for options that read it",
		id_of = "the proxy's identifier, or 0: create the socket", payload = "length",
		flags = {},
		sender = "host",
		fields = {
			{ name = "xts_socket", offset = 24, bytes = 4, field = "xts.xts_socket" },
			{ name = "token", offset = 28, bytes = 4, field = "xts.token" },
			{ name = "domain", offset = 32, bytes = 4, field = "xts.domain", legal = { 0, 4, 6 } },
			{ name = "level", offset = 36, bytes = 4, field = "xts.level", signed = true },
			{ name = "option", offset = 40, bytes = 4, field = "xts.option", signed = true },
			{ name = "length", offset = 44, bytes = 4, field = "xts.length", limit = 61440, shown = true },
		},
	},
	[36] = {
		short = "SOCKOPT_ACK", bytes = 36,
		meaning = "answer to either; the payload is the option's value",
		id_of = "XTS socket", payload = "length",
		flags = {},
		refusal = true,
		sender = "proxy",
		fields = {
			{ name = "proxy_id", offset = 24, bytes = 4, field = "xts.proxy_id" },
			{ name = "token", offset = 28, bytes = 4, field = "xts.token" },
			{ name = "length", offset = 32, bytes = 4, field = "xts.length", limit = 61440, shown = true },
		},
	},
	[37] = {
		short = "IOCTL", bytes = 44,
		meaning = "ioctl(2), and what is done with ULPs (xts_messages/wire/ulps.py)",
		id_of = "the proxy's identifier, or 0: create the socket", payload = "length",
		flags = {},
		sender = "host",
		fields = {
			{ name = "xts_socket", offset = 24, bytes = 4, field = "xts.xts_socket" },
			{ name = "token", offset = 28, bytes = 4, field = "xts.token" },
			{ name = "domain", offset = 32, bytes = 4, field = "xts.domain", legal = { 0, 4, 6 } },
			{ name = "request", offset = 36, bytes = 4, field = "xts.request" },
			{ name = "length", offset = 40, bytes = 4, field = "xts.length", limit = 61440, shown = true },
		},
	},
	[38] = {
		short = "IOCTL_ACK", bytes = 36,
		meaning = "answer to ioctl; the payload is its result",
		id_of = "XTS socket", payload = "length",
		flags = {},
		refusal = true,
		sender = "proxy",
		fields = {
			{ name = "proxy_id", offset = 24, bytes = 4, field = "xts.proxy_id" },
			{ name = "token", offset = 28, bytes = 4, field = "xts.token" },
			{ name = "length", offset = 32, bytes = 4, field = "xts.length", limit = 61440, shown = true },
		},
	},
	[39] = {
		short = "SHARE", bytes = 44,
		meaning = "share a listener, or a bound socket, between processes: the first names it by a key, the others join (id 0)",
		id_of = "the proxy's identifier of the socket, or 0: join the one of that key", payload = nil,
		flags = {},
		sender = "host",
		fields = {
			{ name = "xts_socket", offset = 24, bytes = 4, field = "xts.xts_socket" },
			{ name = "token", offset = 28, bytes = 4, field = "xts.token" },
			{ name = "key", offset = 32, bytes = 8, field = "xts.key" },
			{ name = "keep_ms", offset = 40, bytes = 4, field = "xts.keep_ms", limit = 60000 },
		},
	},
	[40] = {
		short = "SHARE_ACK", bytes = 56,
		meaning = "shared, or error says why not (ENOENT: nothing is shared under that key)",
		id_of = "XTS socket", payload = nil,
		flags = {},
		refusal = true,
		sender = "proxy",
		fields = {
			{ name = "proxy_id", offset = 24, bytes = 4, field = "xts.proxy_id" },
			{ name = "token", offset = 28, bytes = 4, field = "xts.token" },
			{ name = "local", offset = 32, bytes = 24, endpoint = "local" },
		},
	},
	[41] = {
		short = "PARK", bytes = 44,
		meaning = "this process gives the connection up; whoever knows the key may claim it",
		id_of = "proxy's identifier", payload = nil,
		flags = {},
		sender = "host",
		fields = {
			{ name = "xts_socket", offset = 24, bytes = 4, field = "xts.xts_socket" },
			{ name = "token", offset = 28, bytes = 4, field = "xts.token" },
			{ name = "key", offset = 32, bytes = 8, field = "xts.key" },
			{ name = "keep_ms", offset = 40, bytes = 4, field = "xts.keep_ms", limit = 60000 },
		},
	},
	[42] = {
		short = "PARK_ACK", bytes = 28,
		meaning = "parked: nothing more comes for it and both identifiers are free; or error says why not",
		id_of = "XTS socket", payload = nil,
		flags = {},
		refusal = true,
		sender = "proxy",
		fields = {
			{ name = "token", offset = 24, bytes = 4, field = "xts.token" },
		},
	},
	[43] = {
		short = "CLAIM", bytes = 48,
		meaning = "take over the connection parked under the key",
		id_of = "zero", payload = nil,
		flags = {},
		sender = "host",
		fields = {
			{ name = "xts_socket", offset = 24, bytes = 4, field = "xts.xts_socket" },
			{ name = "token", offset = 28, bytes = 4, field = "xts.token" },
			{ name = "key", offset = 32, bytes = 8, field = "xts.key" },
			{ name = "post_credits", offset = 40, bytes = 4, field = "xts.post_credits", limit = 1073741824, shown = true },
			{ name = "unread", offset = 44, bytes = 4, field = "xts.unread", limit = 1073741824, shown = true },
		},
	},
	[44] = {
		short = "CLAIM_ACK", bytes = 84,
		meaning = "the connection is this process's, or error says why not (ENOENT: nothing parked under that key)",
		id_of = "XTS socket", payload = nil,
		flags = {},
		refusal = true,
		sender = "proxy",
		fields = {
			{ name = "proxy_id", offset = 24, bytes = 4, field = "xts.proxy_id" },
			{ name = "token", offset = 28, bytes = 4, field = "xts.token" },
			{ name = "post_credits", offset = 32, bytes = 4, field = "xts.post_credits", limit = 1073741824, shown = true },
			{ name = "local", offset = 36, bytes = 24, endpoint = "local" },
			{ name = "peer", offset = 60, bytes = 24, endpoint = "peer" },
		},
	},
	[45] = {
		short = "SEND_PDU", bytes = 56,
		meaning = "a PDU for the pushed protocols, or a part of one (MORE: it goes on); takes its payload and XTS_PDU_CREDITS",
		id_of = "proxy's identifier", payload = "length",
		flags = { MORE = true, },
		sender = "host",
		fields = {
			{ name = "post_credits", offset = 24, bytes = 4, field = "xts.post_credits", limit = 1073741824, shown = true },
			{ name = "length", offset = 28, bytes = 4, field = "xts.length", limit = 61440, shown = true },
			{ name = "record_bytes", offset = 32, bytes = 4, field = "xts.record_bytes", shown = true },
			{ name = "control_type", offset = 36, bytes = 2, field = "xts.control_type" },
			{ name = "control_bytes", offset = 38, bytes = 2, field = "xts.control_bytes", limit = 16, shown = true },
			{ name = "control_high", offset = 40, bytes = 8, field = "xts.control_high" },
			{ name = "control_low", offset = 48, bytes = 8, field = "xts.control_low" },
		},
	},
	[46] = {
		short = "RECV_PDU", bytes = 56,
		meaning = "a PDU from the pushed protocols, or a part of one (MORE: it goes on); or an event, which takes no credits",
		id_of = "XTS socket", payload = "length",
		flags = { MORE = true, },
		sender = "proxy",
		fields = {
			{ name = "post_credits", offset = 24, bytes = 4, field = "xts.post_credits", limit = 1073741824, shown = true },
			{ name = "length", offset = 28, bytes = 4, field = "xts.length", limit = 61440, shown = true },
			{ name = "record_bytes", offset = 32, bytes = 4, field = "xts.record_bytes", shown = true },
			{ name = "control_type", offset = 36, bytes = 2, field = "xts.control_type" },
			{ name = "control_bytes", offset = 38, bytes = 2, field = "xts.control_bytes", limit = 16, shown = true },
			{ name = "control_high", offset = 40, bytes = 8, field = "xts.control_high" },
			{ name = "control_low", offset = 48, bytes = 8, field = "xts.control_low" },
		},
	},
	[47] = {
		short = "GIVE_BACK", bytes = 28,
		meaning = "received bytes, in order, that the application had not read when it pushed a protocol that is to read them",
		id_of = "proxy's identifier", payload = "length",
		flags = {},
		sender = "host",
		fields = {
			{ name = "length", offset = 24, bytes = 4, field = "xts.length", limit = 61440, shown = true },
		},
	},
	[48] = {
		short = "CARRIED", bytes = 28,
		meaning = "a frame of one of the channels behind a relay; the payload is the frame, from its Ethernet header on",
		id_of = "number of the channel", payload = "length",
		flags = {},
		fields = {
			{ name = "length", offset = 24, bytes = 4, field = "xts.length", limit = 61440, shown = true },
		},
	},
	[49] = {
		short = "TAKE", bytes = 48,
		meaning = "take over the connection of this key from whatever process has it",
		id_of = "zero", payload = nil,
		flags = {},
		sender = "host",
		fields = {
			{ name = "xts_socket", offset = 24, bytes = 4, field = "xts.xts_socket" },
			{ name = "token", offset = 28, bytes = 4, field = "xts.token" },
			{ name = "key", offset = 32, bytes = 8, field = "xts.key" },
			{ name = "post_credits", offset = 40, bytes = 4, field = "xts.post_credits", limit = 1073741824, shown = true },
			{ name = "purpose", offset = 44, bytes = 4, field = "xts.purpose", legal = { 0, 1, 2, 3 } },
		},
	},
	[50] = {
		short = "TAKE_ACK", bytes = 104,
		meaning = "the connection is this process's, or error says why not yet (EBUSY, EAGAIN) or not at all (ENOENT)",
		id_of = "XTS socket", payload = nil,
		flags = {},
		refusal = true,
		sender = "proxy",
		fields = {
			{ name = "proxy_id", offset = 24, bytes = 4, field = "xts.proxy_id" },
			{ name = "token", offset = 28, bytes = 4, field = "xts.token" },
			{ name = "post_credits", offset = 32, bytes = 4, field = "xts.post_credits", limit = 1073741824, shown = true },
			{ name = "local", offset = 36, bytes = 24, endpoint = "local" },
			{ name = "peer", offset = 60, bytes = 24, endpoint = "peer" },
			{ name = "died", offset = 84, bytes = 4, field = "xts.died", legal = { 0, 1 } },
			{ name = "delivered_bytes", offset = 88, bytes = 8, field = "xts.delivered_bytes", shown = true },
			{ name = "accepted_bytes", offset = 96, bytes = 8, field = "xts.accepted_bytes", shown = true },
		},
	},
	[51] = {
		short = "YIELD", bytes = 28,
		meaning = "another process asks for the connection: PARK gives it up, SHARE says that it is still needed",
		id_of = "XTS socket", payload = nil,
		flags = {},
		sender = "proxy",
		fields = {
			{ name = "purpose", offset = 24, bytes = 4, field = "xts.purpose", legal = { 0, 1, 2, 3 } },
		},
	},
	[53] = {
		short = "GATHERED", bytes = 28,
		meaning = "with CATCH_UP: several messages, each with its length (16 bits) in front and from its Ethernet header on",
		id_of = "zero", payload = "length",
		flags = {},
		sender = "proxy",
		fields = {
			{ name = "length", offset = 24, bytes = 4, field = "xts.length", limit = 61440, shown = true },
		},
	},
	[52] = {
		short = "RETURN", bytes = 64,
		meaning = "what was received of a parked connection and is unread, in order (MORE: the PDU goes on); at last the end",
		id_of = "zero", payload = "length",
		flags = { MORE = true, },
		sender = "host",
		fields = {
			{ name = "key", offset = 24, bytes = 8, field = "xts.key" },
			{ name = "length", offset = 32, bytes = 4, field = "xts.length", limit = 61440, shown = true },
			{ name = "kind", offset = 36, bytes = 4, field = "xts.kind", legal = { 0, 1, 2 } },
			{ name = "record_bytes", offset = 40, bytes = 4, field = "xts.record_bytes", shown = true },
			{ name = "control_type", offset = 44, bytes = 2, field = "xts.control_type" },
			{ name = "control_bytes", offset = 46, bytes = 2, field = "xts.control_bytes", limit = 16, shown = true },
			{ name = "control_high", offset = 48, bytes = 8, field = "xts.control_high" },
			{ name = "control_low", offset = 56, bytes = 8, field = "xts.control_low" },
		},
	},
	[54] = {
		short = "CANCEL", bytes = 28,
		meaning = "close, as CLOSE with ABORT does, the socket of a CONNECT that has not been answered; CLOSED confirms",
		id_of = "zero", payload = nil,
		flags = {},
		sender = "host",
		fields = {
			{ name = "xts_socket", offset = 24, bytes = 4, field = "xts.xts_socket" },
		},
	},
	[55] = {
		short = "MOVE", bytes = 36,
		meaning = "another process is about to take this queue over: the host finishes its calls, and answers MOVE_ACK",
		id_of = "zero", payload = nil,
		flags = {},
		sender = "proxy",
		fields = {
			{ name = "ticket", offset = 24, bytes = 8, field = "xts.ticket" },
			{ name = "within_ms", offset = 32, bytes = 4, field = "xts.within_ms" },
		},
	},
	[56] = {
		short = "MOVE_ACK", bytes = 32,
		meaning = "the last message of this epoch from the host: no call is under way; GOODBYE with ERESTART answers it",
		id_of = "zero", payload = nil,
		flags = {},
		sender = "host",
		fields = {
			{ name = "ticket", offset = 24, bytes = 8, field = "xts.ticket" },
		},
	},
	[60] = {
		short = "RESUME", bytes = 68,
		meaning = "as CLAIM, after REPLACED, with what this host has counted. CLAIM_ACK answers. Key 0: that was the last one, and what was not asked for is reset",
		id_of = "zero", payload = nil,
		flags = {},
		sender = "host",
		fields = {
			{ name = "xts_socket", offset = 24, bytes = 4, field = "xts.xts_socket" },
			{ name = "token", offset = 28, bytes = 4, field = "xts.token" },
			{ name = "key", offset = 32, bytes = 8, field = "xts.key" },
			{ name = "post_credits", offset = 40, bytes = 4, field = "xts.post_credits", limit = 1073741824, shown = true },
			{ name = "unread", offset = 44, bytes = 4, field = "xts.unread", limit = 1073741824, shown = true },
			{ name = "received_bytes", offset = 48, bytes = 8, field = "xts.received_bytes", shown = true },
			{ name = "sent_bytes", offset = 56, bytes = 8, field = "xts.sent_bytes", shown = true },
			{ name = "fin_sent", offset = 64, bytes = 4, field = "xts.fin_sent" },
		},
	},
	[57] = {
		short = "SHUT_LISTENER", bytes = 32,
		meaning = "shutdown(2) of a listener, for reading: what waits for accept is reset, and the socket is bound and listens no more, for all that have it",
		id_of = "the proxy's identifier of the listener", payload = nil,
		flags = {},
		sender = "host",
		fields = {
			{ name = "xts_socket", offset = 24, bytes = 4, field = "xts.xts_socket" },
			{ name = "token", offset = 28, bytes = 4, field = "xts.token" },
		},
	},
	[58] = {
		short = "SHUT_LISTENER_ACK", bytes = 56,
		meaning = "it listens no more, or error says why not (ENOTCONN: another process has shut it down before)",
		id_of = "XTS socket", payload = nil,
		flags = {},
		refusal = true,
		sender = "proxy",
		fields = {
			{ name = "proxy_id", offset = 24, bytes = 4, field = "xts.proxy_id" },
			{ name = "token", offset = 28, bytes = 4, field = "xts.token" },
			{ name = "local", offset = 32, bytes = 24, endpoint = "local" },
		},
	},
	[59] = {
		short = "LISTENING", bytes = 32,
		meaning = "with LISTENING: whether the socket of this member listens, when it has joined and when another one changes it",
		id_of = "XTS socket", payload = nil,
		flags = {},
		sender = "proxy",
		fields = {
			{ name = "listens", offset = 24, bytes = 4, field = "xts.listens", legal = { 0, 1, 2 } },
			{ name = "backlog", offset = 28, bytes = 4, field = "xts.backlog", shown = true },
		},
	},
	[64] = {
		short = "OPEN_DATAGRAM", bytes = 92,
		meaning = "create a datagram socket, bound and connected if the addresses say so",
		id_of = "zero", payload = nil,
		flags = {},
		sender = "host",
		fields = {
			{ name = "xts_socket", offset = 24, bytes = 4, field = "xts.xts_socket" },
			{ name = "token", offset = 28, bytes = 4, field = "xts.token" },
			{ name = "post_credits", offset = 32, bytes = 4, field = "xts.post_credits", limit = 1073741824, shown = true },
			{ name = "domain", offset = 36, bytes = 4, field = "xts.domain", legal = { 0, 4, 6 } },
			{ name = "local", offset = 40, bytes = 24, endpoint = "local" },
			{ name = "peer", offset = 64, bytes = 24, endpoint = "peer" },
			{ name = "receive_bytes", offset = 88, bytes = 4, field = "xts.receive_bytes", limit = 1073741824, shown = true },
		},
	},
	[65] = {
		short = "OPEN_DATAGRAM_ACK", bytes = 84,
		meaning = "the datagram socket is there, or error says why not",
		id_of = "XTS socket", payload = nil,
		flags = {},
		refusal = true,
		sender = "proxy",
		fields = {
			{ name = "proxy_id", offset = 24, bytes = 4, field = "xts.proxy_id" },
			{ name = "token", offset = 28, bytes = 4, field = "xts.token" },
			{ name = "post_credits", offset = 32, bytes = 4, field = "xts.post_credits", limit = 1073741824, shown = true },
			{ name = "local", offset = 36, bytes = 24, endpoint = "local" },
			{ name = "peer", offset = 60, bytes = 24, endpoint = "peer" },
		},
	},
	[66] = {
		short = "CONNECT_DATAGRAM", bytes = 56,
		meaning = "connect(2) of a datagram socket, also again; ip_version 0: to nobody any more",
		id_of = "proxy's identifier", payload = nil,
		flags = {},
		sender = "host",
		fields = {
			{ name = "xts_socket", offset = 24, bytes = 4, field = "xts.xts_socket" },
			{ name = "token", offset = 28, bytes = 4, field = "xts.token" },
			{ name = "peer", offset = 32, bytes = 24, endpoint = "peer" },
		},
	},
	[67] = {
		short = "CONNECT_DATAGRAM_ACK", bytes = 76,
		meaning = "answer to connect of a datagram socket",
		id_of = "XTS socket", payload = nil,
		flags = {},
		refusal = true,
		sender = "proxy",
		fields = {
			{ name = "token", offset = 24, bytes = 4, field = "xts.token" },
			{ name = "local", offset = 28, bytes = 24, endpoint = "local" },
			{ name = "peer", offset = 52, bytes = 24, endpoint = "peer" },
		},
	},
	[68] = {
		short = "SEND_DATAGRAMS", bytes = 32,
		meaning = "datagrams to be sent, each with its record in front; MORE: the last one goes on in the next message",
		id_of = "proxy's identifier", payload = "length",
		flags = { MORE = true, },
		sender = "host",
		fields = {
			{ name = "post_credits", offset = 24, bytes = 4, field = "xts.post_credits", limit = 1073741824, shown = true },
			{ name = "length", offset = 28, bytes = 4, field = "xts.length", limit = 61440, shown = true },
		},
	},
	[69] = {
		short = "RECV_DATAGRAMS", bytes = 36,
		meaning = "datagrams received, each with its record in front (MORE: the last one goes on in the next message); or, without any, the pending error of the socket",
		id_of = "XTS socket", payload = "length",
		flags = { MORE = true, },
		sender = "proxy",
		fields = {
			{ name = "post_credits", offset = 24, bytes = 4, field = "xts.post_credits", limit = 1073741824, shown = true },
			{ name = "dropped", offset = 28, bytes = 4, field = "xts.dropped" },
			{ name = "length", offset = 32, bytes = 4, field = "xts.length", limit = 61440, shown = true },
		},
	},
	[71] = {
		short = "RETURN_DATAGRAMS", bytes = 28,
		meaning = "datagrams received on a shared socket and unread, in order, for whoever reads next, each with its record in front; MORE: the last one goes on in the next message. Error: a pending one",
		id_of = "proxy's identifier", payload = "length",
		flags = { MORE = true, },
		sender = "host",
		fields = {
			{ name = "length", offset = 24, bytes = 4, field = "xts.length", limit = 61440, shown = true },
		},
	},
	[80] = {
		short = "QUERY_NAME", bytes = 32,
		meaning = "ask the device's name servers; the payload is a standard query with one question (RFC 1035)",
		id_of = "zero", payload = "length",
		flags = {},
		sender = "host",
		fields = {
			{ name = "token", offset = 24, bytes = 4, field = "xts.token" },
			{ name = "length", offset = 28, bytes = 4, field = "xts.length", limit = 1024, shown = true },
		},
	},
	[81] = {
		short = "NAME_ACK", bytes = 36,
		meaning = "the answer of a name server, whole, as the payload; or error says why there is none",
		id_of = "zero", payload = "length",
		flags = {},
		refusal = true,
		sender = "proxy",
		fields = {
			{ name = "token", offset = 24, bytes = 4, field = "xts.token" },
			{ name = "families", offset = 28, bytes = 4, field = "xts.families", legal = { 0, 1, 2, 3 } },
			{ name = "length", offset = 32, bytes = 4, field = "xts.length", limit = 61440, shown = true },
		},
	},
}

local xts = Proto("xts", "XDP-Transport")

xts.prefs.ethertype = Pref.uint("EtherType", ETHERTYPE, "EtherType of XDP-Transport frames")

local function malformed(name, text)
	return ProtoExpert.new("xts.malformed." .. name, text, expert.group.MALFORMED, expert.severity.ERROR)
end

local too_short = malformed("short", "Frame shorter than its message")
local unknown = malformed("type", "Unknown message type")
local illegal = malformed("value", "Illegal value")
local length_wrong = malformed("length", "Length does not agree with the frame")
local odd_flag = ProtoExpert.new("xts.odd_flag", "Flag without a meaning in this message", expert.group.PROTOCOL,
	expert.severity.WARN)
local failed = ProtoExpert.new("xts.failed", "Carries an error", expert.group.RESPONSE_CODE, expert.severity.NOTE)
xts.experts = { too_short, unknown, illegal, length_wrong, odd_flag, failed }

local all = {}
for _, set in ipairs({ common, flag_fields, fields }) do
	for _, f in pairs(set) do all[#all + 1] = f end
end
for _, set in pairs(endpoints) do
	for _, f in pairs(set) do all[#all + 1] = f end
end
xts.fields = all

-- --- sockets, and what they carry -----------------------------------------------------------------------------------

xts.prefs.payload = Pref.bool("Dissect payload", true, "Hand payload to the dissector of the socket's ports")

local PT_TCP, PT_UDP, UNTIL_THE_END = 2, 3, 0x0ffffffe
-- Of a train; more than the kernel makes (UDP_MAX_SEGMENTS).
local SEGMENTS_MAX = 128
-- A dissector that wants more than this at once has been misled.
local CONTINUED_BYTES_MAX = 1048576
local interface_of = Field.new("frame.interface_id")
local tcp_ports, udp_ports = DissectorTable.get("tcp.port"), DissectorTable.get("udp.port")
local channels, seen, streams = {}, {}, 0

function xts.init()
	channels, seen, streams = {}, {}, 0
end

-- Identifiers are of a channel: of two addresses on one interface, until the next HELLO.
local function channel_of(packet)
	local interface, a, b = interface_of(), tostring(packet.dl_src), tostring(packet.dl_dst)
	if a > b then a, b = b, a end
	local key = tostring(interface and interface.value or 0) .. " " .. a .. " " .. b
	channels[key] = channels[key] or { host = {}, proxy = {} }
	return channels[key]
end

-- The socket that a message is about; a new one where the message makes one, or the capture begins later.
local function socket_of(channel, message, id, values)
	if message.short == "HELLO" then channel.host, channel.proxy = {}, {} end
	if not message.sender or message.short == "QUERY_NAME" or message.short == "NAME_ACK" then return nil end
	local host_id, proxy_id = id, values.proxy_id
	if message.sender == "host" then host_id, proxy_id = values.xts_socket, id end
	if message.short == "NEWCONN" then host_id = nil end -- the listener's
	if host_id == 0 then host_id = nil end
	if proxy_id == 0 then proxy_id = nil end
	if not host_id and not proxy_id then return nil end
	local socket = (proxy_id and channel.proxy[proxy_id]) or (host_id and channel.host[host_id])
	if not socket then
		socket = { stream = streams, rest = {} }
		streams = streams + 1
	end
	if host_id then channel.host[host_id] = socket end
	if proxy_id then channel.proxy[proxy_id] = socket end
	for _, name in ipairs({ "local", "peer" }) do
		local endpoint = values[name]
		if endpoint and endpoint.address then socket[name] = endpoint end
	end
	return socket
end

-- By the ports, the smaller first, which is most likely the server's, as the dissectors of TCP and UDP do.
local function by_ports(ports, a, b)
	return ports:get_dissector(math.min(a.port, b.port)) or ports:get_dissector(math.max(a.port, b.port))
end

-- What TLS is pushed onto is not encrypted here.
local function dissector_for(socket, bytes)
	local found = by_ports(tcp_ports, socket.peer, socket["local"])
	if not found then return nil end
	local encrypted = bytes:len() < 2 or (math.floor(bytes:get_index(0) / 4) == 5 and bytes:get_index(1) == 3)
	local is_tls = string.lower(tostring(found)) == "tls"
	return is_tls and not encrypted and Dissector.get("http") or found
end

local function set_addresses(packet, own, other, from_host, port_type)
	local source, target = own, other
	if not from_host then source, target = target, source end
	packet.src, packet.dst = source.address, target.address
	packet.src_port, packet.dst_port = source.port, target.port
	pcall(function() packet.port_type = port_type end) -- Wireshark 4.0 does not have it
end

-- What a dissector wants to see again, with what comes next; nil: nothing.
local function left_over(packet, bytes)
	local at = packet.desegment_offset
	if packet.desegment_len == 0 or at >= bytes:len() or bytes:len() - at > CONTINUED_BYTES_MAX then return nil end
	return bytes:subset(at, bytes:len() - at)
end

local function hand_on(note, range, packet, root)
	local socket, bytes, whole = note.socket, range:bytes(), range:tvb()
	if note.before then
		bytes = note.before .. bytes
		whole = bytes:tvb("XTS stream")
	end
	local dissector = dissector_for(socket, bytes)
	if not dissector then return end
	set_addresses(packet, socket["local"], socket.peer, note.from_host, PT_TCP)
	packet.can_desegment, packet.desegment_len, packet.desegment_offset = 2, 0, 0
	dissector:call(whole, packet, root)
	if packet.desegment_len == UNTIL_THE_END then
		packet.can_desegment, packet.desegment_len, packet.desegment_offset = 0, 0, 0
		dissector:call(whole, packet, root)
	end
	if not packet.visited then socket.rest[note.from_host] = left_over(packet, bytes) end
	packet.can_desegment, packet.desegment_len, packet.desegment_offset = 0, 0, 0
end

local function endpoint_at(range)
	local version, port = range(ENDPOINT_IP_VERSION, 1):uint(), range(ENDPOINT_PORT, 2):uint()
	if version == 4 then return { port = port, address = range(ENDPOINT_ADDRESS, 4):ipv4() } end
	if version == 6 then return { port = port, address = range(ENDPOINT_ADDRESS, 16):ipv6() } end
	return nil
end

-- A datagram, or a train of datagrams of one length.
local function hand_on_train(note, data, segment, other, packet, root)
	local own = note.socket["local"]
	local dissector = own and other and by_ports(udp_ports, own, other)
	if not dissector then return end
	if segment == 0 then segment = data:len() end
	set_addresses(packet, own, other, note.from_host, PT_UDP)
	for i = 0, SEGMENTS_MAX - 1 do
		local at = i * segment
		if at >= data:len() then break end
		dissector:call(data(at, math.min(segment, data:len() - at)):tvb(), packet, root)
	end
end

-- Each has a record in front. What the last one lacks comes with the next message, if there is `more`.
local function hand_on_datagrams(note, range, more, packet, root)
	local whole, at = range:tvb(), 0
	if note.before then whole = (note.before .. range:bytes()):tvb("XTS datagrams") end
	while at + RECORD.bytes <= whole:len() do
		local bytes = whole(at + RECORD.data_bytes, 2):uint()
		local first = at + RECORD.bytes + whole(at + RECORD.control_bytes, 2):uint()
		if first + bytes > whole:len() then break end
		local other = endpoint_at(whole(at + RECORD.endpoint, RECORD.endpoint_bytes)) or note.socket.peer
		if bytes > 0 then
			hand_on_train(note, whole(first, bytes), whole(at + RECORD.segment_bytes, 2):uint(), other, packet, root)
		end
		at = first + bytes
	end
	if packet.visited then return end
	local left = whole:len() - at
	local goes_on = more and left > 0 and left <= CONTINUED_BYTES_MAX
	note.socket.rest[note.from_host] = goes_on and whole(at, left):bytes() or nil
end

-- Notes what the messages of a packet say of sockets when the packet is first seen; later the notes are used.
local function note_message(packet, message, id, values)
	local notes = seen[packet.number]
	if not packet.visited then
		local socket = socket_of(channel_of(packet), message, id, values)
		local from_host = message.sender == "host"
		notes = notes or { at = 0 }
		seen[packet.number] = notes
		notes[#notes + 1] = { socket = socket, from_host = from_host, before = socket and socket.rest[from_host] }
		return notes[#notes]
	end
	if not notes then return {} end
	notes.at = notes.at % #notes + 1
	return notes[notes.at]
end

local STREAMS = { SEND = true, RECV = true, SEND_PDU = true, RECV_PDU = true }
local DATAGRAMS = { SEND_DATAGRAMS = true, RECV_DATAGRAMS = true }

-- After the messages themselves: the dissectors of payload write to the columns.
local function carry_on(carried, packet, root)
	if not xts.prefs.payload then return end
	for _, one in ipairs(carried) do
		local socket = one.note.socket
		if socket and one.datagrams then
			hand_on_datagrams(one.note, one.range, one.more, packet, root)
		elseif socket and socket["local"] and socket.peer then
			hand_on(one.note, one.range, packet, root)
		end
	end
end

-- Is the value outside what the table allows? 64-bit values have no limits.
local function breaks(spec, value)
	if spec.limit and value > spec.limit then return true end
	if not spec.legal then return false end
	for _, v in ipairs(spec.legal) do
		if v == value then return false end
	end
	return true
end

local function number(range, spec)
	if spec.signed then return range:int() end
	return range:len() < 8 and range:uint() or nil
end

-- Returns the endpoint as text, and its port and address.
local function dissect_endpoint(tree, range, spec)
	local address
	local f = endpoints[spec.endpoint]
	local version, port = range(ENDPOINT_IP_VERSION, 1):uint(), range(ENDPOINT_PORT, 2):uint()
	local branch = tree:add(f.whole, range)
	local text = "none"

	branch:add(f.port, range(ENDPOINT_PORT, 2))
	local version_item = branch:add(f.ip_version, range(ENDPOINT_IP_VERSION, 1))
	branch:add(f.reserved, range(ENDPOINT_RESERVED, 1))
	branch:add(f.scope_id, range(ENDPOINT_SCOPE_ID, 4))
	if version == 4 then
		branch:add(f.address4, range(ENDPOINT_ADDRESS, 4))
		address = range(ENDPOINT_ADDRESS, 4):ipv4()
		text = tostring(address) .. ":" .. port
	elseif version == 6 then
		branch:add(f.address6, range(ENDPOINT_ADDRESS, 16))
		address = range(ENDPOINT_ADDRESS, 16):ipv6()
		text = "[" .. tostring(address) .. "]:" .. port
	else
		branch:add(f.address, range(ENDPOINT_ADDRESS, 16))
	end
	branch:append_text(": " .. text)
	if breaks({ legal = ENDPOINT_IP_VERSIONS }, version) then
		version_item:add_proto_expert_info(illegal)
	end
	return text, { port = port, address = address }
end

local function dissect_flags(tree, range, message)
	local value = range:uint()
	local branch = tree:add(common.flags, range)
	local names, odd = {}, false

	for _, flag in ipairs(flags) do
		branch:add(flag_fields[flag.name], range)
		if math.floor(value / flag.bit) % 2 == 1 then
			names[#names + 1] = flag.name
			if message and not message.flags[flag.name] then odd = true end
		end
	end
	branch:append_text(#names > 0 and " (" .. table.concat(names, ", ") .. ")" or " (none)")
	if odd then branch:add_proto_expert_info(odd_flag) end
	return table.concat(names, ",")
end

-- The payload, and Ethernet's padding after it.
local function dissect_payload(tree, buffer, message, length, length_item)
	local rest = buffer:len() - message.bytes

	if length > rest or (length < rest and buffer:len() > ETH_MIN_BYTES) then
		length_item:add_proto_expert_info(length_wrong)
	end
	length = math.min(length, rest)
	if length < rest then tree:add(common.trailer, buffer(message.bytes + length)) end
	if length <= 0 then return nil end
	tree:add(common.payload, buffer(message.bytes, length))
	return buffer(message.bytes, length)
end

-- Returns the values by name, and the payload.
local function dissect_fields(tree, buffer, message, info)
	local values = {}
	local length, length_item

	for _, spec in ipairs(message.fields) do
		local range = buffer(spec.offset, spec.bytes)
		if spec.endpoint then
			local text, endpoint = dissect_endpoint(tree, range, spec)
			values[spec.endpoint] = endpoint
			info[#info + 1] = spec.endpoint .. "=" .. text
		else
			local value = number(range, spec)
			values[spec.name] = value
			local item = tree:add(fields[spec.field], range)
			if value and breaks(spec, value) then item:add_proto_expert_info(illegal) end
			if spec.name == message.payload then length, length_item = value, item end
			if value and spec.shown then info[#info + 1] = spec.name .. "=" .. value end
		end
	end
	if length then
		return values, dissect_payload(tree, buffer, message, length, length_item)
	elseif buffer:len() > message.bytes then
		tree:add(common.trailer, buffer(message.bytes))
	end
	return values
end

-- Wireshark hands over what follows the Ethernet header; the table's offsets count from the header's start.
local function from_ethernet(after_ethernet)
	return setmetatable({ len = function() return after_ethernet:len() + ETH_BYTES end },
		{ __call = function(_, offset, bytes) return after_ethernet(offset - ETH_BYTES, bytes) end })
end

-- One frame; returns what the info column says of it. What goes to other dissectors is added to `carried`.
local function dissect_frame(after_ethernet, packet, root, carried)
	local tree = root:add(xts, after_ethernet())
	if after_ethernet:len() < HEAD_BYTES - ETH_BYTES then
		tree:add_proto_expert_info(too_short)
		return "[short frame]"
	end
	local buffer = from_ethernet(after_ethernet)
	local code = buffer(HEAD_TYPE, 1):uint()
	local message = messages[code]
	local error_number = buffer(HEAD_ERROR, 2):uint()

	local type_item = tree:add(common.type, buffer(HEAD_TYPE, 1))
	tree:add(common.seqno, buffer(HEAD_SEQNO, 1))
	tree:add(common.frame_ack, buffer(HEAD_FRAME_ACK, 1))
	local flag_names, refusal = "", 0
	if message and message.refusal then
		refusal = buffer(HEAD_FLAGS, 1):uint()
		tree:add(common.refusal, buffer(HEAD_FLAGS, 1))
	else
		flag_names = dissect_flags(tree, buffer(HEAD_FLAGS, 1), message)
	end
	local error_item = tree:add(common.error, buffer(HEAD_ERROR, 2))
	local id_item = tree:add(common.id, buffer(HEAD_ID, 4))
	if error_number ~= 0 then error_item:add_proto_expert_info(failed) end
	if not message then
		type_item:add_proto_expert_info(unknown)
		return "[unknown type " .. code .. "]"
	end
	id_item:append_text(" (" .. message.id_of .. ")")
	type_item:append_text(": " .. message.meaning)

	local info = { message.short, "seq=" .. buffer(HEAD_SEQNO, 1):uint(), "ack=" .. buffer(HEAD_FRAME_ACK, 1):uint() }
	if message.id_of ~= "unused" then info[#info + 1] = string.format("id=0x%x", buffer(HEAD_ID, 4):uint()) end
	if flag_names ~= "" then info[#info + 1] = "[" .. flag_names .. "]" end
	if error_number ~= 0 then info[#info + 1] = errno_names[error_number] or ("errno " .. error_number) end
	if refusal ~= 0 then info[#info + 1] = refusal_names[refusal] or ("refusal " .. refusal) end
	if buffer:len() < message.bytes then
		info[#info + 1] = "[short frame]"
		type_item:add_proto_expert_info(too_short)
	else
		local values, payload = dissect_fields(tree, buffer, message, info)
		local note = note_message(packet, message, buffer(HEAD_ID, 4):uint(), values)
		if note.socket then tree:add(common.stream, note.socket.stream):set_generated() end
		local datagrams = DATAGRAMS[message.short]
		if payload and (datagrams or STREAMS[message.short]) then
			local more = flag_names:find("MORE", 1, true) ~= nil
			carried[#carried + 1] = { note = note, range = payload, datagrams = datagrams, more = more }
		end
	end
	return table.concat(info, " "), message.short
end

-- Each frame of a bundle has its length in front.
local function dissect_bundled(after_ethernet, packet, root, info, carried)
	local at = BUNDLE_BYTES - ETH_BYTES
	while at + 2 <= after_ethernet:len() do
		local bytes = after_ethernet(at, 2):uint()
		if bytes < HEAD_BYTES or bytes > after_ethernet:len() - at - 2 then return end
		local frame = after_ethernet(at + 2 + ETH_BYTES, bytes - ETH_BYTES):tvb()
		info[#info + 1] = dissect_frame(frame, packet, root, carried)
		at = at + 2 + bytes
	end
end

function xts.dissector(after_ethernet, packet, root)
	local carried = {}
	local text, kind = dissect_frame(after_ethernet, packet, root, carried)
	local info = { text }
	packet.cols.protocol = "XTS"
	if kind == "BUNDLE" then dissect_bundled(after_ethernet, packet, root, info, carried) end
	packet.cols.info = table.concat(info, "; ")
	carry_on(carried, packet, root)
end

local registered
local function register(ethertype)
	local ethertypes = DissectorTable.get("ethertype")
	if registered then ethertypes:remove(registered, xts) end
	ethertypes:add(ethertype, xts)
	registered = ethertype
end

function xts.prefs_changed()
	if xts.prefs.ethertype ~= registered then register(xts.prefs.ethertype) end
end

register(xts.prefs.ethertype)
