/* The members of a listener or a datagram socket that several channels have: the first names it, others join, they
 * leave. share.h has the theory of operation. */
#include "addresses/socket_address.h"
#include "channel/ledger.h"
#include "processes/parked.h"
#include "processes/share_inside.h"
#include "pushed/pushed.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

struct list shared_sockets = { &shared_sockets, &shared_sockets };

static struct shared *shared_of(struct keyed *k)
{
	return k ? list_entry(k, struct shared, keyed) : NULL;
}

/* NULL: no memory. */
static struct member *make_member(struct connection *l)
{
	struct member *m = calloc(1, sizeof *m);

	if (!m)
		return NULL;
	m->connection = l;
	m->follows = (l->channel->link.features & XTS_FEATURE_LISTENING) != 0;
	list_init(&m->here);
	for (struct list *node = l->offers.next; node != &l->offers; node = node->next)
		m->offer_count++; /* those from before it was shared */
	return m;
}

static void add_member(struct shared *s, struct connection *l, struct member *m)
{
	struct connection *neighbour = shared_member_here(s, l->worker);

	registry_unkeep(&s->keyed);
	l->shared = s;
	l->shares = m;
	m->changes_seen = s->changes;
	share_turn_ends(l); /* the members that are here already go first */
	list_append(&s->members, &m->all);
	if (neighbour)
		list_append(&neighbour->shares->here, &m->here);
	kind_of(l)->count_member(l, 1);
}

static void remove_member(struct connection *l)
{
	list_remove(&l->shares->all);
	list_remove(&l->shares->here);
	free(l->shares);
	l->shares = NULL;
	l->shared = NULL;
	kind_of(l)->count_member(l, -1);
}

bool shared_has_only(const struct shared *s, const struct connection *l)
{
	return s->members.next == &l->shares->all && s->members.prev == &l->shares->all;
}

/* A member says what it has said before, or gives the socket another key. A member that has nothing to say of the key
 * says 0: it may not know the present one. */
static int share_again(struct connection *l, uint64_t key, uint32_t keep_ms)
{
	struct shared *s = l->shared;
	bool may_renew = l->channel->link.features & XTS_FEATURE_RENEW_KEY;
	int error = 0;

	registry_lock();
	if (s->keyed.key != key && !may_renew)
		error = EINVAL; /* it has a key already */
	else if (key && s->keyed.key != key && !(error = registry_rename(&s->keyed, key)))
		s->renewals++;
	if (!error) {
		l->shares->keep_ms = (uint16_t)keep_ms;
		s->abandoned |= !keep_ms;
		ledger_shared(l, s->keyed.key, s->renewals);
	}
	registry_unlock();
	return error;
}

/* Members that come from another process of the proxy (move.h) have one socket, with descriptors of their own. */
static bool is_same_socket(int one, int other)
{
	uint64_t cookies[2] = { 0 };
	socklen_t length = sizeof cookies[0];

	return !getsockopt(one, SOL_SOCKET, SO_COOKIE, &cookies[0], &length) &&
	       !getsockopt(other, SOL_SOCKET, SO_COOKIE, &cookies[1], &length) && cookies[0] == cookies[1];
}

/* The socket has this key already, from another member. */
static bool share_joins_again(struct connection *l, uint64_t key, uint32_t keep_ms, struct member *m)
{
	struct shared *s;

	registry_lock();
	s = shared_of(registry_find(l->tenant, key, KEYED_LISTENER));
	if (s && !s->ended && is_same_socket(s->fd, l->tcp.fd)) {
		m->keep_ms = (uint16_t)keep_ms;
		shared_kind(s)->share_joined(s, l);
		add_member(s, l, m);
		ledger_shared(l, key, s->renewals);
	} else {
		s = NULL;
	}
	registry_unlock();
	return s;
}

struct shared *shared_new(const struct tcp_side *side, uint8_t state)
{
	struct shared *s = calloc(1, sizeof *s);

	if (!s)
		return NULL;
	s->fd = fcntl(side->fd, F_DUPFD_CLOEXEC, 0);
	s->ip_version = side->ip_version;
	s->state = state;
	s->listens = shared_kind(s)->members_accept;
	list_init(&s->members);
	return s;
}

int share_start(struct connection *l, uint64_t key, uint32_t keep_ms)
{
	struct worker_state *w = l->worker;
	struct shared *s = l->shared;
	struct member *m;
	int error;

	if (s)
		return share_again(l, key, keep_ms);
	m = make_member(l);
	if (m && share_joins_again(l, key, keep_ms, m))
		return 0;
	s = m ? shared_new(&l->tcp, l->state) : NULL;
	if (!s) {
		free(m);
		return ENOBUFS;
	}
	m->keep_ms = (uint16_t)keep_ms;
	registry_lock();
	error = s->fd < 0 || (l->tcp.pushed && pushed_copy(&s->pushed, l->tcp.pushed, NULL)) ? ENOBUFS : 0;
	if (!error)
		error = registry_add(&s->keyed, l->tenant, key, KEYED_LISTENER);
	if (!error) {
		s->bound_to = l->bound_to ? bound_address_hold(l->bound_to) : NULL;
		list_append(&shared_sockets, &s->all);
		shared_kind(s)->share_begins(s, l);
		add_member(s, l, m);
		ledger_shared(l, key, s->renewals);
	}
	registry_unlock();
	if (!error)
		return 0;
	free(m);
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

void share_is_elsewhere(struct connection *l)
{
	registry_lock();
	l->shared->elsewhere = true;
	registry_unlock();
}

uint64_t share_key(const struct connection *l)
{
	uint64_t key = 0;

	registry_lock();
	if (l->shared && !l->shared->ended)
		key = l->shared->keyed.key;
	registry_unlock();
	return key;
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

int stream_may_join(struct channel *ch, const struct shared *s)
{
	struct xts_endpoint local;

	socket_local(s->fd, &local);
	return command_allowed(ch, XTS_POLICY_LISTEN, &local) ? 0 : EACCES;
}

int stream_join(struct connection *l, struct shared *s)
{
	int error = command_refuse(l->channel, XTS_REFUSED_DEVICE_MEMORY);

	return (s->pushed && pushed_copy(&l->tcp.pushed, s->pushed, l)) || !join_as_listener(l, s, &error) ? error : 0;
}

/* With the lock held: makes a member of this channel for the same socket. sleeps: of one that has come so; or NULL. */
static struct connection *join(struct channel *ch, struct shared *s, struct parked *sleeps, int *error)
{
	struct connection *l;
	struct member *m;
	int fd;

	*error = shared_kind(s)->may_join(ch, s);
	if (*error)
		return NULL;
	*error = command_refuse(ch, XTS_REFUSED_DEVICE_DESCRIPTORS);
	fd = fcntl(s->fd, F_DUPFD_CLOEXEC, 0);
	l = fd < 0 ? NULL : connection_new(ch, fd, s->ip_version, error);
	if (!l) {
		if (fd >= 0)
			close(fd);
		return NULL;
	}
	l->bound_to = s->bound_to ? bound_address_hold(s->bound_to) : NULL;
	m = make_member(l);
	if (!m)
		*error = command_refuse(ch, XTS_REFUSED_DEVICE_MEMORY);
	else if (sleeps && sleeps->own)
		*error = shared_join_first(l, s, sleeps);
	else
		*error = shared_kind(s)->join(l, s);
	if (!m || *error) {
		free(m);
		listener_close(l);
		connection_free(l, false);
		return NULL;
	}
	add_member(s, l, m);
	ledger_shared(l, s->keyed.key, s->renewals);
	return l;
}

struct connection *share_join(struct channel *ch, uint64_t key, int *error)
{
	struct connection *l = NULL;
	struct parked *sleeps = NULL;
	struct shared *s;

	*error = ENOENT;
	registry_lock();
	s = shared_of(registry_find(ch->tenant, key, KEYED_LISTENER));
	if (!s)
		s = shared_arrived(ch->tenant, key, &sleeps, error);
	if (s)
		l = join(ch, s, sleeps, error);
	if (s && sleeps && !l)
		shared_end(s);
	else if (s && sleeps)
		shared_has_begun(s, l);
	registry_unlock();
	return l;
}

void share_leave(struct connection *l, bool closed)
{
	struct shared *s = l->shared;
	uint32_t keep_ms = l->shares->keep_ms;
	bool ends;

	l->held = 0;
	while (!list_empty(&l->offers))
		share_give_back(list_entry(l->offers.next, struct connection, offers));
	for (struct connection *c = accepting_any(l); c; c = accepting_any(l))
		share_give_back(c);
	listener_close(l);
	registry_lock();
	ends = shared_is_not_kept(s, l, closed);
	remove_member(l);
	if (list_empty(&s->members)) {
		if (ends)
			shared_end(s);
		else
			registry_keep(&s->keyed, l->worker, keep_ms);
	} else {
		shared_wake_here(s, l->worker); /* it may have been about to offer them something */
	}
	registry_unlock();
}

int share_part(struct connection *c)
{
	struct shared *s = c->shared;
	int error = 0;

	registry_lock();
	if (!shared_has_only(s, c))
		error = EOPNOTSUPP;
	if (!error) {
		shared_kind(s)->share_parts(s, c);
		remove_member(c);
		shared_end(s);
	}
	registry_unlock();
	return error;
}

void share_is_bound(struct connection *c)
{
	struct shared *s = c->shared;

	registry_lock();
	s->bound = true;
	bound_address_release(s->bound_to);
	s->bound_to = c->bound_to ? bound_address_hold(c->bound_to) : NULL;
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
