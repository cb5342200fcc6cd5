/* What members of a shared socket have given back waits in it, and the other members are told: connections they were
 * offered, and datagrams. share.h has the theory of operation. */
#include "connection/tcp_move.h"
#include "processes/share_inside.h"
#include "pushed/pushed.h"

#include <stdlib.h>

/* A connection that a member has given back. */
struct waiting {
	struct waiting *next;
	struct xts_tenant *tenant; /* a reference */
	struct tcp_side tcp;
	uint64_t came_ns; /* when it was accepted from TCP */
};

/* They wait in the order in which they came from TCP, and not in that in which they were given back. */
static void push_waiting(struct shared *s, struct waiting *given)
{
	struct waiting *before = s->last_waiting;

	if (before && before->came_ns > given->came_ns) {
		before = NULL;
		for (struct waiting *at = s->first_waiting; at->came_ns <= given->came_ns; at = at->next)
			before = at;
	}
	given->next = before ? before->next : s->first_waiting;
	if (before)
		before->next = given;
	else
		s->first_waiting = given;
	if (!given->next)
		s->last_waiting = given;
	atomic_store(&s->any_waiting, true);
}

/* The connection that has waited longest, whose charges for waiting end; NULL: there is none. */
static struct waiting *pop_waiting(struct shared *s)
{
	struct waiting *given = s->first_waiting;

	if (!given)
		return NULL;
	s->first_waiting = given->next;
	if (!s->first_waiting) {
		s->last_waiting = NULL;
		atomic_store(&s->any_waiting, false);
	}
	registry_give_unowned(given->tenant, pushed_memory(given->tcp.pushed));
	return given;
}

static void waiting_free(struct waiting *given)
{
	xts_tenant_release(given->tenant);
	free(given);
}

bool share_take_waiting(struct connection *l, struct tcp_side *tcp, uint64_t *came_ns)
{
	struct waiting *given;
	bool taken;

	if (!atomic_load_explicit(&l->shared->any_waiting, memory_order_relaxed))
		return false;
	registry_lock();
	given = pop_waiting(l->shared);
	taken = given;
	if (taken) {
		tcp_side_move(tcp, &given->tcp);
		*came_ns = given->came_ns;
		waiting_free(given);
	}
	registry_unlock();
	return taken;
}

/* With the lock held: resets one connection that a member has given back, or drops a block of datagrams. False: there
 * is none. */
bool shared_reset_one_waiting(struct shared *s)
{
	struct waiting *given = pop_waiting(s);

	if (!given)
		return shared_kind(s)->share_drops_some(s);
	tcp_side_end(&given->tcp, given->tenant);
	waiting_free(given);
	return true;
}

/* --- telling the members ------------------------------------------------------------------------------------------ */

/* With the lock held: any member on this worker, or NULL. */
struct connection *shared_member_here(const struct shared *s, const struct worker_state *w)
{
	for (struct list *node = s->members.next; node != &s->members; node = node->next) {
		struct connection *m = list_entry(node, struct member, all)->connection;

		if (m->worker == w)
			return m;
	}
	return NULL;
}

/* With the lock held: makes the members on this worker check whether there is something to offer. */
void shared_wake_here(struct shared *s, struct worker_state *w)
{
	struct connection *first = shared_member_here(s, w), *m = first;

	if (!m)
		return;
	do {
		if (kind_of(m)->members_receive) {
			m->readable = true;
			connection_wake(m);
		}
		m = shared_next_here(m);
	} while (m != first);
}

/* Makes members on this worker try at once, and those on others when their workers have been poked. */
void shared_tell_members(struct shared *s, struct worker_state *w)
{
	struct worker_state *poked = NULL;
	struct list *node;

	shared_wake_here(s, w);
	for (node = s->members.next; node != &s->members; node = node->next) {
		struct connection *m = list_entry(node, struct member, all)->connection;

		if (m->worker != w && m->worker != poked) {
			poked = m->worker;
			worker_poke(poked);
		}
	}
}

void share_poked(struct worker_state *w)
{
	struct list *node;

	registry_lock();
	for (node = shared_sockets.next; node != &shared_sockets; node = node->next) {
		struct shared *s = list_entry(node, struct shared, all);

		if (s->first_waiting || s->returned.first)
			shared_wake_here(s, w);
	}
	registry_unlock();
}

/* --- giving back -------------------------------------------------------------------------------------------------- */

/* Takes the TCP side of an accepted connection away from it. Its handshake is done, or in progress. */
static void take_tcp(struct connection *c, struct tcp_side *to)
{
	if (!c->announced)
		accepting_ends(c);
	(void)kind_of(c)->save(c, to);
}

void share_reset_offer(struct connection *c)
{
	struct tcp_side tcp;

	listener_offer_ends(c);
	if (c->tcp.fd < 0)
		return; /* it was taken back before */
	take_tcp(c, &tcp);
	tcp_side_end(&tcp, c->tenant);
}

/* With the lock held. */
static void wait_for_member(struct shared *s, struct waiting *given, struct worker_state *w)
{
	push_waiting(s, given);
	shared_tell_members(s, w);
	w->stats.given_back++;
}

void share_give_back(struct connection *c)
{
	struct shared *s = c->listener->shared;
	struct worker_state *w = c->worker;
	struct waiting *given = calloc(1, sizeof *given);
	struct xts_tenant *tenant;
	uint64_t came_ns = c->since_ns;
	struct tcp_side tcp;

	if (c->tcp.fd < 0) { /* it was taken back before */
		free(given);
		connection_free(c, false);
		return;
	}
	tenant = tenant_hold(c->tenant);
	take_tcp(c, &tcp);
	connection_free(c, false);
	registry_lock();
	if (given && !s->ended && !s->shut && registry_take_unowned(tenant, pushed_memory(tcp.pushed))) {
		*given = (struct waiting){ .tenant = tenant_hold(tenant), .came_ns = came_ns, .tcp = tcp };
		wait_for_member(s, given, w);
	} else {
		w->stats.refused_limit += !s->ended && !s->shut;
		tcp_side_end(&tcp, tenant);
		free(given);
	}
	registry_unlock();
	xts_tenant_release(tenant);
}

bool share_take_back(struct connection *c)
{
	struct shared *s = c->listener->shared;
	struct waiting *given = calloc(1, sizeof *given);
	bool taken;

	registry_lock();
	taken = given && !s->ended && !s->shut && registry_take_unowned(c->tenant, pushed_memory(c->tcp.pushed));
	if (taken) {
		given->tenant = tenant_hold(c->tenant);
		given->came_ns = c->since_ns;
		take_tcp(c, &given->tcp);
		wait_for_member(s, given, c->worker);
	} else {
		free(given);
	}
	registry_unlock();
	return taken;
}
