/*
 * What waited in spill buffers of a process that has died (connection/spill.h): the next one copies it out of lasting
 * memory, once, before anything new is in there. Nothing of it is believed: a block that is not what it should be ends
 * the chain, and bytes that are missing tear the connection when its host claims it.
 */
#ifndef XTS_RECOVER_SPILLED_H
#define XTS_RECOVER_SPILLED_H

#include <stdint.h>

#include "channel/ledger.h"

struct xts_tenant;

/* Before there are workers. */
void recover_spilled_begin(void);
/* The connection has arrived under this key. written: how many bytes TCP, or its protocol, has taken of it. */
void recover_spilled_of(int fd, const struct ledger_line *line, uint64_t written, struct xts_tenant *t, uint64_t key);

#endif
