/* Listeners that several channels accept from, and datagram sockets that several channels have. share.h has the theory
 * of operation. */
#include "share.h"
#include "datagram_socket.h"
#include "pushed.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

/* A connection that a member has given back. */
struct waiting {
	struct waiting *next;
	struct xts_tenant *tenant; /* a reference */
	struct pushed *pushed;
	int fd;
};

static struct list listeners = { &listeners, &listeners }; /* all shared sockets; under the registry's lock */

static struct shared *shared_of(struct keyed *k)
{
	return k ? list_entry(k, struct shared, keyed) : NULL;
}

void reset_and_close(int fd)
{
	struct linger abort_now = { .l_onoff = 1 };

	(void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &abort_now, sizeof abort_now);
	close(fd);
}

/* --- connections that were given back
 * --------------------------------------------------------------------------------------------------- */

static void push_waiting(struct shared *s, struct waiting *given)
{
	if (s->last_waiting)
		s->last_waiting->next = given;
	else
		s->first_waiting = given;
	s->last_waiting = given;
	atomic_store(&s->any_waiting, true);
}

/* The descriptor of the connection that has waited longest, or -1. */
static int pop_waiting(struct shared *s, struct pushed **pushed)
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
	free(given);
	return fd;
}

/* --- members ------------------------------------------------------------------------------------------------------ */

/* With the lock held: any member on this worker, or NULL. */
static struct connection *member_on_worker(const struct shared *s, const struct worker_state *w)
{
	for (struct list *node = s->members.next; node != &s->members; node = node->next) {
		struct connection *m = list_entry(node, struct connection, share);

		if (m->worker == w)
			return m;
	}
	return NULL;
}

static struct connection *next_here(const struct connection *m)
{
	return list_entry(m->share_here.next, struct connection, share_here);
}

static void add_member(struct shared *s, struct connection *l)
{
	struct connection *neighbour = member_on_worker(s, l->worker);

	registry_unkeep(&s->keyed);
	l->shared = s;
	share_turn_ends(l); /* the members that are here already go first */
	list_append(&s->members, &l->share);
	if (neighbour)
		list_append(&neighbour->share_here, &l->share_here);
	if (l->datagrams)
		datagram_named(l);
	else
		l->worker->stats.shared_listeners++;
}

static void remove_member(struct connection *l)
{
	list_remove(&l->share);
	list_remove(&l->share_here);
	l->shared = NULL;
	if (l->state != CONNECTION_DATAGRAM)
		l->worker->stats.shared_listeners--;
}

/* With the lock held: the descriptor in struct shared stays open when those of the members are closed. */
static void begin_datagrams(struct shared *s, const struct connection *l)
{
	s->multicast = multicast_hold(l->datagrams->multicast);
	s->bound = l->datagrams->bound;
	atomic_store(&s->dropped, l->datagrams->dropped);
	groups_use(s->multicast, s->fd);
}

int share_start(struct connection *l, uint64_t key, uint32_t keep_ms)
{
	struct worker_state *w = l->worker;
	struct shared *s = l->shared;
	int error;

	if (s) {
		if (s->keyed.key != key)
			return EINVAL; /* it has a key already */
		registry_lock();
		l->keep_ms = keep_ms;
		s->abandoned |= !keep_ms;
		registry_unlock();
		if (l->datagrams)
			datagram_named(l);
		return 0;
	}
	s = calloc(1, sizeof *s);
	if (!s)
		return ENOBUFS;
	s->fd = fcntl(l->fd, F_DUPFD_CLOEXEC, 0);
	s->ip_version = l->ip_version;
	s->listens = l->state == CONNECTION_LISTENER;
	l->keep_ms = keep_ms;
	list_init(&s->members);
	registry_lock();
	error = s->fd < 0 || (l->pushed && pushed_copy(&s->pushed, l->pushed, NULL)) ? ENOBUFS : 0;
	if (!error)
		error = registry_add(&s->keyed, l->tenant, key, KEYED_LISTENER);
	if (!error) {
		s->name = l->name ? name_hold(l->name) : NULL;
		list_append(&listeners, &s->all);
		if (l->datagrams) {
			begin_datagrams(s, l);
			filter_share(l, s);
		}
		add_member(s, l);
	}
	registry_unlock();
	if (!error)
		return 0;
	if (error == ENOBUFS) {
		w->stats.refused_limit++;
		(void)command_refuse(l->channel, XTS_REFUSED_SHARED_LISTENERS);
	}
	if (s->fd >= 0)
		close(s->fd);
	pushed_free(s->pushed);
	free(s);
	return error;
}

/* Charges for the joining member as a listener, if it is one. */
static bool join_as_listener(struct connection *l, const struct shared *s, int *error)
{
	if (!s->listens)
		return true;
	if (!tenant_take(l->tenant, XTS_USE_LISTENERS, 1)) {
		l->worker->stats.refused_limit++;
		*error = command_refuse(l->channel, XTS_REFUSED_LISTENERS);
		return false;
	}
	listener_become(l);
	return !connection_watch(l);
}

/* Gives the new member what all members share. 0 or an errno. */
static int become_member(struct connection *l, struct shared *s)
{
	int error = command_refuse(l->channel, XTS_REFUSED_DEVICE_MEMORY);

	if (s->multicast)
		return datagram_join(l, s->multicast, s->bound);
	return (s->pushed && pushed_copy(&l->pushed, s->pushed, l)) || !join_as_listener(l, s, &error) ? error : 0;
}

/* With the lock held: makes a member of this channel for the same socket. */
static struct connection *join(struct channel *ch, struct shared *s, int *error)
{
	struct xts_endpoint local;
	struct connection *l;
	int fd;

	socket_local(s->fd, &local);
	if (!s->multicast && !command_allowed(ch, XTS_POLICY_LISTEN, &local)) {
		*error = EACCES;
		return NULL;
	}
	*error = command_refuse(ch, XTS_REFUSED_DEVICE_DESCRIPTORS);
	fd = fcntl(s->fd, F_DUPFD_CLOEXEC, 0);
	l = fd < 0 ? NULL : connection_new(ch, fd, s->ip_version, error);
	if (!l) {
		if (fd >= 0)
			close(fd);
		return NULL;
	}
	l->name = s->name ? name_hold(s->name) : NULL;
	*error = become_member(l, s);
	if (*error) {
		listener_close(l);
		connection_free(l, false);
		return NULL;
	}
	add_member(s, l);
	return l;
}

struct connection *share_join(struct channel *ch, uint64_t key, int *error)
{
	struct connection *l = NULL;
	struct shared *s;

	registry_lock();
	s = shared_of(registry_find(ch->tenant, key, KEYED_LISTENER));
	if (s && (!s->multicast || ch->link.features & XTS_FEATURE_SHARE_DATAGRAM))
		l = join(ch, s, error);
	else
		*error = ENOENT;
	registry_unlock();
	return l;
}

/* With the lock held: makes the members on this worker check whether there is something to offer. */
static void wake_own(struct shared *s, struct worker_state *w)
{
	struct connection *first = member_on_worker(s, w), *m = first;

	if (!m)
		return;
	do {
		if (m->state == CONNECTION_LISTENER || m->state == CONNECTION_DATAGRAM) {
			m->readable = true;
			connection_wake(m);
		}
		m = next_here(m);
	} while (m != first);
}

/* With the lock held: if this is the last member, will the socket end when it has left? */
static bool is_not_kept(const struct shared *s, const struct connection *l, bool closed)
{
	return closed || s->ended || s->abandoned || !l->keep_ms || l->worker->draining;
}

/* With the lock held: resets one connection that a member has given back, or drops a block of datagrams. False: there
 * is none. */
static bool reset_one_waiting(struct shared *s)
{
	struct pushed *pushed;
	int fd = pop_waiting(s, &pushed);

	if (fd < 0)
		return returned_drop_block(&s->returned);
	pushed_free(pushed);
	reset_and_close(fd);
	return true;
}

bool share_end_some(struct connection *l, bool closed)
{
	struct shared *s = l->shared;
	bool ends, more;

	do {
		registry_lock();
		ends = s->members.next == &l->share && l->share.next == &s->members && is_not_kept(s, l, closed);
		if (ends)
			registry_forget(&s->keyed);
		more = ends && reset_one_waiting(s);
		if (ends && !more)
			shared_end(s);
		registry_unlock();
		if (more && worker_turn_is_over(l->worker))
			return false;
	} while (more);
	return !ends || l->state != CONNECTION_LISTENER || listener_refuse_some(l);
}

void share_leave(struct connection *l, bool closed)
{
	struct shared *s = l->shared;

	l->held = 0;
	while (!list_empty(&l->offers))
		share_give_back(list_entry(l->offers.next, struct connection, offers));
	for (struct connection *c = accepting_any(l); c; c = accepting_any(l))
		share_give_back(c);
	listener_close(l);
	registry_lock();
	remove_member(l);
	if (list_empty(&s->members)) {
		if (is_not_kept(s, l, closed))
			shared_end(s);
		else
			registry_keep(&s->keyed, l->worker, l->keep_ms);
	} else {
		wake_own(s, l->worker); /* it may have been about to offer them something */
	}
	registry_unlock();
}

void share_listens(struct connection *l)
{
	registry_lock();
	l->shared->listens = true;
	registry_unlock();
}

void share_is_bound(struct connection *c)
{
	struct shared *s = c->shared;

	registry_lock();
	s->bound = true;
	name_release(s->name);
	s->name = c->name ? name_hold(c->name) : NULL;
	registry_unlock();
}

uint32_t share_new_drops(struct shared *s, uint32_t dropped)
{
	uint32_t before = atomic_load(&s->dropped);

	while ((int32_t)(dropped - before) > 0)
		if (atomic_compare_exchange_weak(&s->dropped, &before, dropped))
			return dropped - before;
	return 0;
}

int share_part(struct connection *c)
{
	struct shared *s = c->shared;
	int error = 0;

	registry_lock();
	if (s->members.next != &c->share || c->share.next != &s->members)
		error = EOPNOTSUPP;
	if (!error) {
		if (c->datagrams)
			filter_unshare(c, s);
		remove_member(c);
		shared_end(s);
	}
	registry_unlock();
	return error;
}

void shared_end(struct shared *s)
{
	filter_end(s);
	registry_remove(&s->keyed);
	list_remove(&s->all);
	s->ended = true;
	multicast_release(s->multicast);
	s->multicast = NULL;
	if (s->fd >= 0)
		close(s->fd);
	s->fd = -1;
	name_release(s->name);
	s->name = NULL;
	while (reset_one_waiting(s))
		;
	pushed_free(s->pushed);
	s->pushed = NULL;
	if (list_empty(&s->members))
		free(s);
}

bool shared_end_piece(struct shared *s)
{
	registry_forget(&s->keyed);
	if (s->listens && !s->closing)
		(void)listen(s->fd, 0); /* so that no further connections join the backlog */
	s->closing = true;
	if (reset_one_waiting(s) || (s->listens && backlog_refuse_one(s->fd)))
		return false;
	shared_end(s);
	return true;
}

/* --- whose turn it is --------------------------------------------------------------------------------------------- */

bool share_has_news(const struct connection *l)
{
	const struct shared *s = l->shared;

	return !atomic_load_explicit(&s->ended, memory_order_relaxed) &&
	       (l->readable || atomic_load_explicit(&s->any_waiting, memory_order_relaxed));
}

/* Members that can be sent the announcement at once come first, then those without frame credits, then those at a
 * limit. */
static int nearness(const struct connection *m)
{
	return !listener_has_room(m) ? 0 : !xts_link_credits(&m->channel->link) ? 1 : 2;
}

/* Among these, members with fewer unanswered offers come first, and then those that have waited longest. */
static bool goes_before(const struct connection *a, const struct connection *b)
{
	if (nearness(a) != nearness(b))
		return nearness(a) > nearness(b);
	if (a->offer_count != b->offer_count)
		return a->offer_count < b->offer_count;
	return a->share_turn < b->share_turn;
}

struct connection *share_turn(struct connection *l)
{
	struct connection *best = NULL, *m = l;

	do {
		if (m->held && !m->channel->ending && (!best || goes_before(m, best)))
			best = m;
		m = next_here(m);
	} while (m != l);
	return best;
}

void share_turn_ends(struct connection *l)
{
	l->share_turn = ++l->worker->share_turns;
}

int share_take_waiting(struct connection *l, struct pushed **pushed)
{
	int fd;

	if (!atomic_load_explicit(&l->shared->any_waiting, memory_order_relaxed))
		return -1;
	registry_lock();
	fd = pop_waiting(l->shared, pushed);
	registry_unlock();
	return fd;
}

void share_accepted_all(struct connection *l)
{
	struct connection *m = l;

	do {
		m->readable = false;
		m = next_here(m);
	} while (m != l);
}

/* --- giving back -------------------------------------------------------------------------------------------------- */

/* Makes members on this worker try at once, and those on others when their workers have been poked. */
static void tell_members(struct shared *s, struct worker_state *w)
{
	struct worker_state *poked = NULL;
	struct list *node;

	wake_own(s, w);
	for (node = s->members.next; node != &s->members; node = node->next) {
		struct connection *m = list_entry(node, struct connection, share);

		if (m->worker != w && m->worker != poked) {
			poked = m->worker;
			worker_poke(poked);
		}
	}
}

void share_give_back(struct connection *c)
{
	struct shared *s = c->listener->shared;
	struct worker_state *w = c->worker;
	struct waiting *given = calloc(1, sizeof *given);
	struct xts_tenant *tenant = tenant_hold(c->tenant);
	struct pushed *pushed;
	int fd = c->fd;

	if (c->in_epoll) /* its handshake is done, or in progress */
		(void)epoll_ctl(w->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
	buffers_tune(c);
	closed_handed_over(c);
	c->fd = -1;
	if (!c->announced)
		accepting_ends(c);
	pushed = pushed_leave(c);
	connection_free(c, false);
	registry_lock();
	if (given && !s->ended && registry_take_unowned(tenant, pushed_memory(pushed))) {
		given->tenant = tenant_hold(tenant);
		given->fd = fd;
		given->pushed = pushed;
		push_waiting(s, given);
		tell_members(s, w);
		w->stats.given_back++;
	} else {
		w->stats.refused_limit += !s->ended;
		pushed_free(pushed);
		reset_and_close(fd);
		free(given);
	}
	registry_unlock();
	xts_tenant_release(tenant);
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

void share_poked(struct worker_state *w)
{
	struct list *node;

	registry_lock();
	for (node = listeners.next; node != &listeners; node = node->next) {
		struct shared *s = list_entry(node, struct shared, all);

		if (s->first_waiting || s->returned.first)
			wake_own(s, w);
	}
	registry_unlock();
}

/* --- ending before the last member has gone ----------------------------------------------------------------------- */

void share_drain(struct connection *l)
{
	struct shared *s = l->shared;

	registry_lock();
	if (!s->ended) {
		(void)shutdown(s->fd, SHUT_RDWR); /* this works whatever descriptors others have for it */
		shared_end(s);
	}
	registry_unlock();
	listener_close(l);
}

static bool is_on(const struct shared *s, bool datagrams, const struct xts_endpoint *address)
{
	struct xts_endpoint local = { 0 };

	socket_local(s->fd, &local);
	return datagrams == (s->multicast != NULL) && local.port == address->port && endpoint_overlaps(&local, address);
}

/* With the lock held: finds a listener that no process holds, kept by keeper, of this tenant, and on this address
 * (NULL: any, for each of these). */
static struct shared *find_kept(const struct worker_state *keeper, const struct xts_tenant *t, bool datagrams,
				const struct xts_endpoint *address)
{
	for (struct list *node = listeners.next; node != &listeners; node = node->next) {
		struct shared *s = list_entry(node, struct shared, all);

		if (list_empty(&s->members) && (!keeper || s->keyed.keeper == keeper) && (!t || s->keyed.tenant == t) &&
		    (!address || is_on(s, datagrams, address)))
			return s;
	}
	return NULL;
}

/* Ends such listeners, until the turn is over. True: none is left. */
static bool end_kept(struct worker_state *w, const struct worker_state *keeper, const struct xts_tenant *t,
		     bool datagrams, const struct xts_endpoint *address)
{
	struct shared *s;

	do {
		registry_lock();
		s = find_kept(keeper, t, datagrams, address);
		if (s)
			(void)shared_end_piece(s);
		registry_unlock();
	} while (s && !worker_turn_is_over(w));
	return !s;
}

bool share_drain_kept(struct worker_state *w)
{
	return end_kept(w, w, NULL, false, NULL);
}

bool share_gives_way(struct worker_state *w, const struct xts_tenant *t, bool datagrams, const struct xts_endpoint *local)
{
	return !local->port || end_kept(w, NULL, t, datagrams, local);
}
