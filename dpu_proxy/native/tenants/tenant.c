/* Accounts what tenants use against their limits. tenant.h has the theory of operation. */
#include "tenants/tenant.h"

#include <stdio.h>
#include <stdlib.h>

#include "addresses/local_ports.h"

static void set_limits(struct xts_tenant *t, const struct xts_tenant_config *config)
{
	atomic_store(&t->weight, config->weight ? config->weight : 1);
	atomic_store(&t->window_bytes, config->window_bytes);
	atomic_store(&t->window_bytes_max, config->window_bytes_max);
	atomic_store(&t->orphan_timeout_ms, config->orphan_timeout_ms);
	pacer_configure(&t->pacer, config->pacing_bytes_s);
	atomic_store(&t->mark, config->marks ? TENANT_MARKS | config->dscp : 0);
	atomic_store(&t->ports, local_ports_range(config->port_first, config->port_last));
	for (int i = 0; i < XTS_RESOURCES; i++)
		atomic_store(&t->limit[i], config->limit[i]);
}

struct xts_tenant *xts_tenant_new(const struct xts_tenant_config *config)
{
	struct xts_tenant *t = calloc(1, sizeof *t);

	if (!t)
		return NULL;
	(void)snprintf(t->name, sizeof t->name, "%s", config->name);
	t->id = config->id;
	atomic_store(&t->references, 1);
	list_init(&t->orphans);
	pool_join(&t->share, config->guaranteed);
	set_limits(t, config);
	return t;
}

void xts_tenant_configure(struct xts_tenant *t, const struct xts_tenant_config *config)
{
	set_limits(t, config);
	pool_guarantee(&t->share, config->guaranteed);
}

struct xts_tenant *tenant_hold(struct xts_tenant *t)
{
	atomic_fetch_add_explicit(&t->references, 1, memory_order_relaxed);
	return t;
}

void xts_tenant_release(struct xts_tenant *t)
{
	if (!t || atomic_fetch_sub_explicit(&t->references, 1, memory_order_acq_rel) != 1)
		return;
	pool_leave(&t->share);
	free(t);
}

/* The pool that a resource is taken from; XTS_POOLS: none. */
static enum xts_pool pool_of(enum xts_resource resource)
{
	switch (resource) {
	case XTS_USE_DESCRIPTORS:
		return XTS_POOL_DESCRIPTORS;
	case XTS_USE_SPILL_BYTES:
	case XTS_USE_ULP_BYTES:
	case XTS_USE_KEPT_BYTES:
	case XTS_USE_ORPHAN_BYTES:
	case XTS_USE_SOCKET_BYTES:
		return XTS_POOL_MEMORY;
	default:
		return XTS_POOLS;
	}
}

bool tenant_take(struct xts_tenant *t, enum xts_resource resource, uint64_t amount)
{
	enum xts_pool pool = pool_of(resource);
	uint64_t used = tenant_used(t, resource), limit = tenant_limit(t, resource);

	do {
		if (used > limit || amount > limit - used) {
			atomic_fetch_add_explicit(&t->refused[resource], 1, memory_order_relaxed);
			return false;
		}
	} while (!atomic_compare_exchange_weak_explicit(&t->used[resource], &used, used + amount, memory_order_relaxed,
							memory_order_relaxed));
	if (pool == XTS_POOLS || pool_take(&t->share, pool, amount))
		return true;
	atomic_fetch_sub_explicit(&t->used[resource], amount, memory_order_relaxed);
	return false;
}

void tenant_take_anyway(struct xts_tenant *t, enum xts_resource resource, uint64_t amount)
{
	enum xts_pool pool = pool_of(resource);

	atomic_fetch_add_explicit(&t->used[resource], amount, memory_order_relaxed);
	if (pool != XTS_POOLS)
		pool_take_anyway(&t->share, pool, amount);
}

void tenant_give(struct xts_tenant *t, enum xts_resource resource, uint64_t amount)
{
	enum xts_pool pool = pool_of(resource);

	atomic_fetch_sub_explicit(&t->used[resource], amount, memory_order_relaxed);
	if (pool != XTS_POOLS)
		pool_give(&t->share, pool, amount);
}

uint64_t tenant_left(const struct xts_tenant *t, enum xts_resource resource)
{
	uint64_t used = tenant_used(t, resource), limit = tenant_limit(t, resource);
	uint64_t left = used < limit ? limit - used : 0;
	enum xts_pool pool = pool_of(resource);
	uint64_t in_pool = pool == XTS_POOLS ? UINT64_MAX : pool_left(&t->share, pool);

	return left < in_pool ? left : in_pool;
}

void xts_tenant_stats(const struct xts_tenant *t, struct xts_tenant_stats *out)
{
	for (int i = 0; i < XTS_POOLS; i++) {
		out->pool_used[i] = atomic_load(&t->share.used[i]);
		out->pool_guaranteed[i] = atomic_load(&t->share.guaranteed[i]);
		out->pool_refused[i] = atomic_load(&t->share.refused[i]);
	}
	out->ports_guaranteed = local_ports_count(atomic_load(&t->ports));
	out->ports_refused = atomic_load(&t->ports_refused);
	for (int i = 0; i < XTS_RESOURCES; i++) {
		out->used[i] = atomic_load(&t->used[i]);
		out->refused[i] = atomic_load(&t->refused[i]);
	}
}

bool tenant_take_socket(struct xts_tenant *t)
{
	if (!tenant_take(t, XTS_USE_DESCRIPTORS, 1))
		return false;
	if (tenant_take(t, XTS_USE_SOCKET_BYTES, TENANT_SOCKET_BYTES))
		return true;
	tenant_give(t, XTS_USE_DESCRIPTORS, 1);
	return false;
}

void tenant_take_socket_anyway(struct xts_tenant *t)
{
	tenant_take_anyway(t, XTS_USE_DESCRIPTORS, 1);
	tenant_take_anyway(t, XTS_USE_SOCKET_BYTES, TENANT_SOCKET_BYTES);
}

void tenant_give_socket(struct xts_tenant *t)
{
	tenant_give(t, XTS_USE_DESCRIPTORS, 1);
	tenant_give(t, XTS_USE_SOCKET_BYTES, TENANT_SOCKET_BYTES);
}

bool tenant_may_log(struct xts_tenant *t, uint64_t now_ns, uint32_t *suppressed)
{
	uint64_t second = now_ns / 1000000000u, counted = atomic_load(&t->log_second);

	/* Two workers may both begin a new second, which allows a few lines more. */
	if (second != counted && atomic_compare_exchange_strong(&t->log_second, &counted, second))
		atomic_store(&t->log_lines, 0);
	if (atomic_fetch_add(&t->log_lines, 1) >= TENANT_LOG_LINES_PER_S) {
		atomic_fetch_add(&t->log_suppressed, 1);
		return false;
	}
	*suppressed = atomic_exchange(&t->log_suppressed, 0);
	return true;
}
