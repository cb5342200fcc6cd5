/* Connections that a host has parked: parking them, and delivering their bytes to TCP.
 * parked.h names the other files. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "channel/ledger.h"
#include "connection/socket_kind.h"
#include "connection/tcp_move.h"
#include "connection/unowned.h"
#include "processes/held_arrived.h"
#include "processes/parked.h"
#include "processes/share.h"
#include "pushed/pushed.h"

#define DRAIN_PIECES 2 /* blocks of 64 KiB that one call writes, with the lock held */

uint64_t parked_bytes(const struct parked *p)
{
	return p->tcp.out.spill.bytes + parked_spilled_bytes(p) + pushed_memory(p->tcp.pushed) +
	       (p->own ? p->own->bytes : 0);
}

void parked_has_settled(struct parked *p)
{
	if (p->moved)
		tenant_give(p->keyed.tenant, socket_kinds[p->state]->use, 1);
	p->moved = false;
}

void parked_become_stale(struct parked *p, uint64_t kept_bytes)
{
	struct worker_state *keeper = p->keyed.keeper;

	list_remove(&p->returning);
	list_remove(&p->arrived);
	held_name_ends(p);
	p->returner = NULL;
	returned_drop(&p->coming, keeper, p->keyed.tenant);
	parked_drop_spilled(p);
	parked_has_settled(p);
	registry_give_unowned(p->keyed.tenant, kept_bytes);
	registry_remove(&p->keyed);
	p->next_stale = keeper->stale;
	keeper->stale = p;
	worker_poke(keeper); /* so that it has a round, at the end of which p is freed */
}

static void parked_free(struct parked *p)
{
	list_remove(&p->noted);
	if (p->unowned)
		unowned_release(p->unowned);
	free(p->own);
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

/* It has come from another process of the proxy, which may still take it back: what is done to the socket is done to
 * that one's, too. */
static bool is_anothers(const struct parked *p)
{
	return p->moved && list_empty((struct list *)&p->returning);
}

void parked_end(struct keyed *k)
{
	struct parked *p = parked_of(k);
	uint64_t kept = parked_bytes(p);

	if (is_anothers(p)) {
		close(p->tcp.fd);
		p->tcp.fd = -1;
	}
	parked_close(p);
	returned_join(&p->coming, &p->tcp.returned); /* they may be many, and are dropped in turns */
	tcp_side_end(&p->tcp, k->tenant);
	parked_become_stale(p, kept);
}

/* --- parking ------------------------------------------------------------------------------------------------------ */

/* From now on events of its worker's epoll are about p, if p needs any. */
static int watch_from_now_on(struct parked *p, struct connection *c)
{
	struct epoll_event event = { .events = EPOLLOUT | EPOLLET, .data.ptr = &p->watch };

	if (!p->unowned || !c->in_epoll)
		return 0;
	if (epoll_ctl(c->worker->epoll_fd, EPOLL_CTL_MOD, c->tcp.fd, &event))
		return ENOBUFS;
	p->watched = true;
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
		error = watch_from_now_on(p, c);
	if (error && p->keyed.tenant)
		registry_remove(&p->keyed);
	if (error) {
		registry_give_unowned(c->tenant, bytes);
		return error;
	}
	p->may_return = c->tcp.received_bytes;
	(void)kind_of(c)->save(c, &p->tcp);
	if (!has_it ||
	    p->tcp.pushed) /* who claims it is not told whether bytes are missing; what TLS has is not written */
		ledger_forget(p->tcp.fd);
	if (has_it) {
		struct take_queue *queue = c->key_held->keyed.queue;

		ledger_parks(p->tcp.fd, c->tenant, key, keep_ms);
		c->key_held->keyed.queue = NULL;
		held_remove(c);
		(void)registry_add(&p->keyed, c->tenant, key, KEYED_PARKED); /* nobody else can have taken the key */
		p->keyed.queue = queue;
		p->keep_ms = keep_ms;
	}
	p->died = died;
	if (has_it && !died) {
		p->returner = c->channel;
		list_append(&c->channel->returning, &p->returning);
	}
	return 0;
}

static int park(struct connection *c, uint64_t key, uint32_t keep_ms, bool died)
{
	struct worker_state *w = c->worker;
	uint64_t bytes = c->tcp.out.spill.bytes + pushed_memory(c->tcp.pushed);
	struct parked *p;
	int error = kind_of(c)->save(c, NULL);

	if (error)
		return error;
	p = calloc(1, sizeof *p);
	if (!p)
		return ENOBUFS;
	p->watch.kind = WATCH_PARKED;
	p->tcp = TCP_SIDE_NONE;
	p->state = CONNECTION_ESTABLISHED;
	list_init(&p->noted);
	list_init(&p->returning);
	list_init(&p->arrived);
	if (c->tcp.out.spill.bytes && !c->tcp.pushed) {
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
	struct outgoing_target to = {
		.fd = p->tcp.fd, .more = p->tcp.more, .writable = true, .most = UINT32_MAX, .raw_pieces = DRAIN_PIECES
	};
	struct outgoing_taken taken = { 0 };
	int error = p->tcp.out.spill.bytes ? outgoing_drain(&p->tcp.out, &to, &taken) : 0;

	if (error) {
		p->tcp.error = -error;
		tenant_give(p->keyed.tenant, XTS_USE_KEPT_BYTES, p->tcp.out.spill.bytes);
		outgoing_free(&p->tcp.out);
		return false;
	}
	tenant_give(p->keyed.tenant, XTS_USE_KEPT_BYTES, taken.bytes);
	if (p->heard.settled)
		p->tcp.accepted_bytes += taken.bytes;
	w->stats.sent_bytes += taken.bytes;
	/* It does not wait for the tenant's rate, but others wait the longer. */
	(void)pacer_reserve(&p->keyed.tenant->pacer, taken.bytes, w->now_ns);
	if (!p->tcp.out.spill.bytes && p->tcp.fin_wanted && !p->tcp.fin_done) {
		p->tcp.fin_done = true;
		(void)shutdown(p->tcp.fd, SHUT_WR);
	}
	return p->tcp.out.spill.bytes && to.writable;
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
	more = p->tcp.fd >= 0 && !p->tcp.error && drain(p, w);
	parked_ends_soon(p);
	registry_unlock();
	return more;
}
