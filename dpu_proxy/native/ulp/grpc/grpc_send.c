/* Sending gRPC: messages are put into frames of HTTP/2 (grpc.h). */
#include <errno.h>
#include <string.h>

#include "grpc.h"
#include "wire/wire.h"

#define PIECES 64 /* written with one call */

bool grpc_between(const struct grpc *g)
{
	const struct grpc_send *t = &g->send;

	return t->head_given == t->head_bytes && !t->frame_left && http2_walk_between(&t->walk) && !t->headers_open;
}

int grpc_control_write(struct ulp_layer *l)
{
	struct grpc *g = l->state;

	return grpc_between(g) ? ulp_out_flush(&g->send.control, l) : 0;
}

/* --- frames of the application ---------------------------------------------------------------------------------- */

/* Checks an offered frame. It may be called more than once for the same frame, so everything here can be done twice. */
static int frame_offered(struct ulp_layer *l, struct grpc *g, const struct http2_walk *walk, enum http2_step step)
{
	const struct http2_frame *f = &walk->frame;
	struct grpc_stream *s = grpc_stream_find(g, f->stream);

	if (step == HTTP2_WALK_SETTING) {
		if (walk->setting == HTTP2_INITIAL_WINDOW_SIZE && walk->value <= HTTP2_WINDOW_MAX)
			g->local_initial_window = (int32_t)walk->value;
		return 0;
	}
	if (f->type == HTTP2_HEADERS)
		return grpc_headers(l, f, false);
	if (f->type == HTTP2_DATA && f->length)
		return ulp_fail(l, XTS_FAULT_USE, "a DATA frame: the data of a stream is sent as messages");
	if (f->type == HTTP2_DATA && s && f->flags & HTTP2_END_STREAM)
		grpc_stream_ended(g, s, false);
	if (f->type == HTTP2_RST_STREAM && s)
		grpc_stream_forget(g, s);
	return 0;
}

static ssize_t frames_write(struct ulp_layer *l, struct grpc *g, const struct iovec *iov, int pieces, size_t bytes,
			    const struct ulp_mark *mark)
{
	struct grpc_send *t = &g->send;
	struct http2_walk walk = t->walk;
	struct ulp_mark below = *mark;
	enum http2_step step;
	size_t at = 0;
	ssize_t n;
	int error = grpc_control_write(l);

	while (!error && (step = http2_walk(&walk, iov, pieces, bytes, &at)) != HTTP2_WALK_END)
		error = frame_offered(l, g, &walk, step);
	if (error)
		return error == -EAGAIN ? 0 : error;
	below.control_type = 0;
	below.control_bytes = 0;
	n = ulp_write_below(l, iov, pieces, &below);
	if (n < 0)
		return n;
	at = 0;
	while (http2_walk(&t->walk, iov, pieces, (size_t)n < bytes ? (size_t)n : bytes, &at) != HTTP2_WALK_END) {
		const struct http2_frame *f = &t->walk.frame;

		if (f->type == HTTP2_HEADERS || f->type == HTTP2_PUSH_PROMISE || f->type == HTTP2_CONTINUATION)
			t->headers_open = !(f->flags & HTTP2_END_HEADERS);
	}
	return n;
}

/* --- messages ----------------------------------------------------------------------------------------------------- */

/* Begins a DATA frame with as much of what is offered as it can hold. False: a window is closed. */
static bool frame_begin(struct grpc *g, struct grpc_stream *s, size_t offered, uint64_t left)
{
	struct grpc_send *t = &g->send;
	struct http2_frame f = { .type = HTTP2_DATA, .stream = s->id };
	int64_t room = g->send_window < s->send_window ? g->send_window : s->send_window;
	uint32_t prefix = GRPC_PREFIX_BYTES - t->prefix_given;

	if (room <= 0)
		return false;
	if (room > g->peer_frame_bytes_max)
		room = g->peer_frame_bytes_max;
	f.length = prefix + offered < (size_t)room ? (uint32_t)(prefix + offered) : (uint32_t)room;
	prefix = prefix < f.length ? prefix : f.length;
	t->frame_left = f.length - prefix;
	t->frame_bytes = HTTP2_HEAD_BYTES + f.length;
	memcpy(t->head + HTTP2_HEAD_BYTES, t->prefix + t->prefix_given, prefix);
	t->prefix_given = (uint8_t)(t->prefix_given + prefix);
	if (t->flags & GRPC_END_STREAM && t->prefix_given == GRPC_PREFIX_BYTES && t->frame_left == left)
		f.flags = HTTP2_END_STREAM;
	http2_frame_put(t->head, &f);
	t->head_bytes = (uint8_t)(HTTP2_HEAD_BYTES + prefix);
	t->head_given = 0;
	g->send_window -= f.length;
	s->send_window -= (int32_t)f.length;
	if (f.flags)
		grpc_stream_ended(g, s, false);
	return true;
}

/* Continues the frame that has begun; returns how many of the host's bytes it took. */
static ssize_t frame_write(struct ulp_layer *l, struct grpc_send *t, const struct iovec *iov, int pieces, size_t skip,
			   size_t bytes)
{
	struct iovec piece[1 + PIECES] = { { .iov_base = t->head + t->head_given,
					     .iov_len = (size_t)(t->head_bytes - t->head_given) } };
	struct ulp_mark mark = { .pdu = true, .record_bytes = t->frame_bytes };
	size_t head = piece[0].iov_len, payload = bytes - skip < t->frame_left ? bytes - skip : t->frame_left;
	int count = 1 + ulp_iov_slice(piece + 1, PIECES, iov, pieces, skip, payload), first = !head;
	ssize_t n;

	payload = ulp_iov_bytes(piece + 1, count - 1);
	mark.more = payload < t->frame_left;
	if (!head && !payload)
		return 0;
	n = ulp_write_below(l, piece + first, count - first, &mark);
	if (n < 0)
		return n;
	if ((size_t)n <= head) {
		t->head_given = (uint8_t)(t->head_given + n);
		return 0;
	}
	t->head_given = t->head_bytes;
	t->frame_left -= (uint32_t)((size_t)n - head);
	return n - (ssize_t)head;
}

static ssize_t message_write(struct ulp_layer *l, struct grpc *g, const struct iovec *iov, int pieces, size_t bytes)
{
	struct grpc_send *t = &g->send;
	size_t taken = 0;

	for (;;) {
		while (t->head_given < t->head_bytes || t->frame_left) {
			uint8_t given = t->head_given;
			ssize_t n = frame_write(l, t, iov, pieces, taken, bytes);

			if (n < 0)
				return n;
			if (!n && t->head_given == given)
				return (ssize_t)taken; /* TCP is full */
			taken += (size_t)n;
		}
		struct grpc_stream *s = grpc_stream_find(g, t->stream);
		int error = grpc_control_write(l);

		if (error)
			return error == -EAGAIN ? (ssize_t)taken : error;
		if (t->prefix_given == GRPC_PREFIX_BYTES ? taken == bytes : taken == bytes && t->left > taken)
			return (ssize_t)taken;
		if (!s) { /* the stream has been reset since: the rest is dropped */
			t->prefix_given = GRPC_PREFIX_BYTES;
			return (ssize_t)bytes;
		}
		if (!frame_begin(g, s, bytes - taken, t->left - taken)) {
			t->blocked = true;
			return (ssize_t)taken;
		}
	}
}

/* --- PDUs --------------------------------------------------------------------------------------------------------- */

static int message_begin(struct ulp_layer *l, struct grpc *g, size_t bytes, const struct ulp_mark *mark)
{
	struct grpc_send *t = &g->send;
	const struct grpc_stream *s;

	t->flags = mark->control[1];
	t->stream = xts_get32(mark->control + 4);
	s = grpc_stream_find(g, t->stream);
	if (t->flags & ~(GRPC_COMPRESSED | GRPC_END_STREAM))
		return ulp_fail(l, XTS_FAULT_USE, "flags 0x%02x of a message: only 0x01 and 0x80 exist", t->flags);
	if (s ? s->local_ended : !grpc_stream_was(g, t->stream))
		return ulp_fail(l, XTS_FAULT_USE, "a message for stream %u, which is not open: HEADERS come first",
				t->stream);
	if (mark->more && !mark->record_bytes)
		return ulp_fail(l, XTS_FAULT_USE,
				"the length of a message has to be known when it begins: send it whole");
	t->left = mark->more || mark->record_bytes ? mark->record_bytes : bytes;
	t->prefix[0] = t->flags & GRPC_COMPRESSED;
	xts_put32(t->prefix + 1, (uint32_t)t->left);
	t->prefix_given = 0;
	return 0;
}

static int pdu_begin(struct ulp_layer *l, struct grpc *g, size_t bytes, const struct ulp_mark *mark)
{
	struct grpc_send *t = &g->send;

	t->kind = mark->control_type ? mark->control[0] : GRPC_FRAME;
	if (!mark->pdu)
		return ulp_fail(l, XTS_FAULT_USE, "grpc sends PDUs, not a byte stream");
	if (mark->control_type && (mark->control_type != XTS_ULP_GRPC || mark->control_bytes < 8 || t->kind > GRPC_FRAME))
		return ulp_fail(l, XTS_FAULT_USE, "control data that is not grpc's: type %u, %u bytes, kind %u",
				mark->control_type, mark->control_bytes, t->kind);
	if (t->kind == GRPC_MESSAGE)
		return message_begin(l, g, bytes, mark);
	t->left = mark->record_bytes ? mark->record_bytes : mark->more ? UINT64_MAX : bytes;
	return 0;
}

ssize_t grpc_write(struct ulp_layer *l, const struct iovec *iov, int pieces, const struct ulp_mark *mark)
{
	struct grpc *g = l->state;
	struct grpc_send *t = &g->send;
	size_t bytes = ulp_iov_bytes(iov, pieces);
	ssize_t n;

	if (!t->in_pdu) {
		int error = pdu_begin(l, g, bytes, mark);

		if (error)
			return error;
		t->in_pdu = true;
	}
	if (t->left != UINT64_MAX && (bytes > t->left || (!mark->more && bytes < t->left)))
		return ulp_fail(l, XTS_FAULT_USE, "a PDU whose length is not the one announced");
	n = t->kind == GRPC_MESSAGE ? message_write(l, g, iov, pieces, bytes) :
				      frames_write(l, g, iov, pieces, bytes, mark);
	if (n < 0)
		return n;
	if (t->left != UINT64_MAX)
		t->left -= (size_t)n < bytes ? (size_t)n : bytes;
	if (t->kind == GRPC_MESSAGE)
		t->in_pdu = t->left || t->prefix_given < GRPC_PREFIX_BYTES || t->head_given < t->head_bytes;
	else
		t->in_pdu = mark->more || (size_t)n < bytes;
	if (!t->in_pdu) {
		int error = grpc_control_write(l);

		if (error && error != -EAGAIN)
			return error;
	}
	return bytes ? n : !t->in_pdu || mark->more;
}
