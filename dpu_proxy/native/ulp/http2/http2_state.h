/* Generated from messages/xts_messages/wire/record_table.py by `python -m xts_messages.generate`. Do not edit. */
#ifndef XTS_HTTP2_STATE_H
#define XTS_HTTP2_STATE_H

#include <stdbool.h>
#include <stdint.h>

#include "ulp/ulp.h"

/* The header of a frame of HTTP/2. */
struct http2_frame {
	/* of the payload */
	uint32_t length;
	/* enum http2_type, or another */
	uint8_t type;
	/* enum http2_flag */
	uint8_t flags;
	/* its number; 0: the connection */
	uint32_t stream;
};

/* A frame on its way to the host. */
struct http2_passing {
	/* its header */
	uint8_t head[9];
	/* of the header */
	uint32_t got;
	/* of header and payload, delivered to the host */
	uint32_t given;
	/* the header, if it is complete */
	struct http2_frame frame;
};

/* Where a walk over frames is that pass in pieces. */
struct http2_walk {
	/* of the frame */
	uint8_t head[9];
	/* of SETTINGS */
	uint8_t entry[6];
	/* of the header */
	uint8_t got;
	/* of the setting */
	uint8_t entry_got;
	/* of the payload */
	uint32_t left;
	/* the header */
	struct http2_frame frame;
	/* the last one found */
	uint16_t setting;
	/* of that */
	uint32_t value;
};

/* HTTP2: frames as PDUs (http2.c). */
struct http2 {
	/* enum role */
	uint8_t role;
	/* the longest payload that the application takes */
	uint32_t frame_bytes_max;
	/* the preface has to be sent */
	bool preface_due;
	/* bytes read ahead */
	struct ulp_in in;
	/* of the client, as it comes */
	uint8_t preface[24];
	/* how much of it */
	uint32_t preface_got;
	/* what comes */
	struct http2_passing passing;
	/* the header of the current frame */
	bool checked;
	/* the peer's highest stream, for GOAWAY */
	uint32_t last_stream;
	/* the preface, or GOAWAY */
	struct ulp_out out;
	/* over what is sent */
	struct http2_walk walk;
	/* more of the PDU has to be sent */
	bool in_pdu;
	/* of it; UINT32_MAX: not known */
	uint32_t pdu_left;
};

#endif
