/*
 * Whether a shared socket listens. On the kernel it is one thing for all processes that have the socket: one calls
 * shutdown(), and accept() ends in each; one calls listen(), and each may accept.
 *
 * Theory of operation. The TCP socket is one, so what a member does to it is done. The others have a state of their own
 * here and at their hosts, and follow: the change is counted in struct shared, under the lock, and each worker lets its
 * members catch up in its next round (share_follow()). Several changes may be one for a member that is late: it passes
 * through "shut down" then, so that nothing which was offered before is left. Its host is told where it ended
 * (LISTENING). Members whose hosts do not speak LISTENING go on as if only they had the socket: each says LISTEN for
 * itself, and while there is one, nobody can shut the socket down (the host closes its member then).
 */
#include "processes/share_inside.h"

#include <errno.h>
#include <sys/socket.h>

enum { LISTENS_NOT_YET, LISTENS, LISTENS_NO_MORE }; /* the field of LISTENING */

/* With the lock held: the others on all workers have to look. */
static void changed(struct connection *l)
{
	struct shared *s = l->shared;

	l->shares->changes_seen = ++s->changes;
	for (struct list *node = s->members.next; node != &s->members; node = node->next) {
		struct connection *m = list_entry(node, struct member, all)->connection;

		if (m == l)
			continue;
		atomic_store(&m->worker->follow_due, true);
		worker_poke(m->worker);
	}
}

void share_listens(struct connection *l, uint32_t backlog, bool was_idle)
{
	struct shared *s = l->shared;
	bool begins;

	registry_lock();
	begins = !s->listens;
	s->listens = true;
	s->backlog = backlog > UINT16_MAX ? UINT16_MAX : (uint16_t)backlog;
	if (begins) {
		/* again: another member may have shut it down since */
		(void)listen(s->fd, backlog > INT32_MAX ? INT32_MAX : (int)backlog);
		atomic_store(&s->shut, false);
		changed(l);
	}
	if (was_idle)
		l->shares->changes_seen = s->changes; /* it has followed by itself */
	registry_unlock();
}

/* --- shutting it down --------------------------------------------------------------------------------------------- */

/* With the lock held. */
static bool all_follow(const struct shared *s)
{
	for (const struct list *node = s->members.next; node != &s->members; node = node->next)
		if (!list_entry(node, struct member, all)->follows)
			return false;
	return true;
}

int share_shut_begins(struct connection *l)
{
	struct shared *s = l->shared;
	int error = 0;

	registry_lock();
	if (s->shut)
		error = ENOTCONN;
	else if (s->ended || s->elsewhere || !all_follow(s))
		error = EOPNOTSUPP;
	else
		atomic_store(&s->shut, true);
	registry_unlock();
	return error;
}

bool share_shut_some(struct connection *l)
{
	bool more = true;

	while (more) {
		registry_lock();
		more = shared_reset_one_waiting(l->shared);
		registry_unlock();
		if (more && worker_turn_is_over(l->worker))
			return false;
	}
	return true;
}

void share_shut_ends(struct connection *l)
{
	registry_lock();
	share_shut_socket(l->shared->fd);
	l->shared->listens = false;
	changed(l);
	registry_unlock();
}

/* --- following ---------------------------------------------------------------------------------------------------- */

static struct member *next_to_follow(const struct worker_state *w, bool *listens)
{
	for (struct list *node = shared_sockets.next; node != &shared_sockets; node = node->next) {
		struct shared *s = list_entry(node, struct shared, all);
		struct connection *first = shared_member_here(s, w), *m = first;

		while (m) {
			if (m->shares->changes_seen != s->changes) {
				m->shares->changes_seen = s->changes;
				*listens = s->listens;
				return m->shares;
			}
			m = shared_next_here(m);
			if (m == first)
				break;
		}
	}
	return NULL;
}

/* It exists already, so it is charged for whatever the limits are. */
static void begin_to_listen(struct connection *m)
{
	tenant_take_anyway(m->tenant, XTS_USE_LISTENERS, 1);
	listener_become(m);
	m->held = 0;
	m->readable = true;
	if (connection_watch(m))
		connection_look_later(m); /* epoll has no room: it looks for connections now and then */
}

static void follow(struct connection *m, bool listens)
{
	if (!m->shares->follows || m->close_reply || m->tcp.fd < 0)
		return;
	if (kind_of(m)->members_accept)
		share_is_shut(m);
	if (listens && m->state == CONNECTION_IDLE && !m->connect_reply)
		begin_to_listen(m);
	m->shares->tell = true;
	connection_wake(m);
	connection_check(m);
}

void share_follow(struct worker_state *w)
{
	struct member *m;
	bool listens = false;

	if (!atomic_exchange(&w->follow_due,
			     false)) /* it is poked for much else, and there may be thousands to look at */
		return;
	do {
		registry_lock();
		m = next_to_follow(w, &listens);
		registry_unlock();
		if (m)
			follow(m->connection, listens); /* nobody but this worker touches its members */
	} while (m);
}

/* --- telling hosts ------------------------------------------------------------------------------------------------ */

void share_tell_joined(struct connection *l)
{
	if (!l->shares->follows)
		return;
	l->shares->tell = true;
	connection_wake(l);
}

bool share_tell(struct connection *l)
{
	struct shared *s = l->shared;
	struct xts_listening m = { 0 };
	struct xts_tx_slot slot;

	if (!l->shares->tell)
		return true;
	if (!channel_slot(l->channel, &slot))
		return false;
	registry_lock();
	m.listens = kind_of(l)->members_accept ? LISTENS : s->shut ? LISTENS_NO_MORE : LISTENS_NOT_YET;
	m.backlog = s->backlog;
	registry_unlock();
	l->shares->tell = false;
	xts_head_encode(slot.data, XTS_REPLY_LISTENING, 0, 0, l->xts_socket);
	xts_listening_encode(slot.data, &m);
	channel_submit(l->channel, &slot, XTS_LISTENING_BYTES);
	return true;
}
