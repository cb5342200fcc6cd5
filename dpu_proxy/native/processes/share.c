/* The members of a listener or a datagram socket that several channels have: the first names it, others join, they
 * leave. share.h has the theory of operation. */
#include "addresses/socket_address.h"
#include "datagrams/datagram_socket.h"
#include "processes/share_inside.h"
#include "pushed/pushed.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
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
	share_turn_ends(l); /* the members that are here already go first */
	list_append(&s->members, &m->all);
	if (neighbour)
		list_append(&neighbour->shares->here, &m->here);
	if (l->datagrams)
		datagram_named(l);
	else
		l->worker->stats.shared_listeners++;
}

static void remove_member(struct connection *l)
{
	list_remove(&l->shares->all);
	list_remove(&l->shares->here);
	free(l->shares);
	l->shares = NULL;
	l->shared = NULL;
	if (l->state != CONNECTION_DATAGRAM)
		l->worker->stats.shared_listeners--;
}

bool shared_has_only(const struct shared *s, const struct connection *l)
{
	return s->members.next == &l->shares->all && s->members.prev == &l->shares->all;
}

/* With the lock held: the descriptor in struct shared stays open when those of the members are closed. */
static void begin_datagrams(struct shared *s, const struct connection *l)
{
	s->multicast = multicast_hold(l->datagrams->multicast);
	s->bound = l->datagrams->bound;
	atomic_store(&s->dropped, l->datagrams->dropped);
	groups_use(s->multicast, s->fd);
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
	else if (key && s->keyed.key != key)
		error = registry_rename(&s->keyed, key);
	if (!error) {
		l->shares->keep_ms = keep_ms;
		s->abandoned |= !keep_ms;
	}
	registry_unlock();
	if (!error && l->datagrams)
		datagram_named(l);
	return error;
}

int share_start(struct connection *l, uint64_t key, uint32_t keep_ms)
{
	struct worker_state *w = l->worker;
	struct shared *s = l->shared;
	struct member *m;
	int error;

	if (s)
		return share_again(l, key, keep_ms);
	s = calloc(1, sizeof *s);
	m = s ? make_member(l) : NULL;
	if (!m) {
		free(s);
		return ENOBUFS;
	}
	s->fd = fcntl(l->fd, F_DUPFD_CLOEXEC, 0);
	s->ip_version = l->ip_version;
	s->listens = l->state == CONNECTION_LISTENER;
	m->keep_ms = keep_ms;
	list_init(&s->members);
	registry_lock();
	error = s->fd < 0 || (l->pushed && pushed_copy(&s->pushed, l->pushed, NULL)) ? ENOBUFS : 0;
	if (!error)
		error = registry_add(&s->keyed, l->tenant, key, KEYED_LISTENER);
	if (!error) {
		s->bound_to = l->bound_to ? bound_address_hold(l->bound_to) : NULL;
		list_append(&shared_sockets, &s->all);
		if (l->datagrams) {
			begin_datagrams(s, l);
			filter_share(l, s);
		}
		add_member(s, l, m);
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
	struct member *m;
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
	l->bound_to = s->bound_to ? bound_address_hold(s->bound_to) : NULL;
	m = make_member(l);
	*error = m ? become_member(l, s) : command_refuse(ch, XTS_REFUSED_DEVICE_MEMORY);
	if (!m || *error) {
		free(m);
		listener_close(l);
		connection_free(l, false);
		return NULL;
	}
	add_member(s, l, m);
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
		if (c->datagrams)
			filter_unshare(c, s);
		remove_member(c);
		shared_end(s);
	}
	registry_unlock();
	return error;
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
