/* Generated from messages/xts_messages/wire/wire_table.py by `python -m xts_messages.generate`. Do not edit. */
#ifndef XTS_WIRE_H
#define XTS_WIRE_H

#include <linux/types.h>

#define XTS_WIRE_VERSION       1u
#define XTS_ETHERTYPE          0x855Bu
#define XTS_ETH_BYTES          14u
#define XTS_HEAD_BYTES         24u
#define XTS_ETH_MIN_BYTES      60u
#define XTS_FRAME_BYTES_MAX    61440u
#define XTS_FRAME_BYTES_SINGLE 3840u
#define XTS_FRAME_BYTES_LEAST  1294u
#define XTS_FRAME_WINDOW_MAX   128u
#define XTS_FRAME_WINDOW_MIN   4u
#define XTS_CONTROL_RESERVE    32u
#define XTS_CREDITS_MAX        1073741824u
#define XTS_PDU_CREDITS        64u
#define XTS_ULP_WINDOW_MIN     4096u
#define XTS_CONNECT_PUSH_BYTES 1024u
#define XTS_NAME_QUERY_BYTES_MAX 1024u
#define XTS_OVER_BYTES_MAX     1024u
#define XTS_TOKEN_PAYLOAD_BYTES_MAX 255u
#define XTS_TOKEN_CGROUP_BYTES_MAX 215u
#define XTS_FAMILY_IPV4        1u
#define XTS_FAMILY_IPV6        2u
#define XTS_RELAY_SELF         16777215u
#define XTS_RELAY_SHIFT        8u
#define XTS_RELAYED_MAX        1024u
#define XTS_RELAYED_WINDOW     16u
#define XTS_MOVE_QUIET_MS      100u
#define XTS_SOL_XTS            22612u
#define XTS_INTERFACE_STAMPS   1073741824u
#define XTS_OPTION_FILTER      1481900034u
#define XTS_FILTER_BYTES_MAX   2048u
#define XTS_FILTER_NAME_BYTES_MAX 63u
#define XTS_DATAGRAM_RECORD_BYTES 32u
#define XTS_DATAGRAM_CONTROL_BYTES_MAX 256u
#define XTS_DATAGRAM_CREDITS   64u
#define XTS_DATAGRAM_WINDOW_MIN 66048u
#define XTS_DATAGRAM_WINDOW_DEFAULT 212992u

enum xts_msg_type {
	XTS_CMD_CONNECT                = 1,   /* host: start a connection, with protocols pushed onto it before its
	                                       * first byte (payload: xts_messages/wire/ulps.py) */
	XTS_REPLY_CONNECT_ACK          = 2,   /* proxy: the connection is established, or error says why not */
	XTS_CMD_LISTEN                 = 3,   /* host: start a listener; each post credit is one connection of the
	                                       * backlog */
	XTS_REPLY_LISTEN_ACK           = 4,   /* proxy: the listener has started, or error says why not */
	XTS_REPLY_NEWCONN              = 5,   /* proxy: a listener has a new connection; takes one of its post
	                                       * credits */
	XTS_CMD_NEWCONN_ACK            = 6,   /* host: the new connection has an XTS socket; an error refuses it
	                                       * (reset) */
	XTS_CMD_SEND                   = 7,   /* host: data, post credits, and the ways of closing; length 0 is a
	                                       * pure credit advertisement. On a listener, post_credits returns
	                                       * accepted connections */
	XTS_REPLY_RECV                 = 8,   /* proxy: received data, post credits, end of stream, failure, end of
	                                       * close */
	XTS_LINK_HELLO                 = 16,  /* host: opens the link; resets whatever an earlier epoch left */
	XTS_LINK_HELLO_ACK             = 17,  /* proxy: the link is up with these values, or error refuses it */
	XTS_LINK_FRAME_ACK             = 18,  /* both: frame_ack, when nothing else is there to carry it */
	XTS_LINK_PING                  = 19,  /* both: answer me */
	XTS_LINK_PONG                  = 20,  /* both: answer to a ping */
	XTS_LINK_GOODBYE               = 21,  /* both: this epoch has ended; error says why (0: orderly) */
	XTS_LINK_BUNDLE                = 22,  /* both: several frames in one, as if they had come one by one; the
	                                       * payload is each frame's length (16 bits) and the frame itself, from
	                                       * its Ethernet header on. Its own sequence number and frame_ack are 0
	                                       * and mean nothing */
	XTS_LINK_TOKEN                 = 23,  /* host: what the agent of the host vouches for, right before the HELLO
	                                       * it is about; the payload is the path of the process's cgroup, and
	                                       * further claims */
	XTS_LINK_CLOCK                 = 24,  /* host: what time is it? Sent where STAMPS is in force */
	XTS_LINK_CLOCK_ACK             = 25,  /* proxy: the time at the moment when this leaves */
	XTS_LINK_CATCH_UP              = 26,  /* host: send something of each socket that has something for the host,
	                                       * then answer; with CATCH_UP in force */
	XTS_LINK_CAUGHT_UP             = 27,  /* proxy: each socket that had something for the host when CATCH_UP
	                                       * came has had its turn since */
	XTS_LINK_REPLACED              = 240, /* proxy: the process that served this epoch has died, and another one
	                                       * goes on: the host says HELLO to it, and RESUME; with RESUME in force */
	XTS_LINK_OVER                  = 241, /* host: from who attaches processes, not from a process: none has
	                                       * these connections any more; the payload is their keys (64 bits
	                                       * each). Its own sequence number and frame_ack are 0 and mean nothing */
	XTS_LINK_HEADED                = 28,  /* both: a head, and as payload the frame that it carries, from the
	                                       * type of that on (PROTOCOL.md has more of it). Its own sequence
	                                       * number, frame_ack, flags and error are 0 and mean nothing */
	XTS_LINK_PROBE                 = 29,  /* both: does a frame for this queue arrive there? The XDP program of
	                                       * the device sends it back, with the queue on which it has arrived; no
	                                       * process sees it */
	XTS_CMD_BIND                   = 32,  /* host: bind(2) */
	XTS_LINK_PART                  = 31,  /* both: a part of a frame that is longer than a packet; the payload is
	                                       * what the frame has behind its Ethernet header, from `offset` on. Its
	                                       * own sequence number and frame_ack are 0 and mean nothing */
	XTS_LINK_ARQ                   = 30,  /* both: a head of what repeats lost frames, and as payload the frame
	                                       * that it carries, from the type of that on (PROTOCOL.md has more of
	                                       * it). Its own sequence number, frame_ack, flags, error and id are 0
	                                       * and mean nothing */
	XTS_REPLY_BIND_ACK             = 33,  /* proxy: answer to bind */
	XTS_CMD_SETSOCKOPT             = 34,  /* host: setsockopt(2), against the proxy's allow-list */
	XTS_CMD_GETSOCKOPT             = 35,  /* host: getsockopt(2); the payload is the value passed in, for options
	                                       * that read it */
	XTS_REPLY_SOCKOPT_ACK          = 36,  /* proxy: answer to either; the payload is the option's value */
	XTS_CMD_IOCTL                  = 37,  /* host: ioctl(2), and what is done with ULPs
	                                       * (xts_messages/wire/ulps.py) */
	XTS_REPLY_IOCTL_ACK            = 38,  /* proxy: answer to ioctl; the payload is its result */
	XTS_CMD_SHARE                  = 39,  /* host: share a listener, or a bound socket, between processes: the
	                                       * first names it by a key, the others join (id 0) */
	XTS_REPLY_SHARE_ACK            = 40,  /* proxy: shared, or error says why not (ENOENT: nothing is shared
	                                       * under that key) */
	XTS_CMD_PARK                   = 41,  /* host: this process gives the connection up; whoever knows the key
	                                       * may claim it */
	XTS_REPLY_PARK_ACK             = 42,  /* proxy: parked: nothing more comes for it and both identifiers are
	                                       * free; or error says why not */
	XTS_CMD_CLAIM                  = 43,  /* host: take over the connection parked under the key */
	XTS_REPLY_CLAIM_ACK            = 44,  /* proxy: the connection is this process's, or error says why not
	                                       * (ENOENT: nothing parked under that key) */
	XTS_CMD_SEND_PDU               = 45,  /* host: a PDU for the pushed protocols, or a part of one (MORE: it
	                                       * goes on); takes its payload and XTS_PDU_CREDITS */
	XTS_REPLY_RECV_PDU             = 46,  /* proxy: a PDU from the pushed protocols, or a part of one (MORE: it
	                                       * goes on); or an event, which takes no credits */
	XTS_CMD_GIVE_BACK              = 47,  /* host: received bytes, in order, that the application had not read
	                                       * when it pushed a protocol that is to read them */
	XTS_RELAY_CARRIED              = 48,  /* both: a frame of one of the channels behind a relay; the payload is
	                                       * the frame, from its Ethernet header on */
	XTS_CMD_TAKE                   = 49,  /* host: take over the connection of this key from whatever process has
	                                       * it */
	XTS_REPLY_TAKE_ACK             = 50,  /* proxy: the connection is this process's, or error says why not yet
	                                       * (EBUSY, EAGAIN) or not at all (ENOENT) */
	XTS_REPLY_YIELD                = 51,  /* proxy: another process asks for the connection: PARK gives it up,
	                                       * SHARE says that it is still needed */
	XTS_REPLY_GATHERED             = 53,  /* proxy: with CATCH_UP: several messages, each with its length (16
	                                       * bits) in front and from its Ethernet header on */
	XTS_CMD_RETURN                 = 52,  /* host: what was received of a parked connection and is unread, in
	                                       * order (MORE: the PDU goes on); at last the end */
	XTS_CMD_CANCEL                 = 54,  /* host: close, as CLOSE with ABORT does, the socket of a CONNECT that
	                                       * has not been answered; CLOSED confirms */
	XTS_REPLY_MOVE                 = 55,  /* proxy: another process is about to take this queue over: the host
	                                       * finishes its calls, and answers MOVE_ACK */
	XTS_CMD_MOVE_ACK               = 56,  /* host: the last message of this epoch from the host: no call is under
	                                       * way; GOODBYE with ERESTART answers it */
	XTS_CMD_RESUME                 = 60,  /* host: as CLAIM, after REPLACED, with what this host has counted.
	                                       * CLAIM_ACK answers. Key 0: that was the last one, and what was not
	                                       * asked for is reset */
	XTS_CMD_SHUT_LISTENER          = 57,  /* host: shutdown(2) of a listener, for reading: what waits for accept
	                                       * is reset, and the socket is bound and listens no more, for all that
	                                       * have it */
	XTS_REPLY_SHUT_LISTENER_ACK    = 58,  /* proxy: it listens no more, or error says why not (ENOTCONN: another
	                                       * process has shut it down before) */
	XTS_REPLY_LISTENING            = 59,  /* proxy: with LISTENING: whether the socket of this member listens,
	                                       * when it has joined and when another one changes it */
	XTS_CMD_OPEN_DATAGRAM          = 64,  /* host: create a datagram socket, bound and connected if the addresses
	                                       * say so */
	XTS_REPLY_OPEN_DATAGRAM_ACK    = 65,  /* proxy: the datagram socket is there, or error says why not */
	XTS_CMD_CONNECT_DATAGRAM       = 66,  /* host: connect(2) of a datagram socket, also again; ip_version 0: to
	                                       * nobody any more */
	XTS_REPLY_CONNECT_DATAGRAM_ACK = 67,  /* proxy: answer to connect of a datagram socket */
	XTS_CMD_SEND_DATAGRAMS         = 68,  /* host: datagrams to be sent, each with its record in front; MORE: the
	                                       * last one goes on in the next message */
	XTS_REPLY_RECV_DATAGRAMS       = 69,  /* proxy: datagrams received, each with its record in front (MORE: the
	                                       * last one goes on in the next message); or, without any, the pending
	                                       * error of the socket */
	XTS_CMD_RETURN_DATAGRAMS       = 71,  /* host: datagrams received on a shared socket and unread, in order,
	                                       * for whoever reads next, each with its record in front; MORE: the
	                                       * last one goes on in the next message. Error: a pending one */
	XTS_CMD_QUERY_NAME             = 80,  /* host: ask the device's name servers; the payload is a standard query
	                                       * with one question (RFC 1035) */
	XTS_REPLY_NAME_ACK             = 81,  /* proxy: the answer of a name server, whole, as the payload; or error
	                                       * says why there is none */
};

#define XTS_FLAG_FIN    0x01u /* no more data from the host: half-close (shutdown SHUT_WR) */
#define XTS_FLAG_CLOSE  0x02u /* the host has closed the socket; the proxy confirms with CLOSED */
#define XTS_FLAG_ABORT  0x04u /* with CLOSE: reset the connection, drop what is not sent (SO_LINGER 0, unread data) */
#define XTS_FLAG_LINGER 0x08u /* with CLOSE: confirm only when all data is acknowledged by the TCP peer */
#define XTS_FLAG_MORE   0x10u /* more data follows at once (MSG_MORE) */
#define XTS_FLAG_EOS    0x20u /* end of stream: the TCP peer has sent FIN */
#define XTS_FLAG_RESET  0x40u /* the connection has failed; error says how */
#define XTS_FLAG_CLOSED 0x80u /* answer to CLOSE: both identifiers are free */

#define XTS_FEATURE_SHARE   UINT64_C(0x1)               /* listeners shared between processes (SHARE), connections
                                                         * that move between them (PARK, CLAIM) */
#define XTS_FEATURE_ULP     UINT64_C(0x2)               /* protocols pushed onto sockets by IOCTL; PDUs (SEND_PDU,
                                                         * RECV_PDU), GIVE_BACK (xts_messages/wire/ulps.py) */
#define XTS_FEATURE_ULP_TLS UINT64_C(0x4)               /* the event TLS of pushed protocols: how a connection is
                                                         * encrypted */
#define XTS_FEATURE_BUNDLE  UINT64_C(0x8)               /* small frames may come several in one (BUNDLE) */
#define XTS_FEATURE_SHRINK  UINT64_C(0x10)              /* a window may be lessened: less advertised than was freed */
#define XTS_FEATURE_TOKEN   UINT64_C(0x20)              /* an attach token comes before HELLO (TOKEN); in HELLO_ACK:
                                                         * it was checked and is valid */
#define XTS_FEATURE_REFUSAL UINT64_C(0x40)              /* replies that fail have the number of a refusal where other
                                                         * messages have their flags */
#define XTS_FEATURE_SHARE_BOUND UINT64_C(0x80)          /* SHARE also names and joins sockets that are bound and not
                                                         * yet listening */
#define XTS_FEATURE_RELAY   UINT64_C(0x100)             /* the host's end is a relay: the frames of many channels
                                                         * come over this link (CARRIED) */
#define XTS_FEATURE_TAKE    UINT64_C(0x200)             /* connections that several processes have, each using them
                                                         * by turns (TAKE, YIELD, RETURN) */
#define XTS_FEATURE_DATAGRAM UINT64_C(0x400)            /* datagram sockets (OPEN_DATAGRAM, SEND_DATAGRAMS,
                                                         * RECV_DATAGRAMS) */
#define XTS_FEATURE_NAMES   UINT64_C(0x800)             /* the proxy asks name servers for the host (QUERY_NAME) */
#define XTS_FEATURE_STAMPS  UINT64_C(0x1000)            /* time stamps of datagrams (SO_TIMESTAMP and similar
                                                         * options), and their clock (CLOCK) */
#define XTS_FEATURE_SHARE_DATAGRAM UINT64_C(0x2000)     /* SHARE also names and joins datagram sockets */
#define XTS_FEATURE_RETURN_DATAGRAM UINT64_C(0x8000)    /* what a process has not read of a shared datagram socket
                                                         * goes back (RETURN_DATAGRAMS) */
#define XTS_FEATURE_CUT_OFF UINT64_C(0x20000)           /* the end of a stream may have an error (RECV with EOS): it
                                                         * was cut off; sending goes on */
#define XTS_FEATURE_RENEW_KEY UINT64_C(0x40000)         /* SHARE gives a socket another key, in place of the one that
                                                         * it has */
#define XTS_FEATURE_FAULT_OF UINT64_C(0x80000)          /* ULP_ERROR says which protocol's fault it is */
#define XTS_FEATURE_WITHDRAW UINT64_C(0x100000)         /* SHARE without a token withdraws the post credits of a
                                                         * listener */
#define XTS_FEATURE_CANCEL  UINT64_C(0x200000)          /* the host may close a socket whose CONNECT has not been
                                                         * answered yet (CANCEL) */
#define XTS_FEATURE_MOVE    UINT64_C(0x400000)          /* the host can go on with another process of the proxy
                                                         * (MOVE) */
#define XTS_FEATURE_LISTENING UINT64_C(0x800000)        /* a listener may be shut down (SHUT_LISTENER), and whether a
                                                         * shared socket listens is one thing for all members
                                                         * (LISTENING) */
#define XTS_FEATURE_MOVE_DATAGRAM UINT64_C(0x2000000)   /* the host claims datagram sockets, too, from another
                                                         * process of the proxy (MOVE) */
#define XTS_FEATURE_MOVE_PUSHED UINT64_C(0x4000000)     /* onto a listener that it claims (MOVE) the host pushes
                                                         * again before it accepts */
#define XTS_FEATURE_MOVE_RELAYED UINT64_C(0x10000000)   /* of a trunk: the channels behind the relay move with it to
                                                         * another process (MOVE) */
#define XTS_FEATURE_MOVE_NAMED UINT64_C(0x20000000)     /* the host claims connections with a key, too, from another
                                                         * process (MOVE, RESUME) */
#define XTS_FEATURE_RESUME  UINT64_C(0x8000000)         /* the host can go on when the proxy's worker has died
                                                         * (REPLACED, RESUME) */
#define XTS_FEATURE_RESUME_RELAYED UINT64_C(0x40000000) /* of a trunk: the channels behind the relay go on when the
                                                         * proxy's worker has died (REPLACED, RESUME) */
#define XTS_FEATURE_OVER    UINT64_C(0x80000000)        /* who attaches processes may say which connections no
                                                         * process has any more (OVER) */
#define XTS_FEATURE_PARTS   UINT64_C(0x1000000)         /* frames longer than a packet of the wire come in parts
                                                         * (PART) */
#define XTS_FEATURE_CATCH_UP UINT64_C(0x10000)          /* the host may ask for what waits behind frame credits
                                                         * (CATCH_UP), and gets it in GATHERED */

/* Why the proxy refuses a request: in a reply, where other messages have their flags. */
enum xts_refusal {
	XTS_REFUSED_NONE, /* not refused, or by the TCP of the device: errno says it all */
	XTS_REFUSED_CONNECT_POLICY     = 1,  /* the proxy's policy forbids this host to connect to that address:
	                                      * `xts-proxy --explain` on the device names the rule */
	XTS_REFUSED_LISTEN_POLICY      = 2,  /* the proxy's policy forbids this host to bind or listen there: `xts-
	                                      * proxy --explain` on the device names the rule */
	XTS_REFUSED_STOPPING           = 3,  /* the proxy is about to stop, and takes no new connections and
	                                      * listeners */
	XTS_REFUSED_CONNECTIONS        = 4,  /* this host has as many connections as limits.connections of the proxy
	                                      * allows */
	XTS_REFUSED_LISTENERS          = 5,  /* this host has as many listeners as limits.listeners of the proxy
	                                      * allows */
	XTS_REFUSED_SOCKETS            = 6,  /* the proxy has no more descriptors or memory for sockets of this host
	                                      * (limits.descriptors, guaranteed) */
	XTS_REFUSED_WINDOWS            = 7,  /* the proxy has no more memory for data of this host's connections
	                                      * (limits.spill_mib, guaranteed) */
	XTS_REFUSED_DEVICE_DESCRIPTORS = 8,  /* the proxy, or the device, is out of descriptors */
	XTS_REFUSED_DEVICE_MEMORY      = 9,  /* the proxy, or the kernel of the device, is out of memory */
	XTS_REFUSED_OPTION             = 10, /* the proxy lets no host use this option, or not with this value */
	XTS_REFUSED_SHARED_LISTENERS   = 11, /* the proxy has as many shared listeners of this host as it allows */
	XTS_REFUSED_PARKED             = 12, /* the proxy keeps as many connections, or bytes, between two processes
	                                      * of this host as it allows */
	XTS_REFUSED_RELAYED            = 13, /* the proxy serves as many processes behind this host's relay as its
	                                      * relayed_max allows */
	XTS_REFUSED_NAME_POLICY        = 14, /* the proxy lets this host not look up that name: see [names] of its
	                                      * configuration */
	XTS_REFUSED_LOOKUPS            = 15, /* as many names of this host are being looked up as limits.lookups of
	                                      * the proxy allows */
	XTS_REFUSED_GROUPS             = 16, /* sockets of this host are members of as many multicast groups as
	                                      * limits.groups of the proxy allows */
	XTS_REFUSED_DEVICE_GROUPS      = 17, /* the device's kernel lets a socket join no more groups or sources:
	                                      * net.ipv4.igmp_max_memberships, igmp_max_msf */
	XTS_REFUSED_FILTERS            = 18, /* filters of this host's sockets have as many instructions as
	                                      * limits.filters of the proxy allows */
	XTS_REFUSED_FILTER_LOADS       = 19, /* a filter may look at packets, and not at frames of the device, its
	                                      * marks, queues, processors and VLANs */
	XTS_REFUSED_FILTER_NAME        = 20, /* the operator of the proxy has no filter of that name for this host
	                                      * (filter in the proxy's configuration) */
	XTS_REFUSED_LOCAL_PORTS        = 21, /* the proxy has no local port left for this host towards that address
	                                      * (guaranteed.local_ports), or no address */
	XTS_REFUSED_BIND_PORTS         = 22, /* the proxy has no local port left for this host to bind to
	                                      * (guaranteed.local_ports) */
	XTS_REFUSED_LOW_PORT           = 23, /* this port takes CAP_NET_BIND_SERVICE, which the proxy knows over an
	                                      * interface by token_key only, or policy.low_ports on the device */
	XTS_REFUSED_RELIABLE           = 24, /* the proxy and this host do not agree on whether lost frames are
	                                      * repeated: set `reliable` of the interface to the same in xts-
	                                      * proxy.toml and in xts-agent.toml */
};

/* Parts of a frame's head: what it has. */
#define XTS_HEAD_SECRET   0x01u /* `secret` */

/* Parts of the head of a frame that is repeated. */
#define XTS_ARQ_NUMBERED 0x01u /* `sequence` and an inner frame, which is repeated until it is acknowledged */
#define XTS_ARQ_ARRIVED  0x02u /* `arrived`, `selective_low`, `selective_high`, `heard`, `held_us` and `duplicates` */
#define XTS_ARQ_OPEN     0x04u /* from a host: its attachment may begin with this frame */

/* Further claims of an attach token. */
enum xts_token_claim {
	XTS_CLAIM_ORDER  = 1,     /* 16 bytes, the life of the agent, a random number (64 bits), and the number of
	                           * the token in this life (64 bits), which grows */
	XTS_CLAIM_FIRST_PORT = 2, /* 2 bytes, the first port that the process may bind to, by the kernel's rule for
	                           * privileged ports */
	XTS_CLAIM_SECRET = 3,     /* 8 bytes, the secret of the attachment, which the head of each of its frames has */
};

/* Control items of a datagram. */
enum xts_datagram_control {
	XTS_DATAGRAM_PKTINFO       = 1,  /* 24 bytes, endpoint: the local address; scope_id is the device's interface
	                                  * index */
	XTS_DATAGRAM_HOP_LIMIT     = 2,  /* 4 bytes, u32: time to live, or hop limit */
	XTS_DATAGRAM_TRAFFIC_CLASS = 3,  /* 4 bytes, u32: type of service, or traffic class */
	XTS_DATAGRAM_TIMESTAMP_NS  = 4,  /* 8 bytes, u64: when it arrived, by the device's clock, in nanoseconds
	                                  * since 1970 */
	XTS_DATAGRAM_SPEC_DST      = 5,  /* 4 bytes, u32, with PKTINFO of IPv4, to a group or broadcast: the device's
	                                  * address there (ipi_spec_dst) */
	XTS_DATAGRAM_ERROR         = 6,  /* 40 bytes, to the host: an entry of the error queue (struct
	                                  * sock_extended_err: u32 errno, u8 origin, type, code, zero, u32 info, u32
	                                  * data; then the offender's endpoint). The record's endpoint and data
	                                  * repeat what was sent */
	XTS_DATAGRAM_STAMPING      = 7,  /* 16 bytes, to the host: SCM_TIMESTAMPING: u64 of the device's clock, u64
	                                  * of the network card's clock, in nanoseconds; 0: none */
	XTS_DATAGRAM_STAMP_PKTINFO = 8,  /* 8 bytes, to the host: SCM_TIMESTAMPING_PKTINFO: u32 interface index, u32
	                                  * length of the packet */
	XTS_DATAGRAM_STAMP_SEND    = 9,  /* 4 bytes, to the proxy: u32: which stamps to make as it is sent
	                                  * (SOF_TIMESTAMPING_TX_*) */
	XTS_DATAGRAM_STAMP_ID      = 10, /* 4 bytes, to the proxy: u32: the number that its stamps have
	                                  * (SCM_TS_OPT_ID) */
};

/* The fixed part of each message in bytes, Ethernet header included. */
#define XTS_CONNECT_BYTES       64u
#define XTS_CONNECT_ACK_BYTES   80u
#define XTS_LISTEN_BYTES        44u
#define XTS_LISTEN_ACK_BYTES    56u
#define XTS_NEWCONN_BYTES       80u
#define XTS_NEWCONN_ACK_BYTES   32u
#define XTS_SEND_BYTES          32u
#define XTS_RECV_BYTES          32u
#define XTS_HELLO_BYTES         60u
#define XTS_HELLO_ACK_BYTES     52u
#define XTS_FRAME_ACK_BYTES     24u
#define XTS_PING_BYTES          32u
#define XTS_PONG_BYTES          32u
#define XTS_GOODBYE_BYTES       32u
#define XTS_BUNDLE_BYTES        28u
#define XTS_TOKEN_BYTES         68u
#define XTS_CLOCK_BYTES         32u
#define XTS_CLOCK_ACK_BYTES     48u
#define XTS_CATCH_UP_BYTES      32u
#define XTS_CAUGHT_UP_BYTES     32u
#define XTS_REPLACED_BYTES      40u
#define XTS_OVER_BYTES          36u
#define XTS_HEADED_BYTES        46u
#define XTS_PROBE_BYTES         38u
#define XTS_BIND_BYTES          60u
#define XTS_PART_BYTES          36u
#define XTS_ARQ_BYTES           78u
#define XTS_BIND_ACK_BYTES      56u
#define XTS_SETSOCKOPT_BYTES    48u
#define XTS_GETSOCKOPT_BYTES    48u
#define XTS_SOCKOPT_ACK_BYTES   36u
#define XTS_IOCTL_BYTES         44u
#define XTS_IOCTL_ACK_BYTES     36u
#define XTS_SHARE_BYTES         44u
#define XTS_SHARE_ACK_BYTES     56u
#define XTS_PARK_BYTES          44u
#define XTS_PARK_ACK_BYTES      28u
#define XTS_CLAIM_BYTES         48u
#define XTS_CLAIM_ACK_BYTES     84u
#define XTS_SEND_PDU_BYTES      56u
#define XTS_RECV_PDU_BYTES      56u
#define XTS_GIVE_BACK_BYTES     28u
#define XTS_CARRIED_BYTES       28u
#define XTS_TAKE_BYTES          48u
#define XTS_TAKE_ACK_BYTES      104u
#define XTS_YIELD_BYTES         28u
#define XTS_GATHERED_BYTES      28u
#define XTS_RETURN_BYTES        64u
#define XTS_CANCEL_BYTES        28u
#define XTS_MOVE_BYTES          36u
#define XTS_MOVE_ACK_BYTES      32u
#define XTS_RESUME_BYTES        68u
#define XTS_SHUT_LISTENER_BYTES 32u
#define XTS_SHUT_LISTENER_ACK_BYTES 56u
#define XTS_LISTENING_BYTES     32u
#define XTS_OPEN_DATAGRAM_BYTES 92u
#define XTS_OPEN_DATAGRAM_ACK_BYTES 84u
#define XTS_CONNECT_DATAGRAM_BYTES 56u
#define XTS_CONNECT_DATAGRAM_ACK_BYTES 76u
#define XTS_SEND_DATAGRAMS_BYTES 32u
#define XTS_RECV_DATAGRAMS_BYTES 36u
#define XTS_RETURN_DATAGRAMS_BYTES 28u
#define XTS_QUERY_NAME_BYTES    32u
#define XTS_NAME_ACK_BYTES      36u

/* The layout on the wire: packed, network byte order. Not for memory that a peer can still change. */

struct xts_wire_endpoint {
	__be16 port;
	__u8 ip_version;
	__u8 reserved;
	__be32 scope_id;
	__u8 address[16];
} __attribute__((packed));
_Static_assert(sizeof(struct xts_wire_endpoint) == 24, "endpoint: size");
_Static_assert(__builtin_offsetof(struct xts_wire_endpoint, port) == 0, "endpoint.port: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_endpoint, ip_version) == 2, "endpoint.ip_version: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_endpoint, reserved) == 3, "endpoint.reserved: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_endpoint, scope_id) == 4, "endpoint.scope_id: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_endpoint, address) == 8, "endpoint.address: offset");

struct xts_wire_head {
	__u8 destination[6];
	__u8 source[6];
	__be16 ethertype;
	__u8 type;
	__u8 seqno;
	__u8 frame_ack;
	__u8 flags;
	__be16 error;
	__be32 id;
} __attribute__((packed));
_Static_assert(sizeof(struct xts_wire_head) == 24, "head: size");
_Static_assert(__builtin_offsetof(struct xts_wire_head, destination) == 0, "head.destination: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_head, source) == 6, "head.source: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_head, ethertype) == 12, "head.ethertype: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_head, type) == 14, "head.type: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_head, seqno) == 15, "head.seqno: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_head, frame_ack) == 16, "head.frame_ack: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_head, flags) == 17, "head.flags: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_head, error) == 18, "head.error: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_head, id) == 20, "head.id: offset");

struct xts_wire_datagram_record {
	__be16 data_bytes;
	__be16 segment_bytes;
	__be16 control_bytes;
	__be16 reserved;
	struct xts_wire_endpoint endpoint;
} __attribute__((packed));
_Static_assert(sizeof(struct xts_wire_datagram_record) == 32, "datagram_record: size");
_Static_assert(__builtin_offsetof(struct xts_wire_datagram_record, data_bytes) == 0, "datagram_record.data_bytes: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_datagram_record, segment_bytes) == 2, "datagram_record.segment_bytes: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_datagram_record, control_bytes) == 4, "datagram_record.control_bytes: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_datagram_record, reserved) == 6, "datagram_record.reserved: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_datagram_record, endpoint) == 8, "datagram_record.endpoint: offset");


struct xts_wire_connect {
	struct xts_wire_head head;
	__be32 xts_socket;
	__be32 post_credits;
	__be32 domain;
	struct xts_wire_endpoint peer;
	__be32 length;
} __attribute__((packed));
_Static_assert(sizeof(struct xts_wire_connect) == 64, "connect: size");
_Static_assert(__builtin_offsetof(struct xts_wire_connect, head) == 0, "connect.head: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_connect, xts_socket) == 24, "connect.xts_socket: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_connect, post_credits) == 28, "connect.post_credits: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_connect, domain) == 32, "connect.domain: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_connect, peer) == 36, "connect.peer: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_connect, length) == 60, "connect.length: offset");
_Static_assert(XTS_CONNECT_BYTES == sizeof(struct xts_wire_connect), "connect: constant");

struct xts_wire_connect_ack {
	struct xts_wire_head head;
	__be32 proxy_id;
	__be32 post_credits;
	struct xts_wire_endpoint local;
	struct xts_wire_endpoint peer;
} __attribute__((packed));
_Static_assert(sizeof(struct xts_wire_connect_ack) == 80, "connect_ack: size");
_Static_assert(__builtin_offsetof(struct xts_wire_connect_ack, head) == 0, "connect_ack.head: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_connect_ack, proxy_id) == 24, "connect_ack.proxy_id: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_connect_ack, post_credits) == 28, "connect_ack.post_credits: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_connect_ack, local) == 32, "connect_ack.local: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_connect_ack, peer) == 56, "connect_ack.peer: offset");
_Static_assert(XTS_CONNECT_ACK_BYTES == sizeof(struct xts_wire_connect_ack), "connect_ack: constant");

struct xts_wire_listen {
	struct xts_wire_head head;
	__be32 xts_socket;
	__be32 token;
	__be32 post_credits;
	__be32 domain;
	__be32 backlog;
} __attribute__((packed));
_Static_assert(sizeof(struct xts_wire_listen) == 44, "listen: size");
_Static_assert(__builtin_offsetof(struct xts_wire_listen, head) == 0, "listen.head: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_listen, xts_socket) == 24, "listen.xts_socket: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_listen, token) == 28, "listen.token: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_listen, post_credits) == 32, "listen.post_credits: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_listen, domain) == 36, "listen.domain: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_listen, backlog) == 40, "listen.backlog: offset");
_Static_assert(XTS_LISTEN_BYTES == sizeof(struct xts_wire_listen), "listen: constant");

struct xts_wire_listen_ack {
	struct xts_wire_head head;
	__be32 proxy_id;
	__be32 token;
	struct xts_wire_endpoint local;
} __attribute__((packed));
_Static_assert(sizeof(struct xts_wire_listen_ack) == 56, "listen_ack: size");
_Static_assert(__builtin_offsetof(struct xts_wire_listen_ack, head) == 0, "listen_ack.head: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_listen_ack, proxy_id) == 24, "listen_ack.proxy_id: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_listen_ack, token) == 28, "listen_ack.token: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_listen_ack, local) == 32, "listen_ack.local: offset");
_Static_assert(XTS_LISTEN_ACK_BYTES == sizeof(struct xts_wire_listen_ack), "listen_ack: constant");

struct xts_wire_newconn {
	struct xts_wire_head head;
	__be32 proxy_id;
	__be32 post_credits;
	struct xts_wire_endpoint local;
	struct xts_wire_endpoint peer;
} __attribute__((packed));
_Static_assert(sizeof(struct xts_wire_newconn) == 80, "newconn: size");
_Static_assert(__builtin_offsetof(struct xts_wire_newconn, head) == 0, "newconn.head: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_newconn, proxy_id) == 24, "newconn.proxy_id: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_newconn, post_credits) == 28, "newconn.post_credits: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_newconn, local) == 32, "newconn.local: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_newconn, peer) == 56, "newconn.peer: offset");
_Static_assert(XTS_NEWCONN_BYTES == sizeof(struct xts_wire_newconn), "newconn: constant");

struct xts_wire_newconn_ack {
	struct xts_wire_head head;
	__be32 xts_socket;
	__be32 post_credits;
} __attribute__((packed));
_Static_assert(sizeof(struct xts_wire_newconn_ack) == 32, "newconn_ack: size");
_Static_assert(__builtin_offsetof(struct xts_wire_newconn_ack, head) == 0, "newconn_ack.head: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_newconn_ack, xts_socket) == 24, "newconn_ack.xts_socket: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_newconn_ack, post_credits) == 28, "newconn_ack.post_credits: offset");
_Static_assert(XTS_NEWCONN_ACK_BYTES == sizeof(struct xts_wire_newconn_ack), "newconn_ack: constant");

struct xts_wire_send {
	struct xts_wire_head head;
	__be32 post_credits;
	__be32 length;
} __attribute__((packed));
_Static_assert(sizeof(struct xts_wire_send) == 32, "send: size");
_Static_assert(__builtin_offsetof(struct xts_wire_send, head) == 0, "send.head: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_send, post_credits) == 24, "send.post_credits: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_send, length) == 28, "send.length: offset");
_Static_assert(XTS_SEND_BYTES == sizeof(struct xts_wire_send), "send: constant");

struct xts_wire_recv {
	struct xts_wire_head head;
	__be32 post_credits;
	__be32 length;
} __attribute__((packed));
_Static_assert(sizeof(struct xts_wire_recv) == 32, "recv: size");
_Static_assert(__builtin_offsetof(struct xts_wire_recv, head) == 0, "recv.head: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_recv, post_credits) == 24, "recv.post_credits: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_recv, length) == 28, "recv.length: offset");
_Static_assert(XTS_RECV_BYTES == sizeof(struct xts_wire_recv), "recv: constant");

struct xts_wire_hello {
	struct xts_wire_head head;
	__be16 version;
	__be16 frame_window;
	__be32 largest_message;
	__be64 features;
	__be64 required;
	__be64 epoch;
	__be32 pid;
} __attribute__((packed));
_Static_assert(sizeof(struct xts_wire_hello) == 60, "hello: size");
_Static_assert(__builtin_offsetof(struct xts_wire_hello, head) == 0, "hello.head: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_hello, version) == 24, "hello.version: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_hello, frame_window) == 26, "hello.frame_window: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_hello, largest_message) == 28, "hello.largest_message: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_hello, features) == 32, "hello.features: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_hello, required) == 40, "hello.required: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_hello, epoch) == 48, "hello.epoch: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_hello, pid) == 56, "hello.pid: offset");
_Static_assert(XTS_HELLO_BYTES == sizeof(struct xts_wire_hello), "hello: constant");

struct xts_wire_hello_ack {
	struct xts_wire_head head;
	__be16 version;
	__be16 frame_window;
	__be32 largest_message;
	__be64 features;
	__be64 epoch;
	__be32 sockets_max;
} __attribute__((packed));
_Static_assert(sizeof(struct xts_wire_hello_ack) == 52, "hello_ack: size");
_Static_assert(__builtin_offsetof(struct xts_wire_hello_ack, head) == 0, "hello_ack.head: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_hello_ack, version) == 24, "hello_ack.version: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_hello_ack, frame_window) == 26, "hello_ack.frame_window: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_hello_ack, largest_message) == 28, "hello_ack.largest_message: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_hello_ack, features) == 32, "hello_ack.features: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_hello_ack, epoch) == 40, "hello_ack.epoch: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_hello_ack, sockets_max) == 48, "hello_ack.sockets_max: offset");
_Static_assert(XTS_HELLO_ACK_BYTES == sizeof(struct xts_wire_hello_ack), "hello_ack: constant");

struct xts_wire_frame_ack {
	struct xts_wire_head head;
} __attribute__((packed));
_Static_assert(sizeof(struct xts_wire_frame_ack) == 24, "frame_ack: size");
_Static_assert(__builtin_offsetof(struct xts_wire_frame_ack, head) == 0, "frame_ack.head: offset");
_Static_assert(XTS_FRAME_ACK_BYTES == sizeof(struct xts_wire_frame_ack), "frame_ack: constant");

struct xts_wire_ping {
	struct xts_wire_head head;
	__be64 token;
} __attribute__((packed));
_Static_assert(sizeof(struct xts_wire_ping) == 32, "ping: size");
_Static_assert(__builtin_offsetof(struct xts_wire_ping, head) == 0, "ping.head: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_ping, token) == 24, "ping.token: offset");
_Static_assert(XTS_PING_BYTES == sizeof(struct xts_wire_ping), "ping: constant");

struct xts_wire_pong {
	struct xts_wire_head head;
	__be64 token;
} __attribute__((packed));
_Static_assert(sizeof(struct xts_wire_pong) == 32, "pong: size");
_Static_assert(__builtin_offsetof(struct xts_wire_pong, head) == 0, "pong.head: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_pong, token) == 24, "pong.token: offset");
_Static_assert(XTS_PONG_BYTES == sizeof(struct xts_wire_pong), "pong: constant");

struct xts_wire_goodbye {
	struct xts_wire_head head;
	__be64 epoch;
} __attribute__((packed));
_Static_assert(sizeof(struct xts_wire_goodbye) == 32, "goodbye: size");
_Static_assert(__builtin_offsetof(struct xts_wire_goodbye, head) == 0, "goodbye.head: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_goodbye, epoch) == 24, "goodbye.epoch: offset");
_Static_assert(XTS_GOODBYE_BYTES == sizeof(struct xts_wire_goodbye), "goodbye: constant");

struct xts_wire_bundle {
	struct xts_wire_head head;
	__be32 length;
} __attribute__((packed));
_Static_assert(sizeof(struct xts_wire_bundle) == 28, "bundle: size");
_Static_assert(__builtin_offsetof(struct xts_wire_bundle, head) == 0, "bundle.head: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_bundle, length) == 24, "bundle.length: offset");
_Static_assert(XTS_BUNDLE_BYTES == sizeof(struct xts_wire_bundle), "bundle: constant");

struct xts_wire_token {
	struct xts_wire_head head;
	__be32 queue;
	__be32 uid;
	__be64 epoch;
	__be64 expires_ms;
	__be64 mac_high;
	__be64 mac_low;
	__be32 length;
} __attribute__((packed));
_Static_assert(sizeof(struct xts_wire_token) == 68, "token: size");
_Static_assert(__builtin_offsetof(struct xts_wire_token, head) == 0, "token.head: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_token, queue) == 24, "token.queue: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_token, uid) == 28, "token.uid: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_token, epoch) == 32, "token.epoch: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_token, expires_ms) == 40, "token.expires_ms: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_token, mac_high) == 48, "token.mac_high: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_token, mac_low) == 56, "token.mac_low: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_token, length) == 64, "token.length: offset");
_Static_assert(XTS_TOKEN_BYTES == sizeof(struct xts_wire_token), "token: constant");

struct xts_wire_clock {
	struct xts_wire_head head;
	__be64 token;
} __attribute__((packed));
_Static_assert(sizeof(struct xts_wire_clock) == 32, "clock: size");
_Static_assert(__builtin_offsetof(struct xts_wire_clock, head) == 0, "clock.head: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_clock, token) == 24, "clock.token: offset");
_Static_assert(XTS_CLOCK_BYTES == sizeof(struct xts_wire_clock), "clock: constant");

struct xts_wire_clock_ack {
	struct xts_wire_head head;
	__be64 token;
	__be64 time_ns;
	__be64 error_ns;
} __attribute__((packed));
_Static_assert(sizeof(struct xts_wire_clock_ack) == 48, "clock_ack: size");
_Static_assert(__builtin_offsetof(struct xts_wire_clock_ack, head) == 0, "clock_ack.head: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_clock_ack, token) == 24, "clock_ack.token: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_clock_ack, time_ns) == 32, "clock_ack.time_ns: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_clock_ack, error_ns) == 40, "clock_ack.error_ns: offset");
_Static_assert(XTS_CLOCK_ACK_BYTES == sizeof(struct xts_wire_clock_ack), "clock_ack: constant");

struct xts_wire_catch_up {
	struct xts_wire_head head;
	__be64 token;
} __attribute__((packed));
_Static_assert(sizeof(struct xts_wire_catch_up) == 32, "catch_up: size");
_Static_assert(__builtin_offsetof(struct xts_wire_catch_up, head) == 0, "catch_up.head: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_catch_up, token) == 24, "catch_up.token: offset");
_Static_assert(XTS_CATCH_UP_BYTES == sizeof(struct xts_wire_catch_up), "catch_up: constant");

struct xts_wire_caught_up {
	struct xts_wire_head head;
	__be64 token;
} __attribute__((packed));
_Static_assert(sizeof(struct xts_wire_caught_up) == 32, "caught_up: size");
_Static_assert(__builtin_offsetof(struct xts_wire_caught_up, head) == 0, "caught_up.head: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_caught_up, token) == 24, "caught_up.token: offset");
_Static_assert(XTS_CAUGHT_UP_BYTES == sizeof(struct xts_wire_caught_up), "caught_up: constant");

struct xts_wire_replaced {
	struct xts_wire_head head;
	__be64 epoch;
	__be64 ticket;
} __attribute__((packed));
_Static_assert(sizeof(struct xts_wire_replaced) == 40, "replaced: size");
_Static_assert(__builtin_offsetof(struct xts_wire_replaced, head) == 0, "replaced.head: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_replaced, epoch) == 24, "replaced.epoch: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_replaced, ticket) == 32, "replaced.ticket: offset");
_Static_assert(XTS_REPLACED_BYTES == sizeof(struct xts_wire_replaced), "replaced: constant");

struct xts_wire_over {
	struct xts_wire_head head;
	__be64 epoch;
	__be32 length;
} __attribute__((packed));
_Static_assert(sizeof(struct xts_wire_over) == 36, "over: size");
_Static_assert(__builtin_offsetof(struct xts_wire_over, head) == 0, "over.head: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_over, epoch) == 24, "over.epoch: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_over, length) == 32, "over.length: offset");
_Static_assert(XTS_OVER_BYTES == sizeof(struct xts_wire_over), "over: constant");

struct xts_wire_headed {
	struct xts_wire_head head;
	__be64 secret;
	__be64 reserved_high;
	__be32 reserved_low;
	__be16 parts;
} __attribute__((packed));
_Static_assert(sizeof(struct xts_wire_headed) == 46, "headed: size");
_Static_assert(__builtin_offsetof(struct xts_wire_headed, head) == 0, "headed.head: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_headed, secret) == 24, "headed.secret: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_headed, reserved_high) == 32, "headed.reserved_high: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_headed, reserved_low) == 40, "headed.reserved_low: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_headed, parts) == 44, "headed.parts: offset");
_Static_assert(XTS_HEADED_BYTES == sizeof(struct xts_wire_headed), "headed: constant");

struct xts_wire_probe {
	struct xts_wire_head head;
	__be64 round;
	__be32 arrived_on;
	__be16 back;
} __attribute__((packed));
_Static_assert(sizeof(struct xts_wire_probe) == 38, "probe: size");
_Static_assert(__builtin_offsetof(struct xts_wire_probe, head) == 0, "probe.head: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_probe, round) == 24, "probe.round: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_probe, arrived_on) == 32, "probe.arrived_on: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_probe, back) == 36, "probe.back: offset");
_Static_assert(XTS_PROBE_BYTES == sizeof(struct xts_wire_probe), "probe: constant");

struct xts_wire_bind {
	struct xts_wire_head head;
	__be32 xts_socket;
	__be32 token;
	__be32 domain;
	struct xts_wire_endpoint local;
} __attribute__((packed));
_Static_assert(sizeof(struct xts_wire_bind) == 60, "bind: size");
_Static_assert(__builtin_offsetof(struct xts_wire_bind, head) == 0, "bind.head: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_bind, xts_socket) == 24, "bind.xts_socket: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_bind, token) == 28, "bind.token: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_bind, domain) == 32, "bind.domain: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_bind, local) == 36, "bind.local: offset");
_Static_assert(XTS_BIND_BYTES == sizeof(struct xts_wire_bind), "bind: constant");

struct xts_wire_part {
	struct xts_wire_head head;
	__be32 frame_bytes;
	__be32 offset;
	__be32 length;
} __attribute__((packed));
_Static_assert(sizeof(struct xts_wire_part) == 36, "part: size");
_Static_assert(__builtin_offsetof(struct xts_wire_part, head) == 0, "part.head: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_part, frame_bytes) == 24, "part.frame_bytes: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_part, offset) == 28, "part.offset: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_part, length) == 32, "part.length: offset");
_Static_assert(XTS_PART_BYTES == sizeof(struct xts_wire_part), "part: constant");

struct xts_wire_arq {
	struct xts_wire_head head;
	__be64 epoch;
	__be32 sequence;
	__be32 first;
	__be32 arrived;
	__be64 selective_low;
	__be64 selective_high;
	__be32 transmission;
	__be32 heard;
	__be32 checksum;
	__be16 held_us;
	__be16 duplicates;
	__be16 parts;
} __attribute__((packed));
_Static_assert(sizeof(struct xts_wire_arq) == 78, "arq: size");
_Static_assert(__builtin_offsetof(struct xts_wire_arq, head) == 0, "arq.head: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_arq, epoch) == 24, "arq.epoch: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_arq, sequence) == 32, "arq.sequence: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_arq, first) == 36, "arq.first: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_arq, arrived) == 40, "arq.arrived: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_arq, selective_low) == 44, "arq.selective_low: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_arq, selective_high) == 52, "arq.selective_high: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_arq, transmission) == 60, "arq.transmission: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_arq, heard) == 64, "arq.heard: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_arq, checksum) == 68, "arq.checksum: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_arq, held_us) == 72, "arq.held_us: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_arq, duplicates) == 74, "arq.duplicates: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_arq, parts) == 76, "arq.parts: offset");
_Static_assert(XTS_ARQ_BYTES == sizeof(struct xts_wire_arq), "arq: constant");

struct xts_wire_bind_ack {
	struct xts_wire_head head;
	__be32 proxy_id;
	__be32 token;
	struct xts_wire_endpoint local;
} __attribute__((packed));
_Static_assert(sizeof(struct xts_wire_bind_ack) == 56, "bind_ack: size");
_Static_assert(__builtin_offsetof(struct xts_wire_bind_ack, head) == 0, "bind_ack.head: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_bind_ack, proxy_id) == 24, "bind_ack.proxy_id: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_bind_ack, token) == 28, "bind_ack.token: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_bind_ack, local) == 32, "bind_ack.local: offset");
_Static_assert(XTS_BIND_ACK_BYTES == sizeof(struct xts_wire_bind_ack), "bind_ack: constant");

struct xts_wire_setsockopt {
	struct xts_wire_head head;
	__be32 xts_socket;
	__be32 token;
	__be32 domain;
	__be32 level;
	__be32 option;
	__be32 length;
} __attribute__((packed));
_Static_assert(sizeof(struct xts_wire_setsockopt) == 48, "setsockopt: size");
_Static_assert(__builtin_offsetof(struct xts_wire_setsockopt, head) == 0, "setsockopt.head: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_setsockopt, xts_socket) == 24, "setsockopt.xts_socket: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_setsockopt, token) == 28, "setsockopt.token: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_setsockopt, domain) == 32, "setsockopt.domain: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_setsockopt, level) == 36, "setsockopt.level: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_setsockopt, option) == 40, "setsockopt.option: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_setsockopt, length) == 44, "setsockopt.length: offset");
_Static_assert(XTS_SETSOCKOPT_BYTES == sizeof(struct xts_wire_setsockopt), "setsockopt: constant");

struct xts_wire_getsockopt {
	struct xts_wire_head head;
	__be32 xts_socket;
	__be32 token;
	__be32 domain;
	__be32 level;
	__be32 option;
	__be32 length;
} __attribute__((packed));
_Static_assert(sizeof(struct xts_wire_getsockopt) == 48, "getsockopt: size");
_Static_assert(__builtin_offsetof(struct xts_wire_getsockopt, head) == 0, "getsockopt.head: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_getsockopt, xts_socket) == 24, "getsockopt.xts_socket: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_getsockopt, token) == 28, "getsockopt.token: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_getsockopt, domain) == 32, "getsockopt.domain: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_getsockopt, level) == 36, "getsockopt.level: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_getsockopt, option) == 40, "getsockopt.option: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_getsockopt, length) == 44, "getsockopt.length: offset");
_Static_assert(XTS_GETSOCKOPT_BYTES == sizeof(struct xts_wire_getsockopt), "getsockopt: constant");

struct xts_wire_sockopt_ack {
	struct xts_wire_head head;
	__be32 proxy_id;
	__be32 token;
	__be32 length;
} __attribute__((packed));
_Static_assert(sizeof(struct xts_wire_sockopt_ack) == 36, "sockopt_ack: size");
_Static_assert(__builtin_offsetof(struct xts_wire_sockopt_ack, head) == 0, "sockopt_ack.head: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_sockopt_ack, proxy_id) == 24, "sockopt_ack.proxy_id: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_sockopt_ack, token) == 28, "sockopt_ack.token: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_sockopt_ack, length) == 32, "sockopt_ack.length: offset");
_Static_assert(XTS_SOCKOPT_ACK_BYTES == sizeof(struct xts_wire_sockopt_ack), "sockopt_ack: constant");

struct xts_wire_ioctl {
	struct xts_wire_head head;
	__be32 xts_socket;
	__be32 token;
	__be32 domain;
	__be32 request;
	__be32 length;
} __attribute__((packed));
_Static_assert(sizeof(struct xts_wire_ioctl) == 44, "ioctl: size");
_Static_assert(__builtin_offsetof(struct xts_wire_ioctl, head) == 0, "ioctl.head: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_ioctl, xts_socket) == 24, "ioctl.xts_socket: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_ioctl, token) == 28, "ioctl.token: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_ioctl, domain) == 32, "ioctl.domain: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_ioctl, request) == 36, "ioctl.request: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_ioctl, length) == 40, "ioctl.length: offset");
_Static_assert(XTS_IOCTL_BYTES == sizeof(struct xts_wire_ioctl), "ioctl: constant");

struct xts_wire_ioctl_ack {
	struct xts_wire_head head;
	__be32 proxy_id;
	__be32 token;
	__be32 length;
} __attribute__((packed));
_Static_assert(sizeof(struct xts_wire_ioctl_ack) == 36, "ioctl_ack: size");
_Static_assert(__builtin_offsetof(struct xts_wire_ioctl_ack, head) == 0, "ioctl_ack.head: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_ioctl_ack, proxy_id) == 24, "ioctl_ack.proxy_id: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_ioctl_ack, token) == 28, "ioctl_ack.token: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_ioctl_ack, length) == 32, "ioctl_ack.length: offset");
_Static_assert(XTS_IOCTL_ACK_BYTES == sizeof(struct xts_wire_ioctl_ack), "ioctl_ack: constant");

struct xts_wire_share {
	struct xts_wire_head head;
	__be32 xts_socket;
	__be32 token;
	__be64 key;
	__be32 keep_ms;
} __attribute__((packed));
_Static_assert(sizeof(struct xts_wire_share) == 44, "share: size");
_Static_assert(__builtin_offsetof(struct xts_wire_share, head) == 0, "share.head: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_share, xts_socket) == 24, "share.xts_socket: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_share, token) == 28, "share.token: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_share, key) == 32, "share.key: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_share, keep_ms) == 40, "share.keep_ms: offset");
_Static_assert(XTS_SHARE_BYTES == sizeof(struct xts_wire_share), "share: constant");

struct xts_wire_share_ack {
	struct xts_wire_head head;
	__be32 proxy_id;
	__be32 token;
	struct xts_wire_endpoint local;
} __attribute__((packed));
_Static_assert(sizeof(struct xts_wire_share_ack) == 56, "share_ack: size");
_Static_assert(__builtin_offsetof(struct xts_wire_share_ack, head) == 0, "share_ack.head: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_share_ack, proxy_id) == 24, "share_ack.proxy_id: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_share_ack, token) == 28, "share_ack.token: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_share_ack, local) == 32, "share_ack.local: offset");
_Static_assert(XTS_SHARE_ACK_BYTES == sizeof(struct xts_wire_share_ack), "share_ack: constant");

struct xts_wire_park {
	struct xts_wire_head head;
	__be32 xts_socket;
	__be32 token;
	__be64 key;
	__be32 keep_ms;
} __attribute__((packed));
_Static_assert(sizeof(struct xts_wire_park) == 44, "park: size");
_Static_assert(__builtin_offsetof(struct xts_wire_park, head) == 0, "park.head: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_park, xts_socket) == 24, "park.xts_socket: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_park, token) == 28, "park.token: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_park, key) == 32, "park.key: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_park, keep_ms) == 40, "park.keep_ms: offset");
_Static_assert(XTS_PARK_BYTES == sizeof(struct xts_wire_park), "park: constant");

struct xts_wire_park_ack {
	struct xts_wire_head head;
	__be32 token;
} __attribute__((packed));
_Static_assert(sizeof(struct xts_wire_park_ack) == 28, "park_ack: size");
_Static_assert(__builtin_offsetof(struct xts_wire_park_ack, head) == 0, "park_ack.head: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_park_ack, token) == 24, "park_ack.token: offset");
_Static_assert(XTS_PARK_ACK_BYTES == sizeof(struct xts_wire_park_ack), "park_ack: constant");

struct xts_wire_claim {
	struct xts_wire_head head;
	__be32 xts_socket;
	__be32 token;
	__be64 key;
	__be32 post_credits;
	__be32 unread;
} __attribute__((packed));
_Static_assert(sizeof(struct xts_wire_claim) == 48, "claim: size");
_Static_assert(__builtin_offsetof(struct xts_wire_claim, head) == 0, "claim.head: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_claim, xts_socket) == 24, "claim.xts_socket: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_claim, token) == 28, "claim.token: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_claim, key) == 32, "claim.key: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_claim, post_credits) == 40, "claim.post_credits: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_claim, unread) == 44, "claim.unread: offset");
_Static_assert(XTS_CLAIM_BYTES == sizeof(struct xts_wire_claim), "claim: constant");

struct xts_wire_claim_ack {
	struct xts_wire_head head;
	__be32 proxy_id;
	__be32 token;
	__be32 post_credits;
	struct xts_wire_endpoint local;
	struct xts_wire_endpoint peer;
} __attribute__((packed));
_Static_assert(sizeof(struct xts_wire_claim_ack) == 84, "claim_ack: size");
_Static_assert(__builtin_offsetof(struct xts_wire_claim_ack, head) == 0, "claim_ack.head: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_claim_ack, proxy_id) == 24, "claim_ack.proxy_id: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_claim_ack, token) == 28, "claim_ack.token: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_claim_ack, post_credits) == 32, "claim_ack.post_credits: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_claim_ack, local) == 36, "claim_ack.local: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_claim_ack, peer) == 60, "claim_ack.peer: offset");
_Static_assert(XTS_CLAIM_ACK_BYTES == sizeof(struct xts_wire_claim_ack), "claim_ack: constant");

struct xts_wire_send_pdu {
	struct xts_wire_head head;
	__be32 post_credits;
	__be32 length;
	__be32 record_bytes;
	__be16 control_type;
	__be16 control_bytes;
	__be64 control_high;
	__be64 control_low;
} __attribute__((packed));
_Static_assert(sizeof(struct xts_wire_send_pdu) == 56, "send_pdu: size");
_Static_assert(__builtin_offsetof(struct xts_wire_send_pdu, head) == 0, "send_pdu.head: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_send_pdu, post_credits) == 24, "send_pdu.post_credits: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_send_pdu, length) == 28, "send_pdu.length: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_send_pdu, record_bytes) == 32, "send_pdu.record_bytes: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_send_pdu, control_type) == 36, "send_pdu.control_type: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_send_pdu, control_bytes) == 38, "send_pdu.control_bytes: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_send_pdu, control_high) == 40, "send_pdu.control_high: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_send_pdu, control_low) == 48, "send_pdu.control_low: offset");
_Static_assert(XTS_SEND_PDU_BYTES == sizeof(struct xts_wire_send_pdu), "send_pdu: constant");

struct xts_wire_recv_pdu {
	struct xts_wire_head head;
	__be32 post_credits;
	__be32 length;
	__be32 record_bytes;
	__be16 control_type;
	__be16 control_bytes;
	__be64 control_high;
	__be64 control_low;
} __attribute__((packed));
_Static_assert(sizeof(struct xts_wire_recv_pdu) == 56, "recv_pdu: size");
_Static_assert(__builtin_offsetof(struct xts_wire_recv_pdu, head) == 0, "recv_pdu.head: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_recv_pdu, post_credits) == 24, "recv_pdu.post_credits: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_recv_pdu, length) == 28, "recv_pdu.length: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_recv_pdu, record_bytes) == 32, "recv_pdu.record_bytes: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_recv_pdu, control_type) == 36, "recv_pdu.control_type: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_recv_pdu, control_bytes) == 38, "recv_pdu.control_bytes: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_recv_pdu, control_high) == 40, "recv_pdu.control_high: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_recv_pdu, control_low) == 48, "recv_pdu.control_low: offset");
_Static_assert(XTS_RECV_PDU_BYTES == sizeof(struct xts_wire_recv_pdu), "recv_pdu: constant");

struct xts_wire_give_back {
	struct xts_wire_head head;
	__be32 length;
} __attribute__((packed));
_Static_assert(sizeof(struct xts_wire_give_back) == 28, "give_back: size");
_Static_assert(__builtin_offsetof(struct xts_wire_give_back, head) == 0, "give_back.head: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_give_back, length) == 24, "give_back.length: offset");
_Static_assert(XTS_GIVE_BACK_BYTES == sizeof(struct xts_wire_give_back), "give_back: constant");

struct xts_wire_carried {
	struct xts_wire_head head;
	__be32 length;
} __attribute__((packed));
_Static_assert(sizeof(struct xts_wire_carried) == 28, "carried: size");
_Static_assert(__builtin_offsetof(struct xts_wire_carried, head) == 0, "carried.head: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_carried, length) == 24, "carried.length: offset");
_Static_assert(XTS_CARRIED_BYTES == sizeof(struct xts_wire_carried), "carried: constant");

struct xts_wire_take {
	struct xts_wire_head head;
	__be32 xts_socket;
	__be32 token;
	__be64 key;
	__be32 post_credits;
	__be32 purpose;
} __attribute__((packed));
_Static_assert(sizeof(struct xts_wire_take) == 48, "take: size");
_Static_assert(__builtin_offsetof(struct xts_wire_take, head) == 0, "take.head: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_take, xts_socket) == 24, "take.xts_socket: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_take, token) == 28, "take.token: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_take, key) == 32, "take.key: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_take, post_credits) == 40, "take.post_credits: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_take, purpose) == 44, "take.purpose: offset");
_Static_assert(XTS_TAKE_BYTES == sizeof(struct xts_wire_take), "take: constant");

struct xts_wire_take_ack {
	struct xts_wire_head head;
	__be32 proxy_id;
	__be32 token;
	__be32 post_credits;
	struct xts_wire_endpoint local;
	struct xts_wire_endpoint peer;
	__be32 died;
	__be64 delivered_bytes;
	__be64 accepted_bytes;
} __attribute__((packed));
_Static_assert(sizeof(struct xts_wire_take_ack) == 104, "take_ack: size");
_Static_assert(__builtin_offsetof(struct xts_wire_take_ack, head) == 0, "take_ack.head: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_take_ack, proxy_id) == 24, "take_ack.proxy_id: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_take_ack, token) == 28, "take_ack.token: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_take_ack, post_credits) == 32, "take_ack.post_credits: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_take_ack, local) == 36, "take_ack.local: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_take_ack, peer) == 60, "take_ack.peer: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_take_ack, died) == 84, "take_ack.died: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_take_ack, delivered_bytes) == 88, "take_ack.delivered_bytes: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_take_ack, accepted_bytes) == 96, "take_ack.accepted_bytes: offset");
_Static_assert(XTS_TAKE_ACK_BYTES == sizeof(struct xts_wire_take_ack), "take_ack: constant");

struct xts_wire_yield {
	struct xts_wire_head head;
	__be32 purpose;
} __attribute__((packed));
_Static_assert(sizeof(struct xts_wire_yield) == 28, "yield: size");
_Static_assert(__builtin_offsetof(struct xts_wire_yield, head) == 0, "yield.head: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_yield, purpose) == 24, "yield.purpose: offset");
_Static_assert(XTS_YIELD_BYTES == sizeof(struct xts_wire_yield), "yield: constant");

struct xts_wire_gathered {
	struct xts_wire_head head;
	__be32 length;
} __attribute__((packed));
_Static_assert(sizeof(struct xts_wire_gathered) == 28, "gathered: size");
_Static_assert(__builtin_offsetof(struct xts_wire_gathered, head) == 0, "gathered.head: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_gathered, length) == 24, "gathered.length: offset");
_Static_assert(XTS_GATHERED_BYTES == sizeof(struct xts_wire_gathered), "gathered: constant");

struct xts_wire_return {
	struct xts_wire_head head;
	__be64 key;
	__be32 length;
	__be32 kind;
	__be32 record_bytes;
	__be16 control_type;
	__be16 control_bytes;
	__be64 control_high;
	__be64 control_low;
} __attribute__((packed));
_Static_assert(sizeof(struct xts_wire_return) == 64, "return: size");
_Static_assert(__builtin_offsetof(struct xts_wire_return, head) == 0, "return.head: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_return, key) == 24, "return.key: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_return, length) == 32, "return.length: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_return, kind) == 36, "return.kind: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_return, record_bytes) == 40, "return.record_bytes: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_return, control_type) == 44, "return.control_type: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_return, control_bytes) == 46, "return.control_bytes: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_return, control_high) == 48, "return.control_high: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_return, control_low) == 56, "return.control_low: offset");
_Static_assert(XTS_RETURN_BYTES == sizeof(struct xts_wire_return), "return: constant");

struct xts_wire_cancel {
	struct xts_wire_head head;
	__be32 xts_socket;
} __attribute__((packed));
_Static_assert(sizeof(struct xts_wire_cancel) == 28, "cancel: size");
_Static_assert(__builtin_offsetof(struct xts_wire_cancel, head) == 0, "cancel.head: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_cancel, xts_socket) == 24, "cancel.xts_socket: offset");
_Static_assert(XTS_CANCEL_BYTES == sizeof(struct xts_wire_cancel), "cancel: constant");

struct xts_wire_move {
	struct xts_wire_head head;
	__be64 ticket;
	__be32 within_ms;
} __attribute__((packed));
_Static_assert(sizeof(struct xts_wire_move) == 36, "move: size");
_Static_assert(__builtin_offsetof(struct xts_wire_move, head) == 0, "move.head: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_move, ticket) == 24, "move.ticket: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_move, within_ms) == 32, "move.within_ms: offset");
_Static_assert(XTS_MOVE_BYTES == sizeof(struct xts_wire_move), "move: constant");

struct xts_wire_move_ack {
	struct xts_wire_head head;
	__be64 ticket;
} __attribute__((packed));
_Static_assert(sizeof(struct xts_wire_move_ack) == 32, "move_ack: size");
_Static_assert(__builtin_offsetof(struct xts_wire_move_ack, head) == 0, "move_ack.head: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_move_ack, ticket) == 24, "move_ack.ticket: offset");
_Static_assert(XTS_MOVE_ACK_BYTES == sizeof(struct xts_wire_move_ack), "move_ack: constant");

struct xts_wire_resume {
	struct xts_wire_head head;
	__be32 xts_socket;
	__be32 token;
	__be64 key;
	__be32 post_credits;
	__be32 unread;
	__be64 received_bytes;
	__be64 sent_bytes;
	__be32 fin_sent;
} __attribute__((packed));
_Static_assert(sizeof(struct xts_wire_resume) == 68, "resume: size");
_Static_assert(__builtin_offsetof(struct xts_wire_resume, head) == 0, "resume.head: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_resume, xts_socket) == 24, "resume.xts_socket: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_resume, token) == 28, "resume.token: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_resume, key) == 32, "resume.key: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_resume, post_credits) == 40, "resume.post_credits: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_resume, unread) == 44, "resume.unread: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_resume, received_bytes) == 48, "resume.received_bytes: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_resume, sent_bytes) == 56, "resume.sent_bytes: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_resume, fin_sent) == 64, "resume.fin_sent: offset");
_Static_assert(XTS_RESUME_BYTES == sizeof(struct xts_wire_resume), "resume: constant");

struct xts_wire_shut_listener {
	struct xts_wire_head head;
	__be32 xts_socket;
	__be32 token;
} __attribute__((packed));
_Static_assert(sizeof(struct xts_wire_shut_listener) == 32, "shut_listener: size");
_Static_assert(__builtin_offsetof(struct xts_wire_shut_listener, head) == 0, "shut_listener.head: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_shut_listener, xts_socket) == 24, "shut_listener.xts_socket: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_shut_listener, token) == 28, "shut_listener.token: offset");
_Static_assert(XTS_SHUT_LISTENER_BYTES == sizeof(struct xts_wire_shut_listener), "shut_listener: constant");

struct xts_wire_shut_listener_ack {
	struct xts_wire_head head;
	__be32 proxy_id;
	__be32 token;
	struct xts_wire_endpoint local;
} __attribute__((packed));
_Static_assert(sizeof(struct xts_wire_shut_listener_ack) == 56, "shut_listener_ack: size");
_Static_assert(__builtin_offsetof(struct xts_wire_shut_listener_ack, head) == 0, "shut_listener_ack.head: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_shut_listener_ack, proxy_id) == 24, "shut_listener_ack.proxy_id: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_shut_listener_ack, token) == 28, "shut_listener_ack.token: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_shut_listener_ack, local) == 32, "shut_listener_ack.local: offset");
_Static_assert(XTS_SHUT_LISTENER_ACK_BYTES == sizeof(struct xts_wire_shut_listener_ack), "shut_listener_ack: constant");

struct xts_wire_listening {
	struct xts_wire_head head;
	__be32 listens;
	__be32 backlog;
} __attribute__((packed));
_Static_assert(sizeof(struct xts_wire_listening) == 32, "listening: size");
_Static_assert(__builtin_offsetof(struct xts_wire_listening, head) == 0, "listening.head: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_listening, listens) == 24, "listening.listens: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_listening, backlog) == 28, "listening.backlog: offset");
_Static_assert(XTS_LISTENING_BYTES == sizeof(struct xts_wire_listening), "listening: constant");

struct xts_wire_open_datagram {
	struct xts_wire_head head;
	__be32 xts_socket;
	__be32 token;
	__be32 post_credits;
	__be32 domain;
	struct xts_wire_endpoint local;
	struct xts_wire_endpoint peer;
	__be32 receive_bytes;
} __attribute__((packed));
_Static_assert(sizeof(struct xts_wire_open_datagram) == 92, "open_datagram: size");
_Static_assert(__builtin_offsetof(struct xts_wire_open_datagram, head) == 0, "open_datagram.head: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_open_datagram, xts_socket) == 24, "open_datagram.xts_socket: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_open_datagram, token) == 28, "open_datagram.token: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_open_datagram, post_credits) == 32, "open_datagram.post_credits: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_open_datagram, domain) == 36, "open_datagram.domain: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_open_datagram, local) == 40, "open_datagram.local: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_open_datagram, peer) == 64, "open_datagram.peer: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_open_datagram, receive_bytes) == 88, "open_datagram.receive_bytes: offset");
_Static_assert(XTS_OPEN_DATAGRAM_BYTES == sizeof(struct xts_wire_open_datagram), "open_datagram: constant");

struct xts_wire_open_datagram_ack {
	struct xts_wire_head head;
	__be32 proxy_id;
	__be32 token;
	__be32 post_credits;
	struct xts_wire_endpoint local;
	struct xts_wire_endpoint peer;
} __attribute__((packed));
_Static_assert(sizeof(struct xts_wire_open_datagram_ack) == 84, "open_datagram_ack: size");
_Static_assert(__builtin_offsetof(struct xts_wire_open_datagram_ack, head) == 0, "open_datagram_ack.head: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_open_datagram_ack, proxy_id) == 24, "open_datagram_ack.proxy_id: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_open_datagram_ack, token) == 28, "open_datagram_ack.token: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_open_datagram_ack, post_credits) == 32, "open_datagram_ack.post_credits: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_open_datagram_ack, local) == 36, "open_datagram_ack.local: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_open_datagram_ack, peer) == 60, "open_datagram_ack.peer: offset");
_Static_assert(XTS_OPEN_DATAGRAM_ACK_BYTES == sizeof(struct xts_wire_open_datagram_ack), "open_datagram_ack: constant");

struct xts_wire_connect_datagram {
	struct xts_wire_head head;
	__be32 xts_socket;
	__be32 token;
	struct xts_wire_endpoint peer;
} __attribute__((packed));
_Static_assert(sizeof(struct xts_wire_connect_datagram) == 56, "connect_datagram: size");
_Static_assert(__builtin_offsetof(struct xts_wire_connect_datagram, head) == 0, "connect_datagram.head: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_connect_datagram, xts_socket) == 24, "connect_datagram.xts_socket: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_connect_datagram, token) == 28, "connect_datagram.token: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_connect_datagram, peer) == 32, "connect_datagram.peer: offset");
_Static_assert(XTS_CONNECT_DATAGRAM_BYTES == sizeof(struct xts_wire_connect_datagram), "connect_datagram: constant");

struct xts_wire_connect_datagram_ack {
	struct xts_wire_head head;
	__be32 token;
	struct xts_wire_endpoint local;
	struct xts_wire_endpoint peer;
} __attribute__((packed));
_Static_assert(sizeof(struct xts_wire_connect_datagram_ack) == 76, "connect_datagram_ack: size");
_Static_assert(__builtin_offsetof(struct xts_wire_connect_datagram_ack, head) == 0, "connect_datagram_ack.head: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_connect_datagram_ack, token) == 24, "connect_datagram_ack.token: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_connect_datagram_ack, local) == 28, "connect_datagram_ack.local: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_connect_datagram_ack, peer) == 52, "connect_datagram_ack.peer: offset");
_Static_assert(XTS_CONNECT_DATAGRAM_ACK_BYTES == sizeof(struct xts_wire_connect_datagram_ack), "connect_datagram_ack: constant");

struct xts_wire_send_datagrams {
	struct xts_wire_head head;
	__be32 post_credits;
	__be32 length;
} __attribute__((packed));
_Static_assert(sizeof(struct xts_wire_send_datagrams) == 32, "send_datagrams: size");
_Static_assert(__builtin_offsetof(struct xts_wire_send_datagrams, head) == 0, "send_datagrams.head: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_send_datagrams, post_credits) == 24, "send_datagrams.post_credits: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_send_datagrams, length) == 28, "send_datagrams.length: offset");
_Static_assert(XTS_SEND_DATAGRAMS_BYTES == sizeof(struct xts_wire_send_datagrams), "send_datagrams: constant");

struct xts_wire_recv_datagrams {
	struct xts_wire_head head;
	__be32 post_credits;
	__be32 dropped;
	__be32 length;
} __attribute__((packed));
_Static_assert(sizeof(struct xts_wire_recv_datagrams) == 36, "recv_datagrams: size");
_Static_assert(__builtin_offsetof(struct xts_wire_recv_datagrams, head) == 0, "recv_datagrams.head: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_recv_datagrams, post_credits) == 24, "recv_datagrams.post_credits: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_recv_datagrams, dropped) == 28, "recv_datagrams.dropped: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_recv_datagrams, length) == 32, "recv_datagrams.length: offset");
_Static_assert(XTS_RECV_DATAGRAMS_BYTES == sizeof(struct xts_wire_recv_datagrams), "recv_datagrams: constant");

struct xts_wire_return_datagrams {
	struct xts_wire_head head;
	__be32 length;
} __attribute__((packed));
_Static_assert(sizeof(struct xts_wire_return_datagrams) == 28, "return_datagrams: size");
_Static_assert(__builtin_offsetof(struct xts_wire_return_datagrams, head) == 0, "return_datagrams.head: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_return_datagrams, length) == 24, "return_datagrams.length: offset");
_Static_assert(XTS_RETURN_DATAGRAMS_BYTES == sizeof(struct xts_wire_return_datagrams), "return_datagrams: constant");

struct xts_wire_query_name {
	struct xts_wire_head head;
	__be32 token;
	__be32 length;
} __attribute__((packed));
_Static_assert(sizeof(struct xts_wire_query_name) == 32, "query_name: size");
_Static_assert(__builtin_offsetof(struct xts_wire_query_name, head) == 0, "query_name.head: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_query_name, token) == 24, "query_name.token: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_query_name, length) == 28, "query_name.length: offset");
_Static_assert(XTS_QUERY_NAME_BYTES == sizeof(struct xts_wire_query_name), "query_name: constant");

struct xts_wire_name_ack {
	struct xts_wire_head head;
	__be32 token;
	__be32 families;
	__be32 length;
} __attribute__((packed));
_Static_assert(sizeof(struct xts_wire_name_ack) == 36, "name_ack: size");
_Static_assert(__builtin_offsetof(struct xts_wire_name_ack, head) == 0, "name_ack.head: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_name_ack, token) == 24, "name_ack.token: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_name_ack, families) == 28, "name_ack.families: offset");
_Static_assert(__builtin_offsetof(struct xts_wire_name_ack, length) == 32, "name_ack.length: offset");
_Static_assert(XTS_NAME_ACK_BYTES == sizeof(struct xts_wire_name_ack), "name_ack: constant");

#ifndef __bpf__

#include <endian.h>
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* A value that has been read is not read again: the compiler may not go back to memory that the peer can change. */
#define XTS_READ(v) __asm__("" : "+r"(v))

static inline uint8_t xts_get8(const uint8_t *p) { uint8_t v = *p; XTS_READ(v); return v; }
static inline uint16_t xts_get16(const uint8_t *p) { uint16_t v; memcpy(&v, p, 2); XTS_READ(v); return be16toh(v); }
static inline uint32_t xts_get32(const uint8_t *p) { uint32_t v; memcpy(&v, p, 4); XTS_READ(v); return be32toh(v); }
static inline uint64_t xts_get64(const uint8_t *p) { uint64_t v; memcpy(&v, p, 8); XTS_READ(v); return be64toh(v); }
static inline void xts_put8(uint8_t *p, uint8_t v) { *p = v; }
static inline void xts_put16(uint8_t *p, uint16_t v) { v = htobe16(v); memcpy(p, &v, sizeof v); }
static inline void xts_put32(uint8_t *p, uint32_t v) { v = htobe32(v); memcpy(p, &v, sizeof v); }
static inline void xts_put64(uint8_t *p, uint64_t v) { v = htobe64(v); memcpy(p, &v, sizeof v); }

/* An address and port, host order. */
struct xts_endpoint {
	uint16_t port;       /* port of TCP or UDP (port) */
	uint8_t ip_version;  /* 4, 6, or 0 for none */
	uint32_t scope_id;   /* IPv6 scope (the device's interface index), else 0 */
	uint8_t address[16]; /* IPv4 in the first four bytes, or IPv6 */
};

static inline void xts_endpoint_get(struct xts_endpoint *e, const uint8_t *p)
{
	e->port = xts_get16(p + offsetof(struct xts_wire_endpoint, port));
	e->ip_version = xts_get8(p + offsetof(struct xts_wire_endpoint, ip_version));
	e->scope_id = xts_get32(p + offsetof(struct xts_wire_endpoint, scope_id));
	memcpy(e->address, p + offsetof(struct xts_wire_endpoint, address), sizeof e->address);
}

static inline void xts_endpoint_put(uint8_t *p, const struct xts_endpoint *e)
{
	xts_put16(p + offsetof(struct xts_wire_endpoint, port), e->port);
	xts_put8(p + offsetof(struct xts_wire_endpoint, ip_version), e->ip_version);
	xts_put8(p + offsetof(struct xts_wire_endpoint, reserved), 0);
	xts_put32(p + offsetof(struct xts_wire_endpoint, scope_id), e->scope_id);
	memcpy(p + offsetof(struct xts_wire_endpoint, address), e->address, sizeof e->address);
}

/* What every message begins with, after the Ethernet header. */
struct xts_head {
	uint8_t type;      /* the message's type */
	uint8_t seqno;     /* sequence number, modulo 256; of a link frame: that of the next sequenced message */
	uint8_t frame_ack; /* frames whose buffers the sender has recycled, modulo 256 (frames) */
	uint8_t flags;     /* XTS_FLAG_*; in a reply to a request: its refusal (XTS_REFUSED_*), 0 for none */
	uint16_t error;    /* Linux errno, 0 for none (errno) */
	uint32_t id;       /* the target's identifier (id) */
};

/* frame points at the Ethernet header. Returns 0, or -EBADMSG when it is too short. */
static inline int xts_head_decode(struct xts_head *m, const void *frame, size_t frame_bytes)
{
	const uint8_t *p = (const uint8_t *)frame;

	if (frame_bytes < XTS_HEAD_BYTES)
		return -EBADMSG;
	m->type = xts_get8(p + offsetof(struct xts_wire_head, type));
	m->seqno = xts_get8(p + offsetof(struct xts_wire_head, seqno));
	m->frame_ack = xts_get8(p + offsetof(struct xts_wire_head, frame_ack));
	m->flags = xts_get8(p + offsetof(struct xts_wire_head, flags));
	m->error = xts_get16(p + offsetof(struct xts_wire_head, error));
	m->id = xts_get32(p + offsetof(struct xts_wire_head, id));
	return 0;
}

/* Writes type, flags, error and id; the link fills in the Ethernet header, seqno and frame_ack (xts_link_seal). */
static inline void xts_head_encode(void *frame, uint8_t type, uint8_t flags, uint16_t error, uint32_t id)
{
	uint8_t *p = (uint8_t *)frame;

	xts_put8(p + offsetof(struct xts_wire_head, type), type);
	xts_put8(p + offsetof(struct xts_wire_head, flags), flags);
	xts_put16(p + offsetof(struct xts_wire_head, error), error);
	xts_put32(p + offsetof(struct xts_wire_head, id), id);
}

/* What each datagram begins with, in the payload of SEND_DATAGRAMS and RECV_DATAGRAMS. */
struct xts_datagram_record {
	uint16_t data_bytes;          /* length of the datagram, or of the train of datagrams (bytes) */
	uint16_t segment_bytes;       /* of a train: each datagram but the last has so many; 0: one datagram (bytes) */
	uint16_t control_bytes;       /* length of the control items, padding included (bytes) */
	struct xts_endpoint endpoint; /* destination, or source; ip_version 0: the peer that the socket is connected
	                               * to */
};

/* frame points at the record. Returns 0, or -EBADMSG when it is too short or no record. */
static inline int xts_datagram_record_decode(struct xts_datagram_record *m, const void *frame, size_t frame_bytes)
{
	const uint8_t *p = (const uint8_t *)frame;

	if (frame_bytes < XTS_DATAGRAM_RECORD_BYTES)
		return -EBADMSG;
	m->data_bytes = xts_get16(p + offsetof(struct xts_wire_datagram_record, data_bytes));
	m->segment_bytes = xts_get16(p + offsetof(struct xts_wire_datagram_record, segment_bytes));
	m->control_bytes = xts_get16(p + offsetof(struct xts_wire_datagram_record, control_bytes));
	xts_endpoint_get(&m->endpoint, p + offsetof(struct xts_wire_datagram_record, endpoint));
	if (m->control_bytes > 256u)
		return -EBADMSG;
	if (m->endpoint.ip_version != 0 && m->endpoint.ip_version != 4 && m->endpoint.ip_version != 6)
		return -EBADMSG;
	return 0;
}

static inline void xts_datagram_record_encode(void *frame, const struct xts_datagram_record *m)
{
	uint8_t *p = (uint8_t *)frame;

	xts_put16(p + offsetof(struct xts_wire_datagram_record, data_bytes), m->data_bytes);
	xts_put16(p + offsetof(struct xts_wire_datagram_record, segment_bytes), m->segment_bytes);
	xts_put16(p + offsetof(struct xts_wire_datagram_record, control_bytes), m->control_bytes);
	xts_endpoint_put(p + offsetof(struct xts_wire_datagram_record, endpoint), &m->endpoint);
	xts_put16(p + offsetof(struct xts_wire_datagram_record, reserved), 0);
}

/*
 * XTS_CMD_CONNECT: start a connection, with protocols pushed onto it before its first byte (payload:
 * xts_messages/wire/ulps.py). id: the proxy's identifier, or 0: create the socket.
 */
struct xts_connect {
	uint32_t xts_socket;      /* the host's identifier of this socket (id) */
	uint32_t post_credits;    /* post credits granted with this message (bytes) */
	uint32_t domain;          /* 4 or 6: the family of the socket, should the proxy have to create it */
	struct xts_endpoint peer; /* address of the peer */
	uint32_t length;          /* bytes of payload (bytes) */
};

static inline int xts_connect_decode(struct xts_connect *m, const void *frame, size_t frame_bytes)
{
	const uint8_t *p = (const uint8_t *)frame;

	if (frame_bytes < XTS_CONNECT_BYTES)
		return -EBADMSG;
	m->xts_socket = xts_get32(p + offsetof(struct xts_wire_connect, xts_socket));
	m->post_credits = xts_get32(p + offsetof(struct xts_wire_connect, post_credits));
	m->domain = xts_get32(p + offsetof(struct xts_wire_connect, domain));
	xts_endpoint_get(&m->peer, p + offsetof(struct xts_wire_connect, peer));
	m->length = xts_get32(p + offsetof(struct xts_wire_connect, length));
	if (m->post_credits > 1073741824u)
		return -EBADMSG;
	if (m->domain != 0 && m->domain != 4 && m->domain != 6)
		return -EBADMSG;
	if (m->peer.ip_version != 0 && m->peer.ip_version != 4 && m->peer.ip_version != 6)
		return -EBADMSG;
	if (m->length > 61440u)
		return -EBADMSG;
	if (m->length > frame_bytes - XTS_CONNECT_BYTES)
		return -EBADMSG;
	if (m->length < frame_bytes - XTS_CONNECT_BYTES && frame_bytes > XTS_ETH_MIN_BYTES)
		return -EBADMSG;
	return 0;
}

static inline void xts_connect_encode(void *frame, const struct xts_connect *m)
{
	uint8_t *p = (uint8_t *)frame;

	xts_put32(p + offsetof(struct xts_wire_connect, xts_socket), m->xts_socket);
	xts_put32(p + offsetof(struct xts_wire_connect, post_credits), m->post_credits);
	xts_put32(p + offsetof(struct xts_wire_connect, domain), m->domain);
	xts_endpoint_put(p + offsetof(struct xts_wire_connect, peer), &m->peer);
	xts_put32(p + offsetof(struct xts_wire_connect, length), m->length);
}

/* XTS_REPLY_CONNECT_ACK: the connection is established, or error says why not. id: XTS socket. */
struct xts_connect_ack {
	uint32_t proxy_id;         /* the proxy's identifier of this socket (id) */
	uint32_t post_credits;     /* post credits granted with this message (bytes) */
	struct xts_endpoint local; /* local address of the socket */
	struct xts_endpoint peer;  /* address of the peer */
};

static inline int xts_connect_ack_decode(struct xts_connect_ack *m, const void *frame, size_t frame_bytes)
{
	const uint8_t *p = (const uint8_t *)frame;

	if (frame_bytes < XTS_CONNECT_ACK_BYTES)
		return -EBADMSG;
	m->proxy_id = xts_get32(p + offsetof(struct xts_wire_connect_ack, proxy_id));
	m->post_credits = xts_get32(p + offsetof(struct xts_wire_connect_ack, post_credits));
	xts_endpoint_get(&m->local, p + offsetof(struct xts_wire_connect_ack, local));
	xts_endpoint_get(&m->peer, p + offsetof(struct xts_wire_connect_ack, peer));
	if (m->post_credits > 1073741824u)
		return -EBADMSG;
	if (m->local.ip_version != 0 && m->local.ip_version != 4 && m->local.ip_version != 6)
		return -EBADMSG;
	if (m->peer.ip_version != 0 && m->peer.ip_version != 4 && m->peer.ip_version != 6)
		return -EBADMSG;
	return 0;
}

static inline void xts_connect_ack_encode(void *frame, const struct xts_connect_ack *m)
{
	uint8_t *p = (uint8_t *)frame;

	xts_put32(p + offsetof(struct xts_wire_connect_ack, proxy_id), m->proxy_id);
	xts_put32(p + offsetof(struct xts_wire_connect_ack, post_credits), m->post_credits);
	xts_endpoint_put(p + offsetof(struct xts_wire_connect_ack, local), &m->local);
	xts_endpoint_put(p + offsetof(struct xts_wire_connect_ack, peer), &m->peer);
}

/*
 * XTS_CMD_LISTEN: start a listener; each post credit is one connection of the backlog. id: the proxy's identifier, or
 * 0: create the socket.
 */
struct xts_listen {
	uint32_t xts_socket;   /* the host's identifier of this socket (id) */
	uint32_t token;        /* repeated in the reply */
	uint32_t post_credits; /* connections that may wait for accept (connections) */
	uint32_t domain;       /* 4 or 6: the family of the socket, should the proxy have to create it */
	uint32_t backlog;      /* as in listen(2) (connections) */
};

static inline int xts_listen_decode(struct xts_listen *m, const void *frame, size_t frame_bytes)
{
	const uint8_t *p = (const uint8_t *)frame;

	if (frame_bytes < XTS_LISTEN_BYTES)
		return -EBADMSG;
	m->xts_socket = xts_get32(p + offsetof(struct xts_wire_listen, xts_socket));
	m->token = xts_get32(p + offsetof(struct xts_wire_listen, token));
	m->post_credits = xts_get32(p + offsetof(struct xts_wire_listen, post_credits));
	m->domain = xts_get32(p + offsetof(struct xts_wire_listen, domain));
	m->backlog = xts_get32(p + offsetof(struct xts_wire_listen, backlog));
	if (m->post_credits > 1073741824u)
		return -EBADMSG;
	if (m->domain != 0 && m->domain != 4 && m->domain != 6)
		return -EBADMSG;
	return 0;
}

static inline void xts_listen_encode(void *frame, const struct xts_listen *m)
{
	uint8_t *p = (uint8_t *)frame;

	xts_put32(p + offsetof(struct xts_wire_listen, xts_socket), m->xts_socket);
	xts_put32(p + offsetof(struct xts_wire_listen, token), m->token);
	xts_put32(p + offsetof(struct xts_wire_listen, post_credits), m->post_credits);
	xts_put32(p + offsetof(struct xts_wire_listen, domain), m->domain);
	xts_put32(p + offsetof(struct xts_wire_listen, backlog), m->backlog);
}

/* XTS_REPLY_LISTEN_ACK: the listener has started, or error says why not. id: XTS socket. */
struct xts_listen_ack {
	uint32_t proxy_id;         /* the proxy's identifier of this socket (id) */
	uint32_t token;            /* repeated in the reply */
	struct xts_endpoint local; /* local address of the socket */
};

static inline int xts_listen_ack_decode(struct xts_listen_ack *m, const void *frame, size_t frame_bytes)
{
	const uint8_t *p = (const uint8_t *)frame;

	if (frame_bytes < XTS_LISTEN_ACK_BYTES)
		return -EBADMSG;
	m->proxy_id = xts_get32(p + offsetof(struct xts_wire_listen_ack, proxy_id));
	m->token = xts_get32(p + offsetof(struct xts_wire_listen_ack, token));
	xts_endpoint_get(&m->local, p + offsetof(struct xts_wire_listen_ack, local));
	if (m->local.ip_version != 0 && m->local.ip_version != 4 && m->local.ip_version != 6)
		return -EBADMSG;
	return 0;
}

static inline void xts_listen_ack_encode(void *frame, const struct xts_listen_ack *m)
{
	uint8_t *p = (uint8_t *)frame;

	xts_put32(p + offsetof(struct xts_wire_listen_ack, proxy_id), m->proxy_id);
	xts_put32(p + offsetof(struct xts_wire_listen_ack, token), m->token);
	xts_endpoint_put(p + offsetof(struct xts_wire_listen_ack, local), &m->local);
}

/* XTS_REPLY_NEWCONN: a listener has a new connection; takes one of its post credits. id: XTS socket of the listener. */
struct xts_newconn {
	uint32_t proxy_id;         /* the proxy's identifier of this socket (id) */
	uint32_t post_credits;     /* post credits granted with this message (bytes) */
	struct xts_endpoint local; /* local address of the socket */
	struct xts_endpoint peer;  /* address of the peer */
};

static inline int xts_newconn_decode(struct xts_newconn *m, const void *frame, size_t frame_bytes)
{
	const uint8_t *p = (const uint8_t *)frame;

	if (frame_bytes < XTS_NEWCONN_BYTES)
		return -EBADMSG;
	m->proxy_id = xts_get32(p + offsetof(struct xts_wire_newconn, proxy_id));
	m->post_credits = xts_get32(p + offsetof(struct xts_wire_newconn, post_credits));
	xts_endpoint_get(&m->local, p + offsetof(struct xts_wire_newconn, local));
	xts_endpoint_get(&m->peer, p + offsetof(struct xts_wire_newconn, peer));
	if (m->post_credits > 1073741824u)
		return -EBADMSG;
	if (m->local.ip_version != 0 && m->local.ip_version != 4 && m->local.ip_version != 6)
		return -EBADMSG;
	if (m->peer.ip_version != 0 && m->peer.ip_version != 4 && m->peer.ip_version != 6)
		return -EBADMSG;
	return 0;
}

static inline void xts_newconn_encode(void *frame, const struct xts_newconn *m)
{
	uint8_t *p = (uint8_t *)frame;

	xts_put32(p + offsetof(struct xts_wire_newconn, proxy_id), m->proxy_id);
	xts_put32(p + offsetof(struct xts_wire_newconn, post_credits), m->post_credits);
	xts_endpoint_put(p + offsetof(struct xts_wire_newconn, local), &m->local);
	xts_endpoint_put(p + offsetof(struct xts_wire_newconn, peer), &m->peer);
}

/*
 * XTS_CMD_NEWCONN_ACK: the new connection has an XTS socket; an error refuses it (reset). id: proxy's identifier of the
 * new connection.
 */
struct xts_newconn_ack {
	uint32_t xts_socket;   /* the host's identifier of this socket (id) */
	uint32_t post_credits; /* post credits granted with this message (bytes) */
};

static inline int xts_newconn_ack_decode(struct xts_newconn_ack *m, const void *frame, size_t frame_bytes)
{
	const uint8_t *p = (const uint8_t *)frame;

	if (frame_bytes < XTS_NEWCONN_ACK_BYTES)
		return -EBADMSG;
	m->xts_socket = xts_get32(p + offsetof(struct xts_wire_newconn_ack, xts_socket));
	m->post_credits = xts_get32(p + offsetof(struct xts_wire_newconn_ack, post_credits));
	if (m->post_credits > 1073741824u)
		return -EBADMSG;
	return 0;
}

static inline void xts_newconn_ack_encode(void *frame, const struct xts_newconn_ack *m)
{
	uint8_t *p = (uint8_t *)frame;

	xts_put32(p + offsetof(struct xts_wire_newconn_ack, xts_socket), m->xts_socket);
	xts_put32(p + offsetof(struct xts_wire_newconn_ack, post_credits), m->post_credits);
}

/*
 * XTS_CMD_SEND: data, post credits, and the ways of closing; length 0 is a pure credit advertisement. On a listener,
 * post_credits returns accepted connections. id: proxy's identifier.
 */
struct xts_send {
	uint32_t post_credits; /* post credits granted with this message (bytes) */
	uint32_t length;       /* bytes of payload (bytes) */
};

static inline int xts_send_decode(struct xts_send *m, const void *frame, size_t frame_bytes)
{
	const uint8_t *p = (const uint8_t *)frame;

	if (frame_bytes < XTS_SEND_BYTES)
		return -EBADMSG;
	m->post_credits = xts_get32(p + offsetof(struct xts_wire_send, post_credits));
	m->length = xts_get32(p + offsetof(struct xts_wire_send, length));
	if (m->post_credits > 1073741824u)
		return -EBADMSG;
	if (m->length > 61440u)
		return -EBADMSG;
	if (m->length > frame_bytes - XTS_SEND_BYTES)
		return -EBADMSG;
	if (m->length < frame_bytes - XTS_SEND_BYTES && frame_bytes > XTS_ETH_MIN_BYTES)
		return -EBADMSG;
	return 0;
}

static inline void xts_send_encode(void *frame, const struct xts_send *m)
{
	uint8_t *p = (uint8_t *)frame;

	xts_put32(p + offsetof(struct xts_wire_send, post_credits), m->post_credits);
	xts_put32(p + offsetof(struct xts_wire_send, length), m->length);
}

/* XTS_REPLY_RECV: received data, post credits, end of stream, failure, end of close. id: XTS socket. */
struct xts_recv {
	uint32_t post_credits; /* post credits granted with this message (bytes) */
	uint32_t length;       /* bytes of payload (bytes) */
};

static inline int xts_recv_decode(struct xts_recv *m, const void *frame, size_t frame_bytes)
{
	const uint8_t *p = (const uint8_t *)frame;

	if (frame_bytes < XTS_RECV_BYTES)
		return -EBADMSG;
	m->post_credits = xts_get32(p + offsetof(struct xts_wire_recv, post_credits));
	m->length = xts_get32(p + offsetof(struct xts_wire_recv, length));
	if (m->post_credits > 1073741824u)
		return -EBADMSG;
	if (m->length > 61440u)
		return -EBADMSG;
	if (m->length > frame_bytes - XTS_RECV_BYTES)
		return -EBADMSG;
	if (m->length < frame_bytes - XTS_RECV_BYTES && frame_bytes > XTS_ETH_MIN_BYTES)
		return -EBADMSG;
	return 0;
}

static inline void xts_recv_encode(void *frame, const struct xts_recv *m)
{
	uint8_t *p = (uint8_t *)frame;

	xts_put32(p + offsetof(struct xts_wire_recv, post_credits), m->post_credits);
	xts_put32(p + offsetof(struct xts_wire_recv, length), m->length);
}

/* XTS_LINK_HELLO: opens the link; resets whatever an earlier epoch left. id: unused. */
struct xts_hello {
	uint16_t version;         /* wire version */
	uint16_t frame_window;    /* largest window wanted (frames) */
	uint32_t largest_message; /* largest frame the host can receive (bytes) */
	uint64_t features;        /* feature bits offered */
	uint64_t required;        /* feature bits the host cannot do without */
	uint64_t epoch;           /* random number of this attachment */
	uint32_t pid;             /* the host process, for the operator's eyes only */
};

static inline int xts_hello_decode(struct xts_hello *m, const void *frame, size_t frame_bytes)
{
	const uint8_t *p = (const uint8_t *)frame;

	if (frame_bytes < XTS_HELLO_BYTES)
		return -EBADMSG;
	m->version = xts_get16(p + offsetof(struct xts_wire_hello, version));
	m->frame_window = xts_get16(p + offsetof(struct xts_wire_hello, frame_window));
	m->largest_message = xts_get32(p + offsetof(struct xts_wire_hello, largest_message));
	m->features = xts_get64(p + offsetof(struct xts_wire_hello, features));
	m->required = xts_get64(p + offsetof(struct xts_wire_hello, required));
	m->epoch = xts_get64(p + offsetof(struct xts_wire_hello, epoch));
	m->pid = xts_get32(p + offsetof(struct xts_wire_hello, pid));
	return 0;
}

static inline void xts_hello_encode(void *frame, const struct xts_hello *m)
{
	uint8_t *p = (uint8_t *)frame;

	xts_put16(p + offsetof(struct xts_wire_hello, version), m->version);
	xts_put16(p + offsetof(struct xts_wire_hello, frame_window), m->frame_window);
	xts_put32(p + offsetof(struct xts_wire_hello, largest_message), m->largest_message);
	xts_put64(p + offsetof(struct xts_wire_hello, features), m->features);
	xts_put64(p + offsetof(struct xts_wire_hello, required), m->required);
	xts_put64(p + offsetof(struct xts_wire_hello, epoch), m->epoch);
	xts_put32(p + offsetof(struct xts_wire_hello, pid), m->pid);
}

/* XTS_LINK_HELLO_ACK: the link is up with these values, or error refuses it. id: unused. */
struct xts_hello_ack {
	uint16_t version;         /* wire version spoken */
	uint16_t frame_window;    /* window in force, each way (frames) */
	uint32_t largest_message; /* largest frame in force, each way (bytes) */
	uint64_t features;        /* feature bits in force */
	uint64_t epoch;           /* repeats the HELLO's */
	uint32_t sockets_max;     /* sockets this host may have (sockets) */
};

static inline int xts_hello_ack_decode(struct xts_hello_ack *m, const void *frame, size_t frame_bytes)
{
	const uint8_t *p = (const uint8_t *)frame;

	if (frame_bytes < XTS_HELLO_ACK_BYTES)
		return -EBADMSG;
	m->version = xts_get16(p + offsetof(struct xts_wire_hello_ack, version));
	m->frame_window = xts_get16(p + offsetof(struct xts_wire_hello_ack, frame_window));
	m->largest_message = xts_get32(p + offsetof(struct xts_wire_hello_ack, largest_message));
	m->features = xts_get64(p + offsetof(struct xts_wire_hello_ack, features));
	m->epoch = xts_get64(p + offsetof(struct xts_wire_hello_ack, epoch));
	m->sockets_max = xts_get32(p + offsetof(struct xts_wire_hello_ack, sockets_max));
	if (m->frame_window > 128u)
		return -EBADMSG;
	if (m->largest_message > 61440u)
		return -EBADMSG;
	return 0;
}

static inline void xts_hello_ack_encode(void *frame, const struct xts_hello_ack *m)
{
	uint8_t *p = (uint8_t *)frame;

	xts_put16(p + offsetof(struct xts_wire_hello_ack, version), m->version);
	xts_put16(p + offsetof(struct xts_wire_hello_ack, frame_window), m->frame_window);
	xts_put32(p + offsetof(struct xts_wire_hello_ack, largest_message), m->largest_message);
	xts_put64(p + offsetof(struct xts_wire_hello_ack, features), m->features);
	xts_put64(p + offsetof(struct xts_wire_hello_ack, epoch), m->epoch);
	xts_put32(p + offsetof(struct xts_wire_hello_ack, sockets_max), m->sockets_max);
}

/* XTS_LINK_PING: answer me. id: unused. */
struct xts_ping {
	uint64_t token; /* repeated in the answer */
};

static inline int xts_ping_decode(struct xts_ping *m, const void *frame, size_t frame_bytes)
{
	const uint8_t *p = (const uint8_t *)frame;

	if (frame_bytes < XTS_PING_BYTES)
		return -EBADMSG;
	m->token = xts_get64(p + offsetof(struct xts_wire_ping, token));
	return 0;
}

static inline void xts_ping_encode(void *frame, const struct xts_ping *m)
{
	uint8_t *p = (uint8_t *)frame;

	xts_put64(p + offsetof(struct xts_wire_ping, token), m->token);
}

/* XTS_LINK_PONG: answer to a ping. id: unused. */
struct xts_pong {
	uint64_t token; /* the ping's */
};

static inline int xts_pong_decode(struct xts_pong *m, const void *frame, size_t frame_bytes)
{
	const uint8_t *p = (const uint8_t *)frame;

	if (frame_bytes < XTS_PONG_BYTES)
		return -EBADMSG;
	m->token = xts_get64(p + offsetof(struct xts_wire_pong, token));
	return 0;
}

static inline void xts_pong_encode(void *frame, const struct xts_pong *m)
{
	uint8_t *p = (uint8_t *)frame;

	xts_put64(p + offsetof(struct xts_wire_pong, token), m->token);
}

/* XTS_LINK_GOODBYE: this epoch has ended; error says why (0: orderly). id: unused. */
struct xts_goodbye {
	uint64_t epoch; /* the epoch that ends; 0, of a proxy: it knows of none */
};

static inline int xts_goodbye_decode(struct xts_goodbye *m, const void *frame, size_t frame_bytes)
{
	const uint8_t *p = (const uint8_t *)frame;

	if (frame_bytes < XTS_GOODBYE_BYTES)
		return -EBADMSG;
	m->epoch = xts_get64(p + offsetof(struct xts_wire_goodbye, epoch));
	return 0;
}

static inline void xts_goodbye_encode(void *frame, const struct xts_goodbye *m)
{
	uint8_t *p = (uint8_t *)frame;

	xts_put64(p + offsetof(struct xts_wire_goodbye, epoch), m->epoch);
}

/*
 * XTS_LINK_BUNDLE: several frames in one, as if they had come one by one; the payload is each frame's length (16 bits)
 * and the frame itself, from its Ethernet header on. Its own sequence number and frame_ack are 0 and mean nothing. id:
 * unused.
 */
struct xts_bundle {
	uint32_t length; /* bytes of payload (bytes) */
};

static inline int xts_bundle_decode(struct xts_bundle *m, const void *frame, size_t frame_bytes)
{
	const uint8_t *p = (const uint8_t *)frame;

	if (frame_bytes < XTS_BUNDLE_BYTES)
		return -EBADMSG;
	m->length = xts_get32(p + offsetof(struct xts_wire_bundle, length));
	if (m->length > 61440u)
		return -EBADMSG;
	if (m->length > frame_bytes - XTS_BUNDLE_BYTES)
		return -EBADMSG;
	if (m->length < frame_bytes - XTS_BUNDLE_BYTES && frame_bytes > XTS_ETH_MIN_BYTES)
		return -EBADMSG;
	return 0;
}

static inline void xts_bundle_encode(void *frame, const struct xts_bundle *m)
{
	uint8_t *p = (uint8_t *)frame;

	xts_put32(p + offsetof(struct xts_wire_bundle, length), m->length);
}

/*
 * XTS_LINK_TOKEN: what the agent of the host vouches for, right before the HELLO it is about; the payload is the path
 * of the process's cgroup, and further claims. id: unused.
 */
struct xts_token {
	uint32_t queue;      /* the queue it was given; of a relay's queue: and whose, in the bits from 8 on */
	uint32_t uid;        /* its user */
	uint64_t epoch;      /* that of the HELLO */
	uint64_t expires_ms; /* the HELLO comes before, in milliseconds since 1970 (ms) */
	uint64_t mac_high;   /* first eight bytes of HMAC-SHA256 under the key that agent and proxy share */
	uint64_t mac_low;    /* and the next eight */
	uint32_t length;     /* bytes of payload (bytes) */
};

static inline int xts_token_decode(struct xts_token *m, const void *frame, size_t frame_bytes)
{
	const uint8_t *p = (const uint8_t *)frame;

	if (frame_bytes < XTS_TOKEN_BYTES)
		return -EBADMSG;
	m->queue = xts_get32(p + offsetof(struct xts_wire_token, queue));
	m->uid = xts_get32(p + offsetof(struct xts_wire_token, uid));
	m->epoch = xts_get64(p + offsetof(struct xts_wire_token, epoch));
	m->expires_ms = xts_get64(p + offsetof(struct xts_wire_token, expires_ms));
	m->mac_high = xts_get64(p + offsetof(struct xts_wire_token, mac_high));
	m->mac_low = xts_get64(p + offsetof(struct xts_wire_token, mac_low));
	m->length = xts_get32(p + offsetof(struct xts_wire_token, length));
	if (m->length > 255u)
		return -EBADMSG;
	if (m->length > frame_bytes - XTS_TOKEN_BYTES)
		return -EBADMSG;
	if (m->length < frame_bytes - XTS_TOKEN_BYTES && frame_bytes > XTS_ETH_MIN_BYTES)
		return -EBADMSG;
	return 0;
}

static inline void xts_token_encode(void *frame, const struct xts_token *m)
{
	uint8_t *p = (uint8_t *)frame;

	xts_put32(p + offsetof(struct xts_wire_token, queue), m->queue);
	xts_put32(p + offsetof(struct xts_wire_token, uid), m->uid);
	xts_put64(p + offsetof(struct xts_wire_token, epoch), m->epoch);
	xts_put64(p + offsetof(struct xts_wire_token, expires_ms), m->expires_ms);
	xts_put64(p + offsetof(struct xts_wire_token, mac_high), m->mac_high);
	xts_put64(p + offsetof(struct xts_wire_token, mac_low), m->mac_low);
	xts_put32(p + offsetof(struct xts_wire_token, length), m->length);
}

/* XTS_LINK_CLOCK: what time is it? Sent where STAMPS is in force. id: unused. */
struct xts_clock {
	uint64_t token; /* repeated in the answer */
};

static inline int xts_clock_decode(struct xts_clock *m, const void *frame, size_t frame_bytes)
{
	const uint8_t *p = (const uint8_t *)frame;

	if (frame_bytes < XTS_CLOCK_BYTES)
		return -EBADMSG;
	m->token = xts_get64(p + offsetof(struct xts_wire_clock, token));
	return 0;
}

static inline void xts_clock_encode(void *frame, const struct xts_clock *m)
{
	uint8_t *p = (uint8_t *)frame;

	xts_put64(p + offsetof(struct xts_wire_clock, token), m->token);
}

/* XTS_LINK_CLOCK_ACK: the time at the moment when this leaves. id: unused. */
struct xts_clock_ack {
	uint64_t token;    /* the question's */
	uint64_t time_ns;  /* the device's clock: nanoseconds since 1970 (CLOCK_REALTIME) (ns) */
	uint64_t error_ns; /* how far it may be from the time that it follows (by PTP or NTP: maxerror of
	                    * adjtimex(2)); all ones: it follows none (ns) */
};

static inline int xts_clock_ack_decode(struct xts_clock_ack *m, const void *frame, size_t frame_bytes)
{
	const uint8_t *p = (const uint8_t *)frame;

	if (frame_bytes < XTS_CLOCK_ACK_BYTES)
		return -EBADMSG;
	m->token = xts_get64(p + offsetof(struct xts_wire_clock_ack, token));
	m->time_ns = xts_get64(p + offsetof(struct xts_wire_clock_ack, time_ns));
	m->error_ns = xts_get64(p + offsetof(struct xts_wire_clock_ack, error_ns));
	return 0;
}

static inline void xts_clock_ack_encode(void *frame, const struct xts_clock_ack *m)
{
	uint8_t *p = (uint8_t *)frame;

	xts_put64(p + offsetof(struct xts_wire_clock_ack, token), m->token);
	xts_put64(p + offsetof(struct xts_wire_clock_ack, time_ns), m->time_ns);
	xts_put64(p + offsetof(struct xts_wire_clock_ack, error_ns), m->error_ns);
}

/*
 * XTS_LINK_CATCH_UP: send something of each socket that has something for the host, then answer; with CATCH_UP in
 * force. id: unused.
 */
struct xts_catch_up {
	uint64_t token; /* repeated in the answer; never 0 */
};

static inline int xts_catch_up_decode(struct xts_catch_up *m, const void *frame, size_t frame_bytes)
{
	const uint8_t *p = (const uint8_t *)frame;

	if (frame_bytes < XTS_CATCH_UP_BYTES)
		return -EBADMSG;
	m->token = xts_get64(p + offsetof(struct xts_wire_catch_up, token));
	return 0;
}

static inline void xts_catch_up_encode(void *frame, const struct xts_catch_up *m)
{
	uint8_t *p = (uint8_t *)frame;

	xts_put64(p + offsetof(struct xts_wire_catch_up, token), m->token);
}

/*
 * XTS_LINK_CAUGHT_UP: each socket that had something for the host when CATCH_UP came has had its turn since. id:
 * unused.
 */
struct xts_caught_up {
	uint64_t token; /* the request's */
};

static inline int xts_caught_up_decode(struct xts_caught_up *m, const void *frame, size_t frame_bytes)
{
	const uint8_t *p = (const uint8_t *)frame;

	if (frame_bytes < XTS_CAUGHT_UP_BYTES)
		return -EBADMSG;
	m->token = xts_get64(p + offsetof(struct xts_wire_caught_up, token));
	return 0;
}

static inline void xts_caught_up_encode(void *frame, const struct xts_caught_up *m)
{
	uint8_t *p = (uint8_t *)frame;

	xts_put64(p + offsetof(struct xts_wire_caught_up, token), m->token);
}

/*
 * XTS_LINK_REPLACED: the process that served this epoch has died, and another one goes on: the host says HELLO to it,
 * and RESUME; with RESUME in force. id: unused.
 */
struct xts_replaced {
	uint64_t epoch;  /* that has ended */
	uint64_t ticket; /* by which the host claims its sockets there; never 0 */
};

static inline int xts_replaced_decode(struct xts_replaced *m, const void *frame, size_t frame_bytes)
{
	const uint8_t *p = (const uint8_t *)frame;

	if (frame_bytes < XTS_REPLACED_BYTES)
		return -EBADMSG;
	m->epoch = xts_get64(p + offsetof(struct xts_wire_replaced, epoch));
	m->ticket = xts_get64(p + offsetof(struct xts_wire_replaced, ticket));
	return 0;
}

static inline void xts_replaced_encode(void *frame, const struct xts_replaced *m)
{
	uint8_t *p = (uint8_t *)frame;

	xts_put64(p + offsetof(struct xts_wire_replaced, epoch), m->epoch);
	xts_put64(p + offsetof(struct xts_wire_replaced, ticket), m->ticket);
}

/*
 * XTS_LINK_OVER: from who attaches processes, not from a process: none has these connections any more; the payload is
 * their keys (64 bits each). Its own sequence number and frame_ack are 0 and mean nothing. id: unused.
 */
struct xts_over {
	uint64_t epoch;  /* of the process that has told of them, with OVER in force; it may have ended */
	uint32_t length; /* bytes of payload (bytes) */
};

static inline int xts_over_decode(struct xts_over *m, const void *frame, size_t frame_bytes)
{
	const uint8_t *p = (const uint8_t *)frame;

	if (frame_bytes < XTS_OVER_BYTES)
		return -EBADMSG;
	m->epoch = xts_get64(p + offsetof(struct xts_wire_over, epoch));
	m->length = xts_get32(p + offsetof(struct xts_wire_over, length));
	if (m->length > 1024u)
		return -EBADMSG;
	if (m->length > frame_bytes - XTS_OVER_BYTES)
		return -EBADMSG;
	if (m->length < frame_bytes - XTS_OVER_BYTES && frame_bytes > XTS_ETH_MIN_BYTES)
		return -EBADMSG;
	return 0;
}

static inline void xts_over_encode(void *frame, const struct xts_over *m)
{
	uint8_t *p = (uint8_t *)frame;

	xts_put64(p + offsetof(struct xts_wire_over, epoch), m->epoch);
	xts_put32(p + offsetof(struct xts_wire_over, length), m->length);
}

/*
 * XTS_LINK_HEADED: a head, and as payload the frame that it carries, from the type of that on (PROTOCOL.md has more of
 * it). Its own sequence number, frame_ack, flags and error are 0 and mean nothing. id: receiver's queue.
 */
struct xts_headed {
	uint64_t secret;        /* that of the attachment; 0 without the part SECRET */
	uint64_t reserved_high; /* 0 */
	uint32_t reserved_low;  /* 0 */
	uint16_t parts;         /* bits: which of these the head has */
};

static inline int xts_headed_decode(struct xts_headed *m, const void *frame, size_t frame_bytes)
{
	const uint8_t *p = (const uint8_t *)frame;

	if (frame_bytes < XTS_HEADED_BYTES)
		return -EBADMSG;
	m->secret = xts_get64(p + offsetof(struct xts_wire_headed, secret));
	m->reserved_high = xts_get64(p + offsetof(struct xts_wire_headed, reserved_high));
	m->reserved_low = xts_get32(p + offsetof(struct xts_wire_headed, reserved_low));
	m->parts = xts_get16(p + offsetof(struct xts_wire_headed, parts));
	return 0;
}

static inline void xts_headed_encode(void *frame, const struct xts_headed *m)
{
	uint8_t *p = (uint8_t *)frame;

	xts_put64(p + offsetof(struct xts_wire_headed, secret), m->secret);
	xts_put64(p + offsetof(struct xts_wire_headed, reserved_high), m->reserved_high);
	xts_put32(p + offsetof(struct xts_wire_headed, reserved_low), m->reserved_low);
	xts_put16(p + offsetof(struct xts_wire_headed, parts), m->parts);
}

/*
 * XTS_LINK_PROBE: does a frame for this queue arrive there? The XDP program of the device sends it back, with the queue
 * on which it has arrived; no process sees it. id: receiver's queue.
 */
struct xts_probe {
	uint64_t round;      /* of the probes of an agent; not 0 */
	uint32_t arrived_on; /* 0 on the way there; on the way back the queue it arrived on, plus one */
	uint16_t back;       /* 0 on the way there, 1 on the way back */
};

static inline int xts_probe_decode(struct xts_probe *m, const void *frame, size_t frame_bytes)
{
	const uint8_t *p = (const uint8_t *)frame;

	if (frame_bytes < XTS_PROBE_BYTES)
		return -EBADMSG;
	m->round = xts_get64(p + offsetof(struct xts_wire_probe, round));
	m->arrived_on = xts_get32(p + offsetof(struct xts_wire_probe, arrived_on));
	m->back = xts_get16(p + offsetof(struct xts_wire_probe, back));
	return 0;
}

static inline void xts_probe_encode(void *frame, const struct xts_probe *m)
{
	uint8_t *p = (uint8_t *)frame;

	xts_put64(p + offsetof(struct xts_wire_probe, round), m->round);
	xts_put32(p + offsetof(struct xts_wire_probe, arrived_on), m->arrived_on);
	xts_put16(p + offsetof(struct xts_wire_probe, back), m->back);
}

/* XTS_CMD_BIND: bind(2). id: the proxy's identifier, or 0: create the socket. */
struct xts_bind {
	uint32_t xts_socket;       /* the host's identifier of this socket (id) */
	uint32_t token;            /* repeated in the reply */
	uint32_t domain;           /* 4 or 6: the family of the socket, should the proxy have to create it */
	struct xts_endpoint local; /* local address of the socket */
};

static inline int xts_bind_decode(struct xts_bind *m, const void *frame, size_t frame_bytes)
{
	const uint8_t *p = (const uint8_t *)frame;

	if (frame_bytes < XTS_BIND_BYTES)
		return -EBADMSG;
	m->xts_socket = xts_get32(p + offsetof(struct xts_wire_bind, xts_socket));
	m->token = xts_get32(p + offsetof(struct xts_wire_bind, token));
	m->domain = xts_get32(p + offsetof(struct xts_wire_bind, domain));
	xts_endpoint_get(&m->local, p + offsetof(struct xts_wire_bind, local));
	if (m->domain != 0 && m->domain != 4 && m->domain != 6)
		return -EBADMSG;
	if (m->local.ip_version != 0 && m->local.ip_version != 4 && m->local.ip_version != 6)
		return -EBADMSG;
	return 0;
}

static inline void xts_bind_encode(void *frame, const struct xts_bind *m)
{
	uint8_t *p = (uint8_t *)frame;

	xts_put32(p + offsetof(struct xts_wire_bind, xts_socket), m->xts_socket);
	xts_put32(p + offsetof(struct xts_wire_bind, token), m->token);
	xts_put32(p + offsetof(struct xts_wire_bind, domain), m->domain);
	xts_endpoint_put(p + offsetof(struct xts_wire_bind, local), &m->local);
}

/*
 * XTS_LINK_PART: a part of a frame that is longer than a packet; the payload is what the frame has behind its Ethernet
 * header, from `offset` on. Its own sequence number and frame_ack are 0 and mean nothing. id: unused.
 */
struct xts_part {
	uint32_t frame_bytes; /* length of the frame behind its Ethernet header (bytes) */
	uint32_t offset;      /* what has come of it before (bytes) */
	uint32_t length;      /* bytes of payload (bytes) */
};

static inline int xts_part_decode(struct xts_part *m, const void *frame, size_t frame_bytes)
{
	const uint8_t *p = (const uint8_t *)frame;

	if (frame_bytes < XTS_PART_BYTES)
		return -EBADMSG;
	m->frame_bytes = xts_get32(p + offsetof(struct xts_wire_part, frame_bytes));
	m->offset = xts_get32(p + offsetof(struct xts_wire_part, offset));
	m->length = xts_get32(p + offsetof(struct xts_wire_part, length));
	if (m->frame_bytes > 61440u)
		return -EBADMSG;
	if (m->offset > 61440u)
		return -EBADMSG;
	if (m->length > 61440u)
		return -EBADMSG;
	if (m->length > frame_bytes - XTS_PART_BYTES)
		return -EBADMSG;
	if (m->length < frame_bytes - XTS_PART_BYTES && frame_bytes > XTS_ETH_MIN_BYTES)
		return -EBADMSG;
	return 0;
}

static inline void xts_part_encode(void *frame, const struct xts_part *m)
{
	uint8_t *p = (uint8_t *)frame;

	xts_put32(p + offsetof(struct xts_wire_part, frame_bytes), m->frame_bytes);
	xts_put32(p + offsetof(struct xts_wire_part, offset), m->offset);
	xts_put32(p + offsetof(struct xts_wire_part, length), m->length);
}

/*
 * XTS_LINK_ARQ: a head of what repeats lost frames, and as payload the frame that it carries, from the type of that on
 * (PROTOCOL.md has more of it). Its own sequence number, frame_ack, flags, error and id are 0 and mean nothing. id:
 * unused.
 */
struct xts_arq {
	uint64_t epoch;          /* that of the attachment */
	uint32_t sequence;       /* number of this frame, modulo 2^32; 0 without the part NUMBERED */
	uint32_t first;          /* number of the first frame of its sender in this epoch */
	uint32_t arrived;        /* all frames with lower numbers have arrived; 0 without the part ARRIVED */
	uint64_t selective_low;  /* bit N: frame `arrived` + 1 + N has arrived, too */
	uint64_t selective_high; /* bit N: frame `arrived` + 65 + N has arrived, too */
	uint32_t transmission;   /* number of this transmission: repeated frames have a new one each time */
	uint32_t heard;          /* highest number of a transmission that has arrived */
	uint32_t checksum;       /* CRC32C of the frame from its type on, with 0 in this field */
	uint16_t held_us;        /* for how long the sender has had `heard`; 65535: or longer (us) */
	uint16_t duplicates;     /* numbered frames that have come twice, modulo 2^16 */
	uint16_t parts;          /* bits: which of these the head has */
};

static inline int xts_arq_decode(struct xts_arq *m, const void *frame, size_t frame_bytes)
{
	const uint8_t *p = (const uint8_t *)frame;

	if (frame_bytes < XTS_ARQ_BYTES)
		return -EBADMSG;
	m->epoch = xts_get64(p + offsetof(struct xts_wire_arq, epoch));
	m->sequence = xts_get32(p + offsetof(struct xts_wire_arq, sequence));
	m->first = xts_get32(p + offsetof(struct xts_wire_arq, first));
	m->arrived = xts_get32(p + offsetof(struct xts_wire_arq, arrived));
	m->selective_low = xts_get64(p + offsetof(struct xts_wire_arq, selective_low));
	m->selective_high = xts_get64(p + offsetof(struct xts_wire_arq, selective_high));
	m->transmission = xts_get32(p + offsetof(struct xts_wire_arq, transmission));
	m->heard = xts_get32(p + offsetof(struct xts_wire_arq, heard));
	m->checksum = xts_get32(p + offsetof(struct xts_wire_arq, checksum));
	m->held_us = xts_get16(p + offsetof(struct xts_wire_arq, held_us));
	m->duplicates = xts_get16(p + offsetof(struct xts_wire_arq, duplicates));
	m->parts = xts_get16(p + offsetof(struct xts_wire_arq, parts));
	return 0;
}

static inline void xts_arq_encode(void *frame, const struct xts_arq *m)
{
	uint8_t *p = (uint8_t *)frame;

	xts_put64(p + offsetof(struct xts_wire_arq, epoch), m->epoch);
	xts_put32(p + offsetof(struct xts_wire_arq, sequence), m->sequence);
	xts_put32(p + offsetof(struct xts_wire_arq, first), m->first);
	xts_put32(p + offsetof(struct xts_wire_arq, arrived), m->arrived);
	xts_put64(p + offsetof(struct xts_wire_arq, selective_low), m->selective_low);
	xts_put64(p + offsetof(struct xts_wire_arq, selective_high), m->selective_high);
	xts_put32(p + offsetof(struct xts_wire_arq, transmission), m->transmission);
	xts_put32(p + offsetof(struct xts_wire_arq, heard), m->heard);
	xts_put32(p + offsetof(struct xts_wire_arq, checksum), m->checksum);
	xts_put16(p + offsetof(struct xts_wire_arq, held_us), m->held_us);
	xts_put16(p + offsetof(struct xts_wire_arq, duplicates), m->duplicates);
	xts_put16(p + offsetof(struct xts_wire_arq, parts), m->parts);
}

/* XTS_REPLY_BIND_ACK: answer to bind. id: XTS socket. */
struct xts_bind_ack {
	uint32_t proxy_id;         /* the proxy's identifier of this socket (id) */
	uint32_t token;            /* repeated in the reply */
	struct xts_endpoint local; /* local address of the socket */
};

static inline int xts_bind_ack_decode(struct xts_bind_ack *m, const void *frame, size_t frame_bytes)
{
	const uint8_t *p = (const uint8_t *)frame;

	if (frame_bytes < XTS_BIND_ACK_BYTES)
		return -EBADMSG;
	m->proxy_id = xts_get32(p + offsetof(struct xts_wire_bind_ack, proxy_id));
	m->token = xts_get32(p + offsetof(struct xts_wire_bind_ack, token));
	xts_endpoint_get(&m->local, p + offsetof(struct xts_wire_bind_ack, local));
	if (m->local.ip_version != 0 && m->local.ip_version != 4 && m->local.ip_version != 6)
		return -EBADMSG;
	return 0;
}

static inline void xts_bind_ack_encode(void *frame, const struct xts_bind_ack *m)
{
	uint8_t *p = (uint8_t *)frame;

	xts_put32(p + offsetof(struct xts_wire_bind_ack, proxy_id), m->proxy_id);
	xts_put32(p + offsetof(struct xts_wire_bind_ack, token), m->token);
	xts_endpoint_put(p + offsetof(struct xts_wire_bind_ack, local), &m->local);
}

/*
 * XTS_CMD_SETSOCKOPT: setsockopt(2), against the proxy's allow-list. id: the proxy's identifier, or 0: create the
 * socket.
 */
struct xts_setsockopt {
	uint32_t xts_socket; /* the host's identifier of this socket (id) */
	uint32_t token;      /* repeated in the reply */
	uint32_t domain;     /* 4 or 6: the family of the socket, should the proxy have to create it */
	int32_t level;       /* as in setsockopt(2) */
	int32_t option;      /* as in setsockopt(2) */
	uint32_t length;     /* bytes of payload (bytes) */
};

static inline int xts_setsockopt_decode(struct xts_setsockopt *m, const void *frame, size_t frame_bytes)
{
	const uint8_t *p = (const uint8_t *)frame;

	if (frame_bytes < XTS_SETSOCKOPT_BYTES)
		return -EBADMSG;
	m->xts_socket = xts_get32(p + offsetof(struct xts_wire_setsockopt, xts_socket));
	m->token = xts_get32(p + offsetof(struct xts_wire_setsockopt, token));
	m->domain = xts_get32(p + offsetof(struct xts_wire_setsockopt, domain));
	m->level = (int32_t)xts_get32(p + offsetof(struct xts_wire_setsockopt, level));
	m->option = (int32_t)xts_get32(p + offsetof(struct xts_wire_setsockopt, option));
	m->length = xts_get32(p + offsetof(struct xts_wire_setsockopt, length));
	if (m->domain != 0 && m->domain != 4 && m->domain != 6)
		return -EBADMSG;
	if (m->length > 61440u)
		return -EBADMSG;
	if (m->length > frame_bytes - XTS_SETSOCKOPT_BYTES)
		return -EBADMSG;
	if (m->length < frame_bytes - XTS_SETSOCKOPT_BYTES && frame_bytes > XTS_ETH_MIN_BYTES)
		return -EBADMSG;
	return 0;
}

static inline void xts_setsockopt_encode(void *frame, const struct xts_setsockopt *m)
{
	uint8_t *p = (uint8_t *)frame;

	xts_put32(p + offsetof(struct xts_wire_setsockopt, xts_socket), m->xts_socket);
	xts_put32(p + offsetof(struct xts_wire_setsockopt, token), m->token);
	xts_put32(p + offsetof(struct xts_wire_setsockopt, domain), m->domain);
	xts_put32(p + offsetof(struct xts_wire_setsockopt, level), (uint32_t)m->level);
	xts_put32(p + offsetof(struct xts_wire_setsockopt, option), (uint32_t)m->option);
	xts_put32(p + offsetof(struct xts_wire_setsockopt, length), m->length);
}

/*
 * XTS_CMD_GETSOCKOPT: getsockopt(2); the payload is the value passed in, for options that read it. id: the proxy's
 * identifier, or 0: create the socket.
 */
struct xts_getsockopt {
	uint32_t xts_socket; /* the host's identifier of this socket (id) */
	uint32_t token;      /* repeated in the reply */
	uint32_t domain;     /* 4 or 6: the family of the socket, should the proxy have to create it */
	int32_t level;       /* as in getsockopt(2) */
	int32_t option;      /* as in getsockopt(2) */
	uint32_t length;     /* bytes of payload (bytes) */
};

static inline int xts_getsockopt_decode(struct xts_getsockopt *m, const void *frame, size_t frame_bytes)
{
	const uint8_t *p = (const uint8_t *)frame;

	if (frame_bytes < XTS_GETSOCKOPT_BYTES)
		return -EBADMSG;
	m->xts_socket = xts_get32(p + offsetof(struct xts_wire_getsockopt, xts_socket));
	m->token = xts_get32(p + offsetof(struct xts_wire_getsockopt, token));
	m->domain = xts_get32(p + offsetof(struct xts_wire_getsockopt, domain));
	m->level = (int32_t)xts_get32(p + offsetof(struct xts_wire_getsockopt, level));
	m->option = (int32_t)xts_get32(p + offsetof(struct xts_wire_getsockopt, option));
	m->length = xts_get32(p + offsetof(struct xts_wire_getsockopt, length));
	if (m->domain != 0 && m->domain != 4 && m->domain != 6)
		return -EBADMSG;
	if (m->length > 61440u)
		return -EBADMSG;
	if (m->length > frame_bytes - XTS_GETSOCKOPT_BYTES)
		return -EBADMSG;
	if (m->length < frame_bytes - XTS_GETSOCKOPT_BYTES && frame_bytes > XTS_ETH_MIN_BYTES)
		return -EBADMSG;
	return 0;
}

static inline void xts_getsockopt_encode(void *frame, const struct xts_getsockopt *m)
{
	uint8_t *p = (uint8_t *)frame;

	xts_put32(p + offsetof(struct xts_wire_getsockopt, xts_socket), m->xts_socket);
	xts_put32(p + offsetof(struct xts_wire_getsockopt, token), m->token);
	xts_put32(p + offsetof(struct xts_wire_getsockopt, domain), m->domain);
	xts_put32(p + offsetof(struct xts_wire_getsockopt, level), (uint32_t)m->level);
	xts_put32(p + offsetof(struct xts_wire_getsockopt, option), (uint32_t)m->option);
	xts_put32(p + offsetof(struct xts_wire_getsockopt, length), m->length);
}

/* XTS_REPLY_SOCKOPT_ACK: answer to either; the payload is the option's value. id: XTS socket. */
struct xts_sockopt_ack {
	uint32_t proxy_id; /* the proxy's identifier of this socket (id) */
	uint32_t token;    /* repeated in the reply */
	uint32_t length;   /* bytes of payload (bytes) */
};

static inline int xts_sockopt_ack_decode(struct xts_sockopt_ack *m, const void *frame, size_t frame_bytes)
{
	const uint8_t *p = (const uint8_t *)frame;

	if (frame_bytes < XTS_SOCKOPT_ACK_BYTES)
		return -EBADMSG;
	m->proxy_id = xts_get32(p + offsetof(struct xts_wire_sockopt_ack, proxy_id));
	m->token = xts_get32(p + offsetof(struct xts_wire_sockopt_ack, token));
	m->length = xts_get32(p + offsetof(struct xts_wire_sockopt_ack, length));
	if (m->length > 61440u)
		return -EBADMSG;
	if (m->length > frame_bytes - XTS_SOCKOPT_ACK_BYTES)
		return -EBADMSG;
	if (m->length < frame_bytes - XTS_SOCKOPT_ACK_BYTES && frame_bytes > XTS_ETH_MIN_BYTES)
		return -EBADMSG;
	return 0;
}

static inline void xts_sockopt_ack_encode(void *frame, const struct xts_sockopt_ack *m)
{
	uint8_t *p = (uint8_t *)frame;

	xts_put32(p + offsetof(struct xts_wire_sockopt_ack, proxy_id), m->proxy_id);
	xts_put32(p + offsetof(struct xts_wire_sockopt_ack, token), m->token);
	xts_put32(p + offsetof(struct xts_wire_sockopt_ack, length), m->length);
}

/*
 * XTS_CMD_IOCTL: ioctl(2), and what is done with ULPs (xts_messages/wire/ulps.py). id: the proxy's identifier, or 0:
 * create the socket.
 */
struct xts_ioctl {
	uint32_t xts_socket; /* the host's identifier of this socket (id) */
	uint32_t token;      /* repeated in the reply */
	uint32_t domain;     /* 4 or 6: the family of the socket, should the proxy have to create it */
	uint32_t request;    /* as in ioctl(2) */
	uint32_t length;     /* bytes of payload (bytes) */
};

static inline int xts_ioctl_decode(struct xts_ioctl *m, const void *frame, size_t frame_bytes)
{
	const uint8_t *p = (const uint8_t *)frame;

	if (frame_bytes < XTS_IOCTL_BYTES)
		return -EBADMSG;
	m->xts_socket = xts_get32(p + offsetof(struct xts_wire_ioctl, xts_socket));
	m->token = xts_get32(p + offsetof(struct xts_wire_ioctl, token));
	m->domain = xts_get32(p + offsetof(struct xts_wire_ioctl, domain));
	m->request = xts_get32(p + offsetof(struct xts_wire_ioctl, request));
	m->length = xts_get32(p + offsetof(struct xts_wire_ioctl, length));
	if (m->domain != 0 && m->domain != 4 && m->domain != 6)
		return -EBADMSG;
	if (m->length > 61440u)
		return -EBADMSG;
	if (m->length > frame_bytes - XTS_IOCTL_BYTES)
		return -EBADMSG;
	if (m->length < frame_bytes - XTS_IOCTL_BYTES && frame_bytes > XTS_ETH_MIN_BYTES)
		return -EBADMSG;
	return 0;
}

static inline void xts_ioctl_encode(void *frame, const struct xts_ioctl *m)
{
	uint8_t *p = (uint8_t *)frame;

	xts_put32(p + offsetof(struct xts_wire_ioctl, xts_socket), m->xts_socket);
	xts_put32(p + offsetof(struct xts_wire_ioctl, token), m->token);
	xts_put32(p + offsetof(struct xts_wire_ioctl, domain), m->domain);
	xts_put32(p + offsetof(struct xts_wire_ioctl, request), m->request);
	xts_put32(p + offsetof(struct xts_wire_ioctl, length), m->length);
}

/* XTS_REPLY_IOCTL_ACK: answer to ioctl; the payload is its result. id: XTS socket. */
struct xts_ioctl_ack {
	uint32_t proxy_id; /* the proxy's identifier of this socket (id) */
	uint32_t token;    /* repeated in the reply */
	uint32_t length;   /* bytes of payload (bytes) */
};

static inline int xts_ioctl_ack_decode(struct xts_ioctl_ack *m, const void *frame, size_t frame_bytes)
{
	const uint8_t *p = (const uint8_t *)frame;

	if (frame_bytes < XTS_IOCTL_ACK_BYTES)
		return -EBADMSG;
	m->proxy_id = xts_get32(p + offsetof(struct xts_wire_ioctl_ack, proxy_id));
	m->token = xts_get32(p + offsetof(struct xts_wire_ioctl_ack, token));
	m->length = xts_get32(p + offsetof(struct xts_wire_ioctl_ack, length));
	if (m->length > 61440u)
		return -EBADMSG;
	if (m->length > frame_bytes - XTS_IOCTL_ACK_BYTES)
		return -EBADMSG;
	if (m->length < frame_bytes - XTS_IOCTL_ACK_BYTES && frame_bytes > XTS_ETH_MIN_BYTES)
		return -EBADMSG;
	return 0;
}

static inline void xts_ioctl_ack_encode(void *frame, const struct xts_ioctl_ack *m)
{
	uint8_t *p = (uint8_t *)frame;

	xts_put32(p + offsetof(struct xts_wire_ioctl_ack, proxy_id), m->proxy_id);
	xts_put32(p + offsetof(struct xts_wire_ioctl_ack, token), m->token);
	xts_put32(p + offsetof(struct xts_wire_ioctl_ack, length), m->length);
}

/*
 * XTS_CMD_SHARE: share a listener, or a bound socket, between processes: the first names it by a key, the others join
 * (id 0). id: the proxy's identifier of the socket, or 0: join the one of that key.
 */
struct xts_share {
	uint32_t xts_socket; /* the host's identifier of this socket (id) */
	uint32_t token;      /* repeated in the reply */
	uint64_t key;        /* random number that stands for the socket in whatever process knows it; never 0 */
	uint32_t keep_ms;    /* how long it outlives the process that gave this, if that ends without closing it and
	                      * nobody else has it (ms) */
};

static inline int xts_share_decode(struct xts_share *m, const void *frame, size_t frame_bytes)
{
	const uint8_t *p = (const uint8_t *)frame;

	if (frame_bytes < XTS_SHARE_BYTES)
		return -EBADMSG;
	m->xts_socket = xts_get32(p + offsetof(struct xts_wire_share, xts_socket));
	m->token = xts_get32(p + offsetof(struct xts_wire_share, token));
	m->key = xts_get64(p + offsetof(struct xts_wire_share, key));
	m->keep_ms = xts_get32(p + offsetof(struct xts_wire_share, keep_ms));
	if (m->keep_ms > 60000u)
		return -EBADMSG;
	return 0;
}

static inline void xts_share_encode(void *frame, const struct xts_share *m)
{
	uint8_t *p = (uint8_t *)frame;

	xts_put32(p + offsetof(struct xts_wire_share, xts_socket), m->xts_socket);
	xts_put32(p + offsetof(struct xts_wire_share, token), m->token);
	xts_put64(p + offsetof(struct xts_wire_share, key), m->key);
	xts_put32(p + offsetof(struct xts_wire_share, keep_ms), m->keep_ms);
}

/* XTS_REPLY_SHARE_ACK: shared, or error says why not (ENOENT: nothing is shared under that key). id: XTS socket. */
struct xts_share_ack {
	uint32_t proxy_id;         /* the proxy's identifier of this socket (id) */
	uint32_t token;            /* repeated in the reply */
	struct xts_endpoint local; /* local address of the socket */
};

static inline int xts_share_ack_decode(struct xts_share_ack *m, const void *frame, size_t frame_bytes)
{
	const uint8_t *p = (const uint8_t *)frame;

	if (frame_bytes < XTS_SHARE_ACK_BYTES)
		return -EBADMSG;
	m->proxy_id = xts_get32(p + offsetof(struct xts_wire_share_ack, proxy_id));
	m->token = xts_get32(p + offsetof(struct xts_wire_share_ack, token));
	xts_endpoint_get(&m->local, p + offsetof(struct xts_wire_share_ack, local));
	if (m->local.ip_version != 0 && m->local.ip_version != 4 && m->local.ip_version != 6)
		return -EBADMSG;
	return 0;
}

static inline void xts_share_ack_encode(void *frame, const struct xts_share_ack *m)
{
	uint8_t *p = (uint8_t *)frame;

	xts_put32(p + offsetof(struct xts_wire_share_ack, proxy_id), m->proxy_id);
	xts_put32(p + offsetof(struct xts_wire_share_ack, token), m->token);
	xts_endpoint_put(p + offsetof(struct xts_wire_share_ack, local), &m->local);
}

/* XTS_CMD_PARK: this process gives the connection up; whoever knows the key may claim it. id: proxy's identifier. */
struct xts_park {
	uint32_t xts_socket; /* the host's identifier of this socket (id) */
	uint32_t token;      /* repeated in the reply */
	uint64_t key;        /* random number that stands for the socket in whatever process knows it; never 0 */
	uint32_t keep_ms;    /* how long it outlives the process that gave this, if that ends without closing it and
	                      * nobody else has it (ms) */
};

static inline int xts_park_decode(struct xts_park *m, const void *frame, size_t frame_bytes)
{
	const uint8_t *p = (const uint8_t *)frame;

	if (frame_bytes < XTS_PARK_BYTES)
		return -EBADMSG;
	m->xts_socket = xts_get32(p + offsetof(struct xts_wire_park, xts_socket));
	m->token = xts_get32(p + offsetof(struct xts_wire_park, token));
	m->key = xts_get64(p + offsetof(struct xts_wire_park, key));
	m->keep_ms = xts_get32(p + offsetof(struct xts_wire_park, keep_ms));
	if (m->keep_ms > 60000u)
		return -EBADMSG;
	return 0;
}

static inline void xts_park_encode(void *frame, const struct xts_park *m)
{
	uint8_t *p = (uint8_t *)frame;

	xts_put32(p + offsetof(struct xts_wire_park, xts_socket), m->xts_socket);
	xts_put32(p + offsetof(struct xts_wire_park, token), m->token);
	xts_put64(p + offsetof(struct xts_wire_park, key), m->key);
	xts_put32(p + offsetof(struct xts_wire_park, keep_ms), m->keep_ms);
}

/*
 * XTS_REPLY_PARK_ACK: parked: nothing more comes for it and both identifiers are free; or error says why not. id: XTS
 * socket.
 */
struct xts_park_ack {
	uint32_t token; /* repeated in the reply */
};

static inline int xts_park_ack_decode(struct xts_park_ack *m, const void *frame, size_t frame_bytes)
{
	const uint8_t *p = (const uint8_t *)frame;

	if (frame_bytes < XTS_PARK_ACK_BYTES)
		return -EBADMSG;
	m->token = xts_get32(p + offsetof(struct xts_wire_park_ack, token));
	return 0;
}

static inline void xts_park_ack_encode(void *frame, const struct xts_park_ack *m)
{
	uint8_t *p = (uint8_t *)frame;

	xts_put32(p + offsetof(struct xts_wire_park_ack, token), m->token);
}

/* XTS_CMD_CLAIM: take over the connection parked under the key. id: zero. */
struct xts_claim {
	uint32_t xts_socket;   /* the host's identifier of this socket (id) */
	uint32_t token;        /* repeated in the reply */
	uint64_t key;          /* random number that stands for the socket in whatever process knows it; never 0 */
	uint32_t post_credits; /* post credits granted with this message (bytes) */
	uint32_t unread;       /* bytes received that came with the claim and are still unread (bytes) */
};

static inline int xts_claim_decode(struct xts_claim *m, const void *frame, size_t frame_bytes)
{
	const uint8_t *p = (const uint8_t *)frame;

	if (frame_bytes < XTS_CLAIM_BYTES)
		return -EBADMSG;
	m->xts_socket = xts_get32(p + offsetof(struct xts_wire_claim, xts_socket));
	m->token = xts_get32(p + offsetof(struct xts_wire_claim, token));
	m->key = xts_get64(p + offsetof(struct xts_wire_claim, key));
	m->post_credits = xts_get32(p + offsetof(struct xts_wire_claim, post_credits));
	m->unread = xts_get32(p + offsetof(struct xts_wire_claim, unread));
	if (m->post_credits > 1073741824u)
		return -EBADMSG;
	if (m->unread > 1073741824u)
		return -EBADMSG;
	return 0;
}

static inline void xts_claim_encode(void *frame, const struct xts_claim *m)
{
	uint8_t *p = (uint8_t *)frame;

	xts_put32(p + offsetof(struct xts_wire_claim, xts_socket), m->xts_socket);
	xts_put32(p + offsetof(struct xts_wire_claim, token), m->token);
	xts_put64(p + offsetof(struct xts_wire_claim, key), m->key);
	xts_put32(p + offsetof(struct xts_wire_claim, post_credits), m->post_credits);
	xts_put32(p + offsetof(struct xts_wire_claim, unread), m->unread);
}

/*
 * XTS_REPLY_CLAIM_ACK: the connection is this process's, or error says why not (ENOENT: nothing parked under that key).
 * id: XTS socket.
 */
struct xts_claim_ack {
	uint32_t proxy_id;         /* the proxy's identifier of this socket (id) */
	uint32_t token;            /* repeated in the reply */
	uint32_t post_credits;     /* post credits granted with this message (bytes) */
	struct xts_endpoint local; /* local address of the socket */
	struct xts_endpoint peer;  /* address of the peer */
};

static inline int xts_claim_ack_decode(struct xts_claim_ack *m, const void *frame, size_t frame_bytes)
{
	const uint8_t *p = (const uint8_t *)frame;

	if (frame_bytes < XTS_CLAIM_ACK_BYTES)
		return -EBADMSG;
	m->proxy_id = xts_get32(p + offsetof(struct xts_wire_claim_ack, proxy_id));
	m->token = xts_get32(p + offsetof(struct xts_wire_claim_ack, token));
	m->post_credits = xts_get32(p + offsetof(struct xts_wire_claim_ack, post_credits));
	xts_endpoint_get(&m->local, p + offsetof(struct xts_wire_claim_ack, local));
	xts_endpoint_get(&m->peer, p + offsetof(struct xts_wire_claim_ack, peer));
	if (m->post_credits > 1073741824u)
		return -EBADMSG;
	if (m->local.ip_version != 0 && m->local.ip_version != 4 && m->local.ip_version != 6)
		return -EBADMSG;
	if (m->peer.ip_version != 0 && m->peer.ip_version != 4 && m->peer.ip_version != 6)
		return -EBADMSG;
	return 0;
}

static inline void xts_claim_ack_encode(void *frame, const struct xts_claim_ack *m)
{
	uint8_t *p = (uint8_t *)frame;

	xts_put32(p + offsetof(struct xts_wire_claim_ack, proxy_id), m->proxy_id);
	xts_put32(p + offsetof(struct xts_wire_claim_ack, token), m->token);
	xts_put32(p + offsetof(struct xts_wire_claim_ack, post_credits), m->post_credits);
	xts_endpoint_put(p + offsetof(struct xts_wire_claim_ack, local), &m->local);
	xts_endpoint_put(p + offsetof(struct xts_wire_claim_ack, peer), &m->peer);
}

/*
 * XTS_CMD_SEND_PDU: a PDU for the pushed protocols, or a part of one (MORE: it goes on); takes its payload and
 * XTS_PDU_CREDITS. id: proxy's identifier.
 */
struct xts_send_pdu {
	uint32_t post_credits;  /* post credits granted with this message (bytes) */
	uint32_t length;        /* bytes of payload (bytes) */
	uint32_t record_bytes;  /* length of the whole PDU, of all its messages; 0: not known here (bytes) */
	uint16_t control_type;  /* what the control data is about: a ULP, 0 for none, or an event (XTS_CONTROL_*) */
	uint16_t control_bytes; /* length of the control data (bytes) */
	uint64_t control_high;  /* control data: its first eight bytes */
	uint64_t control_low;   /* and the others; zero beyond control_bytes */
};

static inline int xts_send_pdu_decode(struct xts_send_pdu *m, const void *frame, size_t frame_bytes)
{
	const uint8_t *p = (const uint8_t *)frame;

	if (frame_bytes < XTS_SEND_PDU_BYTES)
		return -EBADMSG;
	m->post_credits = xts_get32(p + offsetof(struct xts_wire_send_pdu, post_credits));
	m->length = xts_get32(p + offsetof(struct xts_wire_send_pdu, length));
	m->record_bytes = xts_get32(p + offsetof(struct xts_wire_send_pdu, record_bytes));
	m->control_type = xts_get16(p + offsetof(struct xts_wire_send_pdu, control_type));
	m->control_bytes = xts_get16(p + offsetof(struct xts_wire_send_pdu, control_bytes));
	m->control_high = xts_get64(p + offsetof(struct xts_wire_send_pdu, control_high));
	m->control_low = xts_get64(p + offsetof(struct xts_wire_send_pdu, control_low));
	if (m->post_credits > 1073741824u)
		return -EBADMSG;
	if (m->length > 61440u)
		return -EBADMSG;
	if (m->control_bytes > 16u)
		return -EBADMSG;
	if (m->length > frame_bytes - XTS_SEND_PDU_BYTES)
		return -EBADMSG;
	if (m->length < frame_bytes - XTS_SEND_PDU_BYTES && frame_bytes > XTS_ETH_MIN_BYTES)
		return -EBADMSG;
	return 0;
}

static inline void xts_send_pdu_encode(void *frame, const struct xts_send_pdu *m)
{
	uint8_t *p = (uint8_t *)frame;

	xts_put32(p + offsetof(struct xts_wire_send_pdu, post_credits), m->post_credits);
	xts_put32(p + offsetof(struct xts_wire_send_pdu, length), m->length);
	xts_put32(p + offsetof(struct xts_wire_send_pdu, record_bytes), m->record_bytes);
	xts_put16(p + offsetof(struct xts_wire_send_pdu, control_type), m->control_type);
	xts_put16(p + offsetof(struct xts_wire_send_pdu, control_bytes), m->control_bytes);
	xts_put64(p + offsetof(struct xts_wire_send_pdu, control_high), m->control_high);
	xts_put64(p + offsetof(struct xts_wire_send_pdu, control_low), m->control_low);
}

/*
 * XTS_REPLY_RECV_PDU: a PDU from the pushed protocols, or a part of one (MORE: it goes on); or an event, which takes no
 * credits. id: XTS socket.
 */
struct xts_recv_pdu {
	uint32_t post_credits;  /* post credits granted with this message (bytes) */
	uint32_t length;        /* bytes of payload (bytes) */
	uint32_t record_bytes;  /* length of the whole PDU, of all its messages; 0: not known here (bytes) */
	uint16_t control_type;  /* what the control data is about: a ULP, 0 for none, or an event (XTS_CONTROL_*) */
	uint16_t control_bytes; /* length of the control data (bytes) */
	uint64_t control_high;  /* control data: its first eight bytes */
	uint64_t control_low;   /* and the others; zero beyond control_bytes */
};

static inline int xts_recv_pdu_decode(struct xts_recv_pdu *m, const void *frame, size_t frame_bytes)
{
	const uint8_t *p = (const uint8_t *)frame;

	if (frame_bytes < XTS_RECV_PDU_BYTES)
		return -EBADMSG;
	m->post_credits = xts_get32(p + offsetof(struct xts_wire_recv_pdu, post_credits));
	m->length = xts_get32(p + offsetof(struct xts_wire_recv_pdu, length));
	m->record_bytes = xts_get32(p + offsetof(struct xts_wire_recv_pdu, record_bytes));
	m->control_type = xts_get16(p + offsetof(struct xts_wire_recv_pdu, control_type));
	m->control_bytes = xts_get16(p + offsetof(struct xts_wire_recv_pdu, control_bytes));
	m->control_high = xts_get64(p + offsetof(struct xts_wire_recv_pdu, control_high));
	m->control_low = xts_get64(p + offsetof(struct xts_wire_recv_pdu, control_low));
	if (m->post_credits > 1073741824u)
		return -EBADMSG;
	if (m->length > 61440u)
		return -EBADMSG;
	if (m->control_bytes > 16u)
		return -EBADMSG;
	if (m->length > frame_bytes - XTS_RECV_PDU_BYTES)
		return -EBADMSG;
	if (m->length < frame_bytes - XTS_RECV_PDU_BYTES && frame_bytes > XTS_ETH_MIN_BYTES)
		return -EBADMSG;
	return 0;
}

static inline void xts_recv_pdu_encode(void *frame, const struct xts_recv_pdu *m)
{
	uint8_t *p = (uint8_t *)frame;

	xts_put32(p + offsetof(struct xts_wire_recv_pdu, post_credits), m->post_credits);
	xts_put32(p + offsetof(struct xts_wire_recv_pdu, length), m->length);
	xts_put32(p + offsetof(struct xts_wire_recv_pdu, record_bytes), m->record_bytes);
	xts_put16(p + offsetof(struct xts_wire_recv_pdu, control_type), m->control_type);
	xts_put16(p + offsetof(struct xts_wire_recv_pdu, control_bytes), m->control_bytes);
	xts_put64(p + offsetof(struct xts_wire_recv_pdu, control_high), m->control_high);
	xts_put64(p + offsetof(struct xts_wire_recv_pdu, control_low), m->control_low);
}

/*
 * XTS_CMD_GIVE_BACK: received bytes, in order, that the application had not read when it pushed a protocol that is to
 * read them. id: proxy's identifier.
 */
struct xts_give_back {
	uint32_t length; /* bytes of payload (bytes) */
};

static inline int xts_give_back_decode(struct xts_give_back *m, const void *frame, size_t frame_bytes)
{
	const uint8_t *p = (const uint8_t *)frame;

	if (frame_bytes < XTS_GIVE_BACK_BYTES)
		return -EBADMSG;
	m->length = xts_get32(p + offsetof(struct xts_wire_give_back, length));
	if (m->length > 61440u)
		return -EBADMSG;
	if (m->length > frame_bytes - XTS_GIVE_BACK_BYTES)
		return -EBADMSG;
	if (m->length < frame_bytes - XTS_GIVE_BACK_BYTES && frame_bytes > XTS_ETH_MIN_BYTES)
		return -EBADMSG;
	return 0;
}

static inline void xts_give_back_encode(void *frame, const struct xts_give_back *m)
{
	uint8_t *p = (uint8_t *)frame;

	xts_put32(p + offsetof(struct xts_wire_give_back, length), m->length);
}

/*
 * XTS_RELAY_CARRIED: a frame of one of the channels behind a relay; the payload is the frame, from its Ethernet header
 * on. id: number of the channel.
 */
struct xts_carried {
	uint32_t length; /* bytes of payload (bytes) */
};

static inline int xts_carried_decode(struct xts_carried *m, const void *frame, size_t frame_bytes)
{
	const uint8_t *p = (const uint8_t *)frame;

	if (frame_bytes < XTS_CARRIED_BYTES)
		return -EBADMSG;
	m->length = xts_get32(p + offsetof(struct xts_wire_carried, length));
	if (m->length > 61440u)
		return -EBADMSG;
	if (m->length > frame_bytes - XTS_CARRIED_BYTES)
		return -EBADMSG;
	if (m->length < frame_bytes - XTS_CARRIED_BYTES && frame_bytes > XTS_ETH_MIN_BYTES)
		return -EBADMSG;
	return 0;
}

static inline void xts_carried_encode(void *frame, const struct xts_carried *m)
{
	uint8_t *p = (uint8_t *)frame;

	xts_put32(p + offsetof(struct xts_wire_carried, length), m->length);
}

/* XTS_CMD_TAKE: take over the connection of this key from whatever process has it. id: zero. */
struct xts_take {
	uint32_t xts_socket;   /* the host's identifier of this socket (id) */
	uint32_t token;        /* repeated in the reply */
	uint64_t key;          /* random number that stands for the socket in whatever process knows it; never 0 */
	uint32_t post_credits; /* post credits granted with this message (bytes) */
	uint32_t purpose;      /* what for: 0 if nobody has it, 1 to wait for events, 2 to receive, 3 any other use */
};

static inline int xts_take_decode(struct xts_take *m, const void *frame, size_t frame_bytes)
{
	const uint8_t *p = (const uint8_t *)frame;

	if (frame_bytes < XTS_TAKE_BYTES)
		return -EBADMSG;
	m->xts_socket = xts_get32(p + offsetof(struct xts_wire_take, xts_socket));
	m->token = xts_get32(p + offsetof(struct xts_wire_take, token));
	m->key = xts_get64(p + offsetof(struct xts_wire_take, key));
	m->post_credits = xts_get32(p + offsetof(struct xts_wire_take, post_credits));
	m->purpose = xts_get32(p + offsetof(struct xts_wire_take, purpose));
	if (m->post_credits > 1073741824u)
		return -EBADMSG;
	if (m->purpose != 0 && m->purpose != 1 && m->purpose != 2 && m->purpose != 3)
		return -EBADMSG;
	return 0;
}

static inline void xts_take_encode(void *frame, const struct xts_take *m)
{
	uint8_t *p = (uint8_t *)frame;

	xts_put32(p + offsetof(struct xts_wire_take, xts_socket), m->xts_socket);
	xts_put32(p + offsetof(struct xts_wire_take, token), m->token);
	xts_put64(p + offsetof(struct xts_wire_take, key), m->key);
	xts_put32(p + offsetof(struct xts_wire_take, post_credits), m->post_credits);
	xts_put32(p + offsetof(struct xts_wire_take, purpose), m->purpose);
}

/*
 * XTS_REPLY_TAKE_ACK: the connection is this process's, or error says why not yet (EBUSY, EAGAIN) or not at all
 * (ENOENT). id: XTS socket.
 */
struct xts_take_ack {
	uint32_t proxy_id;         /* the proxy's identifier of this socket (id) */
	uint32_t token;            /* repeated in the reply */
	uint32_t post_credits;     /* post credits granted with this message (bytes) */
	struct xts_endpoint local; /* local address of the socket */
	struct xts_endpoint peer;  /* address of the peer */
	uint32_t died;             /* 1: its last process has ended without parking it */
	uint64_t delivered_bytes;  /* that this process had been sent, if it has died (bytes) */
	uint64_t accepted_bytes;   /* that had come from this process, if it has died (bytes) */
};

static inline int xts_take_ack_decode(struct xts_take_ack *m, const void *frame, size_t frame_bytes)
{
	const uint8_t *p = (const uint8_t *)frame;

	if (frame_bytes < XTS_TAKE_ACK_BYTES)
		return -EBADMSG;
	m->proxy_id = xts_get32(p + offsetof(struct xts_wire_take_ack, proxy_id));
	m->token = xts_get32(p + offsetof(struct xts_wire_take_ack, token));
	m->post_credits = xts_get32(p + offsetof(struct xts_wire_take_ack, post_credits));
	xts_endpoint_get(&m->local, p + offsetof(struct xts_wire_take_ack, local));
	xts_endpoint_get(&m->peer, p + offsetof(struct xts_wire_take_ack, peer));
	m->died = xts_get32(p + offsetof(struct xts_wire_take_ack, died));
	m->delivered_bytes = xts_get64(p + offsetof(struct xts_wire_take_ack, delivered_bytes));
	m->accepted_bytes = xts_get64(p + offsetof(struct xts_wire_take_ack, accepted_bytes));
	if (m->post_credits > 1073741824u)
		return -EBADMSG;
	if (m->local.ip_version != 0 && m->local.ip_version != 4 && m->local.ip_version != 6)
		return -EBADMSG;
	if (m->peer.ip_version != 0 && m->peer.ip_version != 4 && m->peer.ip_version != 6)
		return -EBADMSG;
	if (m->died != 0 && m->died != 1)
		return -EBADMSG;
	return 0;
}

static inline void xts_take_ack_encode(void *frame, const struct xts_take_ack *m)
{
	uint8_t *p = (uint8_t *)frame;

	xts_put32(p + offsetof(struct xts_wire_take_ack, proxy_id), m->proxy_id);
	xts_put32(p + offsetof(struct xts_wire_take_ack, token), m->token);
	xts_put32(p + offsetof(struct xts_wire_take_ack, post_credits), m->post_credits);
	xts_endpoint_put(p + offsetof(struct xts_wire_take_ack, local), &m->local);
	xts_endpoint_put(p + offsetof(struct xts_wire_take_ack, peer), &m->peer);
	xts_put32(p + offsetof(struct xts_wire_take_ack, died), m->died);
	xts_put64(p + offsetof(struct xts_wire_take_ack, delivered_bytes), m->delivered_bytes);
	xts_put64(p + offsetof(struct xts_wire_take_ack, accepted_bytes), m->accepted_bytes);
}

/*
 * XTS_REPLY_YIELD: another process asks for the connection: PARK gives it up, SHARE says that it is still needed. id:
 * XTS socket.
 */
struct xts_yield {
	uint32_t purpose; /* what for: 0 if nobody has it, 1 to wait for events, 2 to receive, 3 any other use */
};

static inline int xts_yield_decode(struct xts_yield *m, const void *frame, size_t frame_bytes)
{
	const uint8_t *p = (const uint8_t *)frame;

	if (frame_bytes < XTS_YIELD_BYTES)
		return -EBADMSG;
	m->purpose = xts_get32(p + offsetof(struct xts_wire_yield, purpose));
	if (m->purpose != 0 && m->purpose != 1 && m->purpose != 2 && m->purpose != 3)
		return -EBADMSG;
	return 0;
}

static inline void xts_yield_encode(void *frame, const struct xts_yield *m)
{
	uint8_t *p = (uint8_t *)frame;

	xts_put32(p + offsetof(struct xts_wire_yield, purpose), m->purpose);
}

/*
 * XTS_REPLY_GATHERED: with CATCH_UP: several messages, each with its length (16 bits) in front and from its Ethernet
 * header on. id: zero.
 */
struct xts_gathered {
	uint32_t length; /* bytes of payload (bytes) */
};

static inline int xts_gathered_decode(struct xts_gathered *m, const void *frame, size_t frame_bytes)
{
	const uint8_t *p = (const uint8_t *)frame;

	if (frame_bytes < XTS_GATHERED_BYTES)
		return -EBADMSG;
	m->length = xts_get32(p + offsetof(struct xts_wire_gathered, length));
	if (m->length > 61440u)
		return -EBADMSG;
	if (m->length > frame_bytes - XTS_GATHERED_BYTES)
		return -EBADMSG;
	if (m->length < frame_bytes - XTS_GATHERED_BYTES && frame_bytes > XTS_ETH_MIN_BYTES)
		return -EBADMSG;
	return 0;
}

static inline void xts_gathered_encode(void *frame, const struct xts_gathered *m)
{
	uint8_t *p = (uint8_t *)frame;

	xts_put32(p + offsetof(struct xts_wire_gathered, length), m->length);
}

/*
 * XTS_CMD_RETURN: what was received of a parked connection and is unread, in order (MORE: the PDU goes on); at last the
 * end. id: zero.
 */
struct xts_return {
	uint64_t key;           /* random number that stands for the socket in whatever process knows it; never 0 */
	uint32_t length;        /* bytes of payload (bytes) */
	uint32_t kind;          /* 0: the end, 1: byte stream, 2: PDU */
	uint32_t record_bytes;  /* length of the whole PDU, of all its messages; 0: not known here (bytes) */
	uint16_t control_type;  /* what the control data is about: a ULP, 0 for none, or an event (XTS_CONTROL_*) */
	uint16_t control_bytes; /* length of the control data (bytes) */
	uint64_t control_high;  /* control data: its first eight bytes */
	uint64_t control_low;   /* and the others; zero beyond control_bytes */
};

static inline int xts_return_decode(struct xts_return *m, const void *frame, size_t frame_bytes)
{
	const uint8_t *p = (const uint8_t *)frame;

	if (frame_bytes < XTS_RETURN_BYTES)
		return -EBADMSG;
	m->key = xts_get64(p + offsetof(struct xts_wire_return, key));
	m->length = xts_get32(p + offsetof(struct xts_wire_return, length));
	m->kind = xts_get32(p + offsetof(struct xts_wire_return, kind));
	m->record_bytes = xts_get32(p + offsetof(struct xts_wire_return, record_bytes));
	m->control_type = xts_get16(p + offsetof(struct xts_wire_return, control_type));
	m->control_bytes = xts_get16(p + offsetof(struct xts_wire_return, control_bytes));
	m->control_high = xts_get64(p + offsetof(struct xts_wire_return, control_high));
	m->control_low = xts_get64(p + offsetof(struct xts_wire_return, control_low));
	if (m->length > 61440u)
		return -EBADMSG;
	if (m->kind != 0 && m->kind != 1 && m->kind != 2)
		return -EBADMSG;
	if (m->control_bytes > 16u)
		return -EBADMSG;
	if (m->length > frame_bytes - XTS_RETURN_BYTES)
		return -EBADMSG;
	if (m->length < frame_bytes - XTS_RETURN_BYTES && frame_bytes > XTS_ETH_MIN_BYTES)
		return -EBADMSG;
	return 0;
}

static inline void xts_return_encode(void *frame, const struct xts_return *m)
{
	uint8_t *p = (uint8_t *)frame;

	xts_put64(p + offsetof(struct xts_wire_return, key), m->key);
	xts_put32(p + offsetof(struct xts_wire_return, length), m->length);
	xts_put32(p + offsetof(struct xts_wire_return, kind), m->kind);
	xts_put32(p + offsetof(struct xts_wire_return, record_bytes), m->record_bytes);
	xts_put16(p + offsetof(struct xts_wire_return, control_type), m->control_type);
	xts_put16(p + offsetof(struct xts_wire_return, control_bytes), m->control_bytes);
	xts_put64(p + offsetof(struct xts_wire_return, control_high), m->control_high);
	xts_put64(p + offsetof(struct xts_wire_return, control_low), m->control_low);
}

/*
 * XTS_CMD_CANCEL: close, as CLOSE with ABORT does, the socket of a CONNECT that has not been answered; CLOSED confirms.
 * id: zero.
 */
struct xts_cancel {
	uint32_t xts_socket; /* the host's identifier of this socket (id) */
};

static inline int xts_cancel_decode(struct xts_cancel *m, const void *frame, size_t frame_bytes)
{
	const uint8_t *p = (const uint8_t *)frame;

	if (frame_bytes < XTS_CANCEL_BYTES)
		return -EBADMSG;
	m->xts_socket = xts_get32(p + offsetof(struct xts_wire_cancel, xts_socket));
	return 0;
}

static inline void xts_cancel_encode(void *frame, const struct xts_cancel *m)
{
	uint8_t *p = (uint8_t *)frame;

	xts_put32(p + offsetof(struct xts_wire_cancel, xts_socket), m->xts_socket);
}

/*
 * XTS_REPLY_MOVE: another process is about to take this queue over: the host finishes its calls, and answers MOVE_ACK.
 * id: zero.
 */
struct xts_move {
	uint64_t ticket;    /* by which the host claims its sockets there */
	uint32_t within_ms; /* for how long the host may wait for calls that are under way (ms) */
};

static inline int xts_move_decode(struct xts_move *m, const void *frame, size_t frame_bytes)
{
	const uint8_t *p = (const uint8_t *)frame;

	if (frame_bytes < XTS_MOVE_BYTES)
		return -EBADMSG;
	m->ticket = xts_get64(p + offsetof(struct xts_wire_move, ticket));
	m->within_ms = xts_get32(p + offsetof(struct xts_wire_move, within_ms));
	return 0;
}

static inline void xts_move_encode(void *frame, const struct xts_move *m)
{
	uint8_t *p = (uint8_t *)frame;

	xts_put64(p + offsetof(struct xts_wire_move, ticket), m->ticket);
	xts_put32(p + offsetof(struct xts_wire_move, within_ms), m->within_ms);
}

/*
 * XTS_CMD_MOVE_ACK: the last message of this epoch from the host: no call is under way; GOODBYE with ERESTART answers
 * it. id: zero.
 */
struct xts_move_ack {
	uint64_t ticket; /* of the MOVE */
};

static inline int xts_move_ack_decode(struct xts_move_ack *m, const void *frame, size_t frame_bytes)
{
	const uint8_t *p = (const uint8_t *)frame;

	if (frame_bytes < XTS_MOVE_ACK_BYTES)
		return -EBADMSG;
	m->ticket = xts_get64(p + offsetof(struct xts_wire_move_ack, ticket));
	return 0;
}

static inline void xts_move_ack_encode(void *frame, const struct xts_move_ack *m)
{
	uint8_t *p = (uint8_t *)frame;

	xts_put64(p + offsetof(struct xts_wire_move_ack, ticket), m->ticket);
}

/*
 * XTS_CMD_RESUME: as CLAIM, after REPLACED, with what this host has counted. CLAIM_ACK answers. Key 0: that was the
 * last one, and what was not asked for is reset. id: zero.
 */
struct xts_resume {
	uint32_t xts_socket;     /* the host's identifier of this socket (id) */
	uint32_t token;          /* repeated in the reply */
	uint64_t key;            /* made of the ticket and the socket's old identifier, or 0 */
	uint32_t post_credits;   /* post credits granted with this message (bytes) */
	uint32_t unread;         /* bytes received that are still unread (bytes) */
	uint64_t received_bytes; /* what it was sent since it had the connection on a channel (bytes) */
	uint64_t sent_bytes;     /* what it has sent since then (bytes) */
	uint32_t fin_sent;       /* not 0: it has sent FIN */
};

static inline int xts_resume_decode(struct xts_resume *m, const void *frame, size_t frame_bytes)
{
	const uint8_t *p = (const uint8_t *)frame;

	if (frame_bytes < XTS_RESUME_BYTES)
		return -EBADMSG;
	m->xts_socket = xts_get32(p + offsetof(struct xts_wire_resume, xts_socket));
	m->token = xts_get32(p + offsetof(struct xts_wire_resume, token));
	m->key = xts_get64(p + offsetof(struct xts_wire_resume, key));
	m->post_credits = xts_get32(p + offsetof(struct xts_wire_resume, post_credits));
	m->unread = xts_get32(p + offsetof(struct xts_wire_resume, unread));
	m->received_bytes = xts_get64(p + offsetof(struct xts_wire_resume, received_bytes));
	m->sent_bytes = xts_get64(p + offsetof(struct xts_wire_resume, sent_bytes));
	m->fin_sent = xts_get32(p + offsetof(struct xts_wire_resume, fin_sent));
	if (m->post_credits > 1073741824u)
		return -EBADMSG;
	if (m->unread > 1073741824u)
		return -EBADMSG;
	return 0;
}

static inline void xts_resume_encode(void *frame, const struct xts_resume *m)
{
	uint8_t *p = (uint8_t *)frame;

	xts_put32(p + offsetof(struct xts_wire_resume, xts_socket), m->xts_socket);
	xts_put32(p + offsetof(struct xts_wire_resume, token), m->token);
	xts_put64(p + offsetof(struct xts_wire_resume, key), m->key);
	xts_put32(p + offsetof(struct xts_wire_resume, post_credits), m->post_credits);
	xts_put32(p + offsetof(struct xts_wire_resume, unread), m->unread);
	xts_put64(p + offsetof(struct xts_wire_resume, received_bytes), m->received_bytes);
	xts_put64(p + offsetof(struct xts_wire_resume, sent_bytes), m->sent_bytes);
	xts_put32(p + offsetof(struct xts_wire_resume, fin_sent), m->fin_sent);
}

/*
 * XTS_CMD_SHUT_LISTENER: shutdown(2) of a listener, for reading: what waits for accept is reset, and the socket is
 * bound and listens no more, for all that have it. id: the proxy's identifier of the listener.
 */
struct xts_shut_listener {
	uint32_t xts_socket; /* the host's identifier of this socket (id) */
	uint32_t token;      /* repeated in the reply */
};

static inline int xts_shut_listener_decode(struct xts_shut_listener *m, const void *frame, size_t frame_bytes)
{
	const uint8_t *p = (const uint8_t *)frame;

	if (frame_bytes < XTS_SHUT_LISTENER_BYTES)
		return -EBADMSG;
	m->xts_socket = xts_get32(p + offsetof(struct xts_wire_shut_listener, xts_socket));
	m->token = xts_get32(p + offsetof(struct xts_wire_shut_listener, token));
	return 0;
}

static inline void xts_shut_listener_encode(void *frame, const struct xts_shut_listener *m)
{
	uint8_t *p = (uint8_t *)frame;

	xts_put32(p + offsetof(struct xts_wire_shut_listener, xts_socket), m->xts_socket);
	xts_put32(p + offsetof(struct xts_wire_shut_listener, token), m->token);
}

/*
 * XTS_REPLY_SHUT_LISTENER_ACK: it listens no more, or error says why not (ENOTCONN: another process has shut it down
 * before). id: XTS socket.
 */
struct xts_shut_listener_ack {
	uint32_t proxy_id;         /* the proxy's identifier of this socket (id) */
	uint32_t token;            /* repeated in the reply */
	struct xts_endpoint local; /* local address of the socket */
};

static inline int xts_shut_listener_ack_decode(struct xts_shut_listener_ack *m, const void *frame, size_t frame_bytes)
{
	const uint8_t *p = (const uint8_t *)frame;

	if (frame_bytes < XTS_SHUT_LISTENER_ACK_BYTES)
		return -EBADMSG;
	m->proxy_id = xts_get32(p + offsetof(struct xts_wire_shut_listener_ack, proxy_id));
	m->token = xts_get32(p + offsetof(struct xts_wire_shut_listener_ack, token));
	xts_endpoint_get(&m->local, p + offsetof(struct xts_wire_shut_listener_ack, local));
	if (m->local.ip_version != 0 && m->local.ip_version != 4 && m->local.ip_version != 6)
		return -EBADMSG;
	return 0;
}

static inline void xts_shut_listener_ack_encode(void *frame, const struct xts_shut_listener_ack *m)
{
	uint8_t *p = (uint8_t *)frame;

	xts_put32(p + offsetof(struct xts_wire_shut_listener_ack, proxy_id), m->proxy_id);
	xts_put32(p + offsetof(struct xts_wire_shut_listener_ack, token), m->token);
	xts_endpoint_put(p + offsetof(struct xts_wire_shut_listener_ack, local), &m->local);
}

/*
 * XTS_REPLY_LISTENING: with LISTENING: whether the socket of this member listens, when it has joined and when another
 * one changes it. id: XTS socket.
 */
struct xts_listening {
	uint32_t listens; /* 0: no, and it has not so far; 1: yes; 2: no, it was shut down. Connections offered
	                   * before are reset */
	uint32_t backlog; /* that of the last LISTEN (connections) */
};

static inline int xts_listening_decode(struct xts_listening *m, const void *frame, size_t frame_bytes)
{
	const uint8_t *p = (const uint8_t *)frame;

	if (frame_bytes < XTS_LISTENING_BYTES)
		return -EBADMSG;
	m->listens = xts_get32(p + offsetof(struct xts_wire_listening, listens));
	m->backlog = xts_get32(p + offsetof(struct xts_wire_listening, backlog));
	if (m->listens != 0 && m->listens != 1 && m->listens != 2)
		return -EBADMSG;
	return 0;
}

static inline void xts_listening_encode(void *frame, const struct xts_listening *m)
{
	uint8_t *p = (uint8_t *)frame;

	xts_put32(p + offsetof(struct xts_wire_listening, listens), m->listens);
	xts_put32(p + offsetof(struct xts_wire_listening, backlog), m->backlog);
}

/* XTS_CMD_OPEN_DATAGRAM: create a datagram socket, bound and connected if the addresses say so. id: zero. */
struct xts_open_datagram {
	uint32_t xts_socket;       /* the host's identifier of this socket (id) */
	uint32_t token;            /* repeated in the reply */
	uint32_t post_credits;     /* post credits granted with this message (bytes) */
	uint32_t domain;           /* 4 or 6: the family of the socket */
	struct xts_endpoint local; /* to be bound to; ip_version 0: not bound */
	struct xts_endpoint peer;  /* to be connected to; ip_version 0: not connected */
	uint32_t receive_bytes;    /* SO_RCVBUF of the device's socket; 0: the default of the device's kernel (bytes) */
};

static inline int xts_open_datagram_decode(struct xts_open_datagram *m, const void *frame, size_t frame_bytes)
{
	const uint8_t *p = (const uint8_t *)frame;

	if (frame_bytes < XTS_OPEN_DATAGRAM_BYTES)
		return -EBADMSG;
	m->xts_socket = xts_get32(p + offsetof(struct xts_wire_open_datagram, xts_socket));
	m->token = xts_get32(p + offsetof(struct xts_wire_open_datagram, token));
	m->post_credits = xts_get32(p + offsetof(struct xts_wire_open_datagram, post_credits));
	m->domain = xts_get32(p + offsetof(struct xts_wire_open_datagram, domain));
	xts_endpoint_get(&m->local, p + offsetof(struct xts_wire_open_datagram, local));
	xts_endpoint_get(&m->peer, p + offsetof(struct xts_wire_open_datagram, peer));
	m->receive_bytes = xts_get32(p + offsetof(struct xts_wire_open_datagram, receive_bytes));
	if (m->post_credits > 1073741824u)
		return -EBADMSG;
	if (m->domain != 0 && m->domain != 4 && m->domain != 6)
		return -EBADMSG;
	if (m->local.ip_version != 0 && m->local.ip_version != 4 && m->local.ip_version != 6)
		return -EBADMSG;
	if (m->peer.ip_version != 0 && m->peer.ip_version != 4 && m->peer.ip_version != 6)
		return -EBADMSG;
	if (m->receive_bytes > 1073741824u)
		return -EBADMSG;
	return 0;
}

static inline void xts_open_datagram_encode(void *frame, const struct xts_open_datagram *m)
{
	uint8_t *p = (uint8_t *)frame;

	xts_put32(p + offsetof(struct xts_wire_open_datagram, xts_socket), m->xts_socket);
	xts_put32(p + offsetof(struct xts_wire_open_datagram, token), m->token);
	xts_put32(p + offsetof(struct xts_wire_open_datagram, post_credits), m->post_credits);
	xts_put32(p + offsetof(struct xts_wire_open_datagram, domain), m->domain);
	xts_endpoint_put(p + offsetof(struct xts_wire_open_datagram, local), &m->local);
	xts_endpoint_put(p + offsetof(struct xts_wire_open_datagram, peer), &m->peer);
	xts_put32(p + offsetof(struct xts_wire_open_datagram, receive_bytes), m->receive_bytes);
}

/* XTS_REPLY_OPEN_DATAGRAM_ACK: the datagram socket is there, or error says why not. id: XTS socket. */
struct xts_open_datagram_ack {
	uint32_t proxy_id;         /* the proxy's identifier of this socket (id) */
	uint32_t token;            /* repeated in the reply */
	uint32_t post_credits;     /* post credits granted with this message (bytes) */
	struct xts_endpoint local; /* local address of the socket */
	struct xts_endpoint peer;  /* address of the peer */
};

static inline int xts_open_datagram_ack_decode(struct xts_open_datagram_ack *m, const void *frame, size_t frame_bytes)
{
	const uint8_t *p = (const uint8_t *)frame;

	if (frame_bytes < XTS_OPEN_DATAGRAM_ACK_BYTES)
		return -EBADMSG;
	m->proxy_id = xts_get32(p + offsetof(struct xts_wire_open_datagram_ack, proxy_id));
	m->token = xts_get32(p + offsetof(struct xts_wire_open_datagram_ack, token));
	m->post_credits = xts_get32(p + offsetof(struct xts_wire_open_datagram_ack, post_credits));
	xts_endpoint_get(&m->local, p + offsetof(struct xts_wire_open_datagram_ack, local));
	xts_endpoint_get(&m->peer, p + offsetof(struct xts_wire_open_datagram_ack, peer));
	if (m->post_credits > 1073741824u)
		return -EBADMSG;
	if (m->local.ip_version != 0 && m->local.ip_version != 4 && m->local.ip_version != 6)
		return -EBADMSG;
	if (m->peer.ip_version != 0 && m->peer.ip_version != 4 && m->peer.ip_version != 6)
		return -EBADMSG;
	return 0;
}

static inline void xts_open_datagram_ack_encode(void *frame, const struct xts_open_datagram_ack *m)
{
	uint8_t *p = (uint8_t *)frame;

	xts_put32(p + offsetof(struct xts_wire_open_datagram_ack, proxy_id), m->proxy_id);
	xts_put32(p + offsetof(struct xts_wire_open_datagram_ack, token), m->token);
	xts_put32(p + offsetof(struct xts_wire_open_datagram_ack, post_credits), m->post_credits);
	xts_endpoint_put(p + offsetof(struct xts_wire_open_datagram_ack, local), &m->local);
	xts_endpoint_put(p + offsetof(struct xts_wire_open_datagram_ack, peer), &m->peer);
}

/*
 * XTS_CMD_CONNECT_DATAGRAM: connect(2) of a datagram socket, also again; ip_version 0: to nobody any more. id: proxy's
 * identifier.
 */
struct xts_connect_datagram {
	uint32_t xts_socket;      /* the host's identifier of this socket (id) */
	uint32_t token;           /* repeated in the reply */
	struct xts_endpoint peer; /* address of the peer */
};

static inline int xts_connect_datagram_decode(struct xts_connect_datagram *m, const void *frame, size_t frame_bytes)
{
	const uint8_t *p = (const uint8_t *)frame;

	if (frame_bytes < XTS_CONNECT_DATAGRAM_BYTES)
		return -EBADMSG;
	m->xts_socket = xts_get32(p + offsetof(struct xts_wire_connect_datagram, xts_socket));
	m->token = xts_get32(p + offsetof(struct xts_wire_connect_datagram, token));
	xts_endpoint_get(&m->peer, p + offsetof(struct xts_wire_connect_datagram, peer));
	if (m->peer.ip_version != 0 && m->peer.ip_version != 4 && m->peer.ip_version != 6)
		return -EBADMSG;
	return 0;
}

static inline void xts_connect_datagram_encode(void *frame, const struct xts_connect_datagram *m)
{
	uint8_t *p = (uint8_t *)frame;

	xts_put32(p + offsetof(struct xts_wire_connect_datagram, xts_socket), m->xts_socket);
	xts_put32(p + offsetof(struct xts_wire_connect_datagram, token), m->token);
	xts_endpoint_put(p + offsetof(struct xts_wire_connect_datagram, peer), &m->peer);
}

/* XTS_REPLY_CONNECT_DATAGRAM_ACK: answer to connect of a datagram socket. id: XTS socket. */
struct xts_connect_datagram_ack {
	uint32_t token;            /* repeated in the reply */
	struct xts_endpoint local; /* local address of the socket */
	struct xts_endpoint peer;  /* address of the peer */
};

static inline int xts_connect_datagram_ack_decode(struct xts_connect_datagram_ack *m, const void *frame, size_t frame_bytes)
{
	const uint8_t *p = (const uint8_t *)frame;

	if (frame_bytes < XTS_CONNECT_DATAGRAM_ACK_BYTES)
		return -EBADMSG;
	m->token = xts_get32(p + offsetof(struct xts_wire_connect_datagram_ack, token));
	xts_endpoint_get(&m->local, p + offsetof(struct xts_wire_connect_datagram_ack, local));
	xts_endpoint_get(&m->peer, p + offsetof(struct xts_wire_connect_datagram_ack, peer));
	if (m->local.ip_version != 0 && m->local.ip_version != 4 && m->local.ip_version != 6)
		return -EBADMSG;
	if (m->peer.ip_version != 0 && m->peer.ip_version != 4 && m->peer.ip_version != 6)
		return -EBADMSG;
	return 0;
}

static inline void xts_connect_datagram_ack_encode(void *frame, const struct xts_connect_datagram_ack *m)
{
	uint8_t *p = (uint8_t *)frame;

	xts_put32(p + offsetof(struct xts_wire_connect_datagram_ack, token), m->token);
	xts_endpoint_put(p + offsetof(struct xts_wire_connect_datagram_ack, local), &m->local);
	xts_endpoint_put(p + offsetof(struct xts_wire_connect_datagram_ack, peer), &m->peer);
}

/*
 * XTS_CMD_SEND_DATAGRAMS: datagrams to be sent, each with its record in front; MORE: the last one goes on in the next
 * message. id: proxy's identifier.
 */
struct xts_send_datagrams {
	uint32_t post_credits; /* post credits granted with this message (bytes) */
	uint32_t length;       /* bytes of payload (bytes) */
};

static inline int xts_send_datagrams_decode(struct xts_send_datagrams *m, const void *frame, size_t frame_bytes)
{
	const uint8_t *p = (const uint8_t *)frame;

	if (frame_bytes < XTS_SEND_DATAGRAMS_BYTES)
		return -EBADMSG;
	m->post_credits = xts_get32(p + offsetof(struct xts_wire_send_datagrams, post_credits));
	m->length = xts_get32(p + offsetof(struct xts_wire_send_datagrams, length));
	if (m->post_credits > 1073741824u)
		return -EBADMSG;
	if (m->length > 61440u)
		return -EBADMSG;
	if (m->length > frame_bytes - XTS_SEND_DATAGRAMS_BYTES)
		return -EBADMSG;
	if (m->length < frame_bytes - XTS_SEND_DATAGRAMS_BYTES && frame_bytes > XTS_ETH_MIN_BYTES)
		return -EBADMSG;
	return 0;
}

static inline void xts_send_datagrams_encode(void *frame, const struct xts_send_datagrams *m)
{
	uint8_t *p = (uint8_t *)frame;

	xts_put32(p + offsetof(struct xts_wire_send_datagrams, post_credits), m->post_credits);
	xts_put32(p + offsetof(struct xts_wire_send_datagrams, length), m->length);
}

/*
 * XTS_REPLY_RECV_DATAGRAMS: datagrams received, each with its record in front (MORE: the last one goes on in the next
 * message); or, without any, the pending error of the socket. id: XTS socket.
 */
struct xts_recv_datagrams {
	uint32_t post_credits; /* post credits granted with this message (bytes) */
	uint32_t dropped;      /* datagrams that have arrived for this socket and were dropped so far, modulo 2^32
	                        * (as SO_RXQ_OVFL) (datagrams) */
	uint32_t length;       /* bytes of payload (bytes) */
};

static inline int xts_recv_datagrams_decode(struct xts_recv_datagrams *m, const void *frame, size_t frame_bytes)
{
	const uint8_t *p = (const uint8_t *)frame;

	if (frame_bytes < XTS_RECV_DATAGRAMS_BYTES)
		return -EBADMSG;
	m->post_credits = xts_get32(p + offsetof(struct xts_wire_recv_datagrams, post_credits));
	m->dropped = xts_get32(p + offsetof(struct xts_wire_recv_datagrams, dropped));
	m->length = xts_get32(p + offsetof(struct xts_wire_recv_datagrams, length));
	if (m->post_credits > 1073741824u)
		return -EBADMSG;
	if (m->length > 61440u)
		return -EBADMSG;
	if (m->length > frame_bytes - XTS_RECV_DATAGRAMS_BYTES)
		return -EBADMSG;
	if (m->length < frame_bytes - XTS_RECV_DATAGRAMS_BYTES && frame_bytes > XTS_ETH_MIN_BYTES)
		return -EBADMSG;
	return 0;
}

static inline void xts_recv_datagrams_encode(void *frame, const struct xts_recv_datagrams *m)
{
	uint8_t *p = (uint8_t *)frame;

	xts_put32(p + offsetof(struct xts_wire_recv_datagrams, post_credits), m->post_credits);
	xts_put32(p + offsetof(struct xts_wire_recv_datagrams, dropped), m->dropped);
	xts_put32(p + offsetof(struct xts_wire_recv_datagrams, length), m->length);
}

/*
 * XTS_CMD_RETURN_DATAGRAMS: datagrams received on a shared socket and unread, in order, for whoever reads next, each
 * with its record in front; MORE: the last one goes on in the next message. Error: a pending one. id: proxy's
 * identifier.
 */
struct xts_return_datagrams {
	uint32_t length; /* bytes of payload (bytes) */
};

static inline int xts_return_datagrams_decode(struct xts_return_datagrams *m, const void *frame, size_t frame_bytes)
{
	const uint8_t *p = (const uint8_t *)frame;

	if (frame_bytes < XTS_RETURN_DATAGRAMS_BYTES)
		return -EBADMSG;
	m->length = xts_get32(p + offsetof(struct xts_wire_return_datagrams, length));
	if (m->length > 61440u)
		return -EBADMSG;
	if (m->length > frame_bytes - XTS_RETURN_DATAGRAMS_BYTES)
		return -EBADMSG;
	if (m->length < frame_bytes - XTS_RETURN_DATAGRAMS_BYTES && frame_bytes > XTS_ETH_MIN_BYTES)
		return -EBADMSG;
	return 0;
}

static inline void xts_return_datagrams_encode(void *frame, const struct xts_return_datagrams *m)
{
	uint8_t *p = (uint8_t *)frame;

	xts_put32(p + offsetof(struct xts_wire_return_datagrams, length), m->length);
}

/*
 * XTS_CMD_QUERY_NAME: ask the device's name servers; the payload is a standard query with one question (RFC 1035). id:
 * zero.
 */
struct xts_query_name {
	uint32_t token;  /* repeated in the reply */
	uint32_t length; /* bytes of payload (bytes) */
};

static inline int xts_query_name_decode(struct xts_query_name *m, const void *frame, size_t frame_bytes)
{
	const uint8_t *p = (const uint8_t *)frame;

	if (frame_bytes < XTS_QUERY_NAME_BYTES)
		return -EBADMSG;
	m->token = xts_get32(p + offsetof(struct xts_wire_query_name, token));
	m->length = xts_get32(p + offsetof(struct xts_wire_query_name, length));
	if (m->length > 1024u)
		return -EBADMSG;
	if (m->length > frame_bytes - XTS_QUERY_NAME_BYTES)
		return -EBADMSG;
	if (m->length < frame_bytes - XTS_QUERY_NAME_BYTES && frame_bytes > XTS_ETH_MIN_BYTES)
		return -EBADMSG;
	return 0;
}

static inline void xts_query_name_encode(void *frame, const struct xts_query_name *m)
{
	uint8_t *p = (uint8_t *)frame;

	xts_put32(p + offsetof(struct xts_wire_query_name, token), m->token);
	xts_put32(p + offsetof(struct xts_wire_query_name, length), m->length);
}

/* XTS_REPLY_NAME_ACK: the answer of a name server, whole, as the payload; or error says why there is none. id: zero. */
struct xts_name_ack {
	uint32_t token;    /* repeated in the reply */
	uint32_t families; /* of addresses that the device has, loopback and link-local left out: 1 IPv4, 2 IPv6; 0:
	                    * not known */
	uint32_t length;   /* bytes of payload (bytes) */
};

static inline int xts_name_ack_decode(struct xts_name_ack *m, const void *frame, size_t frame_bytes)
{
	const uint8_t *p = (const uint8_t *)frame;

	if (frame_bytes < XTS_NAME_ACK_BYTES)
		return -EBADMSG;
	m->token = xts_get32(p + offsetof(struct xts_wire_name_ack, token));
	m->families = xts_get32(p + offsetof(struct xts_wire_name_ack, families));
	m->length = xts_get32(p + offsetof(struct xts_wire_name_ack, length));
	if (m->families != 0 && m->families != 1 && m->families != 2 && m->families != 3)
		return -EBADMSG;
	if (m->length > 61440u)
		return -EBADMSG;
	if (m->length > frame_bytes - XTS_NAME_ACK_BYTES)
		return -EBADMSG;
	if (m->length < frame_bytes - XTS_NAME_ACK_BYTES && frame_bytes > XTS_ETH_MIN_BYTES)
		return -EBADMSG;
	return 0;
}

static inline void xts_name_ack_encode(void *frame, const struct xts_name_ack *m)
{
	uint8_t *p = (uint8_t *)frame;

	xts_put32(p + offsetof(struct xts_wire_name_ack, token), m->token);
	xts_put32(p + offsetof(struct xts_wire_name_ack, families), m->families);
	xts_put32(p + offsetof(struct xts_wire_name_ack, length), m->length);
}

/* The fixed part of a type in bytes, or 0 when the type is unknown. */
static inline size_t xts_type_bytes(uint8_t type)
{
	switch (type) {
	case XTS_CMD_CONNECT: return XTS_CONNECT_BYTES;
	case XTS_REPLY_CONNECT_ACK: return XTS_CONNECT_ACK_BYTES;
	case XTS_CMD_LISTEN: return XTS_LISTEN_BYTES;
	case XTS_REPLY_LISTEN_ACK: return XTS_LISTEN_ACK_BYTES;
	case XTS_REPLY_NEWCONN: return XTS_NEWCONN_BYTES;
	case XTS_CMD_NEWCONN_ACK: return XTS_NEWCONN_ACK_BYTES;
	case XTS_CMD_SEND: return XTS_SEND_BYTES;
	case XTS_REPLY_RECV: return XTS_RECV_BYTES;
	case XTS_LINK_HELLO: return XTS_HELLO_BYTES;
	case XTS_LINK_HELLO_ACK: return XTS_HELLO_ACK_BYTES;
	case XTS_LINK_FRAME_ACK: return XTS_FRAME_ACK_BYTES;
	case XTS_LINK_PING: return XTS_PING_BYTES;
	case XTS_LINK_PONG: return XTS_PONG_BYTES;
	case XTS_LINK_GOODBYE: return XTS_GOODBYE_BYTES;
	case XTS_LINK_BUNDLE: return XTS_BUNDLE_BYTES;
	case XTS_LINK_TOKEN: return XTS_TOKEN_BYTES;
	case XTS_LINK_CLOCK: return XTS_CLOCK_BYTES;
	case XTS_LINK_CLOCK_ACK: return XTS_CLOCK_ACK_BYTES;
	case XTS_LINK_CATCH_UP: return XTS_CATCH_UP_BYTES;
	case XTS_LINK_CAUGHT_UP: return XTS_CAUGHT_UP_BYTES;
	case XTS_LINK_REPLACED: return XTS_REPLACED_BYTES;
	case XTS_LINK_OVER: return XTS_OVER_BYTES;
	case XTS_LINK_HEADED: return XTS_HEADED_BYTES;
	case XTS_LINK_PROBE: return XTS_PROBE_BYTES;
	case XTS_CMD_BIND: return XTS_BIND_BYTES;
	case XTS_LINK_PART: return XTS_PART_BYTES;
	case XTS_LINK_ARQ: return XTS_ARQ_BYTES;
	case XTS_REPLY_BIND_ACK: return XTS_BIND_ACK_BYTES;
	case XTS_CMD_SETSOCKOPT: return XTS_SETSOCKOPT_BYTES;
	case XTS_CMD_GETSOCKOPT: return XTS_GETSOCKOPT_BYTES;
	case XTS_REPLY_SOCKOPT_ACK: return XTS_SOCKOPT_ACK_BYTES;
	case XTS_CMD_IOCTL: return XTS_IOCTL_BYTES;
	case XTS_REPLY_IOCTL_ACK: return XTS_IOCTL_ACK_BYTES;
	case XTS_CMD_SHARE: return XTS_SHARE_BYTES;
	case XTS_REPLY_SHARE_ACK: return XTS_SHARE_ACK_BYTES;
	case XTS_CMD_PARK: return XTS_PARK_BYTES;
	case XTS_REPLY_PARK_ACK: return XTS_PARK_ACK_BYTES;
	case XTS_CMD_CLAIM: return XTS_CLAIM_BYTES;
	case XTS_REPLY_CLAIM_ACK: return XTS_CLAIM_ACK_BYTES;
	case XTS_CMD_SEND_PDU: return XTS_SEND_PDU_BYTES;
	case XTS_REPLY_RECV_PDU: return XTS_RECV_PDU_BYTES;
	case XTS_CMD_GIVE_BACK: return XTS_GIVE_BACK_BYTES;
	case XTS_RELAY_CARRIED: return XTS_CARRIED_BYTES;
	case XTS_CMD_TAKE: return XTS_TAKE_BYTES;
	case XTS_REPLY_TAKE_ACK: return XTS_TAKE_ACK_BYTES;
	case XTS_REPLY_YIELD: return XTS_YIELD_BYTES;
	case XTS_REPLY_GATHERED: return XTS_GATHERED_BYTES;
	case XTS_CMD_RETURN: return XTS_RETURN_BYTES;
	case XTS_CMD_CANCEL: return XTS_CANCEL_BYTES;
	case XTS_REPLY_MOVE: return XTS_MOVE_BYTES;
	case XTS_CMD_MOVE_ACK: return XTS_MOVE_ACK_BYTES;
	case XTS_CMD_RESUME: return XTS_RESUME_BYTES;
	case XTS_CMD_SHUT_LISTENER: return XTS_SHUT_LISTENER_BYTES;
	case XTS_REPLY_SHUT_LISTENER_ACK: return XTS_SHUT_LISTENER_ACK_BYTES;
	case XTS_REPLY_LISTENING: return XTS_LISTENING_BYTES;
	case XTS_CMD_OPEN_DATAGRAM: return XTS_OPEN_DATAGRAM_BYTES;
	case XTS_REPLY_OPEN_DATAGRAM_ACK: return XTS_OPEN_DATAGRAM_ACK_BYTES;
	case XTS_CMD_CONNECT_DATAGRAM: return XTS_CONNECT_DATAGRAM_BYTES;
	case XTS_REPLY_CONNECT_DATAGRAM_ACK: return XTS_CONNECT_DATAGRAM_ACK_BYTES;
	case XTS_CMD_SEND_DATAGRAMS: return XTS_SEND_DATAGRAMS_BYTES;
	case XTS_REPLY_RECV_DATAGRAMS: return XTS_RECV_DATAGRAMS_BYTES;
	case XTS_CMD_RETURN_DATAGRAMS: return XTS_RETURN_DATAGRAMS_BYTES;
	case XTS_CMD_QUERY_NAME: return XTS_QUERY_NAME_BYTES;
	case XTS_REPLY_NAME_ACK: return XTS_NAME_ACK_BYTES;
	default: return 0;
	}
}

/* The flags that are legal with a type. */
static inline uint8_t xts_type_flags(uint8_t type)
{
	switch (type) {
	case XTS_CMD_SEND: return XTS_FLAG_FIN | XTS_FLAG_CLOSE | XTS_FLAG_ABORT | XTS_FLAG_LINGER | XTS_FLAG_MORE;
	case XTS_REPLY_RECV: return XTS_FLAG_EOS | XTS_FLAG_RESET | XTS_FLAG_CLOSED;
	case XTS_CMD_SEND_PDU: return XTS_FLAG_MORE;
	case XTS_REPLY_RECV_PDU: return XTS_FLAG_MORE;
	case XTS_CMD_RETURN: return XTS_FLAG_MORE;
	case XTS_CMD_SEND_DATAGRAMS: return XTS_FLAG_MORE;
	case XTS_REPLY_RECV_DATAGRAMS: return XTS_FLAG_MORE;
	case XTS_CMD_RETURN_DATAGRAMS: return XTS_FLAG_MORE;
	default: return 0;
	}
}

/* The feature that the link has to have negotiated for a type, or 0. */
static inline uint64_t xts_type_feature(uint8_t type)
{
	switch (type) {
	case XTS_CMD_SHARE: return XTS_FEATURE_SHARE;
	case XTS_CMD_PARK: return XTS_FEATURE_SHARE;
	case XTS_CMD_CLAIM: return XTS_FEATURE_SHARE;
	case XTS_CMD_SEND_PDU: return XTS_FEATURE_ULP;
	case XTS_CMD_GIVE_BACK: return XTS_FEATURE_ULP;
	case XTS_CMD_TAKE: return XTS_FEATURE_TAKE;
	case XTS_CMD_RETURN: return XTS_FEATURE_TAKE;
	case XTS_CMD_CANCEL: return XTS_FEATURE_CANCEL;
	case XTS_CMD_MOVE_ACK: return XTS_FEATURE_MOVE;
	case XTS_CMD_RESUME: return XTS_FEATURE_RESUME;
	case XTS_CMD_SHUT_LISTENER: return XTS_FEATURE_LISTENING;
	case XTS_CMD_OPEN_DATAGRAM: return XTS_FEATURE_DATAGRAM;
	case XTS_CMD_CONNECT_DATAGRAM: return XTS_FEATURE_DATAGRAM;
	case XTS_CMD_SEND_DATAGRAMS: return XTS_FEATURE_DATAGRAM;
	case XTS_CMD_RETURN_DATAGRAMS: return XTS_FEATURE_RETURN_DATAGRAM;
	case XTS_CMD_QUERY_NAME: return XTS_FEATURE_NAMES;
	default: return 0;
	}
}

/* Where a secret field of a type begins, or 0: whoever knows it has a right by it. */
static inline uint32_t xts_type_secret(uint8_t type)
{
	switch (type) {
	case XTS_LINK_TOKEN: return 48;
	case XTS_LINK_REPLACED: return 32;
	case XTS_LINK_HEADED: return 24;
	case XTS_CMD_SHARE: return 32;
	case XTS_CMD_PARK: return 32;
	case XTS_CMD_CLAIM: return 32;
	case XTS_CMD_TAKE: return 32;
	case XTS_CMD_RETURN: return 24;
	case XTS_CMD_RESUME: return 32;
	default: return 0;
	}
}

/* How long the secret fields of a type are together. */
static inline uint32_t xts_type_secret_bytes(uint8_t type)
{
	switch (type) {
	case XTS_LINK_TOKEN: return 16;
	case XTS_LINK_REPLACED: return 8;
	case XTS_LINK_HEADED: return 8;
	case XTS_CMD_SHARE: return 8;
	case XTS_CMD_PARK: return 8;
	case XTS_CMD_CLAIM: return 8;
	case XTS_CMD_TAKE: return 8;
	case XTS_CMD_RETURN: return 8;
	case XTS_CMD_RESUME: return 8;
	default: return 0;
	}
}

/* The errno that goes with a refusal; 0 for a number that this version does not know. */
static inline int xts_refusal_errno(unsigned refusal)
{
	switch (refusal) {
	case XTS_REFUSED_CONNECT_POLICY: return EACCES;
	case XTS_REFUSED_LISTEN_POLICY: return EACCES;
	case XTS_REFUSED_STOPPING: return ESHUTDOWN;
	case XTS_REFUSED_CONNECTIONS: return ENOBUFS;
	case XTS_REFUSED_LISTENERS: return ENOBUFS;
	case XTS_REFUSED_SOCKETS: return ENOBUFS;
	case XTS_REFUSED_WINDOWS: return ENOBUFS;
	case XTS_REFUSED_DEVICE_DESCRIPTORS: return ENOBUFS;
	case XTS_REFUSED_DEVICE_MEMORY: return ENOBUFS;
	case XTS_REFUSED_OPTION: return EPERM;
	case XTS_REFUSED_SHARED_LISTENERS: return ENOBUFS;
	case XTS_REFUSED_PARKED: return ENOBUFS;
	case XTS_REFUSED_RELAYED: return EUSERS;
	case XTS_REFUSED_NAME_POLICY: return EACCES;
	case XTS_REFUSED_LOOKUPS: return ENOBUFS;
	case XTS_REFUSED_GROUPS: return ENOBUFS;
	case XTS_REFUSED_DEVICE_GROUPS: return ENOBUFS;
	case XTS_REFUSED_FILTERS: return ENOBUFS;
	case XTS_REFUSED_FILTER_LOADS: return EPERM;
	case XTS_REFUSED_FILTER_NAME: return ENOENT;
	case XTS_REFUSED_LOCAL_PORTS: return EADDRNOTAVAIL;
	case XTS_REFUSED_BIND_PORTS: return EADDRINUSE;
	case XTS_REFUSED_LOW_PORT: return EACCES;
	case XTS_REFUSED_RELIABLE: return ENOTSUP;
	default: return 0;
	}
}

/* The sentence about it, or NULL. */
static inline const char *xts_refusal_text(unsigned refusal)
{
	switch (refusal) {
	case XTS_REFUSED_CONNECT_POLICY: return "the proxy's policy forbids this host to connect to that address: `xts-proxy --explain` on the device names the rule";
	case XTS_REFUSED_LISTEN_POLICY: return "the proxy's policy forbids this host to bind or listen there: `xts-proxy --explain` on the device names the rule";
	case XTS_REFUSED_STOPPING: return "the proxy is about to stop, and takes no new connections and listeners";
	case XTS_REFUSED_CONNECTIONS: return "this host has as many connections as limits.connections of the proxy allows";
	case XTS_REFUSED_LISTENERS: return "this host has as many listeners as limits.listeners of the proxy allows";
	case XTS_REFUSED_SOCKETS: return "the proxy has no more descriptors or memory for sockets of this host (limits.descriptors, guaranteed)";
	case XTS_REFUSED_WINDOWS: return "the proxy has no more memory for data of this host's connections (limits.spill_mib, guaranteed)";
	case XTS_REFUSED_DEVICE_DESCRIPTORS: return "the proxy, or the device, is out of descriptors";
	case XTS_REFUSED_DEVICE_MEMORY: return "the proxy, or the kernel of the device, is out of memory";
	case XTS_REFUSED_OPTION: return "the proxy lets no host use this option, or not with this value";
	case XTS_REFUSED_SHARED_LISTENERS: return "the proxy has as many shared listeners of this host as it allows";
	case XTS_REFUSED_PARKED: return "the proxy keeps as many connections, or bytes, between two processes of this host as it allows";
	case XTS_REFUSED_RELAYED: return "the proxy serves as many processes behind this host's relay as its relayed_max allows";
	case XTS_REFUSED_NAME_POLICY: return "the proxy lets this host not look up that name: see [names] of its configuration";
	case XTS_REFUSED_LOOKUPS: return "as many names of this host are being looked up as limits.lookups of the proxy allows";
	case XTS_REFUSED_GROUPS: return "sockets of this host are members of as many multicast groups as limits.groups of the proxy allows";
	case XTS_REFUSED_DEVICE_GROUPS: return "the device's kernel lets a socket join no more groups or sources: net.ipv4.igmp_max_memberships, igmp_max_msf";
	case XTS_REFUSED_FILTERS: return "filters of this host's sockets have as many instructions as limits.filters of the proxy allows";
	case XTS_REFUSED_FILTER_LOADS: return "a filter may look at packets, and not at frames of the device, its marks, queues, processors and VLANs";
	case XTS_REFUSED_FILTER_NAME: return "the operator of the proxy has no filter of that name for this host (filter in the proxy's configuration)";
	case XTS_REFUSED_LOCAL_PORTS: return "the proxy has no local port left for this host towards that address (guaranteed.local_ports), or no address";
	case XTS_REFUSED_BIND_PORTS: return "the proxy has no local port left for this host to bind to (guaranteed.local_ports)";
	case XTS_REFUSED_LOW_PORT: return "this port takes CAP_NET_BIND_SERVICE, which the proxy knows over an interface by token_key only, or policy.low_ports on the device";
	case XTS_REFUSED_RELIABLE: return "the proxy and this host do not agree on whether lost frames are repeated: set `reliable` of the interface to the same in xts-proxy.toml and in xts-agent.toml";
	default: return NULL;
	}
}

/* Does the type take a frame credit and a sequence number? Its range says so, for later types too. */
static inline int xts_type_sequenced(uint8_t type)
{
	return type < 16u || (type >= 32u && type <= 239u);
}

/* May the proxy send this type to the host? */
static inline int xts_type_to_host(uint8_t type)
{
	switch (type) {
	case XTS_REPLY_CONNECT_ACK: return 1;
	case XTS_REPLY_LISTEN_ACK: return 1;
	case XTS_REPLY_NEWCONN: return 1;
	case XTS_REPLY_RECV: return 1;
	case XTS_LINK_HELLO_ACK: return 1;
	case XTS_LINK_FRAME_ACK: return 1;
	case XTS_LINK_PING: return 1;
	case XTS_LINK_PONG: return 1;
	case XTS_LINK_GOODBYE: return 1;
	case XTS_LINK_BUNDLE: return 1;
	case XTS_LINK_CLOCK_ACK: return 1;
	case XTS_LINK_CAUGHT_UP: return 1;
	case XTS_LINK_REPLACED: return 1;
	case XTS_LINK_HEADED: return 1;
	case XTS_LINK_PROBE: return 1;
	case XTS_LINK_PART: return 1;
	case XTS_LINK_ARQ: return 1;
	case XTS_REPLY_BIND_ACK: return 1;
	case XTS_REPLY_SOCKOPT_ACK: return 1;
	case XTS_REPLY_IOCTL_ACK: return 1;
	case XTS_REPLY_SHARE_ACK: return 1;
	case XTS_REPLY_PARK_ACK: return 1;
	case XTS_REPLY_CLAIM_ACK: return 1;
	case XTS_REPLY_RECV_PDU: return 1;
	case XTS_RELAY_CARRIED: return 1;
	case XTS_REPLY_TAKE_ACK: return 1;
	case XTS_REPLY_YIELD: return 1;
	case XTS_REPLY_GATHERED: return 1;
	case XTS_REPLY_MOVE: return 1;
	case XTS_REPLY_SHUT_LISTENER_ACK: return 1;
	case XTS_REPLY_LISTENING: return 1;
	case XTS_REPLY_OPEN_DATAGRAM_ACK: return 1;
	case XTS_REPLY_CONNECT_DATAGRAM_ACK: return 1;
	case XTS_REPLY_RECV_DATAGRAMS: return 1;
	case XTS_REPLY_NAME_ACK: return 1;
	default: return 0;
	}
}

/* May the host send this type to the proxy? */
static inline int xts_type_to_proxy(uint8_t type)
{
	switch (type) {
	case XTS_CMD_CONNECT: return 1;
	case XTS_CMD_LISTEN: return 1;
	case XTS_CMD_NEWCONN_ACK: return 1;
	case XTS_CMD_SEND: return 1;
	case XTS_LINK_HELLO: return 1;
	case XTS_LINK_FRAME_ACK: return 1;
	case XTS_LINK_PING: return 1;
	case XTS_LINK_PONG: return 1;
	case XTS_LINK_GOODBYE: return 1;
	case XTS_LINK_BUNDLE: return 1;
	case XTS_LINK_TOKEN: return 1;
	case XTS_LINK_CLOCK: return 1;
	case XTS_LINK_CATCH_UP: return 1;
	case XTS_LINK_OVER: return 1;
	case XTS_LINK_HEADED: return 1;
	case XTS_LINK_PROBE: return 1;
	case XTS_CMD_BIND: return 1;
	case XTS_LINK_PART: return 1;
	case XTS_LINK_ARQ: return 1;
	case XTS_CMD_SETSOCKOPT: return 1;
	case XTS_CMD_GETSOCKOPT: return 1;
	case XTS_CMD_IOCTL: return 1;
	case XTS_CMD_SHARE: return 1;
	case XTS_CMD_PARK: return 1;
	case XTS_CMD_CLAIM: return 1;
	case XTS_CMD_SEND_PDU: return 1;
	case XTS_CMD_GIVE_BACK: return 1;
	case XTS_RELAY_CARRIED: return 1;
	case XTS_CMD_TAKE: return 1;
	case XTS_CMD_RETURN: return 1;
	case XTS_CMD_CANCEL: return 1;
	case XTS_CMD_MOVE_ACK: return 1;
	case XTS_CMD_RESUME: return 1;
	case XTS_CMD_SHUT_LISTENER: return 1;
	case XTS_CMD_OPEN_DATAGRAM: return 1;
	case XTS_CMD_CONNECT_DATAGRAM: return 1;
	case XTS_CMD_SEND_DATAGRAMS: return 1;
	case XTS_CMD_RETURN_DATAGRAMS: return 1;
	case XTS_CMD_QUERY_NAME: return 1;
	default: return 0;
	}
}

static inline const char *xts_type_name(uint8_t type)
{
	switch (type) {
	case XTS_CMD_CONNECT: return "XTS_CMD_CONNECT";
	case XTS_REPLY_CONNECT_ACK: return "XTS_REPLY_CONNECT_ACK";
	case XTS_CMD_LISTEN: return "XTS_CMD_LISTEN";
	case XTS_REPLY_LISTEN_ACK: return "XTS_REPLY_LISTEN_ACK";
	case XTS_REPLY_NEWCONN: return "XTS_REPLY_NEWCONN";
	case XTS_CMD_NEWCONN_ACK: return "XTS_CMD_NEWCONN_ACK";
	case XTS_CMD_SEND: return "XTS_CMD_SEND";
	case XTS_REPLY_RECV: return "XTS_REPLY_RECV";
	case XTS_LINK_HELLO: return "XTS_LINK_HELLO";
	case XTS_LINK_HELLO_ACK: return "XTS_LINK_HELLO_ACK";
	case XTS_LINK_FRAME_ACK: return "XTS_LINK_FRAME_ACK";
	case XTS_LINK_PING: return "XTS_LINK_PING";
	case XTS_LINK_PONG: return "XTS_LINK_PONG";
	case XTS_LINK_GOODBYE: return "XTS_LINK_GOODBYE";
	case XTS_LINK_BUNDLE: return "XTS_LINK_BUNDLE";
	case XTS_LINK_TOKEN: return "XTS_LINK_TOKEN";
	case XTS_LINK_CLOCK: return "XTS_LINK_CLOCK";
	case XTS_LINK_CLOCK_ACK: return "XTS_LINK_CLOCK_ACK";
	case XTS_LINK_CATCH_UP: return "XTS_LINK_CATCH_UP";
	case XTS_LINK_CAUGHT_UP: return "XTS_LINK_CAUGHT_UP";
	case XTS_LINK_REPLACED: return "XTS_LINK_REPLACED";
	case XTS_LINK_OVER: return "XTS_LINK_OVER";
	case XTS_LINK_HEADED: return "XTS_LINK_HEADED";
	case XTS_LINK_PROBE: return "XTS_LINK_PROBE";
	case XTS_CMD_BIND: return "XTS_CMD_BIND";
	case XTS_LINK_PART: return "XTS_LINK_PART";
	case XTS_LINK_ARQ: return "XTS_LINK_ARQ";
	case XTS_REPLY_BIND_ACK: return "XTS_REPLY_BIND_ACK";
	case XTS_CMD_SETSOCKOPT: return "XTS_CMD_SETSOCKOPT";
	case XTS_CMD_GETSOCKOPT: return "XTS_CMD_GETSOCKOPT";
	case XTS_REPLY_SOCKOPT_ACK: return "XTS_REPLY_SOCKOPT_ACK";
	case XTS_CMD_IOCTL: return "XTS_CMD_IOCTL";
	case XTS_REPLY_IOCTL_ACK: return "XTS_REPLY_IOCTL_ACK";
	case XTS_CMD_SHARE: return "XTS_CMD_SHARE";
	case XTS_REPLY_SHARE_ACK: return "XTS_REPLY_SHARE_ACK";
	case XTS_CMD_PARK: return "XTS_CMD_PARK";
	case XTS_REPLY_PARK_ACK: return "XTS_REPLY_PARK_ACK";
	case XTS_CMD_CLAIM: return "XTS_CMD_CLAIM";
	case XTS_REPLY_CLAIM_ACK: return "XTS_REPLY_CLAIM_ACK";
	case XTS_CMD_SEND_PDU: return "XTS_CMD_SEND_PDU";
	case XTS_REPLY_RECV_PDU: return "XTS_REPLY_RECV_PDU";
	case XTS_CMD_GIVE_BACK: return "XTS_CMD_GIVE_BACK";
	case XTS_RELAY_CARRIED: return "XTS_RELAY_CARRIED";
	case XTS_CMD_TAKE: return "XTS_CMD_TAKE";
	case XTS_REPLY_TAKE_ACK: return "XTS_REPLY_TAKE_ACK";
	case XTS_REPLY_YIELD: return "XTS_REPLY_YIELD";
	case XTS_REPLY_GATHERED: return "XTS_REPLY_GATHERED";
	case XTS_CMD_RETURN: return "XTS_CMD_RETURN";
	case XTS_CMD_CANCEL: return "XTS_CMD_CANCEL";
	case XTS_REPLY_MOVE: return "XTS_REPLY_MOVE";
	case XTS_CMD_MOVE_ACK: return "XTS_CMD_MOVE_ACK";
	case XTS_CMD_RESUME: return "XTS_CMD_RESUME";
	case XTS_CMD_SHUT_LISTENER: return "XTS_CMD_SHUT_LISTENER";
	case XTS_REPLY_SHUT_LISTENER_ACK: return "XTS_REPLY_SHUT_LISTENER_ACK";
	case XTS_REPLY_LISTENING: return "XTS_REPLY_LISTENING";
	case XTS_CMD_OPEN_DATAGRAM: return "XTS_CMD_OPEN_DATAGRAM";
	case XTS_REPLY_OPEN_DATAGRAM_ACK: return "XTS_REPLY_OPEN_DATAGRAM_ACK";
	case XTS_CMD_CONNECT_DATAGRAM: return "XTS_CMD_CONNECT_DATAGRAM";
	case XTS_REPLY_CONNECT_DATAGRAM_ACK: return "XTS_REPLY_CONNECT_DATAGRAM_ACK";
	case XTS_CMD_SEND_DATAGRAMS: return "XTS_CMD_SEND_DATAGRAMS";
	case XTS_REPLY_RECV_DATAGRAMS: return "XTS_REPLY_RECV_DATAGRAMS";
	case XTS_CMD_RETURN_DATAGRAMS: return "XTS_CMD_RETURN_DATAGRAMS";
	case XTS_CMD_QUERY_NAME: return "XTS_CMD_QUERY_NAME";
	case XTS_REPLY_NAME_ACK: return "XTS_REPLY_NAME_ACK";
	default: return "unknown";
	}
}

#endif /* __bpf__ */

#endif
