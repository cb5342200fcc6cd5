/*
 * HTTP/2 frames as PDUs.
 *
 * Receive: a frame goes to the host as it comes, its header first. The layer knows only the header and the largest
 * frame that the application has allowed in its SETTINGS (a parameter; the layer does not read SETTINGS). A longer
 * frame is answered by GOAWAY (FRAME_SIZE_ERROR), if a frame can be sent at that moment, and ends the connection. Send:
 * every PDU has to be one or more whole frames; with a wrong length the peer would misread the rest of the connection.
 *
 * The layer handles the client's preface: it is put before the first frame, and checked and removed at the server.
 * SETTINGS and all other frames are handled by the application (or by the layer above).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "http2.h"
#include "http2_move.h"
#include "ulp/protocols.h"

#define PREFACE "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
#define PREFACE_BYTES 24u

enum role { BY_WHO_CONNECTED, CLIENT, SERVER };

static int http2_set(struct ulp_layer *l, const struct ulp_attribute *a)
{
	struct http2 *h = l->state;

	switch (a->type) {
	case XTS_HTTP2_ROLE:
		return ulp_attribute_u8(l, a, "ROLE", &h->role);
	case XTS_HTTP2_MAX_FRAME_BYTES:
		return ulp_attribute_u32(l, a, "MAX_FRAME_BYTES", &h->frame_bytes_max);
	default:
		return ulp_attribute_unknown(l, a);
	}
}

static int http2_open(struct ulp_layer *l, const uint8_t *attributes, uint32_t bytes)
{
	struct http2 *h = calloc(1, sizeof *h);
	int r;

	if (!h)
		return ulp_refuse(l, ENOMEM, "no memory for http2");
	l->state = h;
	h->frame_bytes_max = HTTP2_FRAME_BYTES_DEFAULT;
	r = ulp_attributes(l, attributes, bytes, http2_set);
	if (!r && h->role > SERVER)
		r = ulp_refuse(l, EINVAL, "ROLE is 0, 1 or 2, not %u", h->role);
	if (!r && (h->frame_bytes_max < HTTP2_FRAME_BYTES_DEFAULT || h->frame_bytes_max > HTTP2_FRAME_BYTES_MAX))
		r = ulp_refuse(l, EINVAL, "MAX_FRAME_BYTES is 16384 to 16777215, not %u", h->frame_bytes_max);
	return r;
}

static int http2_start(struct ulp_layer *l, bool client)
{
	struct http2 *h = l->state;

	if (h->role == BY_WHO_CONNECTED)
		h->role = client ? CLIENT : SERVER;
	h->preface_due = h->role == CLIENT;
	if (h->role == CLIENT)
		h->preface_got = PREFACE_BYTES; /* a server has none */
	return 0;
}

/* --- received ----------------------------------------------------------------------------------------------------- */

static int preface_read(struct ulp_layer *l, struct http2 *h)
{
	uint32_t had = h->preface_got;
	int error = ulp_in_gather(&h->in, l, h->preface, &h->preface_got, PREFACE_BYTES);

	if (memcmp(h->preface, PREFACE, h->preface_got) != 0)
		return ulp_fail(l, XTS_FAULT_HANDSHAKE, "the client did not begin with the preface of HTTP/2");
	if (error == -ENODATA && (had || h->preface_got))
		return ulp_fail(l, XTS_FAULT_TRUNCATED, "the stream ended in the preface");
	return error;
}

static void send_goaway(struct ulp_layer *l, struct http2 *h, enum http2_error error)
{
	uint8_t frame[HTTP2_HEAD_BYTES + 8];

	if (!l->send || h->preface_due || h->in_pdu || !http2_walk_between(&h->walk) ||
	    ulp_out_reserve(&h->out, l, sizeof frame))
		return;
	http2_goaway_put(frame, h->last_stream, error);
	ulp_out_put(&h->out, frame, sizeof frame);
	ulp_out_flush(&h->out, l);
}

static int head_check(struct ulp_layer *l, struct http2 *h)
{
	const struct http2_frame *f = &h->passing.frame;

	if (f->length > h->frame_bytes_max) {
		send_goaway(l, h, HTTP2_FRAME_SIZE_ERROR);
		return ulp_fail(l, XTS_FAULT_TOO_LONG, "a frame of %u bytes, where at most %u are allowed", f->length,
				h->frame_bytes_max);
	}
	if (f->type == HTTP2_HEADERS && f->stream % 2 == (h->role == SERVER) && f->stream > h->last_stream)
		h->last_stream = f->stream;
	h->checked = true;
	return 0;
}

static ssize_t http2_read(struct ulp_layer *l, void *out, size_t room, struct ulp_mark *mark)
{
	struct http2 *h = l->state;
	struct http2_frame frame;
	ssize_t n;
	int error = 0;

	if (h->preface_got < PREFACE_BYTES)
		error = preface_read(l, h);
	if (!error)
		error = http2_head_read(&h->passing, &h->in, l);
	if (!error && !h->checked)
		error = head_check(l, h);
	if (error)
		return error;
	frame = h->passing.frame;
	n = http2_pass(&h->passing, &h->in, l, out, room, mark);
	if (n < 0)
		return n;
	if (!mark->more)
		h->checked = false;
	mark->control_type = XTS_ULP_HTTP2;
	mark->control_bytes = HTTP2_HEAD_BYTES;
	http2_frame_put(mark->control, &frame);
	return n;
}

static bool http2_pending(const struct ulp_layer *l)
{
	const struct http2 *h = l->state;

	return ulp_in_pending(&h->in, l);
}

/* --- sent --------------------------------------------------------------------------------------------------------- */

static int preface_write(struct ulp_layer *l, struct http2 *h)
{
	if (h->preface_due) {
		if (ulp_out_reserve(&h->out, l, PREFACE_BYTES))
			return ulp_fail(l, XTS_FAULT_MEMORY, "no memory for the preface");
		ulp_out_put(&h->out, PREFACE, PREFACE_BYTES);
		h->preface_due = false;
	}
	return ulp_out_flush(&h->out, l);
}

/* Checks that these bytes, together with those already sent, are whole frames. */
static int frames_check(struct ulp_layer *l, const struct http2 *h, const struct iovec *iov, int pieces, size_t bytes,
			const struct ulp_mark *mark)
{
	struct http2_walk walk = h->walk;
	size_t at = 0;

	if (mark->pdu && h->pdu_left != UINT32_MAX && (bytes > h->pdu_left || (!mark->more && bytes < h->pdu_left)))
		return ulp_fail(l, XTS_FAULT_USE, "a PDU whose length is not the one announced");
	while (http2_walk(&walk, iov, pieces, bytes, &at) != HTTP2_WALK_END)
		if (mark->pdu && h->pdu_left != UINT32_MAX && walk.left > h->pdu_left - at)
			return ulp_fail(l, XTS_FAULT_USE, "a frame of %u bytes is longer than its PDU",
					walk.frame.length);
	if (mark->pdu && !mark->more && !http2_walk_between(&walk))
		return ulp_fail(l, XTS_FAULT_USE, "a PDU that ends inside a frame");
	return 0;
}

static ssize_t http2_write(struct ulp_layer *l, const struct iovec *iov, int pieces, const struct ulp_mark *mark)
{
	struct http2 *h = l->state;
	struct ulp_mark stream = { 0 };
	size_t bytes = ulp_iov_bytes(iov, pieces), at = 0;
	ssize_t n;
	int error = preface_write(l, h);

	if (error)
		return error == -EAGAIN ? 0 : error;
	if (mark->pdu && !h->in_pdu) {
		h->pdu_left = mark->record_bytes ? mark->record_bytes : mark->more ? UINT32_MAX : (uint32_t)bytes;
		if (!bytes && !mark->more)
			return ulp_fail(l, XTS_FAULT_USE, "an empty PDU: it has to be a frame");
	}
	error = frames_check(l, h, iov, pieces, bytes, mark);
	if (error)
		return error;
	if (!bytes) {
		h->in_pdu = mark->more;
		return 1;
	}
	n = ulp_write_below(l, iov, pieces, &stream);
	if (n < 0)
		return n;
	while (http2_walk(&h->walk, iov, pieces, (size_t)n, &at) != HTTP2_WALK_END)
		;
	if (mark->pdu && h->pdu_left != UINT32_MAX)
		h->pdu_left -= (uint32_t)n;
	if (mark->pdu)
		h->in_pdu = mark->more || (size_t)n < bytes;
	return n;
}

static int http2_flush(struct ulp_layer *l)
{
	struct http2 *h = l->state;

	return ulp_out_flush(&h->out, l);
}

static void http2_close(struct ulp_layer *l)
{
	struct http2 *h = l->state;

	if (!h)
		return;
	ulp_in_free(&h->in);
	ulp_out_free(&h->out);
	free(h);
}

/* --- to another process, and from it ------------------------------------------------------------------------------ */

static ssize_t http2_save(const struct ulp_layer *l, void *out, size_t room)
{
	return ulp_state_save(&http2_record, l, out, room);
}

static uint32_t http2_rests(const struct ulp_layer *l)
{
	const struct http2 *h = l->state;
	bool receives = h->preface_got == PREFACE_BYTES && !h->in.bytes && !h->passing.got && !h->checked;
	bool sends = !h->preface_due && !h->out.bytes && !h->in_pdu && http2_walk_between(&h->walk);

	return receives && sends ? h->last_stream + 1 : 0;
}

static int http2_restore(struct ulp_layer *l, const void *state, size_t bytes)
{
	int r = ulp_state_restore(&http2_record, l, sizeof(struct http2), state, bytes);
	struct http2 *h = l->state;

	return r ? r : ulp_out_count(&h->out, l);
}

const struct ulp_protocol ulp_http2 = {
	.id = XTS_ULP_HTTP2,
	.version = XTS_ULP_HTTP2_VERSION,
	.name = "http2",
	.receive = true,
	.send = true,
	.duplex = true,
	.boundaries = true,
	.open = http2_open,
	.start = http2_start,
	.read = http2_read,
	.pending = http2_pending,
	.write = http2_write,
	.flush = http2_flush,
	.save = http2_save,
	.restore = http2_restore,
	.rests = http2_rests,
	.moves_since = 2,
	.close = http2_close,
};
