/*
 * The head of a frame (PROTOCOL.md, "The frame's head"): a decorator that puts one in front of each frame that is sent,
 * checks the one of each frame that comes, and takes it off. What is above sees frames without heads.
 *
 * The head has the secret of the attachment. Where a switch or a card decides on which queue a frame arrives, whoever
 * has a queue can write to another's, so only those are heard who know the secret.
 *
 * A host knows the form of its frames when it attaches. A proxy takes it from the frame that opens an epoch: before, it
 * answers each frame in its own form.
 */
#ifndef XTS_HEADED_H
#define XTS_HEADED_H

#include "queues/queue.h"

/* By how much a head makes a frame longer. */
#define XTS_HEADED_ADDS (XTS_HEADED_BYTES - XTS_ETH_BYTES)

struct xts_headed_config {
	/* host: the secret of the attachment, which each frame has. 0, at a proxy: the host decides, with each epoch */
	uint64_t secret;
	uint32_t number; /* the peer's number of the queue */
	/* proxy: the map of secrets that its XDP program compares, by number of the queue; or -1. It stays the caller's */
	int secrets_fd;
};

/* Takes over inner. Has to be wrapped right around the queue, below all other decorators. 0; or -errno, and inner is
 * as before. */
int xts_headed_wrap(struct xts_queue **out, struct xts_queue *inner, const struct xts_headed_config *config);

/* Proxy: the frame that came last has opened an epoch. From now on all frames have its form and its secret, and others
 * are dropped. And: there is no epoch any more. Both do nothing to a queue without heads. */
void xts_headed_epoch(struct xts_queue *queue);
void xts_headed_no_epoch(struct xts_queue *queue);

/* What another process has to know of them: of a proxy that has left a queue with heads (xts_queue_leave()), the last
 * bytes of its state. Of a queue without heads it is 0. And: can it be? */
#define XTS_HEADED_STATE_BYTES 10u
void xts_headed_state(const struct xts_queue *queue, uint8_t *state);
bool xts_headed_state_ok(const uint8_t *state);
/* Proxy: goes on with the epoch that the process before had, on a queue that xts_headed_wrap() has just made. Its map
 * has to be the same one. 0 or -EINVAL: that is no such state. The same when that process has died: frames that it had
 * received come again, without the end of their heads, until the next epoch begins. */
int xts_headed_resume(struct xts_queue *queue, const uint8_t *state, uint32_t bytes);
int xts_headed_resume_dead(struct xts_queue *queue, const uint8_t *state, uint32_t bytes);

/* The secret of the frame that came last; 0: it had none. */
uint64_t xts_headed_last(const struct xts_queue *queue);

#endif
