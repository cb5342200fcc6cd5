/*
 * Pools: a resource of the whole machine (memory, descriptors), divided among the tenants.
 *
 * Each tenant has a guaranteed share of a pool, whatever others use. The rest is the common part, which is given out
 * first come, first served. So a charge is refused only when the tenant is above its guarantee and the common part is
 * used up. A pool of capacity 0 is unlimited.
 *
 * Sockets come and go, windows grow, and protocols take and return memory while data flows. So workers that serve
 * different tenants share no mutex here: each tenant's part has its own, and only the sums are shared, as atomic
 * counters. Comparing with the limit of the common part and adding to it is one step.
 */
#ifndef XTS_RESOURCE_POOL_H
#define XTS_RESOURCE_POOL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "worker/worker.h"

/* A tenant's part in the pools. Changed under its mutex, read without it. */
struct pool_share {
	pthread_mutex_t mutex;
	_Atomic uint64_t used[XTS_POOLS], guaranteed[XTS_POOLS], refused[XTS_POOLS];
};

/* Adds a tenant (of zeros) with these guarantees, or changes its guarantees. */
void pool_join(struct pool_share *share, const uint64_t guaranteed[XTS_POOLS]);
void pool_guarantee(struct pool_share *share, const uint64_t guaranteed[XTS_POOLS]);
void pool_leave(struct pool_share *share);
/* False: refused, and nothing is charged. */
bool pool_take(struct pool_share *share, enum xts_pool pool, uint64_t amount);
void pool_take_anyway(struct pool_share *share, enum xts_pool pool, uint64_t amount);
void pool_give(struct pool_share *share, enum xts_pool pool, uint64_t amount);
/* How much the tenant could take now. */
uint64_t pool_left(const struct pool_share *share, enum xts_pool pool);

#endif
