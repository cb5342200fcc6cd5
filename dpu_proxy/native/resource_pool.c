/* Guaranteed and common parts of what the machine has. resource_pool.h has the theory of operation. */
#include "resource_pool.h"

#include <pthread.h>

static struct {
	pthread_mutex_t mutex;
	uint64_t capacity[XTS_POOLS];
	uint64_t promised[XTS_POOLS]; /* sum of the guarantees */
	uint64_t common[XTS_POOLS];   /* used above guarantees */
	struct pool_share *first;
} pools = { .mutex = PTHREAD_MUTEX_INITIALIZER };

static uint64_t above(uint64_t used, uint64_t guaranteed)
{
	return used > guaranteed ? used - guaranteed : 0;
}

/* The sums, after guarantees have changed. */
static void sum_up(void)
{
	for (int i = 0; i < XTS_POOLS; i++) {
		pools.promised[i] = pools.common[i] = 0;
		for (const struct pool_share *s = pools.first; s; s = s->next) {
			pools.promised[i] += s->guaranteed[i];
			pools.common[i] += above(s->used[i], s->guaranteed[i]);
		}
	}
}

static void set_guarantees(struct pool_share *share, const uint64_t guaranteed[XTS_POOLS])
{
	for (int i = 0; i < XTS_POOLS; i++)
		share->guaranteed[i] = guaranteed[i];
	sum_up();
}

void xts_pools_configure(const uint64_t *capacity)
{
	pthread_mutex_lock(&pools.mutex);
	for (int i = 0; i < XTS_POOLS; i++)
		pools.capacity[i] = capacity[i];
	pthread_mutex_unlock(&pools.mutex);
}

void pool_join(struct pool_share *share, const uint64_t guaranteed[XTS_POOLS])
{
	pthread_mutex_lock(&pools.mutex);
	share->next = pools.first;
	pools.first = share;
	set_guarantees(share, guaranteed);
	pthread_mutex_unlock(&pools.mutex);
}

void pool_guarantee(struct pool_share *share, const uint64_t guaranteed[XTS_POOLS])
{
	pthread_mutex_lock(&pools.mutex);
	set_guarantees(share, guaranteed);
	pthread_mutex_unlock(&pools.mutex);
}

void pool_leave(struct pool_share *share)
{
	struct pool_share **link = &pools.first;

	pthread_mutex_lock(&pools.mutex);
	while (*link && *link != share)
		link = &(*link)->next;
	if (*link)
		*link = share->next;
	sum_up();
	pthread_mutex_unlock(&pools.mutex);
}

/* Of the common part. With the mutex held. */
static uint64_t common_left(enum xts_pool pool)
{
	uint64_t divided = pools.promised[pool] + pools.common[pool];

	return divided < pools.capacity[pool] ? pools.capacity[pool] - divided : 0;
}

static void charge(struct pool_share *share, enum xts_pool pool, uint64_t amount)
{
	uint64_t before = above(share->used[pool], share->guaranteed[pool]);

	share->used[pool] += amount;
	pools.common[pool] += above(share->used[pool], share->guaranteed[pool]) - before;
}

bool pool_take(struct pool_share *share, enum xts_pool pool, uint64_t amount)
{
	bool fits;
	uint64_t more;

	pthread_mutex_lock(&pools.mutex);
	more = above(share->used[pool] + amount, share->guaranteed[pool]) -
	       above(share->used[pool], share->guaranteed[pool]);
	fits = !more || !pools.capacity[pool] || more <= common_left(pool);
	if (fits)
		charge(share, pool, amount);
	else
		share->refused[pool]++;
	pthread_mutex_unlock(&pools.mutex);
	return fits;
}

void pool_take_anyway(struct pool_share *share, enum xts_pool pool, uint64_t amount)
{
	pthread_mutex_lock(&pools.mutex);
	charge(share, pool, amount);
	pthread_mutex_unlock(&pools.mutex);
}

void pool_give(struct pool_share *share, enum xts_pool pool, uint64_t amount)
{
	uint64_t before;

	pthread_mutex_lock(&pools.mutex);
	before = above(share->used[pool], share->guaranteed[pool]);
	share->used[pool] -= amount;
	pools.common[pool] -= before - above(share->used[pool], share->guaranteed[pool]);
	pthread_mutex_unlock(&pools.mutex);
}

uint64_t pool_left(const struct pool_share *share, enum xts_pool pool)
{
	uint64_t left = UINT64_MAX;

	pthread_mutex_lock(&pools.mutex);
	if (pools.capacity[pool])
		left = common_left(pool) + above(share->guaranteed[pool], share->used[pool]);
	pthread_mutex_unlock(&pools.mutex);
	return left;
}

void pool_read(const struct pool_share *share, struct pool_share *out)
{
	pthread_mutex_lock(&pools.mutex);
	*out = *share;
	pthread_mutex_unlock(&pools.mutex);
}
