/*
 * Pools: a resource of the whole machine (memory, descriptors), divided among the tenants.
 *
 * Each tenant has a guaranteed share of a pool, whatever others use. The common part, which is guaranteed to nobody, is
 * first come, first served. So a charge is refused only when the tenant is above its guarantee and the common part is
 * used up. A pool of capacity 0 is unlimited.
 *
 * One mutex is enough: sockets come and go and windows grow, but nothing here is done per message.
 */
#ifndef XTS_POOL_H
#define XTS_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "worker.h"

/* A tenant's part in the pools; under their mutex. */
struct pool_share {
	struct pool_share *next;
	uint64_t used[XTS_POOLS], guaranteed[XTS_POOLS], refused[XTS_POOLS];
};

/* Adds a tenant with these guarantees, or changes its guarantees. */
void pool_join(struct pool_share *share, const uint64_t guaranteed[XTS_POOLS]);
void pool_guarantee(struct pool_share *share, const uint64_t guaranteed[XTS_POOLS]);
void pool_leave(struct pool_share *share);
/* False: refused, and nothing is charged. */
bool pool_take(struct pool_share *share, enum xts_pool pool, uint64_t amount);
void pool_take_anyway(struct pool_share *share, enum xts_pool pool, uint64_t amount);
void pool_give(struct pool_share *share, enum xts_pool pool, uint64_t amount);
/* How much the tenant could take now. */
uint64_t pool_left(const struct pool_share *share, enum xts_pool pool);
void pool_read(const struct pool_share *share, struct pool_share *out);

#endif
