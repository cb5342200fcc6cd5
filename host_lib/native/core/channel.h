/* A channel: an attachment, its queue and the link over it. opening.c has its beginning, channel.c the rest. */
#ifndef XTS_HOST_CHANNEL_H
#define XTS_HOST_CHANNEL_H

#include <stdbool.h>
#include <stdint.h>

#include "attaching/attach.h"
#include "core/catch_up.h"
#include "core/device_clock.h"
#include "link/link.h"
#include "decorators/packets.h"
#include "processes/next_proxy.h"
#include "queues/queue.h"

struct held;
struct stack;
struct xts_sock;

/* after this many frames a long send rings the peer's doorbell, so that both sides work in parallel */
#define KICK_FRAMES 4u
/* A silent device may be busy, stopped or dead, which look alike from here. After PING_MS of silence it is sent a ping,
 * and after the setting dead_ms it is given up, on either kind of queue. If its end shows at once (over shm the attach
 * connection hangs up), there is no wait. */
#define PING_MS 250u
#define OPENING_MS 2000u /* to wait for the answer to HELLO */
/* The same, where the attach connection tells of the other end's death: then silence is slowness. */
#define OPENING_LOCAL_MS 10000u
#define ATTACH_ERROR_BYTES 256u
#define HEAD_COPY_BYTES 128u /* bytes of a frame that are copied before anything in it is trusted */

/* A connection that the proxy has announced (its identifier) and this side does not take: EAGAIN gives it back. */
struct refused {
	uint32_t proxy_id;
	uint16_t error;
};

/* A message with datagrams, to which more of the same socket may be added. */
struct datagram_message {
	struct xts_sock *of; /* NULL: there is none */
	struct xts_tx_slot slot;
	uint32_t length; /* bytes of its payload so far */
	void (*submit)(struct channel *c);
	/* It cannot be submitted: its datagrams wait at their socket. False: no memory. */
	bool (*keep)(struct channel *c);
};

struct channel {
	struct stack *stack;
	struct channel *next_dead;
	struct xts_attachment attachment;
	struct xts_queue *queue;    /* attachment.queue, perhaps decorated */
	struct xts_packets packets; /* some of the decorators */
	struct xts_link link;
	struct device_clock clock;
	bool dead;
	bool retry;        /* there is no slot, or a doorbell has to be rung again: look again in a millisecond */
	bool armed;        /* by stack_leave(), for a thread that sleeps on the queue outside the waits of wait.c */
	unsigned sleepers; /* threads in poll on its descriptors */
	unsigned unkicked; /* frames sent since the last doorbell */
	struct xts_sock *outbox_first, *outbox_last;
	struct xts_sock *blocked; /* sockets to wake when frames may be sent again */
	struct held *pool, *held_oldest, *held_newest;
	uint64_t pending_bytes;
	struct datagram_message making; /* not submitted yet (datagram_outbox.c) */
	struct refused *refused;        /* connections to be refused or given back */
	unsigned refused_count, refused_room;
	struct held *held;
	struct move move;
	uint64_t relatives_told; /* the last file of relatives that the server has been told of: relatives_tell() */
	uint64_t looked_ns;      /* when its queue was last looked at, by the coarse clock */
	uint64_t tended_ns;      /* when time last passed for the link, by that clock, though nobody waited */
	struct catch_up catch_up;
	uint8_t *gathered;          /* room for the messages of a frame (GATHERED); NULL: none has come */
	struct xts_rx_frame *inner; /* the one of these that is being handled, which is a copy; NULL: none */
};

/* Is there something to send, or to look at again? A queue with a clock wants to be told the time. */
static inline bool channel_busy(const struct channel *c)
{
	return c->outbox_first || c->refused_count || move_is_busy(&c->move) || c->retry ||
	       xts_queue_deadline_ns(c->queue) != UINT64_MAX;
}

int channel_attach(struct stack *st); /* makes st->channel, if there is none; blocks; 0 or -errno */
void channel_control(struct channel *c, uint64_t now);
void channel_pump(struct stack *st); /* receives and handles the frames that have come */
void channel_tick(struct stack *st, uint64_t now);
void channel_die(struct stack *st, int error);  /* ends the channel and its sockets */
void channel_fail(struct stack *st, int error); /* the same where this side cannot go on: sends GOODBYE */
/* The same after the proxy has broken the protocol: says which rule. */
void channel_violation(struct stack *st, const char *what);
void channel_say_goodbye(struct stack *st); /* GOODBYE is sent, if there is a channel */
void channel_reap(struct stack *st);
void channel_check_idle(struct stack *st);          /* to be called before a new socket is made on it */
void channel_connection_event(struct channel *c);   /* the attach connection is readable */
bool channel_connection_ends_it(struct channel *c); /* called then: has the queue ended? */
uint64_t channel_deadline_ns(const struct channel *c);
bool channel_can_send(const struct stack *st);
int channel_slot(struct stack *st, struct xts_tx_slot *slot); /* 0, or -EAGAIN: no frame can leave now; -ENETDOWN */
void channel_submit(struct stack *st, const struct xts_tx_slot *slot, uint32_t bytes);
/* sends the outbox and control frames, and rings the doorbell */
void channel_flush(struct stack *st, bool kick);
int channel_wait_slot(struct stack *st, struct xts_tx_slot *slot); /* waits for a slot; 0 or -ENETDOWN */
void channel_forget(struct stack *st);                             /* in a forked child */
/* Notes, for the outbox, that a connection announced by the proxy is not taken. */
void channel_refuse(struct stack *st, uint32_t proxy_id, uint16_t error);

/* Shall this message be lost? Called only while losses are simulated (simulated_loss.c). */
bool loss_takes_it(struct stack *st);

#endif
