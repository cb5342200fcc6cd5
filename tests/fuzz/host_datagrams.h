/*
 * Datagram sockets of the host library: their calls, and messages for them that are mostly well-formed.
 */
#ifndef XTS_FUZZ_HOST_DATAGRAMS_H
#define XTS_FUZZ_HOST_DATAGRAMS_H

#include <arpa/inet.h>
#include <linux/filter.h>
#include <linux/net_tstamp.h>
#include <netinet/udp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "datagrams/datagrams.h"
#include "wire/datagram.h"
#include "host_proxy.h"

#define DATAGRAM_SOCKETS 4u
#define HELD_MAX 16u
#define PACKETS 4u

static int datagram_socket[DATAGRAM_SOCKETS];
static const struct xts_packet *packet_held[HELD_MAX]; /* by the program */
static unsigned packets_held;
static uint8_t verdict; /* of the program about the next ones */

/* --- the proxy ---------------------------------------------------------------------------------------------------- */

static struct xts_endpoint some_endpoint(uint8_t which)
{
	return (struct xts_endpoint){ .port = 7, .ip_version = 4, .address = { 198, 18, 0, which } };
}

/* The answers that are longer than others. Returns its bytes; 0: the message is no such call. */
static uint32_t answer_datagram(uint8_t *frame, uint8_t type, uint32_t id, const uint8_t *request)
{
	uint32_t token = xts_get32(request + 28);
	struct xts_open_datagram_ack opened = { .proxy_id = id ? id : ++scene.next_proxy_id,
						.token = token,
						.post_credits = XTS_DATAGRAM_WINDOW_DEFAULT,
						.local = some_endpoint(1) };
	struct xts_connect_datagram_ack connected = { .token = token, .local = some_endpoint(1) };
	uint32_t xts_socket = xts_get32(request + 24);

	switch (type) {
	case XTS_CMD_OPEN_DATAGRAM:
		xts_head_encode(frame, XTS_REPLY_OPEN_DATAGRAM_ACK, 0, 0, xts_socket);
		xts_open_datagram_ack_encode(frame, &opened);
		return XTS_OPEN_DATAGRAM_ACK_BYTES;
	case XTS_CMD_CONNECT_DATAGRAM:
		if (id % 2)
			connected.peer = some_endpoint(2);
		xts_head_encode(frame, XTS_REPLY_CONNECT_DATAGRAM_ACK, 0, 0, xts_socket);
		xts_connect_datagram_ack_encode(frame, &connected);
		return XTS_CONNECT_DATAGRAM_ACK_BYTES;
	case XTS_CMD_QUERY_NAME:
		token = xts_get32(request + 24);
		xts_head_encode(frame, XTS_REPLY_NAME_ACK, 0, token % 4u ? 0 : ETIMEDOUT, 0);
		xts_name_ack_encode(
			frame, &(struct xts_name_ack){ .token = token, .families = token % 4u, .length = token % 16u });
		return XTS_NAME_ACK_BYTES + token % 16u;
	default:
		return 0;
	}
}

static struct xts_datagram proxy_picks_datagram(struct input *in)
{
	uint8_t what = take(in);
	struct xts_datagram d = { .pktinfo = some_endpoint(1), .hop_limit = what, .traffic_class = what };

	d.controls = what & 0x10 ? take(in) & 0xfeu & ~(1u << XTS_DATAGRAM_ERROR) : 0;
	d.timestamp_ns = d.software_ns = UINT64_C(1700000000000000000) + what;
	d.record.endpoint = some_endpoint(what & 3);
	d.record.data_bytes = (uint16_t)(what & 1 ? take(in) : what & 2 ? pick_number(in) % 3000u : 0);
	d.record.segment_bytes = what & 4 && d.record.data_bytes ? take(in) : 0;
	if (what & 8) {
		d.controls = 1u << XTS_DATAGRAM_ERROR | (what & 0x40 ? 1u << XTS_DATAGRAM_STAMPING : 0);
		d.error.error = what & 0x40 ? ENOMSG : ECONNREFUSED;
		d.error.origin = what & 0x40 ? 4 : 2;
		d.error.info = d.error.data = take(in);
		d.error.offender = some_endpoint(3);
	}
	return d;
}

/* Records within the credits that the host has posted; the last one may go on in the next message. */
static uint32_t proxy_puts_records(const struct xts_sock *s, uint8_t *out, uint32_t room, struct input *in, bool *more)
{
	uint32_t missing = s->datagrams->missing ? s->datagrams->missing : s->datagrams->offer.missing;
	uint32_t at = missing < room ? missing : room, credits = s->grant.outstanding, count = take(in) % 24u;

	*more = at < missing;
	while (count-- && !*more) {
		struct xts_datagram d = proxy_picks_datagram(in);
		uint32_t head = xts_datagram_write(out + at, room - at, &d);

		if (!head || xts_datagram_credits(&d.record) > credits)
			break;
		credits -= xts_datagram_credits(&d.record);
		at += head;
		*more = d.record.data_bytes > room - at;
		at += *more ? room - at : d.record.data_bytes;
	}
	return at;
}

static void proxy_sends_datagrams(struct input *in, int number)
{
	static uint8_t frame[LARGEST];
	uint8_t how = take(in);
	struct xts_recv_datagrams m = { .post_credits = how & 1 ? take(in) : 0, .dropped = how };
	const struct xts_sock *s = socket_of(number);
	bool more = false;

	if (!scene.queue || !s || !s->datagrams || !xts_link_credits(&scene.link))
		return;
	memset(frame, 0, sizeof frame);
	if (how < 250) {
		m.length = proxy_puts_records(s, frame + XTS_RECV_DATAGRAMS_BYTES, LARGEST - XTS_RECV_DATAGRAMS_BYTES,
					      in, &more);
	} else {
		m.length = pick_number(in) % (LARGEST - XTS_RECV_DATAGRAMS_BYTES);
		for (uint32_t i = 0; i < m.length && i < 60; i++)
			frame[XTS_RECV_DATAGRAMS_BYTES + i] = take(in);
		more = how & 1;
	}
	xts_head_encode(frame, XTS_REPLY_RECV_DATAGRAMS, more ? XTS_FLAG_MORE : 0,
			!m.length && how & 2 ? ECONNREFUSED : 0, s->id);
	xts_recv_datagrams_encode(frame, &m);
	proxy_send(frame, XTS_RECV_DATAGRAMS_BYTES + m.length);
}

/* --- the program -------------------------------------------------------------------------------------------------- */

static enum xts_packet_verdict packet_came(const struct xts_packet *packet, void *context)
{
	(void)context;
	ENSURE(packet->data && packet->address_bytes <= sizeof(struct sockaddr_storage));
	if (verdict % 3 == XTS_PACKET_HOLD && packets_held < HELD_MAX) {
		packet_held[packets_held++] = packet;
		return XTS_PACKET_HOLD;
	}
	return verdict % 3 ? XTS_PACKET_RECV : XTS_PACKET_DROP;
}

static void packets_free(unsigned left)
{
	while (packets_held > left)
		xts_packet_free(packet_held[--packets_held]);
}

/* Options of datagram sockets, with a value of the input's choosing. */
static void datagram_option(struct input *in, int s)
{
	static const int option[][2] = {
		{ SOL_SOCKET, SO_RCVBUF },        { SOL_SOCKET, SO_TIMESTAMP },
		{ SOL_SOCKET, SO_TIMESTAMPNS },   { SOL_SOCKET, SO_TIMESTAMPING },
		{ SOL_SOCKET, SO_RXQ_OVFL },      { SOL_SOCKET, SO_BROADCAST },
		{ SOL_SOCKET, SO_SNDBUF },        { SOL_SOCKET, SO_ATTACH_FILTER },
		{ SOL_SOCKET, SO_DETACH_FILTER }, { SOL_SOCKET, SO_ERROR },
		{ SOL_SOCKET, SO_REUSEADDR },     { IPPROTO_IP, IP_PKTINFO },
		{ IPPROTO_IP, IP_RECVTTL },       { IPPROTO_IP, IP_RECVERR },
		{ IPPROTO_IP, IP_TOS },           { IPPROTO_IP, IP_ADD_MEMBERSHIP },
		{ IPPROTO_IP, IP_MULTICAST_TTL }, { IPPROTO_IPV6, 49 /* IPV6_RECVPKTINFO */ },
		{ IPPROTO_UDP, UDP_SEGMENT },     { IPPROTO_UDP, UDP_GRO },
		{ IPPROTO_UDP, UDP_CORK },        { SOL_XTS, SO_XTS_CLOCK },
	};
	uint8_t which = take(in);
	const int *o = option[which % (sizeof option / sizeof option[0])];
	struct sock_filter code[] = { { BPF_RET | BPF_K, 0, 0, 0xffff } };
	struct sock_fprog filter = { .len = 1, .filter = code };
	int value = (int)pick_number(in);
	struct ip_mreqn group = { .imr_multiaddr.s_addr = htonl(0xe0000100u + (uint8_t)value) };
	socklen_t length = sizeof value;
	struct sock_filter told[sizeof value]; /* SO_GET_FILTER, which is SO_ATTACH_FILTER, counts instructions */

	if (which >= 192)
		xts_getsockopt(s, o[0], o[1], told, &length);
	else if (o[1] == SO_ATTACH_FILTER && o[0] == SOL_SOCKET)
		xts_setsockopt(s, o[0], o[1], &filter, sizeof filter);
	else if (o[1] == IP_ADD_MEMBERSHIP && o[0] == IPPROTO_IP)
		xts_setsockopt(s, o[0], o[1], &group, sizeof group);
	else
		xts_setsockopt(s, o[0], o[1], &value, sizeof value);
}

/* A message to send or to receive with; the control data is the input's, as far as it is well-formed. */
struct program_message {
	struct sockaddr_in address;
	struct iovec iov[2];
	struct msghdr header;
	_Alignas(struct cmsghdr) uint8_t control[256];
};

static void set_control(struct program_message *m, struct input *in)
{
	static const int kind[][2] = { { IPPROTO_IP, IP_PKTINFO },
				       { IPPROTO_IP, IP_TTL },
				       { IPPROTO_IP, IP_TOS },
				       { IPPROTO_UDP, UDP_SEGMENT },
				       { SOL_SOCKET, SO_TIMESTAMPING } };
	struct cmsghdr *c = (struct cmsghdr *)(void *)m->control;
	uint8_t which = take(in);
	const int *k = kind[which % 5u];
	size_t bytes = which >= 250 ? which : k[1] == IP_PKTINFO ? sizeof(struct in_pktinfo) : which % 5u == 3 ? 2 : 4;

	memset(m->control, 0, sizeof m->control);
	c->cmsg_level = k[0];
	c->cmsg_type = k[1];
	c->cmsg_len = CMSG_LEN(bytes);
	*CMSG_DATA(c) = take(in);
	m->header.msg_controllen = CMSG_SPACE(bytes);
}

static void set_message(struct program_message *m, struct input *in, uint8_t how)
{
	static uint8_t buffer[70000];

	m->address = (struct sockaddr_in){ .sin_family = AF_INET,
					   .sin_port = htons(7),
					   .sin_addr.s_addr = htonl(0xC6120000u + (how & 3)) };
	m->iov[0] = (struct iovec){ buffer, how & 4 ? pick_number(in) % sizeof buffer : how };
	m->iov[1] = (struct iovec){ buffer, how & 8 ? 100 : 0 };
	m->header = (struct msghdr){ .msg_name = how & 16 ? &m->address : NULL,
				     .msg_namelen = how & 16 ? sizeof m->address : 0,
				     .msg_iov = m->iov,
				     .msg_iovlen = 2,
				     .msg_control = m->control,
				     .msg_controllen = sizeof m->control };
}

static void datagram_sends(struct input *in, int s)
{
	uint8_t how = take(in);
	struct program_message m[PACKETS];
	struct mmsghdr several[PACKETS];

	for (unsigned i = 0; i < PACKETS; i++) {
		set_message(&m[i], in, how);
		m[i].header.msg_controllen = 0;
		if (how & 32)
			set_control(&m[i], in);
		several[i] = (struct mmsghdr){ .msg_hdr = m[i].header };
		if (!(how & 64))
			break;
	}
	if (how & 64)
		xts_sendmmsg(s, several, PACKETS, MSG_DONTWAIT);
	else
		xts_sendmsg(s, &m[0].header, MSG_DONTWAIT | (how & 128 ? MSG_MORE : 0));
}

static void datagram_receives(struct input *in, int s)
{
	static const int flags[] = { 0, MSG_PEEK, MSG_TRUNC, MSG_ERRQUEUE, MSG_PEEK | MSG_TRUNC };
	uint8_t how = take(in), flag = take(in);
	struct program_message m[PACKETS];
	struct mmsghdr several[PACKETS];

	for (unsigned i = 0; i < PACKETS; i++) {
		set_message(&m[i], in, how | 16);
		several[i] = (struct mmsghdr){ .msg_hdr = m[i].header };
	}
	if (flag & 0x80)
		xts_recvmmsg(s, several, PACKETS, MSG_DONTWAIT, NULL);
	else
		xts_recvmsg(s, &m[0].header, MSG_DONTWAIT | flags[flag % 5u]);
}

static void datagram_addresses(struct input *in, int s)
{
	struct sockaddr_in address = { .sin_family = AF_INET,
				       .sin_port = htons(take(in)),
				       .sin_addr.s_addr = htonl(0xC6120001) };
	socklen_t length = sizeof address;
	uint8_t query[17] = { 0, 1, 1, 0, 0, 1 }, answer[8];
	int waiting;

	switch (take(in) % 6u) {
	case 0:
		address.sin_family = AF_UNSPEC;
		xts_connect(s, (struct sockaddr *)&address, sizeof address);
		break;
	case 1:
		xts_getsockname(s, (struct sockaddr *)&address, &length);
		xts_getpeername(s, (struct sockaddr *)&address, &length);
		break;
	case 2:
		xts_ioctl(s, FIONREAD, &waiting);
		xts_ioctl(s, TIOCOUTQ, &waiting);
		break;
	case 5:
		xts_query_name(query, sizeof query, answer, sizeof answer, 1);
		break;
	case 3:
		xts_bind(s, (struct sockaddr *)&address, sizeof address);
		break;
	default:
		xts_connect(s, (struct sockaddr *)&address, sizeof address);
	}
}

static void op_datagram(struct input *in, uint8_t which)
{
	int *s = &datagram_socket[which % DATAGRAM_SOCKETS];

	switch (which / DATAGRAM_SOCKETS % 16u) {
	case 0:
		xts_close(*s);
		*s = xts_socket(take(in) & 1 ? AF_INET6 : AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
		break;
	case 1:
		datagram_addresses(in, *s);
		break;
	case 2:
	case 3:
		datagram_option(in, *s);
		break;
	case 4:
		verdict = take(in);
		xts_register_recv_callback(*s, verdict & 0x80 ? NULL : packet_came, NULL);
		break;
	case 5:
		packets_free(take(in) % HELD_MAX);
		break;
	case 6:
		xts_shutdown(*s, take(in) % 3);
		break;
	case 7:
	case 8:
	case 9:
		datagram_sends(in, *s);
		break;
	case 10:
	case 11:
		datagram_receives(in, *s);
		break;
	default:
		proxy_sends_datagrams(in, *s);
	}
}

static void datagrams_begin(void)
{
	for (unsigned i = 0; i < DATAGRAM_SOCKETS; i++)
		datagram_socket[i] = -1;
	datagram_socket[0] = xts_socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
	verdict = XTS_PACKET_RECV;
}

static void datagrams_end(void)
{
	packets_free(0);
	for (unsigned i = 0; i < DATAGRAM_SOCKETS; i++)
		xts_close(datagram_socket[i]);
}

#endif
