/* Generated from messages/xts_messages/table.py by `python -m xts_messages.generate`. Do not edit. */
#ifndef XTS_WIRE_H
#define XTS_WIRE_H

#include <endian.h>
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define XTS_WIRE_VERSION 1u
#define XTS_ETHERTYPE 0x855Bu
#define XTS_ETH_BYTES 14u
#define XTS_HEAD_BYTES 24u
#define XTS_ETH_MIN_BYTES 60u
#define XTS_FRAME_BYTES_MAX 61440u
#define XTS_FRAME_BYTES_SINGLE 3840u
#define XTS_FRAME_WINDOW_MAX 128u
#define XTS_FRAME_WINDOW_MIN 4u
#define XTS_CONTROL_RESERVE 32u
#define XTS_CREDITS_MAX 1073741824u

enum xts_msg_type {
	XTS_CMD_CONNECT = 1, /* host: start a connection */
	XTS_REPLY_CONNECT_ACK = 2, /* proxy: the connection is established, or error says why not */
	XTS_CMD_LISTEN = 3, /* host: start a listener; each post credit is one connection of the backlog */
	XTS_REPLY_LISTEN_ACK = 4, /* proxy: the listener has started, or error says why not */
	XTS_REPLY_NEWCONN = 5, /* proxy: a listener has a new connection; takes one of its post credits */
	XTS_CMD_NEWCONN_ACK = 6, /* host: the new connection has an XTS socket; an error refuses it (reset) */
	XTS_CMD_SEND = 7, /* host: data, post credits, and the ways of closing; length 0 is a pure credit advertisement. On a listener, post_credits returns accepted connections */
	XTS_REPLY_RECV = 8, /* proxy: received data, post credits, end of stream, failure, end of close */
	XTS_LINK_HELLO = 16, /* host: opens the link; resets whatever an earlier epoch left */
	XTS_LINK_HELLO_ACK = 17, /* proxy: the link is up with these values, or error refuses it */
	XTS_LINK_FRAME_ACK = 18, /* both: frame_ack, when nothing else is there to carry it */
	XTS_LINK_PING = 19, /* both: answer me */
	XTS_LINK_PONG = 20, /* both: answer to a ping */
	XTS_LINK_GOODBYE = 21, /* both: this epoch has ended; error says why (0: orderly) */
	XTS_CMD_BIND = 32, /* host: bind(2) */
	XTS_REPLY_BIND_ACK = 33, /* proxy: answer to bind */
	XTS_CMD_SETSOCKOPT = 34, /* host: setsockopt(2), against the proxy's allow-list */
	XTS_CMD_GETSOCKOPT = 35, /* host: getsockopt(2); the payload is the value passed in, for options that read it */
	XTS_REPLY_SOCKOPT_ACK = 36, /* proxy: answer to either; the payload is the option's value */
	XTS_CMD_IOCTL = 37, /* host: ioctl(2); ULP push and end of peek mode later */
	XTS_REPLY_IOCTL_ACK = 38, /* proxy: answer to ioctl; the payload is its result */
};

#define XTS_FLAG_FIN 0x01u /* no more data from the host: half-close (shutdown SHUT_WR) */
#define XTS_FLAG_CLOSE 0x02u /* the host has closed the socket; the proxy confirms with CLOSED */
#define XTS_FLAG_ABORT 0x04u /* with CLOSE: reset the connection, drop what is not sent (SO_LINGER 0, unread data) */
#define XTS_FLAG_LINGER 0x08u /* with CLOSE: confirm only when all data is acknowledged by the TCP peer */
#define XTS_FLAG_MORE 0x10u /* more data follows at once (MSG_MORE) */
#define XTS_FLAG_EOS 0x20u /* end of stream: the TCP peer has sent FIN */
#define XTS_FLAG_RESET 0x40u /* the connection has failed; error says how */
#define XTS_FLAG_CLOSED 0x80u /* answer to CLOSE: both identifiers are free */

static inline uint8_t xts_get8(const uint8_t *p) { return *p; }
static inline uint16_t xts_get16(const uint8_t *p) { uint16_t v; memcpy(&v, p, sizeof v); return be16toh(v); }
static inline uint32_t xts_get32(const uint8_t *p) { uint32_t v; memcpy(&v, p, sizeof v); return be32toh(v); }
static inline uint64_t xts_get64(const uint8_t *p) { uint64_t v; memcpy(&v, p, sizeof v); return be64toh(v); }
static inline void xts_put8(uint8_t *p, uint8_t v) { *p = v; }
static inline void xts_put16(uint8_t *p, uint16_t v) { v = htobe16(v); memcpy(p, &v, sizeof v); }
static inline void xts_put32(uint8_t *p, uint32_t v) { v = htobe32(v); memcpy(p, &v, sizeof v); }
static inline void xts_put64(uint8_t *p, uint64_t v) { v = htobe64(v); memcpy(p, &v, sizeof v); }

/* An address and port; IPv4 in the first four bytes of address. 24 bytes on the wire. */
struct xts_endpoint {
	uint16_t port;       /* host order */
	uint8_t ip_version;  /* 4, 6, or 0 for none */
	uint32_t scope_id;
	uint8_t address[16];
};

static inline void xts_endpoint_get(struct xts_endpoint *e, const uint8_t *p)
{
	e->port = xts_get16(p);
	e->ip_version = xts_get8(p + 2);
	e->scope_id = xts_get32(p + 4);
	memcpy(e->address, p + 8, 16);
}

static inline void xts_endpoint_put(uint8_t *p, const struct xts_endpoint *e)
{
	xts_put16(p, e->port);
	xts_put8(p + 2, e->ip_version);
	xts_put8(p + 3, 0);
	xts_put32(p + 4, e->scope_id);
	memcpy(p + 8, e->address, 16);
}

/* What every message begins with, after the Ethernet header. */
struct xts_head {
	uint8_t type;
	uint8_t seqno;
	uint8_t frame_ack; /* frames whose buffers the sender has recycled, modulo 256 */
	uint8_t flags;     /* XTS_FLAG_* */
	uint16_t error;    /* Linux errno, 0 for none */
	uint32_t id;       /* the target's identifier */
};

/* frame points at the Ethernet header. Returns 0, or -EBADMSG when it is too short. */
static inline int xts_head_decode(struct xts_head *h, const void *frame, size_t frame_bytes)
{
	const uint8_t *p = (const uint8_t *)frame;

	if (frame_bytes < XTS_HEAD_BYTES)
		return -EBADMSG;
	h->type = xts_get8(p + 14);
	h->seqno = xts_get8(p + 15);
	h->frame_ack = xts_get8(p + 16);
	h->flags = xts_get8(p + 17);
	h->error = xts_get16(p + 18);
	h->id = xts_get32(p + 20);
	return 0;
}

/* Writes type, flags, error and id; the link fills in the Ethernet header, seqno and frame_ack (xts_link_seal). */
static inline void xts_head_encode(void *frame, uint8_t type, uint8_t flags, uint16_t error, uint32_t id)
{
	uint8_t *p = (uint8_t *)frame;

	xts_put8(p + 14, type);
	xts_put8(p + 17, flags);
	xts_put16(p + 18, error);
	xts_put32(p + 20, id);
}

/* XTS_CMD_CONNECT: start a connection. id: the proxy's identifier, or 0: create the socket. */
#define XTS_CONNECT_BYTES 60u
struct xts_connect {
	uint32_t xts_socket; /* the host's identifier of this socket (id) */
	uint32_t post_credits; /* post credits granted with this message (bytes) */
	uint32_t domain; /* 4 or 6: the family of the socket, should the proxy have to create it */
	struct xts_endpoint peer; /* address of the TCP peer */
};

static inline int xts_connect_decode(struct xts_connect *m, const void *frame, size_t frame_bytes)
{
	const uint8_t *p = (const uint8_t *)frame;

	if (frame_bytes < XTS_CONNECT_BYTES)
		return -EBADMSG;
	m->xts_socket = xts_get32(p + 24);
	m->post_credits = xts_get32(p + 28);
	m->domain = xts_get32(p + 32);
	xts_endpoint_get(&m->peer, p + 36);
	if (m->post_credits > 1073741824u)
		return -EBADMSG;
	if (m->domain > 6u)
		return -EBADMSG;
	if (m->peer.ip_version != 0 && m->peer.ip_version != 4 && m->peer.ip_version != 6)
		return -EBADMSG;
	return 0;
}

static inline void xts_connect_encode(void *frame, const struct xts_connect *m)
{
	uint8_t *p = (uint8_t *)frame;

	xts_put32(p + 24, m->xts_socket);
	xts_put32(p + 28, m->post_credits);
	xts_put32(p + 32, m->domain);
	xts_endpoint_put(p + 36, &m->peer);
}
_Static_assert(60u == XTS_CONNECT_BYTES, "connect: table and layout disagree");

/* XTS_REPLY_CONNECT_ACK: the connection is established, or error says why not. id: XTS socket. */
#define XTS_CONNECT_ACK_BYTES 80u
struct xts_connect_ack {
	uint32_t proxy_id; /* the proxy's identifier of this socket (id) */
	uint32_t post_credits; /* post credits granted with this message (bytes) */
	struct xts_endpoint local; /* local address of the TCP socket */
	struct xts_endpoint peer; /* address of the TCP peer */
};

static inline int xts_connect_ack_decode(struct xts_connect_ack *m, const void *frame, size_t frame_bytes)
{
	const uint8_t *p = (const uint8_t *)frame;

	if (frame_bytes < XTS_CONNECT_ACK_BYTES)
		return -EBADMSG;
	m->proxy_id = xts_get32(p + 24);
	m->post_credits = xts_get32(p + 28);
	xts_endpoint_get(&m->local, p + 32);
	xts_endpoint_get(&m->peer, p + 56);
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

	xts_put32(p + 24, m->proxy_id);
	xts_put32(p + 28, m->post_credits);
	xts_endpoint_put(p + 32, &m->local);
	xts_endpoint_put(p + 56, &m->peer);
}
_Static_assert(80u == XTS_CONNECT_ACK_BYTES, "connect_ack: table and layout disagree");

/* XTS_CMD_LISTEN: start a listener; each post credit is one connection of the backlog. id: the proxy's identifier, or 0: create the socket. */
#define XTS_LISTEN_BYTES 44u
struct xts_listen {
	uint32_t xts_socket; /* the host's identifier of this socket (id) */
	uint32_t token; /* repeated in the reply */
	uint32_t post_credits; /* connections that may wait for accept (connections) */
	uint32_t domain; /* 4 or 6: the family of the socket, should the proxy have to create it */
	uint32_t backlog; /* as in listen(2) (connections) */
};

static inline int xts_listen_decode(struct xts_listen *m, const void *frame, size_t frame_bytes)
{
	const uint8_t *p = (const uint8_t *)frame;

	if (frame_bytes < XTS_LISTEN_BYTES)
		return -EBADMSG;
	m->xts_socket = xts_get32(p + 24);
	m->token = xts_get32(p + 28);
	m->post_credits = xts_get32(p + 32);
	m->domain = xts_get32(p + 36);
	m->backlog = xts_get32(p + 40);
	if (m->post_credits > 1073741824u)
		return -EBADMSG;
	if (m->domain > 6u)
		return -EBADMSG;
	return 0;
}

static inline void xts_listen_encode(void *frame, const struct xts_listen *m)
{
	uint8_t *p = (uint8_t *)frame;

	xts_put32(p + 24, m->xts_socket);
	xts_put32(p + 28, m->token);
	xts_put32(p + 32, m->post_credits);
	xts_put32(p + 36, m->domain);
	xts_put32(p + 40, m->backlog);
}
_Static_assert(44u == XTS_LISTEN_BYTES, "listen: table and layout disagree");

/* XTS_REPLY_LISTEN_ACK: the listener has started, or error says why not. id: XTS socket. */
#define XTS_LISTEN_ACK_BYTES 56u
struct xts_listen_ack {
	uint32_t proxy_id; /* the proxy's identifier of this socket (id) */
	uint32_t token; /* repeated in the reply */
	struct xts_endpoint local; /* local address of the TCP socket */
};

static inline int xts_listen_ack_decode(struct xts_listen_ack *m, const void *frame, size_t frame_bytes)
{
	const uint8_t *p = (const uint8_t *)frame;

	if (frame_bytes < XTS_LISTEN_ACK_BYTES)
		return -EBADMSG;
	m->proxy_id = xts_get32(p + 24);
	m->token = xts_get32(p + 28);
	xts_endpoint_get(&m->local, p + 32);
	if (m->local.ip_version != 0 && m->local.ip_version != 4 && m->local.ip_version != 6)
		return -EBADMSG;
	return 0;
}

static inline void xts_listen_ack_encode(void *frame, const struct xts_listen_ack *m)
{
	uint8_t *p = (uint8_t *)frame;

	xts_put32(p + 24, m->proxy_id);
	xts_put32(p + 28, m->token);
	xts_endpoint_put(p + 32, &m->local);
}
_Static_assert(56u == XTS_LISTEN_ACK_BYTES, "listen_ack: table and layout disagree");

/* XTS_REPLY_NEWCONN: a listener has a new connection; takes one of its post credits. id: XTS socket of the listener. */
#define XTS_NEWCONN_BYTES 80u
struct xts_newconn {
	uint32_t proxy_id; /* the proxy's identifier of this socket (id) */
	uint32_t post_credits; /* post credits granted with this message (bytes) */
	struct xts_endpoint local; /* local address of the TCP socket */
	struct xts_endpoint peer; /* address of the TCP peer */
};

static inline int xts_newconn_decode(struct xts_newconn *m, const void *frame, size_t frame_bytes)
{
	const uint8_t *p = (const uint8_t *)frame;

	if (frame_bytes < XTS_NEWCONN_BYTES)
		return -EBADMSG;
	m->proxy_id = xts_get32(p + 24);
	m->post_credits = xts_get32(p + 28);
	xts_endpoint_get(&m->local, p + 32);
	xts_endpoint_get(&m->peer, p + 56);
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

	xts_put32(p + 24, m->proxy_id);
	xts_put32(p + 28, m->post_credits);
	xts_endpoint_put(p + 32, &m->local);
	xts_endpoint_put(p + 56, &m->peer);
}
_Static_assert(80u == XTS_NEWCONN_BYTES, "newconn: table and layout disagree");

/* XTS_CMD_NEWCONN_ACK: the new connection has an XTS socket; an error refuses it (reset). id: proxy's identifier of the new connection. */
#define XTS_NEWCONN_ACK_BYTES 32u
struct xts_newconn_ack {
	uint32_t xts_socket; /* the host's identifier of this socket (id) */
	uint32_t post_credits; /* post credits granted with this message (bytes) */
};

static inline int xts_newconn_ack_decode(struct xts_newconn_ack *m, const void *frame, size_t frame_bytes)
{
	const uint8_t *p = (const uint8_t *)frame;

	if (frame_bytes < XTS_NEWCONN_ACK_BYTES)
		return -EBADMSG;
	m->xts_socket = xts_get32(p + 24);
	m->post_credits = xts_get32(p + 28);
	if (m->post_credits > 1073741824u)
		return -EBADMSG;
	return 0;
}

static inline void xts_newconn_ack_encode(void *frame, const struct xts_newconn_ack *m)
{
	uint8_t *p = (uint8_t *)frame;

	xts_put32(p + 24, m->xts_socket);
	xts_put32(p + 28, m->post_credits);
}
_Static_assert(32u == XTS_NEWCONN_ACK_BYTES, "newconn_ack: table and layout disagree");

/* XTS_CMD_SEND: data, post credits, and the ways of closing; length 0 is a pure credit advertisement. On a listener, post_credits returns accepted connections. id: proxy's identifier. */
#define XTS_SEND_BYTES 32u
struct xts_send {
	uint32_t post_credits; /* post credits granted with this message (bytes) */
	uint32_t length; /* bytes of payload (bytes) */
};

static inline int xts_send_decode(struct xts_send *m, const void *frame, size_t frame_bytes)
{
	const uint8_t *p = (const uint8_t *)frame;

	if (frame_bytes < XTS_SEND_BYTES)
		return -EBADMSG;
	m->post_credits = xts_get32(p + 24);
	m->length = xts_get32(p + 28);
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

	xts_put32(p + 24, m->post_credits);
	xts_put32(p + 28, m->length);
}
_Static_assert(32u == XTS_SEND_BYTES, "send: table and layout disagree");

/* XTS_REPLY_RECV: received data, post credits, end of stream, failure, end of close. id: XTS socket. */
#define XTS_RECV_BYTES 32u
struct xts_recv {
	uint32_t post_credits; /* post credits granted with this message (bytes) */
	uint32_t length; /* bytes of payload (bytes) */
};

static inline int xts_recv_decode(struct xts_recv *m, const void *frame, size_t frame_bytes)
{
	const uint8_t *p = (const uint8_t *)frame;

	if (frame_bytes < XTS_RECV_BYTES)
		return -EBADMSG;
	m->post_credits = xts_get32(p + 24);
	m->length = xts_get32(p + 28);
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

	xts_put32(p + 24, m->post_credits);
	xts_put32(p + 28, m->length);
}
_Static_assert(32u == XTS_RECV_BYTES, "recv: table and layout disagree");

/* XTS_LINK_HELLO: opens the link; resets whatever an earlier epoch left. id: unused. */
#define XTS_HELLO_BYTES 60u
struct xts_hello {
	uint16_t version; /* wire version */
	uint16_t frame_window; /* largest window wanted (frames) */
	uint32_t largest_message; /* largest frame the host can receive (bytes) */
	uint64_t features; /* feature bits offered */
	uint64_t required; /* feature bits the host cannot do without */
	uint64_t epoch; /* random number of this attachment */
	uint32_t pid; /* the host process, for the operator's eyes only */
};

static inline int xts_hello_decode(struct xts_hello *m, const void *frame, size_t frame_bytes)
{
	const uint8_t *p = (const uint8_t *)frame;

	if (frame_bytes < XTS_HELLO_BYTES)
		return -EBADMSG;
	m->version = xts_get16(p + 24);
	m->frame_window = xts_get16(p + 26);
	m->largest_message = xts_get32(p + 28);
	m->features = xts_get64(p + 32);
	m->required = xts_get64(p + 40);
	m->epoch = xts_get64(p + 48);
	m->pid = xts_get32(p + 56);
	if (m->frame_window > 128u)
		return -EBADMSG;
	if (m->largest_message > 61440u)
		return -EBADMSG;
	return 0;
}

static inline void xts_hello_encode(void *frame, const struct xts_hello *m)
{
	uint8_t *p = (uint8_t *)frame;

	xts_put16(p + 24, m->version);
	xts_put16(p + 26, m->frame_window);
	xts_put32(p + 28, m->largest_message);
	xts_put64(p + 32, m->features);
	xts_put64(p + 40, m->required);
	xts_put64(p + 48, m->epoch);
	xts_put32(p + 56, m->pid);
}
_Static_assert(60u == XTS_HELLO_BYTES, "hello: table and layout disagree");

/* XTS_LINK_HELLO_ACK: the link is up with these values, or error refuses it. id: unused. */
#define XTS_HELLO_ACK_BYTES 52u
struct xts_hello_ack {
	uint16_t version; /* wire version spoken */
	uint16_t frame_window; /* window in force, each way (frames) */
	uint32_t largest_message; /* largest frame in force, each way (bytes) */
	uint64_t features; /* feature bits in force */
	uint64_t epoch; /* repeats the HELLO's */
	uint32_t sockets_max; /* sockets this host may have (sockets) */
};

static inline int xts_hello_ack_decode(struct xts_hello_ack *m, const void *frame, size_t frame_bytes)
{
	const uint8_t *p = (const uint8_t *)frame;

	if (frame_bytes < XTS_HELLO_ACK_BYTES)
		return -EBADMSG;
	m->version = xts_get16(p + 24);
	m->frame_window = xts_get16(p + 26);
	m->largest_message = xts_get32(p + 28);
	m->features = xts_get64(p + 32);
	m->epoch = xts_get64(p + 40);
	m->sockets_max = xts_get32(p + 48);
	if (m->frame_window > 128u)
		return -EBADMSG;
	if (m->largest_message > 61440u)
		return -EBADMSG;
	return 0;
}

static inline void xts_hello_ack_encode(void *frame, const struct xts_hello_ack *m)
{
	uint8_t *p = (uint8_t *)frame;

	xts_put16(p + 24, m->version);
	xts_put16(p + 26, m->frame_window);
	xts_put32(p + 28, m->largest_message);
	xts_put64(p + 32, m->features);
	xts_put64(p + 40, m->epoch);
	xts_put32(p + 48, m->sockets_max);
}
_Static_assert(52u == XTS_HELLO_ACK_BYTES, "hello_ack: table and layout disagree");

/* XTS_LINK_FRAME_ACK: frame_ack, when nothing else is there to carry it. id: unused. */
#define XTS_FRAME_ACK_BYTES 24u

/* XTS_LINK_PING: answer me. id: unused. */
#define XTS_PING_BYTES 32u
struct xts_ping {
	uint64_t token; /* repeated in the answer */
};

static inline int xts_ping_decode(struct xts_ping *m, const void *frame, size_t frame_bytes)
{
	const uint8_t *p = (const uint8_t *)frame;

	if (frame_bytes < XTS_PING_BYTES)
		return -EBADMSG;
	m->token = xts_get64(p + 24);
	return 0;
}

static inline void xts_ping_encode(void *frame, const struct xts_ping *m)
{
	uint8_t *p = (uint8_t *)frame;

	xts_put64(p + 24, m->token);
}
_Static_assert(32u == XTS_PING_BYTES, "ping: table and layout disagree");

/* XTS_LINK_PONG: answer to a ping. id: unused. */
#define XTS_PONG_BYTES 32u
struct xts_pong {
	uint64_t token; /* the ping's */
};

static inline int xts_pong_decode(struct xts_pong *m, const void *frame, size_t frame_bytes)
{
	const uint8_t *p = (const uint8_t *)frame;

	if (frame_bytes < XTS_PONG_BYTES)
		return -EBADMSG;
	m->token = xts_get64(p + 24);
	return 0;
}

static inline void xts_pong_encode(void *frame, const struct xts_pong *m)
{
	uint8_t *p = (uint8_t *)frame;

	xts_put64(p + 24, m->token);
}
_Static_assert(32u == XTS_PONG_BYTES, "pong: table and layout disagree");

/* XTS_LINK_GOODBYE: this epoch has ended; error says why (0: orderly). id: unused. */
#define XTS_GOODBYE_BYTES 32u
struct xts_goodbye {
	uint64_t epoch; /* the epoch that ends */
};

static inline int xts_goodbye_decode(struct xts_goodbye *m, const void *frame, size_t frame_bytes)
{
	const uint8_t *p = (const uint8_t *)frame;

	if (frame_bytes < XTS_GOODBYE_BYTES)
		return -EBADMSG;
	m->epoch = xts_get64(p + 24);
	return 0;
}

static inline void xts_goodbye_encode(void *frame, const struct xts_goodbye *m)
{
	uint8_t *p = (uint8_t *)frame;

	xts_put64(p + 24, m->epoch);
}
_Static_assert(32u == XTS_GOODBYE_BYTES, "goodbye: table and layout disagree");

/* XTS_CMD_BIND: bind(2). id: the proxy's identifier, or 0: create the socket. */
#define XTS_BIND_BYTES 60u
struct xts_bind {
	uint32_t xts_socket; /* the host's identifier of this socket (id) */
	uint32_t token; /* repeated in the reply */
	uint32_t domain; /* 4 or 6: the family of the socket, should the proxy have to create it */
	struct xts_endpoint local; /* local address of the TCP socket */
};

static inline int xts_bind_decode(struct xts_bind *m, const void *frame, size_t frame_bytes)
{
	const uint8_t *p = (const uint8_t *)frame;

	if (frame_bytes < XTS_BIND_BYTES)
		return -EBADMSG;
	m->xts_socket = xts_get32(p + 24);
	m->token = xts_get32(p + 28);
	m->domain = xts_get32(p + 32);
	xts_endpoint_get(&m->local, p + 36);
	if (m->domain > 6u)
		return -EBADMSG;
	if (m->local.ip_version != 0 && m->local.ip_version != 4 && m->local.ip_version != 6)
		return -EBADMSG;
	return 0;
}

static inline void xts_bind_encode(void *frame, const struct xts_bind *m)
{
	uint8_t *p = (uint8_t *)frame;

	xts_put32(p + 24, m->xts_socket);
	xts_put32(p + 28, m->token);
	xts_put32(p + 32, m->domain);
	xts_endpoint_put(p + 36, &m->local);
}
_Static_assert(60u == XTS_BIND_BYTES, "bind: table and layout disagree");

/* XTS_REPLY_BIND_ACK: answer to bind. id: XTS socket. */
#define XTS_BIND_ACK_BYTES 56u
struct xts_bind_ack {
	uint32_t proxy_id; /* the proxy's identifier of this socket (id) */
	uint32_t token; /* repeated in the reply */
	struct xts_endpoint local; /* local address of the TCP socket */
};

static inline int xts_bind_ack_decode(struct xts_bind_ack *m, const void *frame, size_t frame_bytes)
{
	const uint8_t *p = (const uint8_t *)frame;

	if (frame_bytes < XTS_BIND_ACK_BYTES)
		return -EBADMSG;
	m->proxy_id = xts_get32(p + 24);
	m->token = xts_get32(p + 28);
	xts_endpoint_get(&m->local, p + 32);
	if (m->local.ip_version != 0 && m->local.ip_version != 4 && m->local.ip_version != 6)
		return -EBADMSG;
	return 0;
}

static inline void xts_bind_ack_encode(void *frame, const struct xts_bind_ack *m)
{
	uint8_t *p = (uint8_t *)frame;

	xts_put32(p + 24, m->proxy_id);
	xts_put32(p + 28, m->token);
	xts_endpoint_put(p + 32, &m->local);
}
_Static_assert(56u == XTS_BIND_ACK_BYTES, "bind_ack: table and layout disagree");

/* XTS_CMD_SETSOCKOPT: setsockopt(2), against the proxy's allow-list. id: the proxy's identifier, or 0: create the socket. */
#define XTS_SETSOCKOPT_BYTES 48u
struct xts_setsockopt {
	uint32_t xts_socket; /* the host's identifier of this socket (id) */
	uint32_t token; /* repeated in the reply */
	uint32_t domain; /* 4 or 6: the family of the socket, should the proxy have to create it */
	int32_t level; /* as in setsockopt(2) */
	int32_t option; /* as in setsockopt(2) */
	uint32_t length; /* bytes of payload (bytes) */
};

static inline int xts_setsockopt_decode(struct xts_setsockopt *m, const void *frame, size_t frame_bytes)
{
	const uint8_t *p = (const uint8_t *)frame;

	if (frame_bytes < XTS_SETSOCKOPT_BYTES)
		return -EBADMSG;
	m->xts_socket = xts_get32(p + 24);
	m->token = xts_get32(p + 28);
	m->domain = xts_get32(p + 32);
	m->level = (int32_t)xts_get32(p + 36);
	m->option = (int32_t)xts_get32(p + 40);
	m->length = xts_get32(p + 44);
	if (m->domain > 6u)
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

	xts_put32(p + 24, m->xts_socket);
	xts_put32(p + 28, m->token);
	xts_put32(p + 32, m->domain);
	xts_put32(p + 36, (uint32_t)m->level);
	xts_put32(p + 40, (uint32_t)m->option);
	xts_put32(p + 44, m->length);
}
_Static_assert(48u == XTS_SETSOCKOPT_BYTES, "setsockopt: table and layout disagree");

/* XTS_CMD_GETSOCKOPT: getsockopt(2); the payload is the value passed in, for options that read it. id: the proxy's identifier, or 0: create the socket. */
#define XTS_GETSOCKOPT_BYTES 48u
struct xts_getsockopt {
	uint32_t xts_socket; /* the host's identifier of this socket (id) */
	uint32_t token; /* repeated in the reply */
	uint32_t domain; /* 4 or 6: the family of the socket, should the proxy have to create it */
	int32_t level; /* as in getsockopt(2) */
	int32_t option; /* as in getsockopt(2) */
	uint32_t length; /* bytes of payload (bytes) */
};

static inline int xts_getsockopt_decode(struct xts_getsockopt *m, const void *frame, size_t frame_bytes)
{
	const uint8_t *p = (const uint8_t *)frame;

	if (frame_bytes < XTS_GETSOCKOPT_BYTES)
		return -EBADMSG;
	m->xts_socket = xts_get32(p + 24);
	m->token = xts_get32(p + 28);
	m->domain = xts_get32(p + 32);
	m->level = (int32_t)xts_get32(p + 36);
	m->option = (int32_t)xts_get32(p + 40);
	m->length = xts_get32(p + 44);
	if (m->domain > 6u)
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

	xts_put32(p + 24, m->xts_socket);
	xts_put32(p + 28, m->token);
	xts_put32(p + 32, m->domain);
	xts_put32(p + 36, (uint32_t)m->level);
	xts_put32(p + 40, (uint32_t)m->option);
	xts_put32(p + 44, m->length);
}
_Static_assert(48u == XTS_GETSOCKOPT_BYTES, "getsockopt: table and layout disagree");

/* XTS_REPLY_SOCKOPT_ACK: answer to either; the payload is the option's value. id: XTS socket. */
#define XTS_SOCKOPT_ACK_BYTES 36u
struct xts_sockopt_ack {
	uint32_t proxy_id; /* the proxy's identifier of this socket (id) */
	uint32_t token; /* repeated in the reply */
	uint32_t length; /* bytes of payload (bytes) */
};

static inline int xts_sockopt_ack_decode(struct xts_sockopt_ack *m, const void *frame, size_t frame_bytes)
{
	const uint8_t *p = (const uint8_t *)frame;

	if (frame_bytes < XTS_SOCKOPT_ACK_BYTES)
		return -EBADMSG;
	m->proxy_id = xts_get32(p + 24);
	m->token = xts_get32(p + 28);
	m->length = xts_get32(p + 32);
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

	xts_put32(p + 24, m->proxy_id);
	xts_put32(p + 28, m->token);
	xts_put32(p + 32, m->length);
}
_Static_assert(36u == XTS_SOCKOPT_ACK_BYTES, "sockopt_ack: table and layout disagree");

/* XTS_CMD_IOCTL: ioctl(2); ULP push and end of peek mode later. id: the proxy's identifier, or 0: create the socket. */
#define XTS_IOCTL_BYTES 44u
struct xts_ioctl {
	uint32_t xts_socket; /* the host's identifier of this socket (id) */
	uint32_t token; /* repeated in the reply */
	uint32_t domain; /* 4 or 6: the family of the socket, should the proxy have to create it */
	uint32_t request; /* as in ioctl(2) */
	uint32_t length; /* bytes of payload (bytes) */
};

static inline int xts_ioctl_decode(struct xts_ioctl *m, const void *frame, size_t frame_bytes)
{
	const uint8_t *p = (const uint8_t *)frame;

	if (frame_bytes < XTS_IOCTL_BYTES)
		return -EBADMSG;
	m->xts_socket = xts_get32(p + 24);
	m->token = xts_get32(p + 28);
	m->domain = xts_get32(p + 32);
	m->request = xts_get32(p + 36);
	m->length = xts_get32(p + 40);
	if (m->domain > 6u)
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

	xts_put32(p + 24, m->xts_socket);
	xts_put32(p + 28, m->token);
	xts_put32(p + 32, m->domain);
	xts_put32(p + 36, m->request);
	xts_put32(p + 40, m->length);
}
_Static_assert(44u == XTS_IOCTL_BYTES, "ioctl: table and layout disagree");

/* XTS_REPLY_IOCTL_ACK: answer to ioctl; the payload is its result. id: XTS socket. */
#define XTS_IOCTL_ACK_BYTES 36u
struct xts_ioctl_ack {
	uint32_t proxy_id; /* the proxy's identifier of this socket (id) */
	uint32_t token; /* repeated in the reply */
	uint32_t length; /* bytes of payload (bytes) */
};

static inline int xts_ioctl_ack_decode(struct xts_ioctl_ack *m, const void *frame, size_t frame_bytes)
{
	const uint8_t *p = (const uint8_t *)frame;

	if (frame_bytes < XTS_IOCTL_ACK_BYTES)
		return -EBADMSG;
	m->proxy_id = xts_get32(p + 24);
	m->token = xts_get32(p + 28);
	m->length = xts_get32(p + 32);
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

	xts_put32(p + 24, m->proxy_id);
	xts_put32(p + 28, m->token);
	xts_put32(p + 32, m->length);
}
_Static_assert(36u == XTS_IOCTL_ACK_BYTES, "ioctl_ack: table and layout disagree");

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
	case XTS_CMD_BIND: return XTS_BIND_BYTES;
	case XTS_REPLY_BIND_ACK: return XTS_BIND_ACK_BYTES;
	case XTS_CMD_SETSOCKOPT: return XTS_SETSOCKOPT_BYTES;
	case XTS_CMD_GETSOCKOPT: return XTS_GETSOCKOPT_BYTES;
	case XTS_REPLY_SOCKOPT_ACK: return XTS_SOCKOPT_ACK_BYTES;
	case XTS_CMD_IOCTL: return XTS_IOCTL_BYTES;
	case XTS_REPLY_IOCTL_ACK: return XTS_IOCTL_ACK_BYTES;
	default: return 0;
	}
}

/* Does the type take a frame credit and a sequence number? */
static inline int xts_type_sequenced(uint8_t type)
{
	return type < 16 || type >= 32;
}

/* May the proxy send this type to the host? */
static inline int xts_type_to_host(uint8_t type)
{
	switch (type) {
	case XTS_REPLY_CONNECT_ACK:
	case XTS_REPLY_LISTEN_ACK:
	case XTS_REPLY_NEWCONN:
	case XTS_REPLY_RECV:
	case XTS_LINK_HELLO_ACK:
	case XTS_LINK_FRAME_ACK:
	case XTS_LINK_PING:
	case XTS_LINK_PONG:
	case XTS_LINK_GOODBYE:
	case XTS_REPLY_BIND_ACK:
	case XTS_REPLY_SOCKOPT_ACK:
	case XTS_REPLY_IOCTL_ACK:
		return 1;
	default:
		return 0;
	}
}

/* May the host send this type to the proxy? */
static inline int xts_type_to_proxy(uint8_t type)
{
	switch (type) {
	case XTS_CMD_CONNECT:
	case XTS_CMD_LISTEN:
	case XTS_CMD_NEWCONN_ACK:
	case XTS_CMD_SEND:
	case XTS_LINK_HELLO:
	case XTS_LINK_FRAME_ACK:
	case XTS_LINK_PING:
	case XTS_LINK_PONG:
	case XTS_LINK_GOODBYE:
	case XTS_CMD_BIND:
	case XTS_CMD_SETSOCKOPT:
	case XTS_CMD_GETSOCKOPT:
	case XTS_CMD_IOCTL:
		return 1;
	default:
		return 0;
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
	case XTS_CMD_BIND: return "XTS_CMD_BIND";
	case XTS_REPLY_BIND_ACK: return "XTS_REPLY_BIND_ACK";
	case XTS_CMD_SETSOCKOPT: return "XTS_CMD_SETSOCKOPT";
	case XTS_CMD_GETSOCKOPT: return "XTS_CMD_GETSOCKOPT";
	case XTS_REPLY_SOCKOPT_ACK: return "XTS_REPLY_SOCKOPT_ACK";
	case XTS_CMD_IOCTL: return "XTS_CMD_IOCTL";
	case XTS_REPLY_IOCTL_ACK: return "XTS_REPLY_IOCTL_ACK";
	default: return "unknown";
	}
}

#endif
