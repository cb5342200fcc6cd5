/*
 * Orphans: connections whose host has closed them, or has gone, and of which bytes are still to be delivered.
 *
 * The kernel's own TCP does the same for a process that has ended: what it was given is delivered, unless the process has left data
 * unread, and then the connection is reset. An orphan belongs to its worker, not to a channel. It is charged to its tenant, in a budget of
 * its own (connections, bytes, and time without progress), so that it is never in the way of the next process on the queue. When the
 * budget is full, the tenant's oldest orphan on this worker is reset for the new one; a new one that would not fit at all, or
 * that finds the budget used by orphans of other workers, is reset itself.
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "pushed.h"

void connection_spill_gone(struct connection *c, uint64_t bytes)
{
	struct worker_state *w = c->worker;

	w->stats.spill_bytes -= bytes;
	trim_count(&w->trim, &w->timers, w->now_ns, bytes);
	if (c->orphan)
		tenant_give(c->tenant, XTS_USE_ORPHAN_BYTES, bytes);
}

void orphan_uncount(struct connection *c)
{
	c->worker->stats.orphans--;
	tenant_give(c->tenant, XTS_USE_ORPHANS, 1); /* its bytes went with the spill buffer, and go with its protocols */
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

static struct connection *oldest(const struct worker_state *w, const struct xts_tenant *t)
{
	for (const struct list *node = w->orphans.next; node != &w->orphans; node = node->next) {
		struct connection *c = list_entry(node, struct connection, member);

		if (c->tenant == t)
			return c;
	}
	return NULL;
}

bool orphan_gives_way(struct worker_state *w, const struct xts_tenant *t)
{
	struct connection *c = oldest(w, t);

	if (!c)
		return false;
	w->stats.orphans_cut++;
	connection_free(c, true);
	return true;
}

/* Room in the budget for one of so many bytes; false: it can have none. */
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

	if (c->pushed && (c->pushed->started || c->pushed->peeking))
		return pushed_has_unread(c);
	return !ioctl(c->fd, FIONREAD, &bytes) && bytes > 0;
}

/* Out of its channel, whose account it burdens no more. */
static void leave_channel(struct connection *c)
{
	struct channel *ch = c->channel;
	uint64_t kept = pushed_memory(c->pushed);

	identifier_release(ch, c->proxy_id);
	c->proxy_id = c->xts_socket = 0;
	connection_return_window(c);
	tenant_give(c->tenant, XTS_USE_CONNECTIONS, 1);
	tenant_give(c->tenant, XTS_USE_ULP_BYTES, kept);
	ch->ulp_bytes -= kept;
	ch->connection_count--;
	list_remove(&c->ready);
	list_remove(&c->dirty);
	list_remove(&c->unnamed);
	list_remove(&c->member);
	c->channel = NULL;
	if (!list_empty(&c->noted)) { /* it has its turn among the orphans */
		list_remove(&c->noted);
		list_append(&c->worker->noted, &c->noted);
	}
}

void connection_orphan(struct connection *c)
{
	struct worker_state *w = c->worker;
	int timeout_ms;

	c->fin_wanted = true;
	if (c->fd < 0 || (!connection_waits(c) && (!c->pushed || pushed_finish(c) || c->error))) {
		connection_free(c, false);
		return;
	}
	if (c->pushed && !pushed_deliverable(c)) {
		connection_free(c, true);
		return;
	}
	if (!make_room(w, c->tenant, c->spill.bytes + pushed_memory(c->pushed))) {
		w->stats.orphans_cut++;
		connection_free(c, true);
		return;
	}
	timeout_ms = (int)c->tenant->orphan_timeout_ms;
	(void)setsockopt(c->fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms, sizeof timeout_ms);
	leave_channel(c);
	c->orphan = true;
	c->state = CONNECTION_CLOSING;
	c->close_reply = false;
	w->stats.orphans++;
	list_append(&w->orphans, &c->member);
	if (c->pushed)
		pushed_orphan(c, (uint32_t)timeout_ms);
}
