/*
 * A queue over shared memory that goes on in another process: the one before has left it, or has died.
 *
 * Theory of operation. The rings are in the shared memory. Which slots are where, and how much was taken, each end
 * counts for itself (shm.c). A process that leaves writes these counts down. Of one that has died they are read where
 * it kept them, in memory that outlives it; it may have died between any two steps, so what does not agree by one step
 * is put right, and what does not agree otherwise is refused.
 */
#include "queues/shm_inside.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* What the memory does not say: how much each end has taken, and which slots the peer has. */
struct shm_state {
	uint32_t slots, rx_taken, rx_returned, tx_published, tx_reclaimed;
	uint8_t sent[SHM_SLOTS_MAX];
};
_Static_assert(sizeof(struct shm_state) <= XTS_QUEUE_STATE_BYTES_MAX, "the state of a queue");

int shm_leave(struct xts_queue *base, int *fds, uint8_t *state)
{
	struct shm_queue *q = shm_of(base);
	struct shm_state s = { .slots = q->slots };

	(void)shm_kick(base);
	shm_reclaim(q);
	for (uint32_t slot = 0; slot < q->slots; slot++) {
		if (q->lent[slot] || (q->tx_state[slot] != TX_FREE && q->tx_state[slot] != TX_SENT))
			return -EBUSY;
		s.sent[slot] = q->tx_state[slot] == TX_SENT;
	}
	if (q->broken)
		return -EPIPE;
	s.rx_taken = q->rx_taken;
	s.rx_returned = q->rx_returned;
	s.tx_published = q->tx_published;
	s.tx_reclaimed = q->tx_reclaimed;
	fds[SHM_MEMORY] = fcntl(q->memfd, F_DUPFD_CLOEXEC, 0);
	fds[SHM_BELL] = fcntl(q->bell, F_DUPFD_CLOEXEC, 0);
	if (fds[SHM_MEMORY] < 0 || fds[SHM_BELL] < 0) {
		int error = -errno;

		for (unsigned i = 0; i < 2; i++)
			if (fds[i] >= 0)
				close(fds[i]);
		return error;
	}
	memcpy(state, &s, sizeof s);
	return sizeof s;
}

static int shm_restore(struct shm_queue *q, const uint8_t *state, uint32_t bytes)
{
	struct shm_state s;

	if (bytes != sizeof s)
		return -EINVAL;
	memcpy(&s, state, sizeof s);
	if (s.slots != q->slots)
		return -EINVAL;
	q->rx_taken = s.rx_taken;
	q->rx_returned = q->rx_written_back = s.rx_returned;
	q->tx_written = q->tx_published = s.tx_published;
	q->tx_reclaimed = s.tx_reclaimed;
	q->free_count = 0;
	for (uint32_t slot = q->slots; slot--;) {
		q->tx_state[slot] = s.sent[slot] ? TX_SENT : TX_FREE;
		if (s.sent[slot])
			q->tx_sent_slots++;
		else
			q->free[q->free_count++] = (uint16_t)slot;
	}
	q->bell_pending = true; /* the one before may have been rung */
	return 0;
}

/* Puts right what a process that died in the middle of a step has left: a count and the table of slots are not changed
 * at once (shm_step()). True: they agree. */
static bool shm_agree(const struct shm_queue *q, const struct shm_queue *dead, struct shm_state *s, bool *lent)
{
	bool waiting = atomic_load_explicit(&q->rx->published, memory_order_acquire) != s->rx_taken;
	uint32_t have = 0, sent = 0, next = q->rx->descriptor[s->rx_taken % SHM_ENTRIES].slot,
		 last = atomic_load_explicit(&q->rx->back[(s->rx_returned - 1) % SHM_ENTRIES], memory_order_relaxed),
		 submitting = q->tx->descriptor[s->tx_published % SHM_ENTRIES].slot,
		 came = atomic_load_explicit(&q->tx->back[s->tx_reclaimed % SHM_ENTRIES], memory_order_relaxed);

	for (uint32_t slot = 0; slot < q->slots; slot++) {
		s->sent[slot] = dead->tx_state[slot] == TX_SENT || dead->tx_state[slot] == TX_RETAINED_SENT;
		sent += s->sent[slot];
		lent[slot] = dead->lent[slot];
		have += lent[slot];
	}
	if (have == s->rx_taken - s->rx_returned + 1) { /* it was taking a slot, or giving one back */
		uint32_t slot = waiting && next < q->slots && lent[next] ? next : last;

		if (slot >= q->slots || !lent[slot])
			return false;
		lent[slot] = false;
		have--;
	}
	if (sent == s->tx_published - s->tx_reclaimed + 1 && submitting < q->slots && s->sent[submitting]) {
		s->sent[submitting] = false;
		sent--;
	}
	if (sent + 1 == s->tx_published - s->tx_reclaimed && came < q->slots && !s->sent[came])
		s->tx_reclaimed++;
	return sent == s->tx_published - s->tx_reclaimed && have == s->rx_taken - s->rx_returned && sent <= q->slots;
}

/* What the dead process had received and not given back is received once more. Between two such frames may be those
 * that were given back: channels behind a relay do that each in its own time, and a queue over RDMA has a relay at its
 * other end. So the ones to keep are moved together, behind what was taken. Of a slot the last descriptor counts, and a
 * frame whose descriptor the ring has no more is given back. */
static void shm_receive_again(struct shm_queue *q, bool *lent)
{
	uint32_t waiting = atomic_load_explicit(&q->rx->published, memory_order_acquire) - q->rx_taken;
	uint32_t left = SHM_ENTRIES - (waiting < q->slots ? waiting : q->slots), at = q->rx_taken, to = at;

	while (left--) {
		volatile const struct shm_descriptor *d = &q->rx->descriptor[--at % SHM_ENTRIES];
		const struct shm_descriptor one = { .slot = d->slot, .bytes = d->bytes };

		if (one.slot >= q->slots || !lent[one.slot])
			continue;
		lent[one.slot] = false;
		q->rx->descriptor[--to % SHM_ENTRIES] = one;
	}
	for (uint32_t slot = 0; slot < q->slots; slot++)
		if (lent[slot])
			shm_give_back(q, slot);
	q->rx_taken = to;
}

/* What the dead process has submitted and not published is published: its frames are whole. */
static int shm_restore_dead(struct shm_queue *q, const struct shm_queue *dead)
{
	struct shm_state s = {
		.slots = q->slots,
		.rx_taken = dead->rx_taken,
		.rx_returned = dead->rx_written_back,
		.tx_published = dead->tx_written,
		.tx_reclaimed = dead->tx_reclaimed,
	};
	uint32_t returned = atomic_load_explicit(&q->rx->returned, memory_order_acquire);
	uint32_t published = atomic_load_explicit(&q->tx->published, memory_order_acquire);
	bool lent[SHM_SLOTS_MAX];
	int error;

	if (s.rx_returned - returned > q->slots || s.tx_published - published > q->slots || !shm_agree(q, dead, &s, lent))
		return -EBADMSG;
	error = shm_restore(q, (const uint8_t *)&s, sizeof s);
	if (error)
		return error;
	shm_receive_again(q, lent);
	q->tx_published = published; /* so that the next kick publishes all */
	q->rx_returned = returned;
	return 0;
}

void *shm_dead_slot(struct xts_queue *base, const void *dead, uint64_t place, uint32_t bytes)
{
	struct shm_queue *q = shm_of(base);
	uint64_t at = place - (uintptr_t)((const struct shm_queue *)dead)->tx_memory,
		 room = (uint64_t)q->slots * q->slot_bytes;

	return at < room && bytes <= room - at ? q->tx_memory + at : NULL;
}

/* An adopted queue was restored, or not (error): then it is freed, and the descriptors stay the caller's. */
static int shm_hand_out(struct xts_queue **out, struct xts_queue *base, int error)
{
	if (error) {
		munmap(shm_of(base)->memory, shm_of(base)->memory_bytes);
		free(base);
		return error;
	}
	*out = base;
	return 0;
}

int shm_resume(struct xts_queue **out, enum xts_queue_end end, const int *fds, const struct xts_attach_reply *g,
	       const uint8_t *state, uint32_t state_bytes)
{
	struct xts_queue *base;
	int error = shm_adopt(&base, end, fds, g);

	return error ? error : shm_hand_out(out, base, shm_restore(shm_of(base), state, state_bytes));
}

int shm_resume_dead(struct xts_queue **out, enum xts_queue_end end, const int *fds, const struct xts_attach_reply *g,
		    const void *dead, size_t dead_bytes)
{
	struct shm_queue copy;
	struct xts_queue *base;
	int error;

	if (dead_bytes < sizeof copy)
		return -EINVAL;
	memcpy(&copy, dead, sizeof copy);
	error = shm_adopt(&base, end, fds, g);
	/* Another queue has had this place before, and the dead process has not had this one: there is nothing to restore. */
	if (!error && copy.memory_number == shm_of(base)->memory_number)
		error = shm_hand_out(&base, base, shm_restore_dead(shm_of(base), &copy));
	if (!error)
		*out = base;
	return error;
}
