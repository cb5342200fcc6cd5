/*
 * Framing: receives PDUs that have their length in the first bytes. Each parser and each length-prefixed protocol has a
 * struct ulp_framing, and defines how the first bytes are read.
 *
 * Theory of operation
 *
 * The protocol's parse() finds the length in the bytes that were read ahead (in.c). It looks at them without consuming
 * them, since it may need more first. The bytes of the PDU that were read ahead are passed on; the rest comes, in the
 * same read, straight from the layer below, in parts as it arrives.
 *
 * The timeout counts only the time that the peer takes: from a read that found nothing until the socket has data again.
 * While nobody reads because the host gives no credits, the peer's data waits in the socket, and that time does not
 * count.
 */
#ifndef XTS_ULP_FRAMING_H
#define XTS_ULP_FRAMING_H

#include "ulp/ulp.h"

#define ULP_FRAMING_HEAD_MAX 256u /* the length has to be found in these bytes */

struct ulp_framing_head {
	uint32_t strip;        /* bytes of the header that are not delivered */
	uint64_t length;       /* of the PDU without these; more than max_bytes is a fault */
	uint16_t control_type; /* its control data, as in struct ulp_mark */
	uint8_t control_bytes, control[ULP_CONTROL_BYTES];
};

/* How long a PDU that has begun has waited for the peer. */
struct ulp_wait {
	bool waiting; /* every read since since_ns has found nothing */
	uint64_t since_ns, spent_ns;
};

struct ulp_framing {
	/* Provided by the protocol. Parses the first bytes (1 to ULP_IN_BYTES) of a PDU. 1: *head is filled in; 0:
	 * needs more bytes, which it must not say when it has HEAD_MAX bytes or more; else ulp_fail(). */
	int (*parse)(struct ulp_layer *l, const uint8_t *data, uint32_t bytes, struct ulp_framing_head *head);
	uint32_t max_bytes;
	uint32_t timeout_ms; /* for a PDU that has begun; 0: none */
	/* Used by framing.c only. */
	struct ulp_wait wait;
	struct ulp_framing_head head; /* of the current PDU */
	uint32_t left;                /* bytes of it that have not been delivered yet */
	bool known;                   /* a PDU has begun and its length is known */
	bool starved;                 /* more bytes are needed than are here */
	struct ulp_in in;
};

ssize_t ulp_framing_read(struct ulp_framing *f, struct ulp_layer *l, void *out, size_t room, struct ulp_mark *mark);

/* For protocols: read(), pending() and close() of a layer whose state begins with its struct ulp_framing and has
 * nothing else to free. */
ssize_t ulp_framed_read(struct ulp_layer *l, void *out, size_t room, struct ulp_mark *mark);
bool ulp_framed_pending(const struct ulp_layer *l);
void ulp_framed_close(struct ulp_layer *l);

/* Called at the beginning of a read: if the read before found nothing and bytes have come since, the wait ended when
 * they came. */
void ulp_wait_pause(struct ulp_layer *l, struct ulp_wait *w);
/* Called on -EAGAIN inside a PDU: the wait begins or goes on. 0: there is time left, and the owner will call when it
 * has passed; else ulp_fail(STALLED). */
int ulp_wait_go_on(struct ulp_layer *l, struct ulp_wait *w, uint32_t timeout_ms);

#endif
