/*
 * A connection's protocols, written down for the process that goes on when this one has died (channel/ledger.h).
 *
 * Theory of operation. What goes to another process in an upgrade is a record (pushed_move.h). The same record lies in
 * lasting memory (ulp/lasting.h), with four counts of one moment: how many bytes TCP had given and taken, and how many
 * the host had been sent and had sent. It is written at the end of each turn in which the protocols did something. In
 * between it is *torn*: the stack says so before it does anything (ulp_stack_tells()). So the next process goes on with
 * it if it is whole, and kernel and host count what it says. Else bytes are in a process that is gone, and the
 * connection is reset.
 *
 * Most turns end between two PDUs. Then nothing has changed but the counts, and the record stays (ulp_stack_rests()). In
 * a PDU, and with protocols of which that cannot be said, it is written some milliseconds later, once for many turns. A
 * worker that has to come back sleeps with a time-out, which costs more than the record: 1.9 µs for each PDU of an echo.
 *
 * A PDU may have no bytes, and then no count tells whether it has come. From the host frames have numbers: the last one
 * that is in the record is written down, too. To the host: after such a message nothing is written before it is sure to
 * have left, or the host has recycled all frames.
 *
 * Not written down, so torn: what has keys; more than a record of PUSHED_KEPT_MAX; bytes that wait for TCP or are given
 * back; peek mode.
 */
#ifndef XTS_PUSHED_KEPT_H
#define XTS_PUSHED_KEPT_H

#include "channel/ledger.h"
#include "connection/connection.h"
#include "connection/tcp_counts.h"
#include "pushed/pushed.h"

#define PUSHED_KEPT_MAX (8u << 10)

struct pushed_kept {
	uint64_t cookie;             /* of the socket */
	uint64_t read, written;      /* as tcp_counts() */
	uint64_t received, accepted; /* of the host, over its channel */
	uint32_t number;             /* ledger_number(): of a frame of the host that is in `accepted` */
	uint32_t record_bytes;
	uint32_t record_sum; /* memory_sum() of the record */
	uint32_t sum;        /* of all that is above */
	uint8_t torn;
	uint8_t record[];
};

/* It is written down from now on, at first as torn. *place: where, in lasting memory, in units. 0 or -errno. */
int pushed_keep_begins(struct pushed *p, const struct tcp_counts *now, uint64_t cookie, uint32_t *place);
/* The same of one that was found, with these counts: it is whole. It has no connection, and stays as it is. */
int pushed_keep_found(struct pushed *p, const struct pushed_kept *found, const uint8_t *record, uint32_t *place);
/* What is written of it is not all any more. */
static inline void pushed_tears(struct pushed *p)
{
	if (p->kept)
		*(volatile uint8_t *)&p->kept->torn = 1;
	ledger_in_order();
}
void pushed_keep_ends(struct pushed *p);

/* c's host is about to be sent a message without bytes. */
void pushed_sent_empty(struct connection *c);
/* A turn of c ends, in which its protocols may have done something. */
void pushed_keep_now(struct connection *c);
static inline void pushed_keep(struct connection *c)
{
	if (c->tcp.pushed && c->tcp.pushed->kept && c->tcp.pushed->kept->torn)
		pushed_keep_now(c);
}

#endif
