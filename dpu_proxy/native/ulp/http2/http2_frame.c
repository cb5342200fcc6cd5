/* Headers of HTTP/2 frames, and walking over frames that come in pieces. */
#include <errno.h>
#include <string.h>

#include "http2.h"
#include "http2_move.h"
#include "wire/wire.h"

void http2_frame_get(struct http2_frame *f, const uint8_t *head)
{
	f->length = (uint32_t)head[0] << 16 | (uint32_t)head[1] << 8 | head[2];
	f->type = head[3];
	f->flags = head[4];
	f->stream = xts_get32(head + 5) & 0x7fffffffu;
}

void http2_frame_put(uint8_t *head, const struct http2_frame *f)
{
	head[0] = (uint8_t)(f->length >> 16);
	head[1] = (uint8_t)(f->length >> 8);
	head[2] = (uint8_t)f->length;
	head[3] = f->type;
	head[4] = f->flags;
	xts_put32(head + 5, f->stream);
}

void http2_goaway_put(uint8_t frame[HTTP2_HEAD_BYTES + 8], uint32_t last_stream, enum http2_error error)
{
	http2_frame_put(frame, &(struct http2_frame){ .length = 8, .type = HTTP2_GOAWAY });
	xts_put32(frame + HTTP2_HEAD_BYTES, last_stream);
	xts_put32(frame + HTTP2_HEAD_BYTES + 4, error);
}

int http2_head_read(struct http2_passing *p, struct ulp_in *in, struct ulp_layer *l)
{
	int error;

	if (p->got == HTTP2_HEAD_BYTES)
		return 0;
	error = ulp_in_gather(in, l, p->head, &p->got, HTTP2_HEAD_BYTES);
	if (error == -ENODATA && p->got)
		return ulp_fail(l, XTS_FAULT_TRUNCATED, "the stream ended in the header of a frame");
	if (!error)
		http2_frame_get(&p->frame, p->head);
	return error;
}

/* The header alone is not worth a message to the host: it waits for the first bytes of the payload, if there is one. */
ssize_t http2_pass(struct http2_passing *p, struct ulp_in *in, struct ulp_layer *l, void *out, size_t room,
		   struct ulp_mark *mark)
{
	uint32_t total = HTTP2_HEAD_BYTES + p->frame.length, n = 0;
	ssize_t read;

	if (p->given < HTTP2_HEAD_BYTES) {
		n = HTTP2_HEAD_BYTES - p->given < room ? HTTP2_HEAD_BYTES - p->given : (uint32_t)room;
		memcpy(out, p->head + p->given, n);
	}
	if (n < room && p->given + n < total) {
		size_t left = total - p->given - n;

		read = ulp_in_read(in, l, (uint8_t *)out + n, left < room - n ? left : room - n, room - n);
		if (read == -ENODATA)
			return ulp_fail(l, XTS_FAULT_TRUNCATED,
					"the stream ended inside a frame: %zu bytes are missing", left);
		if (read < 0)
			return read;
		n += (uint32_t)read;
	}
	p->given += n;
	*mark = (struct ulp_mark){ .pdu = true, .more = p->given < total, .record_bytes = total };
	if (!mark->more)
		p->got = p->given = 0;
	return n;
}

int http2_passing_check(const void *made)
{
	const struct http2_passing *p = made;
	uint32_t total = p->got == HTTP2_HEAD_BYTES ? HTTP2_HEAD_BYTES + p->frame.length : 0;

	return p->given <= total ? 0 : -EBADMSG;
}

enum http2_step http2_walk(struct http2_walk *w, const struct iovec *iov, int pieces, size_t bytes, size_t *at)
{
	while (*at < bytes) {
		size_t want = HTTP2_HEAD_BYTES - w->got, here = bytes - *at;

		if (want) {
			want = want < here ? want : here;
			*at += ulp_iov_copy(w->head + w->got, iov, pieces, *at, want);
			w->got = (uint8_t)(w->got + want);
			if (w->got < HTTP2_HEAD_BYTES)
				break;
			http2_frame_get(&w->frame, w->head);
			w->left = w->frame.length;
			w->entry_got = 0;
			if (!w->left)
				w->got = 0;
			return HTTP2_WALK_FRAME;
		}
		want = w->left < here ? w->left : here;
		if (w->frame.type == HTTP2_SETTINGS && want > sizeof w->entry - w->entry_got)
			want = sizeof w->entry - w->entry_got;
		if (w->frame.type == HTTP2_SETTINGS)
			w->entry_got = (uint8_t)(w->entry_got +
						 ulp_iov_copy(w->entry + w->entry_got, iov, pieces, *at, want));
		*at += want;
		w->left -= (uint32_t)want;
		if (!w->left)
			w->got = 0;
		if (w->frame.type == HTTP2_SETTINGS && w->entry_got == sizeof w->entry) {
			w->entry_got = 0;
			w->setting = xts_get16(w->entry);
			w->value = xts_get32(w->entry + 2);
			return HTTP2_WALK_SETTING;
		}
	}
	return HTTP2_WALK_END;
}
