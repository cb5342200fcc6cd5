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
	xts_take_encode(frame, &m);
	say_call(s, frame, XTS_CMD_TAKE, 0, 0, XTS_TAKE_BYTES);
}

#endif
