/* What a tenant has on a worker that belongs to no channel: orphans, and parked connections with bytes to deliver. It
 * gets turns like a channel, in the tenant's share of the worker. */
#ifndef XTS_UNOWNED_H
#define XTS_UNOWNED_H

#include "connection/connection.h"

/* What only an orphan has: orphan.c. */
struct orphan {
	struct connection *connection;
	struct unowned *unowned; /* a reference */
	struct list by_age;      /* on tenant->orphans, or on worker->cut; under the lock of orphan.c */
	atomic_bool cut;         /* another orphan has taken its place in the tenant's account: it will be reset */
	_Atomic uint64_t bytes;  /* charged for it */
};

struct unowned {
	struct list member;        /* on worker->unowned */
	struct xts_tenant *tenant; /* a reference */
	struct account account;
	struct list orphans; /* the oldest first */
	struct list noted;   /* orphans with noted events */
	struct list drains;  /* parked connections (share.h) from which TCP can take more bytes */
	struct list expired; /* kept objects whose time is over (keyed.kept), to be ended; under the registry's lock */
	bool expiring;       /* there may be some; counts as a reference */
	struct returned dropped; /* bytes to be freed; counts as a reference if there are any */
	uint32_t references;
};

/* A reference to the struct unowned of the tenant on this worker; NULL: no memory. */
struct unowned *unowned_hold(struct worker_state *w, struct xts_tenant *t);
void unowned_release(struct unowned *u);
/* Frees those that nothing refers to. */
void unowned_reap(struct worker_state *w);
bool unowned_has_work(const struct unowned *u);
/* Writes some of the bytes of one parked connection. */
void unowned_drain_some(struct unowned *u, struct worker_state *w);

#endif
