/*
 * A queue: frames to and from one peer, in order. Two implementations (afxdp.c over an AF_XDP socket, shm.c over shared
 * memory) and three decorators (bundle.c, pcap.c, fault.c) behind one interface; everything above is the same code.
 *
 * Transmit: take a slot, write a frame into its contiguous memory, submit, and kick once per round. Slots come back by
 * themselves when the peer (shm) or the kernel (afxdp) has done with them, and are reused last in, first out, which
 * keeps the copies in cache. There are at least frame window + XTS_CONTROL_RESERVE slots of largest_message bytes, so a
 * sender that obeys the link's credits normally finds one; XTS_QUEUE_* counts say when not.
 *
 * Receive: xts_queue_receive() lends out the next frame as up to XTS_SEGMENTS_MAX pieces; the memory stays the peer's
 * to scribble on (shm), so decode once into private structs. The caller may hold frames and recycles each once, in any
 * order; recycled slots are published to the peer with the next kick, arm, or receive that finds nothing.
 *
 * Sleeping: arm, and if that says nothing is there, poll wait_fd for POLLIN; then disarm. A peer only pays for a
 * wake-up while we are armed.
 *
 * One thread at a time (the owner of the channel serialises). No allocation after opening.
 */
#ifndef XTS_QUEUE_H
#define XTS_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "wire.h"

#define XTS_SEGMENTS_MAX 17

struct xts_tx_slot {
	uint8_t *data; /* contiguous, largest_message bytes */
	uint32_t capacity;
	uint32_t index; /* private to the implementation */
};

struct xts_rx_frame {
	uint32_t bytes; /* whole frame, Ethernet header included */
	uint32_t segments;
	uint64_t cookie;                        /* private to the implementation */
	struct iovec segment[XTS_SEGMENTS_MAX]; /* the first holds at least min(bytes, 2048) bytes */
};

struct xts_queue_stats {
	uint64_t tx_frames, tx_bytes, rx_frames, rx_bytes;
	uint64_t kicks;       /* doorbells or sendto calls */
	uint64_t kicks_again; /* kicks that must be repeated (EAGAIN, ENOBUFS) */
	uint64_t tx_lost;     /* sendto answered EBUSY: one frame is gone */
	uint64_t tx_no_slot;
	uint64_t rx_invalid; /* descriptors out of bounds, frames over 17 segments or over the largest size */
	uint64_t rx_dropped; /* the kernel's count of frames without a fill buffer (afxdp) */
	uint64_t sleeps, wakeups;
};

struct xts_queue;

struct xts_queue_ops {
	const char *kind; /* "afxdp", "shm" */
	int (*acquire)(struct xts_queue *q, struct xts_tx_slot *slot);
	void (*submit)(struct xts_queue *q, const struct xts_tx_slot *slot, uint32_t bytes);
	void (*abandon)(struct xts_queue *q, const struct xts_tx_slot *slot);
	int (*kick)(struct xts_queue *q);
	int (*receive)(struct xts_queue *q, struct xts_rx_frame *frame);
	void (*recycle)(struct xts_queue *q, const struct xts_rx_frame *frame);
	int (*arm)(struct xts_queue *q);
	void (*disarm)(struct xts_queue *q);
	void (*close)(struct xts_queue *q);
};

/* The head of every implementation's own struct. */
struct xts_queue {
	const struct xts_queue_ops *ops;
	uint32_t largest_message; /* bytes of the largest frame this queue carries, each way */
	uint16_t frame_window;    /* largest frame window its buffers allow, each way */
	int wait_fd;              /* poll it for POLLIN while armed; the same for the queue's life */
	bool multi_buffer;
	/* a frame is a packet of the kernel's, which costs however small it is: worth a xts_bundle_wrap() */
	bool packets;
	uint8_t local_mac[6], peer_mac[6];
	struct xts_queue_stats stats;
};

/* A free transmit slot: 0, or -EAGAIN when all are on their way. */
static inline int xts_queue_acquire(struct xts_queue *q, struct xts_tx_slot *slot)
{
	return q->ops->acquire(q, slot);
}
/* Hands over the first bytes bytes of the slot as one frame; it leaves at the next kick at the latest. */
static inline void xts_queue_submit(struct xts_queue *q, const struct xts_tx_slot *slot, uint32_t bytes)
{
	q->ops->submit(q, slot, bytes);
}
/* Gives an acquired slot back unsent. */
static inline void xts_queue_abandon(struct xts_queue *q, const struct xts_tx_slot *slot)
{
	q->ops->abandon(q, slot);
}
/* Publishes what was submitted and wakes the peer if it asked for it. 0; -EAGAIN: some is still waiting, kick again
 * soon; -ENETDOWN, -ENXIO: the queue is gone. Cheap when nothing was submitted. */
static inline int xts_queue_kick(struct xts_queue *q)
{
	return q->ops->kick(q);
}
/* The next frame: 1, 0 for none, or -EPIPE when the peer's end of the queue is gone for good. */
static inline int xts_queue_receive(struct xts_queue *q, struct xts_rx_frame *frame)
{
	return q->ops->receive(q, frame);
}
static inline void xts_queue_recycle(struct xts_queue *q, const struct xts_rx_frame *frame)
{
	q->ops->recycle(q, frame);
}
/* Asks to be woken. 1: frames are there already, do not sleep; 0: poll wait_fd. */
static inline int xts_queue_arm(struct xts_queue *q)
{
	return q->ops->arm(q);
}
/* After sleeping: takes back the request and clears the doorbell. */
static inline void xts_queue_disarm(struct xts_queue *q)
{
	q->ops->disarm(q);
}
/* Releases everything, descriptors included. */
static inline void xts_queue_close(struct xts_queue *q)
{
	if (q)
		q->ops->close(q);
}

/* --- opening (see afxdp.h, shm.h for the parameters) and decorating ----------------------------------------------- */

/* Sends several small frames as one, once xts_bundle_send() says so, and takes received bundles apart. Takes over
 * inner. The decorators below have to be wrapped around this one, not the other way round. 0 or -ENOMEM. */
int xts_bundle_wrap(struct xts_queue **out, struct xts_queue *inner);

/* bundle: what xts_bundle_wrap() made. The peer takes bundles (XTS_FEATURE_BUNDLE), or, until it has said so, does
 * not. */
void xts_bundle_send(struct xts_queue *bundle, bool on);

/* Writes every frame, both ways, to a pcap file that Wireshark opens (LINKTYPE_ETHERNET, ns timestamps): a new one of
 * that name, or, if there is one, of the name with the first number behind it that is free ("path.1"). Takes over
 * inner: closing the result closes it. On failure returns -errno and leaves inner alone. */
int xts_pcap_wrap(struct xts_queue **out, struct xts_queue *inner, const char *path);

/* Faults by seed, in parts per million of frames, for tests; order of the drawing is fixed, so a seed reproduces. */
struct xts_faults {
	uint64_t seed;
	uint32_t drop_ppm, duplicate_ppm, reorder_ppm, corrupt_ppm, truncate_ppm;
	uint32_t skip_frames; /* first so many frames pass unharmed */
};
int xts_fault_wrap(struct xts_queue **out, struct xts_queue *inner, const struct xts_faults *on_transmit,
		   const struct xts_faults *on_receive);

#endif
