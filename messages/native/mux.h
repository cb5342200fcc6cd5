/*
 * Many channels over one queue: what a relay and the proxy have at the two ends of it.
 *
 * Theory of operation
 *
 * The queue has a link of its own (link.h), the *trunk*, with the feature RELAY in force. A frame of a channel travels
 * as the payload of a CARRIED message of the trunk, which names the channel. So each carried frame, whatever it is to
 * its channel, takes a sequence number and a frame credit of the trunk: however many channels there are, and whatever
 * their own windows, no more frames are on their way than the trunk's window, for which the queue has its buffers.
 * Nothing is lost, by the arithmetic of the one link.
 *
 * A channel sees a queue (queue.h) of its own. Frames for it wait there, in the buffers of the trunk's queue, until the
 * channel takes them. It can occupy at most its own window and the control reserve, which an end that keeps to the
 * rules of its own link never exceeds: one more, and this channel's queue has ended (-EPIPE), and no other.
 *
 * Not thread-safe; no allocation after a channel was added. The owner of the trunk receives, sends its control frames
 * and kicks.
 */
#ifndef XTS_MUX_H
#define XTS_MUX_H

#include "link.h"
#include "queue.h"

struct xts_mux;

/* What xts_mux_take() made of a frame. */
enum xts_mux_verdict {
	XTS_MUX_TAKEN,   /* it waits at its channel, which recycles it, buffers and frame credit */
	XTS_MUX_UNKNOWN, /* there is no channel of this number: the caller adds it and asks again, or drops it */
	XTS_MUX_DROPPED, /* it is no frame of a channel, or its channel's queue has ended: counted, to be dropped */
};

struct xts_mux_stats {
	uint64_t sent, received; /* frames of all channels */
	uint64_t malformed;      /* no frame in it, or a frame that no channel may have */
	uint64_t ended;          /* for a channel whose queue has ended */
	uint64_t floods;         /* channels that were ended for more frames than they may have on their way */
};

/* trunk and link stay the caller's and outlive the result. 0 or -ENOMEM. */
int xts_mux_open(struct xts_mux **out, struct xts_queue *trunk, struct xts_link *link);
/* The epoch of the trunk is over. Queues of channels stay, until they are closed, and have ended. None of their frames
 * may be out. */
void xts_mux_close(struct xts_mux *mux);

/* A channel with a number that is not in use: its queue. The frame window is the largest that its link may negotiate.
 * 0, -EEXIST, -EMSGSIZE (the trunk carries no frames that are large enough) or -ENOMEM. */
int xts_mux_add(struct xts_queue **out, struct xts_mux *mux, uint32_t number, uint16_t frame_window);

/* A CARRIED message that the trunk's link has delivered. Where it was not taken, the caller recycles frame and
 * credit. */
enum xts_mux_verdict xts_mux_take(struct xts_mux *mux, const struct xts_head *head, const struct xts_rx_frame *frame);

/* A frame for a number that has no channel here. 0, or -EAGAIN: it cannot leave now. */
int xts_mux_answer(struct xts_mux *mux, uint32_t number, const void *frame, uint32_t bytes);

/* The type of the frame in a CARRIED message that xts_mux_take() found unknown, or 0. */
uint8_t xts_mux_type(const struct xts_rx_frame *frame);

/* Was something submitted or kicked since this was last asked? The trunk wants a kick then. */
bool xts_mux_kick_due(struct xts_mux *mux);

/* Do frames wait at this channel's queue? */
bool xts_mux_waiting(const struct xts_queue *channel);

void xts_mux_stats(const struct xts_mux *mux, struct xts_mux_stats *out);

#endif
