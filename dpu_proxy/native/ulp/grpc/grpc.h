/*
 * gRPC messages over HTTP/2, in the proxy.
 *
 * Theory of operation
 *
 * A gRPC message is a prefix of five bytes (compressed or not, length) and that many bytes, cut into DATA frames of its
 * stream as the sender likes. The application receives and sends messages, with the stream's number in the control
 * data. All other frames (HEADERS, SETTINGS, PING, GOAWAY, RST_STREAM …) pass as PDUs of their own, of kind "frame",
 * and are the application's business: it does HPACK, opens and ends the streams, and answers SETTINGS and PING. This
 * layer does flow control. From the frames that pass it counts what the peer lets us send, for the connection and for
 * each stream, and sends no more; it takes WINDOW_UPDATE frames out. It reopens the peer's windows as soon as it has
 * read the data, half a window at a time. Since it reads nothing that the host has no credits for, the windows open
 * only as fast as the application reads.
 *
 * Receive: a message that lies in one DATA frame goes to the host as it comes. A message in several frames is gathered,
 * because frames of other streams may come between them, and PDUs must not be interleaved. One limit, the operator's
 * buffered_bytes_max, covers all messages that are being gathered. Memory is allocated for bytes that have arrived, not
 * for bytes that were announced.
 *
 * Send: a message is cut into DATA frames. No frame is longer than the peer takes, than the windows allow, or than what
 * the host has offered so far. So once a frame has begun, only TCP can stop it, and WINDOW_UPDATEs of our own go
 * between frames. When a window is closed, the message waits, and everything behind it waits too: the host's bytes are
 * one queue with one set of post credits. (To let other streams pass, the proxy would need a queue and credits for each
 * stream, which is what sockets are for.) ULP_INFO reports the number of the blocked stream. The WINDOW_UPDATE that
 * opens the window wakes the sender; the application has to go on reading for it to arrive.
 *
 * A stream is known from the first HEADERS that pass, in either direction, until both sides have ended it or one has
 * reset it. Frames that come too late for a stream are dropped, in both directions.
 */
#ifndef XTS_ULP_GRPC_H
#define XTS_ULP_GRPC_H

#include "ulp/grpc/grpc_state.h"
#include "ulp/http2/http2.h"

#define GRPC_PREFIX_BYTES 5u

enum grpc_kind { GRPC_MESSAGE, GRPC_FRAME };
enum grpc_flag { GRPC_COMPRESSED = 0x01, GRPC_END_STREAM = 0x80 };

struct grpc_stream {
	uint32_t id;   /* 0: free */
	uint32_t next; /* the next in its hash chain, or in the list of free ones; an index + 1 */
	bool local_ended, remote_ended;
	int32_t send_window; /* negative when the peer has shrunk it */
	uint32_t to_return;  /* bytes received and not yet given back to the peer's window */
	uint8_t prefix[GRPC_PREFIX_BYTES];
	uint8_t prefix_got;
	uint32_t length, got; /* of the message that is being gathered */
	uint8_t *buffer;
	uint32_t buffer_room;
};

enum grpc_phase {
	GRPC_HEAD, /* the header of a frame */
	GRPC_PASS_FRAME,
	GRPC_WINDOW, /* the payload of a WINDOW_UPDATE */
	GRPC_PAD_LENGTH,
	GRPC_DATA,         /* prefixes, and messages that are being gathered */
	GRPC_PASS_MESSAGE, /* a message that lies in this frame */
	GRPC_GATHERED,     /* a gathered message goes to the host */
	GRPC_SKIP,         /* padding, and data of streams that no longer exist */
};

/* --- grpc_streams.c --- */
struct grpc_stream *grpc_stream_find(const struct grpc *g, uint32_t id);
/* 0, -ENOMEM or -ENOBUFS (ulp_memory_fail()). Invalidates pointers to other streams. */
int grpc_stream_open(struct grpc *g, uint32_t id, struct grpc_stream **out);
void grpc_stream_forget(struct grpc *g, struct grpc_stream *s);
/* Has a stream of this number ever been open? */
bool grpc_stream_was(const struct grpc *g, uint32_t id);
void grpc_streams_free(struct grpc *g);
/* Of a state that has come in a record: puts them into chains, and counts their memory. 0, -EBADMSG, -ENOMEM or
 * -ENOBUFS. */
int grpc_streams_arrived(struct grpc *g);

/* --- grpc.c: what frames mean for streams and windows, whoever sent them --- */
/* HEADERS: opens the stream if it is new. 0 or ulp_fail(). */
int grpc_headers(struct ulp_layer *l, const struct http2_frame *f, bool from_peer);
void grpc_stream_ended(struct grpc *g, struct grpc_stream *s, bool by_peer);
int grpc_peer_setting(struct ulp_layer *l, uint16_t setting, uint32_t value);
int grpc_window_update(struct ulp_layer *l, uint32_t stream, uint32_t bytes);
/* Sends GOAWAY if a frame can be sent now, and then calls ulp_fail(). */
int grpc_fail(struct ulp_layer *l, enum http2_error error, enum xts_fault fault, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

/* --- grpc_receive.c --- */
ssize_t grpc_read(struct ulp_layer *l, void *out, size_t room, struct ulp_mark *mark);

/* --- grpc_send.c --- */
ssize_t grpc_write(struct ulp_layer *l, const struct iovec *iov, int pieces, const struct ulp_mark *mark);
/* Is the sender between two frames, where a frame of our own may go? */
bool grpc_between(const struct grpc *g);
/* Writes frames of our own: 0, also when they have to wait for the end of a frame; -EAGAIN:
 * TCP is full; else -errno. */
int grpc_control_write(struct ulp_layer *l);

#endif
