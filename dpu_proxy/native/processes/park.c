/* Connections that a host has parked: parking them, and delivering their bytes to TCP.
 * parked.h names the other files. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "connection/unowned.h"
#include "processes/parked.h"
#include "processes/share.h"
#include "pushed/pushed.h"

#define DRAIN_PIECES 2 /* blocks of 64 KiB that one call writes, with the lock held */

/* How many bytes it keeps: those for TCP, and those of its protocols. */
static uint64_t parked_bytes(const struct parked *p)
{
	return p->out.spill.bytes + pushed_memory(p->pushed);
}

void parked_become_stale(struct parked *p)
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
	worker_poke(keeper); /* so that it has a round, at the end of which p is freed */
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

	parked_become_stale(p);
	pushed_free(p->pushed);
	outgoing_free(&p->out);
	reset_and_close(fd);
}

/* --- parking ------------------------------------------------------------------------------------------------------ */

/* Moves the connection's TCP side to p. From now on events of its worker's epoll are about p, if p needs any. */
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

/* With the lock held: p takes over the charge of c, and c's key if it is this one. 0, or a positive errno, and nothing
 * has changed. */
static int move_to_registry(struct parked *p, struct connection *c, uint64_t key, uint64_t bytes, bool died)
{
	bool has_it = c->key_held && c->key_held->keyed.key == key;
	uint32_t keep_ms = has_it ? c->key_held->keep_ms : 0;
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
		struct take_queue *queue = c->key_held->keyed.queue;

		c->key_held->keyed.queue = NULL;
		held_remove(c);
		(void)registry_add(&p->keyed, c->tenant, key, KEYED_PARKED); /* nobody else can have taken the key */
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
		return EINVAL; /* it is not connected, and never was */
	if (c->pushed && (c->pushed->peeking || c->pushed->give_back_left))
		return EOPNOTSUPP; /* they depend on positions that only this host knows */
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
	const struct held *h = c->key_held;

	return h && h->keep_ms && !c->announced && !c->close_reply && !park(c, h->keyed.key, h->keep_ms, true);
}

/* Delivers some bytes to TCP. True: TCP takes more. */
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
