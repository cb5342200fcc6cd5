/*
 * Datagram sockets: messages that are mostly well-formed, and a UDP peer that answers at the server's port.
 */
#ifndef XTS_FUZZ_WORKER_DATAGRAMS_H
#define XTS_FUZZ_WORKER_DATAGRAMS_H

#include <linux/filter.h>

#include "worker_messages.h"

static int datagram_fd = -1; /* lives as long as the process */

static void datagram_peer_open(void)
{
	struct sockaddr_in address = { .sin_family = AF_INET,
				       .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
				       .sin_port = htons(server_port) };

	datagram_fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	ENSURE(datagram_fd >= 0);
	/* without that port the sends are refused, which is worth seeing, too */
	(void)!bind(datagram_fd, (struct sockaddr *)&address, sizeof address);
}

static struct xts_endpoint server_endpoint(void)
{
	return (struct xts_endpoint){ .port = server_port, .ip_version = 4, .address = { 127, 0, 0, 1 } };
}

/* The peer takes what has come and answers the last, so often and with so many bytes. */
static void datagram_peer_answers(struct input *in)
{
	static uint8_t buffer[65536];
	struct sockaddr_in from;
	socklen_t length = sizeof from;
	uint32_t bytes = pick_number(in) % 9000u, times = take(in) % 40u;
	bool any = false;

	for (unsigned i = 0;
	     i < 64 && recvfrom(datagram_fd, buffer, sizeof buffer, 0, (struct sockaddr *)&from, &length) >= 0; i++)
		any = true;
	while (any && times--)
		(void)!sendto(datagram_fd, buffer, bytes, 0, (struct sockaddr *)&from, length);
}

static struct xts_datagram pick_datagram(struct input *in)
{
	uint8_t what = take(in);
	struct xts_datagram d = { .controls = what & 0x10 ? take(in) & 0x1eu : 0 };

	if (what & 0x40) /* which stamps to make of it, and their number */
		d.controls |= 1u << XTS_DATAGRAM_STAMP_SEND | 1u << XTS_DATAGRAM_STAMP_ID;

	d.record.data_bytes = (uint16_t)(what & 1 ? take(in) : what & 2 ? pick_number(in) % 3000u : 0);
	d.record.segment_bytes = what & 4 && d.record.data_bytes ? take(in) : 0;
	if (what & 8)
		d.record.endpoint = server_endpoint();
	if (what & 0x20)
		d.record.endpoint.address[3] = take(in);
	d.pktinfo = server_endpoint();
	d.hop_limit = d.traffic_class = d.stamp_id = what;
	d.stamp_send = what & 0x80 ? what : 2;
	return d;
}

/* Records with credits for them, or one that goes on in the next message. Returns the bytes of the payload. */
static uint32_t put_datagrams(const struct connection *c, uint8_t *out, uint32_t room, struct input *in, bool *more)
{
	uint32_t count = take(in) % 24u, at = 0, credits = c->grant.outstanding;

	*more = false;
	if (c->datagrams->coming) {
		at = c->datagrams->coming < room ? c->datagrams->coming : room;
		*more = at < c->datagrams->coming;
	}
	while (count-- && !*more) {
		struct xts_datagram d = pick_datagram(in);
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

static void say_datagrams(struct scene *s, struct input *in, uint32_t id)
{
	const struct connection *c = connection_find(s->host->channel, id);
	uint8_t frame[LARGEST] = { 0 };
	struct xts_send_datagrams m = { .post_credits = take(in) };
	bool more;

	if (!c || !c->datagrams || c->close_reply || c->datagrams->closing || !xts_link_credits(&s->host->link))
		return;
	m.length = put_datagrams(c, frame + XTS_SEND_DATAGRAMS_BYTES, LARGEST - XTS_SEND_DATAGRAMS_BYTES, in, &more);
	if (take(in) >= 250) { /* or not well-formed after all */
		m.length = pick_number(in) % (LARGEST - XTS_SEND_DATAGRAMS_BYTES);
		for (uint32_t i = 0; i < m.length && i < 40; i++)
			frame[XTS_SEND_DATAGRAMS_BYTES + i] = take(in);
		more = take(in) & 1;
	}
	xts_head_encode(frame, XTS_CMD_SEND_DATAGRAMS, more ? XTS_FLAG_MORE : 0, 0, id);
	xts_send_datagrams_encode(frame, &m);
	xts_link_seal(&s->host->link, frame);
	pipe_put(&s->host->queue->in, frame, XTS_SEND_DATAGRAMS_BYTES + m.length);
}

static void say_call(struct scene *s, uint8_t *frame, uint8_t type, uint8_t flags, uint32_t id, uint32_t bytes)
{
	if (!xts_link_credits(&s->host->link))
		return;
	xts_head_encode(frame, type, flags, 0, id);
	xts_link_seal(&s->host->link, frame);
	pipe_put(&s->host->queue->in, frame, bytes);
	rounds(s, 1);
	host_receive(s, WINDOW);
}

/* What it has not read of a shared one. */
static void say_returned(struct scene *s, struct input *in, uint32_t id)
{
	uint8_t frame[LARGEST] = { 0 };
	struct xts_datagram d = pick_datagram(in);
	struct xts_return_datagrams m = { .length = xts_datagram_write(frame + XTS_RETURN_DATAGRAMS_BYTES,
								       LARGEST - XTS_RETURN_DATAGRAMS_BYTES, &d) };
	uint32_t room = LARGEST - XTS_RETURN_DATAGRAMS_BYTES - m.length;
	bool more = d.record.data_bytes > room;

	m.length += more ? room : d.record.data_bytes;
	if (take(in) >= 200)
		m.length = pick_number(in) % (LARGEST - XTS_RETURN_DATAGRAMS_BYTES);
	xts_return_datagrams_encode(frame, &m);
	say_call(s, frame, XTS_CMD_RETURN_DATAGRAMS, more ? XTS_FLAG_MORE : 0, id, XTS_RETURN_DATAGRAMS_BYTES + m.length);
}

/* A filter of a few instructions, an operator's by name, or which time stamps are wanted. */
static void say_datagram_option(struct scene *s, struct input *in, uint32_t id)
{
	struct xts_setsockopt m = { .xts_socket = 7, .token = 1, .domain = 4, .level = SOL_SOCKET };
	uint8_t frame[LARGEST] = { 0 }, *value = frame + XTS_SETSOCKOPT_BYTES, what = take(in);
	struct sock_filter one = { .code = BPF_RET | BPF_K, .k = UINT32_MAX };

	switch (what % 4) {
	case 0:
		m.option = SO_ATTACH_FILTER;
		m.length = (what >> 4) * sizeof one;
		for (uint32_t at = 0; at < m.length; at += sizeof one)
			memcpy(value + at, &one, sizeof one);
		for (uint32_t i = 0; i < m.length && what & 8; i++)
			value[i] ^= take(in);
		break;
	case 1:
		m.option = what & 0x80 ? SO_TIMESTAMPING : what & 0x40 ? SO_TIMESTAMP : SO_TIMESTAMPNS;
		m.length = sizeof(uint32_t);
		xts_put32(value, pick_number(in));
		break;
	case 2:
		m.level = XTS_SOL_XTS;
		m.option = XTS_OPTION_FILTER;
		m.length = what >> 2;
		memset(value, take(in), m.length);
		break;
	default:
		m.option = SO_DETACH_FILTER;
		m.length = sizeof(uint32_t);
	}
	xts_setsockopt_encode(frame, &m);
	say_call(s, frame, XTS_CMD_SETSOCKOPT, 0, id, XTS_SETSOCKOPT_BYTES + m.length);
}

static void op_datagram(struct scene *s, struct input *in)
{
	struct xts_open_datagram open = { .xts_socket = 7, .domain = 4, .post_credits = XTS_DATAGRAM_WINDOW_MIN };
	struct xts_connect_datagram to = { .xts_socket = 7 };
	uint8_t frame[LARGEST] = { 0 }, choice = take(in);
	uint32_t id = choice % 8 ? pick_id(s, in) : 0;

	switch (choice % 8) {
	case 0:
		open.domain = choice & 0x80 ? 6 : 4;
		open.receive_bytes = choice & 0x40 ? pick_number(in) : 0;
		if (choice & 0x20)
			open.peer = server_endpoint();
		if (choice & 0x10)
			open.local = (struct xts_endpoint){ .ip_version = 4, .address = { 127, 0, 0, 1 } };
		xts_open_datagram_encode(frame, &open);
		say_call(s, frame, XTS_CMD_OPEN_DATAGRAM, 0, 0, XTS_OPEN_DATAGRAM_BYTES);
		break;
	case 1:
		if (choice & 0x80)
			to.peer = server_endpoint();
		xts_connect_datagram_encode(frame, &to);
		say_call(s, frame, XTS_CMD_CONNECT_DATAGRAM, 0, id, XTS_CONNECT_DATAGRAM_BYTES);
		break;
	case 2:
		xts_send_encode(frame, &(struct xts_send){ 0 });
		say_call(s, frame, XTS_CMD_SEND, XTS_FLAG_CLOSE | (choice & 0x80 ? XTS_FLAG_ABORT : 0), id,
			 XTS_SEND_BYTES);
		break;
	case 3:
		xts_send_datagrams_encode(frame,
					  &(struct xts_send_datagrams){ .post_credits = pick_number(in) % 100000u });
		say_call(s, frame, XTS_CMD_SEND_DATAGRAMS, 0, id, XTS_SEND_DATAGRAMS_BYTES);
		break;
	case 4:
		if (choice & 0x80)
			say_returned(s, in, id);
		else
			datagram_peer_answers(in);
		break;
	case 5:
		say_datagram_option(s, in, id);
		break;
	default:
		say_datagrams(s, in, id);
		rounds(s, choice >> 6);
	}
}

#endif
