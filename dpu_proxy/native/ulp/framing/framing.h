/*
 * Framing: receiving PDUs with their length in the first bytes. The parsers and length-prefixed protocols have one of
 * these each, and define how the first bytes are read.
 *
 * Theory of operation
 *
 * The protocol's parse() finds the length in what was read ahead (in.c). It looks at the bytes without taking them,
 * since it may need more first. The part of the PDU that is here is passed on, and in the same read the rest comes
 * straight from the layer below, in parts as it arrives.
 *
 * Only the peer's time counts: from a read that found nothing until the socket has something again. While nobody reads,
 * because the host gives no credits, data of the peer waits in the socket, and that time does not count.
 */
#ifndef XTS_ULP_FRAMING_H
#define XTS_ULP_FRAMING_H

#include "ulp/ulp.h"

#define ULP_FRAMING_HEAD_MAX 256u /* the length has to be known by then */

struct ulp_framing_head {
	uint32_t strip;        /* bytes of the head that are not handed on */
	uint64_t length;       /* of the PDU, without them; at most max_bytes, or it is a fault */
	uint16_t control_type; /* its control data, as struct ulp_mark has them */
	uint8_t control_bytes, control[ULP_CONTROL_BYTES];
};

/* How long a PDU that has begun has waited for its peer. */
struct ulp_wait {
	bool waiting; /* a read has found nothing since since_ns */
	uint64_t since_ns, spent_ns;
};

struct ulp_framing {
	/* Of the protocol. From the first bytes (1 to ULP_IN_BYTES) of a PDU: 1: *head is known; 0: needs more, which
	 * must not be said of HEAD_MAX bytes or more; else ulp_fail(). */
	int (*parse)(struct ulp_layer *l, const uint8_t *data, uint32_t bytes, struct ulp_framing_head *head);
	uint32_t max_bytes;
	uint32_t timeout_ms; /* for a PDU that has begun; 0: none */
	/* Its own. */
	struct ulp_wait wait;
	struct ulp_framing_head head; /* of the PDU under way */
	uint32_t left;                /* of it, not handed on yet */
	bool known;                   /* a PDU is under way and its length is known */
	bool starved;                 /* more bytes are needed than are here */
	struct ulp_in in;
};

ssize_t ulp_framing_read(struct ulp_framing *f, struct ulp_layer *l, void *out, size_t room, struct ulp_mark *mark);

/* For protocols: read, pending and close of a layer whose state begins with its framing, and has nothing else to
 * free. */
ssize_t ulp_framed_read(struct ulp_layer *l, void *out, size_t room, struct ulp_mark *mark);
bool ulp_framed_pending(const struct ulp_layer *l);
void ulp_framed_close(struct ulp_layer *l);

/* At the beginning of a read: if bytes have come since the one before found nothing, the wait was over when they
 * came. */
void ulp_wait_pause(struct ulp_layer *l, struct ulp_wait *w);
/* On -EAGAIN within a PDU: it waits (again). 0: there is time, and the owner will call when there is
 * none; else ulp_fail(STALLED). */
int ulp_wait_go_on(struct ulp_layer *l, struct ulp_wait *w, uint32_t timeout_ms);

#endif
