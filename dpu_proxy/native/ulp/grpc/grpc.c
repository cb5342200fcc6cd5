/* The layer GRPC: its parameters, and what frames mean for streams and windows. grpc.h has the theory of operation. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "grpc.h"
#include "grpc_move.h"
#include "ulp/config.h"
#include "ulp/protocols.h"
#include "wire/wire.h"

#define STREAMS_DEFAULT 1024u
#define STREAMS_LIMIT 65536u
/* of a connection: each change walks all streams; a peer that adapts its window changes it some ten times */
#define WINDOW_CHANGES_MAX 1024u
#define BUFFERED_LIMIT (1u << 30) /* so that sums of it fit into 32 bits */

/* --- the layer ---------------------------------------------------------------------------------------------------- */

static int grpc_fits(const struct ulp_layer *l, const struct ulp_layer *below)
{
	if (!below || below->protocol->id != XTS_ULP_HTTP2)
		return ulp_refuse(l, EINVAL, "grpc goes above http2 only");
	return 0;
}

static int grpc_set(struct ulp_layer *l, const struct ulp_attribute *a)
{
	struct grpc *g = l->state;

	switch (a->type) {
	case XTS_GRPC_MAX_BYTES:
		return ulp_max_bytes(l, a, &g->message_bytes_max);
	case XTS_GRPC_STREAMS_MAX:
		return ulp_attribute_u32(l, a, "STREAMS_MAX", &g->streams_max);
	default:
		return ulp_attribute_unknown(l, a);
	}
}

static int grpc_open(struct ulp_layer *l, const uint8_t *attributes, uint32_t bytes)
{
	struct grpc *g = calloc(1, sizeof *g);
	int r;

	if (!g)
		return ulp_refuse(l, ENOMEM, "no memory for grpc");
	l->state = g;
	g->layer = l;
	g->message_bytes_max = ulp_max_bytes_default(l);
	g->streams_max = STREAMS_DEFAULT;
	g->buffered_max = xts_ulp_config_limits(ulp_config(l))->buffered_bytes_max;
	if (g->buffered_max > BUFFERED_LIMIT)
		g->buffered_max = BUFFERED_LIMIT;
	g->send_window = g->peer_initial_window = g->local_initial_window = HTTP2_WINDOW_DEFAULT;
	g->peer_frame_bytes_max = HTTP2_FRAME_BYTES_DEFAULT;
	r = ulp_attributes(l, attributes, bytes, grpc_set);
	if (!r && (!g->streams_max || g->streams_max > STREAMS_LIMIT))
		r = ulp_refuse(l, EINVAL, "STREAMS_MAX is 1 to %u, not %u", STREAMS_LIMIT, g->streams_max);
	return r;
}

static int grpc_start(struct ulp_layer *l, bool client)
{
	struct grpc *g = l->state;

	g->client = client;
	return 0;
}

static bool grpc_pending(const struct ulp_layer *l)
{
	const struct grpc *g = l->state;

	return g->receive.phase == GRPC_GATHERED || ulp_in_pending(&g->receive.in, l);
}

static ssize_t grpc_info(const struct ulp_layer *l, bool receive, uint16_t item, uint32_t offset, void *out,
			 size_t room, uint32_t *total)
{
	const struct grpc *g = l->state;
	uint8_t stream[4];

	(void)receive;
	if (item != XTS_GRPC_INFO_BLOCKED)
		return -ENOENT;
	xts_put32(stream, g->send.blocked ? g->send.stream : 0);
	return ulp_info_part(stream, sizeof stream, offset, out, room, total);
}

static void grpc_close(struct ulp_layer *l)
{
	struct grpc *g = l->state;

	ulp_memory_return(l, g->buffered);
	grpc_streams_free(g);
	ulp_in_free(&g->receive.in);
	free(g->receive.gathered.data);
	ulp_out_free(&g->send.control);
	free(g);
}

/* --- streams and windows ------------------------------------------------------------------------------------------ */

int grpc_fail(struct ulp_layer *l, enum http2_error error, enum xts_fault fault, const char *format, ...)
{
	struct grpc *g = l->state;
	char reason[ULP_REASON_BYTES];
	uint8_t frame[HTTP2_HEAD_BYTES + 8];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(reason, sizeof reason, format, arguments);
	va_end(arguments);
	if (!ulp_out_reserve(&g->send.control, l, sizeof frame)) {
		http2_goaway_put(frame, g->last_remote, error);
		ulp_out_put(&g->send.control, frame, sizeof frame);
		grpc_control_write(l);
	}
	return ulp_fail(l, fault, "%s", reason);
}

int grpc_headers(struct ulp_layer *l, const struct http2_frame *f, bool from_peer)
{
	struct grpc *g = l->state;
	struct grpc_stream *s = grpc_stream_find(g, f->stream);
	bool by_peer = (f->stream % 2 == 1) != g->client;
	int error;

	if (!s && f->stream && by_peer == from_peer && !grpc_stream_was(g, f->stream)) {
		if (g->streams.open >= g->streams_max && !from_peer)
			return ulp_fail(l, XTS_FAULT_USE, "more than %u streams at once", g->streams_max);
		if (g->streams.open >= g->streams_max)
			return grpc_fail(l, HTTP2_ENHANCE_YOUR_CALM, XTS_FAULT_MEMORY,
					 "the peer has opened more than %u streams at once", g->streams_max);
		error = grpc_stream_open(g, f->stream, &s);
		if (error)
			return ulp_memory_fail(l, error, "another stream");
		*(from_peer ? &g->last_remote : &g->last_local) = f->stream;
	}
	if (!s || !(f->flags & HTTP2_END_STREAM))
		return 0;
	if (from_peer && s->prefix_got)
		return grpc_fail(l, HTTP2_PROTOCOL_ERROR, XTS_FAULT_RECORD, "stream %u ends inside a message", f->stream);
	grpc_stream_ended(g, s, from_peer);
	return 0;
}

void grpc_stream_ended(struct grpc *g, struct grpc_stream *s, bool by_peer)
{
	*(by_peer ? &s->remote_ended : &s->local_ended) = true;
	if (s->remote_ended && s->local_ended)
		grpc_stream_forget(g, s);
}

/* A window may have opened. */
static void unblock(struct ulp_layer *l)
{
	struct grpc *g = l->state;

	if (g->send.blocked)
		ulp_wake_after(l, 0);
	g->send.blocked = false;
}

int grpc_peer_setting(struct ulp_layer *l, uint16_t setting, uint32_t value)
{
	struct grpc *g = l->state;

	if (setting == HTTP2_MAX_FRAME_SIZE) {
		if (value < HTTP2_FRAME_BYTES_DEFAULT || value > HTTP2_FRAME_BYTES_MAX)
			return grpc_fail(l, HTTP2_PROTOCOL_ERROR, XTS_FAULT_HANDSHAKE,
					 "the peer allows frames of %u bytes", value);
		g->peer_frame_bytes_max = value;
	}
	if (setting != HTTP2_INITIAL_WINDOW_SIZE)
		return 0;
	if (value > HTTP2_WINDOW_MAX)
		return grpc_fail(l, HTTP2_FLOW_CONTROL_ERROR, XTS_FAULT_HANDSHAKE,
				 "the peer has set its initial window to %u", value);
	if ((int32_t)value == g->peer_initial_window)
		return 0;
	if (++g->window_changes > WINDOW_CHANGES_MAX)
		return grpc_fail(l, HTTP2_ENHANCE_YOUR_CALM, XTS_FAULT_HANDSHAKE,
				 "the peer has changed its initial window %u times", g->window_changes);
	for (uint32_t i = 0; i < g->streams.used; i++) {
		struct grpc_stream *s = &g->streams.stream[i];
		int64_t window = (int64_t)s->send_window + (int32_t)value - g->peer_initial_window;

		if (s->id && (window > HTTP2_WINDOW_MAX || window < -HTTP2_WINDOW_MAX))
			return grpc_fail(l, HTTP2_FLOW_CONTROL_ERROR, XTS_FAULT_HANDSHAKE,
					 "the window of stream %u overflows", s->id);
		s->send_window = (int32_t)window;
	}
	g->peer_initial_window = (int32_t)value;
	unblock(l);
	return 0;
}

int grpc_window_update(struct ulp_layer *l, uint32_t stream, uint32_t bytes)
{
	struct grpc *g = l->state;
	struct grpc_stream *s = stream ? grpc_stream_find(g, stream) : NULL;
	int64_t window = stream ? (s ? s->send_window : 0) : g->send_window;

	bytes &= HTTP2_WINDOW_MAX;
	if (stream && !s && grpc_stream_was(g, stream))
		return 0;
	if (stream && !s)
		return grpc_fail(l, HTTP2_PROTOCOL_ERROR, XTS_FAULT_HANDSHAKE,
				 "WINDOW_UPDATE for stream %u, which is not open", stream);
	if (!bytes || window + bytes > HTTP2_WINDOW_MAX)
		return grpc_fail(l, bytes ? HTTP2_FLOW_CONTROL_ERROR : HTTP2_PROTOCOL_ERROR, XTS_FAULT_HANDSHAKE,
				 "WINDOW_UPDATE by %u bytes for stream %u", bytes, stream);
	if (s)
		s->send_window += (int32_t)bytes;
	else
		g->send_window += bytes;
	unblock(l);
	return 0;
}

/* --- to another process, and from it ------------------------------------------------------------------------------ */

int grpc_check(const void *made)
{
	const struct grpc *g = made;
	bool windows = g->send_window <= HTTP2_WINDOW_MAX && g->send_window >= -(int64_t)UINT32_MAX;
	bool limits = g->streams_max && g->streams.open <= g->streams_max && g->message_bytes_max &&
		      g->peer_frame_bytes_max >= HTTP2_FRAME_BYTES_DEFAULT;

	return windows && limits ? 0 : -EBADMSG;
}

static ssize_t grpc_save(const struct ulp_layer *l, void *out, size_t room)
{
	return ulp_state_save(&grpc_record, l, out, room);
}

static int grpc_restore(struct ulp_layer *l, const void *state, size_t bytes)
{
	int r = ulp_state_restore(&grpc_record, l, sizeof(struct grpc), state, bytes);
	struct grpc *g = l->state;

	if (!g)
		return r;
	g->layer = l;
	return r ? r : grpc_streams_arrived(g);
}

const struct ulp_protocol ulp_grpc = {
	.id = XTS_ULP_GRPC,
	.version = XTS_ULP_GRPC_VERSION,
	.name = "grpc",
	.receive = true,
	.send = true,
	.duplex = true,
	.needs_both = true,
	.boundaries = true,
	.fits = grpc_fits,
	.open = grpc_open,
	.start = grpc_start,
	.read = grpc_read,
	.pending = grpc_pending,
	.write = grpc_write,
	.flush = grpc_control_write,
	.info = grpc_info,
	.save = grpc_save,
	.restore = grpc_restore,
	.moves_since = 2,
	.close = grpc_close,
};
