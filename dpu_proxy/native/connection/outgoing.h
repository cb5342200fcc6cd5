/*
 * Bytes that the host has sent and TCP has not taken yet. They belong to a connection, stay with it when it becomes an
 * orphan, and go with the TCP socket when the connection is parked and claimed.
 *
 * Theory of operation
 *
 * The bytes wait in a spill buffer. A ring of *runs* describes which of them belong together: a number of bytes and
 * their mark. Runs of a byte stream are joined. A run of a PDU is one message, for which the host has paid
 * XTS_PDU_CREDITS, so the window bounds the ring, too. *Raw* runs bypass the protocols: they were sent before the first
 * push onto the send side. Bytes without a run count as one raw run, so a connection without pushed protocols needs no
 * ring.
 *
 * outgoing_offer() and outgoing_drain() are the only path to TCP, with a stack of protocols or without. The caller does
 * the accounting of credits and memory.
 */
#ifndef XTS_OUTGOING_H
#define XTS_OUTGOING_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "connection/tcp_side.h"
#include "ulp/ulp.h"
#include "wire/wire.h"

struct ulp_stack;

struct runs {
	uint32_t first, count, room; /* a ring of room entries, a power of two */
	uint32_t pdus;               /* runs among them that are messages of PDUs */
	struct run run[];
};

/* Where the bytes go. */
struct outgoing_target {
	int fd;
	struct ulp_stack *stack; /* a started stack; NULL: only raw runs can leave */
	bool more;               /* the last message had the flag MORE: TCP may wait for the next */
	bool writable;           /* TCP took everything at the last attempt; false: nothing raw is offered */
	uint32_t most;           /* no more bytes of what waits are offered */
	int raw_pieces;          /* how many blocks of the spill buffer, each at most 64 KiB, one call offers */
};

/* What has been taken. */
struct outgoing_taken {
	uint32_t bytes, credits;
	bool done; /* the whole run was taken */
};

static inline uint32_t outgoing_runs(const struct outgoing *o)
{
	return o->runs ? o->runs->count : 0;
}

static inline bool outgoing_waits(const struct outgoing *o)
{
	return o->spill.bytes || outgoing_runs(o);
}

/* The credits that the host has paid for what waits. */
static inline uint32_t outgoing_credits(const struct outgoing *o)
{
	return o->spill.bytes + (o->runs ? o->runs->pdus * XTS_PDU_CREDITS : 0);
}

bool outgoing_first_is_raw(const struct outgoing *o);
bool outgoing_last_is_raw(const struct outgoing *o);

/* Offers a run once; its bytes are in iov (whole: these are all that are left of it). 0, or -errno when the connection
 * has failed. */
int outgoing_offer(struct outgoing *o, struct outgoing_target *to, const struct run *r, struct iovec *iov, int pieces,
		   bool whole, struct outgoing_taken *taken);
/* Offers the first waiting bytes once, and removes those that were taken. */
int outgoing_drain(struct outgoing *o, struct outgoing_target *to, struct outgoing_taken *taken);
/* Appends a run to those that wait. 0, or -ENOMEM, and nothing has changed. */
int outgoing_append(struct outgoing *o, const struct run *r, const struct iovec *iov, int pieces);
/* Drops what waits. */
void outgoing_free(struct outgoing *o);

/* --- runs.c ------------------------------------------------------------------------------------------------------- */

const struct run *runs_at(const struct runs *runs, uint32_t i);
/* Room for more runs, also where there were none. 0 or -ENOMEM. */
int runs_make_room(struct runs **runs, uint32_t more);
/* There is room. */
void runs_append(struct runs *runs, const struct run *r);

#endif
