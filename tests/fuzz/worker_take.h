/*
 * Connections that several processes have: TAKE asks for one, its holder gives it up by PARK and RETURN.
 */
#ifndef XTS_FUZZ_WORKER_TAKE_H
#define XTS_FUZZ_WORKER_TAKE_H

#include "worker_datagrams.h"

static void say_return(struct scene *s, struct input *in, uint64_t key)
{
	uint8_t frame[LARGEST] = { 0 }, how = take(in);
	struct xts_return m = { .key = key, .kind = how % 3u };

	if (m.kind)
		m.length = pick_number(in) % (LARGEST - XTS_RETURN_BYTES);
	if (m.kind == 2) {
		m.record_bytes = how & 0x10 ? m.length : 0;
		m.control_type = how & 0x20 ? take(in) % (XTS_ULP_COUNT + 1u) : 0;
		m.control_bytes = m.control_type ? how >> 6 : 0;
	}
	xts_return_encode(frame, &m);
	say_call(s, frame, XTS_CMD_RETURN, how & 0x80 ? XTS_FLAG_MORE : 0, 0, XTS_RETURN_BYTES + m.length);
}

/* Its attempt to connect, by the number that all sockets of this host have, or by another. */
static void say_cancel(struct scene *s, uint8_t choice)
{
	uint8_t frame[LARGEST] = { 0 };

	xts_cancel_encode(frame, &(struct xts_cancel){ .xts_socket = choice & 4 ? 7 : choice });
	say_call(s, frame, XTS_CMD_CANCEL, 0, 0, XTS_CANCEL_BYTES);
}

/* Nobody has asked for it, which ends the link. */
static void say_move_ack(struct scene *s, uint8_t choice)
{
	uint8_t frame[LARGEST] = { 0 };

	xts_move_ack_encode(frame, &(struct xts_move_ack){ .ticket = choice & 3u });
	say_call(s, frame, XTS_CMD_MOVE_ACK, 0, 0, XTS_MOVE_ACK_BYTES);
}

/* Of any socket that this host has, listener or not. */
static void say_shut_listener(struct scene *s, struct input *in)
{
	uint8_t frame[LARGEST] = { 0 };

	xts_shut_listener_encode(frame, &(struct xts_shut_listener){ .xts_socket = 7, .token = 1 });
	say_call(s, frame, XTS_CMD_SHUT_LISTENER, 0, pick_id(s, in), XTS_SHUT_LISTENER_BYTES);
}

/* No process has some connections, says an agent, or a host: of an epoch in force, of one before, or of none. */
static void say_over(struct scene *s, struct input *in)
{
	uint8_t frame[XTS_OVER_BYTES + 8 * KEYS + 1] = { 0 }, epoch = take(in), choice = take(in);
	struct xts_over m = { .epoch = epoch, .length = 8 * (choice % (KEYS + 1)) + (choice >= 0xf0) };

	memcpy(frame, proxy_mac, 6);
	memcpy(frame + 6, host_mac, 6);
	xts_put16(frame + 12, XTS_ETHERTYPE);
	xts_head_encode(frame, XTS_LINK_OVER, 0, 0, 0);
	xts_over_encode(frame, &m);
	for (unsigned i = 0; i < KEYS; i++)
		xts_put64(frame + XTS_OVER_BYTES + 8 * i, (i + choice / (KEYS + 1)) % KEYS);
	pipe_put(&s->host->queue->in, frame, XTS_OVER_BYTES + m.length);
}

static void op_take(struct scene *s, struct input *in)
{
	uint8_t frame[LARGEST] = { 0 }, choice = take(in);
	struct xts_take m = {
		.xts_socket = 7, .key = choice / 4 % KEYS, .post_credits = 1u << 16, .purpose = choice >> 4 & 3
	};

	if (choice & 2) {
		say_return(s, in, m.key);
		return;
	}
	if (choice >= 0xe0) {
		if (choice == 0xff)
			say_move_ack(s, choice);
		else if (choice == 0xfd)
			say_over(s, in);
		else if (choice & 8)
			say_shut_listener(s, in);
		else
			say_cancel(s, choice);
		return;
	}
	xts_take_encode(frame, &m);
	say_call(s, frame, XTS_CMD_TAKE, 0, 0, XTS_TAKE_BYTES);
}

#endif
