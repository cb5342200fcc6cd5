/*
 * What the host has sent and TCP has not taken yet. It belongs to a connection, stays with it when that becomes an
 * orphan, and goes with the TCP socket when the connection is parked and claimed.
 *
 * Theory of operation
 *
 * The bytes wait in a spill buffer. A ring of *runs* says which of them belong together and what they are: so many
 * bytes with this mark. Runs of a byte stream are joined. One of a PDU is one message, for which the host has paid
 * XTS_PDU_CREDITS, so that the ring is within the window, too. *Raw* runs leave past the protocols: they were sent
 * before the first push onto the send side. Bytes without a run count as one raw run, so that a connection without
 * pushed protocols needs no ring.
 *
 * outgoing_offer() and outgoing_drain() are the one way to TCP, with a stack of protocols or without. The caller does
 * the accounting of credits and memory.
 */
#ifndef XTS_OUTGOING_H
#define XTS_OUTGOING_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "spill.h"
#include "ulp/ulp.h"
#include "wire.h"

struct ulp_stack;

struct run {
	uint32_t bytes;
	bool raw;
	struct ulp_mark mark;
};

struct outgoing {
	struct spill spill;
	struct run *runs; /* ring of run_room, a power of two; NULL: there has been none */
	uint32_t run_first, run_count, run_room;
	uint32_t run_pdus;   /* messages of PDUs among them */
	bool fin_wanted;     /* the host sends no more: FIN follows what waits */
	bool fin_done;       /* FIN has been sent, or close(2) sends it */
	bool more;           /* the last message said MORE */
	uint64_t sent_bytes; /* taken by TCP or a protocol, ever */
};

/* Where it goes. */
struct outgoing_target {
	int fd;
	struct ulp_stack *stack; /* started; NULL: only raw runs can leave */
	bool writable;           /* TCP took all it was offered last; false: nothing raw is offered */
	int raw_pieces;          /* blocks of the spill buffer, 64 KiB at most, that one call offers */
};

/* What has been taken. */
struct outgoing_taken {
	uint32_t bytes, credits;
	bool done; /* all of the run */
};

static inline bool outgoing_waits(const struct outgoing *o)
{
	return o->spill.bytes || o->run_count;
}

/* The credits that the host has paid for what waits. */
static inline uint32_t outgoing_credits(const struct outgoing *o)
{
	return o->spill.bytes + o->run_pdus * XTS_PDU_CREDITS;
}

bool outgoing_first_is_raw(const struct outgoing *o);
bool outgoing_last_is_raw(const struct outgoing *o);

/* Offers a run whose bytes are in iov (whole: all that are left of it), once. 0, or -errno when the connection has
 * failed. */
int outgoing_offer(struct outgoing *o, struct outgoing_target *to, const struct run *r, struct iovec *iov, int pieces,
		   bool whole, struct outgoing_taken *taken);
/* Offers what waits first, once; what is taken waits no longer. */
int outgoing_drain(struct outgoing *o, struct outgoing_target *to, struct outgoing_taken *taken);
/* A run waits, behind the others. 0, or -ENOMEM, and nothing has changed. */
int outgoing_append(struct outgoing *o, const struct run *r, const struct iovec *iov, int pieces);
/* Drops what waits. */
void outgoing_free(struct outgoing *o);

#endif
