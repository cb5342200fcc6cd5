/* What tenants use, against their limits. tenant.h has the theory of operation. */
#include "tenant.h"

#include <stdio.h>
#include <stdlib.h>

struct xts_tenant *xts_tenant_new(const struct xts_tenant_config *config)
{
	struct xts_tenant *t = calloc(1, sizeof *t);

	if (!t)
		return NULL;
	(void)snprintf(t->name, sizeof t->name, "%s", config->name);
	t->id = config->id;
	atomic_store(&t->references, 1);
	xts_tenant_configure(t, config);
	return t;
}

void xts_tenant_configure(struct xts_tenant *t, const struct xts_tenant_config *config)
{
	atomic_store(&t->weight, config->weight ? config->weight : 1);
	atomic_store(&t->window_bytes, config->window_bytes);
	atomic_store(&t->window_bytes_max, config->window_bytes_max);
	atomic_store(&t->orphan_timeout_ms, config->orphan_timeout_ms);
	for (int i = 0; i < XTS_RESOURCES; i++)
		atomic_store(&t->limit[i], config->limit[i]);
}

struct xts_tenant *tenant_hold(struct xts_tenant *t)
{
	atomic_fetch_add_explicit(&t->references, 1, memory_order_relaxed);
	return t;
}

void xts_tenant_release(struct xts_tenant *t)
{
	if (t && atomic_fetch_sub_explicit(&t->references, 1, memory_order_acq_rel) == 1)
		free(t);
}

bool tenant_take(struct xts_tenant *t, enum xts_resource resource, uint64_t amount)
{
	uint64_t used = tenant_used(t, resource), limit = tenant_limit(t, resource);

	do {
		if (used > limit || amount > limit - used) {
			atomic_fetch_add_explicit(&t->refused[resource], 1, memory_order_relaxed);
			return false;
		}
	} while (!atomic_compare_exchange_weak_explicit(&t->used[resource], &used, used + amount, memory_order_relaxed,
							memory_order_relaxed));
	return true;
}

void tenant_take_anyway(struct xts_tenant *t, enum xts_resource resource, uint64_t amount)
{
	atomic_fetch_add_explicit(&t->used[resource], amount, memory_order_relaxed);
}

void tenant_give(struct xts_tenant *t, enum xts_resource resource, uint64_t amount)
{
	atomic_fetch_sub_explicit(&t->used[resource], amount, memory_order_relaxed);
}

uint64_t tenant_left(const struct xts_tenant *t, enum xts_resource resource)
{
	uint64_t used = tenant_used(t, resource), limit = tenant_limit(t, resource);

	return used < limit ? limit - used : 0;
}

void xts_tenant_stats(const struct xts_tenant *t, struct xts_tenant_stats *out)
{
	for (int i = 0; i < XTS_RESOURCES; i++) {
		out->used[i] = atomic_load(&t->used[i]);
		out->refused[i] = atomic_load(&t->refused[i]);
	}
}
