/* What tenants have on a worker that belongs to no channel, and its turns; see unowned.h. */
#include <stdlib.h>

#include "channel/channel.h"
#include "connection/unowned.h"
#include "processes/share.h"

static struct unowned *find(struct worker_state *w, const struct xts_tenant *t)
{
	for (struct list *node = w->unowned.next; node != &w->unowned; node = node->next) {
		struct unowned *u = list_entry(node, struct unowned, member);

		if (u->tenant == t)
			return u;
	}
	return NULL;
}

static struct unowned *make(struct worker_state *w, struct xts_tenant *t)
{
	struct unowned *u = calloc(1, sizeof *u);

	if (!u)
		return NULL;
	if (account_open(&w->schedule, &u->account, &t->weight)) {
		free(u);
		return NULL;
	}
	u->tenant = tenant_hold(t);
	list_init(&u->orphans);
	list_init(&u->noted);
	list_init(&u->drains);
	list_init(&u->expired);
	list_append(&w->unowned, &u->member);
	return u;
}

struct unowned *unowned_hold(struct worker_state *w, struct xts_tenant *t)
{
	struct unowned *u = find(w, t);

	if (!u)
		u = make(w, t);
	if (u)
		u->references++;
	return u;
}

void unowned_release(struct unowned *u)
{
	u->references--; /* unowned_reap() frees it later, as a turn of it may be in progress */
}

void unowned_reap(struct worker_state *w)
{
	struct list *node = w->unowned.next;

	while (node != &w->unowned) {
		struct unowned *u = list_entry(node, struct unowned, member);

		node = node->next;
		if (u->references)
			continue;
		list_remove(&u->member);
		account_close(&u->account);
		xts_tenant_release(u->tenant);
		free(u);
	}
}

bool unowned_has_work(const struct unowned *u)
{
	return !list_empty(&u->noted) || !list_empty(&u->drains) || u->expiring || u->dropped.last;
}

void unowned_drain_some(struct unowned *u, struct worker_state *w)
{
	struct list *node = list_empty(&u->drains) ? NULL : list_pop(&u->drains);

	if (node && park_drain(node, w))
		list_append(&u->drains, node);
}
