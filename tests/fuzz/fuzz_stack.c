/*
 * libFuzzer target: a stack of pushed protocols on one end of a socket pair.
 *
 * The input is a program of one-byte operations with their arguments: pushes of any protocol with parameters that are
 * good, nearly good or any bytes, bytes of the peer in pieces, reads and writes of any size, bytes given back, time,
 * ends of the stream, and moves to another process, with what was written for it as it is or changed. Whatever it does:
 * memory is safe and none is left, a refused push has a reason and changes
 * nothing, the parts of a PDU agree about it and are as long as they say, a fault is told once and stays, and after
 * -EAGAIN nothing invites to read again.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "ensure.h"
#include "input.h"
#include "ulp/config.h"
#include "ulp/http2/http2.h"
#include "ulp/ulp_stack.h"
#include "wire/wire.h"
#include "steps.h"
#include "stack_moves.h"

#define CHUNK 4096u
#define PARAMETERS_MAX 128u
#define STEPS_MAX 400

struct scene {
	struct ulp_stack *stack;
	struct ulp_owner owner;
	uint64_t faults[XTS_FAULT_COUNT];
	uint64_t now_ns;
	int peer;
	bool started, failed, ended;
	bool changed;            /* a state was, so PDUs need not be whole */
	struct ulp_mark reading; /* of the PDU being read */
	uint64_t read_bytes;     /* of it */
	bool within;
	struct ulp_mark writing; /* of the PDU being written */
	uint32_t writing_left;
};

static uint64_t now_ns(void *owner)
{
	return ((struct scene *)owner)->now_ns;
}

static void wake_after(void *owner, uint32_t timeout_ms)
{
	(void)owner;
	(void)timeout_ms;
}

/* --- what holds --------------------------------------------------------------------------------------------------- */

/* Without the one that ends reading only. */
static uint64_t fault_count(const struct scene *s)
{
	uint64_t count = 0;

	for (unsigned i = 0; i < XTS_FAULT_COUNT; i++)
		count += i == XTS_FAULT_PUSH || i == XTS_FAULT_TRUNCATED ? 0 : s->faults[i];
	return count;
}

static bool of_socket(ssize_t r)
{
	return r == -ECONNRESET || r == -EPIPE || r == -EBADF || r == -ENOTCONN;
}

/* -errno of a call: either nothing for now, or the end, or a fault that has a reason, or the socket's own. */
static void check_error(struct scene *s, ssize_t r)
{
	uint8_t answer[512];
	ssize_t n = ulp_stack_error(s->stack, false, answer, sizeof answer);

	ENSURE(r < 0 && r > -4096);
	ENSURE(fault_count(s) <= 1);
	ENSURE(n >= 4);
	if (s->failed && !fault_count(s))
		return;
	if (!fault_count(s) && !(s->faults[XTS_FAULT_TRUNCATED] && r == -EBADMSG)) {
		ENSURE(r == -EAGAIN || r == -ENODATA || of_socket(r));
		return;
	}
	s->failed |= fault_count(s) > 0;
	ENSURE(n > 4);
	ENSURE((answer[0] << 8 | answer[1]) == -r);
	for (ssize_t i = 4; i < n; i++)
		ENSURE(answer[i]);
}

static void check_part(struct scene *s, ssize_t n, size_t room, const struct ulp_mark *mark)
{
	ENSURE(n >= 0 && (size_t)n <= room);
	ENSURE(n > 0 || mark->pdu);
	ENSURE(mark->control_bytes <= ULP_CONTROL_BYTES);
	if (s->changed)
		return;
	if (!mark->pdu) {
		ENSURE(!s->within && !mark->more && !mark->record_bytes);
		return;
	}
	if (s->within) {
		ENSURE(mark->record_bytes == s->reading.record_bytes);
		s->read_bytes += (uint64_t)n;
	} else {
		s->reading = *mark;
		s->read_bytes = (uint64_t)n;
	}
	s->within = mark->more;
	if (!mark->record_bytes)
		return;
	ENSURE(s->read_bytes <= mark->record_bytes);
	ENSURE(mark->more == (s->read_bytes < mark->record_bytes));
}

/* --- operations --------------------------------------------------------------------------------------------------- */

static uint32_t attribute(uint8_t *out, struct input *in)
{
	static const uint8_t widths[] = { 0, 1, 2, 4, 8, 1, 4, 8 };
	uint8_t head = take(in), width = widths[head & 7];

	out[0] = 0;
	out[1] = head >> 4 | (head & 8 ? 16 : 0);
	out[2] = 0;
	out[3] = width;
	memset(out + 4, 0, width);
	if (width)
		out[4 + width - 1] = take(in); /* small numbers are the ones that are taken */
	return 4u + width;
}

static void op_push(struct scene *s, struct input *in)
{
	uint8_t kind = take(in), parameters[PARAMETERS_MAX], *exact, answer[512];
	uint16_t id = kind % 16;
	uint32_t bytes = 0, layers_before, count = take(in);
	char names[2][160];
	uint64_t refused = s->faults[XTS_FAULT_PUSH];
	int r;

	if (kind & 0x80) {
		for (uint32_t i = 0; i < count % PARAMETERS_MAX; i++)
			parameters[bytes++] = take(in);
	} else {
		for (uint32_t i = 0; i < count % 8; i++)
			bytes += attribute(parameters + bytes, in);
	}
	exact = malloc(bytes ? bytes : 1);
	ENSURE(exact);
	memcpy(exact, parameters, bytes);
	ulp_stack_describe(s->stack, true, names[0], sizeof names[0]);
	r = ulp_stack_push(s->stack, (enum ulp_direction)(kind >> 4 & 3), id, exact, bytes);
	free(exact); /* what is needed later was copied */
	ENSURE(r <= 0);
	if (!r && (kind & 0x10))
		s->within = false; /* what is read from now on begins again */
	layers_before = (uint32_t)strlen(names[0]);
	ulp_stack_describe(s->stack, true, names[1], sizeof names[1]);
	if (r && !s->failed) {
		ENSURE(!strcmp(names[0], names[1]));
		if (!fault_count(s) && !s->faults[XTS_FAULT_TRUNCATED])
			ENSURE(ulp_stack_error(s->stack, false, answer, sizeof answer) > 4 &&
			       s->faults[XTS_FAULT_PUSH] > refused);
	}
	ENSURE(strlen(names[1]) >= layers_before);
	if (fault_count(s))
		s->failed = true;
}

static void op_start(struct scene *s, struct input *in)
{
	bool client = take(in) & 1;

	if (s->started)
		return;
	if (ulp_stack_start(s->stack, s->owner.fd, client))
		s->failed = true; /* the owner gives up */
	s->started = true;
}

static void op_read(struct scene *s, struct input *in)
{
	size_t room = 1 + take_u16(in) % CHUNK;
	uint8_t *out = malloc(room); /* of exactly that length, for AddressSanitizer */
	struct ulp_mark mark;
	ssize_t n;

	ENSURE(out);
	ulp_stack_turn(s->stack);
	n = ulp_stack_read(s->stack, out, room, &mark);
	if (n >= 0) {
		ENSURE(!s->failed);
		check_part(s, n, room, &mark);
	} else {
		check_error(s, n);
		if (n == -EAGAIN && !s->failed)
			ENSURE(!ulp_stack_readable(s->stack) && !ulp_stack_pending(s->stack));
		if (n == -ENODATA)
			s->ended = true;
	}
	free(out);
}

/* Of gRPC: which one, whether it is the last, or compressed. */
static void message_of_stream(struct ulp_mark *mark, uint8_t which)
{
	mark->control_type = XTS_ULP_GRPC;
	mark->control_bytes = 8;
	memset(mark->control, 0, 8);
	mark->control[1] = (which & 0x80) | (which >> 6 & 1);
	mark->control[7] = which & 0x1f;
}

/* A PDU goes on behind what was taken of it, as its owner does it. */
static void op_write(struct scene *s, struct input *in)
{
	static uint8_t text[CHUNK];
	uint8_t how = take(in);
	struct iovec iov[3];
	uint32_t bytes, pieces = 1 + how % 3, left;
	ssize_t n;

	if (!s->writing_left) {
		bytes = take_u16(in) % CHUNK;
		s->writing_left = bytes;
		s->writing = (struct ulp_mark){ .pdu = s->owner.message_socket,
						.more = s->owner.message_socket && (how & 0x40) };
		if (s->writing.pdu)
			s->writing.record_bytes = how & 0x20 ? bytes : how & 0x10 ? 2 * bytes : 0;
		for (uint32_t i = 0; i < bytes; i++)
			text[i] = how & 0x80 ? take(in) : (uint8_t)('a' + i % 23);
		if (how & 0x08)
			message_of_stream(&s->writing, take(in));
	}
	left = s->writing_left;
	for (uint32_t i = 0; i < pieces; i++) {
		iov[i].iov_base = text + (s->writing_left - left);
		iov[i].iov_len = i == pieces - 1 ? left : left / 2;
		left -= (uint32_t)iov[i].iov_len;
	}
	n = ulp_stack_write(s->stack, iov, (int)pieces, &s->writing);
	if (n < 0) {
		check_error(s, n);
		ENSURE(n != -EAGAIN);
		s->writing_left = 0;
		return;
	}
	ENSURE((uint32_t)n <= s->writing_left || (!s->writing_left && n == 1));
	memmove(text, text + n, s->writing_left ? s->writing_left - (uint32_t)n : 0);
	s->writing_left -= s->writing_left ? (uint32_t)n : 0;
}

static void op_peer_sends(struct scene *s, struct input *in)
{
	uint8_t bytes[256];
	uint32_t count = take(in);

	for (uint32_t i = 0; i < count; i++)
		bytes[i] = take(in);
	if (count && send(s->peer, bytes, count, MSG_DONTWAIT | MSG_NOSIGNAL) > 0)
		ulp_stack_event(s->stack, true, false);
}

/* A frame of HTTP/2, as long as it says: with settings, a window, a message of gRPC or a part of one, or any bytes. */
static void op_peer_frames(struct scene *s, struct input *in)
{
	static const uint8_t types[] = { HTTP2_DATA,     HTTP2_DATA,          HTTP2_HEADERS, HTTP2_RST_STREAM,
					 HTTP2_SETTINGS, HTTP2_WINDOW_UPDATE, HTTP2_GOAWAY,  HTTP2_CONTINUATION };
	uint8_t frame[HTTP2_HEAD_BYTES + 512], *payload = frame + HTTP2_HEAD_BYTES, kind = take(in);
	struct http2_frame f = { .type = types[kind & 7], .flags = take(in), .stream = kind >> 3 & 7 };
	uint32_t number = pick_number(in);

	if (f.type == HTTP2_SETTINGS) {
		xts_put16(payload, (uint16_t)(3 + (kind >> 6))); /* streams, window, frames, headers */
		xts_put32(payload + 2, number);
		f.length = 6;
	} else if (f.type == HTTP2_WINDOW_UPDATE) {
		xts_put32(payload, number);
		f.length = 4;
	} else if (f.type == HTTP2_DATA && kind & 0x40) {
		f.length = 5 + number % 500;
		memset(payload, 'm', f.length);
		payload[0] = kind >> 7;
		xts_put32(payload + 1, kind & 0x20 ? number : f.length - 5);
	} else {
		f.length = number % 64;
		for (uint32_t i = 0; i < f.length; i++)
			payload[i] = take(in);
	}
	http2_frame_put(frame, &f);
	if (send(s->peer, frame, HTTP2_HEAD_BYTES + f.length, MSG_DONTWAIT | MSG_NOSIGNAL) > 0)
		ulp_stack_event(s->stack, true, false);
}

static void op_peer_receives(struct scene *s)
{
	uint8_t bytes[CHUNK];

	while (recv(s->peer, bytes, sizeof bytes, MSG_DONTWAIT) > 0)
		;
	ulp_stack_event(s->stack, false, true);
}

static void op_peer_ends(struct scene *s, bool all)
{
	shutdown(s->peer, all ? SHUT_RDWR : SHUT_WR);
	ulp_stack_event(s->stack, true, all);
	ulp_stack_read_to_end(s->stack);
}

static void op_give_back(struct scene *s, struct input *in)
{
	uint32_t count = take(in);
	uint8_t *bytes = malloc(count ? count : 1);

	ENSURE(bytes);
	for (uint32_t i = 0; i < count; i++)
		bytes[i] = take(in);
	if (ulp_stack_receives(s->stack))
		ENSURE(!ulp_stack_expect(s->stack, count) && !ulp_stack_give_back(s->stack, bytes, count));
	free(bytes);
}

static void op_tell(struct scene *s, struct input *in)
{
	uint8_t answer[64];
	uint8_t layer = take(in);
	ssize_t n = ulp_stack_info(s->stack, layer & 1, layer >> 1 & 7, take(in) % 16, take(in), answer, sizeof answer);

	ENSURE(n <= (ssize_t)sizeof answer && (n >= 4 || n < 0));
	ENSURE(ulp_list(s->owner.config, answer, take(in) % sizeof answer) <= (ssize_t)sizeof answer);
}

/* A listener's: what can be copied behaves as the first. */
static void op_copy(struct scene *s)
{
	struct ulp_stack *copy;
	char names[2][160];
	int r;

	if (s->started)
		return;
	r = ulp_stack_copy(&copy, s->stack, &s->owner);
	ENSURE(!r);
	ulp_stack_describe(s->stack, true, names[0], sizeof names[0]);
	ulp_stack_describe(copy, true, names[1], sizeof names[1]);
	ENSURE(!strcmp(names[0], names[1]));
	ulp_stack_free(s->stack);
	s->stack = copy;
}

static void op_ends(struct scene *s, bool finish)
{
	int r = finish ? ulp_stack_finish(s->stack) : ulp_stack_flush(s->stack);

	if (r < 0 && r != -EAGAIN && !of_socket(r)) /* an alert is still written after a fault */
		check_error(s, r);
}

static void op_handshake(struct scene *s)
{
	int r = ulp_stack_handshake(s->stack);

	ENSURE(r <= 0);
	if (!r)
		ENSURE(ulp_stack_ready(s->stack));
	else if (r != -EAGAIN)
		ENSURE(ulp_stack_handshake(s->stack) == r);
	if (r && r != -EAGAIN && !fault_count(s))
		s->failed = true; /* a start was refused */
	else if (r)
		check_error(s, r);
}

static void op_move(struct scene *s, struct input *in)
{
	struct ulp_stack *next;
	bool changed;

	if (!s->started || ulp_stack_stays(s->stack, UINT16_MAX) ||
	    !(ulp_stack_receives(s->stack) || ulp_stack_sends(s->stack)))
		return;
	next = moved_stack(s->stack, &s->owner, in, &changed);
	if (!next)
		return;
	ulp_stack_wipe(s->stack);
	ulp_stack_free(s->stack);
	s->stack = next;
	s->changed |= changed;
	ulp_stack_event(next, true, true);
}

#define MOVE 0xf0 /* and what is above it */

static void step(struct scene *s, struct input *in)
{
	uint8_t what = take(in);

	if (what >= MOVE) {
		op_move(s, in);
		return;
	}
	switch (what % 16) {
	case 0:
		op_push(s, in);
		break;
	case 1:
		op_start(s, in);
		break;
	case 2:
	case 3:
	case 4:
		op_read(s, in);
		break;
	case 5:
		op_peer_sends(s, in);
		break;
	case 6:
		op_peer_frames(s, in);
		break;
	case 7:
	case 8:
		op_write(s, in);
		break;
	case 9:
		op_peer_receives(s);
		break;
	case 10:
		op_peer_ends(s, take(in) & 1);
		break;
	case 11:
		op_give_back(s, in);
		break;
	case 12:
		op_tell(s, in);
		break;
	case 13:
		op_copy(s);
		break;
	case 14:
		op_ends(s, take(in) & 1);
		break;
	default:
		s->now_ns += (uint64_t)take(in) * 100000000u;
		op_handshake(s);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	static struct xts_ulp_config *config; /* as long as the process */
	struct input in = { data, bytes };
	struct scene s = { .now_ns = 1000000000 };
	uint8_t how = take(&in);
	int pair[2];

	if (!config) {
		config = xts_ulp_config_new(&(struct xts_ulp_limits){ 10000, 10000, 1 << 20, 1 << 12 });
		ENSURE(config);
		xts_ulp_config_offer(config, XTS_ULP_GRPC);
		xts_ulp_config_offer(config, XTS_ULP_MPA);
	}
	ENSURE(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair));
	s.peer = pair[1];
	s.owner = (struct ulp_owner){
		.fd = pair[0],
		.message_socket = !(how & 1),
		.reports_end = how & 2,
		.config = config,
		.faults = s.faults,
		.now_ns = now_ns,
		.wake_after = wake_after,
		.owner = &s,
	};
	ENSURE(!ulp_stack_new(&s.stack, &s.owner));
	for (int i = 0; i < STEPS_MAX && in.bytes && !(s.failed && !fault_count(&s)); i++) {
		step_begins(&in, data);
		step(&s, &in);
	}
	steps_ran(data, bytes);
	ulp_stack_free(s.stack);
	close(pair[0]);
	close(pair[1]);
	return 0;
}
