/*
 * Many channels over one queue, used by a relay and the proxy at its two ends.
 *
 * Theory of operation
 *
 * The queue has a link of its own (link.h), the *trunk*, with the feature RELAY in force. A frame of a channel travels
 * as the payload of a CARRIED message of the trunk, which names the channel. So each carried frame, whatever its type,
 * takes a sequence number and a frame credit of the trunk. However many channels there are, and whatever their own
 * windows, the frames on their way never exceed the trunk's window, for which the queue has buffers. So the arithmetic
 * of this one link guarantees that nothing is lost.
 *
 * A channel sees a queue (queue.h) of its own. Frames for it wait there, in the buffers of the trunk's queue, until the
 * channel takes them. It can occupy at most its own window and the control reserve, which a peer that obeys the rules
 * of its own link never exceeds. One frame more ends this channel's queue (-EPIPE), and no other.
 *
 * Not thread-safe; no allocation after a channel has been added. The owner of the trunk receives frames, sends its
 * control frames and kicks.
 */
#ifndef XTS_MUX_H
#define XTS_MUX_H

#include "link/link.h"
#include "queues/queue.h"

struct xts_mux;

/* How xts_mux_take() has treated a frame. */
enum xts_mux_verdict {
	XTS_MUX_TAKEN, /* it waits at its channel, which will recycle it and return the frame credit */
	/* there is no channel with this number: the caller adds one and calls again, or drops the frame */
	XTS_MUX_UNKNOWN,
	/* it is not a frame of a channel, or its channel's queue has ended: counted; the caller drops it */
	XTS_MUX_DROPPED,
};

struct xts_mux_stats {
	uint64_t sent, received; /* frames of all channels together */
	uint64_t malformed;      /* without a frame, or with one that no channel may have */
	uint64_t ended;          /* for a channel whose queue has ended */
	uint64_t floods;         /* channels that were ended because they had too many frames on their way */
};

/* The caller keeps trunk and link, which must outlive the result. 0 or -ENOMEM. */
int xts_mux_open(struct xts_mux **out, struct xts_queue *trunk, struct xts_link *link);
/* The epoch of the trunk is over. The queues of channels have ended, but exist until they are closed. No frame of
 * theirs may be held. */
void xts_mux_close(struct xts_mux *mux);

/* Adds a channel under a number that is not in use, and returns its queue. frame_window is the largest that its link
 * may negotiate. 0, -EEXIST, -EMSGSIZE (the trunk cannot carry frames that are large enough) or -ENOMEM. */
int xts_mux_add(struct xts_queue **out, struct xts_mux *mux, uint32_t number, uint16_t frame_window);

/* Handles a CARRIED message that the trunk's link has delivered. If it was not taken, the caller recycles the frame and
 * its credit. */
enum xts_mux_verdict xts_mux_take(struct xts_mux *mux, const struct xts_head *head, const struct xts_rx_frame *frame);

/* The frame in a CARRIED message. 0, or -EBADMSG: there is none, or one that no channel may have. */
int xts_mux_inner(struct xts_rx_frame *out, const struct xts_rx_frame *frame);

/* Sends a frame for a number that has no channel here. 0, or -EAGAIN: it cannot leave now. */
int xts_mux_answer(struct xts_mux *mux, uint32_t number, const void *frame, uint32_t bytes);

/* The type of the frame in a CARRIED message that xts_mux_take() found unknown, or 0. */
uint8_t xts_mux_type(const struct xts_rx_frame *frame);

/* Has anything been submitted or kicked since the last call? Then the trunk needs a kick. */
bool xts_mux_kick_due(struct xts_mux *mux);

/* Do frames wait at this channel's queue? */
bool xts_mux_waiting(const struct xts_queue *channel);

void xts_mux_stats(const struct xts_mux *mux, struct xts_mux_stats *out);

#endif
