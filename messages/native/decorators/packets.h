/*
 * What is put around a queue whose frames are packets of the kernel: small frames share one (XTS_LINK_BUNDLE), and long
 * ones take several (XTS_LINK_PART). Both ends have to know of it: the link's HELLO says so. For all other queues these
 * functions do nothing.
 */
#ifndef XTS_PACKETS_H
#define XTS_PACKETS_H

#include "link/link.h"
#include "queues/queue.h"

/* The decorators of a queue, each NULL where it does not need it. They are closed with the queue. */
struct xts_packets {
	struct xts_queue *bundle, *parts;
};

/* Decorates *queue. 0; or -ENOMEM, and *queue is as before. */
int xts_packets_wrap(struct xts_packets *packets, struct xts_queue **queue);

/* The features to offer for them, of a queue that is or will be decorated. */
uint64_t xts_packets_features(const struct xts_queue *queue);

/* The largest frame to announce: what comes in a packet. */
static inline uint32_t xts_packets_bytes(const struct xts_queue *queue)
{
	return queue->packet_bytes ? queue->packet_bytes : queue->largest_message;
}

/* How long packets are of a link that is up, if its frames come in parts; else 0. */
uint32_t xts_packets_in_parts(const struct xts_link *link);

/* Frames of an epoch whose process has died come again before the next HELLO, in parts if packet_bytes is not 0. */
void xts_packets_again(struct xts_packets *packets, const struct xts_link *link, uint32_t packet_bytes);

/* The link has come up, with the features that both ends have. */
void xts_packets_begin(struct xts_packets *packets, const struct xts_link *link);

/* It is down: what leaves now is for a peer of which nothing is known. */
void xts_packets_end(struct xts_packets *packets);

#endif
