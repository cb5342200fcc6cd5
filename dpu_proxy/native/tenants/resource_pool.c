/* The guaranteed and the common part of the machine's resources. resource_pool.h has the theory of operation. */
#include "tenants/resource_pool.h"

#include <stdatomic.h>

static struct {
	_Atomic uint64_t capacity[XTS_POOLS];
	_Atomic uint64_t promised[XTS_POOLS]; /* sum of the guarantees */
	_Atomic uint64_t common[XTS_POOLS];   /* used above guarantees */
} pools;

static uint64_t above(uint64_t used, uint64_t guaranteed)
{
	return used > guaranteed ? used - guaranteed : 0;
}

/* What is left of the common part. */
static uint64_t common_left(enum xts_pool pool, uint64_t common)
{
	uint64_t divided = atomic_load(&pools.promised[pool]) + common, capacity = atomic_load(&pools.capacity[pool]);

	return divided < capacity ? capacity - divided : 0;
}

static bool take_common(enum xts_pool pool, uint64_t more)
{
	uint64_t common = atomic_load(&pools.common[pool]);

	if (!more)
		return true;
	do {
		if (atomic_load(&pools.capacity[pool]) && more > common_left(pool, common))
			return false;
	} while (!atomic_compare_exchange_weak(&pools.common[pool], &common, common + more));
	return true;
}

/* With the share's mutex held. What the tenant uses above its guarantee is counted in the common part. */
static void set_guarantees(struct pool_share *share, const uint64_t guaranteed[XTS_POOLS])
{
	for (int i = 0; i < XTS_POOLS; i++) {
		uint64_t used = atomic_load(&share->used[i]), before = atomic_load(&share->guaranteed[i]);
		uint64_t more_common = above(used, guaranteed[i]) - above(used, before); /* or less, modulo 2^64 */

		/* Growth comes first: in between, others see less room than there is, never more. */
		if (guaranteed[i] >= before) {
			atomic_fetch_add(&pools.promised[i], guaranteed[i] - before);
			atomic_fetch_add(&pools.common[i], more_common);
		} else {
			atomic_fetch_add(&pools.common[i], more_common);
			atomic_fetch_sub(&pools.promised[i], before - guaranteed[i]);
		}
		atomic_store(&share->guaranteed[i], guaranteed[i]);
	}
}

void xts_pools_configure(const uint64_t *capacity)
{
	for (int i = 0; i < XTS_POOLS; i++)
		atomic_store(&pools.capacity[i], capacity[i]);
}

void pool_join(struct pool_share *share, const uint64_t guaranteed[XTS_POOLS])
{
	pthread_mutex_init(&share->mutex, NULL);
	pool_guarantee(share, guaranteed);
}

void pool_guarantee(struct pool_share *share, const uint64_t guaranteed[XTS_POOLS])
{
	pthread_mutex_lock(&share->mutex);
	set_guarantees(share, guaranteed);
	pthread_mutex_unlock(&share->mutex);
}

void pool_leave(struct pool_share *share)
{
	for (int i = 0; i < XTS_POOLS; i++) {
		uint64_t guaranteed = atomic_load(&share->guaranteed[i]);

		atomic_fetch_sub(&pools.promised[i], guaranteed);
		atomic_fetch_sub(&pools.common[i], above(atomic_load(&share->used[i]), guaranteed));
	}
	pthread_mutex_destroy(&share->mutex);
}

bool pool_take(struct pool_share *share, enum xts_pool pool, uint64_t amount)
{
	uint64_t used, guaranteed;
	bool fits;

	pthread_mutex_lock(&share->mutex);
	used = atomic_load(&share->used[pool]);
	guaranteed = atomic_load(&share->guaranteed[pool]);
	fits = take_common(pool, above(used + amount, guaranteed) - above(used, guaranteed));
	if (fits)
		atomic_store(&share->used[pool], used + amount);
	else
		atomic_fetch_add(&share->refused[pool], 1);
	pthread_mutex_unlock(&share->mutex);
	return fits;
}

/* Charges this much more, or (modulo 2^64) less. */
static void charge(struct pool_share *share, enum xts_pool pool, uint64_t amount)
{
	uint64_t before, after, guaranteed, more_common;

	pthread_mutex_lock(&share->mutex);
	before = atomic_load(&share->used[pool]);
	after = before + amount;
	guaranteed = atomic_load(&share->guaranteed[pool]);
	more_common = above(after, guaranteed) - above(before, guaranteed);
	atomic_store(&share->used[pool], after);
	if (more_common)
		atomic_fetch_add(&pools.common[pool], more_common);
	pthread_mutex_unlock(&share->mutex);
}

void pool_take_anyway(struct pool_share *share, enum xts_pool pool, uint64_t amount)
{
	charge(share, pool, amount);
}

void pool_give(struct pool_share *share, enum xts_pool pool, uint64_t amount)
{
	charge(share, pool, 0 - amount);
}

uint64_t pool_left(const struct pool_share *share, enum xts_pool pool)
{
	if (!atomic_load(&pools.capacity[pool]))
		return UINT64_MAX;
	return common_left(pool, atomic_load(&pools.common[pool])) +
	       above(atomic_load(&share->guaranteed[pool]), atomic_load(&share->used[pool]));
}
