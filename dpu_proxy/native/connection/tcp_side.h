/* Generated from messages/xts_messages/wire/record_table.py by `python -m xts_messages.generate`. Do not edit. */
#ifndef XTS_TCP_SIDE_H
#define XTS_TCP_SIDE_H

#include <stdbool.h>
#include <stdint.h>

#include "connection/spill.h"
#include "wire/record.h"
#include "ulp/ulp_mark.h"
#include "worker/tcp_view.h"

struct pushed;
struct returned_piece;
struct runs;

/* Bytes that another process had received and gave back: returned_bytes.c. */
struct returned {
	struct returned_piece *last; /* its next is the first; NULL: there are none */
};

/* Bytes of the spill buffer that belong together. */
struct run {
	/* how many */
	uint32_t bytes;
	/* they bypass the protocols */
	bool raw;
	/* their mark */
	struct ulp_mark mark;
};

/* Bytes that the host has sent and TCP has not taken yet (outgoing.h). */
struct outgoing {
	/* bytes that wait, in their order */
	struct spill spill;
	/* which of them belong together; NULL: there has been no run yet */
	struct runs *runs;
	/* bytes taken by TCP or a protocol, since the beginning */
	uint64_t sent_bytes;
};

/* Bytes that a host had received, and gave back when another process took the connection over. */
struct returned_part {
	/* their mark */
	struct ulp_mark mark;
	/* how many of them have been sent again */
	uint32_t at;
	/* all of them */
	struct xts_record_bytes data;
};

/* What a connection is towards TCP. It goes from one owner to the next as a whole (tcp_move.h): a connection of a
 * channel, a parked one, one that a member of a shared listener has given back. The rest of struct connection is the
 * channel's, and ends with it. */
struct tcp_side {
	/* its socket; -1: none (any more) */
	int fd;
	/* of the connection, sent in RESET, CONNECT_ACK or CLOSED */
	int error;
	/* charged for the kernel's send buffer, whose size its program has set (socket_buffers.c) */
	uint32_t kernel_send;
	/* the same of the receive buffer */
	uint32_t kernel_receive;
	/* bytes for TCP that still wait */
	struct outgoing out;
	/* bytes sent to the host of this channel, or the last one */
	uint64_t received_bytes;
	/* bytes accepted from the host of this channel, or the last one */
	uint64_t accepted_bytes;
	/* protocols on it, or peek mode; NULL for most (pushed.h) */
	struct pushed *pushed;
	/* bytes that another process had not read: sent to the host before TCP's */
	struct returned returned;
	/* of the socket */
	uint8_t ip_version;
	/* the peer has connected to us */
	bool accepted;
	/* the host sends no more: FIN follows what waits */
	bool fin_wanted;
	/* FIN has been sent, or close(2) sends it */
	bool fin_done;
	/* the last message had the flag MORE */
	bool more;
	/* SO_REUSEADDR is not the host's (listener_kind.c) */
	bool rebinding;
};

/* Of no connection. */
#define TCP_SIDE_NONE ((struct tcp_side){ .fd = -1 })

/* What status and the connection log show of it. What its programs say, and keys, are not there. */
static inline void tcp_side_view(const struct tcp_side *s, struct xts_tcp_view *out)
{
	*out = (struct xts_tcp_view){
		.error = s->error,
		.kernel_send_bytes = s->kernel_send,
		.kernel_receive_bytes = s->kernel_receive,
		.spill_bytes = s->out.spill.bytes,
		.sent_bytes = s->out.sent_bytes,
		.received_bytes = s->received_bytes,
		.host_bytes = s->accepted_bytes,
		.accepted = s->accepted,
		.fin_wanted = s->fin_wanted,
		.fin_done = s->fin_done,
	};
}

#endif
