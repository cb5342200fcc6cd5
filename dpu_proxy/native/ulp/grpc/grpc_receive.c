/* Receiving gRPC: messages are taken out of the frames of HTTP/2 (grpc.h). */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "grpc.h"
#include "wire/wire.h"

#define CONTROL_BYTES_MAX 65536u /* WINDOW_UPDATEs that wait because the peer does not read */
#define KEPT_BYTES_MAX 65536u    /* of a buffer that is kept between messages */

static void control_put(struct ulp_mark *mark, enum grpc_kind kind, uint8_t flags, uint32_t stream)
{
	mark->control_type = XTS_ULP_GRPC;
	mark->control_bytes = 8;
	memset(mark->control, 0, sizeof mark->control);
	mark->control[0] = (uint8_t)kind;
	mark->control[1] = flags;
	xts_put32(mark->control + 4, stream);
}

/* The HTTP2 layer below lets no frame end early; this is for a connection that ends between the parts of a frame. */
static int ended_inside(struct ulp_layer *l, ssize_t n)
{
	return n == -ENODATA ? ulp_fail(l, XTS_FAULT_TRUNCATED, "the stream ended inside a frame") : (int)n;
}

/* --- giving back to the peer's windows ---------------------------------------------------------------------------- */

static int window_return(struct ulp_layer *l, uint32_t stream, uint32_t *to_return)
{
	struct grpc *g = l->state;
	int32_t window = g->local_initial_window < HTTP2_WINDOW_DEFAULT ? g->local_initial_window : HTTP2_WINDOW_DEFAULT;
	uint8_t frame[HTTP2_HEAD_BYTES + 4];

	if (!*to_return || *to_return < (uint32_t)window / 2)
		return 0;
	if (g->send.control.bytes > CONTROL_BYTES_MAX || ulp_out_reserve(&g->send.control, l, sizeof frame))
		return ulp_fail(l, XTS_FAULT_MEMORY,
				"the peer sends, but does not read the WINDOW_UPDATEs that it needs");
	http2_frame_put(frame, &(struct http2_frame){ .length = 4, .type = HTTP2_WINDOW_UPDATE, .stream = stream });
	xts_put32(frame + HTTP2_HEAD_BYTES, *to_return);
	ulp_out_put(&g->send.control, frame, sizeof frame);
	*to_return = 0;
	return 0;
}

static int data_end(struct ulp_layer *l, struct grpc *g)
{
	const struct http2_frame *f = &g->receive.passing.frame;
	struct grpc_stream *s = grpc_stream_find(g, f->stream);
	int error;

	g->receive.phase = GRPC_HEAD;
	g->receive.passing.got = 0;
	g->to_return += g->receive.frame_bytes;
	error = window_return(l, 0, &g->to_return);
	if (!error && s && f->flags & HTTP2_END_STREAM) {
		if (s->prefix_got)
			return grpc_fail(l, HTTP2_PROTOCOL_ERROR, XTS_FAULT_RECORD, "stream %u ends inside a message",
					 f->stream);
		grpc_stream_ended(g, s, true);
	} else if (!error && s) {
		s->to_return += g->receive.frame_bytes;
		error = window_return(l, f->stream, &s->to_return);
	}
	if (!error)
		error = grpc_control_write(l);
	return error == -EAGAIN ? 0 : error;
}

/* --- heads -------------------------------------------------------------------------------------------------------- */

/* The rest of the frame is messages or padding. An empty frame that ends its stream is delivered to the application. */
static void data_payload(struct grpc *g)
{
	struct grpc_receive *r = &g->receive;
	struct http2_frame *f = &r->passing.frame;
	const struct grpc_stream *s = grpc_stream_find(g, f->stream);

	r->phase = GRPC_DATA;
	if (r->left || !(f->flags & HTTP2_END_STREAM) || !s || s->prefix_got)
		return;
	f->length = 0;
	f->flags = HTTP2_END_STREAM;
	http2_frame_put(r->passing.head, f);
	r->phase = GRPC_PASS_FRAME;
}

static int data_begin(struct ulp_layer *l, struct grpc *g)
{
	struct grpc_receive *r = &g->receive;
	const struct http2_frame *f = &r->passing.frame;
	const struct grpc_stream *s = grpc_stream_find(g, f->stream);

	if (s ? s->remote_ended : !grpc_stream_was(g, f->stream))
		return grpc_fail(l, HTTP2_PROTOCOL_ERROR, XTS_FAULT_HANDSHAKE, "DATA for stream %u, which is not open",
				 f->stream);
	if (f->flags & HTTP2_PADDED && !f->length)
		return grpc_fail(l, HTTP2_FRAME_SIZE_ERROR, XTS_FAULT_LENGTH, "a padded frame without a pad length");
	r->frame_bytes = r->left = f->length;
	r->padding = 0;
	r->small_got = 0;
	if (f->flags & HTTP2_PADDED)
		r->phase = GRPC_PAD_LENGTH;
	else
		data_payload(g);
	return 0;
}

static int frame_begin(struct ulp_layer *l, struct grpc *g)
{
	struct grpc_receive *r = &g->receive;
	const struct http2_frame *f = &r->passing.frame;
	struct grpc_stream *s;

	r->phase = GRPC_PASS_FRAME;
	switch (f->type) {
	case HTTP2_DATA:
		return data_begin(l, g);
	case HTTP2_HEADERS:
		return grpc_headers(l, f, true);
	case HTTP2_RST_STREAM:
		s = grpc_stream_find(g, f->stream);
		if (s)
			grpc_stream_forget(g, s);
		return 0;
	case HTTP2_WINDOW_UPDATE:
		if (f->length != 4)
			return grpc_fail(l, HTTP2_FRAME_SIZE_ERROR, XTS_FAULT_LENGTH, "WINDOW_UPDATE of %u bytes",
					 f->length);
		r->small_got = 0;
		r->phase = GRPC_WINDOW;
		return 0;
	default:
		return 0;
	}
}

static int head_step(struct ulp_layer *l, struct grpc *g)
{
	int error = http2_head_read(&g->receive.passing, &g->receive.in, l);

	for (uint32_t i = 0; error == -ENODATA && i < g->streams.used; i++) {
		const struct grpc_stream *s = &g->streams.stream[i];

		if (s->id && s->prefix_got)
			return ulp_fail(l, XTS_FAULT_TRUNCATED, "the stream ended inside a message of stream %u", s->id);
	}
	return error ? error : frame_begin(l, g);
}

static int window_step(struct ulp_layer *l, struct grpc *g)
{
	struct grpc_receive *r = &g->receive;
	int error = ulp_in_gather(&r->in, l, r->small, &r->small_got, 4);

	if (error)
		return ended_inside(l, error);
	r->phase = GRPC_HEAD;
	r->passing.got = 0;
	return grpc_window_update(l, r->passing.frame.stream, xts_get32(r->small));
}

static int pad_length_step(struct ulp_layer *l, struct grpc *g)
{
	struct grpc_receive *r = &g->receive;
	int error = ulp_in_gather(&r->in, l, r->small, &r->small_got, 1);

	if (error)
		return ended_inside(l, error);
	r->padding = r->small[0];
	if (r->padding >= r->left)
		return grpc_fail(l, HTTP2_PROTOCOL_ERROR, XTS_FAULT_LENGTH, "padding of %u bytes in a frame of %u",
				 r->padding, r->frame_bytes);
	r->left -= 1 + r->padding;
	data_payload(g);
	return 0;
}

static int skip_step(struct ulp_layer *l, struct grpc *g)
{
	struct grpc_receive *r = &g->receive;
	uint8_t nobody[256];

	while (r->padding) {
		ssize_t n = ulp_in_read(&r->in, l, nobody, r->padding < sizeof nobody ? r->padding : sizeof nobody, 0);

		if (n < 0)
			return ended_inside(l, n);
		r->padding -= (uint32_t)n;
	}
	return data_end(l, g);
}

/* --- messages ----------------------------------------------------------------------------------------------------- */

static void gathered_free(struct grpc *g)
{
	struct grpc_buffer *b = &g->receive.gathered;

	free(b->data);
	g->buffered -= b->room;
	ulp_memory_return(g->layer, b->room);
	*b = (struct grpc_buffer){ 0 };
}

/* Makes room for this many bytes of the message in total. The room doubles until the whole message fits. */
static int buffer_reserve(struct ulp_layer *l, struct grpc *g, struct grpc_stream *s, uint32_t bytes)
{
	struct grpc_receive *r = &g->receive;
	uint32_t room = s->buffer_room, more;
	uint8_t *buffer;
	int error;

	if (!s->buffer && r->gathered.data) {
		s->buffer = r->gathered.data;
		room = s->buffer_room = r->gathered.room;
		r->gathered = (struct grpc_buffer){ 0 };
	}
	if (bytes <= room)
		return 0;
	room = bytes > 2 * room ? bytes : 2 * room < s->length ? 2 * room : s->length;
	if (g->buffered - s->buffer_room + room > g->buffered_max)
		return grpc_fail(l, HTTP2_ENHANCE_YOUR_CALM, XTS_FAULT_MEMORY,
				 "the messages that are being gathered take more than %u bytes", g->buffered_max);
	more = room - s->buffer_room;
	error = ulp_memory_take(l, more);
	if (error)
		return grpc_fail(l, HTTP2_ENHANCE_YOUR_CALM, XTS_FAULT_MEMORY, "grpc: no room to gather a message: %s",
				 ULP_MEMORY_LIMIT);
	buffer = realloc(s->buffer, room);
	if (!buffer) {
		ulp_memory_return(l, more);
		return ulp_memory_fail(l, -ENOMEM, "a message that is gathered");
	}
	g->buffered += more;
	s->buffer = buffer;
	s->buffer_room = room;
	return 0;
}

static int message_begin(struct ulp_layer *l, struct grpc *g, struct grpc_stream *s)
{
	struct grpc_receive *r = &g->receive;

	s->length = xts_get32(s->prefix + 1);
	s->got = 0;
	if (s->prefix[0] > 1)
		return grpc_fail(l, HTTP2_PROTOCOL_ERROR, XTS_FAULT_RECORD, "a message of stream %u begins with 0x%02x",
				 s->id, s->prefix[0]);
	if (s->length > g->message_bytes_max)
		return grpc_fail(l, HTTP2_ENHANCE_YOUR_CALM, XTS_FAULT_TOO_LONG,
				 "a message of %u bytes on stream %u, where at most %u are taken", s->length, s->id,
				 g->message_bytes_max);
	if (s->length > r->left)
		return 0; /* it has to be gathered */
	r->message_bytes = s->length;
	r->given = 0;
	r->message_flags = s->prefix[0];
	if (r->passing.frame.flags & HTTP2_END_STREAM && s->length == r->left)
		r->message_flags |= GRPC_END_STREAM;
	s->prefix_got = 0;
	r->phase = GRPC_PASS_MESSAGE;
	return 0;
}

static void message_gathered(struct grpc *g, struct grpc_stream *s)
{
	struct grpc_receive *r = &g->receive;

	gathered_free(g);
	r->gathered = (struct grpc_buffer){ s->buffer, s->buffer_room, s->length };
	r->message_bytes = s->length;
	r->given = 0;
	r->message_flags = s->prefix[0];
	if (r->passing.frame.flags & HTTP2_END_STREAM && !r->left)
		r->message_flags |= GRPC_END_STREAM;
	s->buffer = NULL;
	s->buffer_room = 0;
	s->prefix_got = 0;
	r->phase = GRPC_GATHERED;
}

static int data_step(struct ulp_layer *l, struct grpc *g)
{
	struct grpc_receive *r = &g->receive;
	struct grpc_stream *s = grpc_stream_find(g, r->passing.frame.stream);
	uint32_t want;
	ssize_t n;
	int error;

	if (!s || !r->left) { /* the application has reset the stream meanwhile */
		r->padding += r->left;
		r->left = 0;
		r->phase = GRPC_SKIP;
		return 0;
	}
	if (s->prefix_got < GRPC_PREFIX_BYTES) {
		want = GRPC_PREFIX_BYTES - s->prefix_got;
		n = ulp_in_read(&r->in, l, s->prefix + s->prefix_got, want < r->left ? want : r->left, 0);
		if (n < 0)
			return ended_inside(l, n);
		s->prefix_got = (uint8_t)(s->prefix_got + n);
		r->left -= (uint32_t)n;
		return s->prefix_got == GRPC_PREFIX_BYTES ? message_begin(l, g, s) : 0;
	}
	want = s->length - s->got < r->left ? s->length - s->got : r->left;
	error = buffer_reserve(l, g, s, s->got + want);
	if (error)
		return error;
	n = ulp_in_read(&r->in, l, s->buffer + s->got, want, 0);
	if (n < 0)
		return ended_inside(l, n);
	s->got += (uint32_t)n;
	r->left -= (uint32_t)n;
	if (s->got == s->length)
		message_gathered(g, s);
	return 0;
}

/* --- to the host -------------------------------------------------------------------------------------------------- */

static ssize_t message_give(struct ulp_layer *l, struct grpc *g, void *out, size_t room, struct ulp_mark *mark)
{
	struct grpc_receive *r = &g->receive;
	uint32_t left = r->message_bytes - r->given, want = left < room ? left : (uint32_t)room;
	bool gathered = r->phase == GRPC_GATHERED;
	ssize_t n = want;

	if (gathered)
		memcpy(out, r->gathered.data + r->given, want);
	else if (want)
		n = ulp_in_read(&r->in, l, out, want, room);
	if (n < 0)
		return ended_inside(l, n);
	r->given += (uint32_t)n;
	*mark = (struct ulp_mark){ .pdu = true, .more = r->given < r->message_bytes, .record_bytes = r->message_bytes };
	control_put(mark, GRPC_MESSAGE, r->message_flags, r->passing.frame.stream);
	if (!gathered)
		r->left -= (uint32_t)n;
	if (!mark->more)
		r->phase = GRPC_DATA;
	if (!mark->more)
		r->gathered.bytes = 0;
	if (!mark->more && gathered && r->gathered.room > KEPT_BYTES_MAX)
		gathered_free(g);
	return n;
}

static ssize_t frame_give(struct ulp_layer *l, struct grpc *g, void *out, size_t room, struct ulp_mark *mark)
{
	struct grpc_receive *r = &g->receive;
	const struct http2_frame *f = &r->passing.frame;
	struct iovec piece = { .iov_base = out };
	enum http2_step step;
	size_t at = 0;
	ssize_t n = http2_pass(&r->passing, &r->in, l, out, room, mark);
	int error = 0;

	if (n < 0)
		return n;
	piece.iov_len = (size_t)n;
	while (!error && (step = http2_walk(&r->walk, &piece, 1, (size_t)n, &at)) != HTTP2_WALK_END)
		if (step == HTTP2_WALK_SETTING && !(f->flags & HTTP2_ACK))
			error = grpc_peer_setting(l, r->walk.setting, r->walk.value);
	if (error)
		return error;
	control_put(mark, GRPC_FRAME,
		    (f->type == HTTP2_DATA || f->type == HTTP2_HEADERS) && f->flags & HTTP2_END_STREAM ? GRPC_END_STREAM :
													 0,
		    f->stream);
	if (!mark->more)
		r->phase = f->type == HTTP2_DATA ? GRPC_SKIP : GRPC_HEAD;
	return n;
}

ssize_t grpc_read(struct ulp_layer *l, void *out, size_t room, struct ulp_mark *mark)
{
	static int (*const step[])(struct ulp_layer *, struct grpc *) = {
		[GRPC_HEAD] = head_step, [GRPC_WINDOW] = window_step, [GRPC_PAD_LENGTH] = pad_length_step,
		[GRPC_DATA] = data_step, [GRPC_SKIP] = skip_step,
	};
	struct grpc *g = l->state;
	int error = 0;

	while (!error) {
		if (!ulp_step(l, 1))
			return -EAGAIN;
		switch (g->receive.phase) {
		case GRPC_PASS_FRAME:
			return frame_give(l, g, out, room, mark);
		case GRPC_PASS_MESSAGE:
		case GRPC_GATHERED:
			return message_give(l, g, out, room, mark);
		default:
			error = step[g->receive.phase](l, g);
		}
	}
	return error;
}
