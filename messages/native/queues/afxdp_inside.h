/* A queue over an AF_XDP socket as its own files see it: afxdp.c, afxdp_look.c, afxdp_orphan.c,
 * afxdp_again.c. */
#ifndef XTS_AFXDP_INSIDE_H
#define XTS_AFXDP_INSIDE_H

#include <stdbool.h>

#include "queues/afxdp_rings.h"
#include "decorators/parts.h"
#include "queues/queue.h"

#define AFXDP_SLOTS_MAX (XTS_PARTS_PACKETS_MAX + XTS_CONTROL_RESERVE)

/* Frames that are to be sent again, and all that were submitted behind them, in order (afxdp_again.c). */
struct afxdp_again {
	uint32_t first, count;
	bool tried; /* the first is in the transmit ring */
	struct {
		uint32_t bytes;
		uint16_t slot;
	} frame[AFXDP_SLOTS_MAX];
};

struct afxdp_queue {
	struct xts_queue base;
	struct xts_ring fill, completion, rx, tx;
	uint8_t *umem;
	uint64_t rx_bytes_end; /* end of the receive chunks, where the transmit slots begin */
	uint32_t tx_slots, slot_bytes;
	uint32_t chunk_bytes, chunk_shift; /* 1 << chunk_shift */
	uint32_t tx_kicked;                /* index of the tx ring up to which a kick has been accepted */
	uint32_t tx_taken; /* index up to which the kernel has taken everything, and has told of no loss */
	bool kick_again;
	bool zero_copy;  /* the driver uses our memory: it may ask for a wake-up, as rings have to be looked at again */
	bool busy_polls; /* whoever opened it asked for busy polling */
	bool looks;      /* one of these two: there is something to do when nothing has come */
	bool card_known; /* the kernel knows what to poll (SO_INCOMING_NAPI_ID) */
	uint32_t busy_looks; /* since the queue was opened, while the kernel does not */
	uint32_t free_count;
	/* a stack: the slot that came back last goes out first, while it is in the cache */
	uint16_t free[AFXDP_SLOTS_MAX];
	uint8_t on_their_way[AFXDP_SLOTS_MAX]; /* chunks of each slot that the kernel has; 1 while it is to be sent again */
	bool retained[AFXDP_SLOTS_MAX];
	struct afxdp_again again;
	/* Only for a process that goes on when this one has died (afxdp_dead.c): which chunks are lent out, and where
	 * in the fill ring those are written that are given back just now. */
	bool lent[XTS_AFXDP_RING_ENTRIES_MAX];
	uint32_t fill_from;
	size_t umem_bytes;
	int xsk_fd, umem_fd;
};

/* The number of the chunk with this address, and where a chunk begins. */
static inline uint64_t afxdp_chunk_at(const struct afxdp_queue *q, uint64_t address)
{
	return address >> q->chunk_shift;
}

static inline uint64_t afxdp_chunk_address(const struct afxdp_queue *q, uint64_t chunk)
{
	return chunk << q->chunk_shift;
}

/* Takes back the chunks that the kernel has sent. */
void afxdp_reclaim(struct afxdp_queue *q);
/* Writes the descriptors of a frame in a slot, at our index of the tx ring. */
void afxdp_describe(struct afxdp_queue *q, uint32_t slot, uint32_t bytes);
/* Hands what is in the tx ring to the kernel. 0 or -errno. */
int afxdp_send(struct afxdp_queue *q);

/* --- afxdp_look.c ------------------------------------------------------------------------------------------------- */

/* Nothing has come, and q->looks. True: now something has. */
bool afxdp_look(struct afxdp_queue *q);
/* Was busy polling asked for, as far as the socket says? */
bool afxdp_busy_polls(int xsk_fd);

/* --- afxdp_orphan.c ----------------------------------------------------------------------------------------------- */

/* The process that had q's socket has ended: finds its chunks. As adopt_orphan of queue_kinds.h. */
int afxdp_take_orphan(struct afxdp_queue *q, uint32_t rx_chunks, uint32_t entries);

/* --- afxdp_dead.c ------------------------------------------------------------------------------------------------- */

/* q, which is at the positions of its rings, goes on where the process of `dead` was. */
void afxdp_go_on_dead(struct afxdp_queue *q, const struct afxdp_queue *dead, uint32_t rx_chunks, uint32_t entries);
/* As dead_slot of queue.h. */
void *afxdp_dead_slot(struct xts_queue *base, const void *dead, uint64_t place, uint32_t bytes);

/* --- afxdp_again.c ------------------------------------------------------------------------------------------------ */

/* The kernel has just said EBUSY: takes the frame that it has lost, and all behind it, out of the tx ring. */
void afxdp_again_take_back(struct afxdp_queue *q);
/* A frame was submitted while others are to be sent again. */
void afxdp_again_behind(struct afxdp_queue *q, uint32_t slot, uint32_t bytes);
/* Sends the first again. 0: it has left, and the others are in the tx ring; else -errno, and they wait. */
int afxdp_again_first(struct afxdp_queue *q);

#endif
