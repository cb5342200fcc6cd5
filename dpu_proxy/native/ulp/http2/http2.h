/* HTTP/2 frames (RFC 9113 4.1), as the layers HTTP2 and GRPC see them. */
#ifndef XTS_ULP_HTTP2_H
#define XTS_ULP_HTTP2_H

#include "ulp/http2/http2_state.h"

#define HTTP2_HEAD_BYTES 9u
#define HTTP2_FRAME_BYTES_MAX 0xffffffu
#define HTTP2_FRAME_BYTES_DEFAULT 16384u
#define HTTP2_WINDOW_DEFAULT 65535
#define HTTP2_WINDOW_MAX INT32_MAX

enum http2_type {
	HTTP2_DATA,
	HTTP2_HEADERS,
	HTTP2_PRIORITY,
	HTTP2_RST_STREAM,
	HTTP2_SETTINGS,
	HTTP2_PUSH_PROMISE,
	HTTP2_PING,
	HTTP2_GOAWAY,
	HTTP2_WINDOW_UPDATE,
	HTTP2_CONTINUATION,
};

enum http2_flag { HTTP2_END_STREAM = 0x01, HTTP2_ACK = 0x01, HTTP2_END_HEADERS = 0x04, HTTP2_PADDED = 0x08 };

enum http2_setting { HTTP2_INITIAL_WINDOW_SIZE = 4, HTTP2_MAX_FRAME_SIZE = 5 };

enum http2_error {
	HTTP2_PROTOCOL_ERROR = 1,
	HTTP2_FLOW_CONTROL_ERROR = 3,
	HTTP2_FRAME_SIZE_ERROR = 6,
	HTTP2_ENHANCE_YOUR_CALM = 11
};

void http2_frame_get(struct http2_frame *f, const uint8_t *head);
void http2_frame_put(uint8_t *head, const struct http2_frame *f);
void http2_goaway_put(uint8_t frame[HTTP2_HEAD_BYTES + 8], uint32_t last_stream, enum http2_error error);

/* --- a frame on its way to the host ------------------------------------------------------------------------------- */

/* Reads the header: 0 when it is complete, also in later calls; -EAGAIN; -ENODATA: the stream ended before it; else
 * ulp_fail(). */
int http2_head_read(struct http2_passing *p, struct ulp_in *in, struct ulp_layer *l);
/* Delivers bytes of the frame from its header on, and the mark without control data, as protocol->read does. After the
 * last byte p is in its initial state. */
ssize_t http2_pass(struct http2_passing *p, struct ulp_in *in, struct ulp_layer *l, void *out, size_t room,
		   struct ulp_mark *mark);

/* --- walking over frames that pass in pieces ---------------------------------------------------------------------- */

enum http2_step { HTTP2_WALK_END, HTTP2_WALK_FRAME, HTTP2_WALK_SETTING };

/* Walks from byte *at of the pieces, which have this many bytes, to the end of a frame's header, of a setting, or of
 * the bytes. */
enum http2_step http2_walk(struct http2_walk *w, const struct iovec *iov, int pieces, size_t bytes, size_t *at);
/* Is the walk between two frames? */
static inline bool http2_walk_between(const struct http2_walk *w)
{
	return !w->got;
}

#endif
