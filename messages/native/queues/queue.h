/*
 * A queue: frames to and from one peer, in order. There are three implementations (afxdp.c over an AF_XDP socket, shm.c
 * over shared memory, rdma.c) and six decorators (headed.c, arq.c, parts.c, bundle.c, pcap.c, fault.c) behind one
 * interface, so that the code above is the same for all.
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
 * A frame that has arrived and a buffer that is free are two things. The link's credit for a frame goes back when its
 * buffers are free again, or when others are there in their place: xts_queue_keep() sets kept_max buffers aside for
 * frames that are kept longer. So
 *
 *     frame window * buffers of the largest frame + kept_max + XTS_CONTROL_RESERVE <= buffers
 *
 * which each kind checks when it adopts a queue, and a peer with credits never meets a queue without a buffer. When
 * they are used up the caller copies the frame, or keeps its credit with it and the link waits.
 *
 * Time: a decorator that delays or repeats frames has a clock, which is the caller's. xts_queue_tick() tells it the
 * time, before a kick and at the latest at xts_queue_deadline_ns(). Most queues have none, and pay nothing for it.
 *
 * A slot that is retained keeps its content after it was submitted, and can be submitted again. Until it is released it
 * is none of those that come back by themselves. Where memory is the peer's, the peer may write to it.
 *
 * Sleeping: arm; if that reports that no frame is there, poll wait_fd for POLLIN; then disarm. The peer pays for a
 * wake-up only while we are armed.
 *
 * One thread at a time (the owner of the channel serialises). No allocation after opening.
 */
#ifndef XTS_QUEUE_H
#define XTS_QUEUE_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/uio.h>

#include "wire/wire.h"

#define XTS_SEGMENTS_MAX 17
#define XTS_QUEUE_KEPT_MAX 1024u /* buffers */

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
	uint64_t tx_lost;     /* frames that the kernel lost, and that could not be sent again */
	uint64_t tx_resent;   /* frames that the kernel lost, and that were sent again (EBUSY, afxdp_again.c) */
	uint64_t tx_no_slot;
	uint64_t rx_invalid; /* descriptors out of bounds, frames over 17 segments or over the largest size */
	uint64_t rx_dropped; /* the kernel's count of frames that found no buffer, or no room in the ring (afxdp) */
	uint64_t rx_foreign; /* frames without the head that they have to have, or with a wrong secret (headed.h) */
	uint64_t sleeps, wakeups;
	/* where lost frames are repeated (arq.h) */
	uint64_t tx_repeated;   /* sent again */
	uint64_t rx_duplicates; /* came again */
	uint64_t rx_early;      /* came before one that was sent before */
	uint64_t violations;    /* acknowledgements of what was never sent */
	uint64_t rtt_ns;        /* mean round trip lately; 0: not known */
	uint64_t window_frames; /* that may be on their way; 0: frames are not repeated */
	uint64_t card_polls;    /* looks in which the kernel polled the card (afxdp, busy polling) */
};

struct xts_heads;
struct xts_queue;

/* What the code above a queue goes by. It does not ask which kind of queue it has. */
enum xts_queue_trait {
	/* every kick with a frame costs a system call, and not only one that has to wake the peer */
	XTS_QUEUE_KICK_COSTS = 1,
	/* each frame is a packet of the kernel, with a cost however small it is: xts_bundle_wrap() pays off */
	XTS_QUEUE_PACKETS = 2,
	/* a frame may be longer than one buffer */
	XTS_QUEUE_FRAGMENTS = 4,
	/* at the host: the end of the attach connection is the end of the queue. Else only pings show that the peer has
	 * gone, and the end of the connection means no more than that nobody looks after the queue. */
	XTS_QUEUE_DEATH_SHOWS = 8,
	/* the peer can write to the memory of a frame while it is lent out, in either direction */
	XTS_QUEUE_PEER_MEMORY = 16,
	/* a submitted slot may be retained and submitted again */
	XTS_QUEUE_RETAINS = 32,
	/* it does something by itself at a time: xts_queue_tick() has to be called */
	XTS_QUEUE_CLOCK = 64,
	/* it has buffers for frames in parts, each part a frame of the queue (parts.h) */
	XTS_QUEUE_PARTS = 128,
};

struct xts_queue_ops {
	const char *kind; /* "afxdp", "shm", "rdma" */
	int (*acquire)(struct xts_queue *q, struct xts_tx_slot *slot);
	void (*submit)(struct xts_queue *q, const struct xts_tx_slot *slot, uint32_t bytes);
	void (*abandon)(struct xts_queue *q, const struct xts_tx_slot *slot);
	int (*kick)(struct xts_queue *q);
	int (*receive)(struct xts_queue *q, struct xts_rx_frame *frame);
	void (*recycle)(struct xts_queue *q, const struct xts_rx_frame *frame);
	int (*arm)(struct xts_queue *q);
	void (*disarm)(struct xts_queue *q);
	void (*close)(struct xts_queue *q);
	/* With XTS_QUEUE_CLOCK. NULL: a decorator without a clock of its own, on a queue with one. */
	void (*tick)(struct xts_queue *q, uint64_t now_ns);
	uint64_t (*deadline_ns)(const struct xts_queue *q);
	/* With XTS_QUEUE_RETAINS: slots that outlive their submission. */
	void (*retain)(struct xts_queue *q, const struct xts_tx_slot *slot);
	int (*submit_retained)(struct xts_queue *q, const struct xts_tx_slot *slot, uint32_t bytes);
	void (*release)(struct xts_queue *q, const struct xts_tx_slot *slot);
	/* Of a decorator with a session. NULL: there is none. */
	int (*settle)(struct xts_queue *q, uint64_t now_ns, uint8_t **session);
	/* Of a queue in use, for another process that goes on with it (resume of queue_kinds.h). NULL: not possible. */
	int (*leave)(struct xts_queue *q, int *fds, uint8_t *state);
	/* As xts_queue_dead_slot(). NULL of a decorator, and where struct_bytes is 0. */
	void *(*dead_slot)(struct xts_queue *q, const void *dead, uint64_t place, uint32_t bytes);
	/* Of its own struct, which xts_queue_place() may copy elsewhere; 0: it has pointers into itself. */
	uint32_t struct_bytes;
};

/* The two ends of a queue. */
enum xts_queue_end { XTS_QUEUE_HOST, XTS_QUEUE_PROXY };

/* First member of every implementation's own struct. */
struct xts_queue {
	const struct xts_queue_ops *ops;
	struct xts_queue *inner;  /* of a decorator: the queue that it uses */
	uint32_t largest_message; /* size of the largest frame that this queue carries, in each direction */
	uint32_t packet_bytes;    /* of the largest that leaves and comes in one piece; 0: largest_message (parts.h) */
	uint16_t frame_window;    /* the largest frame window for which it has buffers, in each direction */
	uint32_t tx_slots;        /* for transmitting; 0: frame_window + XTS_CONTROL_RESERVE */
	int wait_fd;              /* poll it for POLLIN while armed; it stays the same for the queue's life */
	uint32_t traits;          /* enum xts_queue_trait */
	uint32_t kept_max, kept;  /* buffers for frames that are kept longer than their credit; those in use */
	/* the heads of its frames, and how many bytes of largest_message they take (headed.h); NULL and 0: there are none */
	struct xts_heads *heads;
	uint32_t head_bytes;
	bool placed; /* its struct is in the owner's memory: xts_queue_place() */
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
/* Keeps a received frame longer than its credit. True: the caller returns the credit now (xts_link_recycled()), goes on
 * using the frame, and at last calls xts_queue_recycle_kept(). False: there is no room for it. */
static inline bool xts_queue_keep(struct xts_queue *q, const struct xts_rx_frame *frame)
{
	if (frame->segments > q->kept_max - q->kept)
		return false;
	q->kept += frame->segments;
	return true;
}
static inline void xts_queue_recycle_kept(struct xts_queue *q, const struct xts_rx_frame *frame)
{
	q->kept -= frame->segments;
	q->ops->recycle(q, frame);
}
/* Keeps the content of an acquired slot until it is released, however often it is submitted. */
static inline void xts_queue_retain(struct xts_queue *q, const struct xts_tx_slot *slot)
{
	q->ops->retain(q, slot);
}
/* Submits a retained slot, for the first time or again. 0; -EAGAIN: it has not come back from the last time, or a
 * decorator has no slot for the copy that it sends. */
static inline int xts_queue_submit_retained(struct xts_queue *q, const struct xts_tx_slot *slot, uint32_t bytes)
{
	return q->ops->submit_retained(q, slot, bytes);
}
/* The slot is free again, as soon as it has come back. */
static inline void xts_queue_release(struct xts_queue *q, const struct xts_tx_slot *slot)
{
	q->ops->release(q, slot);
}
/* Tells the queue the time. What is due leaves with the next kick. */
static inline void xts_queue_tick(struct xts_queue *q, uint64_t now_ns)
{
	if (!(q->traits & XTS_QUEUE_CLOCK))
		return;
	while (!q->ops->tick)
		q = q->inner;
	q->ops->tick(q, now_ns);
}
/* When to call xts_queue_tick(), in ns; 0: at once, since it does not know the time; UINT64_MAX: not needed. */
static inline uint64_t xts_queue_deadline_ns(const struct xts_queue *q)
{
	if (!(q->traits & XTS_QUEUE_CLOCK))
		return UINT64_MAX;
	while (!q->ops->deadline_ns)
		q = q->inner;
	return q->ops->deadline_ns(q);
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
/* Before xts_queue_leave(), as often as needed: nothing is taken any more but what is needed to settle what was sent.
 * Returns how many bytes the next process has to know to go on with the session, to be freed by the caller; 0:
 * there is no session, or it cannot go on; -EAGAIN: try again soon; -ENOMEM. */
static inline int xts_queue_settle(struct xts_queue *q, uint64_t now_ns, uint8_t **session)
{
	*session = NULL;
	return q->ops->settle ? q->ops->settle(q, now_ns, session) : 0;
}
static inline void xts_queue_session_free(uint8_t *session)
{
	free(session);
}
#define XTS_QUEUE_STATE_BYTES_MAX 512u
/* This end goes to another process: nothing is lent out, nothing was acquired, and this queue is only closed from now
 * on. Fills in duplicates of its descriptors, as its kind has them, and what the other process has to know: returns how
 * many bytes that is, at most XTS_QUEUE_STATE_BYTES_MAX; -EAGAIN: frames are on their way, try again; -EOPNOTSUPP;
 * another -errno. */
static inline int xts_queue_leave(struct xts_queue *q, int *fds, uint8_t *state)
{
	return q->ops->leave ? q->ops->leave(q, fds, state) : -EOPNOTSUPP;
}
/* Where all of a queue's own state is found when its process has died without leaving it: resume_dead of queue_kinds.h
 * reads it there. The memory, struct_bytes long, is the owner's, and outlives the queue. Returns the queue there; of
 * the one before only the struct is left, which its owner frees (xts_release()). Before its first frame. */
static inline struct xts_queue *xts_queue_place(const struct xts_queue *q, void *memory)
{
	struct xts_queue *there = memory;

	memcpy(memory, q, q->ops->struct_bytes);
	there->placed = true;
	return there;
}
/* Of a queue that was resumed from `dead`, the struct of a process that has died: so many bytes of a transmit slot,
 * which that process has had at this place of its memory. NULL: there was no such place. */
static inline void *xts_queue_dead_slot(struct xts_queue *q, const void *dead, uint64_t place, uint32_t bytes)
{
	for (; q->inner; q = q->inner)
		;
	return q->ops->dead_slot ? q->ops->dead_slot(q, dead, place, bytes) : NULL;
}
/* Releases everything, descriptors included. */
static inline void xts_queue_close(struct xts_queue *q)
{
	if (q)
		q->ops->close(q);
}

/* --- opening (see queue_kinds.h) and decorating -------------- ----------------------------------------------- */

/* Sends several small frames as one, after xts_bundle_send() has allowed it, and splits received bundles. Takes over
 * inner. The decorators below have to be wrapped around this one, not the other way round. 0 or -ENOMEM. */
int xts_bundle_wrap(struct xts_queue **out, struct xts_queue *inner);

/* bundle: the result of xts_bundle_wrap(). on: the peer accepts bundles (XTS_FEATURE_BUNDLE), of so many bytes (0: as
 * this queue's frames). Off at first. */
void xts_bundle_send(struct xts_queue *bundle, bool on, uint32_t most_bytes);

/* It uses this queue from now on, which lies below the one that it was wrapped around, as long as those between do
 * nothing but pass on; or that one again. */
void xts_bundle_use(struct xts_queue *bundle, struct xts_queue *inner);

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
	/* Delayed frames hold up those behind them for delay_us; repeated ones are sent again after it. The queue then
	 * has a clock. Frames are repeated on transmit alone, where the inner queue retains slots. */
	uint32_t delay_ppm, repeat_ppm, delay_us;
};
/* Takes over inner, except on failure. */
int xts_fault_wrap(struct xts_queue **out, struct xts_queue *inner, const struct xts_faults *on_transmit,
		   const struct xts_faults *on_receive);

/* For xts_fault_wrap(): the faults that take time (fault_time.c), and the generator, splitmix64. Any seed, even 0,
 * gives a good sequence. */
int xts_fault_time_wrap(struct xts_queue **out, struct xts_queue *inner, const struct xts_faults *on_transmit,
			const struct xts_faults *on_receive);
uint64_t xts_fault_random(uint64_t *state);

#endif
