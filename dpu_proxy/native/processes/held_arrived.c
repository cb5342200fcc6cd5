/* Connections with a key that have come from another process of the proxy; see held_arrived.h. */
#include "processes/held_arrived.h"

#include <errno.h>
#include <stdlib.h>

#include "channel/ledger.h"
#include "connection/socket_kind.h"
#include "processes/heard.h"
#include "processes/parked.h"
#include "processes/share.h"

struct arrived_name {
	struct keyed keyed; /* of the kind ARRIVED */
	struct parked *of;
	uint32_t keep_ms;
	uint8_t kind; /* enum move_note_kind */
	bool recovered;
};

/* --- coming ------------------------------------------------------------------------------------------------------- */

static bool is_possible(const struct parked *p, const struct worker_state *w, const struct move_note *n)
{
	return p && p->moved && !p->name && p->keyed.keeper == w && p->state == CONNECTION_ESTABLISHED && n->name &&
	       n->name != n->key && n->kind > NOTE_SHARED && n->kind < NOTE_KINDS && n->keep_ms <= KEEP_MS_MAX;
}

static int add(struct parked *p, const struct move_note *n, bool recovered)
{
	struct arrived_name *name = calloc(1, sizeof *name);
	int error = name ? -registry_add(&name->keyed, p->keyed.tenant, n->name, KEYED_ARRIVED) : -ENOMEM;

	if (error) {
		free(name);
		return error;
	}
	name->keep_ms = n->keep_ms;
	name->kind = (uint8_t)n->kind;
	name->recovered = recovered;
	name->of = p;
	p->name = name;
	if (keys_are_over(p->keyed.tenant, n->name, p->keyed.keeper->now_ns))
		held_is_over(&name->keyed);
	return 0;
}

int held_arrives(struct worker_state *w, const struct xts_tenant *t, const struct move_note *n, bool recovered)
{
	struct parked *p;
	int error = -EBADMSG;

	registry_lock();
	p = parked_of(registry_find(t, n->key, KEYED_PARKED));
	if (is_possible(p, w, n))
		error = add(p, n, recovered);
	registry_unlock();
	return error;
}

/* --- and then ----------------------------------------------------------------------------------------------------- */

/* The processes that ask for it keep their places. */
static struct take_queue *end_name(struct parked *p)
{
	struct arrived_name *name = p->name;
	struct take_queue *queue = name->keyed.queue;

	p->name = NULL;
	name->keyed.queue = NULL;
	registry_remove(&name->keyed);
	free(name);
	return queue;
}

void held_is_claimed(struct parked *p, struct connection *c)
{
	struct taken_over of = { 0 };
	uint64_t key;

	if (!p->name)
		return;
	key = p->name->keyed.key;
	of.keep_ms = p->name->keep_ms;
	of.queue = end_name(p);
	held_again(c, key, &of);
}

/* From now on it is as if it had been parked here. */
static void park_again(struct parked *p, bool died)
{
	uint64_t key = p->name->keyed.key;

	p->keep_ms = p->name->keep_ms;
	p->died = died;
	parked_has_settled(p);
	p->keyed.queue = end_name(p);
	(void)registry_rename(&p->keyed, key); /* nobody else can have taken it */
	ledger_parks(p->tcp.fd, p->keyed.tenant, key, p->keep_ms);
	registry_keep_for(&p->keyed, KEEP_MS_MAX);
	parked_ends_soon(p);
}

bool held_others_have(const struct parked *p)
{
	return p->name && p->name->keep_ms && !p->heard.close;
}

bool held_outlives(struct parked *p)
{
	if (!held_others_have(p) || (p->name->recovered && !heard_completes(p)))
		return false;
	list_remove(&p->returning);
	park_again(p, true);
	return true;
}

bool held_is_parked(struct parked *p)
{
	if (!p->name || p->name->kind == NOTE_HELD)
		return false;
	if (p->name->recovered && !heard_completes(p)) {
		parked_has_settled(p); /* nobody takes it back: its peer hears of its end */
		parked_end(&p->keyed);
		return true;
	}
	park_again(p, p->name->kind == NOTE_PARKED_DIED);
	return true;
}

void held_is_over(struct keyed *k)
{
	struct arrived_name *name = list_entry(k, struct arrived_name, keyed);

	name->keep_ms = 0;
	name->of->over = true;
}

void held_is_told(struct parked *p, uint64_t key, uint32_t keep_ms)
{
	struct arrived_name *name = p->name;

	if (!name || !key || keep_ms > KEEP_MS_MAX || (key != name->keyed.key && registry_rename(&name->keyed, key)))
		return;
	name->keep_ms = keep_ms;
}

bool held_note(const struct parked *p, struct move_note *n)
{
	if (!p->name)
		return false;
	*n = (struct move_note){
		.key = p->keyed.key, .name = p->name->keyed.key, .kind = p->name->kind, .keep_ms = p->name->keep_ms
	};
	return true;
}

void held_name_ends(struct parked *p)
{
	if (p->name)
		take_queue_free(end_name(p), p->keyed.tenant);
}
