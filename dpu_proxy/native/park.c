/* Connections that a host has parked, until one claims them. share.h has the theory of operation. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "pushed.h"
#include "share.h"

#define DRAIN_PIECES 2 /* blocks of 64 KiB: in one call, and with the lock */

struct parked {
	struct watch watch; /* first: epoll's pointer, while there are bytes to deliver */
	struct keyed keyed;
	struct list noted;       /* on unowned->drains: TCP takes more */
	struct unowned *unowned; /* of the keeper, whose turns deliver it; NULL: there is nothing to deliver */
	struct parked *next_stale;
	int fd; /* -1: claimed or ended, to be freed */
	uint8_t ip_version;
	bool watched;
	bool accepted;
	int error; /* the connection has failed: told (again) to who claims it */
	struct outgoing out;
	struct pushed *pushed;                /* its protocols; what they have not taken waits until it is claimed */
	uint32_t kernel_send, kernel_receive; /* as in struct connection */
	struct returned returned;             /* what its hosts had not read */
	/* Of one that had a key while it was held. */
	/* what had been returned before, and not been sent again: comes after what is returned now */
	struct returned behind;
	/* has parked it, and has not said yet that all is returned; NULL: nobody returns anything */
	struct channel *returner;
	struct list returning; /* on returner->returning */
	uint64_t may_return;   /* bytes */
	struct taken_over last;
};

static struct parked *parked_of(struct keyed *k)
{
	return k ? list_entry(k, struct parked, keyed) : NULL;
}

/* What it keeps: bytes for TCP, and what its protocols have. */
static uint64_t parked_bytes(const struct parked *p)
{
	return p->out.spill.bytes + pushed_memory(p->pushed);
}

/* Only its memory is left, for an event of this round may point at it. In the keeper's thread, unless what was returned
 * has passed to somebody else. */
static void become_stale(struct parked *p)
{
	struct worker_state *keeper = p->keyed.keeper;

	list_remove(&p->returning);
	p->returner = NULL;
	returned_join(&p->returned, &p->behind);
	returned_drop(&p->returned, keeper, p->keyed.tenant);
	registry_give_unowned(p->keyed.tenant, parked_bytes(p));
	tenant_give(p->keyed.tenant, XTS_USE_SOCKET_BYTES, p->kernel_send + p->kernel_receive);
	registry_remove(&p->keyed);
	p->fd = -1;
	p->next_stale = keeper->stale;
	keeper->stale = p;
	(void)eventfd_write(keeper->command_fd, 1); /* for a round, at the end of which it is freed */
}

static void parked_free(struct parked *p)
{
	list_remove(&p->noted);
	if (p->unowned)
		unowned_release(p->unowned);
	free(p);
}

void park_reap(struct worker_state *w)
{
	registry_lock();
	while (w->stale) {
		struct parked *p = w->stale;

		w->stale = p->next_stale;
		parked_free(p);
	}
	registry_unlock();
}

void parked_end(struct keyed *k)
{
	struct parked *p = parked_of(k);
	int fd = p->fd;

	become_stale(p);
	pushed_free(p->pushed);
	outgoing_free(&p->out);
	reset_and_close(fd);
}

/* --- parking ------------------------------------------------------------------------------------------------------ */

/* Moves the connection's TCP side to p. What its worker's epoll tells from now on is about p, and only if it is needed. */
static int take_from(struct parked *p, struct connection *c)
{
	struct epoll_event event = { .events = EPOLLOUT | EPOLLET, .data.ptr = &p->watch };

	p->watched = p->unowned;
	if (c->in_epoll && epoll_ctl(c->worker->epoll_fd, p->watched ? EPOLL_CTL_MOD : EPOLL_CTL_DEL, c->fd, &event))
		return ENOBUFS;
	buffers_tune(c);
	p->fd = c->fd;
	p->ip_version = c->ip_version;
	p->accepted = c->accepted;
	p->error = c->error;
	p->pushed = pushed_leave(c);
	p->kernel_send = c->kernel_send;
	p->kernel_receive = c->kernel_receive;
	c->kernel_send = c->kernel_receive = 0;
	p->behind = c->returned;
	c->returned = (struct returned){ 0 };
	p->may_return = c->received_bytes;
	p->last.delivered_bytes = c->received_bytes;
	p->last.accepted_bytes = c->accepted_bytes;
	c->worker->stats.spill_bytes -= c->out.spill.bytes;
	c->channel->spill_bytes -= c->out.spill.bytes;
	closed_handed_over(c);
	p->out = c->out;
	c->out = (struct outgoing){ 0 };
	c->fd = -1;
	c->in_epoll = false;
	return 0;
}

/* With the lock: the key that c has, if it is this one, and its charge pass to p. 0 or a positive errno, and nothing has changed. */
static int move_to_registry(struct parked *p, struct connection *c, uint64_t key, uint64_t bytes, bool died)
{
	bool has_it = c->name_held && c->name_held->keyed.key == key;
	uint32_t keep_ms = has_it ? c->name_held->keep_ms : 0;
	int error = registry_take_unowned(c->tenant, bytes) ? 0 : ENOBUFS;

	if (error)
		return error;
	if (!has_it)
		error = registry_add(&p->keyed, c->tenant, key, KEYED_PARKED);
	if (!error)
		error = take_from(p, c);
	if (error && p->keyed.tenant)
		registry_remove(&p->keyed);
	if (error) {
		registry_give_unowned(c->tenant, bytes);
		return error;
	}
	if (has_it) {
		struct take_queue *queue = c->name_held->keyed.queue;

		c->name_held->keyed.queue = NULL;
		held_remove(c);
		(void)registry_add(&p->keyed, c->tenant, key, KEYED_PARKED); /* nobody else can have taken it */
		p->keyed.queue = queue;
		p->last.keep_ms = keep_ms;
	}
	p->last.died = died;
	if (has_it && !died) {
		p->returner = c->channel;
		list_append(&c->channel->returning, &p->returning);
	} else {
		returned_join(&p->returned, &p->behind);
	}
	return 0;
}

static int park(struct connection *c, uint64_t key, uint32_t keep_ms, bool died)
{
	struct worker_state *w = c->worker;
	uint64_t bytes = c->out.spill.bytes + pushed_memory(c->pushed);
	struct parked *p;
	int error;

	if ((c->state != CONNECTION_ESTABLISHED && c->state != CONNECTION_FAILED) || c->connect_reply || c->spent)
		return EINVAL; /* it is not, and has not been, connected */
	if (c->pushed && (c->pushed->peeking || c->pushed->give_back_left))
		return EOPNOTSUPP; /* positions that only this host knows */
	p = calloc(1, sizeof *p);
	if (!p)
		return ENOBUFS;
	p->watch.kind = WATCH_PARKED;
	list_init(&p->noted);
	list_init(&p->returning);
	if (c->out.spill.bytes && !c->pushed) {
		p->unowned = unowned_hold(w, c->tenant);
		if (!p->unowned) {
			free(p);
			return ENOBUFS;
		}
	}
	registry_lock();
	error = move_to_registry(p, c, key, bytes, died);
	if (!error) {
		registry_keep(&p->keyed, w, keep_ms);
		w->stats.parks++;
	}
	registry_unlock();
	if (!error) {
		connection_free(c, false);
		return 0;
	}
	w->stats.refused_limit += error == ENOBUFS;
	parked_free(p);
	return error;
}

int park_start(struct connection *c, uint64_t key, uint32_t keep_ms)
{
	return park(c, key, keep_ms, false);
}

bool park_of_the_dead(struct connection *c)
{
	const struct held *h = c->name_held;

	return h && h->keep_ms && !c->announced && !c->close_reply && !park(c, h->keyed.key, h->keep_ms, true);
}

/* Delivers some to TCP. Does it take more? */
static bool drain(struct parked *p, struct worker_state *w)
{
	struct outgoing_target to = { .fd = p->fd, .writable = true, .raw_pieces = DRAIN_PIECES };
	struct outgoing_taken taken = { 0 };
	int error = p->out.spill.bytes ? outgoing_drain(&p->out, &to, &taken) : 0;

	if (error) {
		p->error = -error;
		tenant_give(p->keyed.tenant, XTS_USE_KEPT_BYTES, p->out.spill.bytes);
		outgoing_free(&p->out);
		return false;
	}
	tenant_give(p->keyed.tenant, XTS_USE_KEPT_BYTES, taken.bytes);
	w->stats.sent_bytes += taken.bytes;
	if (!p->out.spill.bytes && p->out.fin_wanted && !p->out.fin_done) {
		p->out.fin_done = true;
		(void)shutdown(p->fd, SHUT_WR);
	}
	return p->out.spill.bytes && to.writable;
}

void park_event(struct watch *watch)
{
	struct parked *p = (struct parked *)watch;

	if (p->unowned && list_empty(&p->noted))
		list_append(&p->unowned->drains, &p->noted);
}

bool park_drain(struct list *noted, struct worker_state *w)
{
	struct parked *p = list_entry(noted, struct parked, noted);
	bool more;

	registry_lock();
	more = p->fd >= 0 && !p->error && drain(p, w);
	registry_unlock();
	return more;
}

/* --- claiming ----------------------------------------------------------------------------------------------------- */

/* Moves the TCP side of p to c, which has its window and its protocols. */
static void give_to(struct parked *p, struct connection *c)
{
	struct worker_state *keeper = p->keyed.keeper;
	struct xts_endpoint peer;

	if (p->watched)
		(void)epoll_ctl(keeper->epoll_fd, EPOLL_CTL_DEL, p->fd, NULL);
	connection_enter(c, CONNECTION_ESTABLISHED);
	c->accepted = p->accepted;
	c->error = p->error;
	c->readable = p->error || p->pushed; /* layers may hold bytes of which epoll says nothing */
	c->returned = p->returned;
	p->returned = (struct returned){ 0 };
	c->readable |= c->returned.first != NULL;
	c->kernel_send = p->kernel_send;
	c->kernel_receive = p->kernel_receive;
	p->kernel_send = p->kernel_receive = 0;
	become_stale(p); /* before its bytes are c's: it counts them out */
	c->out = p->out;
	c->worker->stats.spill_bytes += c->out.spill.bytes;
	c->channel->spill_bytes += c->out.spill.bytes;
	c->worker->stats.claims++;
	socket_peer(c->fd, &peer);
	closed_begin(c, XTS_BEGUN_CLAIM, &peer);
}

static struct connection *claim(struct channel *ch, struct parked *p, int *error)
{
	struct connection *c = connection_new(ch, p->fd, p->ip_version, error);

	if (!c)
		return NULL;
	if (connection_grant_claimed(c, outgoing_credits(&p->out)) &&
	    (!p->pushed || (c->window >= XTS_ULP_WINDOW_MIN && pushed_adopt(c, p->pushed)))) {
		give_to(p, c);
		return c;
	}
	c->fd = -1; /* it stays parked */
	connection_free(c, false);
	*error = command_refuse(ch, XTS_REFUSED_WINDOWS);
	return NULL;
}

struct connection *park_claim(struct channel *ch, uint64_t key, int *error)
{
	struct connection *c = NULL;
	struct parked *p;

	registry_lock();
	p = parked_of(registry_find(ch->tenant, key, KEYED_PARKED));
	if (p)
		c = claim(ch, p, error);
	else
		*error = ENOENT;
	registry_unlock();
	if (c)
		parked_taken(c);
	return c;
}

void parked_taken(struct connection *c)
{
	if (connection_watch(c)) /* epoll tells of all that has arrived, and of room for what is spilled */
		connection_fail(c, ENOBUFS);
	connection_wake(c);
}

/* --- connections that have a key while they are held -------------------------------------------------------------- */

struct connection *parked_take(struct channel *ch, struct keyed *k, uint32_t purpose, struct taken_over *out, int *error)
{
	struct parked *p = parked_of(k);
	struct take_queue *queue = k->queue;
	struct connection *c;

	if (p->returner || !take_queue_is_first(k, ch, purpose)) {
		*error = EBUSY;
		return NULL;
	}
	*out = p->last;
	k->queue = NULL; /* goes with it */
	c = claim(ch, p, error);
	if (c)
		out->queue = queue;
	else
		k->queue = queue;
	return c;
}

static struct ulp_mark mark_of(const struct xts_return *m, bool more)
{
	struct ulp_mark mark = { .pdu = m->kind == 2 };

	if (!mark.pdu)
		return mark;
	mark.more = more;
	mark.control_bytes = (uint8_t)m->control_bytes;
	mark.control_type = m->control_type;
	mark.record_bytes = m->record_bytes;
	xts_put64(mark.control, m->control_high);
	xts_put64(mark.control + 8, m->control_low);
	return mark;
}

static void all_is_returned(struct parked *p)
{
	list_remove(&p->returning);
	p->returner = NULL;
	returned_join(&p->returned, &p->behind);
}

/* Only PDUs may be empty; and only what receives protocols has PDUs. */
static bool is_possible(const struct parked *p, const struct xts_return *m)
{
	if (m->kind == 2)
		return p->pushed && ulp_stack_receives(p->pushed->stack) && m->length <= p->may_return;
	return m->length <= p->may_return && (m->kind ? m->length > 0 : !m->length);
}

bool parked_return(struct channel *ch, const struct xts_return *m, bool more, const struct batch_entry *e)
{
	struct ulp_mark mark = mark_of(m, more);
	struct iovec iov[XTS_SEGMENTS_MAX];
	struct parked *p;
	bool possible;

	registry_lock();
	p = parked_of(registry_find(ch->tenant, m->key, KEYED_PARKED));
	possible = p && p->returner == ch && is_possible(p, m);
	if (possible && !m->kind) {
		all_is_returned(p);
	} else if (possible) {
		p->may_return -= m->length;
		if (returned_add(&p->returned, p->keyed.tenant, &mark, iov, batch_pieces(e, iov, XTS_SEGMENTS_MAX),
				 m->length)) {
			ch->worker->stats.refused_limit++;
			parked_end(&p->keyed); /* without them the stream would have a gap */
		}
	}
	registry_unlock();
	return possible;
}

bool parked_end_one_of(struct channel *ch)
{
	bool any;

	registry_lock();
	any = !list_empty(&ch->returning);
	if (any)
		parked_end(&list_entry(ch->returning.next, struct parked, returning)->keyed);
	registry_unlock();
	return any;
}
