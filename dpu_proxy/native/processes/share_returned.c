/* What members of a shared socket have given back waits in it, and the other members are told: connections they were
 * offered, and datagrams. share.h has the theory of operation. */
#include "datagrams/datagram_socket.h"
#include "processes/share_inside.h"
#include "pushed/pushed.h"

#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

/* A connection that a member has given back. */
struct waiting {
	struct waiting *next;
	struct xts_tenant *tenant; /* a reference */
	struct pushed *pushed;
	uint64_t came_ns; /* when it was accepted from TCP */
	int fd;
};

void reset_and_close(int fd)
{
	struct linger abort_now = { .l_onoff = 1 };

	(void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &abort_now, sizeof abort_now);
	close(fd);
}

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

/* The descriptor of the connection that has waited longest, or -1. */
static int pop_waiting(struct shared *s, struct pushed **pushed, uint64_t *came_ns)
{
	struct waiting *given = s->first_waiting;
	int fd;

	if (!given)
		return -1;
	s->first_waiting = given->next;
	if (!s->first_waiting) {
		s->last_waiting = NULL;
		atomic_store(&s->any_waiting, false);
	}
	registry_give_unowned(given->tenant, pushed_memory(given->pushed));
	xts_tenant_release(given->tenant);
	fd = given->fd;
	*pushed = given->pushed;
	*came_ns = given->came_ns;
	free(given);
	return fd;
}

int share_take_waiting(struct connection *l, struct pushed **pushed, uint64_t *came_ns)
{
	int fd;

	if (!atomic_load_explicit(&l->shared->any_waiting, memory_order_relaxed))
		return -1;
	registry_lock();
	fd = pop_waiting(l->shared, pushed, came_ns);
	registry_unlock();
	return fd;
}

/* With the lock held: resets one connection that a member has given back, or drops a block of datagrams. False: there
 * is none. */
bool shared_reset_one_waiting(struct shared *s)
{
	struct pushed *pushed;
	uint64_t came_ns;
	int fd = pop_waiting(s, &pushed, &came_ns);

	if (fd < 0)
		return returned_drop_block(&s->returned);
	pushed_free(pushed);
	reset_and_close(fd);
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
		if (m->state == CONNECTION_LISTENER || m->state == CONNECTION_DATAGRAM) {
			m->readable = true;
			connection_wake(m);
		}
		m = shared_next_here(m);
	} while (m != first);
}

/* Makes members on this worker try at once, and those on others when their workers have been poked. */
static void tell_members(struct shared *s, struct worker_state *w)
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

/* Takes the socket of an accepted connection away from it, and its protocols. */
static int take_socket(struct connection *c, struct pushed **pushed)
{
	int fd = c->fd;

	if (c->in_epoll) /* its handshake is done, or in progress */
		(void)epoll_ctl(c->worker->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
	buffers_tune(c);
	closed_handed_over(c);
	c->fd = -1;
	c->in_epoll = false;
	if (!c->announced)
		accepting_ends(c);
	*pushed = pushed_leave(c);
	return fd;
}

/* With the lock held. */
static void wait_for_member(struct shared *s, struct waiting *given, struct worker_state *w)
{
	push_waiting(s, given);
	tell_members(s, w);
	w->stats.given_back++;
}

void share_give_back(struct connection *c)
{
	struct shared *s = c->listener->shared;
	struct worker_state *w = c->worker;
	struct waiting *given = calloc(1, sizeof *given);
	struct xts_tenant *tenant;
	uint64_t came_ns = c->since_ns;
	struct pushed *pushed;
	int fd;

	if (c->fd < 0) { /* it was taken back before */
		free(given);
		connection_free(c, false);
		return;
	}
	tenant = tenant_hold(c->tenant);
	fd = take_socket(c, &pushed);
	connection_free(c, false);
	registry_lock();
	if (given && !s->ended && registry_take_unowned(tenant, pushed_memory(pushed))) {
		*given = (struct waiting){ .tenant = tenant_hold(tenant), .came_ns = came_ns, .fd = fd, .pushed = pushed };
		wait_for_member(s, given, w);
	} else {
		w->stats.refused_limit += !s->ended;
		pushed_free(pushed);
		reset_and_close(fd);
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
	taken = given && !s->ended && registry_take_unowned(c->tenant, pushed_memory(c->pushed));
	if (taken) {
		given->tenant = tenant_hold(c->tenant);
		given->came_ns = c->since_ns;
		given->fd = take_socket(c, &given->pushed);
		wait_for_member(s, given, c->worker);
	} else {
		free(given);
	}
	registry_unlock();
	return taken;
}

bool share_returned(struct connection *c, struct returned_block *b)
{
	struct shared *s = c->shared;
	bool here;

	registry_lock();
	here = !s->ended && returned_append(&s->returned, b);
	if (here)
		tell_members(s, c->worker);
	registry_unlock();
	return here;
}

bool share_has_returned(const struct connection *c)
{
	return c->shared && atomic_load_explicit(&c->shared->returned.any, memory_order_relaxed);
}
