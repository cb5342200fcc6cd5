/* Generated from messages/xts_messages/wire/record_table.py by `python -m xts_messages.generate`. Do not edit. */
#ifndef XTS_GRPC_STATE_H
#define XTS_GRPC_STATE_H

#include <stdbool.h>
#include <stdint.h>

#include "ulp/http2/http2_state.h"
#include "wire/record.h"

struct grpc_stream;

/* The open streams: an array, with hash chains by the stream's number. */
struct grpc_streams {
	struct grpc_stream *stream;
	uint32_t *chain; /* as many as room */
	uint32_t room, used, free, open;
};

/* A message that was gathered; memory that is kept has no bytes. */
struct grpc_buffer {
	uint8_t *data;
	uint32_t room, bytes;
};

/* An open stream (struct grpc_stream). */
struct grpc_moved_stream {
	/* its number */
	uint32_t id;
	/* we send no more on it */
	bool local_ended;
	/* the peer sends no more */
	bool remote_ended;
	/* what the peer lets us send, signed: negative when it has shrunk it */
	int32_t send_window;
	/* bytes received and not yet given back to the peer's window */
	uint32_t to_return;
	/* of the message that is being gathered */
	uint8_t prefix[5];
	/* how much of it */
	uint8_t prefix_got;
	/* of the message */
	uint32_t length;
	/* what has come of it */
	struct xts_record_bytes message;
};

/* What comes (grpc_receive.c). */
struct grpc_receive {
	/* bytes read ahead */
	struct ulp_in in;
	/* the frame */
	struct http2_passing passing;
	/* over the frames that pass */
	struct http2_walk walk;
	/* enum grpc_phase */
	uint8_t phase;
	/* of a DATA frame: its length */
	uint32_t frame_bytes;
	/* what is left of its messages */
	uint32_t left;
	/* its padding */
	uint32_t padding;
	/* a number that comes */
	uint8_t small[4];
	/* how much of it */
	uint32_t small_got;
	/* of the message that goes to the host */
	uint32_t message_bytes;
	/* what the host has of it */
	uint32_t given;
	/* enum grpc_flag */
	uint8_t message_flags;
	/* a message that was gathered, in GRPC_GATHERED */
	struct grpc_buffer gathered;
};

/* What is sent (grpc_send.c). */
struct grpc_send {
	/* more of the PDU has to be sent */
	bool in_pdu;
	/* enum grpc_kind */
	uint8_t kind;
	/* enum grpc_flag */
	uint8_t flags;
	/* of the message */
	uint32_t stream;
	/* of the PDU; UINT64_MAX: not known */
	uint64_t left;
	/* of the frame that has begun, and what it has of the prefix */
	uint8_t head[14];
	/* how long that is */
	uint8_t head_bytes;
	/* what TCP has of it */
	uint8_t head_given;
	/* payload still to come from the host */
	uint32_t frame_left;
	/* the length of the frame */
	uint32_t frame_bytes;
	/* of the message */
	uint8_t prefix[5];
	/* what frames have of it */
	uint8_t prefix_given;
	/* over the application's frames */
	struct http2_walk walk;
	/* a CONTINUATION frame has to follow */
	bool headers_open;
	/* by a window */
	bool blocked;
	/* WINDOW_UPDATEs that wait for the end of a frame, or for TCP */
	struct ulp_out control;
};

/* GRPC: messages of all streams (grpc.c). */
struct grpc {
	/* of a message that comes */
	uint32_t message_bytes_max;
	/* that may be open */
	uint32_t streams_max;
	/* bytes of messages that are being gathered */
	uint32_t buffered_max;
	/* the streams that it opens are odd */
	bool client;
	/* that are open */
	struct grpc_streams streams;
	/* the highest stream that our side has opened */
	uint32_t last_local;
	/* the same of the peer */
	uint32_t last_remote;
	/* of the connection; signed */
	int64_t send_window;
	/* of a stream, as the peer has set it */
	int32_t peer_initial_window;
	/* as the application has */
	int32_t local_initial_window;
	/* how often the peer has changed its initial window */
	uint32_t window_changes;
	/* the longest payload that the peer takes */
	uint32_t peer_frame_bytes_max;
	/* of the connection: received and not yet given back to the peer's window */
	uint32_t to_return;
	/* what comes */
	struct grpc_receive receive;
	/* what is sent */
	struct grpc_send send;
	struct ulp_layer *layer;
	uint32_t buffered; /* bytes allocated for messages that are being gathered */
};

#endif
