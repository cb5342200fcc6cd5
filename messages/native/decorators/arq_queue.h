/* The queue of arq.c, for its own files. */
#ifndef XTS_ARQ_QUEUE_H
#define XTS_ARQ_QUEUE_H

#include "decorators/arq.h"
#include "decorators/arq_inside.h"

#define ARQ_PAST_EPOCHS 16u
#define ARQ_CHECKSUM_AT offsetof(struct xts_wire_arq, checksum)

struct arq_queue {
	struct xts_queue base;
	struct xts_arq_config config;
	bool open; /* there is a session */
	uint64_t epoch;
	uint64_t past[ARQ_PAST_EPOCHS]; /* proxy: epochs that had one before */
	uint32_t past_count;
	uint64_t now_ns;
	uint16_t ethertype; /* of the frames that have come */
	uint64_t random;    /* the generator of first numbers */
	uint32_t slots_out; /* handed out and not submitted */
	uint64_t stale, corrupt, early, duplicates, refused, violations, repeated;
	/* a frame of ours for the link above, and whether it is to be received */
	uint8_t goodbye[XTS_ETH_MIN_BYTES];
	bool goodbye_due;
	bool settling;       /* the session goes to another process: nothing is taken any more but acknowledgements */
	uint64_t settled_ns; /* until then for what has not arrived */
	struct arq_again *again; /* frames that a process which has died had taken; NULL: there are none (any more) */
	struct arq_sender tx;
	struct arq_receiver rx;
};

void arq_sync_stats(struct arq_queue *q);
/* Frees what was held and retained. */
void arq_session_end(struct arq_queue *q);
void arq_session_begin(struct arq_queue *q, uint64_t epoch);
/* For xts_queue_settle(). */
int arq_settle(struct xts_queue *base, uint64_t now_ns, uint8_t **session);
/* Writes down what another process has to know of it. How many bytes it is, which are the caller's; 0: there is no
 * session, or it is longer than `most`; or -ENOMEM. */
int arq_session_write(struct arq_queue *q, uint32_t most, uint8_t **session);
/* How many frames there are in what was written. */
uint32_t arq_session_frames(const uint8_t *session, uint32_t bytes);
/* Next of the frames that had gone up in the process that has died, and of what has come behind them: 1, or 0: that was
 * all, and q->again is NULL. */
int arq_again_receive(struct arq_queue *q, struct xts_rx_frame *frame);
/* Gives back what has not been received of them. */
void arq_again_end(struct arq_queue *q);
/* Takes its head off. Once more does nothing more. */
void arq_take_off(struct xts_rx_frame *frame);
/* A frame that has lost its head: goes up, is held, or goes back. As arq_admit(). */
bool arq_arrives(struct arq_queue *q, struct xts_rx_frame *frame, const struct xts_arq *head);
/* Is this frame for the link, now? Else it is not the caller's any more. */
bool arq_admit(struct arq_queue *q, struct xts_rx_frame *frame);

/* The Ethernet header of what is sent without a frame from above. */
static inline void arq_write_ethernet(const struct arq_queue *q, uint8_t *frame, uint16_t ethertype)
{
	memcpy(frame, q->base.peer_mac, 6);
	memcpy(frame + 6, q->base.local_mac, 6);
	xts_put16(frame + 12, ethertype);
}

#endif
