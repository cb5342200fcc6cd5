/* Sockets that have come from another process of the proxy, until their host claims them. move.h has the theory of
 * operation. */
#include "processes/move.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>

#include "channel/channel.h"
#include "connection/handed.h"
#include "connection/socket_kind.h"
#include "connection/unowned.h"
#include "processes/held_arrived.h"
#include "processes/move_record.h"
#include "processes/parked.h"
#include "pushed/pushed_move.h"

/* One of index 0, which no socket has. */
uint32_t move_no_socket(uint32_t number)
{
	return number << ID_INDEX_BITS;
}

/* They end with their channel, which is watched, or with who has given them; this is for what nobody watches. */
#define UNCLAIMED_KEEP_MS (24u * 3600 * 1000)

static struct parked *parked_new(struct worker_state *w, struct xts_tenant *t, const struct tcp_side *side)
{
	struct parked *p = calloc(1, sizeof(struct parked_moved));

	if (!p)
		return NULL;
	p->watch.kind = WATCH_PARKED;
	p->tcp = TCP_SIDE_NONE;
	list_init(&p->noted);
	list_init(&p->returning);
	list_init(&p->arrived);
	if (side->out.spill.bytes && !side->pushed) /* what its protocol has not taken waits for its host */
		p->unowned = unowned_hold(w, t);
	if (!side->out.spill.bytes || side->pushed || p->unowned)
		return p;
	free(p);
	return NULL;
}

/* With the lock held. */
static void keep(struct parked *p, struct worker_state *w, struct xts_tenant *t, struct handed *come)
{
	struct handed all;

	handed_move(&all, come);
	p->tcp = all.side;
	p->own = all.own;
	/* it exists, whatever the limits are here */
	tenant_take_anyway(t, XTS_USE_KEPT_BYTES, returned_charge(&p->tcp.returned));
	tenant_take_anyway(t, XTS_USE_SOCKET_BYTES, (uint64_t)p->tcp.kernel_send + p->tcp.kernel_receive);
	registry_take_unowned_anyway(t, parked_bytes(p));
	tenant_take_anyway(t, socket_kinds[p->state]->use, 1); /* its place is not a newcomer's meanwhile */
	registry_keep(&p->keyed, w, UNCLAIMED_KEEP_MS);
}

int move_arrive(struct worker_state *w, struct xts_tenant *t, const struct move_head *h, struct handed *come,
		const struct parked_facts *facts)
{
	struct parked *p = parked_new(w, t, &come->side);
	int error;

	if (!p)
		return -ENOMEM;
	p->state = h->state;
	p->moved = true;
	if (facts)
		list_entry(p, struct parked_moved, parked)->facts = *facts;
	registry_lock();
	error = -registry_add(&p->keyed, t, h->key, KEYED_PARKED);
	if (!error)
		keep(p, w, t, come);
	registry_unlock();
	if (!error)
		return 0;
	if (p->unowned)
		unowned_release(p->unowned);
	free(p);
	return error;
}

int move_arrives_shared(struct worker_state *w, const struct xts_tenant *t, const struct move_note *n)
{
	struct parked *p;

	registry_lock();
	p = parked_of(registry_find(t, n->key, KEYED_PARKED));
	if (p && (!p->moved || p->keyed.keeper != w || !socket_kinds[p->state]->waits_shared || !n->name))
		p = NULL;
	if (p)
		parked_is_shared(p, n->name);
	registry_unlock();
	return p ? 0 : -EBADMSG;
}

/* With the lock held: it is this process's, so what waits goes to TCP. Before that the process that has given it may
 * take it back, and sends the same bytes then. */
void move_deliver(struct parked *p, struct worker_state *w)
{
	struct epoll_event event = { .events = EPOLLOUT | EPOLLET, .data.ptr = &p->watch };

	p->watched = p->unowned && !epoll_ctl(w->epoll_fd, EPOLL_CTL_ADD, p->tcp.fd, &event);
}

void move_collect(struct worker_state *w, struct channel *ch, const struct xts_tenant *t, uint64_t ticket)
{
	registry_lock();
	for (struct list *node = w->kept.next, *next; node != &w->kept; node = next) {
		struct keyed *k = list_entry(node, struct keyed, kept);
		struct parked *p = k->kind == KEYED_PARKED ? parked_of(k) : NULL;

		next = node->next;
		if (p && p->moved && k->tenant == t && (k->key ^ ticket) >> 32 == 0 && list_empty(&p->returning)) {
			move_deliver(p, w);
			if (!held_is_parked(p))
				list_append(&ch->returning, &p->returning);
		}
	}
	registry_unlock();
}

void move_forget_arrived(struct worker_state *w)
{
	registry_lock();
	for (struct list *node = w->kept.next, *next; node != &w->kept; node = next) {
		struct keyed *k = list_entry(node, struct keyed, kept);
		struct parked *p = k->kind == KEYED_PARKED ? parked_of(k) : NULL;

		next = node->next;
		if (!p || !p->moved || !list_empty(&p->returning))
			continue;
		parked_has_settled(p); /* nobody takes it back: its peer hears of its end */
		parked_end(k);
	}
	registry_unlock();
}

void move_pass(struct channel *trunk, struct channel *ch, uint64_t ticket)
{
	struct list *next;

	registry_lock();
	for (struct list *node = trunk->returning.next; node != &trunk->returning; node = next) {
		struct parked *p = list_entry(node, struct parked, returning);

		next = node->next;
		if ((p->keyed.key ^ ticket) >> 32)
			continue;
		list_remove(&p->returning);
		list_append(&ch->returning, &p->returning);
	}
	registry_unlock();
}

/* With the lock held. */
static void give(struct parked *p, struct handed *next)
{
	uint64_t kept = parked_bytes(p);

	if (p->watched)
		(void)epoll_ctl(p->keyed.keeper->epoll_fd, EPOLL_CTL_DEL, p->tcp.fd, NULL);
	handed_move(next, &(struct handed){ .side = p->tcp, .own = p->own });
	p->tcp = TCP_SIDE_NONE;
	p->own = NULL;
	parked_become_stale(p, kept);
}

/* With the lock held. What its host has not returned all of is reset: the rest would be missing. */
static struct parked *next_unclaimed(struct channel *ch)
{
	while (!list_empty(&ch->returning)) {
		struct parked *p = list_entry(ch->returning.next, struct parked, returning);

		if (!p->returner)
			return p;
		parked_end(&p->keyed);
	}
	return NULL;
}

bool move_next_unclaimed(struct channel *ch, struct move_head *h, struct move_note *n, struct handed *next)
{
	struct parked *p;

	registry_lock();
	p = next_unclaimed(ch);
	if (p) {
		*h = (struct move_head){ .key = p->keyed.key, .state = p->state };
		if (!held_note(p, n))
			*n = (struct move_note){ .key = h->key, .name = p->shared_key, .kind = NOTE_SHARED };
		give(p, next);
	}
	registry_unlock();
	return p;
}

/* Under its own key, and all that belongs to it is here. */
static bool may_go(const struct parked *p)
{
	return !p->moved && !p->returner && p->state == CONNECTION_ESTABLISHED &&
	       !(p->tcp.pushed && pushed_stays(p->tcp.pushed));
}

bool move_next_parked(struct channel *ch, struct move_head *h, struct move_note *n, struct handed *next)
{
	struct parked *p;

	registry_lock();
	p = ch->move->parked < MOVE_NO_SOCKETS ? registry_any_parked(ch->tenant, may_go) : NULL;
	if (p) {
		*h = (struct move_head){ .key = move_key(ch->move->ticket, move_no_socket(++ch->move->parked)),
					 .state = p->state };
		*n = (struct move_note){ .key = h->key,
					 .name = p->keyed.key,
					 .kind = p->died ? NOTE_PARKED_DIED : NOTE_PARKED,
					 .keep_ms = p->keep_ms };
		give(p, next);
	}
	registry_unlock();
	return p;
}

/* The first one of the longest row of generations that are free; one follows the other as slots are used again. */
static uint16_t first_of_longest_row(const bool *taken)
{
	uint32_t row = 0, longest = 0, first = 0;

	for (uint32_t i = 0; i < 2 * ID_GENERATIONS && longest < ID_GENERATIONS; i++) {
		row = taken[i % ID_GENERATIONS] ? 0 : row + 1;
		if (row > longest) {
			longest = row;
			first = i + 1 - row;
		}
	}
	return (uint16_t)(first % ID_GENERATIONS);
}

uint16_t move_generation(const struct channel *ch)
{
	bool taken[ID_GENERATIONS] = { false };

	registry_lock();
	for (const struct list *node = ch->returning.next; node != &ch->returning; node = node->next) {
		const struct parked *p = list_entry(node, struct parked, returning);

		taken[(uint32_t)p->keyed.key >> ID_INDEX_BITS] = true;
	}
	registry_unlock();
	return first_of_longest_row(taken);
}

void move_unclaimed_end(struct channel *ch, bool all_are_claimed)
{
	struct list *next;

	registry_lock();
	for (struct list *node = ch->returning.next; node != &ch->returning; node = next) {
		struct parked *p = list_entry(node, struct parked, returning);

		next = node->next;
		if (!p->returner && !((ch->moved_epoch || all_are_claimed) && held_outlives(p)))
			parked_end(&p->keyed);
	}
	registry_unlock();
}

void move_free(struct channel *ch)
{
	if (ch->move)
		xts_queue_session_free(ch->move->session);
	if (ch->move)
		free(ch->move->known);
	free(ch->move);
	ch->move = NULL;
}
