/*
 * Repeating lost frames (PROTOCOL.md, "Repeating lost frames"): a decorator that numbers the frames that are sent,
 * keeps each until the peer says that it has arrived, and sends it again when it seems lost. What is above sees all
 * frames, once each and in order, over a wire that loses, repeats, delays, reorders and damages them.
 *
 * For wires that do lose frames: over memory, and over veth, there is nothing to repeat, and frames have no head.
 * Both ends have to agree. A host's frames have a head from the first on. A proxy refuses the HELLO of a host that is
 * of the other opinion, with a reason (XTS_REFUSED_RELIABLE).
 */
#ifndef XTS_ARQ_H
#define XTS_ARQ_H

#include "queues/queue.h"

/* By how much its head makes a frame longer. */
#define XTS_ARQ_ADDS (XTS_ARQ_BYTES - XTS_ETH_BYTES)

enum xts_arq_role {
	XTS_ARQ_HOST,      /* frames are repeated */
	XTS_ARQ_PROXY,     /* so they are with every host */
	XTS_ARQ_PROXY_OFF, /* with none: all this does is to refuse hosts that do */
};

struct xts_arq_config {
	enum xts_arq_role role;
	uint64_t epoch; /* host: of the attachment */
};

/* Takes over inner, whose slots have to be retainable (XTS_QUEUE_RETAINS). Has to be wrapped below bundles, and above
 * heads. 0; -EOPNOTSUPP: they are not; -EINVAL: a host without an epoch; -ENOMEM. On failure inner is as before. */
int xts_arq_wrap(struct xts_queue **out, struct xts_queue *inner, const struct xts_arq_config *config);

/* Of what xts_queue_settle() returns for such a queue. */
#define XTS_ARQ_SESSION_BYTES_MAX (1u << 20)
/* Proxy: goes on with the session that the process before had, on a queue that xts_arq_wrap() has just made. Frames
 * that its host has not heard leave with the next kick. 0 or -EINVAL: that is no session, or there is no room for its
 * frames; the queue has none then. */
int xts_arq_resume(struct xts_queue *queue, const uint8_t *session, uint32_t bytes);

/* The same when that process has died. `dead`: its queue as it was in shared memory (xts_queue_place()), in the middle of
 * anything; it may say whatever it likes. `dead_below`: so was the queue at the bottom, of which `below` goes on.
 * Returns how many bytes the session is, to be freed by the caller; 0: there is none of this epoch; or -ENOMEM. Nobody
 * finds a session there any more. Before anything is sent over `below`. */
int xts_arq_dead_session(struct xts_queue *below, const void *dead_below, void *dead, size_t dead_bytes, uint64_t epoch,
			 uint8_t **session);
/* Goes on with it. -EAGAIN: slots are still on their way, try again; else as xts_arq_resume(). */
int xts_arq_resume_dead(struct xts_queue *queue, const uint8_t *session, uint32_t bytes);

#endif
