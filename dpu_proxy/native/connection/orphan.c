/*
 * Orphans: connections that still have bytes to deliver after their host has closed them or is gone.
 *
 * The kernel's TCP has the same for a process that has ended: it delivers what was written, unless the process has left
 * data unread, which resets the connection. An orphan belongs to its worker, not to a channel. Its tenant is charged
 * for it in a separate budget (connections, bytes, time without progress, and the tenant's share of the worker), so
 * that orphans take nothing from the next process on the queue. When the budget is full, the tenant's oldest orphan is
 * evicted (reset) for the new one. A connection that is too large for the whole budget is reset itself.
 *
 * The oldest orphan may belong to another worker, and only that worker may touch it. So the orphans of a tenant are on
 * one list, under a separate lock. The worker that takes an orphan off the list takes over its charge and sets
 * orphan.cut; the orphan's own worker then resets it. Until that worker's next round both connections use memory:
 * at most twice the budget.
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "connection/unowned.h"
#include "processes/share.h"
#include "pushed/pushed.h"
#include "worker/common_lock.h"

void connection_spill_gone(struct connection *c, uint64_t bytes)
{
	struct worker_state *w = c->worker;

	w->stats.spill_bytes -= bytes;
	if (c->channel)
		c->channel->spill_bytes -= bytes;
	trim_count(&w->trim, &w->timers, w->now_ns, bytes);
	if (c->orphan)
		orphan_give_bytes(c, bytes);
}

/* --- what they are charged for ------------------------------------------------------------------------------------ */

static pthread_mutex_t by_age = PTHREAD_MUTEX_INITIALIZER; /* protects the lists of all tenants and all workers */

bool orphan_take_bytes(struct connection *c, uint64_t bytes)
{
	if (!tenant_take(c->tenant, XTS_USE_ORPHAN_BYTES, bytes))
		return false;
	atomic_fetch_add(&c->as_orphan->bytes, bytes);
	return true;
}

/* Does nothing if another orphan has taken over the charge. */
void orphan_give_bytes(struct connection *c, uint64_t bytes)
{
	uint64_t charged = atomic_load(&c->as_orphan->bytes);

	while (charged >= bytes) {
		if (atomic_compare_exchange_weak(&c->as_orphan->bytes, &charged, charged - bytes)) {
			tenant_give(c->tenant, XTS_USE_ORPHAN_BYTES, bytes);
			return;
		}
	}
}

void orphan_uncount(struct connection *c)
{
	c->worker->stats.orphans--;
	common_lock(&by_age);
	list_remove(&c->as_orphan->by_age);
	common_unlock(&by_age); /* from here on whether it is cut does not change */
	tenant_give(c->tenant, XTS_USE_ORPHAN_BYTES, atomic_exchange(&c->as_orphan->bytes, 0));
	if (!atomic_load(&c->as_orphan->cut))
		tenant_give(c->tenant, XTS_USE_ORPHANS, 1);
	unowned_release(c->as_orphan->unowned);
}

static bool take_orphan(struct xts_tenant *t, uint64_t bytes)
{
	if (!tenant_take(t, XTS_USE_ORPHANS, 1))
		return false;
	if (tenant_take(t, XTS_USE_ORPHAN_BYTES, bytes))
		return true;
	tenant_give(t, XTS_USE_ORPHANS, 1);
	return false;
}

/* --- the oldest goes first ---------------------------------------------------------------------------------------- */

/* Called with the lock held: evicts another worker's orphan. Returns the bytes it was charged for. */
static uint64_t cut(struct connection *c)
{
	atomic_store(&c->as_orphan->cut, true);
	list_remove(&c->as_orphan->by_age);
	list_append(&c->worker->cut, &c->as_orphan->by_age);
	worker_poke(c->worker);
	return atomic_exchange(&c->as_orphan->bytes, 0);
}

bool orphan_gives_way(struct worker_state *w, struct xts_tenant *t)
{
	struct connection *c;
	uint64_t bytes = 0;
	bool own;

	common_lock(&by_age);
	c = list_empty(&t->orphans) ? NULL : list_entry(t->orphans.next, struct orphan, by_age)->connection;
	own = c && c->worker == w;
	if (c && !own)
		bytes = cut(c);
	common_unlock(&by_age);
	if (own) {
		w->stats.orphans_cut++;
		connection_free(c, true);
	} else if (c) { /* c may have been freed */
		tenant_give(t, XTS_USE_ORPHAN_BYTES, bytes);
		tenant_give(t, XTS_USE_ORPHANS, 1);
		tenant_give_socket(t);
	}
	return c;
}

void orphans_poked(struct worker_state *w)
{
	common_lock(&by_age);
	while (!list_empty(&w->cut))
		connection_note(list_entry(list_pop(&w->cut), struct orphan, by_age)->connection, 0);
	common_unlock(&by_age);
}

/* Makes room in the budget for an orphan of this many bytes; false: that is not possible. */
static bool make_room(struct worker_state *w, struct xts_tenant *t, uint64_t bytes)
{
	if (bytes > tenant_limit(t, XTS_USE_ORPHAN_BYTES))
		return false;
	while (!take_orphan(t, bytes)) {
		if (!orphan_gives_way(w, t))
			return false;
	}
	return true;
}

bool orphan_would_reset(struct connection *c)
{
	int bytes = 0;

	if (c->tcp.returned.last)
		return true;
	if (c->tcp.pushed && (c->tcp.pushed->started || c->tcp.pushed->peeking))
		return pushed_has_unread(c);
	return !ioctl(c->tcp.fd, FIONREAD, &bytes) && bytes > 0;
}

/* Its channel's part ends; what its protocols keep is charged as an orphan's from now on. */
static void leave_channel(struct connection *c)
{
	tenant_give(c->tenant, XTS_USE_ULP_BYTES, pushed_memory(c->tcp.pushed));
	connection_leave_channel(c);
	if (!list_empty(&c->noted)) { /* its events are handled in a turn of the orphans */
		list_remove(&c->noted);
		list_append(&c->as_orphan->unowned->noted, &c->noted);
	}
}

/* Its part as an orphan, with a reference to what owns it now; false: no memory. */
static bool make_orphan(struct connection *c)
{
	struct orphan *o = calloc(1, sizeof *o);

	if (o)
		o->unowned = unowned_hold(c->worker, c->tenant);
	if (!o || !o->unowned) {
		free(o);
		return false;
	}
	o->connection = c;
	list_init(&o->by_age);
	c->as_orphan = o;
	return true;
}

void connection_orphan(struct connection *c)
{
	struct worker_state *w = c->worker;
	uint64_t bytes;
	int timeout_ms;

	c->tcp.fin_wanted = true;
	if (c->tcp.fd < 0 || (!outgoing_waits(&c->tcp.out) && (!c->tcp.pushed || pushed_finish(c) || c->tcp.error))) {
		connection_free(c, false);
		return;
	}
	if (c->tcp.pushed && !pushed_deliverable(c)) {
		connection_free(c, true);
		return;
	}
	bytes = c->tcp.out.spill.bytes + pushed_memory(c->tcp.pushed); /* includes what its protocols have not sent */
	if (!make_orphan(c) || !make_room(w, c->tenant, bytes)) {
		if (c->as_orphan)
			unowned_release(c->as_orphan->unowned);
		w->stats.orphans_cut++;
		connection_free(c, true);
		return;
	}
	timeout_ms = (int)c->tenant->orphan_timeout_ms;
	(void)setsockopt(c->tcp.fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms, sizeof timeout_ms);
	leave_channel(c);
	atomic_store(&c->as_orphan->bytes, bytes);
	c->orphan = true;
	c->connect_reply = c->lingering = c->unwaited = c->look_due = false; /* no host gets any message about it */
	connection_look_no_more(c);
	connection_enter(c, CONNECTION_CLOSING);
	c->close_reply = false;
	w->stats.orphans++;
	list_append(&c->as_orphan->unowned->orphans, &c->member);
	common_lock(&by_age);
	list_append(&c->tenant->orphans, &c->as_orphan->by_age);
	common_unlock(&by_age);
	if (c->tcp.pushed)
		pushed_orphan(c, (uint32_t)timeout_ms);
}
