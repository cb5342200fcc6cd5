/* A queue over shared memory as its own files see it: shm.c, shm_open.c, shm_restore.c; and carried.c. */
#ifndef XTS_SHM_INSIDE_H
#define XTS_SHM_INSIDE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "queues/queue_kinds.h"

#define SHM_KEPT_MAX 96u
#define SHM_SLOTS_MAX (XTS_FRAME_WINDOW_MAX + XTS_CONTROL_RESERVE + SHM_KEPT_MAX)
#define SHM_ENTRIES 256u /* entries of each ring; a power of two, at least SHM_SLOTS_MAX */
#define SHM_PAGE 4096u
#define CACHE_LINE 64
#define SHM_TRAITS (XTS_QUEUE_DEATH_SHOWS | XTS_QUEUE_PEER_MEMORY | XTS_QUEUE_RETAINS)
#define CARRIED_TRAITS (XTS_QUEUE_KICK_COSTS | XTS_QUEUE_PACKETS | XTS_QUEUE_RETAINS)
/* The descriptors of an end: the memory, and its own end of the pair of bells. */
enum shm_descriptors { SHM_MEMORY, SHM_BELL };

struct shm_descriptor {
	uint32_t slot, bytes;
};

struct shm_direction {
	_Alignas(CACHE_LINE) _Atomic uint32_t published; /* sender: number of descriptors ever written */
	_Alignas(CACHE_LINE) _Atomic uint32_t returned;  /* receiver: number of slots ever given back */
	_Alignas(CACHE_LINE) _Atomic uint32_t sleeping;  /* receiver: ring my bell; cleared by the side that rings */
	_Alignas(CACHE_LINE) struct shm_descriptor descriptor[SHM_ENTRIES];
	_Alignas(CACHE_LINE) _Atomic uint32_t back[SHM_ENTRIES];
};

struct shm_header {
	struct shm_direction direction[2]; /* indexed by the sender: enum xts_queue_end */
};
_Static_assert(sizeof(struct shm_header) <= 2 * SHM_PAGE, "header fits its two pages");
_Static_assert(SHM_ENTRIES >= SHM_SLOTS_MAX && (SHM_ENTRIES & (SHM_ENTRIES - 1)) == 0, "rings hold every slot");
#define SHM_HEADER_BYTES (2 * SHM_PAGE)

/* A slot that is retained does not become free when it comes back. */
enum tx_state { TX_FREE, TX_TAKEN, TX_SENT, TX_RETAINED, TX_RETAINED_SENT };

struct shm_queue {
	struct xts_queue base;
	struct shm_direction *tx, *rx;
	uint8_t *tx_memory, *rx_memory;
	uint32_t slots, slot_bytes;
	int bell;
	bool broken;       /* the peer has violated the rules, or it is gone and everything it sent has been taken */
	bool hung_up;      /* the peer's bell is closed */
	bool bell_pending; /* the peer has cleared our flag; its byte may still be on the way */
	uint32_t undrained;
	uint32_t tx_written, tx_published, tx_sent_slots, tx_reclaimed;
	uint32_t rx_taken, rx_written_back, rx_returned;
	uint32_t free_count;
	/* a stack: the slot that came back last goes out first, while it is in the cache */
	uint16_t free[SHM_SLOTS_MAX];
	uint8_t tx_state[SHM_SLOTS_MAX];
	bool lent[SHM_SLOTS_MAX];
	void *memory;
	size_t memory_bytes;
	uint64_t memory_number;
	int memfd;
};

/* What is before is done before what is behind: a process that goes on when this one has died in between can tell which
 * of the two was the last (shm_agree()). The processor sees to it, since one's own steps never seem out of order. */
static inline void shm_step(void)
{
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
}

static inline struct shm_queue *shm_of(struct xts_queue *q)
{
	return (struct shm_queue *)q;
}

/* --- shm.c -------------------------------------------------------------------------------------------------------- */

extern const struct xts_queue_ops shm_ops;
/* Takes back the slots with which the receiver has finished. */
void shm_reclaim(struct shm_queue *q);
/* What was submitted and given back is the peer's from now on. 0, or -ENXIO: the queue is broken. */
int shm_kick(struct xts_queue *base);
/* The receiver has finished with a slot. */
void shm_give_back(struct shm_queue *q, uint32_t slot);

/* --- shm_open.c --------------------------------------------------------------------------------------------------- */

/* 0 or -errno, as struct xts_queue_kind says; of this kind. */
int shm_open_as(uint32_t kind, struct xts_queue_opened *out, const struct xts_queue_options *options);
int shm_adopt(struct xts_queue **out, enum xts_queue_end end, const int *fds, const struct xts_attach_reply *g);

/* --- shm_restore.c ------------------------------------------------------------------------------------------------ */

/* As struct xts_queue_ops and struct xts_queue_kind say. */
int shm_leave(struct xts_queue *base, int *fds, uint8_t *state);
void *shm_dead_slot(struct xts_queue *base, const void *dead, uint64_t place, uint32_t bytes);
int shm_resume(struct xts_queue **out, enum xts_queue_end end, const int *fds, const struct xts_attach_reply *g,
	       const uint8_t *state, uint32_t state_bytes);
int shm_resume_dead(struct xts_queue **out, enum xts_queue_end end, const int *fds, const struct xts_attach_reply *g,
		    const void *dead, size_t dead_bytes);

#endif
