/*
 * Tenants: who is charged for the device's resources.
 *
 * Theory of operation
 *
 * A limit per queue would limit nobody, because a process may attach over shared memory as often as it likes. So
 * everything that costs the device time or memory is charged to a tenant: a user or a container, which the supervisor
 * determines when a channel opens. A channel has a tenant, and so has each connection, which keeps its tenant when its
 * channel is gone. The supervisor makes tenants from the configuration; all workers share them, so the counters are
 * atomic. Limits may change at any time: what is used above a new limit stays, and nothing more is given out.
 *
 * One pair of functions charges everything: tenant_take() before something is made, tenant_give() when it is gone.
 * Resources of the whole machine (descriptors, memory) are charged to a pool at the same time.
 */
#ifndef XTS_TENANT_H
#define XTS_TENANT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "tenants/pacer.h"
#include "tenants/resource_pool.h"
#include "worker/list.h"

#define TENANT_MARKS 256u

struct xts_tenant {
	char name[XTS_TENANT_NAME_BYTES];
	uint32_t id;
	atomic_uint references;
	_Atomic uint32_t weight, window_bytes, window_bytes_max, orphan_timeout_ms;
	_Atomic uint32_t mark; /* TENANT_MARKS | its DSCP; 0: none (mark.h) */
	struct pacer pacer;    /* of all it sends */
	_Atomic uint64_t limit[XTS_RESOURCES];
	_Atomic uint64_t used[XTS_RESOURCES];
	_Atomic uint64_t refused[XTS_RESOURCES];
	struct pool_share share;
	_Atomic uint32_t ports; /* its own (local_ports.h) */
	_Atomic uint64_t ports_refused;
	uint64_t keys_elsewhere_until_ns; /* registry_moves(); under the registry's lock */
	bool recovered;                   /* what no channel had of it when the process before this one died */
	struct list orphans;              /* orphan.by_age, the oldest first; under the lock of orphan.c */
	_Atomic uint64_t log_second;      /* the second that log_lines counts */
	_Atomic uint32_t log_lines, log_suppressed;
};

struct xts_tenant *tenant_hold(struct xts_tenant *t);
/* Charges an amount. False, and nothing is charged: it would be over the tenant's limit, or over what the pool has left
 * for the tenant. */
bool tenant_take(struct xts_tenant *t, enum xts_resource resource, uint64_t amount);
/* Charges what cannot be refused: it exists already. */
void tenant_take_anyway(struct xts_tenant *t, enum xts_resource resource, uint64_t amount);
/* Ends a charge. */
void tenant_give(struct xts_tenant *t, enum xts_resource resource, uint64_t amount);
/* How much could still be taken now. As others take at the same time, only tenant_take() decides. */
uint64_t tenant_left(const struct xts_tenant *t, enum xts_resource resource);

/* May a line about it be logged now? Lines are limited per second; *suppressed: how many were dropped before, which
 * this line should mention. */
#define TENANT_LOG_LINES_PER_S 20u
bool tenant_may_log(struct xts_tenant *t, uint64_t now_ns, uint32_t *suppressed);

/* What an open TCP socket costs: a descriptor, our struct and the kernel's (tcp_sock 2.4 KB, inode, dentry, file, epoll
 * item, port: 4 KB), and an estimate of its buffers in the kernel: what the kernel guarantees for each of the two (the
 * first numbers of tcp_wmem and tcp_rmem). What a program asks for beyond that is charged in addition (socket_buffers.c). */
#define TENANT_BUFFER_BYTES 4096u
#define TENANT_SOCKET_BYTES (4096u + 2u * TENANT_BUFFER_BYTES)
bool tenant_take_socket(struct xts_tenant *t);
void tenant_take_socket_anyway(struct xts_tenant *t);
void tenant_give_socket(struct xts_tenant *t);

static inline uint64_t tenant_used(const struct xts_tenant *t, enum xts_resource resource)
{
	return atomic_load_explicit(&t->used[resource], memory_order_relaxed);
}

static inline uint64_t tenant_limit(const struct xts_tenant *t, enum xts_resource resource)
{
	return atomic_load_explicit(&t->limit[resource], memory_order_relaxed);
}

#endif
