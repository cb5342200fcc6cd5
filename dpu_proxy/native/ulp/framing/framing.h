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

#include "framing_state.h"

#define ULP_FRAMING_HEAD_MAX 256u /* the length has to be found in these bytes */

ssize_t ulp_framing_read(struct ulp_framing *f, struct ulp_layer *l, void *out, size_t room, struct ulp_mark *mark);

/* For protocols: read(), pending() and close() of a layer whose state begins with its struct ulp_framing and has
 * nothing else to free. */
ssize_t ulp_framed_read(struct ulp_layer *l, void *out, size_t room, struct ulp_mark *mark);
bool ulp_framed_pending(const struct ulp_layer *l);
void ulp_framed_close(struct ulp_layer *l);
uint32_t ulp_framed_rests(const struct ulp_layer *l); /* as rests() */

/* Called at the beginning of a read: if the read before found nothing and bytes have come since, the wait ended when
 * they came. */
void ulp_wait_pause(struct ulp_layer *l, struct ulp_wait *w);
/* Called on -EAGAIN inside a PDU: the wait begins or goes on. 0: there is time left, and the owner will call when it
 * has passed; else ulp_fail(STALLED). */
int ulp_wait_go_on(struct ulp_layer *l, struct ulp_wait *w, uint32_t timeout_ms);

#endif
