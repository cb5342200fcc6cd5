/*
 * A connection's pushed protocol for another process of the proxy (processes/move.h): a record, with the protocol's own
 * in it. It holds keys, so it never lies next to the record of the TCP side, which supervisors pass on: a worker writes
 * it into memory of its own (private_bytes.h), whose descriptor is behind those of the sockets.
 */
#ifndef XTS_PUSHED_MOVE_H
#define XTS_PUSHED_MOVE_H

#include <sys/types.h>

#include "pushed/pushed_state.h"

struct pushed;
struct worker_state;
struct xts_tenant;

extern const struct xts_record pushed_state_record;

/* The process that takes over reads records up to this version; 0: of our own. Any thread; until it is said again. */
void pushed_next_reads(uint16_t version);
/* Why it cannot go there, as text for the operator; NULL: it can. */
const char *pushed_stays(const struct pushed *p);
/* Its record, which the caller wipes and frees. From now on p can use none of what it has written, and may only be
 * freed. 0; or -errno, and p is as it was. */
int pushed_give(struct pushed *p, uint8_t **record, uint32_t *bytes);
/* The same for the process that goes on when this one has died, which reads what this one does: writes at most room
 * bytes, and returns how many it has; or -errno. p goes on. */
ssize_t pushed_write(const struct pushed *p, uint8_t *out, size_t room);
/* Makes it of a record, with no connection. 0, -EBADMSG, -ENOMEM or -ENOBUFS. */
int pushed_arrive(struct pushed **out, struct worker_state *w, struct xts_tenant *t, const uint8_t *record,
		  uint32_t bytes);

#endif
