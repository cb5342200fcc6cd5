/*
 * gRPC messages over HTTP/2, in the proxy.
 *
 * Theory of operation
 *
 * A gRPC message is a prefix of five bytes (compressed or not, length) and that many bytes, cut into DATA frames of its
 * stream as the sender likes. The application gets and gives messages, with the stream's number in the control data;
 * all other frames (HEADERS, SETTINGS, PING, GOAWAY, RST_STREAM …) pass as PDUs of their own, of kind "frame", and are
 * the application's business: it has HPACK, opens and ends the streams, answers SETTINGS and PING. Flow control is this
 * layer's: it counts what the peer lets us send, for the connection and for each stream, from the frames that pass, and
 * sends no more; WINDOW_UPDATE frames are taken out. What it has received it gives back to the peer's windows as soon
 * as it is read here, half a window at a time: since nothing is read that the host has no credits for, that is as slow
 * as the application is.
 *
 * Received, a message that lies in one DATA frame goes to the host as it comes. One that is cut up is gathered, for
 * other streams' messages may be between, and PDUs do not mix. All that is being gathered has one limit, the operator's
 * (buffered_bytes_max); memory follows what has arrived, not what was announced.
 *
 * Sent, a message is cut into DATA frames no longer than the peer takes, the windows allow, and the host has offered so
 * far; so a frame that has begun stops for nothing but TCP, and WINDOW_UPDATEs of our own go between frames. When a
 * window is closed the message waits, and all behind it: the host's bytes are one queue, and so are its post credits.
 * (To let other streams pass, the proxy would need a queue and credits for each stream, which is what sockets are.)
 * ULP_INFO has the number of that stream. Then the WINDOW_UPDATE that opens it wakes the sender. An application must go
 * on reading to see it come.
 *
 * Streams are known from the HEADERS that pass, either way, until both sides have ended them or one has reset them.
 * What comes late for a stream that is gone is dropped, in both directions.
 */
#ifndef XTS_ULP_GRPC_H
#define XTS_ULP_GRPC_H

#include "ulp/http2/http2.h"

#define GRPC_PREFIX_BYTES 5u

enum grpc_kind { GRPC_MESSAGE, GRPC_FRAME };
enum grpc_flag { GRPC_COMPRESSED = 0x01, GRPC_END_STREAM = 0x80 };

struct grpc_stream {
	uint32_t id;   /* 0: free */
	uint32_t next; /* in its chain, or of the free ones; an index + 1 */
	bool local_ended, remote_ended;
	int32_t send_window; /* negative when the peer has shrunk it */
	uint32_t to_return;  /* received, not yet given back to the peer's window */
	uint8_t prefix[GRPC_PREFIX_BYTES];
	uint8_t prefix_got;
	uint32_t length, got; /* of the message that is being gathered */
	uint8_t *buffer;
	uint32_t buffer_room;
};

/* The streams that are open: an array, and chains in it by a hash of the number. */
struct grpc_streams {
	struct grpc_stream *stream;
	uint32_t *chain; /* as many as room */
	uint32_t room, used, free, open;
};

enum grpc_phase {
	GRPC_HEAD, /* of a frame */
	GRPC_PASS_FRAME,
	GRPC_WINDOW, /* the payload of a WINDOW_UPDATE */
	GRPC_PAD_LENGTH,
	GRPC_DATA,         /* prefixes, and messages that are gathered */
	GRPC_PASS_MESSAGE, /* one that lies in this frame */
	GRPC_GATHERED,     /* a gathered one goes to the host */
	GRPC_SKIP,         /* padding, and data of streams that are gone */
};

struct grpc_receive {
	struct ulp_in in;
	struct http2_passing passing; /* the frame */
	struct http2_walk walk;       /* over frames that pass */
	enum grpc_phase phase;
	uint32_t frame_bytes, left, padding; /* of a DATA frame: all of it, messages, padding */
	uint8_t small[4];
	uint32_t small_got;
	uint32_t message_bytes, given; /* of the message that goes to the host */
	uint8_t message_flags;
	uint8_t *gathered;
	uint32_t gathered_room;
};

struct grpc_send {
	bool in_pdu;
	uint8_t kind, flags;
	uint32_t stream;
	uint64_t left; /* of the PDU; UINT64_MAX: not known */
	uint8_t head[HTTP2_HEAD_BYTES + GRPC_PREFIX_BYTES];
	uint8_t head_bytes, head_given;
	uint32_t frame_left, frame_bytes; /* payload from the host of the frame that has begun; all of the frame */
	uint8_t prefix[GRPC_PREFIX_BYTES];
	uint8_t prefix_given;
	struct http2_walk walk; /* over the application's frames */
	bool headers_open;      /* CONTINUATION has to follow */
	bool blocked;           /* by a window */
	struct ulp_out control; /* WINDOW_UPDATEs that wait for the end of a frame, or for TCP */
};

struct grpc {
	struct ulp_layer *layer;
	uint32_t message_bytes_max, streams_max, buffered_max;
	bool client;
	struct grpc_streams streams;
	uint32_t last_local, last_remote; /* the highest stream that each side has opened */
	uint32_t buffered;                /* for messages that are being gathered */
	int64_t send_window;              /* of the connection */
	int32_t peer_initial_window, local_initial_window;
	uint32_t window_changes; /* of the peer's initial window */
	uint32_t peer_frame_bytes_max;
	uint32_t to_return; /* of the connection */
	struct grpc_receive receive;
	struct grpc_send send;
};

/* --- grpc_streams.c --- */
struct grpc_stream *grpc_stream_find(const struct grpc *g, uint32_t id);
/* 0, -ENOMEM or -ENOBUFS (ulp_memory_fail()). Pointers to other streams are void after it. */
int grpc_stream_open(struct grpc *g, uint32_t id, struct grpc_stream **out);
void grpc_stream_forget(struct grpc *g, struct grpc_stream *s);
/* Was a stream of this number open once? */
bool grpc_stream_was(const struct grpc *g, uint32_t id);
void grpc_streams_free(struct grpc *g);

/* --- grpc.c: what frames mean for streams and windows, whoever sent them --- */
/* HEADERS: opens the stream if it is new. 0 or ulp_fail(). */
int grpc_headers(struct ulp_layer *l, const struct http2_frame *f, bool from_peer);
void grpc_stream_ended(struct grpc *g, struct grpc_stream *s, bool by_peer);
int grpc_peer_setting(struct ulp_layer *l, uint16_t setting, uint32_t value);
int grpc_window_update(struct ulp_layer *l, uint32_t stream, uint32_t bytes);
/* GOAWAY, if frames can be sent now, and then ulp_fail(). */
int grpc_fail(struct ulp_layer *l, enum http2_error error, enum xts_fault fault, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

/* --- grpc_receive.c --- */
ssize_t grpc_read(struct ulp_layer *l, void *out, size_t room, struct ulp_mark *mark);

/* --- grpc_send.c --- */
ssize_t grpc_write(struct ulp_layer *l, const struct iovec *iov, int pieces, const struct ulp_mark *mark);
/* Between two frames, where a frame of our own may go? */
bool grpc_between(const struct grpc *g);
/* Writes frames of our own: 0, also when they have to wait for the end of a frame; -EAGAIN: TCP is full; -errno. */
int grpc_control_write(struct ulp_layer *l);

#endif
