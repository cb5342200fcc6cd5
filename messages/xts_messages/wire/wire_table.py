"""The wire table: the one declaration of every XDP-Transport message.

The C header, the Wireshark dissector, the documentation table and the golden vectors are generated from it
(`python -m xts_messages.generate`) and committed; CI fails when regenerating changes a byte.

Layout of a frame (network byte order throughout)::

    0        6        12      14     15      16          17      18      20     24
    | dst mac | src mac | 0x855B | type | seqno | frame_ack | flags | error |  id  | body of the type ...

`type` and `seqno` are the paper's `struct xts_msg_hdr`; its `data` begins at byte 16. The five fields after it are
common to all messages, so that an acknowledgement of frames rides on whatever is sent anyway.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass, field
from enum import Enum

VERSION = 1
ETHERTYPE = 0x855B
ETH_BYTES = 14
HEAD_BYTES = 24
#: Shorter Ethernet frames may arrive padded to this; trailing bytes up to here are not an error (IEEE 802.3).
ETH_MIN_BYTES = 60
#: 15 transmit chunks of 4096 bytes, which arrive as 16 receive chunks of 3840: below AF_XDP's 17 descriptors.
FRAME_BYTES_MAX = 61440
#: What a peer without multi-buffer can receive: one chunk of 4096 less XDP's 256 bytes of headroom.
FRAME_BYTES_SINGLE = 3840
#: The shortest packet that an interface has to be able to send: MTU 1280, which IPv6 asks of each. Longer frames
#: come in parts.
FRAME_BYTES_LEAST = 1294
#: Below 256 so that no run of lost frames can look like none, and below veth's ring of 256 frames.
FRAME_WINDOW_MAX = 128
FRAME_WINDOW_MIN = 4
#: Frames outside the window (acknowledgements, pings …) that a receiver keeps buffers for.
CONTROL_RESERVE = 32
#: Types of the link's own frames, which take no frame credit and no sequence number. The first range is used up; older
#: versions end a link at a type of the second, so a frame of it needs a feature that both ends have.
LINK_CODES = (*range(16, 32), *range(240, 256))
#: Of the payload of TOKEN: the path of a cgroup, a slash and a zero byte, and further claims.
TOKEN_PAYLOAD_BYTES_MAX = 255
#: Of the path of a cgroup in an attach token; a longer one is cut at a component. The rest is for further claims.
TOKEN_CGROUP_BYTES_MAX = 215
#: Of the payload of OVER: keys of 8 bytes. The frame fits into the shortest packet, whatever heads it has.
OVER_BYTES_MAX = 1024
#: Of a query for a name: more than the longest name and options of EDNS take, and in the first chunk of a frame.
NAME_QUERY_BYTES_MAX = 1024
#: Post credits a peer may hold for one connection: 1 GiB, far from wrapping 32 bits.
CREDITS_MAX = 1 << 30


class Kind(Enum):
    """Width and form of a field; the value is its size in bytes."""

    U8 = "u8"
    U16 = "u16"
    U32 = "u32"
    U64 = "u64"
    I32 = "i32"
    ENDPOINT = "endpoint"

    @property
    def bytes(self) -> int:
        return {"u8": 1, "u16": 2, "u32": 4, "u64": 8, "i32": 4, "endpoint": 24}[self.value]


@dataclass(frozen=True, slots=True)
class Field:
    """One field: `unit` is what it counts, `limit` its largest legal value (None: any), `values` all legal ones.
    `secret`: whoever knows its value has a right by it, so it is in no capture and no log."""

    name: str
    kind: Kind
    meaning: str
    unit: str = ""
    limit: int | None = None
    values: tuple[int, ...] = ()
    secret: bool = False

    def legal(self, value: int) -> bool:
        """May the field have this value?"""
        return (self.limit is None or value <= self.limit) and (not self.values or value in self.values)


@dataclass(frozen=True, slots=True)
class Message:
    """One message type. `payload` names the field that counts the bytes after the fixed part, if there are any."""

    name: str
    code: int
    sender: str  # "host", "proxy" or "both"
    sequenced: bool  # takes a frame credit and a sequence number; so do all whose code is not in LINK_CODES
    meaning: str
    fields: tuple[Field, ...] = ()
    payload: str | None = None
    flags: tuple[str, ...] = ()
    source: str = "ours"
    id_of: str = field(default="")  # what the common id means here
    refusal: bool = False  # a reply: byte 17 is the number of a refusal, and not flags
    feature: str = ""  # that the link has to have negotiated for it

    @property
    def stem(self) -> str:
        """`XTS_CMD_NEWCONN_ACK` -> `newconn_ack`: the name in C functions and structs."""
        return self.name.removeprefix("XTS_").split("_", 1)[1].lower()

    @property
    def fixed_bytes(self) -> int:
        return HEAD_BYTES + sum(f.kind.bytes for f in self.fields)


#: What every message begins with, after the Ethernet header.
HEAD = (
    Field("type", Kind.U8, "the message's type"),
    Field("seqno", Kind.U8, "sequence number, modulo 256; of a link frame: that of the next sequenced message"),
    Field("frame_ack", Kind.U8, "frames whose buffers the sender has recycled, modulo 256", "frames"),
    Field("flags", Kind.U8, "XTS_FLAG_*; in a reply to a request: its refusal (XTS_REFUSED_*), 0 for none"),
    Field("error", Kind.U16, "Linux errno, 0 for none", "errno"),
    Field("id", Kind.U32, "the target's identifier", "id"),
)
assert ETH_BYTES + sum(f.kind.bytes for f in HEAD) == HEAD_BYTES

#: The fields of an endpoint; its address of 16 bytes follows them.
ENDPOINT = (
    Field("port", Kind.U16, "port of TCP or UDP", "port"),
    Field("ip_version", Kind.U8, "4, 6, or 0 for none", values=(0, 4, 6)),
    Field("reserved", Kind.U8, "zero"),
    Field("scope_id", Kind.U32, "IPv6 scope (the device's interface index), else 0"),
)
ENDPOINT_ADDRESS_BYTES = 16
ENDPOINT_ADDRESS_MEANING = "IPv4 in the first four bytes, or IPv6"
assert sum(f.kind.bytes for f in ENDPOINT) + ENDPOINT_ADDRESS_BYTES == Kind.ENDPOINT.bytes

#: What each datagram of SEND_DATAGRAMS and RECV_DATAGRAMS begins with; control items and the data follow.
DATAGRAM_RECORD = (
    Field("data_bytes", Kind.U16, "length of the datagram, or of the train of datagrams", "bytes"),
    Field("segment_bytes", Kind.U16, "of a train: each datagram but the last has so many; 0: one datagram", "bytes"),
    Field("control_bytes", Kind.U16, "length of the control items, padding included", "bytes", 256),
    Field("reserved", Kind.U16, "zero"),
    Field("endpoint", Kind.ENDPOINT, "destination, or source; ip_version 0: the peer that the socket is connected to"),
)
DATAGRAM_RECORD_BYTES = sum(f.kind.bytes for f in DATAGRAM_RECORD)
DATAGRAM_CONTROL_BYTES_MAX = 256
assert DATAGRAM_RECORD[2].limit == DATAGRAM_CONTROL_BYTES_MAX

#: Control items of a datagram: type and length of 16 bits each, then so many bytes, padded with zeros to a multiple of
#: 4. By name: the type, the length, and what it holds.
DATAGRAM_CONTROLS: dict[str, tuple[int, int, str]] = {
    "PKTINFO": (1, Kind.ENDPOINT.bytes, "endpoint: the local address; scope_id is the device's interface index"),
    "HOP_LIMIT": (2, 4, "u32: time to live, or hop limit"),
    "TRAFFIC_CLASS": (3, 4, "u32: type of service, or traffic class"),
    "TIMESTAMP_NS": (4, 8, "u64: when it arrived, by the device's clock, in nanoseconds since 1970"),
    "SPEC_DST": (5, 4, "u32, with PKTINFO of IPv4, to a group or broadcast: the device's address there (ipi_spec_dst)"),
    "ERROR": (
        6,
        16 + Kind.ENDPOINT.bytes,
        "to the host: an entry of the error queue (struct sock_extended_err: u32 errno, u8 origin, type, code, zero, "
        "u32 info, u32 data; then the offender's endpoint). The record's endpoint and data repeat what was sent",
    ),
    "STAMPING": (
        7,
        16,
        "to the host: SCM_TIMESTAMPING: u64 of the device's clock, u64 of the network card's clock, in nanoseconds; "
        "0: none",
    ),
    "STAMP_PKTINFO": (8, 8, "to the host: SCM_TIMESTAMPING_PKTINFO: u32 interface index, u32 length of the packet"),
    "STAMP_SEND": (9, 4, "to the proxy: u32: which stamps to make as it is sent (SOF_TIMESTAMPING_TX_*)"),
    "STAMP_ID": (10, 4, "to the proxy: u32: the number that its stamps have (SCM_TS_OPT_ID)"),
}
#: The level of GETSOCKOPT for options of our own: the device's interfaces; with this bit their time stamps.
SOL_XTS = 0x5854
INTERFACE_STAMPS = 0x4000_0000
#: An option of that level for SETSOCKOPT of a datagram socket: the operator's filter of that name; none without one.
OPTION_FILTER = 0x5854_0002
FILTER_NAME_BYTES_MAX = 63
#: Of a filter for a datagram socket (SO_ATTACH_FILTER), 8 bytes an instruction: in the first chunk of a frame.
FILTER_BYTES_MAX = 2048
#: What a datagram takes of the post credits in addition to its data and control items.
DATAGRAM_CREDITS = 64
#: The least window of a datagram socket, each way: the largest datagram with all control items fits.
DATAGRAM_WINDOW_MIN = 66_048
#: What a datagram socket has if nothing else is said: net.core.rmem_default and wmem_default of Linux.
DATAGRAM_WINDOW_DEFAULT = 212_992
assert DATAGRAM_WINDOW_MIN >= 65_535 + DATAGRAM_CONTROL_BYTES_MAX + DATAGRAM_CREDITS

#: Flag bits, by name, of the common `flags` byte. A name is legal in the messages that list it.
FLAGS: dict[str, tuple[int, str]] = {
    "FIN": (0x01, "no more data from the host: half-close (shutdown SHUT_WR)"),
    "CLOSE": (0x02, "the host has closed the socket; the proxy confirms with CLOSED"),
    "ABORT": (0x04, "with CLOSE: reset the connection, drop what is not sent (SO_LINGER 0, unread data)"),
    "LINGER": (0x08, "with CLOSE: confirm only when all data is acknowledged by the TCP peer"),
    "MORE": (0x10, "more data follows at once (MSG_MORE)"),
    "EOS": (0x20, "end of stream: the TCP peer has sent FIN"),
    "RESET": (0x40, "the connection has failed; error says how"),
    "CLOSED": (0x80, "answer to CLOSE: both identifiers are free"),
}

#: Feature bits of HELLO and HELLO_ACK, by name. 0x4000 and message 70 were once in use: they are not given away again.
FEATURES: dict[str, tuple[int, str]] = {
    "SHARE": (0x01, "listeners shared between processes (SHARE), connections that move between them (PARK, CLAIM)"),
    "ULP": (
        0x02,
        "protocols pushed onto sockets by IOCTL; PDUs (SEND_PDU, RECV_PDU), GIVE_BACK (xts_messages/wire/ulps.py)",
    ),
    "ULP_TLS": (0x04, "the event TLS of pushed protocols: how a connection is encrypted"),
    "BUNDLE": (0x08, "small frames may come several in one (BUNDLE)"),
    "SHRINK": (0x10, "a window may be lessened: less advertised than was freed"),
    "TOKEN": (0x20, "an attach token comes before HELLO (TOKEN); in HELLO_ACK: it was checked and is valid"),
    "REFUSAL": (0x40, "replies that fail have the number of a refusal where other messages have their flags"),
    "SHARE_BOUND": (0x80, "SHARE also names and joins sockets that are bound and not yet listening"),
    "RELAY": (0x100, "the host's end is a relay: the frames of many channels come over this link (CARRIED)"),
    "TAKE": (0x200, "connections that several processes have, each using them by turns (TAKE, YIELD, RETURN)"),
    "DATAGRAM": (0x400, "datagram sockets (OPEN_DATAGRAM, SEND_DATAGRAMS, RECV_DATAGRAMS)"),
    "NAMES": (0x800, "the proxy asks name servers for the host (QUERY_NAME)"),
    "STAMPS": (0x1000, "time stamps of datagrams (SO_TIMESTAMP and similar options), and their clock (CLOCK)"),
    "SHARE_DATAGRAM": (0x2000, "SHARE also names and joins datagram sockets"),
    "RETURN_DATAGRAM": (0x8000, "what a process has not read of a shared datagram socket goes back (RETURN_DATAGRAMS)"),
    "CUT_OFF": (0x20000, "the end of a stream may have an error (RECV with EOS): it was cut off; sending goes on"),
    "RENEW_KEY": (0x4_0000, "SHARE gives a socket another key, in place of the one that it has"),
    "FAULT_OF": (0x8_0000, "ULP_ERROR says which protocol's fault it is"),
    "WITHDRAW": (0x10_0000, "SHARE without a token withdraws the post credits of a listener"),
    "CANCEL": (0x20_0000, "the host may close a socket whose CONNECT has not been answered yet (CANCEL)"),
    "MOVE": (0x40_0000, "the host can go on with another process of the proxy (MOVE)"),
    "LISTENING": (
        0x80_0000,
        "a listener may be shut down (SHUT_LISTENER), and whether a shared socket listens is one thing for all members "
        "(LISTENING)",
    ),
    "MOVE_DATAGRAM": (0x200_0000, "the host claims datagram sockets, too, from another process of the proxy (MOVE)"),
    "MOVE_PUSHED": (0x400_0000, "onto a listener that it claims (MOVE) the host pushes again before it accepts"),
    "MOVE_RELAYED": (0x1000_0000, "of a trunk: the channels behind the relay move with it to another process (MOVE)"),
    "MOVE_NAMED": (0x2000_0000, "the host claims connections with a key, too, from another process (MOVE, RESUME)"),
    "RESUME": (0x800_0000, "the host can go on when the proxy's worker has died (REPLACED, RESUME)"),
    "RESUME_RELAYED": (
        0x4000_0000,
        "of a trunk: the channels behind the relay go on when the proxy's worker has died (REPLACED, RESUME)",
    ),
    "OVER": (0x8000_0000, "who attaches processes may say which connections no process has any more (OVER)"),
    "PARTS": (0x100_0000, "frames longer than a packet of the wire come in parts (PART)"),
    "CATCH_UP": (0x1_0000, "the host may ask for what waits behind frame credits (CATCH_UP), and gets it in GATHERED"),
}

#: Parts of a frame's head, by name: the bit, and what the head then has.
HEAD_PARTS: dict[str, tuple[int, str]] = {
    "SECRET": (0x01, "`secret`"),
}

#: Parts of the head of a frame that is repeated (ARQ), by name: the bit, and what the head has with it.
ARQ_PARTS: dict[str, tuple[int, str]] = {
    "NUMBERED": (0x01, "`sequence` and an inner frame, which is repeated until it is acknowledged"),
    "ARRIVED": (0x02, "`arrived`, `selective_low`, `selective_high`, `heard`, `held_us` and `duplicates`"),
    "OPEN": (0x04, "from a host: its attachment may begin with this frame"),
}

#: Further claims of an attach token, by name: the number, the bytes of the value, and the meaning. A proxy passes over
#: those that it does not know, so nobody may lose a right by that. The numbers do not change.
TOKEN_CLAIMS: dict[str, tuple[int, int, str]] = {
    "ORDER": (
        1,
        16,
        "the life of the agent, a random number (64 bits), and the number of the token in this life (64 bits), which "
        "grows",
    ),
    "FIRST_PORT": (2, 2, "the first port that the process may bind to, by the kernel's rule for privileged ports"),
    "SECRET": (3, 8, "the secret of the attachment, which the head of each of its frames has"),
}

_EXPLAIN = "`xts-proxy --explain` on the device names the rule"

#: Why the proxy itself refuses a request, by name: the number, the errno that goes with it, and the sentence that the
#: program gets. What the device's TCP refuses has its errno alone. The numbers do not change.
REFUSALS: dict[str, tuple[int, int, str]] = {
    "CONNECT_POLICY": (1, errno.EACCES, f"the proxy's policy forbids this host to connect to that address: {_EXPLAIN}"),
    "LISTEN_POLICY": (2, errno.EACCES, f"the proxy's policy forbids this host to bind or listen there: {_EXPLAIN}"),
    "STOPPING": (3, errno.ESHUTDOWN, "the proxy is about to stop, and takes no new connections and listeners"),
    "CONNECTIONS": (4, errno.ENOBUFS, "this host has as many connections as limits.connections of the proxy allows"),
    "LISTENERS": (5, errno.ENOBUFS, "this host has as many listeners as limits.listeners of the proxy allows"),
    "SOCKETS": (
        6,
        errno.ENOBUFS,
        "the proxy has no more descriptors or memory for sockets of this host (limits.descriptors, guaranteed)",
    ),
    "WINDOWS": (
        7,
        errno.ENOBUFS,
        "the proxy has no more memory for data of this host's connections (limits.spill_mib, guaranteed)",
    ),
    "DEVICE_DESCRIPTORS": (8, errno.ENOBUFS, "the proxy, or the device, is out of descriptors"),
    "DEVICE_MEMORY": (9, errno.ENOBUFS, "the proxy, or the kernel of the device, is out of memory"),
    "OPTION": (10, errno.EPERM, "the proxy lets no host use this option, or not with this value"),
    "SHARED_LISTENERS": (11, errno.ENOBUFS, "the proxy has as many shared listeners of this host as it allows"),
    "PARKED": (
        12,
        errno.ENOBUFS,
        "the proxy keeps as many connections, or bytes, between two processes of this host as it allows",
    ),
    "RELAYED": (
        13,
        errno.EUSERS,
        "the proxy serves as many processes behind this host's relay as its relayed_max allows",
    ),
    "NAME_POLICY": (
        14,
        errno.EACCES,
        "the proxy lets this host not look up that name: see [names] of its configuration",
    ),
    "LOOKUPS": (
        15,
        errno.ENOBUFS,
        "as many names of this host are being looked up as limits.lookups of the proxy allows",
    ),
    "GROUPS": (
        16,
        errno.ENOBUFS,
        "sockets of this host are members of as many multicast groups as limits.groups of the proxy allows",
    ),
    "DEVICE_GROUPS": (
        17,
        errno.ENOBUFS,
        "the device's kernel lets a socket join no more groups or sources: net.ipv4.igmp_max_memberships, igmp_max_msf",
    ),
    "FILTERS": (
        18,
        errno.ENOBUFS,
        "filters of this host's sockets have as many instructions as limits.filters of the proxy allows",
    ),
    "FILTER_LOADS": (
        19,
        errno.EPERM,
        "a filter may look at packets, and not at frames of the device, its marks, queues, processors and VLANs",
    ),
    "FILTER_NAME": (
        20,
        errno.ENOENT,
        "the operator of the proxy has no filter of that name for this host (filter in the proxy's configuration)",
    ),
    "LOCAL_PORTS": (
        21,
        errno.EADDRNOTAVAIL,
        "the proxy has no local port left for this host towards that address (guaranteed.local_ports), or no address",
    ),
    "BIND_PORTS": (
        22,
        errno.EADDRINUSE,
        "the proxy has no local port left for this host to bind to (guaranteed.local_ports)",
    ),
    "LOW_PORT": (
        23,
        errno.EACCES,
        "this port takes CAP_NET_BIND_SERVICE, which the proxy knows over an interface by token_key only, or "
        "policy.low_ports on the device",
    ),
    "RELIABLE": (
        24,
        errno.EOPNOTSUPP,
        "the proxy and this host do not agree on whether lost frames are repeated: set `reliable` of the interface to "
        "the same in xts-proxy.toml and in xts-agent.toml",
    ),
}

_XTS = Field("xts_socket", Kind.U32, "the host's identifier of this socket", "id")
_PROXY = Field("proxy_id", Kind.U32, "the proxy's identifier of this socket", "id")
_CREDITS = Field("post_credits", Kind.U32, "post credits granted with this message", "bytes", CREDITS_MAX)
_TOKEN = Field("token", Kind.U32, "repeated in the reply")
_LENGTH = Field("length", Kind.U32, "bytes of payload", "bytes", FRAME_BYTES_MAX)
_LOCAL = Field("local", Kind.ENDPOINT, "local address of the socket")
_PEER = Field("peer", Kind.ENDPOINT, "address of the peer")
_DOMAIN = Field(
    "domain", Kind.U32, "4 or 6: the family of the socket, should the proxy have to create it", values=(0, 4, 6)
)

_KEY = Field(
    "key", Kind.U64, "random number that stands for the socket in whatever process knows it; never 0", secret=True
)
_KEEP = Field(
    "keep_ms",
    Kind.U32,
    "how long it outlives the process that gave this, if that ends without closing it and nobody else has it",
    "ms",
    60_000,
)

_RECORD = Field("record_bytes", Kind.U32, "length of the whole PDU, of all its messages; 0: not known here", "bytes")
_CONTROL = (
    Field("control_type", Kind.U16, "what the control data is about: a ULP, 0 for none, or an event (XTS_CONTROL_*)"),
    Field("control_bytes", Kind.U16, "length of the control data", "bytes", 16),
    Field("control_high", Kind.U64, "control data: its first eight bytes"),
    Field("control_low", Kind.U64, "and the others; zero beyond control_bytes"),
)

_DROPPED = Field(
    "dropped",
    Kind.U32,
    "datagrams that have arrived for this socket and were dropped so far, modulo 2^32 (as SO_RXQ_OVFL)",
    "datagrams",
)

_FAMILIES = Field(
    "families",
    Kind.U32,
    "of addresses that the device has, loopback and link-local left out: 1 IPv4, 2 IPv6; 0: not known",
    values=(0, 1, 2, 3),
)

_PURPOSE = Field(
    "purpose",
    Kind.U32,
    "what for: 0 if nobody has it, 1 to wait for events, 2 to receive, 3 any other use",
    values=(0, 1, 2, 3),
)

_FIRST = "the proxy's identifier, or 0: create the socket"

MESSAGES: tuple[Message, ...] = (
    Message(
        "XTS_CMD_CONNECT",
        1,
        "host",
        True,
        "start a connection, with protocols pushed onto it before its first byte (payload: xts_messages/wire/ulps.py)",
        (_XTS, _CREDITS, _DOMAIN, _PEER, _LENGTH),
        payload="length",
        source="paper",
        id_of=_FIRST,
    ),
    Message(
        "XTS_REPLY_CONNECT_ACK",
        2,
        "proxy",
        True,
        "the connection is established, or error says why not",
        (_PROXY, _CREDITS, _LOCAL, _PEER),
        source="paper",
        id_of="XTS socket",
        refusal=True,
    ),
    Message(
        "XTS_CMD_LISTEN",
        3,
        "host",
        True,
        "start a listener; each post credit is one connection of the backlog",
        (
            _XTS,
            _TOKEN,
            Field("post_credits", Kind.U32, "connections that may wait for accept", "connections", CREDITS_MAX),
            _DOMAIN,
            Field("backlog", Kind.U32, "as in listen(2)", "connections"),
        ),
        source="paper",
        id_of=_FIRST,
    ),
    Message(
        "XTS_REPLY_LISTEN_ACK",
        4,
        "proxy",
        True,
        "the listener has started, or error says why not",
        (_PROXY, _TOKEN, _LOCAL),
        source="paper",
        id_of="XTS socket",
        refusal=True,
    ),
    Message(
        "XTS_REPLY_NEWCONN",
        5,
        "proxy",
        True,
        "a listener has a new connection; takes one of its post credits",
        (_PROXY, _CREDITS, _LOCAL, _PEER),
        source="paper",
        id_of="XTS socket of the listener",
    ),
    Message(
        "XTS_CMD_NEWCONN_ACK",
        6,
        "host",
        True,
        "the new connection has an XTS socket; an error refuses it (reset)",
        (_XTS, _CREDITS),
        source="paper",
        id_of="proxy's identifier of the new connection",
    ),
    Message(
        "XTS_CMD_SEND",
        7,
        "host",
        True,
        "data, post credits, and the ways of closing; length 0 is a pure credit "
        "advertisement. On a listener, post_credits returns accepted connections",
        (_CREDITS, _LENGTH),
        "length",
        ("FIN", "CLOSE", "ABORT", "LINGER", "MORE"),
        "paper",
        "proxy's identifier",
    ),
    Message(
        "XTS_REPLY_RECV",
        8,
        "proxy",
        True,
        "received data, post credits, end of stream, failure, end of close",
        (_CREDITS, _LENGTH),
        "length",
        ("EOS", "RESET", "CLOSED"),
        "paper",
        "XTS socket",
    ),
    Message(
        "XTS_LINK_HELLO",
        16,
        "host",
        False,
        "opens the link; resets whatever an earlier epoch left",
        # No limits here: a later version may know others, and is to be refused for its version.
        (
            Field("version", Kind.U16, "wire version"),
            Field("frame_window", Kind.U16, "largest window wanted", "frames"),
            Field("largest_message", Kind.U32, "largest frame the host can receive", "bytes"),
            Field("features", Kind.U64, "feature bits offered"),
            Field("required", Kind.U64, "feature bits the host cannot do without"),
            Field("epoch", Kind.U64, "random number of this attachment"),
            Field("pid", Kind.U32, "the host process, for the operator's eyes only"),
        ),
    ),
    Message(
        "XTS_LINK_HELLO_ACK",
        17,
        "proxy",
        False,
        "the link is up with these values, or error refuses it",
        (
            Field("version", Kind.U16, "wire version spoken"),
            Field("frame_window", Kind.U16, "window in force, each way", "frames", FRAME_WINDOW_MAX),
            Field("largest_message", Kind.U32, "largest frame in force, each way", "bytes", FRAME_BYTES_MAX),
            Field("features", Kind.U64, "feature bits in force"),
            Field("epoch", Kind.U64, "repeats the HELLO's"),
            Field("sockets_max", Kind.U32, "sockets this host may have", "sockets"),
        ),
        refusal=True,
    ),
    Message("XTS_LINK_FRAME_ACK", 18, "both", False, "frame_ack, when nothing else is there to carry it"),
    Message("XTS_LINK_PING", 19, "both", False, "answer me", (Field("token", Kind.U64, "repeated in the answer"),)),
    Message("XTS_LINK_PONG", 20, "both", False, "answer to a ping", (Field("token", Kind.U64, "the ping's"),)),
    Message(
        "XTS_LINK_GOODBYE",
        21,
        "both",
        False,
        "this epoch has ended; error says why (0: orderly)",
        (Field("epoch", Kind.U64, "the epoch that ends; 0, of a proxy: it knows of none"),),
    ),
    Message(
        "XTS_LINK_BUNDLE",
        22,
        "both",
        False,
        "several frames in one, as if they had come one by one; the payload is each frame's length (16 bits) and the "
        "frame itself, from its Ethernet header on. Its own sequence number and frame_ack are 0 and mean nothing",
        (_LENGTH,),
        "length",
    ),
    Message(
        "XTS_LINK_TOKEN",
        23,
        "host",
        False,
        "what the agent of the host vouches for, right before the HELLO it is about; the payload is the path of the "
        "process's cgroup, and further claims",
        (
            Field("queue", Kind.U32, "the queue it was given; of a relay's queue: and whose, in the bits from 8 on"),
            Field("uid", Kind.U32, "its user"),
            Field("epoch", Kind.U64, "that of the HELLO"),
            Field("expires_ms", Kind.U64, "the HELLO comes before, in milliseconds since 1970", "ms"),
            Field(
                "mac_high",
                Kind.U64,
                "first eight bytes of HMAC-SHA256 under the key that agent and proxy share",
                secret=True,
            ),
            Field("mac_low", Kind.U64, "and the next eight", secret=True),
            Field("length", Kind.U32, "bytes of payload", "bytes", TOKEN_PAYLOAD_BYTES_MAX),
        ),
        "length",
    ),
    Message(
        "XTS_LINK_CLOCK",
        24,
        "host",
        False,
        "what time is it? Sent where STAMPS is in force",
        (Field("token", Kind.U64, "repeated in the answer"),),
    ),
    Message(
        "XTS_LINK_CLOCK_ACK",
        25,
        "proxy",
        False,
        "the time at the moment when this leaves",
        (
            Field("token", Kind.U64, "the question's"),
            Field("time_ns", Kind.U64, "the device's clock: nanoseconds since 1970 (CLOCK_REALTIME)", "ns"),
            Field(
                "error_ns",
                Kind.U64,
                "how far it may be from the time that it follows (by PTP or NTP: maxerror of adjtimex(2)); "
                "all ones: it follows none",
                "ns",
            ),
        ),
    ),
    Message(
        "XTS_LINK_CATCH_UP",
        26,
        "host",
        False,
        "send something of each socket that has something for the host, then answer; with CATCH_UP in force",
        (Field("token", Kind.U64, "repeated in the answer; never 0"),),
    ),
    Message(
        "XTS_LINK_CAUGHT_UP",
        27,
        "proxy",
        False,
        "each socket that had something for the host when CATCH_UP came has had its turn since",
        (Field("token", Kind.U64, "the request's"),),
    ),
    Message(
        "XTS_LINK_REPLACED",
        240,
        "proxy",
        False,
        "the process that served this epoch has died, and another one goes on: the host says HELLO to it, and RESUME; "
        "with RESUME in force",
        (
            Field("epoch", Kind.U64, "that has ended"),
            Field("ticket", Kind.U64, "by which the host claims its sockets there; never 0", secret=True),
        ),
    ),
    Message(
        "XTS_LINK_OVER",
        241,
        "host",
        False,
        "from who attaches processes, not from a process: none has these connections any more; the payload is their "
        "keys (64 bits each). Its own sequence number and frame_ack are 0 and mean nothing",
        (
            Field("epoch", Kind.U64, "of the process that has told of them, with OVER in force; it may have ended"),
            Field("length", Kind.U32, "bytes of payload", "bytes", OVER_BYTES_MAX),
        ),
        "length",
    ),
    Message(
        "XTS_LINK_HEADED",
        28,
        "both",
        False,
        "a head, and as payload the frame that it carries, from the type of that on (PROTOCOL.md has more of it). "
        "Its own sequence number, frame_ack, flags and error are 0 and mean nothing",
        (
            Field("secret", Kind.U64, "that of the attachment; 0 without the part SECRET", secret=True),
            Field("reserved_high", Kind.U64, "0"),
            Field("reserved_low", Kind.U32, "0"),
            Field("parts", Kind.U16, "bits: which of these the head has"),
        ),
        id_of="receiver's queue",
    ),
    Message(
        "XTS_LINK_PROBE",
        29,
        "both",
        False,
        "does a frame for this queue arrive there? The XDP program of the device sends it back, with the queue on "
        "which it has arrived; no process sees it",
        (
            Field("round", Kind.U64, "of the probes of an agent; not 0"),
            Field("arrived_on", Kind.U32, "0 on the way there; on the way back the queue it arrived on, plus one"),
            Field("back", Kind.U16, "0 on the way there, 1 on the way back"),
        ),
        id_of="receiver's queue",
    ),
    Message("XTS_CMD_BIND", 32, "host", True, "bind(2)", (_XTS, _TOKEN, _DOMAIN, _LOCAL), id_of=_FIRST),
    Message(
        "XTS_LINK_PART",
        31,
        "both",
        False,
        "a part of a frame that is longer than a packet; the payload is what the frame has behind its Ethernet header, "
        "from `offset` on. Its own sequence number and frame_ack are 0 and mean nothing",
        (
            Field("frame_bytes", Kind.U32, "length of the frame behind its Ethernet header", "bytes", FRAME_BYTES_MAX),
            Field("offset", Kind.U32, "what has come of it before", "bytes", FRAME_BYTES_MAX),
            _LENGTH,
        ),
        "length",
    ),
    Message(
        "XTS_LINK_ARQ",
        30,
        "both",
        False,
        "a head of what repeats lost frames, and as payload the frame that it carries, from the type of that on "
        "(PROTOCOL.md has more of it). Its own sequence number, frame_ack, flags, error and id are 0 and mean nothing",
        (
            Field("epoch", Kind.U64, "that of the attachment"),
            Field("sequence", Kind.U32, "number of this frame, modulo 2^32; 0 without the part NUMBERED"),
            Field("first", Kind.U32, "number of the first frame of its sender in this epoch"),
            Field("arrived", Kind.U32, "all frames with lower numbers have arrived; 0 without the part ARRIVED"),
            Field("selective_low", Kind.U64, "bit N: frame `arrived` + 1 + N has arrived, too"),
            Field("selective_high", Kind.U64, "bit N: frame `arrived` + 65 + N has arrived, too"),
            Field("transmission", Kind.U32, "number of this transmission: repeated frames have a new one each time"),
            Field("heard", Kind.U32, "highest number of a transmission that has arrived"),
            Field("checksum", Kind.U32, "CRC32C of the frame from its type on, with 0 in this field"),
            Field("held_us", Kind.U16, "for how long the sender has had `heard`; 65535: or longer", "us"),
            Field("duplicates", Kind.U16, "numbered frames that have come twice, modulo 2^16"),
            Field("parts", Kind.U16, "bits: which of these the head has"),
        ),
    ),
    Message(
        "XTS_REPLY_BIND_ACK",
        33,
        "proxy",
        True,
        "answer to bind",
        (_PROXY, _TOKEN, _LOCAL),
        id_of="XTS socket",
        refusal=True,
    ),
    Message(
        "XTS_CMD_SETSOCKOPT",
        34,
        "host",
        True,
        "setsockopt(2), against the proxy's allow-list",
        (
            _XTS,
            _TOKEN,
            _DOMAIN,
            Field("level", Kind.I32, "as in setsockopt(2)"),
            Field("option", Kind.I32, "as in setsockopt(2)"),
            _LENGTH,
        ),
        "length",
        id_of=_FIRST,
    ),
    Message(
        "XTS_CMD_GETSOCKOPT",
        35,
        "host",
        True,
        "getsockopt(2); the payload is the value passed in, for options that read it",
        (
            _XTS,
            _TOKEN,
            _DOMAIN,
            Field("level", Kind.I32, "as in getsockopt(2)"),
            Field("option", Kind.I32, "as in getsockopt(2)"),
            _LENGTH,
        ),
        "length",
        id_of=_FIRST,
    ),
    Message(
        "XTS_REPLY_SOCKOPT_ACK",
        36,
        "proxy",
        True,
        "answer to either; the payload is the option's value",
        (_PROXY, _TOKEN, _LENGTH),
        "length",
        id_of="XTS socket",
        refusal=True,
    ),
    Message(
        "XTS_CMD_IOCTL",
        37,
        "host",
        True,
        "ioctl(2), and what is done with ULPs (xts_messages/wire/ulps.py)",
        (_XTS, _TOKEN, _DOMAIN, Field("request", Kind.U32, "as in ioctl(2)"), _LENGTH),
        "length",
        id_of=_FIRST,
    ),
    Message(
        "XTS_REPLY_IOCTL_ACK",
        38,
        "proxy",
        True,
        "answer to ioctl; the payload is its result",
        (_PROXY, _TOKEN, _LENGTH),
        "length",
        id_of="XTS socket",
        refusal=True,
    ),
    Message(
        "XTS_CMD_SHARE",
        39,
        "host",
        True,
        "share a listener, or a bound socket, between processes: the first names it by a key, the others join (id 0)",
        (_XTS, _TOKEN, _KEY, _KEEP),
        id_of="the proxy's identifier of the socket, or 0: join the one of that key",
        feature="SHARE",
    ),
    Message(
        "XTS_REPLY_SHARE_ACK",
        40,
        "proxy",
        True,
        "shared, or error says why not (ENOENT: nothing is shared under that key)",
        (_PROXY, _TOKEN, _LOCAL),
        id_of="XTS socket",
        refusal=True,
    ),
    Message(
        "XTS_CMD_PARK",
        41,
        "host",
        True,
        "this process gives the connection up; whoever knows the key may claim it",
        (_XTS, _TOKEN, _KEY, _KEEP),
        id_of="proxy's identifier",
        feature="SHARE",
    ),
    Message(
        "XTS_REPLY_PARK_ACK",
        42,
        "proxy",
        True,
        "parked: nothing more comes for it and both identifiers are free; or error says why not",
        (_TOKEN,),
        id_of="XTS socket",
        refusal=True,
    ),
    Message(
        "XTS_CMD_CLAIM",
        43,
        "host",
        True,
        "take over the connection parked under the key",
        (
            _XTS,
            _TOKEN,
            _KEY,
            _CREDITS,
            Field(
                "unread", Kind.U32, "bytes received that came with the claim and are still unread", "bytes", CREDITS_MAX
            ),
        ),
        id_of="zero",
        feature="SHARE",
    ),
    Message(
        "XTS_REPLY_CLAIM_ACK",
        44,
        "proxy",
        True,
        "the connection is this process's, or error says why not (ENOENT: nothing parked under that key)",
        (_PROXY, _TOKEN, _CREDITS, _LOCAL, _PEER),
        id_of="XTS socket",
        refusal=True,
    ),
    Message(
        "XTS_CMD_SEND_PDU",
        45,
        "host",
        True,
        "a PDU for the pushed protocols, or a part of one (MORE: it goes on); takes its payload and XTS_PDU_CREDITS",
        (_CREDITS, _LENGTH, _RECORD, *_CONTROL),
        "length",
        ("MORE",),
        id_of="proxy's identifier",
        feature="ULP",
    ),
    Message(
        "XTS_REPLY_RECV_PDU",
        46,
        "proxy",
        True,
        "a PDU from the pushed protocols, or a part of one (MORE: it goes on); or an event, which takes no credits",
        (_CREDITS, _LENGTH, _RECORD, *_CONTROL),
        "length",
        ("MORE",),
        id_of="XTS socket",
    ),
    Message(
        "XTS_CMD_GIVE_BACK",
        47,
        "host",
        True,
        "received bytes, in order, that the application had not read when it pushed a protocol that is to read them",
        (_LENGTH,),
        "length",
        id_of="proxy's identifier",
        feature="ULP",
    ),
    Message(
        "XTS_RELAY_CARRIED",
        48,
        "both",
        True,
        "a frame of one of the channels behind a relay; the payload is the frame, from its Ethernet header on",
        (_LENGTH,),
        "length",
        id_of="number of the channel",
    ),
    Message(
        "XTS_CMD_TAKE",
        49,
        "host",
        True,
        "take over the connection of this key from whatever process has it",
        (_XTS, _TOKEN, _KEY, _CREDITS, _PURPOSE),
        id_of="zero",
        feature="TAKE",
    ),
    Message(
        "XTS_REPLY_TAKE_ACK",
        50,
        "proxy",
        True,
        "the connection is this process's, or error says why not yet (EBUSY, EAGAIN) or not at all (ENOENT)",
        (
            _PROXY,
            _TOKEN,
            _CREDITS,
            _LOCAL,
            _PEER,
            Field("died", Kind.U32, "1: its last process has ended without parking it", values=(0, 1)),
            Field("delivered_bytes", Kind.U64, "that this process had been sent, if it has died", "bytes"),
            Field("accepted_bytes", Kind.U64, "that had come from this process, if it has died", "bytes"),
        ),
        id_of="XTS socket",
        refusal=True,
    ),
    Message(
        "XTS_REPLY_YIELD",
        51,
        "proxy",
        True,
        "another process asks for the connection: PARK gives it up, SHARE says that it is still needed",
        (_PURPOSE,),
        id_of="XTS socket",
    ),
    Message(
        "XTS_REPLY_GATHERED",
        53,
        "proxy",
        True,
        "with CATCH_UP: several messages, each with its length (16 bits) in front and from its Ethernet header on",
        (_LENGTH,),
        "length",
        id_of="zero",
    ),
    Message(
        "XTS_CMD_RETURN",
        52,
        "host",
        True,
        "what was received of a parked connection and is unread, in order (MORE: the PDU goes on); at last the end",
        (
            _KEY,
            _LENGTH,
            Field("kind", Kind.U32, "0: the end, 1: byte stream, 2: PDU", values=(0, 1, 2)),
            _RECORD,
            *_CONTROL,
        ),
        "length",
        ("MORE",),
        id_of="zero",
        feature="TAKE",
    ),
    Message(
        "XTS_CMD_CANCEL",
        54,
        "host",
        True,
        "close, as CLOSE with ABORT does, the socket of a CONNECT that has not been answered; CLOSED confirms",
        (_XTS,),
        id_of="zero",
        feature="CANCEL",
    ),
    Message(
        "XTS_REPLY_MOVE",
        55,
        "proxy",
        True,
        "another process is about to take this queue over: the host finishes its calls, and answers MOVE_ACK",
        (
            Field("ticket", Kind.U64, "by which the host claims its sockets there"),
            Field("within_ms", Kind.U32, "for how long the host may wait for calls that are under way", "ms"),
        ),
        id_of="zero",
    ),
    Message(
        "XTS_CMD_MOVE_ACK",
        56,
        "host",
        True,
        "the last message of this epoch from the host: no call is under way; GOODBYE with ERESTART answers it",
        (Field("ticket", Kind.U64, "of the MOVE"),),
        id_of="zero",
        feature="MOVE",
    ),
    Message(
        "XTS_CMD_RESUME",
        60,
        "host",
        True,
        "as CLAIM, after REPLACED, with what this host has counted. CLAIM_ACK answers. Key 0: that was the last one, "
        "and what was not asked for is reset",
        (
            _XTS,
            _TOKEN,
            Field("key", Kind.U64, "made of the ticket and the socket's old identifier, or 0", secret=True),
            _CREDITS,
            Field("unread", Kind.U32, "bytes received that are still unread", "bytes", CREDITS_MAX),
            Field("received_bytes", Kind.U64, "what it was sent since it had the connection on a channel", "bytes"),
            Field("sent_bytes", Kind.U64, "what it has sent since then", "bytes"),
            Field("fin_sent", Kind.U32, "not 0: it has sent FIN"),
        ),
        id_of="zero",
        feature="RESUME",
    ),
    Message(
        "XTS_CMD_SHUT_LISTENER",
        57,
        "host",
        True,
        "shutdown(2) of a listener, for reading: what waits for accept is reset, and the socket is bound and listens "
        "no more, for all that have it",
        (_XTS, _TOKEN),
        id_of="the proxy's identifier of the listener",
        feature="LISTENING",
    ),
    Message(
        "XTS_REPLY_SHUT_LISTENER_ACK",
        58,
        "proxy",
        True,
        "it listens no more, or error says why not (ENOTCONN: another process has shut it down before)",
        (_PROXY, _TOKEN, _LOCAL),
        id_of="XTS socket",
        refusal=True,
    ),
    Message(
        "XTS_REPLY_LISTENING",
        59,
        "proxy",
        True,
        "with LISTENING: whether the socket of this member listens, when it has joined and when another one changes it",
        (
            Field(
                "listens",
                Kind.U32,
                "0: no, and it has not so far; 1: yes; 2: no, it was shut down. Connections offered before are reset",
                values=(0, 1, 2),
            ),
            Field("backlog", Kind.U32, "that of the last LISTEN", "connections"),
        ),
        id_of="XTS socket",
    ),
    Message(
        "XTS_CMD_OPEN_DATAGRAM",
        64,
        "host",
        True,
        "create a datagram socket, bound and connected if the addresses say so",
        (
            _XTS,
            _TOKEN,
            _CREDITS,
            Field("domain", Kind.U32, "4 or 6: the family of the socket", values=(0, 4, 6)),
            Field("local", Kind.ENDPOINT, "to be bound to; ip_version 0: not bound"),
            Field("peer", Kind.ENDPOINT, "to be connected to; ip_version 0: not connected"),
            Field(
                "receive_bytes",
                Kind.U32,
                "SO_RCVBUF of the device's socket; 0: the default of the device's kernel",
                "bytes",
                CREDITS_MAX,
            ),
        ),
        id_of="zero",
        feature="DATAGRAM",
    ),
    Message(
        "XTS_REPLY_OPEN_DATAGRAM_ACK",
        65,
        "proxy",
        True,
        "the datagram socket is there, or error says why not",
        (_PROXY, _TOKEN, _CREDITS, _LOCAL, _PEER),
        id_of="XTS socket",
        refusal=True,
    ),
    Message(
        "XTS_CMD_CONNECT_DATAGRAM",
        66,
        "host",
        True,
        "connect(2) of a datagram socket, also again; ip_version 0: to nobody any more",
        (_XTS, _TOKEN, _PEER),
        id_of="proxy's identifier",
        feature="DATAGRAM",
    ),
    Message(
        "XTS_REPLY_CONNECT_DATAGRAM_ACK",
        67,
        "proxy",
        True,
        "answer to connect of a datagram socket",
        (_TOKEN, _LOCAL, _PEER),
        id_of="XTS socket",
        refusal=True,
    ),
    Message(
        "XTS_CMD_SEND_DATAGRAMS",
        68,
        "host",
        True,
        "datagrams to be sent, each with its record in front; MORE: the last one goes on in the next message",
        (_CREDITS, _LENGTH),
        "length",
        ("MORE",),
        id_of="proxy's identifier",
        feature="DATAGRAM",
    ),
    Message(
        "XTS_REPLY_RECV_DATAGRAMS",
        69,
        "proxy",
        True,
        "datagrams received, each with its record in front (MORE: the last one goes on in the next message); or, "
        "without any, the pending error of the socket",
        (_CREDITS, _DROPPED, _LENGTH),
        "length",
        ("MORE",),
        id_of="XTS socket",
    ),
    Message(
        "XTS_CMD_RETURN_DATAGRAMS",
        71,
        "host",
        True,
        "datagrams received on a shared socket and unread, in order, for whoever reads next, each with its record in "
        "front; MORE: the last one goes on in the next message. Error: a pending one",
        (_LENGTH,),
        "length",
        ("MORE",),
        id_of="proxy's identifier",
        feature="RETURN_DATAGRAM",
    ),
    Message(
        "XTS_CMD_QUERY_NAME",
        80,
        "host",
        True,
        "ask the device's name servers; the payload is a standard query with one question (RFC 1035)",
        (_TOKEN, Field("length", Kind.U32, "bytes of payload", "bytes", NAME_QUERY_BYTES_MAX)),
        "length",
        id_of="zero",
        feature="NAMES",
    ),
    Message(
        "XTS_REPLY_NAME_ACK",
        81,
        "proxy",
        True,
        "the answer of a name server, whole, as the payload; or error says why there is none",
        (_TOKEN, _FAMILIES, _LENGTH),
        "length",
        id_of="zero",
        refusal=True,
    ),
)

#: Bits of `families` of NAME_ACK.
FAMILY_IPV4, FAMILY_IPV6 = 1, 2

#: Numbers of channels behind a relay are from 1 to below this one, which in a token stands for the relay itself.
RELAY_SELF = (1 << 24) - 1
#: The lowest bit of a channel's number in a token's `queue`.
RELAY_SHIFT = 8
#: Channels that a proxy serves behind one relay at most, whatever its configuration.
RELAYED_MAX = 1024
#: The largest frame window of a channel behind a relay: what one of them may occupy of the queue that they share.
RELAYED_WINDOW = 16

#: A host that has sent nothing for so long after MOVE is taken for asleep, and need not answer. So a host that has not
#: looked at its queue for a quarter of that looks before it sends anything.
MOVE_QUIET_MS = 100

#: What a message of a PDU takes of the post credits in addition to its payload: more than either side keeps about it.
PDU_CREDITS = 64
#: The least window of a socket with pushed protocols.
ULP_WINDOW_MIN = 4096
#: Of the pushes in the payload of a CONNECT: in the first chunk of its frame, whatever the queue.
CONNECT_PUSH_BYTES = 1024

assert all(m.sequenced == (m.code not in LINK_CODES) for m in MESSAGES)
assert not any(m.refusal and m.flags for m in MESSAGES)
assert all(not m.feature or m.feature in FEATURES for m in MESSAGES)
