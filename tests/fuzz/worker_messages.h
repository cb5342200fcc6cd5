/*
 * Messages of a host with fields of the input's choosing, and raw frames.
 */
#ifndef XTS_FUZZ_WORKER_MESSAGES_H
#define XTS_FUZZ_WORKER_MESSAGES_H

#include "worker_checks.h"

static uint32_t pick_id(struct scene *s, struct input *in)
{
	uint8_t which = take(in);

	if (which < 200 && s->host->id_count)
		return s->host->ids[which % (s->host->id_count < IDS ? s->host->id_count : IDS)];
	return which < 240 ? 0 : (uint32_t)which << 20 | take(in);
}

static void put_endpoint(uint8_t *p, struct input *in)
{
	struct xts_endpoint e = { .ip_version = 4, .address = { 127, 0, 0, 1 } };
	uint8_t which = take(in);

	e.port = which & 1 ? server_port : which & 2 ? 1 : 0;
	if (which & 64)
		e.ip_version = take(in);
	if (which & 128)
		for (int i = 0; i < 16; i++)
			e.address[i] = take(in);
	xts_endpoint_put(p, &e);
}

/* Pushes in the payload of a CONNECT, more or less: how many bytes they take. */
static uint32_t put_connect_pushes(uint8_t *out, struct input *in)
{
	uint32_t count = take(in) % 4u, bytes = 0;

	for (uint32_t i = 0; i < count; i++) {
		uint32_t length = 8 + take(in) % 32u;

		xts_put32(out + bytes, SIOC_PUSH_ULP_RX + take(in) % 4u);
		xts_put32(out + bytes + 4, take(in) < 250 ? length : pick_number(in));
		for (uint32_t k = 0; k < length; k++)
			out[bytes + 8 + k] = k == 7 ? take(in) % (XTS_ULP_COUNT + 1u) : k < 7 ? 0 : take(in);
		bytes += 8 + length;
	}
	return bytes;
}

/* SETSOCKOPT or GETSOCKOPT, which have one body: any level and number the kernel has, mostly a value as long as it may be. */
static uint32_t put_option(uint8_t *frame, struct input *in)
{
	static const int levels[] = { SOL_SOCKET, IPPROTO_TCP, IPPROTO_IP, IPPROTO_IPV6 };
	static const uint32_t lengths[] = { 4, 4, 1, 8, 16, 40, 0, 3 };
	uint8_t how = take(in), option = take(in) % 96, value = take(in);
	uint32_t length = how < 240 ? lengths[how / 4u % 8u] : pick_number(in) % (LARGEST - XTS_SETSOCKOPT_BYTES);
	uint8_t *payload = frame + XTS_SETSOCKOPT_BYTES;
	struct xts_setsockopt m = {
		.xts_socket = 7, .token = value, .domain = 4, .level = levels[how % 4u], .option = option, .length = length
	};

	_Static_assert(XTS_SETSOCKOPT_BYTES == XTS_GETSOCKOPT_BYTES, "one body for both");
	xts_setsockopt_encode(frame, &m);
	if (m.level == IPPROTO_TCP && option == TCP_CONGESTION)
		memcpy(payload, value & 1 ? "cubic" : "reno", length < 5 ? length : 4 + (value & 1u));
	else if (length)
		payload[0] = value;
	return XTS_SETSOCKOPT_BYTES + length;
}

/* The fields of a message: numbers, except addresses and the sizes that have to fit. Returns the frame's length. */
static uint32_t put_body(struct scene *s, uint8_t type, uint8_t *frame, struct input *in)
{
	uint32_t fixed = (uint32_t)xts_type_bytes(type), payload = 0, end = fixed;

	switch (type) {
	case XTS_CMD_CONNECT:
		end = fixed - 28;
		put_endpoint(frame + end, in);
		payload = put_connect_pushes(frame + fixed, in);
		xts_put32(frame + fixed - 4, payload);
		break;
	case XTS_CMD_BIND:
		end = fixed - 24;
		put_endpoint(frame + end, in);
		break;
	case XTS_CMD_SEND:
	case XTS_CMD_IOCTL:
	case XTS_CMD_GIVE_BACK:
		payload = pick_number(in) % (LARGEST - fixed);
		end = fixed - 4;
		xts_put32(frame + end, payload);
		for (uint32_t i = 0; i < payload && i < 16; i++)
			frame[fixed + i] = take(in);
		break;
	case XTS_CMD_SETSOCKOPT:
	case XTS_CMD_GETSOCKOPT:
		return put_option(frame, in);
	default:
		break;
	}
	for (uint32_t at = XTS_HEAD_BYTES; at < end; at += 4)
		xts_put32(frame + at, pick_number(in));
	if (type == XTS_CMD_SEND_PDU) {
		payload = pick_number(in) % (LARGEST - fixed);
		xts_put32(frame + 28, payload);
		if (take(in) < 128)
			xts_put32(frame + 36, take(in) % 16u); /* control_bytes, of no type */
	}
	if (type == XTS_CMD_CONNECT || (type == XTS_CMD_BIND && take(in) < 250))
		xts_put32(frame + 32, take(in) < 250 ? 4 : 6); /* domain */
	if (type == XTS_CMD_SHARE || type == XTS_CMD_PARK || type == XTS_CMD_CLAIM || type == XTS_CMD_RESUME) {
		xts_put64(frame + 32, take(in) % KEYS);
		if (type == XTS_CMD_SHARE || type == XTS_CMD_PARK)
			xts_put32(frame + 40, take(in) & 1 ? 60000 : 0); /* keep_ms */
	}
	if (type != XTS_CMD_SEND && type != XTS_CMD_SEND_PDU && type != XTS_CMD_GIVE_BACK && take(in) < 250)
		xts_put32(frame + XTS_HEAD_BYTES, 7); /* one number for all sockets of this host: calls find theirs */
	(void)s;
	return fixed + payload;
}

static void op_message(struct scene *s, struct input *in)
{
	static const uint8_t types[] = {
		XTS_CMD_SEND,        XTS_CMD_SEND,     XTS_CMD_CONNECT,    XTS_CMD_LISTEN,
		XTS_CMD_NEWCONN_ACK, XTS_CMD_BIND,     XTS_CMD_SETSOCKOPT, XTS_CMD_GETSOCKOPT,
		XTS_CMD_IOCTL,       XTS_CMD_SHARE,    XTS_CMD_SHARE,      XTS_CMD_PARK,
		XTS_CMD_CLAIM,       XTS_CMD_SEND_PDU, XTS_CMD_GIVE_BACK,  XTS_CMD_RESUME,
	};
	struct host *h = s->host;
	uint8_t frame[LARGEST] = { 0 };
	uint8_t type = types[take(in) % sizeof types], flags = take(in);
	uint32_t id = pick_id(s, in), bytes;
	uint16_t error = type == XTS_CMD_NEWCONN_ACK && flags & 1 ? EAGAIN : flags == 0x77;

	if (!xts_link_credits(&h->link))
		return;
	xts_head_encode(frame, type, flags & 0x80 ? flags : flags & 0x07, error, id);
	bytes = put_body(s, type, frame, in);
	xts_link_seal(&h->link, frame);
	pipe_put(&h->queue->in, frame, bytes);
}

/* As much data as the frame window takes, over and over: more than TCP does, as long as the peer does not read. */
static void op_burst(struct scene *s, struct input *in)
{
	uint32_t id = pick_id(s, in), times = take(in) % 64u;
	uint8_t frame[LARGEST] = { 0 };
	struct xts_send m = { .length = LARGEST - XTS_SEND_BYTES };
	struct host *h = s->host;
	struct connection *c = connection_find(h->channel, id);

	while (times-- && c && c->state == CONNECTION_ESTABLISHED && c->grant.outstanding >= m.length + 4 * LARGEST) {
		if (xts_link_credits(&h->link)) {
			xts_head_encode(frame, XTS_CMD_SEND, 0, 0, id);
			xts_send_encode(frame, &m);
			xts_link_seal(&h->link, frame);
			pipe_put(&h->queue->in, frame, sizeof frame);
		}
		rounds(s, 1);
		host_receive(s, 4);
		c = connection_find(h->channel, id);
	}
}

static void op_raw(struct scene *s, struct input *in)
{
	uint8_t frame[256] = { 0 }, how = take(in);
	uint32_t bytes = take(in);

	memcpy(frame, proxy_mac, 6);
	memcpy(frame + 6, host_mac, 6);
	xts_put16(frame + 12, XTS_ETHERTYPE);
	for (uint32_t i = 14; i < bytes; i++)
		frame[i] = take(in);
	if (how & 1)
		frame[15] = s->host->link.sent++;
	if (how & 2)
		frame[16] = s->host->link.recycled;
	pipe_put(&s->host->queue->in, frame, bytes);
}

#endif
