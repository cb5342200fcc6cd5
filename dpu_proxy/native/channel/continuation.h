/*
 * A command of a host that takes several turns, or waits for something. A channel has at most one: until it is done,
 * nothing more is received from the queue, so the host's later messages find what they would find if the command had
 * taken no time.
 *
 * A command that cannot end in its turn fills in a struct continuation and calls continuation_begin(). Each turn of the
 * channel then calls resume(), which calls continuation_done() when it has carried out the rest.
 */
#ifndef XTS_CONTINUATION_H
#define XTS_CONTINUATION_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/datagram.h"
#include "queues/queue.h"
#include "wire/wire.h"

struct batch_entry;
struct channel;
struct connection;
struct ulp_preparation;

struct continuation {
	/* Goes on, in a turn of the channel, unless `again` is set. True: it has done something. */
	bool (*resume)(struct channel *ch);
	/* It will not go on, because the epoch ends or its connection is gone: frees what only it has. NULL: nothing. */
	void (*drop)(struct channel *ch);
	struct connection *connection; /* what it is about; NULL: nothing that can be freed meanwhile */
	bool replies_later;            /* the command will be answered by a reply of its own */
	bool has_frame;                /* the message's frame is kept until it is done */
	bool is_idle;                  /* it waits for another thread, which wakes the worker */
	bool again;                    /* what it waited for is there: the message is carried out from the beginning */
	struct xts_head head;
	struct xts_rx_frame frame;
	union {
		struct xts_bind bind;
		struct xts_connect connect;
		struct {
			bool unwaited; /* nobody waits for CLOSED */
			bool keeps;    /* the listener is kept for other processes, as if its own process had ended */
		} close;
		struct {
			uint32_t xts_socket, token;
		} shut;
		struct {
			struct xts_datagram_cursor cursor; /* in the frame */
			bool more;                         /* the message's flag MORE */
		} datagrams;
		struct {
			struct ulp_preparation *wanted;
			uint64_t since_ns;
		} preparation;
	};
};

void continuation_begin(struct channel *ch, const struct continuation *c);
/* Before that, for a message that is read on, or carried out again, later: c takes over the frame of e. The command
 * returns COMMAND_UNFINISHED. */
void continuation_keep_frame(struct continuation *c, const struct xts_head *head, const struct batch_entry *e);
/* It has been carried out. */
void continuation_done(struct channel *ch);
/* The epoch ends. */
void continuation_cancel(struct channel *ch);
/* The connection is freed. */
void continuation_connection_gone(struct channel *ch, const struct connection *c);

#endif
