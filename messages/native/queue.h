/*
 * A queue: frames to and from one peer, in order. There are two implementations (afxdp.c over an AF_XDP socket, shm.c
 * over shared memory) and three decorators (bundle.c, pcap.c, fault.c) behind one interface, so that the code above is
 * the same for all.
 *
 * Transmit: take a slot, write a frame into its contiguous memory, submit, and kick once per round. Slots come back by
 * themselves when the peer (shm) or the kernel (afxdp) has finished with them, and are reused last in, first out, which
 * keeps the copies in the cache. There are at least frame window + XTS_CONTROL_RESERVE slots of largest_message bytes,
 * so a sender that obeys the link's credits normally finds one.
 *
 * Receive: xts_queue_receive() lends out the next frame as up to XTS_SEGMENTS_MAX pieces. The peer can still change
 * that memory (shm), so decode once into private structs. The caller may hold frames, and recycles each exactly once,
 * in any order; recycled slots are published to the peer with the next kick, arm, or receive that finds nothing.
 *
 * Sleeping: arm; if that reports that no frame is there, poll wait_fd for POLLIN; then disarm. The peer pays for a
 * wake-up only while we are armed.
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
	uint64_t tx_lost;     /* sendto returned EBUSY: one frame is lost */
	uint64_t tx_no_slot;
	uint64_t rx_invalid; /* descriptors out of bounds, frames over 17 segments or over the largest size */
	uint64_t rx_dropped; /* the kernel's count of frames that found no fill buffer (afxdp) */
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

/* First member of every implementation's own struct. */
struct xts_queue {
	const struct xts_queue_ops *ops;
	uint32_t largest_message; /* size of the largest frame that this queue carries, in each direction */
	uint16_t frame_window;    /* the largest frame window for which it has buffers, in each direction */
	int wait_fd;              /* poll it for POLLIN while armed; it stays the same for the queue's life */
	bool multi_buffer;
	/* each frame is a packet of the kernel, with a cost however small it is: xts_bundle_wrap() pays off */
	bool packets;
	uint8_t local_mac[6], peer_mac[6];
	struct xts_queue_stats stats;
};

/* Takes a free transmit slot: 0, or -EAGAIN if all are on their way. */
static inline int xts_queue_acquire(struct xts_queue *q, struct xts_tx_slot *slot)
{
	return q->ops->acquire(q, slot);
}
/* Submits the first `bytes` bytes of the slot as one frame; it leaves with the next kick at the latest. */
static inline void xts_queue_submit(struct xts_queue *q, const struct xts_tx_slot *slot, uint32_t bytes)
{
	q->ops->submit(q, slot, bytes);
}
/* Gives an acquired slot back unsent. */
static inline void xts_queue_abandon(struct xts_queue *q, const struct xts_tx_slot *slot)
{
	q->ops->abandon(q, slot);
}
/* Publishes what was submitted, and wakes the peer if it asked for that. 0; -EAGAIN: some of it still waits, kick again
 * soon; -ENETDOWN, -ENXIO: the queue is gone. Cheap if nothing was submitted. */
static inline int xts_queue_kick(struct xts_queue *q)
{
	return q->ops->kick(q);
}
/* Takes the next frame: 1; 0: none; or -EPIPE if the peer's end of the queue is gone for good. */
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
/* After sleeping: withdraws that request and clears the doorbell. */
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

/* Sends several small frames as one, after xts_bundle_send() has allowed it, and splits received bundles. Takes over
 * inner. The decorators below have to be wrapped around this one, not the other way round. 0 or -ENOMEM. */
int xts_bundle_wrap(struct xts_queue **out, struct xts_queue *inner);

/* bundle: the result of xts_bundle_wrap(). on: the peer accepts bundles (XTS_FEATURE_BUNDLE). Off at first. */
void xts_bundle_send(struct xts_queue *bundle, bool on);

/* Writes every frame, in both directions, to a pcap file that Wireshark opens (LINKTYPE_ETHERNET, ns timestamps): a new
 * file of that name or, if the name exists, of the name with the first free number appended ("path.1"). Takes over
 * inner: closing the result closes it. On failure returns -errno and leaves inner alone. */
int xts_pcap_wrap(struct xts_queue **out, struct xts_queue *inner, const char *path);

/* Faults for tests, in parts per million of frames. The order in which they are drawn is fixed, so a seed reproduces
 * them. */
struct xts_faults {
	uint64_t seed;
	uint32_t drop_ppm, duplicate_ppm, reorder_ppm, corrupt_ppm, truncate_ppm;
	uint32_t skip_frames; /* this many frames pass unharmed at first */
};
int xts_fault_wrap(struct xts_queue **out, struct xts_queue *inner, const struct xts_faults *on_transmit,
		   const struct xts_faults *on_receive);

#endif
